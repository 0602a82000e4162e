//! The agent of a host, looked at from the host: its unit, its container, its processes.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use image::ImageRef;

use crate::command::Output;
use crate::host::Host;
use crate::wait::{self, Stop};

/// The agent's unit.
pub(crate) const UNIT: &str = "aks-flex-node-agent.service";
/// Its container.
pub(crate) const CONTAINER: &str = "aks-flex-node-agent";
/// Where everything that the unit runs has to be, below the root of the host's control groups.
pub(crate) const GROUP: &str = "/system.slice/system-aksflex.slice/aks-flex-node-agent.service";
/// Which image it runs, if another than the settings say.
pub(crate) const SELECTION: &str = "/etc/aks-flex-node/agent-image.env";
/// The upgrade under way, while there is one.
pub(crate) const JOURNAL: &str = "/etc/aks-flex-node/agent-upgrade-signal.json";

/// `ctr` in the agent's namespace of containerd.
const CTR: [&str; 3] = ["ctr", "--namespace", "aks-flex-node"];

/// What a line of the process table looks like, if it is the daemon.
const DAEMON: &str = "/usr/bin/aks-flex-node (daemon|agent)( .*)?";

/// The mounts and rights that the units give to a container. Source: units/files/run.in.
pub(crate) const RUN: [&str; 9] = [
    "run",
    "--rm",
    "--snapshotter=overlayfs",
    "--privileged",
    "--net-host",
    "--with-ns=pid:/proc/1/ns/pid",
    "--mount=type=bind,src=/,dst=/host,options=rbind:rslave:rw",
    "--mount=type=bind,src=/run/systemd,dst=/run/systemd,options=rbind:rslave:rw",
    "--cgroup=/probe",
];

/// The agent of a host.
#[derive(Clone, Copy)]
pub(crate) struct Agent<'a> {
    host: &'a Host,
}

impl Host {
    /// Its agent, which may run or not.
    pub(crate) fn agent(&self) -> Agent<'_> {
        Agent { host: self }
    }
}

