//! How a process ends: the type of the failure says whether another start may mend it, and systemd obeys.

use std::process::ExitCode;

use crate::{apply, azure, bootstrap, bundle, config, daemon, fetch, observe, plan};

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// What was asked for holds, or a stop was asked for.
    Done = 0,
    /// It failed; another try may end differently.
    Failed = 1,
    /// It can never work as configured.
    Never = 78,
}

impl Exit {
    /// Ends that another start can't mend: the bootstrap unit's `RestartPreventExitStatus=`.
    pub const FINAL: [Self; 1] = [Self::Never];
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit as u8)
    }
}

/// Why a command failed: one variant a room.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The command line can't work.
    #[error("{0}")]
    Usage(String),
    /// The configuration.
    #[error(transparent)]
    Config(#[from] config::Error),
    /// Settings that are right, and ask for what `start` can't do.
    #[error("the configuration can't be started with")]
    Unfit(#[source] config::Mistakes),
    /// The inputs of a first boot.
    #[error(transparent)]
    Bootstrap(#[from] bootstrap::Error),
    /// The inputs of an Ignition config.
    #[error("no Ignition config can be made of the inputs")]
    Butane(#[from] butane::Error),
    /// A file of the host, or the machinery under the process.
    #[error("{what}")]
    Host {
        /// What was tried.
        what: &'static str,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The host can't be looked at.
    #[error(transparent)]
    Observe(#[from] observe::Error),
    /// No plan can be made of the settings and the host.
    #[error("no node can be planned")]
    Goal(#[from] plan::Unfit),
    /// The offline artifacts that the settings name.
    #[error("bootstrap.offlineArtifacts.source names a bundle that no node can be made of")]
    Bundle(#[from] bundle::Error),
    /// A step of a plan.
    #[error(transparent)]
    Apply(#[from] apply::Failed),
    /// The last good agent could not be put back.
    #[error("the last good agent image could not be put back")]
    Recover(#[from] daemon::switch::Error),
    /// TLS can't be set up.
    #[error("no connection can be made")]
    Tls(#[source] fetch::Error),
    /// A tool of the host.
    #[error("a tool of the host failed")]
    Tool(#[source] hostexec::ToolError),
    /// The host's machined doesn't answer.
    #[error("the host's machinectl does not answer")]
    Machined(#[source] hostexec::ToolError),
    /// kubelet's credential plugin was called in a way that can't work.
    #[error("no token can be had")]
    Call(#[from] azure::BadCall),
    /// Somebody else is at it.
    #[error("{what}")]
    Busy {
        /// What to do.
        what: &'static str,
    },
    /// The reset's own unit can't take over.
    #[error("the reset can't be begun")]
    Reset(#[from] daemon::reset::Error),
    /// Azure gives no token.
    #[error("no token can be had")]
    Azure(#[from] azure::Error),
    /// The command is not part of this release.
    #[error("`{command}` is not part of this release yet: {instead}")]
    NotYet {
        /// The command.
        command: &'static str,
        /// What to do meanwhile.
        instead: &'static str,
    },
}

impl Failure {
    /// How the process ends.
    #[must_use]
    pub fn exit(&self) -> Exit {
        let may_pass = match self {
            Self::Usage(_) | Self::Unfit(_) | Self::Call(_) => false,
            Self::Goal(unfit) => unfit.may_pass(),
            Self::Config(error) => error.may_pass(),
            Self::Bootstrap(error) => error.may_pass(),
            Self::Butane(error) => error.may_pass(),
            Self::Azure(error) => error.may_pass(),
            Self::Apply(failed) => !failed.is_final(),
            Self::Observe(_)
            | Self::Bundle(_)
            | Self::Recover(_)
            | Self::Tls(_)
            | Self::Tool(_)
            | Self::Host { .. }
            | Self::Machined(_)
            | Self::Busy { .. }
            | Self::Reset(_)
            | Self::NotYet { .. } => true,
        };
        if may_pass { Exit::Failed } else { Exit::Never }
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn settings_are_final_and_faults_of_the_host_are_not() {
        let fault = Failure::Host {
            what: "read",
            source: io::Error::other("full"),
        };
        assert_eq!(fault.exit(), Exit::Failed);
        assert_eq!(Failure::from(config::Error::NoPath).exit(), Exit::Never);
        assert_eq!(Failure::Usage(String::new()).exit(), Exit::Never);
        assert_eq!(Exit::FINAL.map(|exit| exit as u8), [78]);
    }
}
