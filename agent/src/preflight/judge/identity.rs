//! The Azure identity: whether it is given a token.

use crate::preflight::{Check, Finding, Remedy};

/// What a token of the identity is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// For kubelet and the agent to join with: no node can be made without.
    Join,
    /// For the resource manager alone: a bootstrap token is what the node joins with.
    Manage,
}

/// What came of asking for a token, in words that are ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Given {
    /// The settings have no identity.
    NotAsked,
    /// One was given.
    Token,
    /// What is to prove a service principal was not to be read.
    Unread,
    /// What is to prove a service principal can't.
    Unproved(String),
    /// Whoever gives tokens has understood and said no.
    Refused {
        /// Who, and as it calls it.
        said: String,
        /// What to do.
        remedy: &'static str,
    },
    /// It can't give one now.
    Busy {
        /// Who, and as it calls it.
        said: String,
        /// What to do.
        remedy: &'static str,
    },
    /// Something answers, and not as it does.
    Stranger {
        /// Who should have.
        whom: String,
    },
    /// Nothing answers.
    Away {
        /// Who should have.
        whom: String,
        /// Why not.
        why: String,
        /// What to do.
        remedy: &'static str,
    },
}

/// `azure-identity`
#[must_use]
pub fn identity(needed: Use, given: &Given) -> Finding {
    const PROOF: Remedy = Remedy::new(
        "put a secret, or a PEM with the certificate and its unencrypted RSA key, into the file of azure.servicePrincipal.clientSecretFile",
    );
    const BETWEEN: Remedy =
        Remedy::new("look at what stands between: a proxy, a sign-in page of the network, a firewall that answers");
    let check = Check::AzureIdentity;
    let (message, remedy) = match given {
        Given::NotAsked => return check.skip("the configuration has none that Azure knows"),
        Given::Unread => return check.skip("its credential can't be read: see the check cluster-credentials"),
        Given::Token => {
            return check.ok(match needed {
                Use::Join => "it is given a token for the cluster",
                Use::Manage => "it is given a token for Azure Resource Manager",
            });
        }
        Given::Unproved(why) => (format!("its credential can't be used: it {why}"), PROOF),
        Given::Refused { said, remedy } => (format!("it is refused a token: {said}"), Remedy::new(remedy)),
        // It passes, and a start tries again.
        Given::Busy { said, remedy } => {
            return check.warn(format!("no token can be had now: {said}"), Remedy::new(remedy));
        }
        Given::Stranger { whom } => (format!("what answers for {whom} is not it"), BETWEEN),
        Given::Away { whom, why, remedy } => (format!("{whom} does not answer: {why}"), Remedy::new(remedy)),
    };
    match needed {
        Use::Join => check.fail(message, remedy),
        Use::Manage => check.warn(message, remedy),
    }
}
