//! Programs that run on by themselves: started, remembered by PID *and* start time, and ended only when both still match.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::run::Run;
use crate::wait;

/// A process by what can't be taken over by another one: PID and start time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Process {
    pub(crate) pid: i32,
    /// Clock ticks since the machine's boot. Source: proc_pid_stat(5), field 22.
    started: u64,
}

impl Process {
    /// The process that has this PID now; none if there is no such one or it has ended.
    pub(crate) fn of(pid: i32) -> Option<Self> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let mut rest = stat.rsplit_once(')')?.1.split_whitespace();
        let state = rest.next()?;
        let started = rest.nth(18)?.parse().ok()?;
        (!matches!(state, "Z" | "X")).then_some(Self { pid, started })
    }

    /// This process.
    pub(crate) fn own() -> Self {
        Self::of(i32::try_from(std::process::id()).expect("a PID is an i32")).expect("we are alive")
    }

    /// Whether it still runs: the PID is there, not a zombie, and of the same start.
    pub(crate) fn alive(self) -> bool {
        Self::of(self.pid) == Some(self)
    }

    /// The PIDs of its children.
    pub(crate) fn children(self) -> Vec<i32> {
        let list = fs::read_to_string(format!("/proc/{0}/task/{0}/children", self.pid)).unwrap_or_default();
        list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect()
    }

    /// Sends it a signal, if it still is the one it was.
    pub(crate) fn signal(self, signal: Signal) {
        if self.alive() {
            // It may end between the look and the signal; its PID is not given out anew that fast.
            let _ = kill(Pid::from_raw(self.pid), signal);
        }
    }

    /// Ends it: asks, waits, and kills it if asking did not help.
    ///
    /// # Errors
    /// It outlives even SIGKILL.
    pub(crate) async fn end(self) -> Result<()> {
        self.signal(Signal::SIGTERM);
        if wait::until_true("end", Duration::from_secs(5), async || Ok(!self.alive()))
            .await
            .is_err()
        {
            self.signal(Signal::SIGKILL);
        }
        let what = format!("end of process {}", self.pid);
        wait::until_true(&what, Duration::from_secs(10), async || Ok(!self.alive())).await
    }
}

/// A server of a run; known by name, so that a later `down` finds it even after a crash.
pub(crate) struct Daemon {
    pub(crate) process: Process,
}

impl Daemon {
    /// Starts a server of the run. Its output goes to `logs/NAME.log` of the run, and it outlives us.
    ///
    /// # Errors
    /// It can't be started.
    pub(crate) fn spawn(run: &Run, name: &str, command: Command) -> Result<Self> {
        let log = fs::OpenOptions::new().create(true).append(true).open(run.log(name))?;
        let mut command = command.into_inner();
        command
            .kill_on_drop(false)
            .process_group(0)
            .stdin(std::process::Stdio::null());
        command.stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().with_context(|| format!("could not start {name}"))?;
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let process = pid
            .and_then(Process::of)
            .with_context(|| format!("{name} ended at once: see {}", run.log(name).display()))?;
        fs::write(run.pids().join(name), serde_json::to_vec(&process)?)?;
        Ok(Self { process })
    }

    /// The server of that name, if it runs.
    pub(crate) fn find(run: &Run, name: &str) -> Option<Self> {
        let process = recorded(&run.pids().join(name))?;
        process.alive().then_some(Self { process })
    }
}

/// Waits until somebody wants this process to end, and says so.
pub(crate) async fn interrupted() -> anyhow::Error {
    use tokio::signal::unix::{SignalKind, signal};
    let (Ok(mut terminate), Ok(mut hangup)) = (signal(SignalKind::terminate()), signal(SignalKind::hangup())) else {
        return anyhow::anyhow!("signals can't be caught");
    };
    tokio::select! {
        _ = tokio::signal::ctrl_c() => {}
        _ = terminate.recv() => {}
        _ = hangup.recv() => {}
    }
    anyhow::anyhow!("interrupted")
}

/// Ends every server of a run, the youngest first.
///
/// # Errors
/// One can't be ended.
pub(crate) async fn end_all(run: &Run) -> Result<()> {
    let Ok(entries) = fs::read_dir(run.pids()) else {
        return Ok(());
    };
    let mut all: Vec<_> = entries.filter_map(|entry| recorded(&entry.ok()?.path())).collect();
    all.sort_by_key(|process| std::cmp::Reverse(process.started));
    for process in all {
        process.end().await?;
    }
    Ok(())
}

fn recorded(path: &Path) -> Option<Process> {
    serde_json::from_slice(&fs::read(path).ok()?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn na_r28_a_pid_of_another_start_is_another_process() {
        let own = Process::own();
        assert!(own.alive());
        let other = Process {
            started: own.started + 1,
            ..own
        };
        assert!(!other.alive());
        other.signal(Signal::SIGKILL); // must not reach us
    }
}
