//! Locks: one file a subject, held by whoever changes it, let go of by the kernel when its holder dies.

use crate::{
    Host, HostPath,
    dir::{Dir, at},
};
use std::{
    fs::{File, OpenOptions, TryLockError},
    io,
    os::unix::fs::OpenOptionsExt,
};

/// A held lock. Dropping it lets go; the file stays, since removing it would let two hold "the" lock.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "held for its descriptor")] File);

impl Host {
    /// Takes the lock, waiting for whoever holds it. It blocks the thread.
    ///
    /// # Errors
    /// The file cannot be made or locked; nothing is held.
    pub fn lock(&self, path: &HostPath) -> io::Result<Lock> {
        let take = || {
            let file = self.lock_file(path)?;
            file.lock()?;
            Ok(Lock(file))
        };
        take().map_err(|error| at("lock", path, &error))
    }

    /// Takes the lock if nobody holds it.
    ///
    /// # Errors
    /// The file cannot be made or locked; nothing is held.
    pub fn try_lock(&self, path: &HostPath) -> io::Result<Option<Lock>> {
        let take = || {
            let file = self.lock_file(path)?;
            match file.try_lock() {
                Ok(()) => Ok(Some(Lock(file))),
                Err(TryLockError::WouldBlock) => Ok(None),
                Err(TryLockError::Error(error)) => Err(error),
            }
        };
        take().map_err(|error| at("lock", path, &error))
    }

    fn lock_file(&self, path: &HostPath) -> io::Result<File> {
        let dir: Dir = self.made_dir_of(path)?;
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .custom_flags(nix::fcntl::OFlag::O_NOFOLLOW.bits())
            .open(dir.path().join(path.name()))
    }
}

#[cfg(test)]
mod tests;
