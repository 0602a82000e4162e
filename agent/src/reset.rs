//! A reset under way, as a table. Pure.
//!
//! ```text
//!  Idle ──asked by an operation──▶ Asked ──announced──▶ Removing ──node gone──▶ Gone ──told──▶ Leaving
//!   │                                │                     └──node stays──▶ Stays ──told──▶ Idle
//!   │                                └──operation gone──▶ Idle
//!   └──asked by a person, or by the deletion signal──▶ Leaving
//! ```
//!
//! An operation is told its end while there is an agent to tell it. `Leaving` has no way out in an agent: its work is that of the reset's
//! own unit, which ends the agent and takes this record away. Until then every start of an agent hands over to it anew.

use crate::upgrade::Order;

/// Where a reset is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reset {
    /// None is.
    Idle,
    /// An operation asks for it; nothing was done.
    Asked {
        /// The operation.
        order: Order,
    },
    /// The node is being removed: half of one is left by whoever dies here, so that it goes on whatever becomes of the operation.
    Removing {
        /// The operation.
        order: Order,
    },
    /// The node is off the host, and the operation has to be told.
    Gone {
        /// The operation.
        order: Order,
        /// What was removed and what was kept, in a line.
        summary: String,
    },
    /// Something of the node could not be removed, and the operation has to be told.
    Stays {
        /// The operation.
        order: Order,
        /// What, in a line.
        summary: String,
    },
    /// The agent itself goes.
    Leaving,
}

/// What may happen to a reset.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// An operation asks for it.
    Asked {
        /// The operation.
        order: Order,
    },
    /// A person does, or the cluster by the taint of a deleted machine: nobody waits for an answer.
    Ordered,
    /// The operation says that it is being carried out.
    Announced,
    /// The operation is gone.
    Dropped,
    /// All of the node is off the host.
    NodeGone {
        /// In a line.
        summary: String,
    },
    /// It is not.
    NodeStays {
        /// In a line.
        summary: String,
    },
    /// The operation has its end.
    Told,
}

impl Reset {
    /// The state after `event`; none where the event means nothing.
    #[must_use]
    pub fn next(self, event: Event) -> Option<Self> {
        use {Event as E, Reset as R};
        Some(match (self, event) {
            (R::Idle, E::Asked { order }) => R::Asked { order },
            // A person's word goes before an operation's.
            (_, E::Ordered) => R::Leaving,
            (R::Asked { order }, E::Announced) => R::Removing { order },
            (R::Asked { .. }, E::Dropped) => R::Idle,
            (R::Removing { order }, E::NodeGone { summary }) => R::Gone { order, summary },
            (R::Removing { order }, E::NodeStays { summary }) => R::Stays { order, summary },
            (R::Gone { .. }, E::Told) => R::Leaving,
            (R::Stays { .. }, E::Told) => R::Idle,
            (
                R::Idle | R::Asked { .. } | R::Removing { .. } | R::Gone { .. } | R::Stays { .. } | R::Leaving,
                E::Asked { .. } | E::Announced | E::Dropped | E::NodeGone { .. } | E::NodeStays { .. } | E::Told,
            ) => return None,
        })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Asked { .. } => "asked",
            Self::Removing { .. } => "removing",
            Self::Gone { .. } => "gone",
            Self::Stays { .. } => "stays",
            Self::Leaving => "leaving",
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn all() -> Vec<Reset> {
        let order = Order {
            name: "away".into(),
            uid: "u-1".into(),
            generation: 3,
            machine: None,
            daemon: "00ff".into(),
            started_at: "2026-11-29T10:00:00Z".parse().unwrap(),
        };
        let summary = String::from("31 removed, 0 kept");
        vec![
            Reset::Idle,
            Reset::Asked { order: order.clone() },
            Reset::Removing { order: order.clone() },
            Reset::Gone {
                order: order.clone(),
                summary: summary.clone(),
            },
            Reset::Stays { order, summary },
            Reset::Leaving,
        ]
    }

    #[test]
    fn each_state_met_with_each_event_is_as_reviewed() {
        let Reset::Asked { order } = &all()[1] else {
            panic!("the first to come is asked")
        };
        let order = || order.clone();
        let summary = || String::from("why");
        let events = || {
            [
                ("asked", Event::Asked { order: order() }),
                ("ordered", Event::Ordered),
                ("announced", Event::Announced),
                ("dropped", Event::Dropped),
                ("node gone", Event::NodeGone { summary: summary() }),
                ("node stays", Event::NodeStays { summary: summary() }),
                ("told", Event::Told),
            ]
        };
        let mut table = String::new();
        for state in all() {
            for (name, event) in events() {
                let next = state.clone().next(event);
                let next = next.map_or("-", |next| next.name());
                table.push_str(&format!("{:9} {name:11} {next}\n", state.name()));
            }
        }
        insta::assert_snapshot!(table);
    }
}
