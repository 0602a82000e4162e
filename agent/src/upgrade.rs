//! AgentUpgrade as a state machine: which agent is to run, and how the operation ends. Pure: no I/O, no clock.
//!
//! ```text
//!  Idle ─Asked─▶ Staging ─Staged─▶ Switched ─Started(to)─▶ Judging ─Passed─▶ Over ─Published─▶ Idle
//!                   │                 │  └─────┬─────────────┘                ▲
//!                   └─Failed──────────┼────────┼─Failed, Crashed─▶ Back ──────┤
//!                                     └────────┴─Started(other)───────────────┘
//! ```
//!
//! The driver saves a state, then makes its [`Step`]s true. Killed in between, the next process loads the state, says
//! [`Event::Started`] with the image it finds itself to run, and goes on. The whole table is in docs/states.md.

mod failures;

use image::ImageRef;
use jiff::Timestamp;

pub use failures::{Failure, Failures};

/// How often a staging that was cut short by the death of its daemon is taken up: an image whose mere check ends the
/// agent must not do so for ever.
pub const STAGINGS: u32 = 3;

/// The operation an upgrade is for, with what its end needs to know of its beginning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Order {
    /// Name of the MachineOperation.
    pub name: String,
    /// Its UID: another one under the same name is another operation.
    pub uid: String,
    /// Generation of the Machine object when it was taken; 0 when there was none.
    pub generation: i64,
    /// The machine that was active.
    pub machine: Option<String>,
    /// The daemon that took it, a random number per process.
    pub daemon: String,
    /// When it was taken.
    pub started_at: Timestamp,
}

/// What worked before the switch; only that is asked of the candidate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Worked {
    /// A tool of the host could be run.
    pub host_exec: bool,
    /// systemd answered.
    pub systemd: bool,
    /// machined answered for the active machine.
    pub machine: bool,
    /// The API server answered.
    pub api_server: bool,
}

/// Why an operation failed, as its condition says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub enum Reason {
    /// It could not be carried out; nothing was switched.
    ExecutionFailed,
    /// The new agent did not do.
    DaemonFailed,
}

/// Whose fault a way back is: only what the candidate did itself speaks against trying it again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Fault {
    /// The candidate crashed, stayed mute or did not do what worked before.
    #[default]
    Candidate,
    /// The candidate never ran: it could not be selected, or the unit not be restarted.
    Host,
}

/// How an upgrade ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// What was asked for runs.
    Succeeded,
    /// It does not, and this is why.
    Failed {
        /// In a word.
        reason: Reason,
        /// In a sentence.
        why: String,
    },
}

/// Where an upgrade is. Each variant carries what is true in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Upgrade {
    /// None is going on.
    #[default]
    Idle,
    /// The candidate is pulled and checked; nothing of it is selected.
    Staging {
        /// For whom.
        order: Order,
        /// What runs.
        from: ImageRef,
        /// What shall run.
        to: ImageRef,
        /// The how-manieth daemon is at it, from 1.
        attempt: u32,
    },
    /// The candidate is whole on this host and shall be what the next start runs.
    Switched {
        /// For whom.
        order: Order,
        /// The last good image.
        from: ImageRef,
        /// The candidate.
        to: ImageRef,
        /// What worked under `from`.
        before: Worked,
    },
    /// The candidate runs and has not been found good yet.
    Judging {
        /// For whom.
        order: Order,
        /// The last good image.
        from: ImageRef,
        /// The candidate.
        to: ImageRef,
        /// What worked under `from`.
        before: Worked,
    },
    /// The candidate was found bad; the last good image shall be what the next start runs.
    Back {
        /// For whom.
        order: Order,
        /// The last good image.
        to: ImageRef,
        /// The candidate.
        failed: ImageRef,
        /// What was wrong.
        why: String,
        /// With whom.
        fault: Fault,
    },
    /// It is decided; the cluster has still to be told.
    Over {
        /// For whom.
        order: Order,
        /// What runs now, and stays selected.
        selected: ImageRef,
        /// How it ended.
        outcome: Outcome,
        /// The candidate, if it was found bad: it is not tried again unasked.
        blamed: Option<ImageRef>,
    },
}

/// What happened, with what was observed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An operation was admitted.
    Asked {
        /// Which.
        order: Order,
        /// What runs.
        from: ImageRef,
        /// What it asks for.
        to: ImageRef,
    },
    /// The operation is gone from the cluster, replaced, or ended by somebody else.
    Dropped,
    /// The candidate is on this host and was checked.
    Staged {
        /// What works now.
        before: Worked,
    },
    /// What was being done failed.
    Failed {
        /// Why.
        why: String,
    },
    /// A daemon started.
    Started {
        /// The image it runs.
        running: ImageRef,
    },
    /// The agent's unit failed, as the recovery unit sees it.
    Crashed {
        /// What is known of it.
        why: String,
    },
    /// The candidate does what worked before.
    Passed,
    /// The operation's status says how it ended, or there is nobody to tell.
    Published,
}

