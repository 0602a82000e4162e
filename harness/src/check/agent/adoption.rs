//! What earlier starts may have left under the agent's name, every combination of it, and the start that meets it.

use std::fmt;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};

use super::AGAIN;
use crate::agent::{CONTAINER, GROUP, UNIT};
use crate::check::Context;
use crate::check::context::Depth;
use crate::host::Host;
use crate::wait;

/// What is left of an earlier start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Leftover {
    container: Container,
    snapshot: Snapshot,
    lease: Lease,
    scope: Scope,
}

/// The container's record, and the state of its task. A task without a record is no case: containerd makes a task of a record alone,
/// and `ctr` removes none that has a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    None,
    /// The folder that containerd made for a task, whose removal was cut short.
    Folder,
    NoTask,
    Running,
    Stopped,
    /// Its shim was killed: containerd finds out while the unit starts.
    Orphaned,
    /// Its shim hangs, so that containerd can't say.
    Unknown,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Snapshot {
    None,
    Left,
}

/// The leases of a pull of ours and of a `ctr run` that were both killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lease {
    None,
    Left,
}

/// A systemd scope of the agent's name, as other ways of running a container make it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scope {
    None,
    Left,
    Failed,
}

const CONTAINERS: [Container; 7] = [
    Container::None,
    Container::Folder,
    Container::NoTask,
    Container::Running,
    Container::Stopped,
    Container::Orphaned,
    Container::Unknown,
];
const AROUND: [(Lease, Scope); 6] = [
    (Lease::None, Scope::None),
    (Lease::Left, Scope::Left),
    (Lease::None, Scope::Failed),
    (Lease::Left, Scope::None),
    (Lease::None, Scope::Left),
    (Lease::Left, Scope::Failed),
];
/// At short depth every container and snapshot meets two of the six surroundings, and each of those meets four of them or more.
const SHORT: usize = 2;

/// Source: agent, containerd/lease.rs: what a pull names its lease, and how it marks it.
const PULL: (&str, &str) = ("aks-flex-node-pull-1-1", "aks-flex-node/pull=true");
const RUN: &str = "left-by-ctr-run";
const SCOPE: &str = "aks-flex-node-agent.scope";
/// Where containerd keeps what it makes for tasks of the agent's namespace.
const TASKS: &str = "/run/containerd/io.containerd.runtime.v2.task/aks-flex-node";

impl fmt::Display for Leftover {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            container,
            snapshot,
            lease,
            scope,
        } = self;
        write!(
            to,
            "container {container:?}, snapshot {snapshot:?}, lease {lease:?}, scope {scope:?}"
        )
    }
}

/// Every combination, or so many of each container's that all are met.
fn leftovers(depth: Depth) -> Vec<Leftover> {
    let around = match depth {
        Depth::Short => SHORT,
        Depth::Full => AROUND.len(),
    };
    let mut all = Vec::new();
    for (number, container) in CONTAINERS.into_iter().enumerate() {
        for (half, snapshot) in [Snapshot::None, Snapshot::Left].into_iter().enumerate() {
            for turn in 0..around {
                let (lease, scope) = AROUND[(2 * number + half + turn * AROUND.len() / around) % AROUND.len()];
                all.push(Leftover {
                    container,
                    snapshot,
                    lease,
                    scope,
                });
            }
        }
    }
    all
}

/// Whatever was left, the next start is the only agent, and nothing of it remains.
pub(super) async fn fc_c1_fc_c4_fc_c5_fc_c6_adoption(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let line = unit_line(&host).await?;
    for leftover in leftovers(context.depth) {
        stop(&host).await?;
        leave(&host, leftover, &line)
            .await
            .with_context(|| format!("leaving {leftover}"))?;
        starts(&host).await.with_context(|| format!("after {leftover}"))?;
        host.sh(&format!(
            "ctr -n aks-flex-node leases rm {RUN} > /dev/null 2>&1 || true
             systemctl stop {SCOPE} 2> /dev/null || true; systemctl reset-failed {SCOPE} 2> /dev/null || true"
        ))
        .await?;
    }
    Ok(())
}

