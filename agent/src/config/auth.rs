//! Who the agent and kubelet are to Azure and to Kubernetes. Source: node-agent specification, 2.7.

use hostexec::HostPath;

use super::{Mistake, Mistakes, file, value};
use crate::model::Secret;

/// The credentials that the file gives: at least one of the two.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Auth {
    token: Option<BootstrapToken>,
    identity: Option<Identity>,
}

impl Auth {
    /// The bootstrap token.
    #[must_use]
    pub fn token(&self) -> Option<&BootstrapToken> {
        self.token.as_ref()
    }

    /// The identity in Azure; none: the default chain.
    #[must_use]
    pub fn identity(&self) -> Option<&Identity> {
        self.identity.as_ref()
    }

    /// The file with the service principal's credential, as long as it was not read.
    pub(super) fn file(&mut self) -> Option<&mut Credential> {
        match &mut self.identity {
            Some(Identity::ServicePrincipal(ServicePrincipal {
                credential: credential @ Credential::File(_),
                ..
            })) => Some(credential),
            _ => None,
        }
    }

    /// Another token in the place of the one before.
    pub(super) fn renew(&mut self, token: BootstrapToken) {
        self.token = Some(token);
    }

    /// What kubelet joins the cluster with.
    #[must_use]
    pub fn kubelet(&self) -> KubeletAuth<'_> {
        match (&self.token, &self.identity) {
            (Some(token), _) => KubeletAuth::Token(token),
            (None, Some(Identity::ServicePrincipal(principal))) => KubeletAuth::ServicePrincipal(principal),
            (None, Some(Identity::Managed { client_id })) => KubeletAuth::Managed {
                client_id: client_id.as_deref(),
            },
            (None, Some(Identity::Arc) | None) => KubeletAuth::None,
        }
    }
}

/// What kubelet, and the agent as long as it has no certificate, authenticate with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeletAuth<'a> {
    /// The bootstrap token.
    Token(&'a BootstrapToken),
    /// The exec credential, as a service principal.
    ServicePrincipal(&'a ServicePrincipal),
    /// The exec credential, as a managed identity.
    Managed {
        /// The user-assigned identity.
        client_id: Option<&'a str>,
    },
    /// Nothing: Arc alone is no credential of Kubernetes.
    None,
}

/// An identity in Azure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Identity {
    /// The host's identity in Azure Arc.
    Arc,
    /// A service principal.
    ServicePrincipal(ServicePrincipal),
    /// A managed identity.
    Managed {
        /// The user-assigned identity; none: the only one.
        client_id: Option<String>,
    },
}

/// A service principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServicePrincipal {
    /// The tenant.
    pub tenant_id: String,
    /// The application.
    pub client_id: String,
    /// What proves it.
    pub credential: Credential,
}

/// What proves a service principal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// A secret.
    Secret(Secret<String>),
    /// A PEM with a certificate and its key.
    Certificate(Secret<String>),
    /// A file with one of them, which was not read: it is read with the configuration.
    File(HostPath),
}

/// Where the token stands.
pub(super) const TOKEN: &str = "azure.bootstrapToken.token";

/// A bootstrap token: six characters, a dot, sixteen characters. Source: Kubernetes, "Bootstrap Tokens".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BootstrapToken(Secret<String>);

impl BootstrapToken {
    /// The token itself.
    #[must_use]
    pub fn reveal(&self) -> &str {
        self.0.reveal()
    }

    pub(super) fn parse(text: &str) -> Result<Self, Mistake> {
        if is_bootstrap_token(text) {
            return Ok(Self(Secret::new(text.to_owned())));
        }
        Err(Mistake::new(
            TOKEN,
            "is not a bootstrap token",
            "write six and sixteen characters of [a-z0-9] with a dot between",
        ))
    }
}

/// Whether a text has the form of a bootstrap token.
#[must_use]
pub fn is_bootstrap_token(text: &str) -> bool {
    let part = |part: &str, length| {
        part.len() == length
            && part
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
    };
    matches!(text.split_once('.'), Some((id, secret)) if part(id, 6) && part(secret, 16))
}

/// The public cloud's authority. Source: Microsoft identity platform, "National clouds".
pub const PUBLIC_AUTHORITY: &str = "https://login.microsoftonline.com";

/// The authority that goes with a resource manager.
#[must_use]
pub fn authority_of(resource_manager: &str) -> &'static str {
    match resource_manager {
        "https://management.usgovcloudapi.net" => "https://login.microsoftonline.us",
        "https://management.chinacloudapi.cn" => "https://login.chinacloudapi.cn",
        _ => PUBLIC_AUTHORITY,
    }
}

/// Reads the credentials, each mistake by its key.
pub(super) fn parse(azure: &file::Azure, bad: &mut Mistakes) -> Option<Auth> {
    let token = azure
        .bootstrap_token
        .as_ref()
        .map(|token| bad.take(BootstrapToken::parse(token.token.reveal().trim())));
    let given = [
        azure.arc.enabled,
        azure.service_principal.is_some(),
        azure.managed_identity.is_some(),
    ];
    match given.into_iter().filter(|given| *given).count() {
        0 if token.is_none() => bad.push(Mistake::new(
            "azure",
            "has no credential",
            "write bootstrapToken, servicePrincipal, managedIdentity or arc.enabled",
        )),
        0 | 1 => {}
        _ => bad.push(Mistake::new(
            "azure",
            "has more than one Azure identity",
            "write one of servicePrincipal, managedIdentity and arc.enabled",
        )),
    }
    let identity = if azure.arc.enabled {
        Some(Identity::Arc)
    } else if let Some(principal) = &azure.service_principal {
        Some(Identity::ServicePrincipal(service_principal(principal, bad)?))
    } else {
        azure.managed_identity.as_ref().map(|managed| Identity::Managed {
            client_id: value::given(&managed.client_id).map(str::to_owned),
        })
    };
    match token {
        Some(None) => None,
        Some(Some(token)) => Some(Auth {
            token: Some(token),
            identity,
        }),
        None => Some(Auth { token: None, identity }),
    }
}

fn service_principal(written: &file::ServicePrincipal, bad: &mut Mistakes) -> Option<ServicePrincipal> {
    let needed = |key, text: &str| {
        value::given(text)
            .map(str::to_owned)
            .ok_or_else(|| Mistake::new(key, "is missing", "write the ID, or leave out azure.servicePrincipal"))
    };
    let tenant_id = bad.take(needed("azure.servicePrincipal.tenantId", &written.tenant_id));
    let client_id = bad.take(needed("azure.servicePrincipal.clientId", &written.client_id));
    const FILE: &str = "azure.servicePrincipal.clientSecretFile";
    let secret = Some(written.client_secret.reveal()).filter(|secret| !secret.is_empty());
    let credential = match (secret, value::path(FILE, &written.client_secret_file)) {
        (_, Err(mistake)) => Err(mistake),
        (Some(secret), Ok(None)) => Ok(Credential::Secret(Secret::new(secret.clone()))),
        (None, Ok(Some(file))) => Ok(Credential::File(file)),
        (Some(_), Ok(Some(_))) => Err(Mistake::new(
            "azure.servicePrincipal",
            "has two credentials",
            "write one of clientSecret and clientSecretFile",
        )),
        (None, Ok(None)) => Err(Mistake::new(
            "azure.servicePrincipal",
            "has no credential",
            "write one of clientSecret and clientSecretFile",
        )),
    };
    let credential = bad.take(credential);
    Some(ServicePrincipal {
        tenant_id: tenant_id?,
        client_id: client_id?,
        credential: credential?,
    })
}
