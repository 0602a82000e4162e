//! Why there is no token, or nothing for it. By construction no text repeats what was sent or, but for codes, what came.

use std::fmt;

use super::BadCertificate;

/// Who was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The metadata service of the virtual machine.
    Metadata,
    /// Entra ID.
    Entra,
    /// Azure Resource Manager.
    Manager,
    /// Azure Arc's agent on the host.
    Arc,
}

impl fmt::Display for Whom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Metadata => "the metadata service (169.254.169.254)",
            Self::Entra => "Entra ID",
            Self::Manager => "Azure Resource Manager",
            Self::Arc => "Azure Arc's agent (127.0.0.1:40342)",
        })
    }
}

/// Why there is no token, or nothing for it.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It understood and said no.
    #[error("{whom} refuses ({code}): {remedy}")]
    Refused {
        /// Who.
        whom: Whom,
        /// As it calls it: `invalid_client, AADSTS7000215`.
        code: String,
        /// What to do.
        remedy: &'static str,
    },
    /// It can't give one now.
    #[error("{whom} gives nothing now ({code}): {remedy}")]
    Busy {
        /// Who.
        whom: Whom,
        /// The HTTP status, and what it calls it.
        code: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Something answers, and not as it does.
    #[error("what answers for {whom} is not it ({what}): look at what stands between")]
    Stranger {
        /// Who.
        whom: Whom,
        /// What is wrong.
        what: String,
    },
    /// Nothing answers.
    #[error("{whom} does not answer ({why}): {remedy}")]
    Away {
        /// Who.
        whom: Whom,
        /// As the network says.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
    /// What is to prove a service principal can't.
    #[error("azure.servicePrincipal.clientSecretFile {0}")]
    Credential(#[source] BadCertificate),
    /// The answer to a challenge can't be had.
    #[error(
        "the answer to Azure Arc's challenge can't be read in /var/opt/azcmagent/tokens: see that it is root's to read there"
    )]
    Key(#[source] std::io::Error),
    /// A pool's bootstrap data can't work. Keys, and no value.
    #[error("the pool's bootstrap data can't work: {0}")]
    Data(String),
    /// No client could be made.
    #[error("no connection to Azure can be made ({0})")]
    Setup(String),
}

impl Error {
    /// Whether the next try might end otherwise with the same settings.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        !matches!(self, Self::Refused { .. } | Self::Credential(_))
    }
}
