//! `reset.*`: the node and its agent go off a host, by each way and from each mishap, with nothing left that docs/reset.md does not name;
//! and the host joins again.

mod cuts;
mod dead;
mod rejoin;
mod snapshot;
mod ways;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Check, Context, check};
use crate::host::{Host, Refusal};
use crate::node::Joining;
use crate::wait;
use snapshot::Snapshot;

pub(super) const CHECKS: [Check; 3] = [
    check!(
        "reset.ways",
        Cloud,
        600,
        ways::na_t16_na_t17_fc_x1_fc_x4_fc_x6_fc_x7_fc_k2_ways
    ),
    check!("reset.cuts", Cloud, 480, cuts::fc_x3_cuts),
    check!("reset.dead", Cloud, 420, dead::na_r22_fc_n10_dead),
];

const UNIT: &str = "aks-flex-node-reset.service";
const BOOTSTRAP: &str = "aks-flex-node-bootstrap.service";
/// What a reset says that finds nothing.
const NOTHING: &str = "there was nothing of the agent's on this host";
/// How long a reset may take on a busy machine.
const RESET: Duration = Duration::from_secs(120);

/// A host that is about to join, as it is then, and joined.
///
/// # Errors
/// It does not join.
async fn joined(context: &Context, joining: &Joining) -> Result<(Host, Snapshot)> {
    let registry = format!("{}:5000", context.bed.net.gateway());
    let host = context.provision(joining).await?;
    // The bootstrap waits meanwhile.
    host.block(&registry, Refusal::Reset).await?;
    host.start().await?;
    host.wait_booted().await?;
    host.exec_ok(&["systemctl", "stop", BOOTSTRAP]).await?;
    host.exec(&["systemctl", "reset-failed", BOOTSTRAP]).await?;
    let before = Snapshot::of(&host).await?;
    host.unblock(&registry).await?;
    host.exec_ok(&["systemctl", "start", "--no-block", BOOTSTRAP]).await?;
    context.is_joined(&host).await?;
    Ok((host, before))
}

/// Where the journal ends.
async fn mark(host: &Host) -> Result<String> {
    let said = host.exec_ok(&["journalctl", "--lines=0", "--show-cursor"]).await?;
    let cursor = said.trim().rsplit_once(": ").context("no cursor")?.1;
    Ok(format!("--after-cursor={cursor}"))
}

/// Starts the reset's unit, waits for its end, and hands back what it printed.
///
/// # Errors
/// It failed: what it said is in the error.
async fn by_unit(host: &Host) -> Result<String> {
    let mark = mark(host).await?;
    let ended = host.exec_within(RESET, &["systemctl", "start", UNIT]).await?;
    let said = said(host, &mark).await?;
    ensure!(ended.ok(), "{UNIT} failed: {said}");
    Ok(said)
}

/// The report that the reset's unit has printed since.
async fn said(host: &Host, mark: &str) -> Result<String> {
    wait::until("the report of a reset", Duration::from_secs(20), async || {
        let said = host.journal(&["--output=cat", "--unit", UNIT, mark]).await?;
        let whole = said.contains(" could not be removed\n") || said.contains(NOTHING);
        ensure!(whole, "it says {said}");
        Ok(Some(said))
    })
    .await
}

/// Waits until the reset's unit, which somebody else starts, has done its work.
async fn ends(host: &Host) -> Result<()> {
    wait::until_true("the reset's own unit has taken the agent away", RESET, async || {
        let state = host.exec(&["systemctl", "is-active", UNIT]).await?.stdout;
        Ok(state.trim() == "inactive" && !host.exists("/etc/aks-flex-node").await?)
    })
    .await
    .with_context(|| format!("on host {}", host.name()))
}
