//! The operator's Butane file, and the renderer of Ignition that `aks-flex-node ignition DIR` prints.
//!
//! ```text
//! DIR/agent.env          ─┐                          /etc/aks-flex-node-agent.env            0600
//! DIR/bootstrap.env       │                          /etc/aks-flex-node/bootstrap.env        0600
//! DIR/base-config.json    ├─ load ─▶ Inputs ─ render /etc/aks-flex-node/base-config.json     0600
//! DIR/secrets/NAME        │                          /etc/aks-flex-node/secrets/NAME         0600
//! DIR/hosts/…             │                          the settings' AKS_FLEX_NODE_AGENT_HOSTS_DIR
//! DIR/*.bu               ─┘                          users, files, folders, links and units of the operator's
//! ```
//!
//! `agent.env` and `bootstrap.env` are needed, the others optional. Rendering is pure, and the same inputs give the same
//! bytes. What would go wrong at boot is refused with the key or file and what to write instead; a value is never
//! repeated. Nothing is fetched, and the Butane read is a subset: a key that is not of it is an error that names it.

mod bu;
pub mod env;
mod folder;
mod ignition;
mod inputs;
mod ours;
mod place;
mod weight;

pub use bu::{Bu, parse as parse_bu};
pub use ignition::{Spec, render};
pub use inputs::Inputs;

/// The file for operators who use Butane itself.
pub const OPERATORS_FILE: &str = include_str!("../files/aks-flex-node-agent-container.bu");

/// Why no Ignition can be rendered. No text repeats a value of the inputs.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file of the folder is missing or cannot be read.
    #[error("{file} cannot be read")]
    Read {
        /// The file, from the folder.
        file: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The file is not what it should be.
    #[error("{file}: {problem}")]
    File {
        /// The file, from the folder.
        file: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
    /// A key's value cannot work.
    #[error("{key} in {file}: {problem}")]
    Key {
        /// The key.
        key: String,
        /// The file, from the folder.
        file: String,
        /// What is wrong, and what to write instead.
        problem: String,
    },
}

impl Error {
    /// Whether another try may end differently: what is missing, in the wrong place or says the wrong thing stays so.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        use std::io::ErrorKind as Kind;
        let stays = [
            Kind::NotFound,
            Kind::PermissionDenied,
            Kind::NotADirectory,
            Kind::IsADirectory,
            Kind::InvalidFilename,
        ];
        match self {
            Self::Read { source, .. } => {
                let loops = source.raw_os_error() == Some(nix::errno::Errno::ELOOP as i32);
                !loops && !stays.contains(&source.kind())
            }
            Self::File { .. } | Self::Key { .. } => false,
        }
    }

    pub(crate) fn file(file: &str, problem: impl Into<String>) -> Self {
        Self::File {
            file: file.to_owned(),
            problem: problem.into(),
        }
    }

    pub(crate) fn key(key: &str, file: &str, problem: impl Into<String>) -> Self {
        Self::Key {
            key: key.to_owned(),
            file: file.to_owned(),
            problem: problem.into(),
        }
    }
}
