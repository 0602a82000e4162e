//! containerd restarts, stays away, hangs or comes late, in every phase of an upgrade and at boot: one agent in the end, and a true end.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use image::ImageRef;

use super::OVER;
use super::asked::insist_on;
use super::state::{State, journal};
use crate::agent::{self, UNIT};
use crate::agent_image::Variant;
use crate::check::Context;
use crate::cloud::registry;
use crate::host::{Host, Refusal};
use crate::wait;

const CONTAINERD: &str = "containerd.service";
const RECOVERY: &str = "aks-flex-node-agent-recovery.service";
/// Once containerd answers again there is an agent within this.
const AGAIN: Duration = Duration::from_secs(60);
/// What a boot's containerd may take.
const LATE: Duration = Duration::from_secs(60);
const BOOT: Duration = Duration::from_secs(180);
/// What the agent's unit says once while containerd does not answer. Source: units/files/containerd.in.
const WAITS: &str = "waiting for containerd";

/// A moment of an upgrade, and how the host sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pull,
    Check,
    Switched,
    Judging,
    Back,
}

impl Phase {
    /// A condition of shell.
    fn is_now(self) -> &'static str {
        match self {
            Self::Pull => {
                r#"grep -q '"phase":"staging"' $journal && ctr -n aks-flex-node leases list -q | grep -q pull"#
            }
            // The check's output comes through it.
            Self::Check => "[ -e /run/aks-flex-node-agent-check.pipe ]",
            Self::Switched => r#"grep -q '"phase":"switched"' $journal"#,
            Self::Judging => r#"grep -q '"phase":"judging"' $journal"#,
            Self::Back => r#"grep -q '"phase":"back"' $journal"#,
        }
    }
}

/// What becomes of containerd then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Restart,
    /// It can't be started for a while.
    Absence,
}

/// Every case on one host.
pub(super) async fn fc_c3_fc_c4_fc_c17_containerd(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    for phase in [Phase::Pull, Phase::Check, Phase::Switched, Phase::Judging, Phase::Back] {
        for fault in [Fault::Restart, Fault::Absence] {
            in_phase(context, &host, phase, fault)
                .await
                .with_context(|| format!("{fault:?} of containerd, {phase:?}"))?;
        }
    }
    hung_shim(&host).await.context("a shim that hangs")?;
    hung_check(context, &host)
        .await
        .context("the shim of a check that hangs")?;
    late(&host).await.context("containerd late at boot")
}

/// The operation ends, and its end is what is so.
async fn in_phase(context: &Context, host: &Host, phase: Phase, fault: Fault) -> Result<()> {
    let from = State::of(host).await?.image;
    let candidate = match phase {
        Phase::Pull | Phase::Check | Phase::Switched | Phase::Judging => other(context, &from).await?,
        Phase::Back => context.variant(Variant::Exits).await?,
    };
    let registry = format!("{}:{}", context.bed.net.gateway(), registry::PORT);
    if phase == Phase::Pull {
        // So that it has to be pulled, and takes until the registry answers.
        let _ = host.agent().ctr(&["images", "rm", &candidate.to_string()]).await;
        host.block(&registry, Refusal::Silence).await?;
    }
    let hit = hit(host, phase, fault);
    let asked = insist_on(context, host, &candidate);
    let (hit, asked) = tokio::join!(hit, asked);
    let asked = asked?;
    if fault == Fault::Absence {
        let left = stays_away(host).await;
        host.sh(&format!(
            "systemctl unmask --runtime {CONTAINERD}; systemctl start {CONTAINERD}"
        ))
        .await?;
        left?;
    }
    if phase == Phase::Pull {
        host.unblock(&registry).await?;
    }
    hit.context("the moment was not met")?;
    let seen = asked.over(context, OVER).await?;
    let runs = match (seen.over.phase(), phase) {
        ("Complete", Phase::Pull | Phase::Check | Phase::Switched | Phase::Judging) => &candidate,
        // Whether containerd or the candidate failed can't always be told; what is said must be so.
        ("Failed", Phase::Switched | Phase::Judging | Phase::Back) => &from,
        (end, _) => bail!("it ended {end}, {}: {}", seen.over.reason(), seen.over.message()),
    };
    // The unit may be between two agents: ctr ends with its containerd.
    wait::until_true("the agent that the operation's end names", AGAIN, async || {
        State::of(host).await?.runs(runs)?;
        Ok(true)
    })
    .await?;
    // What a recovery left whose containerd went away is removed when one starts again.
    host.exec_ok(&["systemctl", "start", RECOVERY]).await?;
    let only = wait::until("exactly one agent", AGAIN, async || host.agent().only().await).await?;
    ensure!(State::of(host).await?.pid == only, "the agent was restarted once more");
    wait::until_true(
        "the journal is idle and nothing of the upgrade is left",
        AGAIN,
        async || {
            let leases = host.agent().ctr(&["leases", "list", "--quiet"]).await?;
            Ok(journal(host).await?.is_none() && !leases.contains("aks-flex-node-pull"))
        },
    )
    .await
}

/// A good image that does not run.
async fn other(context: &Context, than: &ImageRef) -> Result<ImageRef> {
    let second = context.variant(Variant::Second).await?;
    if second == *than {
        context.variant(Variant::Third).await
    } else {
        Ok(second)
    }
}

