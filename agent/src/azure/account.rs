//! Who asks for a token.

use hostexec::Host;
use url::Url;

use super::{BadCertificate, Certificate, Error, Keys};
use crate::config::{Credential, Identity, PUBLIC_AUTHORITY, Settings};
use crate::model::Secret;

/// An account in Entra ID.
#[derive(Clone, Debug)]
pub enum Account {
    /// The host's own, told by the metadata service of its virtual machine.
    Managed {
        /// The user-assigned identity; none: the only one.
        client_id: Option<String>,
    },
    /// An application's.
    Principal(Principal),
    /// The host's own in Azure Arc, told by its agent there. Kubernetes takes none of its tokens.
    Arc(Keys),
}

impl Account {
    /// The account that asks the resource manager; none: the settings give none. Source: node-agent specification, 2.7.
    ///
    /// # Errors
    /// As [`Account::of`].
    pub fn of_manager(settings: &Settings, host: &Host) -> Result<Option<Self>, Error> {
        match settings.auth().identity() {
            Some(Identity::Arc) => Ok(Some(Self::Arc(Keys::of(host)))),
            Some(Identity::Managed { .. } | Identity::ServicePrincipal(_)) | None => Self::of(settings),
        }
    }

    /// The account that the settings give toward Kubernetes; none: they give none that it takes.
    ///
    /// # Errors
    /// What proves a service principal can't.
    pub fn of(settings: &Settings) -> Result<Option<Self>, Error> {
        let principal = match settings.auth().identity() {
            None | Some(Identity::Arc) => return Ok(None),
            Some(Identity::Managed { client_id }) => {
                let client_id = client_id.clone();
                return Ok(Some(Self::Managed { client_id }));
            }
            Some(Identity::ServicePrincipal(principal)) => principal,
        };
        Ok(Some(Self::Principal(Principal {
            authority: Authority::parse(settings.authority_host()).unwrap_or_default(),
            tenant: principal.tenant_id.clone(),
            client: principal.client_id.clone(),
            proof: match &principal.credential {
                Credential::Secret(secret) => Proof::Secret(secret.clone()),
                Credential::Certificate(pem) => {
                    let read = Certificate::parse(pem.reveal().as_bytes());
                    Proof::Certificate(read.map_err(Error::Credential)?)
                }
                Credential::File(_) => return Err(Error::Credential(BadCertificate::Unread)),
            },
        })))
    }
}

/// A service principal.
#[derive(Clone, Debug)]
pub struct Principal {
    /// Where it is known.
    pub authority: Authority,
    /// Its tenant.
    pub tenant: String,
    /// The application.
    pub client: String,
    /// What proves it.
    pub proof: Proof,
}

/// What proves a service principal.
#[derive(Clone, Debug)]
pub enum Proof {
    /// A secret.
    Secret(Secret<String>),
    /// A certificate with its key.
    Certificate(Certificate),
}

/// A host that gives out tokens: one a cloud.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority(Url);

impl Default for Authority {
    fn default() -> Self {
        Self(Url::parse(PUBLIC_AUTHORITY).expect("a fixed URL is one"))
    }
}

impl Authority {
    /// The authority at `text`; an empty one is the public cloud's. None: it is no https URL of just a host.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "" => PUBLIC_AUTHORITY,
            text => text,
        };
        let url = Url::parse(text).ok()?;
        let plain = url.scheme() == "https"
            && url.has_host()
            && url.username().is_empty()
            && url.password().is_none()
            && url.path() == "/"
            && url.query().is_none()
            && url.fragment().is_none();
        plain.then_some(Self(url))
    }

    /// Where a tenant's tokens are given out.
    pub(super) fn token_url(&self, tenant: &str) -> Url {
        let mut url = self.0.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.clear().extend([tenant, "oauth2", "v2.0", "token"]);
        }
        url
    }

    /// An authority that tests play.
    #[cfg(test)]
    pub(super) fn played(url: &str) -> Self {
        Self(Url::parse(url).unwrap())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::config;

    #[test]
    fn an_authority_is_a_host_and_nothing_more() {
        for good in [
            "",
            " https://login.microsoftonline.us/ ",
            "https://login.chinacloudapi.cn",
        ] {
            assert!(Authority::parse(good).is_some(), "{good}");
        }
        for bad in [
            "http://login.microsoftonline.com",
            "login.microsoftonline.com",
            "https://u:p@a",
            "https://a/p",
            "https://a?q",
            "https://a#f",
        ] {
            assert_eq!(Authority::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_tenant_is_one_part_of_the_path_whatever_it_holds() {
        let authority = Authority::parse("").unwrap();
        let url = |tenant| authority.token_url(tenant).to_string();
        assert_eq!(url("t"), "https://login.microsoftonline.com/t/oauth2/v2.0/token");
        assert_eq!(
            url("../a?b#c"),
            "https://login.microsoftonline.com/..%2Fa%3Fb%23c/oauth2/v2.0/token"
        );
    }

    #[test]
    fn the_configuration_makes_the_account() {
        let made = |azure: serde_json::Value| {
            let mut text = config::tests::with(&[("azure.bootstrapToken", serde_json::Value::Null)]);
            text["azure"]
                .as_object_mut()
                .unwrap()
                .extend(azure.as_object().unwrap().clone());
            Account::of(&config::tests::settings(&text))
        };
        assert!(matches!(
            made(json!({"managedIdentity": {"clientId": "c"}})),
            Ok(Some(Account::Managed { client_id: Some(id) })) if id == "c"
        ));
        let secret = json!({"tenantId": "t", "clientId": "c", "clientSecret": "s"});
        let principal = made(json!({"servicePrincipal": secret, "cloud": "AzureChinaCloud"}));
        let Ok(Some(Account::Principal(principal))) = principal else {
            panic!("another account")
        };
        assert_eq!(
            Some(principal.authority),
            Authority::parse("https://login.chinacloudapi.cn")
        );
        let unread =
            made(json!({"servicePrincipal": {"tenantId": "t", "clientId": "c", "clientSecretFile": "/canary"}}));
        let error = unread.unwrap_err();
        assert!(!error.may_pass() && !error.to_string().contains("canary"), "{error}");
        assert!(matches!(made(json!({"arc": {"enabled": true}})), Ok(None)));
    }
}
