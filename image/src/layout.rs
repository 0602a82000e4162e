//! Images assembled from nothing: files, links and folders in, an OCI layout out, the same bytes for the same inputs.
//!
//! Entries are sorted, owned by root, of the year 1970; JSON keys are sorted; the gzip header holds neither time nor
//! system. The digest depends on nothing else but the versions of the compressors, which Cargo.lock holds.
//! Source: OCI image-spec 1.1, image-layout.md; `io.containerd.image.name`: containerd, images/annotations.go.

use std::collections::BTreeMap;
use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use flate2::GzBuilder;
use serde_json::{Value, json};

use crate::digest::Digest;
use crate::oci::{Descriptor, Platform, media};

const EPOCH: &str = "1970-01-01T00:00:00Z";

/// Why an image was not assembled.
#[derive(Debug, thiserror::Error)]
pub enum LayoutError {
    /// A path stands twice in one layer.
    #[error("{0} stands twice in a layer")]
    Twice(String),
    /// A path that is not below the root.
    #[error("{0} is not a plain path below the root")]
    Path(String),
    /// A file could not be read or written.
    #[error("{what}")]
    Io {
        /// What was tried, on what.
        what: String,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

fn fault(what: String) -> impl FnOnce(io::Error) -> LayoutError {
    move |source| LayoutError::Io { what, source }
}

/// One thing in a layer; its owner is root.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Where it lies in the image, with or without a slash before it. Folders above it come by themselves, with 0755.
    pub path: String,
    /// Its permissions; a link has none.
    pub mode: u32,
    /// What it is.
    pub content: Content,
}

/// What an entry is.
#[derive(Clone, Debug)]
pub enum Content {
    /// A folder.
    Folder,
    /// A file of these bytes.
    Bytes(Vec<u8>),
    /// A file with the bytes of this one.
    File(PathBuf),
    /// A symbolic link to this.
    Link(String),
}

impl Entry {
    /// A folder.
    pub fn folder(path: impl Into<String>, mode: u32) -> Self {
        Self {
            path: path.into(),
            mode,
            content: Content::Folder,
        }
    }

    /// A file of these bytes.
    pub fn bytes(path: impl Into<String>, mode: u32, bytes: impl Into<Vec<u8>>) -> Self {
        Self {
            path: path.into(),
            mode,
            content: Content::Bytes(bytes.into()),
        }
    }

    /// A file with the bytes of another.
    pub fn file(path: impl Into<String>, mode: u32, from: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            mode,
            content: Content::File(from.into()),
        }
    }

    /// A symbolic link.
    pub fn link(path: impl Into<String>, to: impl Into<String>) -> Self {
        Self {
            path: path.into(),
            mode: 0o777,
            content: Content::Link(to.into()),
        }
    }
}

/// Where a layer comes from.
#[derive(Clone, Debug)]
pub enum Layer {
    /// Made of these, in any order.
    Entries(Vec<Entry>),
    /// A tar archive taken as it is.
    Tar(Vec<u8>),
}

/// How layers are packed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// gzip at its best: every tool reads it.
    #[default]
    Gzip,
    /// zstd, a quarter smaller; containerd from 1.6 reads it.
    Zstd,
    /// None.
    Plain,
}

/// One image to be: the inputs that its digest depends on.
#[derive(Clone, Debug, Default)]
pub struct Image {
    /// Layers, lowest first.
    pub layers: Vec<Layer>,
    /// Processor, in Go's words; `None` is the one this program was built for.
    pub architecture: Option<String>,
    /// `NAME=value`.
    pub env: Vec<String>,
    /// The program and its first arguments.
    pub entrypoint: Vec<String>,
    /// Labels of the config.
    pub labels: BTreeMap<String, String>,
    /// Annotations of the manifest.
    pub annotations: BTreeMap<String, String>,
    /// How its layers are packed.
    pub compression: Compression,
}

/// An OCI layout in memory.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    blobs: BTreeMap<Digest, Vec<u8>>,
    roots: Vec<Descriptor>,
}

impl Layout {
    /// A layout of one image, under `name` if it has one.
    ///
    /// # Errors
    /// When a path is bad or a file can't be read.
    pub fn of(image: &Image, name: Option<&str>) -> Result<Self, LayoutError> {
        let mut layout = Self::default();
        layout.add(image, name)?;
        Ok(layout)
    }

