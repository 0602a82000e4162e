//! `agent.*`: the agent's unit and its container live and end as one, whatever ends them, and the node does not notice.

mod adoption;

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};

use super::context::Depth;
use super::{Check, Context, check};
use crate::agent::{self, GROUP, SELECTION, UNIT};
use crate::agent_image::Variant;
use crate::host::{Disk, Host, Refusal};
use crate::node::READY;
use crate::wait;

pub(super) const CHECKS: [Check; 7] = [
    check!("agent.leaves-node-alone", Cloud, 600, leaves_node_alone),
    check!("agent.leftovers", Cloud, 600, leftovers),
    check!("agent.adoption", Cloud, 900, adoption::fc_c1_fc_c4_fc_c5_fc_c6_adoption),
    check!("agent.stop-stubborn", Cloud, 600, stop_stubborn),
    check!("agent.cgroup", Cloud, 600, cgroup),
    check!("agent.watchdog", Cloud, 600, watchdog),
    check!("agent.converges", Cloud, 600, converges),
];

/// Within this there is one agent again, after whatever happened to it.
const AGAIN: Duration = Duration::from_secs(10);

/// What the end of a unit may take beyond its own limit.
const MARGIN: Duration = Duration::from_secs(10);

/// na_t07: a daemon that does not hear SIGTERM ends with its unit, leaves nothing, and the unit starts again.
async fn stop_stubborn(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let agent = host.agent();
    let limit = agent.stop_limit().await?;
    let deaf = context.variant(Variant::Stubborn).await?;
    host.sh(&format!(
        "cp -a {SELECTION} /run/selection 2> /dev/null || true; : > /run/before"
    ))
    .await?;
    let selection = format!("AKS_FLEX_NODE_AGENT_IMAGE={deaf}\n");
    host.write_file(SELECTION, selection, 0o600).await?;
    restart(&host).await?;
    let took = stopped(&host, limit)
        .await
        .context("a daemon that is deaf to SIGTERM")?;
    ensure!(took >= limit, "it ended by itself after {took:?}");
    // Killed, not aborted: an abort would leave its memory in a file.
    let by = agent.property("ExecMainStatus").await?;
    ensure!(by == "9", "ctr ended by {by}, not by SIGKILL");
    host.sh(&format!(
        "if [ -e /run/selection ]; then mv /run/selection {SELECTION}; else rm {SELECTION}; fi"
    ))
    .await?;
    start(&host).await?;
    if context.depth == Depth::Full {
        let pid = agent.daemon().await?.to_string();
        host.exec_ok(&["kill", "-STOP", &pid]).await?;
        // systemd sends SIGCONT after SIGTERM, and `ctr` passes both on: it may thaw and end in time.
        stopped(&host, limit).await.context("a daemon that is frozen")?;
        start(&host).await?;
    }
    let cores = host
        .sh("find / /var/lib/machines -xdev -newer /run/before -type f \\( -name core -o -name 'core.*' \\) 2> /dev/null || true")
        .await?;
    ensure!(cores.is_empty(), "memory was written to {cores}");
    agent.ctr(&["images", "rm", &deaf.to_string()]).await?;
    Ok(())
}

/// Stops the unit, within its limit; nothing is left of it. How long it took.
async fn stopped(host: &Host, limit: Duration) -> Result<Duration> {
    let agent = host.agent();
    let start = Instant::now();
    host.exec_within(limit + MARGIN * 3, &["systemctl", "stop", UNIT])
        .await?;
    let took = start.elapsed();
    ensure!(took < limit + MARGIN, "the stop took {took:?}, of {limit:?}");
    let state = agent.property("ActiveState").await?;
    ensure!(state != "active", "the unit is {state}");
    let left = agent.left().await?;
    ensure!(left.is_empty(), "after the stop there is {left}");
    Ok(took)
}

async fn start(host: &Host) -> Result<()> {
    host.exec_ok(&["systemctl", "start", UNIT]).await?;
    alone(host).await
}

async fn restart(host: &Host) -> Result<()> {
    host.exec_ok(&["systemctl", "restart", UNIT]).await?;
    alone(host).await
}

