//! Layers applied to a folder, lowest first, checked while they stream.
//!
//! ```text
//! packed bytes ──▶ digest, size ──▶ gzip | zstd | plain ──▶ tar ──▶ tree
//!                                                     └───▶ diff id
//! ```
//!
//! Each of the three has a thread of its own. Memory: a few MB, however large the layer is.
//!
//! What a layer holds is not trusted: nothing is read or written outside the folder, whatever links it brings. Whether
//! the folder is a root file system is for the caller to judge. Source: OCI image-spec 1.1, layer.md.

mod plain;
mod sparse;
mod tree;

use std::collections::{BTreeMap, HashSet};
use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::panic::resume_unwind;
use std::path::{Component, Path, PathBuf};
use std::thread;

use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use sparse::Sparse;
use tree::{Meta, Node, Tree};

/// Before the name of what a layer takes away.
const WHITEOUT: &str = ".wh.";
/// In a folder of which a layer takes away all that lower layers had.
const OPAQUE: &str = ".wh..wh..opq";
/// Before names that aufs kept for itself.
const AUFS: &str = ".wh..wh.";

/// Why a layer was not applied. The folder holds part of it then.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// The folder itself.
    #[error("open {}", path.display())]
    Folder {
        /// The folder.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The stream broke, or is not what it says it is.
    #[error("read layer {layer}")]
    Read {
        /// The layer.
        layer: Digest,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// An entry could not be made.
    #[error("unpack {path} of layer {layer}")]
    Entry {
        /// The layer.
        layer: Digest,
        /// The entry's path.
        path: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The packed bytes are not those that were named.
    #[error("layer {layer} came as {got}")]
    Digest {
        /// The layer.
        layer: Digest,
        /// What came.
        got: Digest,
    },
    /// More or fewer bytes than were named.
    #[error("layer {layer} has not {want} bytes")]
    Size {
        /// The layer.
        layer: Digest,
        /// As named.
        want: u64,
    },
    /// The unpacked bytes are not those that the config names.
    #[error("layer {layer} unpacks to {got}, not to {want}")]
    DiffId {
        /// The layer.
        layer: Digest,
        /// As the config has it.
        want: Digest,
        /// What came.
        got: Digest,
    },
}

/// What a layer must turn out to be.
#[derive(Clone, Debug)]
pub struct Layer {
    /// Digest of the packed bytes.
    pub digest: Digest,
    /// Their number.
    pub size: u64,
    /// Digest of the tar archive in them.
    pub diff_id: Digest,
}

/// Applies one layer to the folder `into`, which holds the layers below it.
///
/// # Errors
/// When the stream breaks, is not the layer, or an entry can't be made; part of it may lie in the folder then.
pub fn apply(into: &Path, packed: impl Read + Send, layer: &Layer) -> Result<(), UnpackError> {
    let tree = Tree::open(into).map_err(|source| UnpackError::Folder {
        path: into.to_owned(),
        source,
    })?;
    let mut packed = Hashed::new(packed, layer.size);
    let unpacked = stream(&tree, &mut packed, layer);
    if let Err(UnpackError::Entry { .. } | UnpackError::Folder { .. }) = unpacked
        && !packed.over
    {
        return unpacked.map(drop);
    }
    // What is not the layer at all fails as a bad archive first: the digest is the truer reason.
    let rest = io::copy(&mut packed, &mut io::sink());
    if packed.over || (rest.is_ok() && packed.count != layer.size) {
        return Err(UnpackError::Size {
            layer: layer.digest.clone(),
            want: layer.size,
        });
    }
    rest.map_err(|source| UnpackError::Read {
        layer: layer.digest.clone(),
        source,
    })?;
    let arrived = Digest::from_hash(packed.hash);
    if arrived != layer.digest {
        return Err(UnpackError::Digest {
            layer: layer.digest.clone(),
            got: arrived,
        });
    }
    let got = unpacked?;
    if got != layer.diff_id {
        return Err(UnpackError::DiffId {
            layer: layer.digest.clone(),
            want: layer.diff_id.clone(),
            got,
        });
    }
    Ok(())
}

/// Unpacks the archive and gives the digest of what it was once plain.
fn stream<R: Read + Send>(tree: &Tree, packed: &mut Hashed<R>, layer: &Layer) -> Result<Digest, UnpackError> {
    let broken = |source| UnpackError::Read {
        layer: layer.digest.clone(),
        source,
    };
    thread::scope(|threads| {
        let (to_tree, mut plain) = plain::pipe();
        let (to_hash, hashed) = plain::pipe();
        threads.spawn(move || plain::feed(packed, &[to_tree, to_hash]));
        let hash = threads.spawn(move || hashed.digest());
        Pass {
            tree,
            layer,
            made: HashSet::new(),
            folders: Vec::new(),
            touched: BTreeMap::new(),
        }
        .entries(&mut plain)?;
        io::copy(&mut plain, &mut io::sink()).map_err(broken)?;
        Ok(hash.join().unwrap_or_else(|panic| resume_unwind(panic)))
    })
}

/// A reader that hashes and counts what passes, and stops past a limit.
struct Hashed<R> {
    inner: R,
    hash: Sha256,
    count: u64,
    limit: u64,
    over: bool,
}

impl<R> Hashed<R> {
    fn new(inner: R, limit: u64) -> Self {
        Self {
            inner,
            hash: Sha256::new(),
            count: 0,
            limit,
            over: false,
        }
    }
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.count += read as u64;
        if self.count > self.limit {
            self.over = true;
            return Err(io::Error::new(io::ErrorKind::InvalidData, "more bytes than were named"));
        }
        self.hash.update(&buffer[..read]);
        Ok(read)
    }
}

/// One layer on its way into the tree.
struct Pass<'a> {
    tree: &'a Tree,
    layer: &'a Layer,
    /// What this layer itself made: its whiteouts mean the layers below.
    made: HashSet<Node>,
    /// Folders of this layer: their times are set last, since filling them changes those.
    folders: Vec<(PathBuf, i64)>,
    /// Folders of lower layers in which this one changes something: their times stay, or no two unpackings would be alike.
    touched: BTreeMap<PathBuf, i64>,
}

