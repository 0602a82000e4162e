//! The edge to bundles: one is opened, and nothing of it is taken, but that an archive is unpacked first.

mod archive;

use std::{
    collections::BTreeMap,
    io::{self, Read as _},
};

use hostexec::{Host, HostPath};

use crate::{
    config::OfflineSource,
    containerd::{Artifact, Limits, PullError, Registries, artifact, blob},
    fetch,
    model::Arch,
    offline::{Bundle, Manifest, Wrong, files, path},
    step::Origin,
    store::selection::hosts_dir,
};

/// A description is short.
const MANIFEST_BYTES: u64 = 1 << 20;

pub use archive::is_unpacked;

/// What a bundle is opened for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To be taken from: what is packed is unpacked.
    Use,
    /// To be looked at: nothing is written, and files of an archive are named where they would be.
    Look,
}

/// Why a bundle can't be used. Its content can be put right without another configuration, so all of it may pass.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its folder, or a file of it.
    #[error("{file} of the bundle of offline artifacts can't be read")]
    Read {
        /// Within the bundle.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The registry, or what it has under that name.
    #[error("the bundle of offline artifacts can't be had from its registry")]
    Pull(#[from] PullError),
    /// The hosts directory of registries.
    #[error("the settings of registries can't be read")]
    Registries(#[source] io::Error),
    /// Its server.
    #[error("the bundle of offline artifacts can't be had from its server")]
    Fetch(#[from] fetch::Error),
    /// Another archive than was named.
    #[error(
        "the archive of offline artifacts has the SHA-256 {got}: write that into bootstrap.offlineArtifacts.sha256 if it is the right one"
    )]
    Digest {
        /// As it is, in hex.
        got: String,
    },
    /// The archive is larger than one may be.
    #[error("the archive of offline artifacts has more than {limit} bytes")]
    Large {
        /// In bytes.
        limit: u64,
    },
    /// What is in the archive.
    #[error("the archive of offline artifacts can't be used")]
    Archive(#[source] fetch::Refused),
    /// It could not be kept.
    #[error("the archive of offline artifacts can't be unpacked")]
    Keep(#[source] io::Error),
    /// Its description.
    #[error("the bundle of offline artifacts can't be used")]
    Manifest(#[from] Wrong),
    /// Files that it should have.
    #[error("the bundle of offline artifacts lacks {}: make it anew, for this architecture and with all that its manifest.json names", .0.join(", "))]
    Missing(Vec<String>),
}

/// Opens a bundle and finds every file in it.
///
/// # Errors
/// It can't be read, or is not whole. Nothing is left behind.
pub async fn open(
    host: &Host,
    source: &OfflineSource,
    arch: Arch,
    limits: Limits,
    purpose: Purpose,
) -> Result<Bundle, Error> {
    match source {
        OfflineSource::Archive(wanted) => archive::open(host, wanted, arch, purpose, archive::BOUNDS).await,
        OfflineSource::Folder(folder) => in_folder(host, folder, arch),
        OfflineSource::Registry(reference) => {
            let registries = hosts_dir(host).map_err(Error::Registries)?;
            let registries = Registries::load(host, registries.as_ref()).map_err(PullError::from)?;
            let artifact = artifact(reference, &registries, limits).await?;
            let manifest = artifact.files.get(path::MANIFEST);
            let manifest = manifest.ok_or_else(|| Error::Missing(vec![path::MANIFEST.to_owned()]))?;
            if manifest.size > MANIFEST_BYTES {
                return Err(Wrong::Long.into());
            }
            let mut bytes = Vec::new();
            blob(&artifact.repository, manifest, &registries, limits, &mut bytes).await?;
            in_registry(artifact, &bytes, arch)
        }
    }
}

fn in_folder(host: &Host, folder: &HostPath, arch: Arch) -> Result<Bundle, Error> {
    let read = |file: &str, source| Error::Read {
        file: file.to_owned(),
        source,
    };
    let at = |path: &str| folder.join(path).expect("a bundle's paths are plain");
    let mut bytes = Vec::new();
    host.open(&at(path::MANIFEST))
        .and_then(|file| file.take(MANIFEST_BYTES + 1).read_to_end(&mut bytes))
        .map_err(|source| read(path::MANIFEST, source))?;
    if bytes.len() as u64 > MANIFEST_BYTES {
        return Err(Wrong::Long.into());
    }
    let manifest = Manifest::parse(&bytes)?;
    let (mut found, mut missing) = (BTreeMap::new(), Vec::new());
    for (path, proved) in files(&manifest, arch) {
        let sum = proved.then(|| path::checksum(&path));
        let mut whole = true;
        for file in [Some(&path), sum.as_ref()].into_iter().flatten() {
            let is_file = match host.metadata(&at(file)) {
                Ok(found) => found.is_file(),
                Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => false,
                Err(source) => return Err(read(file, source)),
            };
            if !is_file {
                missing.push(file.clone());
                whole = false;
            }
        }
        if whole {
            let proof = sum.as_deref().map(at);
            found.insert(path.clone(), Origin::File { path: at(&path), proof });
        }
    }
    Bundle::of(manifest, arch, found).map_err(|_| Error::Missing(missing))
}

fn in_registry(artifact: Artifact, manifest: &[u8], arch: Arch) -> Result<Bundle, Error> {
    let repository = artifact.repository;
    let blobs = artifact.files.into_iter().map(|(path, blob)| {
        let origin = Origin::Blob {
            repository: repository.clone(),
            blob: Box::new(blob),
        };
        (path, origin)
    });
    Bundle::of(Manifest::parse(manifest)?, arch, blobs.collect()).map_err(Error::Missing)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const MANIFEST: &str = r#"{"versions": {"kubernetes": "1.34.0", "containerd": "2", "runc": "1", "cni": "1", "crictl": "1"}, "containerImages": ["a/b:1"]}"#;

    #[tokio::test]
    async fn na_r18_a_folder_of_the_host_is_a_bundle_when_it_has_every_file() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        let source = OfflineSource::Folder(HostPath::fixed("/opt/bundle"));
        let opened = async || open(&host, &source, Arch::Amd64, Limits::AGENT, Purpose::Use).await;
        let error = opened().await.unwrap_err();
        assert!(
            matches!(&error, Error::Read { file, .. } if file == "manifest.json"),
            "{error}"
        );

        let bundle = dir.path().join("opt/bundle");
        fs::create_dir_all(&bundle).unwrap();
        host.write(
            &HostPath::fixed("/opt/bundle/manifest.json"),
            MANIFEST.as_bytes(),
            0o644,
        )
        .unwrap();
        let Error::Missing(missing) = opened().await.unwrap_err() else {
            panic!("it is whole")
        };
        for file in &missing {
            fs::create_dir_all(bundle.join(file).parent().unwrap()).unwrap();
            let file = HostPath::fixed("/opt/bundle").join(file).unwrap();
            host.write(&file, b"x", 0o644).unwrap();
        }
        assert_eq!(missing.len(), 3 * 2 + 4 + 2, "{missing:?}");
        let opened_bundle = opened().await.unwrap();
        assert_eq!(
            opened_bundle.origin("runc/v1/runc.amd64"),
            Origin::File {
                path: HostPath::fixed("/opt/bundle/runc/v1/runc.amd64"),
                proof: None
            }
        );
        // A folder where a file should be.
        fs::remove_file(bundle.join("runc/v1/runc.amd64")).unwrap();
        fs::create_dir(bundle.join("runc/v1/runc.amd64")).unwrap();
        let error = opened().await.unwrap_err();
        assert!(
            matches!(&error, Error::Missing(missing) if *missing == ["runc/v1/runc.amd64"]),
            "{error}"
        );
    }
}
