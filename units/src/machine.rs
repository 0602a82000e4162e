//! The files on the host that make systemd-nspawn's stock unit run a machine of ours: its settings and two drop-ins.
//!
//! `ExecStart=` of the stock unit is never overridden. Source: node-agent.md 5.5, test-host.md 8.

use hostexec::HostPath;

use crate::name;
use crate::service::ServiceName;
use crate::template::filled;

/// What a machine is given of its host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine<'a> {
    /// The machine's name, as machined knows it.
    pub name: &'a str,
    /// Devices, in any order.
    pub devices: Vec<Device>,
    /// Folders and files, in any order.
    pub binds: Vec<Bind>,
    /// Services of the host without which the machine must not start.
    pub required: Vec<ServiceName>,
}

/// A device that a machine may use.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Device {
    /// A node, which is bound into the machine.
    Node(HostPath),
    /// A group as the kernel names it, such as `char-input`: allowed, and bound nowhere.
    Group(String),
}

/// A folder or file of the host in the machine.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bind {
    /// On the host. systemd-nspawn refuses the machine where it is missing.
    pub source: HostPath,
    /// In the machine.
    pub target: HostPath,
    /// What the machine may do with it.
    pub access: Access,
}

/// What a machine may do with a bind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    /// Look at it.
    ReadOnly,
    /// Change it.
    ReadWrite,
}

/// A file of the host, ready to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostFile {
    /// Where it belongs.
    pub path: HostPath,
    /// The whole file.
    pub text: String,
    /// Permissions.
    pub mode: u32,
}

/// Why a machine's files cannot be rendered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MachineError {
    /// The name is none that systemd takes as an instance and nspawn as a machine.
    #[error("a machine's name is one to sixty-four lowercase letters and digits")]
    Name,
    /// The path has a letter that systemd's files give a meaning.
    #[error("{0:?} cannot be bound into a machine: a path with space, control character, colon, quote or backslash")]
    Path(String),
    /// The text is no device group.
    #[error("{0:?} is no group of devices: write char-NAME or block-NAME, as in /proc/devices")]
    Group(String),
}

impl Machine<'_> {
    /// The machine's files, in an order in which each may be read as soon as it is written.
    ///
    /// They name the hooks' units: write those first.
    ///
    /// # Errors
    /// A name, path or group that would mean something else in a file of systemd's.
    pub fn files(&self) -> Result<[HostFile; 3], MachineError> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
        if self.name.is_empty() || self.name.len() > 64 || !self.name.chars().all(plain) {
            return Err(MachineError::Name);
        }
        let drop_in = format!("{}/systemd-nspawn@{}.service.d", name::UNIT_DIR, self.name);
        Ok([
            file(format!("{}/{}.nspawn", name::NSPAWN_DIR, self.name), self.nspawn()?),
            file(
                format!("{drop_in}/aks-flex-node-dependencies.conf"),
                self.dependencies(),
            ),
            file(format!("{drop_in}/override.conf"), self.drop_in()?),
        ])
    }

    fn nspawn(&self) -> Result<String, MachineError> {
        let mut lines = Vec::new();
        for device in sorted(&self.devices) {
            if let Device::Node(path) = device {
                lines.push(format!("Bind={}", writable(path)?));
            }
        }
        for bind in sorted(&self.binds) {
            let key = match bind.access {
                Access::ReadOnly => "BindReadOnly",
                Access::ReadWrite => "Bind",
            };
            let source = writable(&bind.source)?;
            lines.push(if bind.source == bind.target {
                format!("{key}={source}")
            } else {
                format!("{key}={source}:{}", writable(&bind.target)?)
            });
        }
        let text = include_str!("../files/machine.nspawn.in");
        Ok(trimmed(text, &[("machine", self.name), ("binds", &lines.join("\n"))]))
    }

    fn drop_in(&self) -> Result<String, MachineError> {
        let mut lines = Vec::new();
        for device in sorted(&self.devices) {
            let what = match device {
                Device::Node(path) => writable(path)?,
                Device::Group(group) => group_name(group)?,
            };
            lines.push(format!("DeviceAllow={} rwm", what.replace('%', "%%")));
        }
        let values = [
            ("pre_start", &*name::NSPAWN_PRE_START.replace('@', "@%i")),
            ("post_start", &*name::NSPAWN_POST_START.replace('@', "@%i")),
            ("devices", &*lines.join("\n")),
        ];
        Ok(trimmed(include_str!("../files/machine-override.conf.in"), &values))
    }

    fn dependencies(&self) -> String {
        let names: Vec<String> = sorted(&self.required).into_iter().map(ServiceName::escaped).collect();
        let lines = match names.join(" ") {
            names if names.is_empty() => names,
            names => format!("Requires={names}\nAfter={names}"),
        };
        trimmed(
            include_str!("../files/machine-dependencies.conf.in"),
            &[("required", &lines)],
        )
    }
}