impl Pass<'_> {
    fn entries(mut self, plain: impl Read) -> Result<(), UnpackError> {
        let broken = |source| UnpackError::Read {
            layer: self.layer.digest.clone(),
            source,
        };
        let mut archive = tar::Archive::new(plain);
        for entry in archive.entries().map_err(broken)? {
            let mut entry = entry.map_err(broken)?;
            let shown = String::from_utf8_lossy(&entry.path_bytes()).into_owned();
            let fault = |source| UnpackError::Entry {
                layer: self.layer.digest.clone(),
                path: shown,
                source,
            };
            let meta = meta(&mut entry).map_err(fault.clone())?;
            let named = meta.sparse.as_ref().and_then(|sparse| sparse.name.clone());
            let named = named.map_or_else(|| entry.path_bytes(), Into::into);
            let path = plain_path(&named).map_err(fault.clone())?;
            self.entry(&path, &meta, &mut entry).map_err(fault)?;
        }
        // Those that the layer itself names, as it has them.
        for (path, time) in self
            .touched
            .iter()
            .chain(self.folders.iter().rev().map(|(path, time)| (path, time)))
        {
            // A later entry of the layer may have replaced it.
            if let Ok(folder) = self.tree.folder(path) {
                let fault = |source| self.fault(path, source);
                tree::set_time(&folder, *time).map_err(fault)?;
            }
        }
        Ok(())
    }

    fn fault(&self, path: &Path, source: io::Error) -> UnpackError {
        UnpackError::Entry {
            layer: self.layer.digest.clone(),
            path: path.display().to_string(),
            source,
        }
    }

    fn entry<R: Read>(&mut self, path: &Path, meta: &Meta, entry: &mut tar::Entry<'_, R>) -> io::Result<()> {
        let kind = entry.header().entry_type();
        if kind.is_pax_global_extensions() {
            return Ok(());
        }
        let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
            self.tree.set_root(meta)?;
            self.folders.push((PathBuf::new(), meta.time));
            return Ok(());
        };
        if name.as_bytes().starts_with(WHITEOUT.as_bytes()) {
            return self.whiteout(parent, name);
        }
        self.touch(parent)?;
        let parent = self.tree.folder_made(parent)?;
        let node = Node::of(&parent, name)?;
        if !(kind.is_dir() && parent.has_folder(name)?) {
            parent.clear(name, &HashSet::new())?;
        }
        if kind.is_dir() {
            parent.put_folder(name, meta)?;
            self.folders.push((path.to_owned(), meta.time));
        } else if kind.is_symlink() {
            parent.put_symlink(name, OsStr::from_bytes(&link_target(entry)?), meta)?;
        } else if kind.is_hard_link() {
            self.tree
                .put_hardlink(&plain_path(&link_target(entry)?)?, &parent, name)?;
        } else if kind.is_character_special() || kind.is_block_special() || kind.is_fifo() {
            parent.put_device(name, entry.header(), meta)?;
        } else {
            parent.put_file(name, entry, meta)?; // POSIX: a type that isn't known is a file
        }
        self.made.insert(node);
        Ok(())
    }

    /// Notes the time of the folder in which something will change: the nearest there is.
    fn touch(&mut self, folder: &Path) -> io::Result<()> {
        for path in folder.ancestors() {
            if self.touched.contains_key(path) {
                break;
            }
            if let Some(found) = self.tree.folder_if_any(path)? {
                self.touched.insert(path.to_owned(), found.time()?);
                break;
            }
        }
        Ok(())
    }

    fn whiteout(&mut self, parent: &Path, name: &OsStr) -> io::Result<()> {
        self.touch(parent)?;
        let Some(parent) = self.tree.folder_if_any(parent)? else {
            return Ok(());
        };
        if name == OPAQUE {
            return parent.clear_all(&self.made);
        }
        if name.as_bytes().starts_with(AUFS.as_bytes()) {
            return Ok(());
        }
        let hidden = OsStr::from_bytes(&name.as_bytes()[WHITEOUT.len()..]);
        if matches!(hidden.as_bytes(), b"" | b"." | b"..") {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "takes away nothing that has a name",
            ));
        }
        parent.clear(hidden, &self.made)
    }
}

