//! What the agent made on its host, and what was there before: by this a reset knows whose something is. Pure.
//!
//! Most of what is the agent's is known by its name (docs/reset.md); the ledger holds the rest, and hashes. It is saved before a step is
//! made true, so that no crash leaves something that nobody owns.

use hostexec::HostPath;
use image::Digest;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use units::host::Family;

use crate::model::MachineName;
use crate::step::{Entry, File, Place, Step, Sysctl};

/// The form this agent writes, and the highest it reads; a kind of thing more does not raise it.
pub const VERSION: u64 = 1;
/// How many hashes of one file are kept: a crash leaves the one before, or the new one.
const HASHES: usize = 2;

/// Something the agent made, or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "kind")]
pub enum Thing {
    /// A file or link.
    File {
        /// Where.
        path: HostPath,
        /// What the agent wrote there, last first; nothing for a link.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        written: Vec<Digest>,
        /// What was there before.
        before: Before,
    },
    /// A folder, with all that is in it.
    Folder {
        /// Where.
        path: HostPath,
    },
    /// A folder that had to be made for something in it; it goes when it is empty.
    Parent {
        /// Where.
        path: HostPath,
    },
    /// A file that the agent adds to.
    Log {
        /// Where.
        path: HostPath,
    },
    /// A machine's folder.
    Machine {
        /// The machine.
        machine: MachineName,
    },
    /// Something mounted.
    Mount {
        /// Where.
        path: HostPath,
    },
    /// A unit of the agent's that is started at boots.
    Enabled {
        /// Its name.
        unit: String,
    },
    /// A unit of others, whose state the agent changes.
    Unit {
        /// Its name.
        unit: String,
        /// How it was before.
        was: UnitWas,
    },
    /// A kernel setting.
    Sysctl {
        /// Its dotted name.
        key: String,
        /// What the agent sets.
        value: String,
        /// What it was before.
        was: String,
    },
    /// A firewall of the host that was opened.
    Firewall {
        /// Its unit.
        unit: String,
    },
}

/// What stood in a file's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Before {
    /// Nothing, or something of the agent's own.
    Nothing,
    /// A file of the host's, kept with its mode in the ledger's folder under its digest.
    File(Digest),
}

/// How a unit was.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnitWas {
    /// systemd's word: `enabled`, `disabled`, `masked`, `static`, …; empty where it gave none.
    pub state: String,
    /// Whether it ran.
    pub active: bool,
}

/// All of it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Network interfaces that were there before the agent did anything.
    pub interfaces: Vec<String>,
    /// What it made.
    pub things: Vec<Thing>,
    /// What a later agent wrote and this one does not know; written back as it is.
    unknown: Vec<Value>,
}

#[derive(Serialize, Deserialize)]
struct Form {
    version: u64,
    interfaces: Vec<String>,
    things: Vec<Value>,
}

/// Why a ledger can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unreadable {
    /// It breaks off, is empty, or is no JSON.
    #[error("it is torn")]
    Torn,
    /// It is JSON, and no ledger.
    #[error("it was written by something else")]
    Foreign,
    /// A later agent wrote it.
    #[error("it is of version {0}, and this agent knows version {VERSION}")]
    Future(u64),
}

impl Ledger {
    /// One of a host that has these network interfaces, and nothing of the agent's yet.
    #[must_use]
    pub fn begun(interfaces: Vec<String>) -> Self {
        Self {
            interfaces,
            ..Self::default()
        }
    }

    /// Reads a ledger's bytes.
    ///
    /// # Errors
    /// They are none that this agent knows.
    pub fn parse(bytes: &[u8]) -> Result<Self, Unreadable> {
        let value: Value = serde_json::from_slice(bytes).map_err(|_| Unreadable::Torn)?;
        match value.get("version").and_then(Value::as_u64) {
            Some(VERSION) => {}
            Some(later) if later > VERSION => return Err(Unreadable::Future(later)),
            Some(_) | None => return Err(Unreadable::Foreign),
        }
        let form: Form = serde_json::from_value(value).map_err(|_| Unreadable::Foreign)?;
        let mut ledger = Self {
            interfaces: form.interfaces,
            ..Self::default()
        };
        for value in form.things {
            match serde_json::from_value(value.clone()) {
                Ok(thing) => ledger.things.push(thing),
                Err(_) => ledger.unknown.push(value),
            }
        }
        Ok(ledger)
    }

    /// The ledger as it is written.
    #[must_use]
    pub fn render(&self) -> Vec<u8> {
        let known = self
            .things
            .iter()
            .map(|thing| serde_json::to_value(thing).unwrap_or(Value::Null));
        let form = Form {
            version: VERSION,
            interfaces: self.interfaces.clone(),
            things: known.chain(self.unknown.iter().cloned()).collect(),
        };
        let mut bytes = serde_json::to_vec_pretty(&form).expect("a ledger of texts is JSON");
        bytes.push(b'\n');
        bytes
    }

