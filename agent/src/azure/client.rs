//! Asks for tokens, and for what they are shown for, over the network: bounded, and again where that may help.

use std::time::Duration;

use jiff::Timestamp;
use reqwest::{Method, header, redirect};
use rustls::RootCertStore;
use tokio::time::{Instant, sleep, timeout};
use tracing::debug;
use url::Url;

use super::answer::{self, Answer, Failure};
use super::patience::Patience;
use super::request::{self, Body, METADATA, Request};
use super::{Account, Audience, BootstrapData, Error, Keys, Limits, Pool, Token, Whom, arc, manager, remedy};
use crate::cluster::jitter;
use crate::fetch;
use crate::model::chain;

/// The longest answer that is read. A token with many groups has some kilobytes.
const LONGEST: usize = 256 << 10;

/// Clients of the metadata service, of Entra ID and of the resource manager.
#[derive(Clone, Debug)]
pub struct Azure {
    /// It is on the host's own link: never by a proxy, which would get the token.
    near: reqwest::Client,
    far: reqwest::Client,
    metadata: Url,
    arc: Url,
    limits: Limits,
}

impl Azure {
    /// Clients that trust `roots`.
    ///
    /// # Errors
    /// TLS can't be set up.
    pub fn new(roots: RootCertStore, limits: Limits) -> Result<Self, Error> {
        let setup = |error: &dyn std::error::Error| Error::Setup(chain(error));
        let tls = fetch::trusting(roots).map_err(|error| setup(&error))?;
        let builder = || {
            reqwest::Client::builder()
                .tls_backend_preconfigured(tls.clone())
                .connect_timeout(limits.connect)
                // Whoever redirects is none of them.
                .redirect(redirect::Policy::none())
                .user_agent(concat!("aks-flex-node/", env!("CARGO_PKG_VERSION")))
        };
        Ok(Self {
            near: builder().no_proxy().build().map_err(|error| setup(&error))?,
            far: builder().build().map_err(|error| setup(&error))?,
            metadata: Url::parse(METADATA).map_err(|error| setup(&error))?,
            arc: Url::parse(arc::ARC).map_err(|error| setup(&error))?,
            limits,
        })
    }

    /// The same, with services of the host that tests play.
    #[cfg(test)]
    pub(super) fn played(roots: RootCertStore, limits: Limits, metadata: Url) -> Self {
        let made = Self::new(roots, limits).unwrap();
        Self {
            arc: metadata.clone(),
            metadata,
            ..made
        }
    }

    /// A token of `account` for `audience`.
    ///
    /// # Errors
    /// It was refused, or not to be had within the limits: with the last reason.
    pub async fn token(&self, account: &Account, audience: &Audience) -> Result<Token, Error> {
        self.again(async |limit| self.token_once(account, audience, limit).await)
            .await
    }

    /// The bootstrap data of a pool, by a token of `account`.
    ///
    /// # Errors
    /// As [`Azure::token`], by either of the two.
    pub async fn bootstrap_data(&self, account: &Account, manager: &str, pool: &Pool) -> Result<BootstrapData, Error> {
        let url = pool.bootstrap_data_url(manager);
        let url = url.ok_or_else(|| Error::Setup("the resource manager has no address".into()))?;
        let token = self.token(account, &Audience::of(manager)).await?;
        self.again(async |limit| {
            let request = Request {
                whom: Whom::Manager,
                url: url.clone(),
                body: Body::Empty {
                    bearer: token.value().clone(),
                },
            };
            manager::bootstrap_data(&self.asked(request, limit).await?.answer())
        })
        .await
    }

    /// Tries until it is had, refused for good, or the time is over.
    async fn again<T>(&self, once: impl AsyncFn(Duration) -> Result<T, Failure>) -> Result<T, Error> {
        let mut patience = Patience::new(&self.limits);
        loop {
            let begun = Instant::now();
            let failure = match once(patience.of_one(&self.limits)).await {
                Ok(had) => return Ok(had),
                Err(failure) => failure,
            };
            if !failure.error.may_pass() {
                return Err(failure.error);
            }
            let Some(pause) = patience.next(begun.elapsed(), failure.wait, jitter::fraction()) else {
                return Err(failure.error);
            };
            debug!(error = %failure.error, ?pause, "Azure is asked again");
            sleep(pause).await;
        }
    }

