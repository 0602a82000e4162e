//! What can be wrong with the inputs of a first boot. As in the configuration, no text repeats a value.

use butane::env::Unreadable;
use hostexec::HostPath;

use crate::config::{self, Mistake};

/// Why there is no configuration to start with.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// There are no inputs.
    #[error(
        "there is no {}: write it, with AKS_FLEX_NODE_CONFIG_OVERRIDES or AKS_FLEX_NODE_BASE_CONFIG_FILE in it",
        super::INPUTS
    )]
    NoInputs,
    /// The inputs can be read by others.
    #[error("{path} can be read or changed by others than root: make it root's own, with mode 0600")]
    Exposed {
        /// The file.
        path: HostPath,
    },
    /// The inputs don't follow their grammar.
    #[error("{} can't be read", super::INPUTS)]
    Grammar(#[source] Unreadable),
    /// A variable that isn't ours.
    #[error(
        "{} line {line} has a variable that is none of the agent's: leave it out",
        super::INPUTS
    )]
    Foreign {
        /// From 1.
        line: usize,
    },
    /// A variable with our prefix that there is not.
    #[error(
        "{} line {line}: {name} is no variable of the agent: leave it out, or correct its name",
        super::INPUTS
    )]
    Unknown {
        /// From 1.
        line: usize,
        /// The variable.
        name: String,
    },
    /// An input that can't work.
    #[error("the input can't work")]
    Mistaken(#[source] Mistake),
    /// The configuration that the inputs make can't work.
    #[error("the inputs of the bootstrap make a configuration that can't work")]
    Made(#[source] config::Error),
    /// The host has no name of its own yet, and the inputs give the node none.
    #[error("the host has no name of its own yet: waiting for one, or set agent.nodeName")]
    Nameless,
    /// A file of the host can't be read or written.
    #[error("{what}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
}

impl Error {
    pub(crate) fn mistake(key: &'static str, wrong: &'static str, write: &'static str) -> Self {
        Self::Mistaken(Mistake {
            key: key.into(),
            wrong,
            write,
        })
    }

    /// Whether another try may end differently with the inputs as they are.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Host { .. } | Self::Nameless => true,
            Self::Made(error) => error.may_pass(),
            Self::NoInputs
            | Self::Exposed { .. }
            | Self::Grammar(_)
            | Self::Foreign { .. }
            | Self::Unknown { .. }
            | Self::Mistaken(_) => false,
        }
    }
}
