//! Replacing a file or a link whole, the only way in which the host's files change.

use crate::{
    Host, HostPath,
    dir::{Dir, at},
};
use std::{
    fs::{File, Permissions},
    io::{self, Write},
    os::unix::fs::{PermissionsExt, symlink},
};
use tempfile::NamedTempFile;

/// What the name of every temporary file begins with; [`Host::sweep`] removes those a crash left.
pub(crate) const PREFIX: &str = ".aks-flex-node-tmp-";

/// New content for a file, written beside it: a download, an archive. Until [`Replacement::commit`] the old file stands;
/// dropped before, nothing remains.
#[derive(Debug)]
pub struct Replacement {
    // In this order: the temporary file is removed through the folder.
    file: NamedTempFile,
    dir: Dir,
    path: HostPath,
    mode: u32,
}

impl Replacement {
    /// Puts the new content in the old one's place. After a crash at any point the file holds the old bytes or the new.
    ///
    /// # Errors
    /// The old file is untouched on any error but that of the last directory sync.
    pub fn commit(self) -> io::Result<()> {
        let Self { file, dir, path, mode } = self;
        let replace = || {
            // Last, so that no reader ever finds it wider than asked, and whatever the umask is.
            file.as_file().set_permissions(Permissions::from_mode(mode))?;
            file.as_file().sync_all()?;
            file.persist(dir.path().join(path.name()))?;
            dir.sync()
        };
        replace().map_err(|error| at("write", &path, &error))
    }

    /// The temporary file, to read back what was written.
    #[must_use]
    pub fn file(&mut self) -> &mut File {
        self.file.as_file_mut()
    }
}

impl Write for Replacement {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.as_file_mut().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_file_mut().flush()
    }
}

impl Host {
    /// Begins to replace the file at `path` by one with this mode. Missing folders above it are made, `0755`.
    ///
    /// # Errors
    /// The folder cannot be made or written; the old file is untouched.
    pub fn replace(&self, path: &HostPath, mode: u32) -> io::Result<Replacement> {
        let begin = || {
            let dir = self.made_dir_of(path)?;
            let file = tempfile::Builder::new().prefix(PREFIX).tempfile_in(dir.path())?;
            // Tells a sweep that its writer lives.
            file.as_file().lock()?;
            Ok(Replacement {
                file,
                dir,
                path: path.clone(),
                mode,
            })
        };
        begin().map_err(|error| at("write", path, &error))
    }

    /// Makes the link at `path` lead to `target`, replacing whatever file or link was there at once.
    ///
    /// # Errors
    /// The old file or link is untouched on any error but that of the last directory sync.
    pub fn link(&self, target: &str, path: &HostPath) -> io::Result<()> {
        let link = || {
            let dir = self.made_dir_of(path)?;
            let made = tempfile::Builder::new()
                .prefix(PREFIX)
                .make_in(dir.path(), |path| symlink(target, path))?;
            made.into_temp_path().persist(dir.path().join(path.name()))?;
            dir.sync()
        };
        link().map_err(|error| at("link", path, &error))
    }

    /// Moves a file or folder to another name on the same file system, replacing a file or an empty folder there.
    ///
    /// # Errors
    /// Nothing moved on any error but that of the last directory sync.
    pub fn rename(&self, from: &HostPath, to: &HostPath) -> io::Result<()> {
        let rename = || {
            let (old, new) = (self.dir_of(from)?, self.made_dir_of(to)?);
            std::fs::rename(old.path().join(from.name()), new.path().join(to.name()))?;
            new.sync()?;
            old.sync()
        };
        rename().map_err(|error| at(&format!("rename {from} to"), to, &error))
    }
}