    async fn token_once(&self, account: &Account, audience: &Audience, limit: Duration) -> Result<Token, Failure> {
        let now = Timestamp::now();
        let request = match account {
            Account::Managed { client_id } => request::managed(&self.metadata, client_id.as_deref(), audience),
            Account::Principal(principal) => request::principal(principal, audience, now, &jitter::instance()),
            Account::Arc(keys) => self.challenged(keys, audience, limit).await?,
        };
        let whom = request.whom;
        answer::token(whom, &self.asked(request, limit).await?.answer(), now)
    }

    /// The request with the answer to the challenge that Azure Arc gives to the one without.
    async fn challenged(&self, keys: &Keys, audience: &Audience, limit: Duration) -> Result<Request, Failure> {
        let came = self.asked(request::arc(&self.arc, audience, None), limit).await?;
        if came.status != 401 {
            // What it says for another reason, it says again to the one that counts.
            return Ok(request::arc(&self.arc, audience, None));
        }
        let path = came.challenge.as_deref().and_then(arc::challenge);
        let path =
            path.ok_or_else(|| answer::stranger(Whom::Arc, "its challenge names no file of its folder".into()))?;
        let answer = keys.read(&path).map_err(|source| Failure {
            error: Error::Key(source),
            wait: None,
        })?;
        Ok(request::arc(&self.arc, audience, Some(answer)))
    }

    async fn asked(&self, request: Request, limit: Duration) -> Result<Came, Failure> {
        let whom = request.whom;
        let away = |why| Failure {
            error: Error::Away {
                whom,
                why,
                remedy: match whom {
                    Whom::Metadata => {
                        "it is there on Azure virtual machines alone: elsewhere write azure.servicePrincipal \
                         or azure.bootstrapToken"
                    }
                    Whom::Arc => remedy::ARC,
                    Whom::Entra | Whom::Manager => "look at the host's network, proxy and name resolution",
                },
            },
            wait: None,
        };
        match timeout(limit, self.ask(request)).await {
            Ok(Ok(came)) => Ok(came),
            Ok(Err(error)) => Err(away(chain(&error.without_url()))),
            Err(_) => Err(away(format!("not within {} s", limit.as_secs()))),
        }
    }

    async fn ask(&self, request: Request) -> Result<Came, reqwest::Error> {
        let asked = match request.body {
            Body::None => self.near.request(Method::GET, request.url).header("Metadata", "true"),
            Body::Answered(key) => self
                .near
                .request(Method::GET, request.url)
                .header("Metadata", "true")
                .header(header::AUTHORIZATION, format!("Basic {}", key.reveal())),
            Body::Form(form) => self
                .far
                .request(Method::POST, request.url)
                .header(header::CONTENT_TYPE, "application/x-www-form-urlencoded")
                .body(form.reveal().clone()),
            Body::Empty { bearer } => self
                .far
                .request(Method::POST, request.url)
                .bearer_auth(bearer.reveal())
                .header(header::CONTENT_TYPE, "application/json")
                .body("{}"),
        };
        let mut answer = asked.send().await?;
        let retry_after = answer.headers().get(header::RETRY_AFTER);
        let retry_after = retry_after.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let challenge = answer.headers().get(header::WWW_AUTHENTICATE);
        let challenge = challenge.and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut body = Vec::new();
        while let Some(chunk) = answer.chunk().await? {
            body.extend_from_slice(&chunk);
            if body.len() > LONGEST {
                // No JSON that is cut short can be read.
                break;
            }
        }
        Ok(Came {
            status: answer.status().as_u16(),
            retry_after,
            challenge,
            body,
        })
    }
}

/// An answer, whole.
struct Came {
    status: u16,
    retry_after: Option<String>,
    /// What it wants first.
    challenge: Option<String>,
    body: Vec<u8>,
}

impl Came {
    fn answer(&self) -> Answer<'_> {
        Answer {
            status: self.status,
            retry_after: self.retry_after.as_deref(),
            body: &self.body,
        }
    }
}
