//! Ignition's JSON, from judged inputs.

use std::collections::{BTreeMap, BTreeSet};

use base64::Engine;
use hostexec::HostPath;
use serde_json::{Value, json};
use units::name;

use crate::bu::{self, Bu};
use crate::inputs::{BASE_CONFIG_PATH, Inputs};
use crate::place::{self, shown};
use crate::{Error, ours};

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
    let mut config = Config {
        secret: inputs.hosts_dir.iter().cloned().collect(),
        ..Config::default()
    };
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
        ours::judge(file, bu)?;
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

/// What may lie below a path that is taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Taken {
    /// Anything.
    Folder,
    /// Nothing: it is a file, a link or a unit.
    Leaf,
}

#[derive(Default)]
struct Config {
    taken: BTreeMap<String, Taken>,
    names: BTreeSet<String>,
    /// Folders, beside the agent's own, whose files nobody but root may read.
    secret: Vec<HostPath>,
    users: Vec<Value>,
    directories: Vec<Value>,
    files: Vec<Value>,
    links: Vec<Value>,
    units: Vec<Value>,
}

impl Config {
    fn take(&mut self, file: &str, path: &str, taken: Taken) -> Result<HostPath, Error> {
        let wrong = |path: &str, problem: &str| Err(Error::key(shown(path, "a path"), file, problem));
        let judged = match place::judge(path) {
            Ok(judged) => judged,
            // A text that is no path is not repeated.
            Err(why) if HostPath::new(path).is_err() => return Err(Error::key("path", file, why)),
            Err(why) => return wrong(path, &why),
        };
        if self.taken.contains_key(path) {
            return wrong(path, "it is there already: Ignition takes a path once");
        }
        let mut above = judged.parent();
        while let Some(folder) = above {
            if self.taken.get(folder.as_str()) == Some(&Taken::Leaf) {
                let problem = "a path above it is a file, link or unit, and no folder: write another path";
                return wrong(path, problem);
            }
            above = folder.parent();
        }
        let below = format!("{path}/");
        let next = self.taken.range(below.clone()..).next();
        if taken == Taken::Leaf && next.is_some_and(|(next, _)| next.starts_with(&below)) {
            let problem = "other paths lie below it, so it can be no file, link or unit: write another path";
            return wrong(path, problem);
        }
        self.taken.insert(path.to_owned(), taken);
        Ok(judged)
    }

    fn folder(&mut self, file: &str, path: &str, mode: u32) -> Result<(), Error> {
        self.take(file, path, Taken::Folder)?;
        self.directories.push(json!({"path": path, "mode": mode}));
        Ok(())
    }

    fn file(&mut self, file: &str, path: &str, mode: u32, bytes: &[u8]) -> Result<(), Error> {
        self.take(file, path, Taken::Leaf)?;
        let source = format!(
            "data:;base64,{}",
            base64::engine::general_purpose::STANDARD.encode(bytes)
        );
        self.files
            .push(json!({"path": path, "overwrite": true, "contents": {"source": source}, "mode": mode}));
        Ok(())
    }

    fn link(&mut self, file: &str, path: &str, target: &str, overwrite: bool) -> Result<(), Error> {
        self.take(file, path, Taken::Leaf)?;
        self.links
            .push(json!({"path": path, "overwrite": overwrite, "target": target, "hard": false}));
        Ok(())
    }

    fn unit(&mut self, file: &str, name: &str, unit: Value) -> Result<(), Error> {
        self.take(file, &format!("{}/{name}", name::UNIT_DIR), Taken::Leaf)?;
        self.units.push(unit);
        Ok(())
    }