impl Agent<'_> {
    /// Every process of the host that is a daemon of the agent. The child that a daemon makes to run a tool looks like it for a moment,
    /// and is none.
    ///
    /// # Errors
    /// The host can't be looked at.
    pub(crate) async fn daemons(self) -> Result<Vec<u32>> {
        let mut daemons = self.processes(DAEMON).await?;
        if daemons.len() > 1 {
            for pid in daemons.clone() {
                let parent = format!("sed -n 's/^PPid:\\t//p' /proc/{pid}/status 2> /dev/null || true");
                match self.host.sh(&parent).await?.trim().parse() {
                    Ok(parent) if !daemons.contains(&parent) => {}
                    // It has ended, or is a daemon's child.
                    Ok(_) | Err(_) => daemons.retain(|other| *other != pid),
                }
            }
        }
        Ok(daemons)
    }

    /// Every process of the host whose whole line matches.
    ///
    /// # Errors
    /// The host can't be looked at.
    pub(crate) async fn processes(self, line: &str) -> Result<Vec<u32>> {
        let found = self.host.exec(&["pgrep", "--full", "--exact", line]).await?;
        ensure!(
            matches!(found.code, Some(0 | 1)),
            "pgrep on host {}: {found:?}",
            self.host.name()
        );
        found.stdout.lines().map(|pid| Ok(pid.parse()?)).collect()
    }

    /// The daemon's process, for all checks that need it (na_r32).
    ///
    /// # Errors
    /// There is none, or more than one.
    pub(crate) async fn daemon(self) -> Result<u32> {
        let all = self.daemons().await?;
        let [pid] = all[..] else {
            bail!("not one daemon on host {}: {all:?}", self.host.name())
        };
        Ok(pid)
    }

    /// A property of the agent's unit, as `systemctl show` prints it.
    ///
    /// # Errors
    /// systemctl's.
    pub(crate) async fn property(self, name: &str) -> Result<String> {
        let said = self
            .host
            .exec_ok(&["systemctl", "show", "--property", name, "--value", UNIT])
            .await?;
        Ok(said.trim().to_owned())
    }

    /// When the unit last became active, since the boot.
    ///
    /// # Errors
    /// systemctl's, or it never did.
    pub(crate) async fn ready_at(self) -> Result<Duration> {
        active_since(self.host, UNIT).await
    }

    /// How long the unit may take to stop.
    ///
    /// # Errors
    /// systemd does not say.
    pub(crate) async fn stop_limit(self) -> Result<Duration> {
        self.limit("TimeoutStopUSec").await
    }

    /// How long the unit may take to start.
    ///
    /// # Errors
    /// systemd does not say.
    pub(crate) async fn start_limit(self) -> Result<Duration> {
        self.limit("TimeoutStartUSec").await
    }

    async fn limit(self, name: &str) -> Result<Duration> {
        // As a number: `systemctl show` would write it for people.
        let said = self
            .host
            .exec_ok(&[
                "busctl",
                "get-property",
                "org.freedesktop.systemd1",
                "/org/freedesktop/systemd1/unit/aks_2dflex_2dnode_2dagent_2eservice",
                "org.freedesktop.systemd1.Service",
                name,
            ])
            .await?;
        let micros = said.trim().strip_prefix("t ").context("not a number")?;
        Ok(Duration::from_micros(micros.parse()?))
    }

    /// The agent's process, if there is exactly one agent: an active unit, one container with one running task, one process which is that
    /// task's. None while it is not so.
    ///
    /// # Errors
    /// There are two daemons (`Stop`), or the host can't be looked at.
    pub(crate) async fn only(self) -> Result<Option<u32>> {
        let daemons = self.daemons().await?;
        if daemons.len() > 1 {
            return Err(Stop(format!("{} daemons at once: {daemons:?}", daemons.len())).into());
        }
        let containers = self.ctr(&["containers", "list", "--quiet"]).await?;
        let tasks = self.ctr(&["tasks", "list"]).await?;
        let task: Vec<&str> = tasks.lines().skip(1).flat_map(str::split_whitespace).collect();
        let active = self.property("ActiveState").await? == "active";
        let [pid] = daemons[..] else { return Ok(None) };
        let one = containers.trim() == CONTAINER && task == [CONTAINER, &pid.to_string(), "RUNNING"];
        Ok((one && active).then_some(pid))
    }

    /// Waits until there is exactly one agent, and it is not `old`.
    ///
    /// # Errors
    /// It is not so in time, or there were two at once.
    pub(crate) async fn only_new(self, old: u32, limit: Duration) -> Result<u32> {
        let what = format!("exactly one agent, a new one, on host {}", self.host.name());
        wait::until(&what, limit, async || Ok(self.only().await?.filter(|pid| *pid != old))).await
    }

    /// Waits until a daemon, which is ready before that, has brought units and the machine's program up to itself, or has said why not.
    ///
    /// # Errors
    /// It has not in time.
    pub(crate) async fn converged(self, pid: u32, limit: Duration) -> Result<()> {
        let of = format!("_PID={pid}");
        wait::until_true(&format!("daemon {pid} has converged"), limit, async || {
            let said = self.host.journal(&["--boot", "--output=cat", &of]).await?;
            Ok(said.contains("completed task=reload-units") || said.contains("are not those of this agent"))
        })
        .await
    }

    /// What is left of the agent: containers, tasks, snapshots in use, processes. Empty if nothing is.
    ///
    /// # Errors
    /// The host can't be looked at.
    pub(crate) async fn left(self) -> Result<String> {
        let script = format!(
            "ctr -n aks-flex-node containers list -q | sed -n '/^{CONTAINER}$/s/^/container /p'
             ctr -n aks-flex-node tasks list -q | sed -n '/^{CONTAINER}$/s/^/task /p'
             ctr -n aks-flex-node snapshots list | awk '$1 == \"{CONTAINER}\" {{ print \"snapshot \" $1 }}'
             find /sys/fs/cgroup{GROUP} -name cgroup.procs -exec sed 's/^/process /' {{}} + 2> /dev/null || true
             pgrep --full --exact '{DAEMON}' | sed 's/^/daemon /' || true"
        );
        self.host.sh(&script).await
    }

    /// Runs a command in the agent's running container, beside the daemon; whatever its exit code.
    ///
    /// # Errors
    /// The host is off, or it took too long.
    pub(crate) async fn exec(self, line: &[&str]) -> Result<Output> {
        let id = exec_id();
        self.host
            .exec(&[&CTR[..], &["tasks", "exec", "--exec-id", &id, CONTAINER], line].concat())
            .await
    }

    /// Runs a command in a container of its own, made as the units make theirs, with these variables.
    ///
    /// # Errors
    /// The host is off, or it took too long.
    pub(crate) async fn run(self, image: &ImageRef, variables: &[(&str, &str)], line: &[&str]) -> Result<Output> {
        let variables: Vec<String> = variables
            .iter()
            .map(|(name, value)| format!("--env={name}={value}"))
            .collect();
        let variables: Vec<&str> = variables.iter().map(String::as_str).collect();
        let (image, id) = (image.to_string(), exec_id());
        self.host
            .exec(&[&CTR[..], &RUN, &variables, &[&image, &id], line].concat())
            .await
    }

    /// `ctr` in the agent's namespace; it must succeed.
    ///
    /// # Errors
    /// ctr's.
    pub(crate) async fn ctr(self, args: &[&str]) -> Result<String> {
        self.host.exec_ok(&[&CTR[..], args].concat()).await
    }
}

/// When a unit last became active, since the boot.
///
/// # Errors
/// systemctl's, or it never did.
pub(crate) async fn active_since(host: &Host, unit: &str) -> Result<Duration> {
    let property = "--property=ActiveEnterTimestampMonotonic";
    let said = host.exec_ok(&["systemctl", "show", property, "--value", unit]).await?;
    let micros: u64 = said.trim().parse().with_context(|| format!("{unit}: {said}"))?;
    ensure!(micros > 0, "{unit} was never active");
    Ok(Duration::from_micros(micros))
}

/// The time since the boot, as systemd's stamps count it.
///
/// # Errors
/// The host is off.
pub(crate) async fn now(host: &Host) -> Result<Duration> {
    let said = host.sh("read -r up _ < /proc/uptime; echo $up").await?;
    Ok(Duration::from_secs_f64(said.trim().parse()?))
}

/// An id that no other container or process of the agent's namespace has.
fn exec_id() -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    format!("probe-{}", NUMBER.fetch_add(1, Ordering::Relaxed))
}
