//! Artifacts that are no images: files with names, as `oras push` makes them.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write as _;

use image::oci::{Document, OciError};
use image::{Digest, Reference};
use sha2::{Digest as _, Sha256};

use super::error::PullError;
use super::registries::Registries;
use super::registry::{Limits, Session};

/// The annotation that holds a file's name. Source: OCI image-spec 1.1, annotations.md.
const TITLE: &str = "org.opencontainers.image.title";

/// An artifact as its registry describes it.
#[derive(Clone, Debug)]
pub struct Artifact {
    /// Where its blobs are.
    pub repository: String,
    /// Its files, by name.
    pub files: BTreeMap<String, Piece>,
}

/// A file of an artifact.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Piece {
    /// Of its bytes.
    pub digest: Digest,
    /// Their number.
    pub size: u64,
}

/// Asks for what an artifact has, and for one file of it that fits in memory. The file's bytes are empty if it has none of that name.
///
/// # Errors
/// It can't be had, or the file is longer than `limit`.
pub async fn artifact(
    reference: &Reference,
    file: &str,
    limit: u64,
    registries: &Registries,
    limits: Limits,
) -> Result<(Artifact, Vec<u8>), PullError> {
    let session = Session::open(registries, &reference.repository, limits)?;
    within(&session, limits, async {
        let (_, bytes) = session.document(&reference.select).await?;
        let Document::Manifest(manifest) = Document::parse(&bytes)? else {
            return Err(OciError::NotAnImage("it is an index, and no artifact of files").into());
        };
        let named = manifest.layers.iter().filter_map(|layer| {
            let piece = Piece {
                digest: layer.digest.clone(),
                size: layer.size,
            };
            Some((layer.annotations.get(TITLE)?.clone(), piece))
        });
        let files: BTreeMap<String, Piece> = named.collect();
        let Some(wanted) = manifest
            .layers
            .iter()
            .find(|layer| layer.annotations.get(TITLE).is_some_and(|title| title == file))
        else {
            return Err(OciError::NotAnImage("it has no manifest.json among its files").into());
        };
        if wanted.size > limit {
            return Err(OciError::NotAnImage("its manifest.json is larger than one may be").into());
        }
        let artifact = Artifact {
            repository: reference.repository.to_string(),
            files,
        };
        Ok((artifact, session.small(wanted).await?))
    })
    .await
}

/// Puts a blob into a file, which is at its start.
///
/// # Errors
/// It can't be had whole, or is another. The file holds anything then.
pub async fn blob(
    repository: &str,
    digest: &Digest,
    size: u64,
    registries: &Registries,
    limits: Limits,
    into: &mut File,
) -> Result<(), PullError> {
    let reference: Reference = format!("{repository}@{digest}").parse()?;
    let session = Session::open(registries, &reference.repository, limits)?;
    within(&session, limits, async {
        let descriptor = image::oci::Descriptor {
            media_type: String::new(),
            digest: digest.clone(),
            size,
            platform: None,
            annotations: BTreeMap::new(),
        };
        let mut hash = Sha256::new();
        let mut coming = session.blob(&descriptor, 0, "get a file of the artifact");
        while let Some(bytes) = coming.next().await? {
            hash.update(&bytes);
            into.write_all(&bytes).map_err(PullError::Keep)?;
        }
        match Digest::from_hash(hash) {
            got if got == *digest => Ok(()),
            got => Err(PullError::Digest {
                registry: session.registry().to_owned(),
                wanted: digest.clone(),
                got,
            }),
        }
    })
    .await
}

async fn within<T>(
    session: &Session,
    limits: Limits,
    work: impl Future<Output = Result<T, PullError>>,
) -> Result<T, PullError> {
    tokio::time::timeout(limits.overall, work).await.unwrap_or_else(|_| {
        Err(PullError::Overall {
            registry: session.registry().to_owned(),
            limit: limits.overall,
            last: None,
        })
    })
}
