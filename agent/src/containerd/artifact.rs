//! Artifacts that are no images: files with names, as `oras push` makes them.

use std::collections::BTreeMap;
use std::io::Write;

use image::oci::{Descriptor, Document, OciError};
use image::{Digest, Reference, Repository};
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
    pub files: BTreeMap<String, Descriptor>,
}

/// Asks for what an artifact has.
///
/// # Errors
/// It can't be had, or is none.
pub async fn artifact(reference: &Reference, registries: &Registries, limits: Limits) -> Result<Artifact, PullError> {
    let session = Session::open(registries, &reference.repository, limits)?;
    within(&session, limits, async {
        let (_, bytes) = session.document(&reference.select).await?;
        let Document::Manifest(manifest) = Document::parse(&bytes)? else {
            return Err(OciError::NotAnImage("it is an index, and no artifact of files").into());
        };
        let named = manifest.layers.into_iter();
        let files = named.filter_map(|layer| Some((layer.annotations.get(TITLE)?.clone(), layer)));
        Ok(Artifact {
            repository: reference.repository.to_string(),
            files: files.collect(),
        })
    })
    .await
}

/// Writes a blob into `into`.
///
/// # Errors
/// It can't be had whole, or is another. Part of it, or another, was written then.
pub async fn blob(
    repository: &str,
    descriptor: &Descriptor,
    registries: &Registries,
    limits: Limits,
    into: &mut impl Write,
) -> Result<(), PullError> {
    let repository: Repository = repository.parse()?;
    let session = Session::open(registries, &repository, limits)?;
    within(&session, limits, async {
        let mut hash = Sha256::new();
        let mut coming = session.blob(descriptor, 0, "get a file of the artifact");
        while let Some(bytes) = coming.next().await? {
            hash.update(&bytes);
            into.write_all(&bytes).map_err(PullError::Keep)?;
        }
        match Digest::from_hash(hash) {
            got if got == descriptor.digest => Ok(()),
            got => Err(PullError::Digest {
                registry: session.registry().to_owned(),
                wanted: descriptor.digest.clone(),
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