fn sorted<T: Ord>(all: &[T]) -> std::collections::BTreeSet<&T> {
    all.iter().collect()
}

fn file(path: String, text: String) -> HostFile {
    let path = HostPath::new(path).expect("folders of ours and a checked name make a plain path");
    HostFile {
        path,
        text,
        mode: 0o644,
    }
}

/// Lists at the end of these may be empty.
fn trimmed(template: &str, values: &[(&str, &str)]) -> String {
    filled(template, values).trim_end().to_owned() + "\n"
}

fn writable(path: &HostPath) -> Result<String, MachineError> {
    let text = path.as_str();
    let speaks = |c: char| c.is_whitespace() || c.is_control() || ":\"'\\".contains(c);
    if text.contains(speaks) {
        Err(MachineError::Path(text.to_owned()))
    } else {
        Ok(text.to_owned())
    }
}

fn group_name(group: &str) -> Result<String, MachineError> {
    let named = group.strip_prefix("char-").or_else(|| group.strip_prefix("block-"));
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.*?/".contains(c);
    match named {
        Some(rest) if !rest.is_empty() && rest.chars().all(plain) => Ok(group.to_owned()),
        _ => Err(MachineError::Group(group.to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> HostPath {
        HostPath::new(text).unwrap()
    }

    fn machine() -> Machine<'static> {
        Machine {
            name: "kube1",
            devices: vec![
                Device::Node(path("/dev/net/tun")),
                Device::Node(path("/dev/kvm")),
                Device::Group("char-input".into()),
                Device::Node(path("/dev/disk%1")),
                Device::Node(path("/dev/kvm")),
            ],
            binds: vec![
                Bind {
                    source: path("/lib/modules"),
                    target: path("/lib/modules"),
                    access: Access::ReadOnly,
                },
                Bind {
                    source: path("/srv/data"),
                    target: path("/var/lib/data"),
                    access: Access::ReadWrite,
                },
            ],
            required: vec!["storage.service".parse().unwrap(), "a-b.service".parse().unwrap()],
        }
    }

    #[test]
    fn a_machines_files_are_as_reviewed() {
        let files = machine().files().unwrap();
        let shown: Vec<String> = files
            .iter()
            .map(|file| format!("=== {}\n{}", file.path, file.text))
            .collect();
        insta::assert_snapshot!("machine", shown.join("\n"));
    }

    #[test]
    fn a_machine_without_wishes_has_no_empty_settings() {
        let bare = Machine {
            name: "kube2",
            devices: vec![],
            binds: vec![],
            required: vec![],
        };
        for file in bare.files().unwrap() {
            assert!(!file.text.lines().any(|line| line.ends_with('=')), "{}", file.text);
            assert!(
                file.text.ends_with('\n') && !file.text.ends_with("\n\n"),
                "{:?}",
                file.text
            );
        }
    }

    #[test]
    fn a_hook_that_fails_never_keeps_a_machine_from_starting() {
        let [_, _, drop_in] = machine().files().unwrap();
        assert!(
            drop_in
                .text
                .contains("\nWants=aks-flex-node-nspawn-pre-start@%i.service\n"),
            "{}",
            drop_in.text
        );
        assert!(!drop_in.text.contains("Requires="), "{}", drop_in.text);
        let hooks = drop_in.text.lines().filter(|line| line.starts_with("ExecStart"));
        for line in hooks {
            assert!(line.contains("=-/"), "{line}");
        }
    }

    #[test]
    fn a_path_that_would_say_more_is_refused() {
        for bad in [
            "/srv/a b",
            "/srv/a:b",
            "/srv/a\nCapability=none",
            "/srv/\"x",
            "/srv/it's",
            "/srv/a\\b",
            "/srv/a\tb",
        ] {
            let bind = Bind {
                source: path(bad),
                target: path("/x"),
                access: Access::ReadOnly,
            };
            let machine = Machine {
                binds: vec![bind],
                ..machine()
            };
            assert_eq!(machine.files(), Err(MachineError::Path(bad.into())));
        }
    }

    #[test]
    fn a_group_that_would_say_more_is_refused() {
        for bad in ["input", "char-", "char-a b", "char-a\nX=1", "block-%i"] {
            let machine = Machine {
                devices: vec![Device::Group(bad.into())],
                ..machine()
            };
            assert_eq!(machine.files(), Err(MachineError::Group(bad.into())));
        }
    }

    #[test]
    fn a_name_that_is_no_machines_is_refused() {
        for bad in ["", "kube1/../x", "Kube", "a b", "a%i", "a@b"] {
            assert_eq!(
                Machine { name: bad, ..machine() }.files(),
                Err(MachineError::Name),
                "{bad:?}"
            );
        }
    }
}
