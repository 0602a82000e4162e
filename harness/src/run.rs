//! A run: one bed with its network, cloud and hosts. Its state is a folder, so that what one process made another can look at and remove.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use crate::cache::{self, Cache, MARK};
use crate::process::Process;

/// A run's folder and what never changes of it.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) id: String,
    /// Its network is 10.88.N.0/24.
    pub(crate) number: u8,
    pub(crate) dir: PathBuf,
    pub(crate) cache: Cache,
}

/// `run.json`.
#[derive(Serialize, Deserialize)]
struct File {
    number: u8,
    /// Who made it: a run of `check` is over with its maker, a bed of `up` is not.
    owner: Option<Process>,
}

/// Whether a run is over when its maker is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Life {
    /// Until somebody takes it down.
    Lasting,
    /// As long as this process.
    Ours,
}

impl Run {
    /// Makes a new run.
    ///
    /// # Errors
    /// There is one of that name, or the name is not made of `a-z`, `0-9` and `-`.
    pub(crate) async fn create(cache: &Cache, id: &str, life: Life) -> Result<Self> {
        plain(id).map_err(anyhow::Error::msg)?;
        let _lock = cache.lock("runs").await?;
        let dir = cache.path("runs").join(id);
        if dir.join(MARK).exists() && !dir.join("run.json").exists() {
            // Its maker died in the lines below: nothing was made for it yet.
            cache::remove_tree(&dir)?;
        }
        if dir.exists() {
            bail!(already(id));
        }
        let taken: Vec<u8> = Self::list(cache).iter().map(|run| run.number).collect();
        let number = (1..=254)
            .find(|number| !taken.contains(number))
            .context("all 254 networks are taken")?;
        cache::claim(&dir)?;
        for below in ["hosts", "logs", "pids", "cloud"] {
            cache::private_dir(&dir.join(below))?;
        }
        let owner = match life {
            Life::Lasting => None,
            Life::Ours => Some(Process::own()),
        };
        fs::write(dir.join("run.json"), serde_json::to_vec(&File { number, owner })?)?;
        Ok(Self {
            id: id.to_owned(),
            number,
            dir,
            cache: cache.clone(),
        })
    }

    /// The run of that name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn open(cache: &Cache, id: &str) -> Result<Self> {
        let none = || format!("there is no run {id}: `cargo harness up --run {id}` makes it");
        Self::read(cache, id).with_context(none)
    }

    fn read(cache: &Cache, id: &str) -> Option<Self> {
        let dir = cache.path("runs").join(id);
        let file: File = serde_json::from_slice(&fs::read(dir.join("run.json")).ok()?).ok()?;
        Some(Self {
            id: id.to_owned(),
            number: file.number,
            dir,
            cache: cache.clone(),
        })
    }

    /// Every run there is.
    pub(crate) fn list(cache: &Cache) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(cache.path("runs")) else {
            return Vec::new();
        };
        entries
            .filter_map(|entry| Self::read(cache, entry.ok()?.file_name().to_str()?))
            .collect()
    }

    /// Whether its maker died and left it.
    pub(crate) fn abandoned(&self) -> bool {
        let file: Option<File> = fs::read(self.dir.join("run.json"))
            .ok()
            .and_then(|text| serde_json::from_slice(&text).ok());
        file.and_then(|file| file.owner).is_some_and(|owner| !owner.alive())
    }

    /// The folder of a host.
    pub(crate) fn host_dir(&self, name: &str) -> PathBuf {
        self.dir.join("hosts").join(name)
    }

    /// The cloud's folder.
    pub(crate) fn cloud_dir(&self) -> PathBuf {
        self.dir.join("cloud")
    }

    /// Where a server of that name logs to.
    pub(crate) fn log(&self, name: &str) -> PathBuf {
        self.dir.join("logs").join(format!("{name}.log"))
    }

    /// Where the servers are remembered.
    pub(crate) fn pids(&self) -> PathBuf {
        self.dir.join("pids")
    }

    /// Removes the folder, if it bears our mark.
    ///
    /// # Errors
    /// No mark, or something is still mounted below it.
    pub(crate) fn remove(&self) -> Result<()> {
        if !self.dir.join(MARK).exists() {
            bail!("{} does not bear our mark: it stays", self.dir.display());
        }
        cache::remove_tree(&self.dir)
    }
}

/// A name that a run may have.
pub(crate) fn plain(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.is_empty() || name.len() > 20 || !name.chars().all(plain) {
        return Err("a run's name is made of a-z, 0-9 and `-`, 20 at most".to_owned());
    }
    Ok(name.to_owned())
}

/// That a run of that name can't be made.
pub(crate) fn already(id: &str) -> String {
    format!("there is a run {id} already: `cargo harness down --run {id}` removes it")
}

/// Writes a file that only root may read, from its first byte on.
///
/// # Errors
/// It is there already, or can't be written.
pub(crate) fn secret(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = fs::OpenOptions::new()
        .create_new(true)
        .write(true)
        .mode(0o600)
        .open(path)
        .with_context(|| format!("could not make {}", path.display()))?;
    Ok(file.write_all(bytes)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[tokio::test]
    async fn na_r28_a_run_is_private_numbered_and_removed_only_with_its_mark() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::at(dir.path().join("cache")).unwrap();
        let one = Run::create(&cache, "one", Life::Ours).await.unwrap();
        let two = Run::create(&cache, "two", Life::Lasting).await.unwrap();
        assert_ne!(one.number, two.number);
        assert!(!one.abandoned() && !two.abandoned());
        assert_eq!(fs::metadata(&one.dir).unwrap().mode() & 0o777, 0o700);
        Run::create(&cache, "one", Life::Ours).await.unwrap_err();
        let half = cache.path("runs").join("half");
        cache::claim(&half).unwrap();
        Run::create(&cache, "half", Life::Ours).await.unwrap();
        fs::remove_file(two.dir.join(MARK)).unwrap();
        two.remove().unwrap_err();
        one.remove().unwrap();
        assert!(!one.dir.exists() && two.dir.exists());
    }

    #[test]
    fn a_name_that_would_not_do_is_refused() {
        assert!(plain("check-17").is_ok());
        for bad in ["", "a b", "Bed", "../bed", "a-name-that-is-too-long"] {
            assert!(plain(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn na_r28_a_secret_is_private_from_its_first_byte() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("key");
        secret(&path, b"x").unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        secret(&path, b"y").unwrap_err();
    }
}