    /// Adds an image and gives its manifest's digest. A name of the form `<repository>:<tag>` gives the tag too.
    ///
    /// # Errors
    /// When a path is bad or a file can't be read; nothing that counts was added then.
    pub fn add(&mut self, image: &Image, name: Option<&str>) -> Result<Digest, LayoutError> {
        let platform = image
            .architecture
            .as_deref()
            .map_or_else(Platform::here, Platform::linux);
        let mut layers = Vec::new();
        let mut diff_ids = Vec::new();
        for layer in &image.layers {
            let tar = match layer {
                Layer::Entries(entries) => pack(entries)?,
                Layer::Tar(tar) => tar.clone(),
            };
            diff_ids.push(Digest::of(&tar));
            let (media_type, bytes) = compress(&tar, image.compression).map_err(fault("pack a layer".into()))?;
            layers.push(self.blob(media_type, bytes));
        }
        let mut run = json!({ "Env": image.env, "Entrypoint": image.entrypoint, "Labels": image.labels });
        if let Some(run) = run.as_object_mut() {
            run.retain(|_, value| value.as_array().is_none_or(|a| !a.is_empty()));
            run.retain(|_, value| value.as_object().is_none_or(|o| !o.is_empty()));
        }
        let config = json!({
            "architecture": platform.architecture,
            "config": run,
            "created": EPOCH,
            "os": platform.os,
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = self.blob(media::CONFIG, sorted(config));
        let mut manifest = json!({
            "schemaVersion": 2, "mediaType": media::MANIFEST, "config": config, "layers": layers,
        });
        if !image.annotations.is_empty() {
            manifest["annotations"] = json!(image.annotations);
        }
        let mut root = self.blob(media::MANIFEST, sorted(manifest));
        root.platform = Some(platform);
        root.annotations = names(name);
        let digest = root.digest.clone();
        self.roots.push(root);
        Ok(digest)
    }

    /// Puts all that was added under one index, as an image of several platforms, and gives the index's digest.
    pub fn join(&mut self, name: Option<&str>) -> Digest {
        for root in &mut self.roots {
            root.annotations.clear();
        }
        let index = json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": self.roots });
        let mut root = self.blob(media::INDEX, sorted(index));
        root.annotations = names(name);
        let digest = root.digest.clone();
        self.roots = vec![root];
        digest
    }

    /// What the layout's own index names.
    #[must_use]
    pub fn roots(&self) -> &[Descriptor] {
        &self.roots
    }

    /// All blobs by digest.
    #[must_use]
    pub fn blobs(&self) -> &BTreeMap<Digest, Vec<u8>> {
        &self.blobs
    }

    /// Every file of the layout, by its path in it, in order.
    pub fn files(&self) -> impl Iterator<Item = (String, std::borrow::Cow<'_, [u8]>)> {
        let index = json!({ "schemaVersion": 2, "mediaType": media::INDEX, "manifests": self.roots });
        let blobs = self
            .blobs
            .iter()
            .map(|(digest, bytes)| (format!("blobs/sha256/{}", digest.hex()), bytes));
        blobs.map(|(path, bytes)| (path, bytes.as_slice().into())).chain([
            ("index.json".to_owned(), sorted(index).into()),
            (
                "oci-layout".to_owned(),
                sorted(json!({ "imageLayoutVersion": "1.0.0" })).into(),
            ),
        ])
    }

    /// Writes the layout as a folder; what is there already under the same names is replaced.
    ///
    /// # Errors
    /// When a file can't be written; the folder is not whole then.
    pub fn write_folder(&self, folder: &Path) -> Result<(), LayoutError> {
        let blobs = folder.join("blobs/sha256");
        std::fs::create_dir_all(&blobs).map_err(fault(format!("create {}", blobs.display())))?;
        for (path, bytes) in self.files() {
            let path = folder.join(path);
            let file = OpenOptions::new().write(true).create(true).truncate(true).open(&path);
            file.and_then(|mut file| file.write_all(&bytes))
                .map_err(fault(format!("write {}", path.display())))?;
        }
        Ok(())
    }

    /// Writes the layout as one tar archive, as `ctr images import` takes it.
    ///
    /// # Errors
    /// When `out` fails.
    pub fn write_archive(&self, out: impl Write) -> Result<(), LayoutError> {
        let mut tar = tar::Builder::new(out);
        let mut write = || -> io::Result<()> {
            for folder in ["blobs/", "blobs/sha256/"] {
                tar.append_data(&mut header(tar::EntryType::Directory, 0o755, 0), folder, io::empty())?;
            }
            for (path, bytes) in self.files() {
                let mut header = header(tar::EntryType::Regular, 0o644, bytes.len() as u64);
                tar.append_data(&mut header, path, bytes.as_ref())?;
            }
            tar.finish()
        };
        write().map_err(fault("write an image archive".into()))
    }

    fn blob(&mut self, media_type: &str, bytes: Vec<u8>) -> Descriptor {
        let descriptor = Descriptor {
            media_type: media_type.to_owned(),
            digest: Digest::of(&bytes),
            size: bytes.len() as u64,
            platform: None,
            annotations: BTreeMap::new(),
        };
        self.blobs.insert(descriptor.digest.clone(), bytes);
        descriptor
    }
}

/// What `ctr images import` names the image by, and the tag that skopeo and others look for.
fn names(name: Option<&str>) -> BTreeMap<String, String> {
    let mut names = BTreeMap::new();
    if let Some(name) = name {
        names.insert("io.containerd.image.name".to_owned(), name.to_owned());
        let last = name.rsplit('/').next().unwrap_or(name);
        if let Some((_, tag)) = last.split_once(':').filter(|_| !last.contains('@')) {
            names.insert("org.opencontainers.image.ref.name".to_owned(), tag.to_owned());
        }
    }
    names
}

fn sorted(mut value: Value) -> Vec<u8> {
    value.sort_all_objects();
    value.to_string().into_bytes()
}

/// The tar archive of a layer.
fn pack(entries: &[Entry]) -> Result<Vec<u8>, LayoutError> {
    let mut all: BTreeMap<String, (u32, &Content)> = BTreeMap::new();
    for entry in entries {
        let path = entry.path.trim_matches('/');
        if path.is_empty() || path.contains('\0') || path.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(LayoutError::Path(entry.path.clone()));
        }
        if all.insert(path.to_owned(), (entry.mode, &entry.content)).is_some() {
            return Err(LayoutError::Twice(entry.path.clone()));
        }
    }
    let paths: Vec<String> = all.keys().cloned().collect();
    for path in &paths {
        for (slash, _) in path.match_indices('/') {
            all.entry(path[..slash].to_owned()).or_insert((0o755, &Content::Folder));
        }
    }
    let mut tar = tar::Builder::new(Vec::new());
    for (path, (mode, content)) in &all {
        append(&mut tar, path, *mode, content).map_err(fault(format!("pack {path}")))?;
    }
    tar.into_inner().map_err(fault("pack a layer".into()))
}

fn append(tar: &mut tar::Builder<Vec<u8>>, path: &str, mode: u32, content: &Content) -> io::Result<()> {
    use tar::EntryType as T;
    match content {
        Content::Folder => tar.append_data(&mut header(T::Directory, mode, 0), format!("{path}/"), io::empty()),
        Content::Link(to) => {
            let mut header = header(T::Symlink, mode, 0);
            if header.set_link_name_literal(to).is_err() {
                // Too long for the header. `append_link` would take it for a path, and put `a//./b` as `a/b`.
                tar.append_pax_extensions([("linkpath", to.as_bytes())])?;
            }
            tar.append_data(&mut header, path, io::empty())
        }
        Content::Bytes(bytes) => tar.append_data(
            &mut header(T::Regular, mode, bytes.len() as u64),
            path,
            bytes.as_slice(),
        ),
        Content::File(from) => {
            let mut bytes = Vec::new();
            let read = std::fs::File::open(from).and_then(|mut file| file.read_to_end(&mut bytes));
            read.map_err(|error| io::Error::new(error.kind(), format!("{}: {error}", from.display())))?;
            tar.append_data(
                &mut header(T::Regular, mode, bytes.len() as u64),
                path,
                bytes.as_slice(),
            )
        }
    }
}

fn header(kind: tar::EntryType, mode: u32, size: u64) -> tar::Header {
    let mut header = tar::Header::new_ustar();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

fn compress(tar: &[u8], how: Compression) -> io::Result<(&'static str, Vec<u8>)> {
    Ok(match how {
        Compression::Plain => (media::LAYER_TAR, tar.to_vec()),
        Compression::Zstd => (media::LAYER_ZSTD, zstd::encode_all(tar, 19)?),
        Compression::Gzip => {
            let gzip = GzBuilder::new().mtime(0).operating_system(255);
            let mut gzip = gzip.write(Vec::new(), flate2::Compression::best());
            gzip.write_all(tar)?;
            (media::LAYER_GZIP, gzip.finish()?)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::oci::{Config, Document};

    fn image() -> Image {
        Image {
            layers: vec![Layer::Entries(vec![
                Entry::bytes("/usr/bin/aks-flex-node", 0o755, *b"program"),
                Entry::link("usr/libexec/host-exec/systemctl", "/usr/bin/host-exec"),
                Entry::folder("tmp", 0o1777),
            ])],
            architecture: Some("amd64".into()),
            env: vec!["PATH=/usr/bin".into()],
            entrypoint: vec!["/usr/bin/aks-flex-node".into()],
            labels: BTreeMap::from([("b".into(), "2".into()), ("a".into(), "1".into())]),
            ..Image::default()
        }
    }

    #[test]
    fn the_same_inputs_make_the_same_bytes_in_any_order() {
        let one = Layout::of(&image(), Some("h.io/r:v1")).unwrap();
        let mut turned = image();
        let Layer::Entries(entries) = &mut turned.layers[0] else {
            panic!("made of entries")
        };
        entries.reverse();
        let two = Layout::of(&turned, Some("h.io/r:v1")).unwrap();
        assert_eq!(one.files().collect::<Vec<_>>(), two.files().collect::<Vec<_>>());
        let (mut a, mut b) = (Vec::new(), Vec::new());
        one.write_archive(&mut a).unwrap();
        two.write_archive(&mut b).unwrap();
        assert_eq!(a, b);
    }

    #[test]
    fn a_changed_digest_is_a_change_of_every_image_and_must_be_meant() {
        // Plain layers: no compressor's version enters.
        let plain = Layout::of(
            &Image {
                compression: Compression::Plain,
                ..image()
            },
            None,
        )
        .unwrap();
        let want = "sha256:da556f05d7bc4d2e304c486291d058a80b6e349ca2ea0c8edb833b720b59aedd";
        assert_eq!(plain.roots()[0].digest.to_string(), want);
    }

    #[test]
    fn what_is_assembled_reads_back_as_an_image() {
        for compression in [Compression::Gzip, Compression::Zstd, Compression::Plain] {
            let layout = Layout::of(&Image { compression, ..image() }, Some("h.io/r:v1")).unwrap();
            let root = &layout.roots()[0];
            assert_eq!(root.annotations["io.containerd.image.name"], "h.io/r:v1");
            assert_eq!(root.annotations["org.opencontainers.image.ref.name"], "v1");
            let Document::Manifest(manifest) = Document::parse(&layout.blobs()[&root.digest]).unwrap() else {
                panic!("no manifest")
            };
            manifest.check().unwrap();
            let config = Config::parse(&layout.blobs()[&manifest.config.digest]).unwrap();
            config.check(&manifest, &Platform::linux("amd64")).unwrap();
            assert_eq!(config.config.unwrap().entrypoint.unwrap(), ["/usr/bin/aks-flex-node"]);
            for (digest, bytes) in layout.blobs() {
                assert_eq!(*digest, Digest::of(bytes));
            }
        }
    }

    #[test]
    fn a_name_by_digest_gives_no_tag() {
        let name = format!("h:5000/r@{}", Digest::of(b""));
        assert_eq!(names(Some(&name)).len(), 1);
        assert_eq!(names(Some("h:5000/r")).len(), 1);
        assert!(names(None).is_empty());
    }

    #[test]
    fn several_platforms_come_under_one_index() {
        let mut layout = Layout::of(&image(), None).unwrap();
        let arm = layout
            .add(
                &Image {
                    architecture: Some("arm64".into()),
                    ..image()
                },
                None,
            )
            .unwrap();
        let digest = layout.join(Some("h.io/r:v1"));
        let Document::Index(index) = Document::parse(&layout.blobs()[&digest]).unwrap() else {
            panic!("no index")
        };
        assert_eq!(index.choose(&Platform::linux("arm64")).unwrap().digest, arm);
        assert_eq!(layout.roots()[0].digest, digest);
    }

    #[test]
    fn paths_that_leave_the_root_or_stand_twice_are_refused() {
        for path in ["", "/", "a/../b", "..", "a//b", "./a"] {
            assert!(
                matches!(pack(&[Entry::folder(path, 0o755)]), Err(LayoutError::Path(_))),
                "{path}"
            );
        }
        let twice = [Entry::folder("a", 0o755), Entry::bytes("/a", 0o644, *b"")];
        assert!(matches!(pack(&twice), Err(LayoutError::Twice(_))));
        assert!(matches!(
            pack(&[Entry::file("a", 0o644, "/nonexistent")]),
            Err(LayoutError::Io { .. })
        ));
    }

    #[test]
    fn a_folder_holds_what_the_archive_holds() {
        let dir = tempfile::tempdir().unwrap();
        let layout = Layout::of(&image(), Some("h.io/r:v1")).unwrap();
        layout.write_folder(dir.path()).unwrap();
        let mut archive = Vec::new();
        layout.write_archive(&mut archive).unwrap();
        let mut files = 0;
        for entry in tar::Archive::new(archive.as_slice()).entries().unwrap() {
            let mut entry = entry.unwrap();
            if entry.header().entry_type().is_file() {
                let mut bytes = Vec::new();
                entry.read_to_end(&mut bytes).unwrap();
                assert_eq!(std::fs::read(dir.path().join(entry.path().unwrap())).unwrap(), bytes);
                files += 1;
            }
        }
        assert_eq!(files, 5);
    }
}
