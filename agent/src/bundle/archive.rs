//! Bundles in archives: proved by their digest, and then unpacked into a folder of that name.
//!
//! ```text
//! host │ https ─▶ all its bytes, digest ─▶ gzip │ zstd ─▶ tar: plain files ─▶ /var/lib/unbounded/offline-artifacts/DIGEST
//! ```
//!
//! Beside the folder a mark is written last: a folder without is what was cut short, and begun anew. What is refused leaves neither.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::time::Duration;

use hostexec::{Host, HostPath};
use image::Digest;
use sha2::{Digest as _, Sha256};

use super::{Error, MANIFEST_BYTES, Purpose, in_folder};
use crate::config::{At, OfflineArchive};
use crate::fetch::{self, Fetcher, bounded_files};
use crate::model::Arch;
use crate::offline::{Bundle, Manifest, Wrong, files, path};
use crate::step::Origin;

/// Where archives are unpacked. Source: node-agent specification, 5.4.3.
const FOLDER: HostPath = HostPath::fixed("/var/lib/unbounded/offline-artifacts");

/// How large a bundle may be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Packed, in bytes.
    pub(super) packed: u64,
    /// Unpacked.
    pub(super) unpacked: fetch::Bounds,
}

/// Programs have some 500 MB, images of a cluster's own pods some GB.
pub(super) const BOUNDS: Bounds = Bounds {
    packed: 8 << 30,
    unpacked: fetch::Bounds {
        bytes: 16 << 30,
        members: 10_000,
    },
};

/// Whether an archive with that digest is unpacked on the host.
///
/// # Errors
/// The folder can't be looked at.
pub fn is_unpacked(host: &Host, wanted: &OfflineArchive) -> io::Result<bool> {
    Ok(host.exists(&mark(&wanted.digest))? && host.is_dir(&folder(&wanted.digest))?)
}

fn folder(digest: &Digest) -> HostPath {
    FOLDER.join(digest.hex()).expect("a digest is plain")
}

fn mark(digest: &Digest) -> HostPath {
    FOLDER
        .join(&format!("{}.whole", digest.hex()))
        .expect("a digest is plain")
}

/// Opens a bundle in an archive.
///
/// # Errors
/// It can't be had, is another, or can't be used; nothing of it is left then.
pub(super) async fn open(
    host: &Host,
    wanted: &OfflineArchive,
    arch: Arch,
    purpose: Purpose,
    bounds: Bounds,
) -> Result<Bundle, Error> {
    if is_unpacked(host, wanted).map_err(Error::Keep)? {
        return in_folder(host, &folder(&wanted.digest), arch);
    }
    let (file, got) = had(host, &wanted.at, bounds).await?;
    if got != wanted.digest {
        let got = got.hex().to_owned();
        return Err(Error::Digest { got });
    }
    let (host, digest) = (host.clone(), wanted.digest.clone());
    let opening = tokio::task::spawn_blocking(move || match purpose {
        Purpose::Look => look(file, &digest, arch, bounds),
        Purpose::Use => {
            let used = unpack(&host, file, &digest, bounds)
                .and_then(|()| in_folder(&host, &folder(&digest), arch))
                .and_then(|bundle| keep(&host, &digest).map(|()| bundle));
            if used.is_err() {
                clear(&host);
            }
            used
        }
    });
    opening
        .await
        .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
}

/// Its bytes in a file that is at its start, and their digest. What was fetched has no name: it is gone when the agent is.
async fn had(host: &Host, at: &At, bounds: Bounds) -> Result<(File, Digest), Error> {
    match at {
        At::Host(path) => {
            let (host, path) = (host.clone(), path.clone());
            let hashing = tokio::task::spawn_blocking(move || {
                let read = |source| Error::Read {
                    file: "the archive".to_owned(),
                    source,
                };
                let mut file = host.open(&path).map_err(read)?;
                if !file.metadata().map_err(read)?.is_file() {
                    return Err(read(io::ErrorKind::InvalidInput.into()));
                }
                let digest = hash(&mut file, bounds.packed).map_err(read)?;
                let digest = digest.ok_or(Error::Large { limit: bounds.packed })?;
                file.rewind().map_err(read)?;
                Ok((file, digest))
            });
            hashing
                .await
                .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
        }
        At::Url(url) => {
            let limits = fetch::Limits {
                total: Duration::from_secs(1800),
                bytes: bounds.packed,
                ..fetch::Limits::default()
            };
            let fetcher = Fetcher::new(fetch::roots(host), limits)?;
            let dir = host.open_dir(&HostPath::fixed("/var/lib")).map_err(Error::Keep)?;
            let mut spool = tempfile::tempfile_in(dir.path()).map_err(Error::Keep)?;
            let digest = fetcher.file(url, &mut spool).await?;
            spool.rewind().map_err(Error::Keep)?;
            Ok((spool, digest))
        }
    }
}

