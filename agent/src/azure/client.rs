//! Asks for tokens over the network: bounded, and again where that may help.

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use reqwest::{Method, header, redirect};
use rustls::RootCertStore;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;
use url::Url;

use super::answer::{self, Answer, Failure};
use super::patience::Patience;
use super::request::{self, METADATA, Request};
use super::{Account, Audience, Error, Limits, Token, Whom};
use crate::cluster::jitter;
use crate::model::chain;

/// The longest answer that is read. A token with many groups has some kilobytes.
const LONGEST: usize = 256 << 10;

/// Clients of the metadata service and of Entra ID.
#[derive(Clone, Debug)]
pub struct Azure {
    /// It is on the host's own link: never by a proxy, which would get the token.
    near: reqwest::Client,
    far: reqwest::Client,
    metadata: Url,
    limits: Limits,
}

impl Azure {
    /// Clients that trust `roots`.
    ///
    /// # Errors
    /// TLS can't be set up.
    pub fn new(roots: RootCertStore, limits: Limits) -> Result<Self, Error> {
        let setup = |error: &dyn std::error::Error| Error::Setup(chain(error));
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| setup(&error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let builder = || {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .connect_timeout(limits.connect)
                // Whoever redirects is neither of the two.
                .redirect(redirect::Policy::none())
                .user_agent(concat!("aks-flex-node/", env!("CARGO_PKG_VERSION")))
        };
        Ok(Self {
            near: builder().no_proxy().build().map_err(|error| setup(&error))?,
            far: builder().build().map_err(|error| setup(&error))?,
            metadata: Url::parse(METADATA).map_err(|error| setup(&error))?,
            limits,
        })
    }

    /// The same, with a metadata service that tests play.
    #[cfg(test)]
    pub(super) fn played(roots: RootCertStore, limits: Limits, metadata: Url) -> Self {
        let made = Self::new(roots, limits).unwrap();
        Self { metadata, ..made }
    }

    /// A token of `account` for `audience`.
    ///
    /// # Errors
    /// It was refused, or not to be had within the limits: with the last reason.
    pub async fn token(&self, account: &Account, audience: &Audience) -> Result<Token, Error> {
        let mut patience = Patience::new(&self.limits);
        loop {
            let begun = Instant::now();
            let failure = match self.once(account, audience, patience.of_one(&self.limits)).await {
                Ok(token) => return Ok(token),
                Err(failure) => failure,
            };
            if !failure.error.may_pass() {
                return Err(failure.error);
            }
            let Some(pause) = patience.next(begun.elapsed(), failure.wait, jitter::fraction()) else {
                return Err(failure.error);
            };
            debug!(error = %failure.error, ?pause, "no token yet");
            sleep(pause).await;
        }
    }

    async fn once(&self, account: &Account, audience: &Audience, limit: Duration) -> Result<Token, Failure> {
        let now = Timestamp::now();
        let request = match account {
            Account::Managed { client_id } => request::managed(&self.metadata, client_id.as_deref(), audience),
            Account::Principal(principal) => request::principal(principal, audience, now, &jitter::instance()),
        };
        let whom = request.whom;
        let away = |why: String| Failure {
            error: Error::Away {
                whom,
                why,
                remedy: match whom {
                    Whom::Metadata => {
                        "it is there on Azure virtual machines alone: elsewhere write azure.servicePrincipal \
                         or azure.bootstrapToken"
                    }
                    Whom::Entra => "look at the host's network, proxy and name resolution",
                },
            },
            wait: None,
        };
        let asked = timeout(limit, self.ask(request));
        let (status, retry_after, body) = match asked.await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(away(chain(&error.without_url()))),
            Err(_) => return Err(away(format!("not within {} s", limit.as_secs()))),
        };
        let answer = Answer {
            status,
            retry_after: retry_after.as_deref(),
            body: &body,
        };
        answer::token(whom, &answer, now)
    }

    async fn ask(&self, request: Request) -> Result<(u16, Option<String>, Vec<u8>), reqwest::Error> {
        let asked = match request.form {
            None => self.near.request(Method::GET, request.url).header("Metadata", "true"),
            Some(form) => self
                .far
                .request(Method::POST, request.url)
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.reveal().clone()),
        };
        let mut answer = asked.send().await?;
        let retry_after = answer.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > LONGEST {
                // No JSON that is cut short can be read.
                break;
            }
        }
        Ok((answer.status().as_u16(), retry_after, body))
    }
}