    /// Whether something of this name is known.
    #[must_use]
    pub fn has(&self, mark: &Mark<'_>) -> bool {
        self.things.iter().any(|thing| mark.names(thing))
    }

    /// Whether the file is known.
    #[must_use]
    pub fn has_file(&self, path: &HostPath) -> bool {
        self.things
            .iter()
            .any(|thing| thing.identity() == ("file", path.as_str()))
    }

    /// Takes note of something. What was there before the first time stays said; of a file, another hash is added.
    pub fn add(&mut self, thing: Thing) {
        let known = self
            .things
            .iter_mut()
            .find(|known| known.identity() == thing.identity());
        match (known, thing) {
            (Some(Thing::File { written, .. }), Thing::File { written: new, .. }) => {
                for digest in new {
                    written.retain(|old| *old != digest);
                    written.insert(0, digest);
                }
                written.truncate(HASHES);
            }
            (Some(_), _) => {}
            (None, thing) => self.things.push(thing),
        }
    }
}

impl Thing {
    fn identity(&self) -> (&'static str, &str) {
        match self {
            Self::File { path, .. } => ("file", path.as_str()),
            Self::Folder { path } => ("folder", path.as_str()),
            Self::Parent { path } => ("parent", path.as_str()),
            Self::Log { path } => ("log", path.as_str()),
            Self::Machine { machine } => ("machine", machine.as_str()),
            Self::Mount { path } => ("mount", path.as_str()),
            Self::Enabled { unit } => ("enabled", unit),
            Self::Unit { unit, .. } => ("unit", unit),
            Self::Sysctl { key, .. } => ("sysctl", key),
            Self::Firewall { unit } => ("firewall", unit),
        }
    }
}

