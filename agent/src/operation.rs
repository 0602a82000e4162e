//! Which MachineOperation may run now, and as what. Pure: a table over what the cluster says and the journal knows.
//!
//! It does not act, and it does not speak the cluster's types: `cluster` turns those into an [`Operation`].

mod parameters;

use std::collections::BTreeMap;

use image::ImageRef;
use jiff::{SignedDuration, Timestamp};

use crate::upgrade::{Failures, Upgrade};

pub use parameters::{BadParameters, Wanted, parse_upgrade};

/// What an operation asks for. Source: node-agent specification, 9.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another agent.
    AgentUpgrade,
    /// A restart of the active machine.
    NodeReboot,
    /// The end of the node.
    AgentReset,
    /// What other controllers see to, or what this agent has never heard of.
    Others,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody took it yet.
    New,
    /// Somebody took it.
    InProgress,
    /// It ended, well or badly.
    Over,
    /// A word this agent does not know; it keeps its hands off.
    Unknown,
}

/// A MachineOperation, as far as the agent is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Whom it is for.
    pub target: Target,
    /// What it asks for.
    pub kind: Kind,
    /// Its arguments.
    pub parameters: BTreeMap<String, String>,
    /// How long it stays after its end.
    pub keep: Option<SignedDuration>,
    /// Where it stands.
    pub phase: Phase,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// Whom an operation is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The machine of this name.
    Machine(String),
    /// Each machine whose Node has labels that satisfy all of these.
    Labels(Vec<Requirement>),
    /// Nobody.
    None,
}

/// What a label selector asks of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What is asked of its value.
    pub ask: Ask,
}

/// What is asked of a label's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// It is one of these.
    In(Vec<String>),
    /// It is none of these, or the label is not there.
    NotIn(Vec<String>),
    /// The label is there.
    Exists,
    /// The label is not there.
    Absent,
    /// An operator this agent does not know: never satisfied.
    Unknown,
}

/// Who this agent is to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The AKS machine's name, which is the node's.
    pub machine: String,
    /// The Node's labels; without a Node, the Machine object's; nothing when there is neither.
    pub labels: Option<BTreeMap<String, String>>,
}

/// What becomes of an operation now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing: it is others', or over, or being carried out.
    Ignore,
    /// It waits for the one that is going on.
    Wait,
    /// The agent is to become this image.
    Upgrade {
        /// Which.
        to: ImageRef,
    },
    /// The node is to go, and its agent.
    Reset,
    /// It ends at once as failed.
    Deny {
        /// In a word.
        reason: Denial,
        /// In a sentence.
        message: String,
    },
    /// Its time after the end is measured; at this moment it goes.
    DeleteAt(Timestamp),
}

/// Why an operation ends without having been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Its arguments can't work.
    InvalidParameters,
    /// This agent can't do it.
    UnsupportedOperation,
    /// The daemon that took it is gone, and nothing says how far it came.
    DaemonFailed,
    /// The image it names failed on this host before.
    FailedBefore,
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.ask {
            Ask::In(values) => value.is_some_and(|value| values.contains(value)),
            Ask::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            Ask::Exists => value.is_some(),
            Ask::Absent => value.is_none(),
            Ask::Unknown => false,
        }
    }
}

impl Target {
    /// Whether it can be no more than one machine.
    #[must_use]
    pub fn is_one(&self) -> bool {
        matches!(self, Self::Machine(_))
    }

    /// Whether that is `me` (node-agent specification 9.3).
    #[must_use]
    pub fn is(&self, me: &Me) -> bool {
        match self {
            Self::Machine(name) => *name == me.machine,
            Self::Labels(requirements) => me
                .labels
                .as_ref()
                .is_some_and(|labels| requirements.iter().all(|requirement| requirement.holds(labels))),
            Self::None => false,
        }
    }
}

/// What this host knows of its agents.
#[derive(Clone, Copy, Debug)]
pub struct Known<'a> {
    /// What the journal says.
    pub upgrade: &'a Upgrade,
    /// Which images failed here.
    pub failures: &'a Failures,
    /// Which one runs.
    pub running: &'a ImageRef,
}

/// What becomes of `operation`.
#[must_use]
pub fn admit(operation: &Operation, me: &Me, known: Known<'_>) -> Admission {
    let upgrade = known.upgrade;
    if operation.kind == Kind::Others || !operation.target.is(me) {
        return Admission::Ignore;
    }
    if upgrade.order().is_some_and(|order| order.uid == operation.uid) {
        return Admission::Ignore;
    }
    match operation.phase {
        Phase::Unknown => Admission::Ignore,
        Phase::Over => match (operation.completed_at, operation.keep) {
            (Some(end), Some(keep)) => Admission::DeleteAt(end.saturating_add(keep).unwrap_or(Timestamp::MAX)),
            (None, _) | (_, None) => Admission::Ignore,
        },
        // Of one for many machines, another's daemon may be at it.
        Phase::InProgress if !operation.target.is_one() => Admission::Ignore,
        Phase::InProgress => Admission::Deny {
            reason: Denial::DaemonFailed,
            message: "the daemon that took this operation is gone and left no record of it".into(),
        },
        Phase::New => match operation.kind {
            Kind::AgentUpgrade => match parse_upgrade(&operation.parameters) {
                Err(error) => Admission::Deny {
                    reason: Denial::InvalidParameters,
                    message: error.to_string(),
                },
                Ok(_) if *upgrade != Upgrade::Idle => Admission::Wait,
                Ok(wanted) => match refused(&wanted, known) {
                    Some(message) => Admission::Deny {
                        reason: Denial::FailedBefore,
                        message,
                    },
                    None => Admission::Upgrade { to: wanted.to },
                },
            },
            Kind::AgentReset if *upgrade != Upgrade::Idle => Admission::Wait,
            Kind::AgentReset => Admission::Reset,
            Kind::NodeReboot => Admission::Deny {
                reason: Denial::UnsupportedOperation,
                message: "this version of the agent can't carry out this kind of operation yet; nothing was done"
                    .into(),
            },
            Kind::Others => Admission::Ignore,
        },
    }
}

/// Why an image is not tried again (field case R11); what runs needs no trying.
fn refused(wanted: &Wanted, known: Known<'_>) -> Option<String> {
    if wanted.force || wanted.to.digest == known.running.digest {
        return None;
    }
    let failure = known.failures.of(&wanted.to.digest)?;
    let times = match failure.attempts {
        1 => "once".to_owned(),
        times => format!("{times} times"),
    };
    Some(format!(
        "agent image {} failed on this host {times}, last at {}: {}; nothing was done. To try it again give parameter force: \"true\"",
        wanted.to, failure.failed_at, failure.why
    ))
}

/// Sorts operations into the order they are served in: oldest first.
pub fn queue(operations: &mut [Operation]) {
    operations.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
}

#[cfg(test)]
mod tests;
