//! What Entra ID and the metadata service refuse, and what to do about it; pure. Source: "Microsoft Entra authentication and authorization
//! error codes"; "How to use managed identities on an Azure VM to acquire an access token", "Error handling".

/// What a refusal means.
pub(super) enum Meaning {
    /// The settings, or the account, must change.
    Final(&'static str),
    /// It passes: by itself, or by what somebody does elsewhere.
    Passing(&'static str),
}

use Meaning::{Final, Passing};

/// What Entra ID means by a number.
pub(super) fn of_entra(number: Option<u32>, error: &str) -> Meaning {
    const BUSY: &str = "it is asked again";
    match number {
        Some(7_000_215) => Final(
            "the client secret is wrong: put the secret's value, not its ID, into azure.servicePrincipal.clientSecret",
        ),
        Some(7_000_222) => Final("the client secret has expired: make a new one for azure.servicePrincipal"),
        Some(700_016) => {
            Final("the tenant knows no such application: look at azure.servicePrincipal.clientId and tenantId")
        }
        Some(90_002 | 900_021 | 900_023) => Final("there is no such tenant: look at azure.servicePrincipal.tenantId"),
        Some(7_000_229 | 7_000_112) => {
            Final("the application has no service principal in the tenant, or is disabled: enable it there")
        }
        Some(700_027 | 700_030 | 700_021) => {
            Final("the application does not know the certificate: add it to the application's registration")
        }
        // The host's clock may be put right meanwhile.
        Some(700_024) => Passing("the signature is not of this time: look at the host's clock"),
        Some(500_011 | 500_014) => Final(
            "the tenant does not know whom the token is for: look at the server ID, and whether the cluster is of this tenant",
        ),
        Some(53_000..=53_011 | 530_032..=530_039) => {
            Final("a Conditional Access policy of the tenant forbids it: exempt this application or this place")
        }
        Some(90_033 | 90_055 | 90_006 | 90_020) => Passing(BUSY),
        _ if ["temporarily_unavailable", "server_error"].contains(&error) => Passing(BUSY),
        _ => Final("look the code up at https://login.microsoftonline.com/error"),
    }
}

/// What to do about an Azure Arc that gives no token.
pub(super) const ARC: &str =
    "see `azcmagent show` on the host: it must be connected, and himdsd.service must run; it is asked again";

/// What Azure Arc's agent means by its words. Most of it passes: the machine is connected by others, perhaps later.
pub(super) fn of_arc(error: &str, description: &str) -> Meaning {
    match of_metadata(error, description) {
        Final(remedy) if error == "invalid_resource" || description.to_ascii_lowercase().contains("aadsts500011") => {
            Final(remedy)
        }
        Final(_) => Passing(ARC),
        Passing(remedy) => Passing(remedy),
    }
}

/// What the metadata service means by its words.
pub(super) fn of_metadata(error: &str, description: &str) -> Meaning {
    let says = |words: &str| description.to_ascii_lowercase().contains(words);
    if says("identity not found") {
        Final("this virtual machine has no such identity: assign it, or correct azure.managedIdentity.clientId")
    } else if says("multiple user assigned") {
        Final("this virtual machine has several identities: choose one with azure.managedIdentity.clientId")
    } else if error == "invalid_resource" || says("aadsts500011") {
        Final(
            "the tenant does not know whom the token is for: look at the server ID, and whether the cluster is of this tenant",
        )
    } else if ["temporarily_unavailable", "server_error", "unknown"].contains(&error) {
        Passing("it is asked again")
    } else {
        Final("look at the identities of this virtual machine and at azure.managedIdentity")
    }
}