/// What a step is about to make or change on the host; what of it was there before is for the edge to find out.
#[derive(Clone, Copy, Debug)]
pub enum Mark<'a> {
    /// A file, link or folder.
    Entry(&'a File),
    /// It is known as it is.
    Known(&'a Thing),
    /// A unit of others.
    Unit(&'a str),
    /// A kernel setting.
    Sysctl(&'a Sysctl),
}

impl Mark<'_> {
    fn names(&self, thing: &Thing) -> bool {
        let (kind, name) = thing.identity();
        match self {
            Self::Entry(file) => match &file.entry {
                Entry::File { content, .. } => {
                    let written = Digest::of(content.bytes());
                    // A hash more is news.
                    name == file.path.as_str()
                        && matches!(thing, Thing::File { written: known, .. } if known.first() == Some(&written))
                }
                Entry::Link { .. } => kind == "file" && name == file.path.as_str(),
                Entry::Folder { .. } => kind == "folder" && name == file.path.as_str(),
                Entry::Absent => true,
            },
            Self::Known(mark) => mark.identity() == (kind, name),
            Self::Unit(unit) => kind == "unit" && name == *unit,
            Self::Sysctl(sysctl) => kind == "sysctl" && name == sysctl.key,
        }
    }
}

/// What is owned whole by its kind of step, beside files and the state of others' units.
#[must_use]
pub fn made(step: &Step) -> Vec<Thing> {
    let unit = |unit: &str| Thing::Enabled { unit: unit.to_owned() };
    match step {
        Step::FirewallsOpen(families) => families.iter().map(|family| firewall(*family)).collect(),
        Step::UnitEnabled { unit: name } => vec![unit(name)],
        Step::Rootfs { machine, .. } => vec![Thing::Machine { machine: *machine }],
        Step::Archives { folder, .. } => vec![Thing::Folder { path: folder.clone() }],
        Step::MachineEnabled { machine } => vec![unit(&format!("systemd-nspawn@{machine}.service"))],
        Step::MachineRunning { machine } => vec![Thing::Mount { path: bpffs(*machine) }],
        // Files and others' units are marks of their own; the rest lies in the machine, or in the agent's own folder.
        Step::Files(_)
        | Step::UnitFiles(_)
        | Step::Reload
        | Step::Sysctls(_)
        | Step::UnitsOff(_)
        | Step::SwapOff
        | Step::UnitDisabled { .. }
        | Step::UnitCurrent { .. }
        | Step::Download(_)
        | Step::ImagesImported { .. }
        | Step::AgentBinary { .. }
        | Step::ServiceRunning { .. }
        | Step::KubeletSteady { .. }
        | Step::KubeletJoined { .. }
        | Step::StateSaved(_)
        | Step::UnitRunning { .. } => Vec::new(),
    }
}

/// What of others a step changes, and the files that it writes.
#[must_use]
pub fn touched(step: &Step) -> Vec<Mark<'_>> {
    match step {
        Step::Files(files) | Step::UnitFiles(files) => files
            .iter()
            .filter(|file| file.place == Place::Host && file.entry != Entry::Absent)
            .map(Mark::Entry)
            .collect(),
        Step::Sysctls(sysctls) => sysctls.iter().map(Mark::Sysctl).collect(),
        Step::UnitsOff(units) => units.iter().map(|unit| Mark::Unit(unit)).collect(),
        // What pulls machines in at a boot is the host's own.
        Step::MachineEnabled { .. } => vec![Mark::Unit(MACHINES)],
        // Which units swap is known to the step alone, which takes note of them itself.
        Step::SwapOff
        | Step::Reload
        | Step::FirewallsOpen(_)
        | Step::UnitDisabled { .. }
        | Step::UnitCurrent { .. }
        | Step::Rootfs { .. }
        | Step::Download(_)
        | Step::Archives { .. }
        | Step::ImagesImported { .. }
        | Step::AgentBinary { .. }
        | Step::MachineRunning { .. }
        | Step::ServiceRunning { .. }
        | Step::KubeletSteady { .. }
        | Step::KubeletJoined { .. }
        | Step::StateSaved(_)
        | Step::UnitRunning { .. }
        | Step::UnitEnabled { .. } => Vec::new(),
    }
}

/// The target that starts machines at a boot.
pub const MACHINES: &str = "machines.target";

/// Where a machine's file system for BPF is mounted.
#[must_use]
pub fn bpffs(machine: MachineName) -> HostPath {
    HostPath::new(format!("/run/bpffs/{machine}")).expect("a machine's name is plain")
}

fn firewall(family: Family) -> Thing {
    Thing::Firewall {
        unit: family.unit().to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Thing {
        Thing::File {
            path: HostPath::fixed("/etc/fstab"),
            written: vec![Digest::of(text.as_bytes())],
            before: Before::File(Digest::of(b"before")),
        }
    }

    fn all() -> Ledger {
        let mut ledger = Ledger::begun(vec!["lo".into(), "eth0".into()]);
        let was = UnitWas {
            state: "enabled".into(),
            active: true,
        };
        for thing in [
            file("a"),
            Thing::Folder {
                path: HostPath::fixed("/var/lib/unbounded/container-images/staged"),
            },
            Thing::Parent {
                path: HostPath::fixed("/etc/systemd/nspawn"),
            },
            Thing::Log {
                path: HostPath::fixed("/var/log/x/aks-flex-node.log"),
            },
            Thing::Machine {
                machine: MachineName::Kube1,
            },
            Thing::Mount {
                path: bpffs(MachineName::Kube1),
            },
            Thing::Enabled {
                unit: "nftables-flush.service".into(),
            },
            Thing::Unit {
                unit: "docker.service".into(),
                was,
            },
            Thing::Sysctl {
                key: "net.ipv4.ip_forward".into(),
                value: "1".into(),
                was: "0".into(),
            },
            firewall(Family::V4),
        ] {
            ledger.add(thing);
        }
        ledger
    }

    #[test]
    fn a_ledger_reads_back_and_has_the_form_that_was_always_written() {
        let ledger = all();
        assert_eq!(Ledger::parse(&ledger.render()), Ok(ledger.clone()));
        insta::assert_snapshot!(String::from_utf8(ledger.render()).unwrap());
    }

    #[test]
    fn what_is_no_ledger_has_a_name() {
        let whole = all().render();
        assert_eq!(Ledger::parse(b""), Err(Unreadable::Torn));
        assert_eq!(Ledger::parse(&whole[..whole.len() / 2]), Err(Unreadable::Torn));
        assert_eq!(Ledger::parse(b"{}"), Err(Unreadable::Foreign));
        assert_eq!(Ledger::parse(br#"{"version":2}"#), Err(Unreadable::Future(2)));
        assert_eq!(Ledger::parse(br#"{"version":1,"things":3}"#), Err(Unreadable::Foreign));
    }

    #[test]
    fn what_a_later_agent_knows_is_kept() {
        let text = br#"{"version":1,"interfaces":[],"things":[{"kind":"dream","of":"sheep"}]}"#;
        let mut ledger = Ledger::parse(text).unwrap();
        assert!(ledger.things.is_empty());
        ledger.add(file("a"));
        let text = String::from_utf8(ledger.render()).unwrap();
        assert!(text.contains("sheep") && text.contains("/etc/fstab"), "{text}");
    }

    #[test]
    fn what_was_there_first_stays_said_and_the_latest_hashes_too() {
        let mut ledger = all();
        for text in ["b", "c", "c"] {
            ledger.add(Thing::File {
                path: HostPath::fixed("/etc/fstab"),
                written: vec![Digest::of(text.as_bytes())],
                before: Before::Nothing,
            });
        }
        let Thing::File { written, before, .. } = &ledger.things[0] else {
            panic!("{ledger:?}")
        };
        assert_eq!(*before, Before::File(Digest::of(b"before")));
        assert_eq!(*written, [Digest::of(b"c"), Digest::of(b"b")]);
        assert_eq!(ledger.things.len(), all().things.len());
    }
}