/// Waits until nothing but the agent itself is left of a start: recovery and hooks have ended.
async fn alone(host: &Host) -> Result<()> {
    wait::until_true("exactly one agent", AGAIN, async || {
        Ok(host.agent().only().await?.is_some())
    })
    .await
}

/// Whatever kills a part of the agent, there is exactly one again soon.
async fn leftovers(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    joining.options.disk = Disk::Image(6144);
    let host = context.boot(&joining).await?;
    context.is_joined(&host).await?;
    let agent = host.agent();
    alone(&host).await?;
    let kill_daemon = "kill -KILL $(pgrep --full --exact '/usr/bin/aks-flex-node daemon .*')";
    for (what, how) in [
        (
            "SIGKILL of ctr",
            format!("systemctl kill --kill-whom=main --signal=KILL {UNIT}"),
        ),
        ("SIGKILL of the container's process", kill_daemon.to_owned()),
        (
            "a restart of containerd",
            "systemctl restart containerd.service".to_owned(),
        ),
    ] {
        let old = agent.daemon().await?;
        let at = agent::now(&host).await?;
        host.sh(&how).await.context(what)?;
        agent.only_new(old, AGAIN * 3).await.context(what)?;
        let took = agent.ready_at().await?.saturating_sub(at);
        ensure!(took <= AGAIN, "after {what} an agent was ready only after {took:?}");
    }
    host.power_cut().await?;
    host.start().await?;
    host.wait_booted().await?;
    agent.only_new(0, AGAIN * 4).await.context("a power cut")?;
    let containerd = agent::active_since(&host, "containerd.service").await?;
    let took = agent.ready_at().await?.saturating_sub(containerd);
    ensure!(
        took <= AGAIN,
        "after a power cut an agent was ready only {took:?} after containerd"
    );
    Ok(())
}

/// na_r07: what the container runs is in its unit's group: the daemon, and tools that it runs in the host, with and without a change of the
/// mount namespace.
async fn cgroup(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let agent = host.agent();
    let daemon = agent.daemon().await?;
    let below_root = "journalctl --follow --lines=0 --unit=probe-cgroup";
    let among_mounts = "findmnt --poll /probe-cgroup";
    let mut pids = vec![daemon];
    for (id, line) in [("group-root", below_root), ("group-mounts", among_mounts)] {
        host.sh(&format!(
            "ctr -n aks-flex-node tasks exec --exec-id {id} {} /usr/bin/host-exec {line} < /dev/null > /dev/null 2>&1 &",
            agent::CONTAINER
        ))
        .await?;
        let found = wait::until(line, AGAIN, async || Ok(agent.processes(line).await?.first().copied())).await?;
        pids.push(found);
    }
    // Whatever else has the container's mounts is the container's too.
    let same = host
        .sh(&format!(
            "ns=$(readlink /proc/{daemon}/ns/mnt)
             for p in /proc/[0-9]*; do [ \"$(readlink $p/ns/mnt 2> /dev/null)\" != \"$ns\" ] || echo ${{p#/proc/}}; done"
        ))
        .await?;
    for line in same.lines() {
        pids.push(line.parse()?);
    }
    ensure!(
        pids.len() >= 5,
        "the daemon and a tool have the container's mounts: {pids:?}"
    );
    // The daemon and the two tools; what else there was may have ended since.
    let known: Vec<u32> = pids.iter().take(3).copied().collect();
    for pid in pids {
        let group = host
            .sh(&format!("sed -n 's/^0:://p' /proc/{pid}/cgroup 2> /dev/null || :"))
            .await?;
        let group = group.trim();
        if group.is_empty() && !known.contains(&pid) {
            continue;
        }
        ensure!(
            group.strip_prefix(GROUP).is_some_and(|rest| rest.starts_with('/')),
            "process {pid} is in {group}"
        );
    }
    for id in ["group-root", "group-mounts"] {
        agent
            .ctr(&[
                "tasks",
                "kill",
                "--exec-id",
                id,
                "--signal",
                "SIGTERM",
                agent::CONTAINER,
            ])
            .await?;
    }
    Ok(())
}

/// na_t08, the node's side: neither restarts of the agent nor its upgrade touch the machine or what runs in it.
async fn leaves_node_alone(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let cluster = &context.cloud().cluster;
    let pod = format!("calm-{}", host.name());
    cluster
        .pod(&pod, host.name(), &context.cloud().images.busybox.to_string())
        .await?;
    cluster.pod_running(&pod, READY).await?;
    let before = residents(&host).await?;
    for name in ["kubelet", "containerd", "httpd"] {
        ensure!(
            before.lines().any(|line| line.split(' ').nth(2) == Some(name)),
            "no {name} among\n{before}"
        );
    }
    let times = context.times.unwrap_or(5);
    for time in 1..=times {
        let old = host.agent().daemon().await?;
        restart(&host).await?;
        ensure!(host.agent().daemon().await? != old, "restart {time} did nothing");
    }
    ensure!(
        residents(&host).await? == before,
        "{times} restarts changed\n{before}into\n{}",
        residents(&host).await?
    );
    let second = context.variant(Variant::Second).await?;
    let over = context.upgrade(&host, &second).await?;
    ensure!(over.phase() == "Complete", "the upgrade: {}", over.text());
    ensure!(
        residents(&host).await? == before,
        "an upgrade changed\n{before}into\n{}",
        residents(&host).await?
    );
    ensure!(cluster.is_ready(host.name()).await?, "the node is not Ready");
    Ok(())
}

/// Kubelet, the machine's containerd and its init, and every process of pods: PID, start time, name. What comes and goes is left out.
async fn residents(host: &Host) -> Result<String> {
    let script = r#"
        for p in /proc/[0-9]*; do
            group=$(sed -n 's/^0:://p' $p/cgroup 2> /dev/null) || continue
            case $group in *kube1*) ;; *) continue ;; esac
            stat=$(cat $p/stat 2> /dev/null) || continue
            name=${stat#*\(}; name=${name%\)*}
            case $name in kubelet | containerd | containerd-shim* | pause | httpd | systemd) ;; *) continue ;; esac
            set -- ${stat##*\)}
            # Source: proc_pid_stat(5); after the name, field 22 is the 20th.
            echo "${p#/proc/} ${20} $name"
        done | sort -n"#;
    host.sh(script).await
}

