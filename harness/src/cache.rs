//! The cache folder: what is made once and shared by runs, each thing whole or absent; and the runs' own state below it.
//!
//! A thing is a folder named after what it is and the hash of its recipe, so that another recipe is another thing.

use std::fs;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use nix::fcntl::{Flock, FlockArg};
use sha2::{Digest, Sha256};

/// Lies in every folder that is ours to fill and to remove.
pub(crate) const MARK: &str = ".aks-flex-node-harness";

/// The cache folder.
#[derive(Clone, Debug)]
pub(crate) struct Cache {
    root: PathBuf,
}

/// Held until dropped; the dead let go of it.
pub(crate) struct Lock(#[allow(dead_code, reason = "held for its drop")] Flock<fs::File>);

impl Cache {
    /// Opens `$AKS_FLEX_NODE_HARNESS_CACHE`, or the default, and makes it if it is missing.
    ///
    /// # Errors
    /// It is there and not ours: neither empty nor marked.
    pub(crate) fn open() -> Result<Self> {
        let root = std::env::var_os("AKS_FLEX_NODE_HARNESS_CACHE").map(PathBuf::from);
        Self::at(root.unwrap_or_else(|| PathBuf::from("/var/cache/aks-flex-node-harness")))
    }

    /// Opens the cache at a given place.
    ///
    /// # Errors
    /// As `open`.
    pub(crate) fn at(root: PathBuf) -> Result<Self> {
        claim(&root)?;
        Ok(Self { root })
    }

    /// A place of that name in the cache, made or not.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// Waits for the lock of that name.
    ///
    /// # Errors
    /// The lock file can't be made.
    pub(crate) async fn lock(&self, name: &str) -> Result<Lock> {
        let dir = self.path("locks");
        private_dir(&dir)?;
        let path = dir.join(name);
        let wait = move || -> Result<Lock> {
            let file = fs::OpenOptions::new()
                .create(true)
                .truncate(false)
                .write(true)
                .open(&path)?;
            let lock = Flock::lock(file, FlockArg::LockExclusive).map_err(|(_, error)| error)?;
            Ok(Lock(lock))
        };
        tokio::task::spawn_blocking(wait)
            .await?
            .with_context(|| format!("the lock {name}"))
    }

    /// The folder of a thing, which `make` fills if no run before has done so.
    ///
    /// # Errors
    /// What `make` met; nothing of its attempt is ever taken for the thing.
    pub(crate) async fn produce(
        &self,
        name: &str,
        recipe: &str,
        make: impl AsyncFnOnce(&Path) -> Result<()>,
    ) -> Result<PathBuf> {
        let there = self.path(&format!("{name}-{}", key(recipe)));
        if there.join("ok").exists() {
            return Ok(there);
        }
        let _lock = self.lock(name).await?;
        if there.join("ok").exists() {
            return Ok(there);
        }
        let new = self.path(&format!("{name}.new"));
        remove_tree(&new)?;
        private_dir(&new)?;
        make(&new).await?;
        fs::write(new.join("ok"), recipe)?;
        nix::unistd::sync();
        remove_tree(&there)?;
        fs::rename(&new, &there)?;
        Ok(there)
    }
}

/// The first 16 hex digits of a recipe's SHA-256.
pub(crate) fn key(recipe: &str) -> String {
    Sha256::digest(recipe.as_bytes())
        .iter()
        .take(8)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

/// Makes a folder only root can look into; existing is fine.
///
/// # Errors
/// It can't be made.
pub(crate) fn private_dir(path: &Path) -> Result<()> {
    let made = fs::DirBuilder::new().recursive(true).mode(0o700).create(path);
    made.with_context(|| format!("could not make the folder {}", path.display()))
}

/// Takes a folder as ours: new, empty, or marked before.
///
/// # Errors
/// It holds something and no mark, is a link, or is another user's.
pub(crate) fn claim(path: &Path) -> Result<()> {
    private_dir(path)?;
    let meta = fs::symlink_metadata(path)?;
    if !meta.is_dir() || meta.uid() != nix::unistd::geteuid().as_raw() {
        bail!("{} is not a folder of this user", path.display());
    }
    let mark = path.join(MARK);
    if !mark.exists() {
        if fs::read_dir(path)?.next().is_some() {
            bail!("{} is not empty and was not made by the harness", path.display());
        }
        fs::set_permissions(path, fs::Permissions::from_mode(0o700))?;
        fs::write(mark, "Made by `cargo harness`, which may remove this folder.\n")?;
    }
    Ok(())
}

/// Removes a file; absent is fine.
///
/// # Errors
/// It can't be removed.
pub(crate) fn remove_file(path: &Path) -> Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(error.into()),
        Err(_) | Ok(()) => Ok(()),
    }
}

/// Removes a tree of ours. Never crosses a mount: a file system below it is an error, nothing of it is touched.
///
/// # Errors
/// Something below is another file system or can't be removed.
pub(crate) fn remove_tree(path: &Path) -> Result<()> {
    let Ok(meta) = fs::symlink_metadata(path) else {
        return Ok(());
    };
    one_device(path, meta.dev())?;
    fs::remove_dir_all(path).with_context(|| format!("could not remove {}", path.display()))
}

fn one_device(path: &Path, device: u64) -> Result<()> {
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        if !entry.file_type()?.is_dir() {
            continue;
        }
        if entry.metadata()?.dev() != device {
            bail!("{} is another file system: it stays", entry.path().display());
        }
        one_device(&entry.path(), device)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache() -> (tempfile::TempDir, Cache) {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache")).unwrap();
        (dir, cache)
    }

    #[tokio::test]
    async fn na_r29_what_failed_half_way_is_never_taken_for_the_thing() {
        let (_dir, cache) = cache();
        let half = cache.produce("thing", "recipe", async |new| {
            fs::write(new.join("part"), "half")?;
            bail!("cut")
        });
        half.await.unwrap_err();
        let whole = cache.produce("thing", "recipe", async |new| {
            assert!(!new.join("part").exists());
            Ok(fs::write(new.join("part"), "whole")?)
        });
        let there = whole.await.unwrap();
        assert_eq!(fs::read_to_string(there.join("part")).unwrap(), "whole");
        let again = cache
            .produce("thing", "recipe", async |_| bail!("made twice"))
            .await
            .unwrap();
        assert_eq!(again, there);
    }

    #[tokio::test]
    async fn another_recipe_is_another_thing() {
        let (_dir, cache) = cache();
        let one = cache.produce("thing", "one", async |_| Ok(())).await.unwrap();
        let two = cache.produce("thing", "two", async |_| Ok(())).await.unwrap();
        assert_ne!(one, two);
    }

    #[test]
    fn na_r28_a_folder_is_taken_only_when_new_empty_or_marked() {
        let dir = tempfile::tempdir().unwrap();
        let theirs = dir.path().join("theirs");
        fs::create_dir(&theirs).unwrap();
        fs::write(theirs.join("letter"), "dear").unwrap();
        claim(&theirs).unwrap_err();
        let ours = dir.path().join("ours");
        claim(&ours).unwrap();
        fs::write(ours.join("file"), "").unwrap();
        claim(&ours).unwrap();
        assert_eq!(fs::metadata(&ours).unwrap().mode() & 0o777, 0o700);
    }
}