/// The digest of all there is; none where that is more than the limit.
fn hash(file: &mut File, limit: u64) -> io::Result<Option<Digest>> {
    let (mut hash, mut left) = (Sha256::new(), limit);
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(Some(Digest::from_hash(hash))),
            length => {
                let Some(rest) = left.checked_sub(length as u64) else {
                    return Ok(None);
                };
                left = rest;
                hash.update(&buffer[..length]);
            }
        }
    }
}

fn unpack(host: &Host, file: File, digest: &Digest, bounds: Bounds) -> Result<(), Error> {
    clear(host);
    let into = folder(digest);
    host.create_dir(&into, 0o700).map_err(Error::Keep)?;
    bounded_files(io::BufReader::new(file), bounds.unpacked, |name, content| {
        let path = into.join(name).map_err(io::Error::other)?;
        let mut new = host.replace(&path, 0o600)?;
        io::copy(content, new.file())?;
        new.commit()
    })
    .map_err(Error::Archive)
}

/// The folder counts from now on.
fn keep(host: &Host, digest: &Digest) -> Result<(), Error> {
    host.write(&mark(digest), b"", 0o600).map_err(Error::Keep)
}

/// Removes what others have left there: archives that were cut short, and those of before. One alone is ever needed.
fn clear(host: &Host) {
    let entries = host.list(&FOLDER).unwrap_or_default();
    // A mark must not outlive its folder.
    let (marks, folders): (Vec<String>, Vec<String>) = entries.into_iter().partition(|name| name.ends_with(".whole"));
    for name in marks.iter().chain(&folders) {
        let Ok(path) = FOLDER.join(name) else { continue };
        if let Err(error) = host.remove_tree(&path) {
            tracing::warn!(%path, %error, "an unpacked archive of offline artifacts can't be removed");
        }
    }
}

/// What it would come to, unpacked: read to its end, and nothing written.
fn look(file: File, digest: &Digest, arch: Arch, bounds: Bounds) -> Result<Bundle, Error> {
    let (mut names, mut manifest) = (BTreeSet::new(), None);
    bounded_files(io::BufReader::new(file), bounds.unpacked, |name, content| {
        if name == path::MANIFEST {
            let mut bytes = Vec::new();
            (&mut *content).take(MANIFEST_BYTES + 1).read_to_end(&mut bytes)?;
            manifest = Some(bytes);
        }
        io::copy(content, &mut io::sink())?;
        names.insert(name.to_owned());
        Ok(())
    })
    .map_err(Error::Archive)?;
    let manifest = manifest.ok_or_else(|| Error::Missing(vec![path::MANIFEST.to_owned()]))?;
    if manifest.len() as u64 > MANIFEST_BYTES {
        return Err(Wrong::Long.into());
    }
    let manifest = Manifest::parse(&manifest)?;
    let into = folder(digest);
    let at = |path: &str| into.join(path).expect("a bundle's paths are plain");
    let named: Vec<(String, Option<String>)> = files(&manifest, arch)
        .into_iter()
        .map(|(path, proved)| {
            let sum = proved.then(|| path::checksum(&path));
            (path, sum)
        })
        .collect();
    let wanted = named
        .iter()
        .flat_map(|(path, sum)| [Some(path), sum.as_ref()])
        .flatten();
    let missing: Vec<String> = wanted.filter(|path| !names.contains(*path)).cloned().collect();
    if !missing.is_empty() {
        return Err(Error::Missing(missing));
    }
    let origins = named.into_iter().map(|(path, sum)| {
        let proof = sum.as_deref().map(at);
        let origin = Origin::File { path: at(&path), proof };
        (path, origin)
    });
    Bundle::of(manifest, arch, origins.collect()).map_err(Error::Missing)
}

#[cfg(test)]
mod tests;
