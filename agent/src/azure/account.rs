//! Who asks for a token.

use url::Url;

use super::Certificate;
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

impl Authority {
    /// The public cloud's. Source: Microsoft identity platform, "National clouds".
    pub const PUBLIC: &'static str = "https://login.microsoftonline.com";
    const US_GOVERNMENT: &'static str = "https://login.microsoftonline.us";
    const CHINA: &'static str = "https://login.chinacloudapi.cn";

    /// The authority at `text`; an empty one is the public cloud's. None: it is no https URL of just a host.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let text = match text.trim() {
            "" => Self::PUBLIC,
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

    /// Whose tokens that resource manager takes: the public cloud's, unless it is another cloud's own. Source: node-agent
    /// specification, 2.4.
    #[must_use]
    pub fn of_resource_manager(endpoint: &str) -> &'static str {
        match endpoint {
            "https://management.usgovcloudapi.net" => Self::US_GOVERNMENT,
            "https://management.chinacloudapi.cn" => Self::CHINA,
            _ => Self::PUBLIC,
        }
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
    use super::*;

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
    fn each_cloud_has_its_own_authority() {
        for (endpoint, authority) in [
            ("https://management.azure.com", Authority::PUBLIC),
            ("https://management.usgovcloudapi.net", Authority::US_GOVERNMENT),
            ("https://management.chinacloudapi.cn", Authority::CHINA),
            ("https://arm.example", Authority::PUBLIC),
        ] {
            assert_eq!(Authority::of_resource_manager(endpoint), authority);
            assert!(Authority::parse(authority).is_some());
        }
    }
}