/// What a state asks for, in this order. Each names an end: doing it twice does no harm.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// The operation's status says that it is in progress.
    Announce,
    /// The image is whole on this host and its agent runs.
    Stage(ImageRef),
    /// Recovery would run this image.
    Remember(ImageRef),
    /// The unit's next start runs this image.
    Select(ImageRef),
    /// It is on record that this image failed here by its own fault, and why.
    Blame {
        /// Which.
        image: ImageRef,
        /// What was wrong with it.
        why: String,
    },
    /// Nothing is on record against this image any more.
    Clear(ImageRef),
    /// The unit is started anew.
    Restart,
    /// It is known whether this agent does what worked before.
    Judge(Worked),
    /// The operation's status says how it ended.
    Publish(Outcome),
}

/// How far the candidate is on its way onto the host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Its bytes come.
    Pulling {
        /// As many are here.
        done: u64,
        /// Of so many.
        all: u64,
    },
    /// They are asked for anew.
    Again {
        /// For the how-manieth time, from 2.
        attempt: u32,
        /// What ended the time before.
        why: String,
    },
    /// It is here, and its agent is tried.
    Checking,
}

/// The event can't happen in this state: a fault of the driver, or nothing to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an upgrade that is {state} takes no event `{event}`")]
pub struct Refused {
    /// The state's name.
    pub state: &'static str,
    /// The event's name.
    pub event: &'static str,
}

/// Whether units and images may be brought up to this agent's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing speaks against this agent.
    Settled,
    /// An upgrade is under way: units stay as they are.
    Unjudged,
}

impl Upgrade {
    /// The state after `event`.
    ///
    /// # Errors
    /// When the event makes no sense here; the state stays as it is.
    pub fn next(self, event: Event) -> Result<Self, Refused> {
        use {Event as E, Upgrade as U};
        Ok(match (self, event) {
            (U::Idle, E::Asked { order, from, to }) if from.digest == to.digest => Self::good(order, from),
            (U::Idle, E::Asked { order, from, to }) => U::Staging {
                order,
                from,
                to,
                attempt: 1,
            },
            (U::Staging { order, from, to, .. }, E::Staged { before }) => U::Switched {
                order,
                from,
                to,
                before,
            },
            (U::Staging { order, from, .. }, E::Failed { why }) => {
                Self::over(order, from, Reason::ExecutionFailed, why)
            }
            (U::Staging { .. }, E::Dropped) => U::Idle,
            // The agent that stages is the old one: its crash says nothing of the candidate, its next start goes on.
            (state @ U::Staging { .. }, E::Crashed { .. }) => state,
            (
                U::Staging {
                    order,
                    from,
                    to,
                    attempt,
                },
                E::Started { running },
            ) if same(&running, &from) && attempt < STAGINGS => U::Staging {
                order,
                from,
                to,
                attempt: attempt + 1,
            },
            // Somebody chose it by hand meanwhile.
            (U::Staging { order, to, .. }, E::Started { running }) if same(&running, &to) => Self::good(order, running),
            (U::Staging { order, attempt, .. }, E::Started { running }) => {
                let why =
                    format!("the agent image was being made ready when the agent ended, {attempt} of {STAGINGS} times");
                Self::over(order, running, Reason::ExecutionFailed, why)
            }
            (
                U::Switched {
                    order,
                    from,
                    to,
                    before,
                }
                | U::Judging {
                    order,
                    from,
                    to,
                    before,
                },
                E::Started { running },
            ) if same(&running, &to) => U::Judging {
                order,
                from,
                to,
                before,
            },
            (U::Switched { order, to, .. } | U::Judging { order, to, .. }, E::Started { running }) => {
                let why = format!("{running} came up instead of {to}");
                Self::over(order, running, Reason::DaemonFailed, why)
            }
            // The old agent says so, which is still there: the candidate never ran.
            (U::Switched { order, from, to, .. }, E::Failed { why }) => Self::back(order, from, to, why, Fault::Host),
            (
                U::Switched { order, from, to, .. } | U::Judging { order, from, to, .. },
                E::Failed { why } | E::Crashed { why },
            ) => Self::back(order, from, to, why, Fault::Candidate),
            (U::Judging { order, to, .. }, E::Passed) => Self::good(order, to),
            (
                U::Back {
                    order,
                    to,
                    failed,
                    why,
                    fault,
                },
                E::Started { running },
            ) if same(&running, &failed) => Self::back(order, to, failed, why, fault),
            // The last good image, or one that somebody chose by hand: either way it runs.
            (
                U::Back {
                    order,
                    failed,
                    why,
                    fault,
                    ..
                },
                E::Started { running },
            ) => U::Over {
                order,
                selected: running,
                outcome: Outcome::Failed {
                    reason: Reason::DaemonFailed,
                    why,
                },
                blamed: (fault == Fault::Candidate).then_some(failed),
            },
            (state @ U::Back { .. }, E::Failed { .. } | E::Crashed { .. }) => state,
            (
                U::Over {
                    order,
                    selected,
                    outcome: Outcome::Succeeded,
                    ..
                },
                E::Started { running },
            ) if !same(&running, &selected) => {
                let why = format!("{selected} was found good, but then {running} came up");
                Self::over(order, running, Reason::DaemonFailed, why)
            }
            (
                U::Over {
                    order, outcome, blamed, ..
                },
                E::Started { running },
            ) => U::Over {
                order,
                selected: running,
                outcome,
                blamed,
            },
            (state @ U::Over { .. }, E::Crashed { .. }) => state,
            (U::Over { .. }, E::Published) => U::Idle,
            (U::Idle, E::Started { .. }) => U::Idle,
            (
                state @ (U::Idle
                | U::Staging { .. }
                | U::Switched { .. }
                | U::Judging { .. }
                | U::Back { .. }
                | U::Over { .. }),
                event,
            ) => {
                return Err(Refused {
                    state: state.name(),
                    event: event.name(),
                });
            }
        })
    }

