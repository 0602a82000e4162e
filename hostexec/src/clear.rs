//! Clearing away what is ours while others may have put something into it: a mount stays, with the folders that lead to it, and so
//! does what the kernel does not let go; all else goes.
//!
//! ```text
//!  entry ─┬─ no folder ───────▶ unlink ─┬─ EBUSY ▶ a mount: stays
//!         │                             └─ EPERM ▶ its flags off, once more ▶ stays
//!         └─ folder ─▶ openat2 ─┬─ EXDEV ▶ a mount: stays, and is not looked into
//!                               └─ its entries, then itself
//! ```
//!
//! No link is followed and nothing is met twice, so that it ends whatever it finds; what stays is told.

use crate::{
    Host, HostPath,
    dir::{Dir, at},
    tree::{identity, mount_point},
};
use nix::{errno::Errno, fcntl::OFlag};
use rustix::fs::{IFlags, ioctl_getflags, ioctl_setflags};
use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io,
    os::fd::AsFd,
    path::{Path, PathBuf},
    time::Instant,
};

/// What was not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Where it is. A name that is no UTF-8 is shown as well as it can be.
    pub path: String,
    /// Why it stays.
    pub why: Stays,
}

/// Why something was not removed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stays {
    /// It is a mount, of this type of file system where the mount table says. Nothing in it was touched.
    Mount(String),
    /// The kernel refused: its words.
    Refused(String),
    /// The time was up; what is there will be met by the next call.
    Late,
}

impl Host {
    /// Removes a file, a link or a folder with all it holds, but for mounts. Of a folder, an entry called `last` goes after all others, and
    /// only when they are gone: a mark of whose the folder is. An absent one counts as removed.
    ///
    /// # Errors
    /// It can't be looked at, or was moved meanwhile; a part may be gone, and another call goes on.
    pub fn clear(&self, path: &HostPath, last: Option<&str>, until: Instant) -> io::Result<Vec<Left>> {
        self.clear_all(path, last, until)
            .map_err(|error| at("remove", path, &error))
    }

    fn clear_all(&self, path: &HostPath, last: Option<&str>, until: Instant) -> io::Result<Vec<Left>> {
        let Some((above, found)) = self.entry(path)? else {
            return Ok(Vec::new());
        };
        let name = OsStr::new(path.name());
        let mut clearing = Clearing {
            root: path,
            mounts: mounts(&fs::read_link(above.path())?.join(name))?,
            last: last.map(OsString::from),
            until,
            left: Vec::new(),
        };
        if !found.is_dir() {
            clearing.unlink(&above, name, &PathBuf::new());
        } else if let Some(dir) = clearing.enter(&above, name, &PathBuf::new())
            && clearing.empty(dir, name)?
        {
            clearing.rmdir(&above, name, &PathBuf::new());
        }
        above.sync()?;
        Ok(clearing.left)
    }
}

/// A folder that is being emptied.
struct Level {
    identity: (u64, u64),
    name: OsString,
    folders: Vec<OsString>,
    /// Something in it stays.
    holds: bool,
}

struct Clearing<'a> {
    root: &'a HostPath,
    /// Below the root, by their paths from it.
    mounts: Vec<(PathBuf, String)>,
    last: Option<OsString>,
    until: Instant,
    left: Vec<Left>,
}

