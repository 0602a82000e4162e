//! A blob on its way into containerd's content store: asked first how far it got, written in order, committed by digest.

use std::time::Duration;

use containerd_client::services::v1::{AbortRequest, WriteAction, WriteContentRequest, WriteContentResponse};
use containerd_client::tonic::{Code, Status, Streaming};
use futures::stream;
use image::oci::Descriptor;
use tokio::sync::mpsc;

use super::link::{ContainerdError, Link, found, refused};

/// Before the names of our half-done blobs. The same blob has the same name in the next process, which goes on with it.
pub(super) const REF: &str = "aks-flex-node-pull-";
/// What is sent at once: containerd answers each piece.
const PIECE: usize = 1 << 20;
/// A writer whose process died holds its name for a moment longer.
const LOCKED: (u32, Duration) = (20, Duration::from_millis(250));

/// A blob being written.
pub(super) struct Writer {
    send: mpsc::Sender<WriteContentRequest>,
    answers: Streaming<WriteContentResponse>,
    template: WriteContentRequest,
    offset: u64,
    waiting: Vec<u8>,
}

/// What containerd made of a blob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Committed {
    /// It is what was named.
    Whole,
    /// Its size or digest is another one.
    Mismatch,
}

/// Writes a blob that is in memory; false if one of its name is there already.
pub(super) async fn whole(link: &Link, blob: &Descriptor, bytes: &[u8]) -> Result<bool, ContainerdError> {
    loop {
        let Some(mut writer) = Writer::open(link, blob).await? else {
            return Ok(false);
        };
        let start = writer.offset();
        let rest = usize::try_from(start).unwrap_or(bytes.len()).min(bytes.len());
        writer.write(&bytes[rest..]).await?;
        match writer.commit().await? {
            Committed::Whole => return Ok(true),
            Committed::Mismatch if start > 0 => abort(link, blob).await?,
            Committed::Mismatch => return Err(ContainerdError::wrong(STEP, "a document is not taken as what it is")),
        }
    }
}

/// Takes a half-done blob back.
pub(super) async fn abort(link: &Link, blob: &Descriptor) -> Result<(), ContainerdError> {
    let mut tries = 0;
    loop {
        let request = AbortRequest { r#ref: name(blob) };
        match found(link.client.content().abort(link.call(request)).await) {
            Ok(_) => return Ok(()),
            // Its writer was just let go.
            Err(_) if tries < LOCKED.0 => {
                tries += 1;
                tokio::time::sleep(LOCKED.1).await;
            }
            Err(status) => return Err(refused(STEP)(status)),
        }
    }
}

fn name(blob: &Descriptor) -> String {
    format!("{REF}{}", blob.digest.hex())
}

impl Writer {
    /// Begins, or goes on; `None` if the blob is there already.
    pub(super) async fn open(link: &Link, blob: &Descriptor) -> Result<Option<Self>, ContainerdError> {
        let mut tries = 0;
        loop {
            match Self::begin(link, blob).await {
                Ok(writer) => return Ok(Some(writer)),
                Err(status) if status.code() == Code::AlreadyExists => return Ok(None),
                Err(status) if status.code() == Code::Unavailable && tries < LOCKED.0 => {
                    tries += 1;
                    tokio::time::sleep(LOCKED.1).await;
                }
                Err(status) => return Err(refused(STEP)(status)),
            }
        }
    }

    async fn begin(link: &Link, blob: &Descriptor) -> Result<Self, Status> {
        let template = WriteContentRequest {
            r#ref: name(blob),
            total: i64::try_from(blob.size).unwrap_or(i64::MAX),
            expected: blob.digest.to_string(),
            ..WriteContentRequest::default()
        };
        let (send, receive) = mpsc::channel(1);
        // containerd answers nothing before the first message.
        let first = WriteContentRequest {
            action: WriteAction::Stat.into(),
            ..template.clone()
        };
        send.send(first)
            .await
            .map_err(|_| Status::internal("the stream is closed"))?;
        let requests = stream::unfold(receive, |mut receive| async {
            receive.recv().await.map(|item| (item, receive))
        });
        let mut answers = link.client.content().write(link.long(requests)).await?.into_inner();
        let answer = answers
            .message()
            .await?
            .ok_or_else(|| Status::internal("the stream ended"))?;
        let offset = u64::try_from(answer.offset).unwrap_or(0);
        Ok(Self {
            send,
            answers,
            template,
            offset,
            waiting: Vec::new(),
        })
    }

    /// How many bytes are there already.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) async fn write(&mut self, bytes: &[u8]) -> Result<(), ContainerdError> {
        for part in bytes.chunks(PIECE) {
            self.waiting.extend_from_slice(part);
            if self.waiting.len() >= PIECE {
                self.flush().await?;
            }
        }
        Ok(())
    }

    /// Commits; containerd holds the blob to its size and digest.
    pub(super) async fn commit(mut self) -> Result<Committed, ContainerdError> {
        self.flush().await?;
        match self.exchange(WriteAction::Commit, Vec::new()).await {
            Err(status) if status.code() == Code::AlreadyExists => Ok(Committed::Whole),
            Err(status) if status.code() == Code::FailedPrecondition => Ok(Committed::Mismatch),
            answer => answer.map(|_| Committed::Whole).map_err(refused(STEP)),
        }
    }

    async fn flush(&mut self) -> Result<(), ContainerdError> {
        if self.waiting.is_empty() {
            return Ok(());
        }
        let data = std::mem::take(&mut self.waiting);
        let next = self.offset + data.len() as u64;
        let answer = self.exchange(WriteAction::Write, data).await.map_err(refused(STEP))?;
        if u64::try_from(answer.offset) != Ok(next) {
            return Err(ContainerdError::wrong(STEP, "not all that was sent was taken"));
        }
        self.offset = next;
        Ok(())
    }

    async fn exchange(&mut self, action: WriteAction, data: Vec<u8>) -> Result<WriteContentResponse, Status> {
        let offset = i64::try_from(self.offset).unwrap_or(i64::MAX);
        let request = WriteContentRequest {
            action: action.into(),
            offset,
            data,
            ..self.template.clone()
        };
        // If the stream has ended, the answer says why.
        let _ = self.send.send(request).await;
        self.answers
            .message()
            .await?
            .ok_or_else(|| Status::internal("the stream ended"))
    }
}

const STEP: &str = "store content";