    /// What this state asks for.
    #[must_use]
    pub fn steps(&self) -> Vec<Step> {
        match self {
            Self::Idle => vec![],
            Self::Staging { to, .. } => vec![Step::Announce, Step::Stage(to.clone())],
            Self::Switched { from, to, .. } => {
                vec![Step::Remember(from.clone()), Step::Select(to.clone()), Step::Restart]
            }
            Self::Judging { before, .. } => vec![Step::Judge(*before)],
            Self::Back { to, .. } => vec![Step::Select(to.clone()), Step::Restart],
            Self::Over {
                selected,
                outcome,
                blamed,
                ..
            } => {
                let mut steps = vec![Step::Select(selected.clone())];
                match (outcome, blamed) {
                    (Outcome::Succeeded, _) => steps.push(Step::Clear(selected.clone())),
                    (Outcome::Failed { why, .. }, Some(blamed)) => steps.push(Step::Blame {
                        image: blamed.clone(),
                        why: why.clone(),
                    }),
                    (Outcome::Failed { .. }, None) => {}
                }
                steps.push(Step::Publish(outcome.clone()));
                steps
            }
        }
    }

    /// The operation it is for.
    #[must_use]
    pub fn order(&self) -> Option<&Order> {
        match self {
            Self::Idle => None,
            Self::Staging { order, .. }
            | Self::Switched { order, .. }
            | Self::Judging { order, .. }
            | Self::Back { order, .. }
            | Self::Over { order, .. } => Some(order),
        }
    }

    /// Images that must stay on the host whatever else goes.
    #[must_use]
    pub fn images(&self) -> Vec<&ImageRef> {
        match self {
            Self::Idle => vec![],
            Self::Staging { from, to, .. } | Self::Switched { from, to, .. } | Self::Judging { from, to, .. } => {
                vec![from, to]
            }
            Self::Back { to, .. } => vec![to],
            Self::Over { selected, .. } => vec![selected],
        }
    }

    /// Whether this agent may bring the host's units up to its own (node-agent.md 10B.6).
    #[must_use]
    pub fn standing(&self) -> Standing {
        match self {
            Self::Idle | Self::Over { .. } | Self::Staging { .. } => Standing::Settled,
            Self::Switched { .. } | Self::Judging { .. } | Self::Back { .. } => Standing::Unjudged,
        }
    }

    /// The state's name, as the journal and docs/states.md say it.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Staging { .. } => "staging",
            Self::Switched { .. } => "switched",
            Self::Judging { .. } => "judging",
            Self::Back { .. } => "back",
            Self::Over { .. } => "over",
        }
    }

    fn good(order: Order, selected: ImageRef) -> Self {
        Self::Over {
            order,
            selected,
            outcome: Outcome::Succeeded,
            blamed: None,
        }
    }

    fn over(order: Order, selected: ImageRef, reason: Reason, why: String) -> Self {
        Self::Over {
            order,
            selected,
            outcome: Outcome::Failed { reason, why },
            blamed: None,
        }
    }

    fn back(order: Order, to: ImageRef, failed: ImageRef, why: String, fault: Fault) -> Self {
        Self::Back {
            order,
            to,
            failed,
            why,
            fault,
        }
    }
}

impl Event {
    /// The event's name, for logs.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Asked { .. } => "asked",
            Self::Dropped => "dropped",
            Self::Staged { .. } => "staged",
            Self::Failed { .. } => "failed",
            Self::Started { .. } => "started",
            Self::Crashed { .. } => "crashed",
            Self::Passed => "passed",
            Self::Published => "published",
        }
    }
}

/// An agent is what its digest says; the repository is only where it was had.
fn same(one: &ImageRef, other: &ImageRef) -> bool {
    one.digest == other.digest
}

#[cfg(test)]
mod tests;
