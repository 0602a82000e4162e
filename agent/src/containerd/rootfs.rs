//! A whole image unpacked into a folder, straight from its registry: the machine's operating system.
//!
//! ```text
//! registry ──bytes──▶ channel ──▶ image::unpack (its own thread) ──▶ folder ──▶ disk
//! ```

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use image::oci::Platform;
use image::{Digest, Reference, unpack};
use prost::bytes::Bytes;
use tokio::sync::mpsc;

use super::blob::BlobReader;
use super::error::PullError;
use super::registries::Registries;
use super::registry::{Described, Limits, Session};

/// Pieces of a layer that may wait to be unpacked.
const WAITING: usize = 32;

/// What was unpacked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unpacked {
    /// What the name led to; of an index, the index.
    pub digest: Digest,
}

/// Unpacks the image `reference` (a tag, a digest, or `latest`) into the folder `into`, and syncs it.
///
/// # Errors
/// The folder holds part of the image then.
pub async fn unpack_image(
    reference: &str,
    registries: &Registries,
    limits: Limits,
    into: &Path,
) -> Result<Unpacked, PullError> {
    let reference: Reference = reference.parse()?;
    let session = Session::open(registries, &reference.repository, limits)?;
    let deadline = tokio::time::Instant::now() + limits.overall;
    let late = |_| PullError::Overall {
        registry: session.registry().to_owned(),
        limit: limits.overall,
        last: None,
    };
    let platform = Platform::here();
    let describing = session.describe(&reference.select, &platform);
    let image: Described = tokio::time::timeout_at(deadline, describing).await.map_err(late)??;
    for (descriptor, diff_id) in image.layers.iter().zip(&image.diff_ids) {
        let layer = unpack::Layer {
            digest: descriptor.digest.clone(),
            size: descriptor.size,
            diff_id: diff_id.clone(),
        };
        tracing::info!(layer = %layer.digest, bytes = layer.size, "unpacking a layer");
        let (send, receive) = mpsc::channel(WAITING);
        let folder = into.to_owned();
        // Its thread ends with the channel, also when this future is dropped.
        let unpacking = tokio::task::spawn_blocking(move || {
            unpack::apply(
                &folder,
                Channel {
                    receive,
                    rest: Bytes::new(),
                    ended: false,
                },
                &layer,
            )
        });
        let feeding = feed(session.blob(descriptor, 0, "get a layer"), send);
        let fed = tokio::time::timeout_at(deadline, feeding).await.map_err(late).flatten();
        let unpacked = unpacking
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        fed?;
        unpacked?;
    }
    let folder = into.to_owned();
    let synced = tokio::task::spawn_blocking(move || sync(&folder)).await;
    synced
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
        .map_err(|source| unpack::UnpackError::Folder {
            path: into.to_owned(),
            source,
        })?;
    Ok(Unpacked {
        digest: image.root().digest.clone(),
    })
}

/// Everything of the file system that `path` is on reaches the disk.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    Ok(nix::unistd::syncfs(File::open(path)?)?)
}

/// Asks the image's registry for what describes it, and for no layer.
///
/// # Errors
/// It can't be had, or is no image for this host.
pub async fn resolve_image(reference: &str, registries: &Registries, limits: Limits) -> Result<(), PullError> {
    let reference: Reference = reference.parse()?;
    let session = Session::open(registries, &reference.repository, limits)?;
    session.describe(&reference.select, &Platform::here()).await.map(drop)
}

enum Piece {
    Bytes(Bytes),
    End,
}

/// Hands a layer on. A receiver that is gone has its own reason, and tells it.
async fn feed(mut blob: BlobReader<'_>, send: mpsc::Sender<Piece>) -> Result<(), PullError> {
    while let Some(bytes) = blob.next().await? {
        if send.send(Piece::Bytes(bytes)).await.is_err() {
            return Ok(());
        }
    }
    let _ = send.send(Piece::End).await;
    Ok(())
}

/// The unpacker's end of the channel. One that closes without an end was cut off.
struct Channel {
    receive: mpsc::Receiver<Piece>,
    rest: Bytes,
    ended: bool,
}

impl Read for Channel {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.rest.is_empty() && !self.ended {
            match self.receive.blocking_recv() {
                Some(Piece::Bytes(bytes)) => self.rest = bytes,
                Some(Piece::End) => self.ended = true,
                None => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the download was cut off")),
            }
        }
        let length = self.rest.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.rest.split_to(length));
        Ok(length)
    }
}
