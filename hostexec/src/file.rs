//! Reading, writing and removing the host's files.

use crate::{
    Host, HostPath,
    dir::{Dir, at},
    replace::PREFIX,
};
use nix::{
    errno::Errno,
    fcntl::OFlag,
    sys::stat::{Mode, mkdirat},
};
use std::{
    fs::{self, File, Metadata, Permissions},
    io::{self, Read, Write},
    os::unix::fs::PermissionsExt,
};

/// Whether [`Host::write_if_changed`] had to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The file was missing, or had other bytes or another mode.
    Changed,
    /// The file was there as wanted.
    Same,
}

/// What became of a folder that was to go if it is empty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Emptied {
    /// It is gone.
    Removed,
    /// There was none, or something else is in its place.
    Absent,
    /// Something is mounted there.
    Mounted,
    /// It holds these, sorted.
    Holds(Vec<String>),
}

impl Host {
    /// Opens a file for reading. A pipe is not waited for.
    ///
    /// # Errors
    /// It is missing or cannot be opened.
    pub fn open(&self, path: &HostPath) -> io::Result<File> {
        self.open_file(path).map_err(|error| at("open", path, &error))
    }

    /// The file's bytes.
    ///
    /// # Errors
    /// It is missing or cannot be read.
    pub fn read(&self, path: &HostPath) -> io::Result<Vec<u8>> {
        let read = || {
            let mut bytes = Vec::new();
            self.open_file(path)?.read_to_end(&mut bytes)?;
            Ok(bytes)
        };
        read().map_err(|error| at("read", path, &error))
    }

    /// The file's text.
    ///
    /// # Errors
    /// It is missing, cannot be read, or is not UTF-8.
    pub fn read_text(&self, path: &HostPath) -> io::Result<String> {
        String::from_utf8(self.read(path)?)
            .map_err(|_| at("read", path, &io::Error::new(io::ErrorKind::InvalidData, "not UTF-8")))
    }

    /// Whether there is anything at the path, a dangling link included.
    ///
    /// # Errors
    /// It cannot be said: "unreadable" is not "absent".
    pub fn exists(&self, path: &HostPath) -> io::Result<bool> {
        let exists = || {
            if *path == HostPath::ROOT {
                return Ok(true);
            }
            Ok(self.entry(path)?.is_some())
        };
        exists().map_err(|error| at("look at", path, &error))
    }

    /// Whether the path leads to a folder, links followed.
    ///
    /// # Errors
    /// It cannot be said.
    pub fn is_dir(&self, path: &HostPath) -> io::Result<bool> {
        match self.metadata(path) {
            Ok(found) => Ok(found.is_dir()),
            Err(error) if is_absent(&error) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// What the path leads to, links followed.
    ///
    /// # Errors
    /// It is missing or cannot be looked at.
    pub fn metadata(&self, path: &HostPath) -> io::Result<Metadata> {
        self.open_in_root(path, OFlag::O_PATH)
            .and_then(|fd| File::from(fd).metadata())
            .map_err(|error| at("look at", path, &error))
    }

    /// Replaces `path` with `bytes`. After a crash at any point the file holds the old bytes or the new, whole. Missing
    /// folders above it are made, `0755`. A link at `path` is replaced, not followed.
    ///
    /// # Errors
    /// The old file is untouched on any error but that of the last directory sync.
    pub fn write(&self, path: &HostPath, bytes: &[u8], mode: u32) -> io::Result<()> {
        let mut new = self.replace(path, mode)?;
        new.write_all(bytes).map_err(|error| at("write", path, &error))?;
        new.commit()
    }

    /// As [`Host::write`], but leaves a file alone that is there with these bytes and this mode.
    ///
    /// # Errors
    /// As [`Host::write`].
    pub fn write_if_changed(&self, path: &HostPath, bytes: &[u8], mode: u32) -> io::Result<Written> {
        let same = || -> io::Result<bool> {
            let Some((dir, found)) = self.entry(path)? else {
                return Ok(false);
            };
            if !found.is_file() || found.permissions().mode() & 0o7777 != mode || found.len() != bytes.len() as u64 {
                return Ok(false);
            }
            if fs::read(dir.path().join(path.name()))? != bytes {
                return Ok(false);
            }
            // Whoever wrote it may have been killed between the rename and this.
            dir.sync()?;
            Ok(true)
        };
        if same().map_err(|error| at("read", path, &error))? {
            return Ok(Written::Same);
        }
        self.write(path, bytes, mode)?;
        Ok(Written::Changed)
    }

    /// Makes a folder with this mode, and missing ones above it with `0755`. One that is there stays as it is.
    ///
    /// # Errors
    /// Something else is in the way, or it cannot be made; folders made above it stay.
    pub fn create_dir(&self, path: &HostPath, mode: u32) -> io::Result<()> {
        self.made_dir(path, mode)
            .map(drop)
            .map_err(|error| at("create", path, &error))
    }

    /// Removes a file or link. One that is absent, or whose folder is, counts as removed, read-only file systems
    /// included.
    ///
    /// # Errors
    /// It is still there on any error but that of the last directory sync.
    pub fn remove(&self, path: &HostPath) -> io::Result<()> {
        let remove = || {
            let Some((dir, _)) = self.entry(path)? else {
                return Ok(());
            };
            match fs::remove_file(dir.path().join(path.name())) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
                Err(error) => Err(error),
                Ok(()) => dir.sync(),
            }
        };
        remove().map_err(|error| at("remove", path, &error))
    }

    /// Removes a folder that holds nothing.
    ///
    /// # Errors
    /// It is still there on any error but that of the last directory sync.
    pub fn remove_empty_dir(&self, path: &HostPath) -> io::Result<Emptied> {
        let remove = || {
            let Some((dir, found)) = self.entry(path)? else {
                return Ok(Emptied::Absent);
            };
            if !found.is_dir() {
                return Ok(Emptied::Absent);
            }
            match fs::remove_dir(dir.path().join(path.name())) {
                Ok(()) => dir.sync().map(|()| Emptied::Removed),
                Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Emptied::Absent),
                Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => self.list(path).map(Emptied::Holds),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => Ok(Emptied::Mounted),
                Err(error) => Err(error),
            }
        };
        remove().map_err(|error| at("remove", path, &error))
    }