impl Clearing<'_> {
    /// Empties a folder level by level, with two descriptors at most and no recursion; true if nothing is left in it.
    fn empty(&mut self, mut dir: Dir, name: &OsStr) -> io::Result<bool> {
        let mut levels = vec![self.level(&dir, name.to_owned(), &[])?];
        loop {
            let here = below(&levels);
            let Some(level) = levels.last_mut() else {
                return Ok(true);
            };
            if Instant::now() >= self.until {
                self.stays(Path::new(""), Stays::Late);
                return Ok(false);
            }
            if let Some(name) = level.folders.pop() {
                match self.enter(&dir, &name, &here.join(&name)) {
                    Some(inner) => {
                        dir = inner;
                        levels.push(self.level(&dir, name, &levels)?);
                    }
                    None => level.holds |= self.is_there(&dir, &name),
                }
                continue;
            }
            let Some(done) = levels.pop() else { return Ok(true) };
            let Some(above) = levels.last_mut() else {
                return Ok(!done.holds && self.remove_last(&dir));
            };
            dir = dir.open_subdir(Path::new(".."))?;
            if identity(&dir)? != above.identity {
                return Err(io::Error::other("a folder was moved while it was being removed"));
            }
            above.holds |= done.holds || !self.rmdir(&dir, &done.name, &here);
        }
    }

    /// Removes what is not a folder, and tells which folders remain.
    fn level(&mut self, dir: &Dir, name: OsString, above: &[Level]) -> io::Result<Level> {
        let mut level = Level {
            identity: identity(dir)?,
            name,
            folders: Vec::new(),
            holds: false,
        };
        let here = if above.is_empty() {
            PathBuf::new()
        } else {
            below(above).join(&level.name)
        };
        for entry in fs::read_dir(dir.path())? {
            let entry = entry?;
            let name = entry.file_name();
            if above.is_empty() && self.last.as_ref() == Some(&name) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                level.folders.push(name);
            } else {
                level.holds |= !self.unlink(dir, &name, &here.join(&name));
            }
        }
        Ok(level)
    }

    fn remove_last(&mut self, dir: &Dir) -> bool {
        match self.last.clone() {
            Some(last) => self.unlink(dir, &last, Path::new(&last)),
            None => true,
        }
    }

    /// Opens a folder, unless something is mounted there.
    fn enter(&mut self, dir: &Dir, name: &OsStr, path: &Path) -> Option<Dir> {
        match dir.open_subdir(name.as_ref()) {
            Ok(inner) => Some(inner),
            Err(error) => {
                self.keep(path, &error);
                None
            }
        }
    }

    fn is_there(&self, dir: &Dir, name: &OsStr) -> bool {
        fs::symlink_metadata(dir.path().join(name)).is_ok()
    }

    /// Removes what is no folder; true if it is gone.
    fn unlink(&mut self, dir: &Dir, name: &OsStr, path: &Path) -> bool {
        let remove = || fs::remove_file(dir.path().join(name));
        let unlock = || {
            if let Ok(file) = dir.open_entry(name.as_ref(), OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY) {
                unlock(File::from(file));
            }
            unlock(dir.file());
        };
        self.gone(path, remove, unlock)
    }

    /// Removes an empty folder; true if it is gone.
    fn rmdir(&mut self, dir: &Dir, name: &OsStr, path: &Path) -> bool {
        self.gone(path, || fs::remove_dir(dir.path().join(name)), || unlock(dir.file()))
    }

    fn gone(&mut self, path: &Path, remove: impl Fn() -> io::Result<()>, unlock: impl Fn()) -> bool {
        let mut removed = remove();
        if removed.as_ref().is_err_and(|error| errno(error) == Some(Errno::EPERM)) {
            unlock();
            removed = remove();
        }
        match removed {
            Ok(()) => true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => true,
            Err(error) => {
                self.keep(path, &error);
                false
            }
        }
    }

    fn keep(&mut self, path: &Path, error: &io::Error) {
        let mount = self.mounts.iter().find(|(point, _)| point == path);
        match (mount, errno(error)) {
            (_, Some(Errno::ENOENT)) => {}
            (Some((_, kind)), _) => {
                let kind = kind.clone();
                self.stays(path, Stays::Mount(kind));
            }
            (None, Some(Errno::EXDEV | Errno::EBUSY)) => self.stays(path, Stays::Mount(String::new())),
            (None, _) => self.stays(path, Stays::Refused(error.to_string())),
        }
    }

    fn stays(&mut self, path: &Path, why: Stays) {
        let root = Path::new(self.root.as_str());
        let path = if path.as_os_str().is_empty() {
            root.to_owned()
        } else {
            root.join(path)
        };
        self.left.push(Left {
            path: path.to_string_lossy().into_owned(),
            why,
        });
    }
}

/// The innermost of these folders, from the outermost.
fn below(levels: &[Level]) -> PathBuf {
    levels.iter().skip(1).map(|level| &level.name).collect()
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

/// Takes the flags off by which a file can't be removed (`chattr +i`, `+a`). Where there are none, that is no matter.
fn unlock(file: impl AsFd) {
    if let Ok(flags) = ioctl_getflags(&file) {
        let locks = IFlags::IMMUTABLE | IFlags::APPEND;
        if flags.intersects(locks) {
            let _ = ioctl_setflags(&file, flags - locks);
        }
    }
}

/// What is mounted at this path and below it, and as which type. Source: proc_pid_mountinfo(5).
fn mounts(tree: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let table = fs::read("/proc/self/mountinfo")?;
    let mut found = Vec::new();
    for line in table.split(|byte| *byte == b'\n') {
        let Some(below) = mount_point(line).and_then(|point| Some(point.strip_prefix(tree).ok()?.to_owned())) else {
            continue;
        };
        let line = String::from_utf8_lossy(line);
        let kind = line.split_once(" - ").and_then(|(_, rest)| rest.split(' ').next());
        found.push((below, kind.unwrap_or_default().to_owned()));
    }
    Ok(found)
}

#[cfg(test)]
mod tests;
