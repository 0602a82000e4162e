//! The folder of inputs, read and judged.

use std::collections::BTreeMap;
use std::path::Path;

use hostexec::HostPath;
use image::ImageRef;
use units::name;

use crate::bu::{self, Bu};
use crate::env::{self, Assignment};
use crate::folder::{Folder, Readers};
use crate::{Error, ours, place};

/// Everything that Ignition is rendered from; what is in it has been judged.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub(crate) settings: Vec<u8>,
    pub(crate) bootstrap: Vec<u8>,
    pub(crate) base_config: Option<Vec<u8>>,
    pub(crate) secrets: BTreeMap<String, Vec<u8>>,
    /// The host's folder of registry settings.
    pub(crate) hosts_dir: Option<HostPath>,
    /// The files to be put in it, by their paths from it; none where the folder is there already.
    pub(crate) hosts: Option<BTreeMap<String, Vec<u8>>>,
    pub(crate) extra: Vec<(String, Bu)>,
}

pub(crate) const SETTINGS: &str = "agent.env";
pub(crate) const BOOTSTRAP: &str = "bootstrap.env";
const BASE_CONFIG: &str = "base-config.json";
/// What the variables of ours begin with.
const PREFIX: &str = "AKS_FLEX_NODE_";
/// The folder of registry settings that is proposed.
const HOSTS_DIR: &str = "/etc/aks-flex-node-agent-hosts";
/// The most folders one in another: a link may lead back to one above it.
const DEPTH: usize = 16;
const BASE_CONFIG_KEY: &str = "AKS_FLEX_NODE_BASE_CONFIG_FILE";
/// Where the base configuration is put on the host.
pub(crate) const BASE_CONFIG_PATH: &str = "/etc/aks-flex-node/base-config.json";

impl Inputs {
    /// Reads and judges the folder.
    ///
    /// # Errors
    /// A file that cannot be read, is not of the folder, or says what cannot work.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        let folder = &Folder::new(folder)?;
        let mut inputs = Self {
            settings: folder.read(SETTINGS, Readers::All)?,
            bootstrap: folder.read(BOOTSTRAP, Readers::Owner)?,
            ..Self::default()
        };
        for file in folder.list("")? {
            match file.as_str() {
                SETTINGS | BOOTSTRAP => {}
                BASE_CONFIG => inputs.base_config = Some(folder.read(BASE_CONFIG, Readers::Owner)?),
                "secrets" => inputs.secrets = secrets(folder)?,
                "hosts" => walk(folder, "hosts", inputs.hosts.get_or_insert_default())?,
                other if other.ends_with(".bu") => {
                    let bu = bu::parse(other, &folder.read(other, Readers::All)?)?;
                    inputs.extra.push((file, bu));
                }
                other => {
                    let known =
                        "agent.env, bootstrap.env, base-config.json, secrets/, hosts/ or a file that ends in .bu";
                    return Err(Error::file(other, format!("no input has this name: write {known}")));
                }
            }
        }
        inputs.judge_settings()?;
        inputs.judge_bootstrap()?;
        Ok(inputs)
    }

    /// What the bootstrap reads on the host.
    #[must_use]
    pub fn bootstrap(&self) -> &[u8] {
        &self.bootstrap
    }

    /// The configuration that the bootstrap starts from, if it is one of these files.
    #[must_use]
    pub fn base_config(&self) -> Option<&[u8]> {
        self.base_config.as_deref()
    }

    fn judge_settings(&mut self) -> Result<(), Error> {
        let settings = env::parse(&self.settings).map_err(|why| Error::file(SETTINGS, why.to_string()))?;
        let known = [name::IMAGE_KEY, name::ARCHIVE_KEY, name::HOSTS_DIR_KEY];
        if let Some(other) = settings.iter().find(|found| !known.contains(&found.name.as_str())) {
            return Err(foreign(SETTINGS, other, &format!("write {}", known.join(", "))));
        }
        let image = last(&settings, name::IMAGE_KEY).unwrap_or_default();
        image.parse::<ImageRef>().map_err(|why| {
            let write = "write <registry>/<repository>@sha256:<64 lowercase hex digits>";
            Error::key(name::IMAGE_KEY, SETTINGS, format!("{why}; {write}"))
        })?;
        if let Some(archive) = last(&settings, name::ARCHIVE_KEY) {
            HostPath::new(archive).map_err(|why| {
                let problem = format!("{why}; write the path on the host");
                Error::key(name::ARCHIVE_KEY, SETTINGS, problem)
            })?;
        }
        self.hosts_dir = last(&settings, name::HOSTS_DIR_KEY)
            .map(own_folder)
            .transpose()
            .map_err(|why| Error::key(name::HOSTS_DIR_KEY, SETTINGS, why))?;
        if self.hosts.is_some() && self.hosts_dir.is_none() {
            let problem = format!(
                "there is a folder hosts/, so write where it belongs: {}={HOSTS_DIR}",
                name::HOSTS_DIR_KEY
            );
            return Err(Error::key(name::HOSTS_DIR_KEY, SETTINGS, problem));
        }
        Ok(())
    }

    /// As far as it concerns the folder: what the variables mean is the bootstrap's to judge.
    fn judge_bootstrap(&self) -> Result<(), Error> {
        let inputs = env::parse(&self.bootstrap).map_err(|why| Error::file(BOOTSTRAP, why.to_string()))?;
        if let Some(other) = inputs.iter().find(|found| !found.name.starts_with(PREFIX)) {
            return Err(foreign(BOOTSTRAP, other, "write one that begins with AKS_FLEX_NODE_"));
        }
        let named = last(&inputs, BASE_CONFIG_KEY) == Some(BASE_CONFIG_PATH);
        match &self.base_config {
            Some(_) if !named => {
                let problem = format!("there is a base-config.json, so write {BASE_CONFIG_KEY}={BASE_CONFIG_PATH}");
                Err(Error::key(BASE_CONFIG_KEY, BOOTSTRAP, problem))
            }
            Some(bytes) => match serde_json::from_slice::<serde_json::Map<String, serde_json::Value>>(bytes) {
                Ok(_) => Ok(()),
                Err(why) => {
                    let problem = format!("it is no JSON object (line {}, column {})", why.line(), why.column());
                    Err(Error::file(BASE_CONFIG, problem))
                }
            },
            None if named => Err(Error::key(
                BASE_CONFIG_KEY,
                BOOTSTRAP,
                "it names a file that only a base-config.json here would make: add it, or take the line out",
            )),
            None => Ok(()),
        }
    }
}