/// The words of the `ctr run` that is the unit's main process.
async fn unit_line(host: &Host) -> Result<Vec<String>> {
    let main = host.agent().property("MainPID").await?;
    let words = host.read_file(&format!("/proc/{main}/cmdline")).await?;
    let words: Vec<String> = words.split_terminator('\0').map(str::to_owned).collect();
    ensure!(
        words.iter().any(|word| word == "--rm") && words.iter().any(|word| word == CONTAINER),
        "the unit runs {words:?}"
    );
    Ok(words)
}

async fn stop(host: &Host) -> Result<()> {
    host.exec_ok(&["systemctl", "stop", UNIT]).await?;
    let left = host.agent().left().await?;
    ensure!(left.is_empty(), "after a stop there is {left}");
    Ok(())
}

/// Makes it, with the host's `ctr` and by killing things.
async fn leave(host: &Host, leftover: Leftover, line: &[String]) -> Result<()> {
    let agent = host.agent();
    match leftover.container {
        Container::None => {}
        Container::Folder => drop(
            host.exec_ok(&["mkdir", "--parents", &format!("{TASKS}/{CONTAINER}/rootfs")])
                .await?,
        ),
        Container::NoTask => {
            let image = line
                .iter()
                .find(|word| word.contains("@sha256:"))
                .context("the unit runs no image")?;
            agent
                .ctr(&["containers", "create", "--snapshotter=overlayfs", image, CONTAINER])
                .await?;
        }
        // As the unit runs it, but that nobody waits for it: the agent itself, in the unit's group.
        Container::Running | Container::Stopped | Container::Orphaned | Container::Unknown => {
            let mut words: Vec<&str> = vec!["sh", "-c", "exec \"$@\" < /dev/null > /dev/null", "sh"];
            words.extend(line.iter().map(|word| match word.as_str() {
                "--rm" => "--detach",
                other => other,
            }));
            host.exec_ok(&words).await?;
        }
    }
    let shim = shims(host).await?;
    let signal = |signal: &'static str| {
        let shim = shim.first().map(u32::to_string);
        async move {
            let shim = shim.context("it has no shim")?;
            host.exec_ok(&["kill", signal, &shim]).await.map(drop)
        }
    };
    match (leftover.container, leftover.snapshot) {
        (Container::None | Container::Folder, Snapshot::Left) => {
            drop(agent.ctr(&["snapshots", "prepare", CONTAINER]).await?)
        }
        (Container::None | Container::Folder, Snapshot::None) | (_, Snapshot::Left) => {}
        (_, Snapshot::None) => drop(agent.ctr(&["snapshots", "rm", CONTAINER]).await?),
    }
    match leftover.container {
        Container::None | Container::Folder | Container::NoTask | Container::Running => {}
        Container::Stopped => {
            agent.ctr(&["tasks", "kill", "--signal", "SIGKILL", CONTAINER]).await?;
            task_is(host, "STOPPED").await?;
        }
        Container::Orphaned => signal("-KILL").await?,
        Container::Unknown => {
            signal("-STOP").await?;
            task_is(host, "UNKNOWN").await?;
        }
    }
    if leftover.lease == Lease::Left {
        agent.ctr(&["leases", "create", "--id", PULL.0, PULL.1]).await?;
        agent.ctr(&["leases", "create", "--id", RUN, "--expires=24h"]).await?;
    }
    let lasts = match leftover.scope {
        Scope::None => return Ok(()),
        Scope::Left => "infinity",
        // A scope that is ended by its limit stays loaded, as failed.
        Scope::Failed => "50ms",
    };
    let make = format!(
        "systemd-run --quiet --scope --unit={SCOPE} --property=RuntimeMaxSec={lasts} sleep 3600 < /dev/null > /dev/null 2>&1 &"
    );
    host.sh(&make).await?;
    let state = match leftover.scope {
        Scope::Failed => "failed",
        Scope::None | Scope::Left => "active",
    };
    wait::until_true(&format!("{SCOPE} is {state}"), AGAIN, async || {
        let is = host.exec(&["systemctl", "is-active", SCOPE]).await?.stdout;
        if is.trim() == "inactive" {
            // systemd was reloaded meanwhile, and forgot that the scope's end was a failure.
            host.sh(&make).await?;
        }
        Ok(is.trim() == state)
    })
    .await
}