    /// Where the link at the path leads, as written in it.
    ///
    /// # Errors
    /// It is missing, no link, or cannot be read.
    pub fn read_link(&self, path: &HostPath) -> io::Result<String> {
        let read = || {
            let dir = self.dir_of(path)?;
            let target = fs::read_link(dir.path().join(path.name()))?;
            target
                .into_os_string()
                .into_string()
                .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "not UTF-8"))
        };
        read().map_err(|error| at("read link", path, &error))
    }

    /// The names in a folder, sorted.
    ///
    /// # Errors
    /// It is missing, no folder, cannot be read, or holds a name that is not UTF-8.
    pub fn list(&self, path: &HostPath) -> io::Result<Vec<String>> {
        let list = || {
            let dir = self.dir(path)?;
            let mut names = Vec::new();
            for entry in fs::read_dir(dir.path())? {
                let name = entry?.file_name().into_string();
                names.push(name.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "a name is not UTF-8"))?);
            }
            names.sort_unstable();
            Ok(names)
        };
        list().map_err(|error| at("list", path, &error))
    }

    /// Removes the temporary files that a crash left in a folder; those of a writer still alive stay.
    ///
    /// # Errors
    /// Some could not be removed.
    pub fn sweep(&self, path: &HostPath) -> io::Result<()> {
        let dir = match self.dir(path) {
            Err(error) if is_absent(&error) => return Ok(()),
            other => other.map_err(|error| at("sweep", path, &error))?,
        };
        for entry in fs::read_dir(dir.path()).map_err(|error| at("sweep", path, &error))? {
            let name = entry.map_err(|error| at("sweep", path, &error))?.file_name();
            let Some(name) = name.to_str().filter(|name| name.starts_with(PREFIX)) else {
                continue;
            };
            let writing = dir
                .open_entry(name.as_ref(), OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
                .is_ok_and(|fd| matches!(File::from(fd).try_lock(), Err(fs::TryLockError::WouldBlock)));
            if !writing {
                let left = path
                    .join(name)
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
                self.remove_tree(&left)?;
            }
        }
        Ok(())
    }

    fn open_file(&self, path: &HostPath) -> io::Result<File> {
        self.open_in_root(path, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY)
            .map(File::from)
    }

    /// What stands at the path itself, with the folder it is in; none when either is absent.
    pub(crate) fn entry(&self, path: &HostPath) -> io::Result<Option<(Dir, Metadata)>> {
        let found = self.dir_of(path).and_then(|dir| {
            let metadata = fs::symlink_metadata(dir.path().join(path.name()))?;
            Ok((dir, metadata))
        });
        match found {
            Ok(found) => Ok(Some(found)),
            Err(error) if is_absent(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The folder that holds `path`, made if it is missing.
    pub(crate) fn made_dir_of(&self, path: &HostPath) -> io::Result<Dir> {
        self.made_dir(&path.parent().ok_or_else(|| io::Error::from(Errno::EBUSY))?, 0o755)
    }

    fn made_dir(&self, path: &HostPath, mode: u32) -> io::Result<Dir> {
        match self.dir(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other,
        }
        let above = self.made_dir_of(path)?;
        match mkdirat(above.file(), path.name(), Mode::from_bits_truncate(mode)) {
            // Somebody else made it meanwhile; or a dangling link is there, which opening it below refuses.
            Err(Errno::EEXIST) => return self.dir(path),
            other => other?,
        }
        let dir = self.dir(path)?;
        dir.file().set_permissions(Permissions::from_mode(mode))?;
        above.sync()?;
        Ok(dir)
    }
}

/// Nothing is there, or what should be a folder above it is none.
pub(crate) fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

#[cfg(test)]
mod tests;