/// The last value that the file gives the key; of an empty one systemd and the agent make as much as of none.
fn last<'a>(found: &'a [Assignment], key: &str) -> Option<&'a str> {
    let value = found.iter().rev().find(|found| found.name == key)?.value.trim();
    (!value.is_empty()).then_some(value)
}

/// A variable that the file must not have. Its name is told only where it is like those of the agent's: what else stands
/// there may be a piece of a secret.
fn foreign(file: &str, found: &Assignment, write: &str) -> Error {
    if found.name.starts_with(PREFIX) && found.name.len() <= 64 {
        Error::key(&found.name, file, write)
    } else {
        let line = found.line;
        let problem = format!("line {line} has a variable that is none of the agent's: leave it out, or {write}");
        Error::file(file, problem)
    }
}

/// The host's folder of registry settings, which gets mode 0700 and must be nobody else's.
fn own_folder(text: &str) -> Result<HostPath, String> {
    let write = format!("write a folder of its own, such as {HOSTS_DIR}");
    let folder = place::judge(text).map_err(|why| format!("{why}; {write}"))?;
    if folder.parent() == Some(HostPath::ROOT) {
        return Err(format!("it lies in the root; {write}"));
    }
    if ours::meets(&folder) {
        return Err(format!("it holds files of the agent's, or is one; {write}"));
    }
    Ok(folder)
}

fn secrets(folder: &Folder<'_>) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut secrets = BTreeMap::new();
    for name in folder.list("secrets")? {
        let bytes = folder.read(&format!("secrets/{name}"), Readers::Owner)?;
        secrets.insert(name, bytes);
    }
    Ok(secrets)
}

fn walk(folder: &Folder<'_>, below: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Error> {
    if below.split('/').count() > DEPTH {
        return Err(Error::file(
            below,
            "it lies too deep: write at most 16 folders one in another",
        ));
    }
    for name in folder.list(below)? {
        let path = format!("{below}/{name}");
        if folder.has_folder(&path)? {
            walk(folder, &path, files)?;
        } else {
            let bytes = folder.read(&path, Readers::Owner)?;
            files.insert(path["hosts/".len()..].to_owned(), bytes);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_registries_is_one_of_its_own() {
        for good in [HOSTS_DIR, "/etc/containerd/certs.d", "/var/lib/registries", "/opt/x/y"] {
            assert_eq!(own_folder(good).as_ref().map(HostPath::as_str), Ok(good));
        }
        for bad in [
            "/",
            "/etc",
            "/usr",
            "/usr/share/hosts",
            "/var",
            "/var/lib",
            "/run",
            "/run/x",
            "/tmp",
            "/opt",
            "/home",
            "/root",
            "/proc/1",
            "/sys/x",
            "/dev/shm",
            "/hosts",
            "/etc/systemd",
            "/etc/systemd/system",
            "etc/x",
            "/etc/aks-flex-node",
            "/etc/aks-flex-node/hosts",
            "/etc/aks-flex-node-agent.env",
            "/etc/aks-flex-node-agent.env/x",
            "/etc/x/",
            "/etc/a\nb",
            "/etc/systemd/system/aks-flex-node-agent.service.d",
        ] {
            let said = own_folder(bad).unwrap_err();
            assert!(
                said.ends_with("; write a folder of its own, such as /etc/aks-flex-node-agent-hosts"),
                "{bad}: {said}"
            );
        }
    }
}
