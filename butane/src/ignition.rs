//! Ignition's JSON, from judged inputs.

use std::collections::BTreeSet;

use base64::Engine;
use hostexec::HostPath;
use serde_json::{Value, json};
use units::name;

use crate::Error;
use crate::bu::{self, Bu};
use crate::inputs::{BASE_CONFIG_PATH, Inputs};

/// A version of Ignition's configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(non_camel_case_types, reason = "a version's dots")]
pub enum Spec {
    /// For Ignition before 2.15.
    V3_3_0,
    /// What Azure Container Linux is given.
    V3_4_0,
}

impl Spec {
    /// The version as Ignition writes it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V3_3_0 => "3.3.0",
            Self::V3_4_0 => "3.4.0",
        }
    }
}

/// Units of the image that may be enabled without being written.
const OF_THE_IMAGE: &[&str] = &[
    "containerd.service",
    "sshd.socket",
    "sshd.service",
    "systemd-networkd.service",
    "systemd-resolved.service",
];

/// Files of a mode that holds secrets.
const SECRET: u32 = 0o600;

/// Renders the inputs of a host.
///
/// # Errors
/// The operator's Butane files clash with ours or with one another, or ask for what goes wrong at boot.
pub fn render(inputs: &Inputs, spec: Spec) -> Result<Value, Error> {
    let mut config = Config::default();
    let ours = "aks-flex-node";
    config.folder(ours, name::ETC_DIR, 0o755)?;
    config.file(ours, name::SETTINGS_ENV, SECRET, &inputs.settings)?;
    config.file(ours, name::BOOTSTRAP_ENV, SECRET, &inputs.bootstrap)?;
    if let Some(bytes) = &inputs.base_config {
        config.file(ours, BASE_CONFIG_PATH, SECRET, bytes)?;
    }
    if !inputs.secrets.is_empty() {
        config.folder(ours, "/etc/aks-flex-node/secrets", 0o700)?;
    }
    for (name, bytes) in &inputs.secrets {
        config.file(ours, &format!("/etc/aks-flex-node/secrets/{name}"), SECRET, bytes)?;
    }
    if let (Some(place), Some(files)) = (&inputs.hosts_dir, &inputs.hosts) {
        config.folder(ours, place.as_str(), 0o700)?;
        for (path, bytes) in files {
            config.file(ours, &format!("{place}/{path}"), SECRET, bytes)?;
        }
    }
    // Where /etc/machine-id is there and empty no presets are applied, where it is missing a link alone is taken away.
    let (bootstrap, reset) = (units::bootstrap(), units::reset());
    config.link(
        ours,
        name::BOOTSTRAP_WANTED,
        &format!("{}/{}", name::UNIT_DIR, name::BOOTSTRAP),
        true,
    )?;
    config.unit(
        ours,
        bootstrap.name,
        json!({"name": bootstrap.name, "enabled": true, "contents": bootstrap.text}),
    )?;
    config.unit(
        ours,
        reset.name,
        json!({"name": reset.name, "enabled": false, "contents": reset.text}),
    )?;
    for (file, bu) in &inputs.extra {
        config.add(file, bu)?;
    }
    Ok(config.finish(spec))
}

impl Bu {
    /// Renders the Butane file alone, as Butane itself would.
    ///
    /// # Errors
    /// It asks for what goes wrong at boot.
    pub fn render(&self, file: &str, spec: Spec) -> Result<Value, Error> {
        let mut config = Config::default();
        config.add(file, self)?;
        Ok(config.finish(spec))
    }
}

#[derive(Default)]
struct Config {
    taken: BTreeSet<String>,
    users: Vec<Value>,
    directories: Vec<Value>,
    files: Vec<Value>,
    links: Vec<Value>,
    units: Vec<Value>,
}

impl Config {
    fn take(&mut self, file: &str, path: &str) -> Result<(), Error> {
        HostPath::new(path).map_err(|why| Error::key("path", file, why.to_string()))?;
        if ["/usr/", "/bin/", "/sbin/", "/lib/", "/lib64/"]
            .iter()
            .any(|start| path.starts_with(start))
        {
            return Err(Error::key(
                path,
                file,
                "/usr is read-only on the host: write below /etc, /opt or /var",
            ));
        }
        if self.taken.insert(path.to_owned()) {
            Ok(())
        } else {
            Err(Error::key(
                path,
                file,
                "it is there already: Ignition takes a path once",
            ))
        }
    }

    fn folder(&mut self, file: &str, path: &str, mode: u32) -> Result<(), Error> {
        self.take(file, path)?;
        self.directories.push(json!({"path": path, "mode": mode}));
        Ok(())
    }

    fn file(&mut self, file: &str, path: &str, mode: u32, bytes: &[u8]) -> Result<(), Error> {
        self.take(file, path)?;
        let source = format!(
            "data:;base64,{}",
            base64::engine::general_purpose::STANDARD.encode(bytes)
        );
        self.files
            .push(json!({"path": path, "overwrite": true, "contents": {"source": source}, "mode": mode}));
        Ok(())
    }