/// A daemon that says nothing any more is ended by systemd's watchdog, and one agent is there again.
async fn watchdog(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let agent = host.agent();
    let old = agent.daemon().await?;
    host.exec_ok(&["kill", "-STOP", &old.to_string()]).await?;
    let limit = Duration::from_secs(60) + agent.stop_limit().await? + AGAIN + MARGIN;
    agent.only_new(old, limit).await.map(drop)
}

/// na_r10, na_r11: a daemon that gets no credentials still brings its units and the machine's program up to date, and has
/// systemd read them.
async fn converges(context: &Context) -> Result<()> {
    const RECOVERY: &str = "/etc/systemd/system/aks-flex-node-agent-recovery.service";
    const PROGRAM: &str = "/var/lib/machines/kube1/usr/local/bin/aks-flex-node";
    const CREDENTIALS: &str = "/etc/aks-flex-node/daemon-credentials";
    let host = context.shared().await?;
    let unit = host.read_file(RECOVERY).await?;
    let sum = async || host.exec_ok(&["sha256sum", PROGRAM]).await;
    let program = sum().await?;
    let api = format!("{}:6443", context.bed.net.gateway());
    host.block(&api, Refusal::Reset).await?;
    host.sh(&format!(
        "mv {CREDENTIALS} /etc/aks-flex-node/aside; echo '# tampered with' >> {RECOVERY}; echo >> {PROGRAM}; systemctl daemon-reload"
    ))
    .await?;
    restart(&host).await?;
    host.agent().converged(host.agent().daemon().await?, AGAIN).await?;
    ensure!(host.read_file(RECOVERY).await? == unit, "the unit is not what it was");
    ensure!(sum().await? == program, "the machine's program is not what it was");
    let stale = host
        .exec_ok(&[
            "systemctl",
            "show",
            "--value",
            "--property=NeedDaemonReload",
            "aks-flex-node-agent-recovery.service",
        ])
        .await?;
    ensure!(stale.trim() == "no", "systemd was not told to read the units: {stale}");
    host.sh(&format!(
        "rm -rf {CREDENTIALS}; mv /etc/aks-flex-node/aside {CREDENTIALS}"
    ))
    .await?;
    host.unblock(&api).await?;
    restart(&host).await
}
