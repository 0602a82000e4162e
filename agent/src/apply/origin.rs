//! Bytes from wherever a plan has them from, proved before anything is made of them.

use std::{
    fs::File,
    io::{self, Read as _, Seek as _},
};

use hostexec::{Host, HostPath};
use image::Digest;

use super::{Context, Error, file};
use crate::{
    containerd::{self, Limits, PullError, Registries},
    fetch,
    step::{Origin, Proof},
    store::selection::hosts_dir,
};

/// The bytes in a file that is at its start, and their digest. One that was fetched has no name: it is gone when the agent is, whatever
/// ends it.
pub(super) async fn bytes(context: &Context, origin: &Origin) -> Result<(File, Digest), Error> {
    match origin {
        Origin::Url { url, proof } => {
            let mut spool = spool(&context.host).map_err(Error::File)?;
            let digest = match proof {
                Proof::Tls => context.fetcher.file(url, &mut spool).await?,
                Proof::Sha256At(proof) => context.fetcher.proved_file(url, proof, &mut spool).await?,
            };
            spool.rewind().map_err(Error::File)?;
            Ok((spool, digest))
        }
        Origin::File { path, proof } => {
            let (host, path, proof) = (context.host.clone(), path.clone(), proof.clone());
            file::blocking(move || Ok(of_host(&host, &path, proof.as_ref()))).await?
        }
        Origin::Blob { repository, blob } => {
            let mut spool = spool(&context.host).map_err(Error::File)?;
            let registries = hosts_dir(&context.host).map_err(Error::File)?;
            let registries = Registries::load(&context.host, registries.as_ref()).map_err(PullError::from);
            let registries = registries.map_err(Error::Bundle)?;
            containerd::blob(repository, blob, &registries, Limits::AGENT, &mut spool)
                .await
                .map_err(Error::Bundle)?;
            spool.rewind().map_err(Error::File)?;
            Ok((spool, blob.digest.clone()))
        }
    }
}

fn of_host(host: &Host, path: &HostPath, proof: Option<&HostPath>) -> Result<(File, Digest), Error> {
    let mut file = host.open(path).map_err(Error::File)?;
    let digest = file::hash(&mut file).map_err(Error::File)?;
    if let Some(proof) = proof {
        let wanted = checksum(host, proof)?;
        if digest.hex() != wanted {
            return Err(Error::Proof {
                path: path.to_string(),
                wanted,
                got: digest.hex().to_owned(),
            });
        }
    }
    file.rewind().map_err(Error::File)?;
    Ok((file, digest))
}

/// The digest that a checksum file of the host holds.
fn checksum(host: &Host, path: &HostPath) -> Result<String, Error> {
    let mut line = Vec::new();
    host.open(path)
        .and_then(|file| file.take(fetch::CHECKSUM_BYTES).read_to_end(&mut line))
        .map_err(Error::File)?;
    fetch::checksum(&line).ok_or_else(|| Error::NoProof { path: path.to_string() })
}

/// What an origin says its digest is, without taking the bytes; none where only the bytes themselves tell.
pub(super) fn promised(host: &Host, origin: &Origin) -> Result<Option<String>, Error> {
    match origin {
        Origin::Url { .. } | Origin::File { proof: None, .. } => Ok(None),
        Origin::File { proof: Some(proof), .. } => checksum(host, proof).map(Some),
        Origin::Blob { blob, .. } => Ok(Some(blob.digest.hex().to_owned())),
    }
}

/// A file without a name on the machines' disk.
fn spool(host: &Host) -> io::Result<File> {
    let dir = host.open_dir(&file::MACHINES)?;
    tempfile::tempfile_in(dir.path())
}