    fn link(&mut self, file: &str, path: &str, target: &str, overwrite: bool) -> Result<(), Error> {
        self.take(file, path)?;
        self.links
            .push(json!({"path": path, "overwrite": overwrite, "target": target, "hard": false}));
        Ok(())
    }

    fn unit(&mut self, file: &str, name: &str, unit: Value) -> Result<(), Error> {
        self.take(file, &format!("{}/{name}", name::UNIT_DIR))?;
        self.units.push(unit);
        Ok(())
    }

    fn add(&mut self, from: &str, bu: &Bu) -> Result<(), Error> {
        for user in &bu.passwd.users {
            let mut value = json!({"name": user.name});
            for (key, list) in [
                ("groups", &user.groups),
                ("sshAuthorizedKeys", &user.ssh_authorized_keys),
            ] {
                if !list.is_empty() {
                    value[key] = json!(list);
                }
            }
            if let Some(hash) = &user.password_hash {
                value["passwordHash"] = json!(hash);
            }
            self.users.push(value);
        }
        for bu::Directory { path, mode } in &bu.storage.directories {
            self.folder(from, path, mode.map_or(0o755, |mode| mode.0))?;
        }
        for file in &bu.storage.files {
            if file.overwrite == Some(false) {
                return Err(Error::key(
                    &file.path,
                    from,
                    "overwrite: false ends the boot where the file is there: write overwrite: true",
                ));
            }
            let mode = file.mode.map_or(0o644, |mode| mode.0);
            let secret = file.path == name::SETTINGS_ENV || file.path.starts_with(&format!("{}/", name::ETC_DIR));
            if secret && mode != SECRET {
                return Err(Error::key(
                    &file.path,
                    from,
                    "what the agent reads may hold secrets: write mode: 0600",
                ));
            }
            self.file(from, &file.path, mode, file.contents.inline.as_bytes())?;
        }
        for link in &bu.storage.links {
            self.link(from, &link.path, &link.target, link.overwrite.unwrap_or(true))?;
        }
        bu.systemd.units.iter().try_for_each(|unit| self.add_unit(from, unit))
    }

    fn add_unit(&mut self, from: &str, unit: &bu::Unit) -> Result<(), Error> {
        let wrong = |problem: &str| Err(Error::key(&unit.name, from, problem));
        let suffixes = [".service", ".socket", ".timer", ".path", ".mount", ".target", ".slice"];
        if unit.name.contains(['/', '\0']) || !suffixes.iter().any(|suffix| unit.name.ends_with(suffix)) {
            return wrong(
                "a unit's name ends in .service, .socket, .timer, .path, .mount, .target or .slice and has no slash",
            );
        }
        let mut value = json!({"name": unit.name});
        if unit.enabled == Some(true) {
            match &unit.contents {
                None if !OF_THE_IMAGE.contains(&unit.name.as_str()) => {
                    return wrong("it is enabled, has no contents here and is not known on the image: write contents:");
                }
                None => {}
                Some(contents) => {
                    let wanted: Vec<&str> = contents
                        .lines()
                        .filter_map(|line| line.trim().strip_prefix("WantedBy="))
                        .flat_map(str::split_whitespace)
                        .collect();
                    if wanted.is_empty() {
                        return wrong(
                            "it is enabled and says not by what: write [Install] with WantedBy=multi-user.target",
                        );
                    }
                    for target in wanted {
                        let path = format!("{}/{target}.wants/{}", name::UNIT_DIR, unit.name);
                        // The operator's own link for it is as good.
                        if !self.taken.contains(&path) {
                            self.link(from, &path, &format!("{}/{}", name::UNIT_DIR, unit.name), true)?;
                        }
                    }
                }
            }
        }
        if let Some(enabled) = unit.enabled {
            value["enabled"] = json!(enabled);
        }
        if let Some(mask) = unit.mask {
            value["mask"] = json!(mask);
        }
        if let Some(contents) = &unit.contents {
            value["contents"] = json!(contents);
        }
        if !unit.dropins.is_empty() {
            let drop_ins: Vec<Value> = unit
                .dropins
                .iter()
                .map(|drop_in| json!({"name": drop_in.name, "contents": drop_in.contents}))
                .collect();
            if let Some(bad) = unit
                .dropins
                .iter()
                .find(|d| d.name.contains('/') || !d.name.ends_with(".conf"))
            {
                return Err(Error::key(
                    &bad.name,
                    from,
                    "a drop-in's name ends in .conf and has no slash",
                ));
            }
            value["dropins"] = json!(drop_ins);
        }
        self.unit(from, &unit.name, value)
    }

    fn finish(self, spec: Spec) -> Value {
        let mut config = json!({"ignition": {"version": spec.as_str()}});
        if !self.users.is_empty() {
            config["passwd"] = json!({"users": self.users});
        }
        config["storage"] = json!({"directories": self.directories, "files": self.files, "links": self.links});
        config["systemd"] = json!({"units": self.units});
        config
    }
}
