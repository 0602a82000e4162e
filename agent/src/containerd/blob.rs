//! A blob from a registry: a download that breaks goes on where it stopped, and no byte more than was named is taken.
//!
//! The client of documents can't be told which redirects to follow. Blobs are where registries redirect to, so they have
//! a client of their own.

use std::io;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use image::Select;
use image::oci::Descriptor;
use oci_client::RegistryOperation;
use oci_client::errors::OciDistributionError;
use oci_client::secrets::RegistryAuth;
use prost::bytes::Bytes;
use reqwest::header::RANGE;
use reqwest::redirect::Policy;
use reqwest::{Certificate, StatusCode};

use super::error::{PullError, Turn, Why, why};
use super::registries::{Endpoint, Resolve, Scheme, Verify};
use super::registry::{AGENT, CONNECT, Limits, PAUSE, Place, Session, TRIES, again};

/// How many redirects are followed. Source: reqwest, redirect.rs, its own default.
const REDIRECTS: usize = 10;

type Body = BoxStream<'static, io::Result<Bytes>>;

/// The client for blobs of one place.
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

/// A blob on its way.
pub(super) struct BlobReader<'a> {
    session: &'a Session,
    descriptor: Descriptor,
    offset: u64,
    step: &'static str,
    stream: Option<(usize, Body)>,
    /// In a row, without a byte between them.
    failures: u32,
}

impl<'a> BlobReader<'a> {
    pub(super) fn new(session: &'a Session, descriptor: &Descriptor, offset: u64, step: &'static str) -> Self {
        Self {
            session,
            descriptor: descriptor.clone(),
            offset,
            step,
            stream: None,
            failures: 0,
        }
    }

    /// The next bytes; `None` when all named bytes came. Breaks are mended here.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, PullError> {
        loop {
            if self.offset == self.descriptor.size {
                return Ok(None);
            }
            let Some((at, stream)) = &mut self.stream else {
                self.stream = Some(self.open().await?);
                continue;
            };
            let why = match stream.next().await {
                Some(Ok(bytes)) if bytes.is_empty() => continue,
                Some(Ok(bytes)) => {
                    let offset = self.offset + bytes.len() as u64;
                    if offset > self.descriptor.size {
                        let place = &self.session.places[*at];
                        return Err(Session::failed(
                            place,
                            self.step,
                            Why::Nonsense("more bytes than were named"),
                        ));
                    }
                    self.offset = offset;
                    self.failures = 0;
                    return Ok(Some(bytes));
                }
                Some(Err(error)) => why(OciDistributionError::IoError(error)),
                None => Why::Transport("it ended before all bytes had come".to_owned()),
            };
            self.failures += 1;
            let error = Session::failed(&self.session.places[*at], self.step, why);
            if self.failures >= TRIES {
                return Err(error);
            }
            tracing::debug!(%error, at = self.offset, "a download broke and goes on");
            tokio::time::sleep(PAUSE * self.failures).await;
            self.stream = None;
        }
    }

    async fn open(&self) -> Result<(usize, Body), PullError> {
        let mut last = None;
        for (at, place) in self.session.places(Resolve::DigestsOnly) {
            match again(|| self.ask(place)).await.flatten() {
                Ok(body) => return Ok((at, body)),
                Err(why) => {
                    let error = Session::failed(place, self.step, why);
                    self.session.leave(at, &error);
                    last = Some(error);
                }
            }
        }
        Err(last.unwrap_or_else(|| self.session.nobody(self.step)))
    }

    /// The body from where we stand; within, what the registry said that no second try mends.
    async fn ask(&self, place: &Place) -> Result<Result<Body, Why>, OciDistributionError> {
        let select = Select::Digest(self.descriptor.digest.clone());
        let reference = self.session.reference(place, &select);
        let auth = place.endpoint.auth.reveal();
        let token = place.client.auth(&reference, auth, RegistryOperation::Pull).await?;
        let scheme = match place.endpoint.scheme {
            Scheme::Http => "http",
            Scheme::Https => "https",
        };
        let (registry, path) = (reference.resolve_registry(), reference.repository());
        let url = format!("{scheme}://{registry}/v2/{path}/blobs/{}", self.descriptor.digest);
        let mut request = place.blobs.get(url).header(RANGE, format!("bytes={}-", self.offset));
        if let Some(namespace) = reference.namespace() {
            request = request.query(&[("ns", namespace)]);
        }
        request = match (token, auth) {
            (Some(token), _) => request.bearer_auth(token),
            (None, RegistryAuth::Basic(user, password)) => request.basic_auth(user, Some(password)),
            (None, RegistryAuth::Anonymous | RegistryAuth::Bearer(_)) => request,
        };
        let response = request.send().await?;
        let here = match response.status() {
            StatusCode::PARTIAL_CONTENT => self.offset,
            StatusCode::OK => 0,
            status => {
                return Err(OciDistributionError::ServerError {
                    code: status.as_u16(),
                    url: String::new(),
                    message: String::new(),
                });
            }
        };
        let wanted = self.descriptor.size - here;
        if response.content_length().is_some_and(|length| length != wanted) {
            return Ok(Err(Why::Nonsense("its length is not the one that was named")));
        }
        let stream = response.bytes_stream().map_err(io::Error::other).boxed();
        Ok(Ok(skip(stream, self.offset - here)))
    }
}

/// Leaves out the bytes that are here already, of a registry that knows no ranges.
fn skip(stream: Body, mut rest: u64) -> Body {
    let cut = move |bytes: io::Result<Bytes>| {
        bytes.map(|bytes| {
            let cut = rest.min(bytes.len() as u64);
            rest -= cut;
            bytes.slice(usize::try_from(cut).unwrap_or(bytes.len())..)
        })
    };
    stream.map(cut).boxed()
}
