//! An OCI layout in a folder, read. What is read into memory is held to its digest; layers are, when they are unpacked.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

use serde::Deserialize;

use crate::digest::Digest;
use crate::oci::{Config, Descriptor, Document, Index, Manifest, OciError, Platform};
use crate::reference::Select;
use crate::unpack::Layer;

/// Documents are small. Source: distribution-spec 1.1, "Pushing Manifests": registries take 4 MiB.
const LARGEST: u64 = 4 << 20;
/// The annotation that holds a tag. Source: OCI image-spec 1.1, annotations.md.
const NAME: &str = "org.opencontainers.image.ref.name";

/// Why there is no image in a folder.
#[derive(Debug, thiserror::Error)]
pub enum OnDiskError {
    /// A file of it.
    #[error("{file} of the OCI layout can't be read")]
    Read {
        /// Within the layout.
        file: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// It is no layout that is known.
    #[error("the folder holds no OCI layout of version 1")]
    NoLayout,
    /// Nothing in it is named so.
    #[error("the OCI layout has {count} images, and none by the name that is asked for")]
    NotNamed {
        /// How many there are.
        count: usize,
    },
    /// A file is not what its name says.
    #[error("{file} of the OCI layout has other bytes than its name says: copy the layout anew")]
    Digest {
        /// Within the layout.
        file: String,
    },
    /// What it names is no image for this platform.
    #[error(transparent)]
    Image(#[from] OciError),
}

/// An OCI layout in a folder.
#[derive(Clone, Debug)]
pub struct OnDisk {
    folder: PathBuf,
}

/// An image of a layout, for one platform.
#[derive(Clone, Debug)]
pub struct Found {
    /// What its name led to; of an index, the index.
    pub digest: Digest,
    /// Its layers, lowest first.
    pub layers: Vec<Layer>,
}

impl OnDisk {
    /// Opens the layout in a folder.
    ///
    /// # Errors
    /// It holds none.
    pub fn open(folder: &Path) -> Result<Self, OnDiskError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Mark {
            image_layout_version: String,
        }
        let layout = Self {
            folder: folder.to_owned(),
        };
        let mark: Option<Mark> = serde_json::from_slice(&layout.small("oci-layout")?).ok();
        match mark.is_some_and(|mark| mark.image_layout_version.starts_with("1.")) {
            true => Ok(layout),
            false => Err(OnDiskError::NoLayout),
        }
    }

    /// The image of that name; without one, the only image there is.
    ///
    /// # Errors
    /// There is none, it is of another platform, or a file of it is damaged or missing. Layers are found, not read.
    pub fn find(&self, select: Option<&Select>, platform: &Platform) -> Result<Found, OnDiskError> {
        let index: Index = serde_json::from_slice(&self.small("index.json")?)
            .map_err(|_| OciError::NotAnImage("its index.json is malformed"))?;
        let is_meant = |entry: &&Descriptor| match select {
            None => true,
            Some(Select::Digest(digest)) => entry.digest == *digest,
            Some(Select::Tag(tag)) => entry.annotations.get(NAME).is_some_and(|name| **name == **tag),
        };
        let mut meant = index.manifests.iter().filter(is_meant);
        let found = meant.next();
        let (Some(found), true) = (found, select.is_some() || meant.next().is_none()) else {
            let count = index.manifests.len();
            return Err(OnDiskError::NotNamed { count });
        };
        let digest = found.digest.clone();
        let manifest = match Document::parse(&self.document(&digest)?)? {
            Document::Manifest(manifest) => manifest,
            Document::Index(index) => self.manifest(&index.choose(platform)?.digest)?,
        };
        manifest.check()?;
        let config = Config::parse(&self.document(&manifest.config.digest)?)?;
        config.check(&manifest, platform)?;
        let layers = manifest.layers.iter().zip(config.rootfs.diff_ids);
        let layers = layers.map(|(layer, diff_id)| Layer {
            digest: layer.digest.clone(),
            size: layer.size,
            diff_id,
        });
        let layers: Vec<_> = layers.collect();
        for layer in &layers {
            self.blob(&layer.digest)?;
        }
        Ok(Found { digest, layers })
    }

    /// A blob, from its start.
    ///
    /// # Errors
    /// It is not there.
    pub fn blob(&self, digest: &Digest) -> Result<File, OnDiskError> {
        self.file(&blob(digest))
    }

    fn manifest(&self, digest: &Digest) -> Result<Manifest, OnDiskError> {
        match Document::parse(&self.document(digest)?)? {
            Document::Manifest(manifest) => Ok(manifest),
            Document::Index(_) => {
                Err(OciError::NotAnImage("an index stands where this platform's manifest should").into())
            }
        }
    }

    fn document(&self, digest: &Digest) -> Result<Vec<u8>, OnDiskError> {
        let file = blob(digest);
        let bytes = self.small(&file)?;
        match Digest::of(&bytes) == *digest {
            true => Ok(bytes),
            false => Err(OnDiskError::Digest { file }),
        }
    }

    fn small(&self, file: &str) -> Result<Vec<u8>, OnDiskError> {
        let mut bytes = Vec::new();
        let read = self.file(file)?.take(LARGEST).read_to_end(&mut bytes);
        let failed = |source| OnDiskError::Read {
            file: file.to_owned(),
            source,
        };
        read.map(|_| bytes).map_err(failed)
    }

    fn file(&self, file: &str) -> Result<File, OnDiskError> {
        let failed = |source| OnDiskError::Read {
            file: file.to_owned(),
            source,
        };
        File::open(self.folder.join(file)).map_err(failed)
    }
}

fn blob(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests: scratch files")]
mod tests {
    use std::fs;

    use super::*;
    use crate::layout::{self, Entry, Image, Layout};

    fn layout() -> (tempfile::TempDir, Digest) {
        let dir = tempfile::tempdir().unwrap();
        let image = |text: &str| {
            let file = Entry::bytes("usr/file", 0o644, text.as_bytes());
            Image {
                layers: vec![layout::Layer::Entries(vec![file])],
                ..Image::default()
            }
        };
        let mut layout = Layout::of(&image("one"), Some("r.example/a:v1")).unwrap();
        let second = layout.add(&image("two"), Some("r.example/a:v2")).unwrap();
        layout.write_folder(dir.path()).unwrap();
        (dir, second)
    }

    #[test]
    fn an_image_is_found_by_its_tag_and_its_digest() {
        let (dir, second) = layout();
        let layout = OnDisk::open(dir.path()).unwrap();
        let find = |select: Option<Select>| layout.find(select.as_ref(), &Platform::here());
        let v2 = find(Some(Select::Tag("v2".into()))).unwrap();
        assert_eq!((&v2.digest, v2.layers.len()), (&second, 1));
        assert_eq!(
            find(Some(Select::Digest(second))).unwrap().layers[0].digest,
            v2.layers[0].digest
        );
        for select in [None, Some(Select::Tag("v3".into()))] {
            assert!(matches!(find(select), Err(OnDiskError::NotNamed { count: 2 })));
        }
        let other = layout.find(Some(&Select::Tag("v1".into())), &Platform::linux("other"));
        assert!(matches!(other, Err(OnDiskError::Image(OciError::Platform { .. }))));
    }

    #[test]
    fn a_layout_that_is_damaged_is_told_from_one_that_is_none() {
        let (dir, second) = layout();
        let find = |dir: &Path| OnDisk::open(dir)?.find(Some(&Select::Tag("v2".into())), &Platform::here());
        let manifest = dir.path().join(blob(&second));
        let good = fs::read(&manifest).unwrap();
        fs::write(&manifest, [&good[..], b" "].concat()).unwrap();
        assert!(matches!(find(dir.path()), Err(OnDiskError::Digest { .. })));
        fs::remove_file(&manifest).unwrap();
        assert!(matches!(find(dir.path()), Err(OnDiskError::Read { .. })));
        fs::write(dir.path().join("oci-layout"), "{\"imageLayoutVersion\": \"2.0.0\"}").unwrap();
        assert!(matches!(find(dir.path()), Err(OnDiskError::NoLayout)));
        assert!(matches!(find(&dir.path().join("none")), Err(OnDiskError::Read { .. })));
    }
}
