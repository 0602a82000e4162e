//! A folder that is changed from inside: every path is resolved in it, as if it were the root, links and all.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::fs::{self, AtFlags, FileType, Gid, Mode, OFlags, ResolveFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;

use super::sparse::Sparse;

/// What an entry says of itself, beside its content.
pub(super) struct Meta {
    pub(super) mode: u32,
    pub(super) owner: (u32, u32),
    pub(super) time: i64,
    pub(super) attributes: Vec<(OsString, Vec<u8>)>,
    pub(super) sparse: Option<Sparse>,
}

/// One name in one folder, whatever path led there.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Node(u64, OsString);

impl Node {
    pub(super) fn of(folder: &Folder, name: &OsStr) -> io::Result<Self> {
        Ok(Self(fs::fstat(&folder.0)?.st_ino, name.to_owned()))
    }
}

/// The folder.
pub(super) struct Tree {
    root: Folder,
}

/// An open folder in the tree.
pub(super) struct Folder(OwnedFd, Owners);

/// Whether entries get the owners they name: only root can give files away.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Owners {
    Kept,
    Ours,
}

const FOLDER: OFlags = OFlags::DIRECTORY.union(OFlags::RDONLY).union(OFlags::CLOEXEC);

impl Tree {
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        let owners = if rustix::process::geteuid().is_root() {
            Owners::Kept
        } else {
            Owners::Ours
        };
        Ok(Self {
            root: Folder(fs::open(path, FOLDER, Mode::empty())?, owners),
        })
    }

    /// An existing folder.
    pub(super) fn folder(&self, path: &Path) -> io::Result<Folder> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let inside = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(Folder(
            fs::openat2(&self.root.0, path, FOLDER, Mode::empty(), inside)?,
            self.root.1,
        ))
    }

    pub(super) fn folder_if_any(&self, path: &Path) -> io::Result<Option<Folder>> {
        match self.folder(path) {
            Ok(folder) => Ok(Some(folder)),
            Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A folder; what is missing on the way is made.
    pub(super) fn folder_made(&self, path: &Path) -> io::Result<Folder> {
        match self.folder(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            found => return found,
        }
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return self.folder(path);
        };
        let parent = self.folder_made(parent)?;
        match fs::mkdirat(&parent.0, name, Mode::from_raw_mode(0o755)) {
            Ok(()) => self.folder(path),
            Err(Errno::EXIST) => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "a link to nowhere is in the way",
            )),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn set_root(&self, meta: &Meta) -> io::Result<()> {
        self.root.own(&self.root.0, meta)
    }

    /// A second name for what lies at `target`; a symbolic link there is not followed.
    pub(super) fn put_hardlink(&self, target: &Path, folder: &Folder, name: &OsStr) -> io::Result<()> {
        let (Some(from), Some(old)) = (target.parent(), target.file_name()) else {
            return Err(io::Error::new(io::ErrorKind::InvalidData, "a hard link to the root"));
        };
        Ok(fs::linkat(
            &self.folder(from)?.0,
            old,
            &folder.0,
            name,
            AtFlags::empty(),
        )?)
    }
}

impl Folder {
    /// When something in it was last made or removed, in seconds.
    pub(super) fn time(&self) -> io::Result<i64> {
        Ok(fs::fstat(&self.0)?.st_mtime)
    }

