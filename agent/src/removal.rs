//! What a reset does, as data: ends that it makes true one after the other, and the report of what came of them.
//!
//! Unlike a step of a plan, one that can't be made true does not keep the next from being tried. Each names what is gone afterwards, so that
//! a second reset does no harm and finishes the first.

use std::fmt;

use hostexec::HostPath;
use image::Digest;
use serde::{Serialize, Serializer};

use crate::ledger::UnitWas;
use crate::model::MachineName;

/// How much of the node goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// The machines and what was made of the host for them; the agent goes on.
    Node,
    /// The agent with its files as well.
    All,
}

/// An end of a reset.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Removal {
    /// A unit does not run.
    Stopped {
        /// Its name.
        unit: String,
    },
    /// A machine does not run, and machined does not know it.
    MachineOff {
        /// The machine.
        machine: MachineName,
    },
    /// Nothing of this type is mounted there.
    Unmounted {
        /// Where.
        #[serde(serialize_with = "text")]
        path: HostPath,
        /// As what.
        kind: &'static str,
    },
    /// A machine's folder is gone, but for what is mounted in it.
    MachineFolder {
        /// The machine.
        machine: MachineName,
        /// The folder, or what a cut unpacking left beside it.
        #[serde(serialize_with = "text")]
        path: HostPath,
    },
    /// What is there is the agent's whole, and is gone, but for what is mounted in it.
    Gone {
        /// A file, a link, or a folder with all that is in it.
        #[serde(serialize_with = "text")]
        path: HostPath,
    },
    /// A folder is gone, unless others have put something into it.
    EmptyFolder {
        /// The folder.
        #[serde(serialize_with = "text")]
        path: HostPath,
    },
    /// What the agent wrote in a place of the host's is gone, and what was there before is back; unless somebody has changed it since.
    PutBack {
        /// The file.
        #[serde(serialize_with = "text")]
        path: HostPath,
        /// What the agent wrote.
        written: Vec<Digest>,
        /// The copy that was kept of what was there before, if anything was.
        #[serde(serialize_with = "perhaps_text")]
        copy: Option<HostPath>,
    },
    /// A unit of others is as it was.
    UnitAsBefore {
        /// Its name.
        unit: String,
        /// How it was.
        was: UnitWas,
    },
    /// The kernel holds what it held, unless somebody has changed that since.
    SysctlAsBefore {
        /// The setting's dotted name.
        key: String,
        /// What the agent set.
        value: String,
        /// What it was.
        was: String,
    },
    /// A network interface is gone.
    Interface {
        /// Its name.
        name: String,
    },
    /// The packet filter has no chains of Kubernetes, nor of the machine's network.
    Chains,
    /// The routes that the agent set are gone, and those of the node's tunnels.
    Routes,
    /// A firewall of the host has just its own rules again.
    FirewallAnew {
        /// Its unit.
        unit: String,
    },
    /// systemd has read its units, and has forgotten what failed of these.
    Reload {
        /// The units.
        units: Vec<String>,
    },
    /// containerd has none of the agent's containers but the one that asks, and no image that an upgrade brought.
    Containers,
}

impl Removal {
    /// What it is about, in a few words.
    #[must_use]
    pub fn what(&self) -> String {
        match self {
            Self::Stopped { unit } => format!("{unit}, running"),
            Self::MachineOff { machine } => format!("machine {machine}, running"),
            Self::Unmounted { path, kind } => format!("{path} ({kind}, mounted)"),
            Self::MachineFolder { path, .. } | Self::Gone { path } | Self::EmptyFolder { path } => path.to_string(),
            Self::PutBack { path, copy: None, .. } => path.to_string(),
            Self::PutBack { path, .. } => format!("the agent's change of {path}"),
            Self::UnitAsBefore { unit, was } => format!("the agent's change of {unit} (before: {})", described(was)),
            Self::SysctlAsBefore { key, was, .. } => format!("the agent's change of {key} (before: {was})"),
            Self::Interface { name } => format!("network interface {name}"),
            Self::Chains => "chains of Kubernetes in the packet filter".to_owned(),
            Self::Routes => "routes of the agent's".to_owned(),
            Self::FirewallAnew { unit } => format!("rules in the place of those of {unit}"),
            Self::Reload { .. } => "units that systemd remembers".to_owned(),
            Self::Containers => "containers of the agent, and images that upgrades brought".to_owned(),
        }
    }
}

