//! An image that failed on a host is not tried there again unless somebody insists; and what counts as its failure.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::asked::{ask_for, insist_on};
use super::state::State;
use super::{AT_ONCE, OVER, TIDY};
use crate::agent::UNIT;
use crate::agent_image::Variant;
use crate::check::Context;
use crate::cloud::faulty::{At, Fault, How, Kind};
use crate::host::{Host, Refusal};
use crate::wait;

/// Where the agent keeps which images failed.
pub(super) const RECORD: &str = "/etc/aks-flex-node/agent-upgrade-failures.json";
/// Beyond an ordinary upgrade a candidate is asked for the API server this long. Source: docs/operations.md, the table of limits.
const JUDGED: Duration = Duration::from_secs(45);

/// A crash is remembered through restarts, refused with its time and cause, tried again when forced, and counted.
pub(super) async fn fc_r9_fc_r11_failed_before(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let broken = context.variant(Variant::Exits).await?;
    host.exec_ok(&["rm", "-f", RECORD]).await?;

    let first = ask_for(context, &host, &broken).await?.over(context, OVER).await?;
    first.failed(&["DaemonFailed"])?;
    ensure!(
        first.over.message().contains("failed on this host once"),
        "{}",
        first.over.text()
    );

    host.exec_ok(&["systemctl", "restart", UNIT]).await?;
    let before = State::of(&host).await?;
    let mark = context.cloud().registry.mark();
    let refused = ask_for(context, &host, &broken).await?.over(context, OVER).await?;
    refused.failed(&["ExecutionFailed"])?;
    for word in ["failed on this host once, last at 20", "exit-code", "force: \"true\""] {
        ensure!(
            refused.over.message().contains(word),
            "no {word:?} in {}",
            refused.over.text()
        );
    }
    ensure!(refused.took <= AT_ONCE, "it took {:?}", refused.took);
    let after = State::of(&host).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    let pulls = context.cloud().registry.pulls(host.address(), mark)?;
    ensure!(pulls.is_empty(), "it pulled: {pulls:?}");

    let forced = insist_on(context, &host, &broken).await?.over(context, OVER).await?;
    forced.failed(&["DaemonFailed"])?;
    ensure!(
        forced.over.message().contains("failed on this host 2 times"),
        "{}",
        forced.over.text()
    );
    ensure!(
        State::of(&host).await?.image == before.image,
        "the last good image does not run"
    );
    host.exec_ok(&["rm", "-f", RECORD]).await?;
    wait::until_true("the broken image is gone", TIDY, async || {
        Ok(!State::of(&host).await?.has(&broken))
    })
    .await
}

/// na_r20, field case R10: an API server that is away before and after is no fault of the candidate; one that only the candidate can't
/// reach is. The fault of a host that could not have the image is none either (U18).
pub(super) async fn fc_r10_fc_u18_control_plane(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let (first, second) = (State::of(&host).await?.image, context.variant(Variant::Second).await?);
    let api = format!("{}:6443", context.bed.net.gateway());

    // Away before the switch, and until after the verdict: the pull is held up until it is away. Its layers may be on the host already.
    let mark = context.cloud().faulty.mark();
    context
        .cloud()
        .faulty
        .set(&host, Fault::of(Kind::Manifest, How::Hold(At::Percent(50))))?;
    let asked = ask_for(context, &host, &context.cloud().faulty.image(&second)?).await?;
    context.cloud().faulty.held(&host, Kind::Manifest, mark, OVER).await?;
    host.block(&api, Refusal::Reset).await?;
    context.cloud().faulty.heal(&host)?;
    wait::until_true("the candidate runs, and was found good", OVER, async || {
        let state = State::of(&host).await;
        Ok(state.is_ok_and(|state| state.image.digest == second.digest) && decided(&host).await?)
    })
    .await?;
    host.unblock(&api).await?;
    asked
        .over(context, OVER)
        .await?
        .complete()
        .context("away before and after")?;
    ensure!(
        State::of(&host).await?.image.digest == second.digest,
        "the candidate does not run"
    );

    // Away from the switch on.
    let asked = ask_for(context, &host, &first).await?;
    wait::until_true("the switch", OVER, async || {
        Ok(host
            .peek(&["cat", crate::agent::SELECTION])
            .await?
            .contains(&first.to_string()))
    })
    .await?;
    host.block(&api, Refusal::Reset).await?;
    wait::until_true("the one before runs again", OVER + JUDGED, async || {
        let state = State::of(&host).await;
        Ok(state.is_ok_and(|state| state.image.digest == second.digest) && decided(&host).await?)
    })
    .await?;
    host.unblock(&api).await?;
    let seen = asked.over(context, OVER).await?;
    seen.failed(&["DaemonFailed"]).context("away after the switch")?;
    ensure!(
        seen.over.message().contains("API server answered before"),
        "{}",
        seen.over.text()
    );
    ensure!(
        State::of(&host).await?.image.digest == second.digest,
        "the one before does not run"
    );

    // That was held against it; what follows is not.
    host.exec_ok(&["rm", "-f", RECORD]).await?;
    let third = context.cloud().faulty.image(&context.variant(Variant::Third).await?)?;
    context
        .cloud()
        .faulty
        .set(&host, Fault::of(Kind::Manifest, How::Status(403)))?;
    for _ in 0..3 {
        ask_for(context, &host, &third)
            .await?
            .over(context, OVER)
            .await?
            .failed(&["ExecutionFailed"])?;
    }
    context.cloud().faulty.heal(&host)?;
    let seen = ask_for(context, &host, &third).await?.over(context, OVER).await?;
    seen.complete().context("after three failures of the network")
}

/// Whether the journal says that all that is left is to tell the cluster.
async fn decided(host: &Host) -> Result<bool> {
    let journal = host.peek(&["cat", crate::agent::JOURNAL]).await?;
    Ok(journal.contains("\"phase\":\"over\""))
}