    pub(super) fn has_folder(&self, name: &OsStr) -> io::Result<bool> {
        match fs::statat(&self.0, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) => Ok(FileType::from_raw_mode(stat.st_mode) == FileType::Directory),
            Err(Errno::NOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    pub(super) fn put_folder(&self, name: &OsStr, meta: &Meta) -> io::Result<()> {
        match fs::mkdirat(&self.0, name, Mode::from_raw_mode(0o700)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let folder = fs::openat(&self.0, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
        self.own(&folder, meta)
    }

    pub(super) fn put_file(&self, name: &OsStr, mut from: impl Read, meta: &Meta) -> io::Result<()> {
        let new = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let mut file = File::from(fs::openat(&self.0, name, new, Mode::from_raw_mode(0o600))?);
        match &meta.sparse {
            Some(sparse) => sparse.write(from, &mut file)?,
            None => drop(io::copy(&mut from, &mut file)?),
        }
        let file = OwnedFd::from(file);
        self.own(&file, meta)?;
        set_time(&Folder(file, self.1), meta.time)
    }

    pub(super) fn put_symlink(&self, name: &OsStr, to: &OsStr, meta: &Meta) -> io::Result<()> {
        fs::symlinkat(to, &self.0, name)?;
        self.own_by_name(name, meta)
    }

    /// A device node or a pipe. Where the kernel refuses device nodes (a container), it is left out.
    pub(super) fn put_device(&self, name: &OsStr, header: &tar::Header, meta: &Meta) -> io::Result<()> {
        let kind = header.entry_type();
        let (kind, device) = if kind.is_character_special() {
            (FileType::CharacterDevice, true)
        } else if kind.is_block_special() {
            (FileType::BlockDevice, true)
        } else {
            (FileType::Fifo, false)
        };
        let number = if device {
            fs::makedev(header.device_major()?.unwrap_or(0), header.device_minor()?.unwrap_or(0))
        } else {
            0
        };
        match fs::mknodat(&self.0, name, kind, Mode::from_raw_mode(meta.mode & 0o777), number) {
            Ok(()) => {}
            Err(Errno::PERM) if device => return Ok(()),
            Err(error) => return Err(error.into()),
        }
        self.own_by_name(name, meta)?;
        Ok(fs::chmodat(
            &self.0,
            name,
            Mode::from_raw_mode(meta.mode),
            AtFlags::empty(),
        )?)
    }

    /// Removes what has this name, and all below, but what is to be kept. Absent is fine.
    pub(super) fn clear(&self, name: &OsStr, keep: &HashSet<Node>) -> io::Result<()> {
        if self.has_folder(name)? {
            let inner = fs::openat(&self.0, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
            Folder(inner, self.1).clear_all(keep)?;
            if keep.contains(&Node::of(self, name)?) {
                return Ok(());
            }
            return match fs::unlinkat(&self.0, name, AtFlags::REMOVEDIR) {
                Ok(()) => Ok(()),
                Err(Errno::NOTEMPTY) if !keep.is_empty() => Ok(()), // something kept lies in it
                Err(error) => Err(error.into()),
            };
        }
        if keep.contains(&Node::of(self, name)?) {
            return Ok(());
        }
        match fs::unlinkat(&self.0, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// Removes all in this folder but what is to be kept.
    pub(super) fn clear_all(&self, keep: &HashSet<Node>) -> io::Result<()> {
        let mut names = Vec::new();
        for entry in fs::Dir::read_from(&self.0)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            if name != "." && name != ".." {
                names.push(name.to_owned());
            }
        }
        names.iter().try_for_each(|name| self.clear(name, keep))
    }

    fn own(&self, file: &OwnedFd, meta: &Meta) -> io::Result<()> {
        if self.1 == Owners::Kept {
            let (uid, gid) = (Uid::from_raw(meta.owner.0), Gid::from_raw(meta.owner.1));
            fs::fchown(file, Some(uid), Some(gid))?;
        }
        fs::fchmod(file, Mode::from_raw_mode(meta.mode))?; // after the owner: giving away clears set-user-id
        for (name, value) in &meta.attributes {
            if name == "security.selinux" {
                continue; // a label of where the image was built
            }
            match fs::fsetxattr(file, name, value, XattrFlags::empty()) {
                Ok(()) | Err(Errno::NOTSUP | Errno::PERM | Errno::ACCESS | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    fn own_by_name(&self, name: &OsStr, meta: &Meta) -> io::Result<()> {
        if self.1 == Owners::Kept {
            let (uid, gid) = (Uid::from_raw(meta.owner.0), Gid::from_raw(meta.owner.1));
            fs::chownat(&self.0, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(fs::utimensat(
            &self.0,
            name,
            &times(meta.time),
            AtFlags::SYMLINK_NOFOLLOW,
        )?)
    }
}

pub(super) fn set_time(file: &Folder, time: i64) -> io::Result<()> {
    Ok(fs::futimens(&file.0, &times(time))?)
}

fn times(seconds: i64) -> Timestamps {
    let time = Timespec {
        tv_sec: seconds,
        tv_nsec: 0,
    };
    Timestamps {
        last_access: time,
        last_modification: time,
    }
}
