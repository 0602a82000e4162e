//! The folder of inputs, read and judged.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use hostexec::HostPath;
use image::ImageRef;
use units::name;

use crate::bu::{self, Bu};
use crate::{Error, env};

/// Everything that Ignition is rendered from; what is in it has been judged.
#[derive(Clone, Debug, Default)]
pub struct Inputs {
    pub(crate) settings: Vec<u8>,
    pub(crate) bootstrap: Vec<u8>,
    pub(crate) base_config: Option<Vec<u8>>,
    pub(crate) secrets: BTreeMap<String, Vec<u8>>,
    /// The host's folder of registry settings and the files in it, by their paths from it.
    pub(crate) hosts: Option<(HostPath, BTreeMap<String, Vec<u8>>)>,
    pub(crate) extra: Vec<(String, Bu)>,
}

pub(crate) const SETTINGS: &str = "agent.env";
pub(crate) const BOOTSTRAP: &str = "bootstrap.env";
const BASE_CONFIG: &str = "base-config.json";
const BASE_CONFIG_KEY: &str = "AKS_FLEX_NODE_BASE_CONFIG_FILE";
/// Where the base configuration is put on the host.
pub(crate) const BASE_CONFIG_PATH: &str = "/etc/aks-flex-node/base-config.json";

impl Inputs {
    /// Reads and judges the folder.
    ///
    /// # Errors
    /// A file that cannot be read, is not of the folder, or says what cannot work.
    pub fn load(folder: &Path) -> Result<Self, Error> {
        std::fs::read_dir(folder).map_err(unreadable(&format!("the folder {}", folder.display())))?;
        let mut inputs = Self {
            settings: read(folder, SETTINGS)?,
            bootstrap: private(folder, BOOTSTRAP)?,
            ..Self::default()
        };
        for file in list(folder, "")? {
            match file.as_str() {
                SETTINGS | BOOTSTRAP => {}
                BASE_CONFIG => inputs.base_config = Some(private(folder, BASE_CONFIG)?),
                "secrets" => inputs.secrets = secrets(folder)?,
                "hosts" => {
                    let mut files = BTreeMap::new();
                    walk(folder, "hosts", &mut files)?;
                    inputs.hosts = Some((HostPath::ROOT, files));
                }
                other if other.ends_with(".bu") => inputs
                    .extra
                    .push((file.clone(), bu::parse(other, &read(folder, other)?)?)),
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
        let settings = env::parse(SETTINGS, &self.settings)?;
        let known = [name::IMAGE_KEY, name::ARCHIVE_KEY, name::HOSTS_DIR_KEY];
        if let Some(key) = settings.keys().find(|key| !known.contains(&key.as_str())) {
            return Err(Error::key(
                key,
                SETTINGS,
                format!("no setting has this name: write {}", known.join(", ")),
            ));
        }
        let image = settings.get(name::IMAGE_KEY).map(String::as_str).unwrap_or_default();
        image.parse::<ImageRef>().map_err(|why| {
            let write = "write <registry>/<repository>@sha256:<64 lowercase hex digits>";
            Error::key(name::IMAGE_KEY, SETTINGS, format!("{why}; {write}"))
        })?;
        let path = |key: &str| match settings.get(key) {
            None => Ok(None),
            Some(text) => HostPath::new(text.clone())
                .map(Some)
                .map_err(|why| Error::key(key, SETTINGS, format!("{why}; write the path on the host"))),
        };
        path(name::ARCHIVE_KEY)?;
        match (path(name::HOSTS_DIR_KEY)?, &mut self.hosts) {
            (Some(at), Some((place, _))) => *place = at,
            (None, Some(_)) => {
                let problem = "there is a folder hosts/, so write where it belongs: AKS_FLEX_NODE_AGENT_HOSTS_DIR=/etc/aks-flex-node-agent-hosts";
                return Err(Error::key(name::HOSTS_DIR_KEY, SETTINGS, problem));
            }
            (_, None) => {}
        }
        Ok(())
    }

    fn judge_bootstrap(&self) -> Result<(), Error> {
        let inputs = env::parse(BOOTSTRAP, &self.bootstrap)?;
        if let Some(key) = inputs.keys().find(|key| !key.starts_with("AKS_FLEX_NODE_")) {
            return Err(Error::key(
                key,
                BOOTSTRAP,
                "no input of bootstrap has this name: they begin with AKS_FLEX_NODE_",
            ));
        }
        let named = inputs.get(BASE_CONFIG_KEY).map(String::as_str) == Some(BASE_CONFIG_PATH);
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

fn unreadable(file: &str) -> impl FnOnce(io::Error) -> Error {
    let file = file.to_owned();
    |source| Error::Read { file, source }
}

fn read(folder: &Path, file: &str) -> Result<Vec<u8>, Error> {
    std::fs::read(folder.join(file)).map_err(unreadable(file))
}

/// The names in a folder, sorted; a name that is no plain text is refused.
fn list(folder: &Path, below: &str) -> Result<Vec<String>, Error> {
    let what = if below.is_empty() {
        "the folder of inputs"
    } else {
        below
    };
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder.join(below)).map_err(unreadable(what))? {
        let entry = entry.map_err(unreadable(what))?;
        let name = entry
            .file_name()
            .into_string()
            .map_err(|_| Error::file(what, "a name in it is not UTF-8"))?;
        if name.chars().any(char::is_control) {
            return Err(Error::file(what, "a name in it holds a control character"));
        }
        names.push(name);
    }
    names.sort();
    Ok(names)
}

/// A file that is root's alone on the host, and must not be anybody's here.
fn private(folder: &Path, file: &str) -> Result<Vec<u8>, Error> {
    let found = std::fs::metadata(folder.join(file)).map_err(unreadable(file))?;
    if found.permissions().mode() & 0o077 != 0 {
        return Err(Error::file(file, "others may read it: chmod 600"));
    }
    read(folder, file)
}

fn secrets(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Error> {
    let mut secrets = BTreeMap::new();
    for name in list(folder, "secrets")? {
        let bytes = private(folder, &format!("secrets/{name}"))?;
        secrets.insert(name, bytes);
    }
    Ok(secrets)
}

fn walk(folder: &Path, below: &str, files: &mut BTreeMap<String, Vec<u8>>) -> Result<(), Error> {
    for name in list(folder, below)? {
        let path = format!("{below}/{name}");
        if std::fs::metadata(folder.join(&path))
            .map_err(unreadable(&path))?
            .is_dir()
        {
            walk(folder, &path, files)?;
        } else {
            let bytes = private(folder, &path)?;
            files.insert(path["hosts/".len()..].to_owned(), bytes);
        }
    }
    Ok(())
}
