//! A request to one place: with its login, and led nowhere that it must not go.
//!
//! oci-client gets the tokens. Its own requests for content can't be told which redirects to follow, and gather whatever
//! comes, however much it is.

use std::time::Duration;

use image::Select;
use oci_client::RegistryOperation;
use oci_client::errors::{OciDistributionError, OciEnvelope};
use oci_client::secrets::RegistryAuth;
use reqwest::header::HeaderName;
use reqwest::redirect::Policy;
use reqwest::{Certificate, Response};
use tokio::net::lookup_host;
use tokio::time::timeout;

use super::error::{Turn, Why};
use super::registries::{Endpoint, Scheme, Verify};
use super::registry::{AGENT, CONNECT, Limits, Place, Session};

/// How many redirects are followed. Source: reqwest, redirect.rs, its own default.
const REDIRECTS: usize = 10;
/// Largest refusal whose code is read.
const LARGEST_REFUSAL: u64 = 64 << 10;
/// How long a name may take that is looked up only to say what was wrong.
const NAME: Duration = Duration::from_secs(3);

/// The client for content of one place.
pub(super) fn client(endpoint: &Endpoint, limits: Limits) -> reqwest::Result<reqwest::Client> {
    let secure = endpoint.scheme == Scheme::Https;
    let policy = Policy::custom(move |turn| {
        if turn.previous().len() > REDIRECTS {
            turn.error(Turn::Circle)
        } else if secure && turn.url().scheme() != "https" {
            turn.error(Turn::Plain)
        } else {
            turn.follow()
        }
    });
    let certificates = endpoint.certificates.iter();
    let certificates: Vec<_> = certificates
        .map(|der| Certificate::from_der(der.as_ref()))
        .collect::<Result<_, _>>()?;
    reqwest::Client::builder()
        .redirect(policy)
        // An address with a key in it is nobody else's.
        .referer(false)
        .danger_accept_invalid_certs(endpoint.verify == Verify::Skip)
        .tls_certs_merge(certificates)
        .read_timeout(limits.idle)
        .connect_timeout(CONNECT.min(limits.idle))
        .user_agent(AGENT)
        .build()
}

impl Session {
    /// Asks a place for a manifest or a blob (`folder`) with this header; an answer that is none is an error.
    pub(super) async fn ask(
        &self,
        place: &Place,
        folder: &str,
        select: &Select,
        (header, value): (HeaderName, &str),
    ) -> Result<Response, OciDistributionError> {
        let reference = self.reference(place, select);
        let auth = place.endpoint.auth.reveal();
        let token = place.client.auth(&reference, auth, RegistryOperation::Pull).await?;
        let scheme = match place.endpoint.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let (registry, path) = (reference.resolve_registry(), reference.repository());
        let name = match select {
            Select::Tag(tag) => tag.to_string(),
            Select::Digest(digest) => digest.to_string(),
        };
        let url = format!("{scheme}://{registry}/v2/{path}/{folder}/{name}");
        let mut request = place.content.get(url).header(header, value);
        if let Some(namespace) = reference.namespace() {
            request = request.query(&[("ns", namespace)]);
        }
        request = match (token, auth) {
            (Some(token), _) => request.bearer_auth(token),
            (None, RegistryAuth::Basic(user, password)) => request.basic_auth(user, Some(password)),
            (None, RegistryAuth::Anonymous | RegistryAuth::Bearer(_)) => request,
        };
        let response = request.send().await?;
        if response.status().is_success() {
            return Ok(response);
        }
        let (status, url) = (response.status(), String::new());
        let refusal = match within(response, LARGEST_REFUSAL).await {
            Ok(Some(body)) if status.is_client_error() => serde_json::from_slice::<OciEnvelope>(&body).ok(),
            Ok(_) | Err(_) => None,
        };
        Err(match refusal {
            Some(envelope) => OciDistributionError::RegistryError { envelope, url },
            None => OciDistributionError::ServerError {
                code: status.as_u16(),
                url,
                message: String::new(),
            },
        })
    }
}

/// The whole of a body; `None` if it is larger than that, of which no more is taken.
pub(super) async fn within(mut response: Response, largest: u64) -> reqwest::Result<Option<Vec<u8>>> {
    let mut body = Vec::new();
    while let Some(more) = response.chunk().await? {
        body.extend_from_slice(&more);
        if body.len() as u64 > largest {
            return Ok(None);
        }
    }
    Ok(Some(body))
}

/// Why a place said nothing: a name that nobody knows, or can be asked about, looks like silence.
pub(super) async fn silence(place: &Place) -> Why {
    let address = place.endpoint.authority.split('/').next().unwrap_or_default();
    let port = match place.endpoint.scheme {
        Scheme::Http => 80,
        Scheme::Https => 443,
    };
    let found = match address.rsplit_once(':') {
        Some((_, number)) if number.bytes().all(|digit| digit.is_ascii_digit()) => {
            timeout(NAME, lookup_host(address)).await.map(|found| found.map(drop))
        }
        Some(_) | None => timeout(NAME, lookup_host((address, port)))
            .await
            .map(|found| found.map(drop)),
    };
    match found {
        Ok(Ok(())) => Why::Silent,
        Ok(Err(_)) | Err(_) => Why::Unnamed,
    }
}
