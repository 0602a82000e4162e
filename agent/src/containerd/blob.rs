//! A blob from a registry: a download that breaks goes on where it stopped, and no byte more than was named is taken.

use std::io;

use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};
use image::Select;
use image::oci::Descriptor;
use oci_client::errors::OciDistributionError;
use prost::bytes::Bytes;
use reqwest::StatusCode;
use reqwest::header::RANGE;

use super::error::{PullError, Why, why};
use super::registries::Resolve;
use super::registry::{PAUSE, Place, Session, TRIES, again};

type Body = BoxStream<'static, io::Result<Bytes>>;

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
        let range = format!("bytes={}-", self.offset);
        let response = self.session.ask(place, "blobs", &select, (RANGE, &range)).await?;
        let here = match response.status() {
            StatusCode::PARTIAL_CONTENT => self.offset,
            StatusCode::OK => 0,
            _ => return Ok(Err(Why::Nonsense("it answered with a status that has no meaning here"))),
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
