//! What is asked of whom for a token; pure.

use jiff::Timestamp;
use url::{Url, form_urlencoded};

use super::{Principal, Proof, Whom, assertion};
use crate::model::Secret;

/// Whom a token is for: an application's ID, or a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Audience(String);

impl Audience {
    /// That one.
    #[must_use]
    pub fn of(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

/// A request as it goes out.
#[derive(Clone, Debug)]
pub(super) struct Request {
    pub(super) whom: Whom,
    pub(super) url: Url,
    pub(super) body: Body,
}

/// What goes with it, which says how it goes.
#[derive(Clone, Debug)]
pub(super) enum Body {
    /// A GET that says it is about metadata.
    None,
    /// A form, posted.
    Form(Secret<String>),
    /// A GET that says it is about metadata, with the answer to a challenge.
    Answered(Secret<String>),
    /// An object without a key, posted by whom this token is of.
    Empty { bearer: Secret<String> },
}

/// The metadata service of an Azure virtual machine. Source: Azure Instance Metadata Service, "Access".
pub(super) const METADATA: &str = "http://169.254.169.254";

/// For a managed identity. Source: "How to use managed identities on an Azure VM to acquire an access token".
pub(super) fn managed(metadata: &Url, client_id: Option<&str>, audience: &Audience) -> Request {
    let mut url = metadata.clone();
    url.set_path("/metadata/identity/oauth2/token");
    url.query_pairs_mut()
        .append_pair("api-version", "2018-02-01")
        .append_pair("resource", &audience.0)
        .extend_pairs(client_id.map(|id| ("client_id", id)));
    Request {
        whom: Whom::Metadata,
        url,
        body: Body::None,
    }
}

/// For the machine of Azure Arc: first without, then with the answer to its challenge. Source: see `arc`.
pub(super) fn arc(arc: &Url, audience: &Audience, answer: Option<Secret<String>>) -> Request {
    let mut url = arc.clone();
    url.set_path("/metadata/identity/oauth2/token");
    url.query_pairs_mut()
        .append_pair("api-version", "2020-06-01")
        .append_pair("resource", &audience.0);
    Request {
        whom: Whom::Arc,
        url,
        body: answer.map_or(Body::None, Body::Answered),
    }
}

/// For a service principal, by its secret or by what its key signs now. Source: Microsoft identity platform, "OAuth 2.0 client credentials
/// flow".
pub(super) fn principal(principal: &Principal, audience: &Audience, now: Timestamp, id: &str) -> Request {
    let url = principal.authority.token_url(&principal.tenant);
    let mut form = form_urlencoded::Serializer::new(String::new());
    form.append_pair("grant_type", "client_credentials")
        .append_pair("client_id", &principal.client)
        .append_pair("scope", &format!("{}/.default", audience.0));
    match &principal.proof {
        Proof::Secret(secret) => form.append_pair("client_secret", secret.reveal()),
        Proof::Certificate(certificate) => {
            let signed = assertion::render(certificate, url.as_str(), &principal.client, now, id);
            form.append_pair(
                "client_assertion_type",
                "urn:ietf:params:oauth:client-assertion-type:jwt-bearer",
            )
            .append_pair("client_assertion", signed.reveal())
        }
    };
    Request {
        whom: Whom::Entra,
        url,
        body: Body::Form(Secret::new(form.finish())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::azure::{AKS_SERVER, Authority};

    #[test]
    fn a_managed_identity_is_asked_for_by_its_client_id_if_it_has_one() {
        let url = |client| {
            managed(&Url::parse(METADATA).unwrap(), client, &Audience::of("https://a/"))
                .url
                .to_string()
        };
        let common =
            "http://169.254.169.254/metadata/identity/oauth2/token?api-version=2018-02-01&resource=https%3A%2F%2Fa%2F";
        assert_eq!(url(None), common);
        assert_eq!(url(Some("c&d")), format!("{common}&client_id=c%26d"));
    }

    #[test]
    fn a_secret_goes_in_the_body_and_is_not_printed() {
        let asked = principal(
            &Principal {
                authority: Authority::parse("").unwrap(),
                tenant: "t".into(),
                client: "c".into(),
                proof: Proof::Secret(Secret::new("can&ary =".into())),
            },
            &Audience::of(AKS_SERVER),
            Timestamp::UNIX_EPOCH,
            "id",
        );
        let Body::Form(form) = &asked.body else {
            panic!("another body")
        };
        assert_eq!(
            form.reveal(),
            "grant_type=client_credentials&client_id=c&scope=6dae42f8-4368-4678-94ff-3960e28e3630%2F.default&client_secret=can%26ary+%3D"
        );
        assert!(!format!("{asked:?}").contains("ary"));
    }
}
