//! Who dies, and how: by signals and by the host's power, both from outside.

use std::fmt;
use std::fs;

use anyhow::Result;
use nix::sys::signal::Signal;

use crate::agent::GROUP;
use crate::host::Outside;
use crate::process::Process;

/// The control group of the recovery unit.
const RECOVERY: &str = "/system.slice/system-aksflex.slice/aks-flex-node-agent-recovery.service";
const CONTAINERD: &str = "/system.slice/containerd.service";

/// What is killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Victim {
    /// The main process of the agent that is to be replaced, or that has come back.
    Daemon,
    /// The `ctr` that is the main process of the agent's unit.
    Ctr,
    /// Every process of the agent's container.
    Container,
    /// The host's containerd; its shims live on.
    Containerd,
    /// The candidate's main process.
    Candidate,
    /// Every process of the recovery unit's container.
    Recovery,
    /// The host's power: all of it, and what was not synced.
    Power,
}

impl Victim {
    pub(super) const ALL: [Self; 7] = [
        Self::Daemon,
        Self::Ctr,
        Self::Container,
        Self::Containerd,
        Self::Candidate,
        Self::Recovery,
        Self::Power,
    ];

    /// Kills it, and says which processes were hit; none if it is not there. Of the power: everything stands still, and `Host::power_cut`
    /// has to follow.
    ///
    /// # Errors
    /// The host can't be frozen.
    pub(super) fn strike(self, outside: &Outside) -> Result<Option<Vec<Process>>> {
        if self == Self::Power {
            outside.freeze()?;
            return Ok(Some(Vec::new()));
        }
        let hit: Vec<Process> = self.find(outside).into_iter().filter_map(Process::of).collect();
        for process in &hit {
            process.signal(Signal::SIGKILL);
        }
        Ok((!hit.is_empty()).then_some(hit))
    }

    /// Whether what it does at the moment decides about files: then a blow that comes after the file was replaced came too late.
    pub(super) fn writes(self) -> bool {
        match self {
            Self::Daemon | Self::Container | Self::Candidate | Self::Recovery | Self::Power => true,
            Self::Ctr | Self::Containerd => false,
        }
    }

    fn find(self, outside: &Outside) -> Vec<i32> {
        let among = |group: &str, is: fn(&[&str]) -> bool| {
            let mut found = outside.processes(group);
            found.retain(|pid| with_line(*pid, is));
            found
        };
        match self {
            Self::Daemon | Self::Candidate => daemon(outside).into_iter().collect(),
            Self::Ctr => among(&format!("{GROUP}/supervisor"), |line| {
                line.first().is_some_and(|program| program.ends_with("ctr")) && line.contains(&"run")
            }),
            Self::Container => outside.processes(&format!("{GROUP}/payload")),
            Self::Containerd => among(CONTAINERD, |line| {
                line.first().is_some_and(|program| program.ends_with("/containerd"))
            }),
            Self::Recovery => outside.processes(&format!("{RECOVERY}/payload")),
            Self::Power => Vec::new(),
        }
    }
}

/// The daemon of the agent's container, whichever image it is of.
pub(super) fn daemon(outside: &Outside) -> Option<i32> {
    let mut found = outside.processes(&format!("{GROUP}/payload"));
    found.retain(|pid| with_line(*pid, |line| line.get(1) == Some(&"daemon")));
    found.first().copied()
}

/// Whether the recovery unit's command runs.
pub(super) fn recovers(outside: &Outside) -> bool {
    let mut found = outside.processes(&format!("{RECOVERY}/payload")).into_iter();
    found.any(|pid| with_line(pid, |line| line.get(1) == Some(&"recover-agent-upgrade")))
}

fn with_line(pid: i32, is: impl Fn(&[&str]) -> bool) -> bool {
    let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    is(&line.split('\0').collect::<Vec<_>>())
}

impl fmt::Display for Victim {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            Self::Daemon => "daemon",
            Self::Ctr => "ctr",
            Self::Container => "container",
            Self::Containerd => "containerd",
            Self::Candidate => "candidate",
            Self::Recovery => "recovery",
            Self::Power => "power",
        })
    }
}
