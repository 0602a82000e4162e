//! The control group of a host: everything of the host is in it, so that one write ends it all at one instant. Only for processes in a mount
//! namespace of their own (`supervisor.rs`).

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use nix::mount::{MsFlags, mount};
use nix::sys::statfs::{CGROUP2_SUPER_MAGIC, statfs};

const ROOT: &str = "/sys/fs/cgroup";

/// Sees to it that `/sys/fs/cgroup` is the cgroup2 hierarchy here, whatever the machine has there.
///
/// # Errors
/// The kernel has no cgroup2.
pub(super) fn unified() -> Result<()> {
    if statfs(ROOT)?.filesystem_type() == CGROUP2_SUPER_MAGIC {
        return Ok(());
    }
    mount(Some("cgroup2"), ROOT, Some("cgroup2"), MsFlags::empty(), None::<&str>).context("cgroup2 can't be mounted")
}

/// A control group.
pub(super) struct Group(PathBuf);

impl Group {
    pub(super) fn new(name: &str) -> Self {
        Self(Path::new(ROOT).join(name))
    }

    /// Makes it, and moves this process into it.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(super) fn enter(&self) -> Result<()> {
        fs::create_dir_all(&self.0)?;
        fs::write(self.0.join("cgroup.procs"), std::process::id().to_string())
            .context("could not enter the control group")
    }

    pub(super) fn exists(&self) -> bool {
        self.0.exists()
    }

    /// Stops every process in it, at once, and waits until all stand still.
    ///
    /// # Errors
    /// They don't within the limit.
    pub(super) fn freeze(&self) -> Result<()> {
        fs::write(self.0.join("cgroup.freeze"), "1")?;
        self.wait_event("frozen 1")
    }

    /// Kills every process in it, at once, and waits until all are gone.
    ///
    /// # Errors
    /// They aren't within the limit.
    pub(super) fn kill(&self) -> Result<()> {
        fs::write(self.0.join("cgroup.kill"), "1")?;
        self.wait_event("populated 0")
    }

    pub(super) fn populated(&self) -> bool {
        fs::read_to_string(self.0.join("cgroup.events")).is_ok_and(|events| events.contains("populated 1"))
    }

    fn wait_event(&self, event: &str) -> Result<()> {
        let what = format!("{event} in {}", self.0.display());
        wait(&what, || {
            fs::read_to_string(self.0.join("cgroup.events")).is_ok_and(|events| events.contains(event))
        })
    }

    /// Removes the groups below it; those with processes stay.
    pub(super) fn prune(&self) {
        let _ = remove_below(&self.0);
    }

    /// Removes it and all below it. A group that was ever killed must go: what is later cloned into it dies at once.
    ///
    /// # Errors
    /// Something still lives in it after the limit.
    pub(super) fn remove(&self) -> Result<()> {
        wait(&format!("removal of {}", self.0.display()), || {
            let _ = remove_below(&self.0);
            let _ = fs::remove_dir(&self.0);
            !self.exists()
        })?;
        // The run's own group goes with its last host.
        if let Some(parent) = self.0.parent().filter(|parent| *parent != Path::new(ROOT)) {
            let _ = fs::remove_dir(parent);
        }
        Ok(())
    }
}

fn remove_below(group: &Path) -> std::io::Result<()> {
    for entry in fs::read_dir(group)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            let _ = remove_below(&entry.path());
            let _ = fs::remove_dir(entry.path());
        }
    }
    Ok(())
}

fn wait(what: &str, mut done: impl FnMut() -> bool) -> Result<()> {
    let end = Instant::now() + Duration::from_secs(20);
    while !done() {
        if Instant::now() > end {
            bail!("{what}: not within 20 s");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