    fn add(&mut self, from: &str, bu: &Bu) -> Result<(), Error> {
        for user in &bu.passwd.users {
            let wrong = |problem: &str| Err(Error::key("passwd.users", from, problem));
            if ![&user.name]
                .into_iter()
                .chain(&user.groups)
                .all(|name| place::is_user(name))
            {
                return wrong(
                    "a name of a user or group is at most 32 lowercase letters, digits, `_` and `-`, and begins with a letter or `_`",
                );
            }
            if !self.names.insert(user.name.clone()) {
                return wrong("a user is there already: write each once");
            }
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
            not_kept(from, &file.path, file.overwrite)?;
            let mode = file.mode.map_or(0o644, |mode| mode.0);
            self.file(from, &file.path, mode, file.contents.inline.as_bytes())?;
            let secret = HostPath::new(file.path.as_str()).is_ok_and(|path| self.is_secret(&path));
            if secret && mode & 0o077 != 0 {
                return Err(Error::key(
                    shown(&file.path, "a path"),
                    from,
                    "what the agent reads may hold secrets: write mode: 0600",
                ));
            }
        }
        for link in &bu.storage.links {
            not_kept(from, &link.path, link.overwrite)?;
            if link.target.is_empty() || link.target.contains('\0') {
                return Err(Error::key(
                    shown(&link.path, "a path"),
                    from,
                    "write target: and what it leads to",
                ));
            }
            self.link(from, &link.path, &link.target, true)?;
        }
        bu.systemd.units.iter().try_for_each(|unit| self.add_unit(from, unit))
    }

    /// Whether the file at the path may hold secrets.
    fn is_secret(&self, path: &HostPath) -> bool {
        const OURS: [HostPath; 2] = [HostPath::fixed(name::SETTINGS_ENV), HostPath::fixed(name::ETC_DIR)];
        OURS.iter().chain(&self.secret).any(|folder| path.is_within(folder))
    }

    fn add_unit(&mut self, from: &str, unit: &bu::Unit) -> Result<(), Error> {
        let wrong = |problem: &str| Err(Error::key(&unit.name, from, problem));
        if !place::is_unit(&unit.name) {
            return Err(Error::key(
                "name of a unit",
                from,
                "systemd takes letters, digits and `:_.-@\\`, and one of .service, .socket, .timer, .path, .mount, .automount, .swap, .target or .slice at the end",
            ));
        }
        if unit.mask == Some(true) && (unit.enabled == Some(true) || unit.contents.is_some()) {
            return wrong("what is masked cannot run: take mask: out, or enabled: and contents:");
        }
        if unit.enabled == Some(true) && unit.name.contains("@.") {
            return wrong("a template cannot be enabled: name its instance, as in a@b.service");
        }
        let mut value = json!({"name": unit.name});
        if unit.enabled == Some(true) {
            match &unit.contents {
                None if !OF_THE_IMAGE.contains(&unit.name.as_str()) => {
                    return wrong("it is enabled, has no contents here and is not known on the image: write contents:");
                }
                None => {}
                Some(contents) => {
                    let wanted: BTreeSet<&str> = contents
                        .lines()
                        .filter_map(|line| line.split_once('='))
                        .filter(|(key, _)| key.trim() == "WantedBy")
                        .flat_map(|(_, targets)| targets.split_whitespace())
                        .collect();
                    if wanted.is_empty() {
                        return wrong(
                            "it is enabled and says not by what: write [Install] with WantedBy=multi-user.target",
                        );
                    }
                    if !wanted.iter().all(|target| place::is_unit(target)) {
                        return wrong("its WantedBy= names no unit: write WantedBy=multi-user.target");
                    }
                    for target in wanted {
                        let path = format!("{}/{target}.wants/{}", name::UNIT_DIR, unit.name);
                        // The operator's own link for it is as good.
                        if !self.taken.contains_key(&path) {
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
            let mut drop_ins = Vec::new();
            for drop_in in &unit.dropins {
                if !place::is_drop_in(&drop_in.name) {
                    return wrong("a drop-in is named by letters, digits and `:_.-@\\`, with .conf at the end");
                }
                let path = format!("{}/{}.d/{}", name::UNIT_DIR, unit.name, drop_in.name);
                self.take(from, &path, Taken::Leaf)?;
                drop_ins.push(json!({"name": drop_in.name, "contents": drop_in.contents}));
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

/// Refuses to keep what is there.
fn not_kept(file: &str, path: &str, overwrite: Option<bool>) -> Result<(), Error> {
    if overwrite == Some(false) {
        let problem = "overwrite: false ends the boot where the file is there: write overwrite: true";
        return Err(Error::key(shown(path, "a path"), file, problem));
    }
    Ok(())
}
