//! Images that no agent survives: the node does.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;

use super::asked::{ask_for, insist_on};
use super::state::{Readiness, State};
use super::{OVER, TIDY};
use crate::agent_image::Variant;
use crate::check::Context;
use crate::host::Host;
use crate::wait;

/// Beyond an ordinary upgrade, a mute agent is waited for this long. Source: units, the limit of the agent's start is below a minute.
const MUTE: Duration = Duration::from_secs(60);

/// Its daemon ends at once.
pub(super) async fn na_t09_exits(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    // Its last lines, as the status of its unit would show them.
    falls_back(context, &host, Variant::Exits, OVER, &["exit-code", "it can't go on"]).await
}

/// Its daemon never says that it is ready.
pub(super) async fn na_t09_mute(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    falls_back(context, &host, Variant::Mute, OVER + MUTE, &["timeout"]).await
}

/// There is no program in it.
pub(super) async fn na_t09_no_agent(context: &Context) -> Result<()> {
    is_not_taken(context, Variant::NoAgent, &["/usr/bin/aks-flex-node"]).await
}

/// It is for another architecture.
pub(super) async fn na_t09_foreign(context: &Context) -> Result<()> {
    is_not_taken(context, Variant::Foreign, &["arm64"]).await
}

/// Such an image is switched to, fails, and the one before runs again.
async fn falls_back(context: &Context, host: &Host, variant: Variant, limit: Duration, says: &[&str]) -> Result<()> {
    let cluster = &context.cloud().cluster;
    let broken = context.variant(variant).await?;
    let before = State::of(host).await?;
    let ready = Readiness::of(cluster, host.name()).await?;
    let seen = insist_on(context, host, &broken).await?.over(context, limit).await?;
    seen.failed(&["DaemonFailed"])?;
    seen.names(says)?;
    let after = State::of(host).await?;
    after.runs(&before.image)?;
    ensure!(after.pid != before.pid, "the agent was never restarted");
    ensure!(
        Readiness::of(cluster, host.name()).await? == ready,
        "the node was not Ready all along"
    );
    removed(host, &broken).await?;
    stays(host, &after).await
}

/// Such an image is found out before the switch: the agent runs on.
async fn is_not_taken(context: &Context, variant: Variant, says: &[&str]) -> Result<()> {
    let host = context.shared().await?;
    let cluster = &context.cloud().cluster;
    let broken = context.variant(variant).await?;
    let before = State::of(&host).await?;
    let ready = Readiness::of(cluster, host.name()).await?;
    let seen = ask_for(context, &host, &broken).await?.over(context, OVER).await?;
    seen.failed(&["ExecutionFailed"])?;
    seen.names(says)?;
    removed(&host, &broken).await?;
    let after = State::of(&host).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    ensure!(
        Readiness::of(cluster, host.name()).await? == ready,
        "the node was not Ready all along"
    );
    let containers = host.agent().ctr(&["containers", "list", "--quiet"]).await?;
    ensure!(containers.lines().count() == 1, "containers are left: {containers}");
    Ok(())
}

/// Waits until an image is not on the host any more.
async fn removed(host: &Host, image: &ImageRef) -> Result<()> {
    wait::until_true("the broken image is gone", TIDY, async || {
        Ok(!State::of(host).await?.has(image))
    })
    .await
}

/// The agent that came back is a whole one: its unit active, and nobody restarts it again.
async fn stays(host: &Host, after: &State) -> Result<()> {
    let only = wait::until("exactly one agent", TIDY, async || host.agent().only().await)
        .await
        .context("after the way back")?;
    ensure!(only == after.pid, "the agent was restarted once more");
    Ok(())
}