/// Waits for the moment in the host itself, since it may be short, and does it.
async fn hit(host: &Host, phase: Phase, fault: Fault) -> Result<()> {
    let fault = match fault {
        Fault::Restart => format!("systemctl restart {CONTAINERD}"),
        Fault::Absence => format!("systemctl mask --quiet --runtime --now {CONTAINERD}"),
    };
    let script = format!(
        "journal=/etc/aks-flex-node/agent-upgrade-signal.json
         until {} 2> /dev/null; do sleep 0.01; done; {fault}",
        phase.is_now()
    );
    let hit = host.exec_within(OVER, &["bash", "-c", &script]).await?;
    ensure!(hit.ok(), "{hit:?}");
    Ok(())
}

/// The agent's unit waits for containerd, and says so once.
async fn stays_away(host: &Host) -> Result<()> {
    wait::until_true("the unit waits for containerd", AGAIN, async || {
        let invocation = host.agent().property("InvocationID").await?;
        let of = format!("_SYSTEMD_INVOCATION_ID={invocation}");
        let said = host.journal(&["--output=cat", &of]).await?;
        Ok(said.lines().filter(|line| line.contains(WAITS)).count() == 1)
    })
    .await
}

/// Neither a stop nor a restart of the unit hangs with the shim.
async fn hung_shim(host: &Host) -> Result<()> {
    let agent = host.agent();
    let (stop, start) = (agent.stop_limit().await?, agent.start_limit().await?);
    // The limit of a stop holds for the end of what runs, and then for the clearing of its place.
    for (verb, limit) in [("restart", stop * 2 + start), ("stop", stop * 2)] {
        let old = agent.daemon().await?;
        host.sh(&format!("kill -STOP $(pgrep --full -- '[-]id {} ')", agent::CONTAINER))
            .await?;
        let begin = Instant::now();
        let done = host.exec_within(limit * 2, &["systemctl", verb, UNIT]).await?;
        let took = begin.elapsed();
        ensure!(done.ok(), "{verb}: {done:?}");
        ensure!(took <= limit, "the {verb} took {took:?}, of {limit:?}");
        if verb == "stop" {
            let left = agent.left().await?;
            ensure!(left.is_empty(), "after the stop there is {left}");
            host.exec_ok(&["systemctl", "start", UNIT]).await?;
        }
        agent.only_new(old, AGAIN).await?;
    }
    Ok(())
}

/// A candidate is not to blame for a shim that hangs under its check, which is done anew; and nothing of it is in the next one's way.
async fn hung_check(context: &Context, host: &Host) -> Result<()> {
    let before = State::of(host).await?.image;
    let candidate = other(context, &before).await?;
    // The shim itself: what starts it names its socket before the container.
    let script = "task=/run/containerd/io.containerd.runtime.v2.task/aks-flex-node/aks-flex-node-agent-check
        until [ -e $task/address ]; do sleep 0.01; done
        kill -STOP $(pgrep --full -- '[-]id aks-flex-node-agent-check -address')";
    let line = ["bash", "-c", script];
    let hang = host.exec_within(OVER, &line);
    let (hung, asked) = tokio::join!(hang, insist_on(context, host, &candidate));
    let (hung, asked) = (hung?, asked?);
    ensure!(hung.ok(), "{hung:?}");
    let seen = asked.over(context, OVER * 2).await?;
    seen.complete()?;
    State::of(host).await?.runs(&candidate)?;
    let seen = insist_on(context, host, &before).await?.over(context, OVER).await?;
    seen.complete()?;
    State::of(host).await?.runs(&before)?;
    wait::until("exactly one agent", AGAIN, async || host.agent().only().await)
        .await
        .map(drop)
}

/// A containerd that is started and does not answer yet: the unit waits for it, says so once, and needs no second start.
async fn late(host: &Host) -> Result<()> {
    let late = format!(
        "line=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/{CONTAINERD})
         mkdir -p /etc/systemd/system/{CONTAINERD}.d
         printf '[Service]\\nType=simple\\nExecStart=\\nExecStart=/bin/sh -c \"sleep {}; exec %s\"\\n' \"$line\" \
             > /etc/systemd/system/{CONTAINERD}.d/99-late.conf",
        LATE.as_secs()
    );
    host.sh(&late).await?;
    host.poweroff().await?;
    host.start().await?;
    host.wait_active(&["basic.target", CONTAINERD], BOOT).await?;
    host.wait_active(&[UNIT], LATE + BOOT).await?;
    host.agent().only_new(0, AGAIN).await?;
    let said = host
        .exec_ok(&["journalctl", "--boot", "--quiet", "--output=cat", "--unit", UNIT])
        .await?;
    let waits = said.lines().filter(|line| line.contains(WAITS)).count();
    ensure!(waits == 1, "it says {waits} times that it waits: {said}");
    let restarts = host.agent().property("NRestarts").await?;
    ensure!(restarts == "0", "it was started {restarts} times more: {said}");
    let ready = host.agent().ready_at().await?;
    ensure!(
        ready > LATE,
        "containerd was not late: the agent was ready at {ready:?}"
    );
    Ok(())
}
