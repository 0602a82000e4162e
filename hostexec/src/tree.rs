//! Removing a folder with all that is in it, and nothing that is merely mounted in it.

use crate::{
    Host, HostPath,
    dir::{Dir, at},
};
use nix::errno::Errno;
use std::{
    ffi::{OsStr, OsString},
    fs, io,
    os::unix::{
        ffi::{OsStrExt, OsStringExt},
        fs::MetadataExt,
    },
    path::{Path, PathBuf},
};

/// A folder being emptied: which it is, what it is called in the folder above, and what is still to do in it.
struct Level {
    identity: (u64, u64),
    name: OsString,
    folders: Vec<OsString>,
}

impl Host {
    /// Removes a file, a link or a folder with all it holds. An absent one counts as removed.
    ///
    /// # Errors
    /// A mount at the path or anywhere below it: it is named, and nothing was removed. On any other error a part may
    /// be gone; asked again, it goes on.
    pub fn remove_tree(&self, path: &HostPath) -> io::Result<()> {
        self.remove_all(path).map_err(|error| at("remove", path, &error))
    }

    /// Removes all that a folder holds, not the folder, which may itself be a mount. An absent one is empty.
    ///
    /// # Errors
    /// As [`Host::remove_tree`], for what is mounted below it.
    pub fn empty_dir(&self, path: &HostPath) -> io::Result<()> {
        self.empty_all(path).map_err(|error| at("empty", path, &error))
    }

    fn empty_all(&self, path: &HostPath) -> io::Result<()> {
        if self.entry(path)?.is_none() {
            return Ok(());
        }
        let dir = self.dir(path)?;
        let tree = fs::read_link(dir.path())?;
        refuse_mounts(&tree, |point| point != tree)?;
        empty(dir, OsStr::new(path.name()))?;
        self.dir(path)?.sync()
    }

    fn remove_all(&self, path: &HostPath) -> io::Result<()> {
        let Some((above, found)) = self.entry(path)? else {
            return Ok(());
        };
        let name = OsStr::new(path.name());
        refuse_mounts(&fs::read_link(above.path())?.join(name), |_| true)?;
        if found.is_dir() {
            empty(
                above.open_subdir(name.as_ref()).map_err(|error| mounted(error, name))?,
                name,
            )?;
            fs::remove_dir(above.path().join(name))?;
        } else {
            fs::remove_file(above.path().join(name))?;
        }
        above.sync()
    }
}

/// Empties a folder level by level, with two descriptors at most and no recursion: what a container left may be deeper
/// than either would allow. On the way up, `..` must be the folder it came from.
fn empty(mut dir: Dir, name: &OsStr) -> io::Result<()> {
    let mut levels = vec![level(&dir, name.to_owned())?];
    while let Some(here) = levels.last_mut() {
        if let Some(name) = here.folders.pop() {
            dir = dir.open_subdir(name.as_ref()).map_err(|error| mounted(error, &name))?;
            levels.push(level(&dir, name)?);
            continue;
        }
        let Some(done) = levels.pop() else { break };
        if let Some(above) = levels.last() {
            dir = dir.open_subdir(Path::new(".."))?;
            if identity(&dir)? != above.identity {
                return Err(io::Error::other("a folder was moved while it was being removed"));
            }
            fs::remove_dir(dir.path().join(&done.name))?;
        }
    }
    Ok(())
}

/// Removes what is not a folder, and tells which folders remain.
fn level(dir: &Dir, name: OsString) -> io::Result<Level> {
    let mut folders = Vec::new();
    for entry in fs::read_dir(dir.path())? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            folders.push(entry.file_name());
        } else {
            fs::remove_file(entry.path()).map_err(|error| mounted(error, &entry.file_name()))?;
        }
    }
    Ok(Level {
        identity: identity(dir)?,
        name,
        folders,
    })
}

pub(crate) fn identity(dir: &Dir) -> io::Result<(u64, u64)> {
    let found = dir.file().metadata()?;
    Ok((found.dev(), found.ino()))
}

/// Before anything is removed: no mount of this namespace that counts may lie at or below the path.
fn refuse_mounts(tree: &Path, counts: impl Fn(&Path) -> bool) -> io::Result<()> {
    let table = fs::read("/proc/self/mountinfo")?;
    match table
        .split(|byte| *byte == b'\n')
        .filter_map(mount_point)
        .find(|point| point.starts_with(tree) && counts(point))
    {
        None => Ok(()),
        Some(point) => {
            let below = point.strip_prefix(tree).unwrap_or(Path::new(""));
            let text = match below.as_os_str().is_empty() {
                true => "something is mounted there".to_owned(),
                false => format!("something is mounted at {} in it", below.display()),
            };
            Err(io::Error::new(io::ErrorKind::ResourceBusy, text))
        }
    }
}

/// The fifth field of a line, its octal escapes undone. Source: proc_pid_mountinfo(5).
pub(crate) fn mount_point(line: &[u8]) -> Option<PathBuf> {
    let field = line.split(|byte| *byte == b' ').nth(4)?;
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let [first, tail @ ..] = rest {
        match (first, tail) {
            (b'\\', [a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', after @ ..]) => {
                bytes.push((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'));
                rest = after;
            }
            _ => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    Some(PathBuf::from(OsString::from_vec(bytes)))
}

/// The kernel's word for a mount that came meanwhile: EXDEV when entering a folder, EBUSY when removing a file.
fn mounted(error: io::Error, name: &OsStr) -> io::Error {
    let name = String::from_utf8_lossy(name.as_bytes());
    match error.raw_os_error().map(Errno::from_raw) {
        Some(Errno::EXDEV | Errno::EBUSY) => io::Error::new(
            io::ErrorKind::ResourceBusy,
            format!("something is mounted at {name} in it"),
        ),
        Some(_) | None => error,
    }
}

#[cfg(test)]
mod tests;
