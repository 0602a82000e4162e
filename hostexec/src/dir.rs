//! Opening within the host's root: the kernel resolves every link there (`openat2`, `RESOLVE_IN_ROOT`), so an absolute
//! link, a `..` or a rename in the middle of it cannot lead into the container's own files.

use crate::{Host, HostPath};
use nix::{
    errno::Errno,
    fcntl::{OFlag, OpenHow, ResolveFlag, openat2},
    sys::stat::Mode,
};
use std::{
    fs::File,
    io,
    os::fd::{AsFd, AsRawFd, OwnedFd},
    path::{Path, PathBuf},
};

/// A folder of the host, held open. [`Dir::path`] leads into it for as long as this lives.
#[derive(Debug)]
pub struct Dir {
    file: File,
    path: PathBuf,
}

impl Dir {
    fn new(fd: OwnedFd) -> Self {
        let path = PathBuf::from(format!("/proc/self/fd/{}", fd.as_raw_fd()));
        Self {
            file: File::from(fd),
            path,
        }
    }

    /// A path of this process through which ordinary code works inside the folder. The folder itself is safe from links;
    /// of what lies in it, only one name may be joined, and links there are followed in the container.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the folder's entries durable.
    ///
    /// # Errors
    /// The disk failed; entries made since the last sync may be lost in a power cut.
    pub fn sync(&self) -> io::Result<()> {
        match self.file.sync_all() {
            // A file system that cannot be written (squashfs) has no sync at all.
            Err(error) if error.raw_os_error() == Some(Errno::EINVAL as i32) => Ok(()),
            other => other,
        }
    }

    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Opens an entry of the folder itself, following no link and crossing no mount.
    pub(crate) fn open_entry(&self, name: &Path, flags: OFlag) -> io::Result<OwnedFd> {
        open(
            &self.file,
            name,
            flags | OFlag::O_NOFOLLOW,
            ResolveFlag::RESOLVE_NO_SYMLINKS | ResolveFlag::RESOLVE_NO_XDEV,
        )
    }

    /// As [`Dir::open_entry`], for a folder.
    pub(crate) fn open_subdir(&self, name: &Path) -> io::Result<Self> {
        self.open_entry(name, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
            .map(Self::new)
    }
}

impl Host {
    /// Opens a folder, within the host's root.
    ///
    /// # Errors
    /// It is missing, is no folder, or cannot be opened.
    pub fn open_dir(&self, path: &HostPath) -> io::Result<Dir> {
        self.dir(path).map_err(|error| at("open", path, &error))
    }

    pub(crate) fn dir(&self, path: &HostPath) -> io::Result<Dir> {
        self.open_in_root(path, OFlag::O_RDONLY | OFlag::O_DIRECTORY)
            .map(Dir::new)
    }

    /// The folder that holds `path`, which is not the root.
    pub(crate) fn dir_of(&self, path: &HostPath) -> io::Result<Dir> {
        self.dir(&path.parent().ok_or_else(|| io::Error::from(Errno::EBUSY))?)
    }

    pub(crate) fn open_in_root(&self, path: &HostPath, flags: OFlag) -> io::Result<OwnedFd> {
        let root = nix::fcntl::open(
            self.root(),
            OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC,
            Mode::empty(),
        )?;
        open(
            &root,
            Path::new(path.as_str()),
            flags,
            ResolveFlag::RESOLVE_IN_ROOT | ResolveFlag::RESOLVE_NO_MAGICLINKS,
        )
    }
}

fn open(at: impl AsFd, path: &Path, flags: OFlag, resolve: ResolveFlag) -> io::Result<OwnedFd> {
    // The kernel gives up with EAGAIN when something was renamed or mounted while it resolved a `..`.
    const TRIES: u32 = 100;
    let how = OpenHow::new().flags(flags | OFlag::O_CLOEXEC).resolve(resolve);
    for _ in 1..TRIES {
        match openat2(&at, path, how) {
            Err(Errno::EAGAIN | Errno::EINTR) => {}
            other => return Ok(other?),
        }
    }
    Ok(openat2(&at, path, how)?)
}

/// Names what was tried on which path of the host; the kind of the error stays.
pub(crate) fn at(verb: &str, path: &HostPath, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{verb} {path}: {error}"))
}
