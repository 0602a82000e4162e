//! A host as the computer sees it: its files and control groups by paths of ours, its processes by our numbers. For looks and blows that
//! can't wait for a program to enter it. The paths die with the boot they were made for.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::Host;

/// A host that is on, for as long as this boot lasts.
#[derive(Clone, Debug)]
pub(crate) struct Outside {
    /// Its `/`, with all that is mounted there.
    pub(crate) root: PathBuf,
    /// The control group of all that is the host's.
    group: PathBuf,
}

impl Host {
    /// The host from outside.
    ///
    /// # Errors
    /// It is off.
    pub(crate) fn outside(&self) -> Result<Outside> {
        let off = || format!("host {} is off", self.plan.name);
        let supervisor = self.supervisor().with_context(off)?;
        let leader = self.leader().with_context(off)?;
        Ok(Outside {
            root: format!("/proc/{}/root", leader.pid).into(),
            group: format!("/proc/{}/root/sys/fs/cgroup/{}", supervisor.pid, self.plan.group).into(),
        })
    }
}

impl Outside {
    /// The control group that the host itself names so: `/system.slice/…`.
    pub(crate) fn group(&self, name: &str) -> PathBuf {
        self.group.join("payload").join(name.trim_start_matches('/'))
    }

    /// The processes of a control group and of those below it, by our numbers; none if it is not there.
    pub(crate) fn processes(&self, group: &str) -> Vec<i32> {
        let mut found = Vec::new();
        collect(&self.group(group), &mut found);
        found
    }

    /// Stops every process of the host, at once: what comes after, `power_cut`, finds it as it stands now.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn freeze(&self) -> io::Result<()> {
        fs::OpenOptions::new()
            .write(true)
            .open(self.group.join("cgroup.freeze"))
            .and_then(|mut file| io::Write::write_all(&mut file, b"1"))
    }

    /// Whether every process of the host stands still.
    pub(crate) fn is_frozen(&self) -> bool {
        fs::read_to_string(self.group.join("cgroup.events")).is_ok_and(|events| events.contains("frozen 1"))
    }
}

fn collect(group: &Path, found: &mut Vec<i32>) {
    let list = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    found.extend(list.lines().filter_map(|pid| pid.parse::<i32>().ok()));
    let Ok(entries) = fs::read_dir(group) else { return };
    for entry in entries.flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            collect(&entry.path(), found);
        }
    }
}