async fn task_is(host: &Host, state: &str) -> Result<()> {
    wait::until_true(&format!("the task is {state}"), AGAIN, async || {
        let tasks = host.agent().ctr(&["tasks", "list"]).await?;
        Ok(tasks
            .lines()
            .any(|line| line.starts_with(CONTAINER) && line.trim_end().ends_with(state)))
    })
    .await
}

/// The shims of the agent's container.
async fn shims(host: &Host) -> Result<Vec<u32>> {
    let line = format!("/[^ ]*containerd-shim-runc-v2 .*-id {CONTAINER} .*");
    host.agent().processes(&line).await
}

/// The unit starts at once, as the only agent; nothing that was left is there any more.
async fn starts(host: &Host) -> Result<()> {
    let agent = host.agent();
    let old = agent.daemons().await?;
    let limit = agent.start_limit().await?;
    let cursor = host
        .exec_ok(&["journalctl", "--lines=1", "--output=cat", "--show-cursor"])
        .await?;
    let cursor = cursor
        .lines()
        .find_map(|line| line.strip_prefix("-- cursor: "))
        .context("the journal has no cursor")?;
    let start = Instant::now();
    let started = host.exec_within(limit * 2, &["systemctl", "start", UNIT]).await?;
    let took = start.elapsed();
    let said = host
        .exec_ok(&[
            "journalctl",
            "--quiet",
            "--output=cat",
            "--unit",
            UNIT,
            "--after-cursor",
            cursor,
        ])
        .await?;
    ensure!(started.ok(), "the unit does not start, in {took:?}: {said}");
    ensure!(took < limit, "the start took {took:?}, of {limit:?}: {said}");
    if let Some(line) = said.lines().find(|line| line.contains("already exists")) {
        bail!("it says {line:?}");
    }
    let restarts = agent.property("NRestarts").await?;
    ensure!(restarts == "0", "it needed {restarts} more starts: {said}");
    let pid = wait::until("exactly one agent", AGAIN, async || agent.only().await).await?;
    ensure!(!old.contains(&pid), "the old agent runs on");
    let group = host.sh(&format!("sed -n 's/^0:://p' /proc/{pid}/cgroup")).await?;
    ensure!(
        group.trim().strip_prefix(GROUP) == Some("/payload"),
        "it runs in {group}"
    );
    let shims = shims(host).await?;
    ensure!(shims.len() == 1, "there are {} shims: {shims:?}", shims.len());
    let snapshots = agent.ctr(&["snapshots", "list"]).await?;
    let active: Vec<_> = snapshots
        .lines()
        .filter(|line| line.trim_end().ends_with("Active"))
        .collect();
    ensure!(active.len() == 1, "snapshots in use: {snapshots}");
    wait::until_true("a dead pull's lease is gone", AGAIN, async || {
        Ok(!agent.ctr(&["leases", "list", "--quiet"]).await?.contains(PULL.0))
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_combination_is_met_once_and_the_short_depth_meets_each_part_of_it() {
        let full = leftovers(Depth::Full);
        assert_eq!(full.len(), 84);
        assert!(full.iter().enumerate().all(|(at, one)| !full[..at].contains(one)));
        let short = leftovers(Depth::Short);
        assert_eq!(short.len(), 28);
        for (lease, scope) in AROUND {
            let met = short.iter().filter(|one| (one.lease, one.scope) == (lease, scope));
            assert!(met.count() >= 4, "{lease:?} {scope:?}");
        }
    }
}