/// The path below the root; `..` is refused, not followed.
fn plain_path(bytes: &[u8]) -> io::Result<PathBuf> {
    let mut plain = PathBuf::new();
    for component in Path::new(OsStr::from_bytes(bytes)).components() {
        match component {
            Component::Normal(part) => plain.push(part),
            Component::RootDir | Component::CurDir => {}
            Component::ParentDir | Component::Prefix(_) => {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "its path leaves the folder"));
            }
        }
    }
    Ok(plain)
}

fn link_target<R: Read>(entry: &tar::Entry<'_, R>) -> io::Result<Vec<u8>> {
    let target = entry.link_name_bytes().filter(|target| !target.is_empty());
    target
        .map(|target| target.into_owned())
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a link to nothing"))
}

fn meta<R: Read>(entry: &mut tar::Entry<'_, R>) -> io::Result<Meta> {
    let mut attributes = Vec::new();
    let mut sparse = Sparse::default();
    // A malformed extension costs attributes, not the image; but what makes a file's bytes is right or an error.
    if let Ok(Some(extensions)) = entry.pax_extensions() {
        for extension in extensions.flatten() {
            sparse.take(extension.key_bytes(), extension.value_bytes())?;
            if let Some(name) = extension.key_bytes().strip_prefix(b"SCHILY.xattr.") {
                attributes.push((OsStr::from_bytes(name).to_owned(), extension.value_bytes().to_vec()));
            }
        }
    }
    let header = entry.header();
    let id =
        |id: u64| u32::try_from(id).map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "its owner is no user"));
    Ok(Meta {
        mode: header.mode()? & 0o7777,
        owner: (id(header.uid()?)?, id(header.gid()?)?),
        time: i64::try_from(header.mtime()?).unwrap_or(0),
        attributes,
        sparse: sparse.if_one(),
    })
}

#[cfg(test)]
mod tests;
