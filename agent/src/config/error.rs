//! What can be wrong with a configuration. By construction no text repeats a value: a mistake's parts are fixed texts.

use std::{borrow::Cow, fmt, io};

use hostexec::HostPath;

use super::decode::Mistyped;

/// One setting that can't work: its key, what is wrong with it, and what to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The key's path in the file.
    pub key: Cow<'static, str>,
    /// What is wrong.
    pub wrong: &'static str,
    /// What to write instead.
    pub write: &'static str,
}

impl Mistake {
    pub(crate) fn new(key: impl Into<Cow<'static, str>>, wrong: &'static str, write: &'static str) -> Self {
        Self {
            key: key.into(),
            wrong,
            write,
        }
    }
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}: {}", self.key, self.wrong, self.write)
    }
}

impl std::error::Error for Mistake {}

/// Every mistake found in one pass, in the order of the file's sections.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mistakes(Vec<Mistake>);

impl Mistakes {
    /// Keeps the mistake and gives the value that there is.
    pub(super) fn take<T>(&mut self, parsed: Result<T, Mistake>) -> Option<T> {
        parsed.map_err(|mistake| self.0.push(mistake)).ok()
    }

    pub(super) fn push(&mut self, mistake: Mistake) {
        self.0.push(mistake);
    }

    pub(super) fn extend(&mut self, mistakes: impl IntoIterator<Item = Mistake>) {
        self.0.extend(mistakes);
    }

    /// The mistakes.
    pub fn iter(&self) -> impl Iterator<Item = &Mistake> {
        self.0.iter()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, mistake) in self.0.iter().enumerate() {
            write!(f, "{}{mistake}", if index == 0 { "" } else { "; " })?;
        }
        Ok(())
    }
}

impl std::error::Error for Mistakes {}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No path was given.
    #[error("no configuration file was named: write --config {}", super::PATH)]
    NoPath,
    /// The path is none of the host.
    #[error("--config names no file of the host: write an absolute path such as {}", super::PATH)]
    BadPath(#[source] hostexec::NotPlain),
    /// The file is not there.
    #[error("there is no configuration file {path}: write one, or run `aks-flex-node bootstrap`")]
    Missing {
        /// The file.
        path: HostPath,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is there and can't be read.
    #[error("the configuration file {path} can't be read")]
    Unreadable {
        /// The file.
        path: HostPath,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// The file is no JSON. Where, but not what stands there.
    #[error("{path} is not JSON at line {line}, column {column}: write one JSON object")]
    NotJson {
        /// The file.
        path: HostPath,
        /// From 1.
        line: usize,
        /// In bytes, from 1.
        column: usize,
    },
    /// A value has another type than its key asks for.
    #[error("{path} has a value of a wrong type")]
    Mistyped {
        /// The file.
        path: HostPath,
        /// Which.
        #[source]
        source: Mistyped,
    },
    /// The file doesn't name the node, and the host has no name of its own yet.
    #[error("{path} has no agent.nodeName, and the host has no name of its own: write one, or name the host")]
    Nameless {
        /// The file.
        path: HostPath,
    },
    /// Settings that can't work.
    #[error("{path} can't work")]
    Mistaken {
        /// The file.
        path: HostPath,
        /// Which.
        #[source]
        source: Mistakes,
    },
}

impl Error {
    /// Whether another try may end differently with the file as it is.
    #[must_use]
    pub fn may_pass(&self) -> bool {
        match self {
            Self::Unreadable { .. } | Self::Nameless { .. } => true,
            Self::NoPath
            | Self::BadPath(_)
            | Self::Missing { .. }
            | Self::NotJson { .. }
            | Self::Mistyped { .. }
            | Self::Mistaken { .. } => false,
        }
    }
}