fn described(was: &UnitWas) -> String {
    let state = if was.state.is_empty() { "unknown" } else { &was.state };
    format!("{state}, {}", if was.active { "running" } else { "not running" })
}

/// What came of one thing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// It was not there.
    Absent,
    /// It is gone, or put back.
    Removed,
    /// It stays on purpose.
    Kept(String),
    /// It should be gone and is not.
    CouldNot(String),
}

/// A thing and what came of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Line {
    /// The thing.
    pub what: String,
    /// Why it is still there.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub why: String,
}

/// What a reset did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Report {
    /// What is gone, or as it was before.
    pub removed: Vec<Line>,
    /// What stays on purpose.
    pub kept: Vec<Line>,
    /// What another reset has to see to.
    pub could_not: Vec<Line>,
}

impl Report {
    /// Takes note of what came of something.
    pub fn add(&mut self, what: impl Into<String>, end: End) {
        let what = what.into();
        let (lines, why) = match end {
            End::Absent => return,
            End::Removed => (&mut self.removed, String::new()),
            End::Kept(why) => (&mut self.kept, why),
            End::CouldNot(why) => (&mut self.could_not, why),
        };
        lines.push(Line { what, why });
    }

    /// Whether nothing is left that should be gone.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.could_not.is_empty()
    }

    /// The most important of it, on one line.
    #[must_use]
    pub fn summary(&self) -> String {
        if self.removed.is_empty() && self.kept.is_empty() && self.could_not.is_empty() {
            return "there was nothing of the agent's on this host".to_owned();
        }
        let mut text = format!("{} removed, {} kept", self.removed.len(), self.kept.len());
        if !self.could_not.is_empty() {
            text.push_str(&format!(", {} could not be removed", self.could_not.len()));
        }
        let first = |lines: &[Line]| {
            let lines: Vec<String> = lines
                .iter()
                .take(5)
                .map(|line| format!("{}: {}", line.what, line.why))
                .collect();
            lines.join("; ")
        };
        for (word, lines) in [("could not", &self.could_not), ("kept", &self.kept)] {
            if !lines.is_empty() {
                text.push_str(&format!("; {word}: {}", first(lines)));
            }
        }
        text
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (word, lines) in [
            ("removed  ", &self.removed),
            ("kept     ", &self.kept),
            ("could not", &self.could_not),
        ] {
            for Line { what, why } in lines {
                let separator = if why.is_empty() { "" } else { ": " };
                writeln!(f, "{word}  {what}{separator}{why}")?;
            }
        }
        if self.removed.is_empty() && self.kept.is_empty() && self.could_not.is_empty() {
            return writeln!(f, "there was nothing of the agent's on this host");
        }
        let (removed, kept, could_not) = (self.removed.len(), self.kept.len(), self.could_not.len());
        writeln!(f, "{removed} removed, {kept} kept, {could_not} could not be removed")?;
        if could_not > 0 {
            writeln!(f, "Mend what stands in the way and reset again: it goes on from here.")?;
        }
        Ok(())
    }
}

fn perhaps_text<S: Serializer>(path: &Option<HostPath>, serializer: S) -> Result<S::Ok, S::Error> {
    path.as_ref().map(HostPath::as_str).serialize(serializer)
}

fn text<S: Serializer>(path: &HostPath, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(path.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let mut report = Report::default();
        report.add("/etc/x", End::Removed);
        report.add("/etc/absent", End::Absent);
        report.add("/var/lib/machines/kube1/mnt", End::Kept("a mount (nfs4)".into()));
        report.add("machine kube2, running", End::CouldNot("it does not stop".into()));
        report
    }

    #[test]
    fn a_report_names_what_stays_and_why() {
        insta::assert_snapshot!(format!(
            "{}\n{}\n{}",
            report(),
            report().summary(),
            serde_json::to_string_pretty(&report()).unwrap()
        ));
        assert!(!report().is_done());
    }

    #[test]
    fn a_host_without_anything_is_told_so() {
        let report = Report::default();
        assert_eq!(report.to_string(), "there was nothing of the agent's on this host\n");
        assert!(report.is_done());
    }
}
