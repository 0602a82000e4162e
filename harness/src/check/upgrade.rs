//! `upgrade.*`: an agent that replaces itself by the image it is told, and comes back when that does not do.

mod again;
mod asked;
mod broken;
mod canary;
mod containerd;
mod crash;
mod disk;
mod images;
mod many;
mod network;
mod queue;
mod recovery;
mod refused;
mod state;
mod store;
mod systemd;
mod units;

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Check, Context, check};
use crate::agent::{SELECTION, UNIT};
use crate::agent_image::Variant;
use crate::host::Host;
use crate::wait;
use asked::ask_for;
use state::{Readiness, State};

pub(super) const CHECKS: [Check; 24] = [
    check!("upgrade.back", Cloud, 600, na_t13_na_t14_na_r27_fc_u7_back),
    check!("upgrade.broken-mute", Cloud, 600, broken::na_t09_mute),
    check!("upgrade.success", Cloud, 600, na_t08_na_t25_na_r14_success),
    check!("upgrade.same-digest", Cloud, 600, fc_u5_same_digest),
    check!(
        "upgrade.invalid",
        Cloud,
        600,
        refused::na_t10_na_t11_na_t12_na_r01_na_r20_invalid
    ),
    check!("upgrade.unknown-digest", Cloud, 600, refused::unknown_digest),
    check!("upgrade.registry-down", Cloud, 600, refused::na_r03_registry_down),
    check!(
        "upgrade.network",
        Cloud,
        900,
        network::fc_u1_fc_u2_fc_u18_fc_u27_fc_c13_fc_c19_fc_o7_na_r03_network
    ),
    check!("upgrade.disk", Cloud, 900, disk::fc_u23_fc_u24_fc_r12_disk),
    check!("upgrade.broken-no-agent", Cloud, 600, broken::na_t09_no_agent),
    check!("upgrade.broken-foreign", Cloud, 600, broken::na_t09_foreign),
    check!("upgrade.failed-before", Cloud, 600, again::fc_r9_fc_r11_failed_before),
    check!("upgrade.control-plane", Cloud, 900, again::fc_r10_fc_u18_control_plane),
    check!("upgrade.broken-exits", Cloud, 600, broken::na_t09_exits),
    check!(
        "upgrade.recovery",
        Cloud,
        900,
        recovery::fc_r4_fc_r5_fc_r15_fc_r16_fc_s9_fc_u15_fc_u28_fc_n10_recovery
    ),
    check!(
        "upgrade.containerd",
        Cloud,
        1200,
        containerd::fc_c3_fc_c4_fc_c17_containerd
    ),
    check!("upgrade.images", Cloud, 900, images::na_r27_fc_r1_images),
    check!(
        "upgrade.queue",
        Cloud,
        900,
        queue::fc_u13_fc_u16_fc_u26_fc_r17_fc_o6_queue
    ),
    check!("upgrade.systemd", Cloud, 900, systemd::fc_s1_fc_s2_fc_s3_fc_s10_systemd),
    check!("upgrade.units", Cloud, 900, units::na_r06_na_r10_na_r11_na_r12_units),
    check!(
        "upgrade.crash-matrix",
        Alone,
        900,
        crash::fc_u14_fc_u16_fc_u22_fc_r17_fc_c3_matrix
    ),
    check!("upgrade.random-cuts", Alone, 900, crash::fc_p1_fc_u14_random_cuts),
    check!("upgrade.many", Cloud, 900, many::fc_m2_many),
    check!("upgrade.recovery-quiet", Cloud, 600, refused::na_r26_recovery_quiet),
];

/// How long an upgrade may take on a busy machine, if nothing holds it up.
const OVER: Duration = Duration::from_secs(120);
/// How long after its end an operation may still be cleaning up.
const TIDY: Duration = Duration::from_secs(30);
/// As long as the pull of an agent's image may last, and a little. Source: node-agent specification, 15.
const PULL: Duration = Duration::from_secs(660);
/// Within this of the switch the old agent is stopped.
const RESTART: Duration = Duration::from_secs(3);
/// What an operation for which there is nothing to do may take, kubectl included.
const AT_ONCE: Duration = Duration::from_secs(10);
/// The agent in the machine.
const IN_MACHINE: &str = "/var/lib/machines/kube1/usr/local/bin/aks-flex-node";

/// The operation is Complete, and all that should be the new image is: what runs, what the next start would run, the machine's program.
async fn na_t08_na_t25_na_r14_success(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let cluster = &context.cloud().cluster;
    let second = context.variant(Variant::Second).await?;
    let before = State::of(&host).await?;
    ensure!(before.image != second, "{second} runs already");
    let ready = Readiness::of(cluster, host.name()).await?;
    // Both images have the same program: only a copy that is made anew is equal again.
    host.sh(&format!(
        "cp -a {IN_MACHINE} {IN_MACHINE}.new; echo >> {IN_MACHINE}.new; mv {IN_MACHINE}.new {IN_MACHINE}"
    ))
    .await?;

    let seen = ask_for(context, &host, &second).await?.over(context, OVER).await?;
    seen.complete()?;
    ensure!(!seen.in_progress.is_empty(), "it was never seen in progress");
    for message in &seen.in_progress {
        ensure!(!message.contains("binary"), "in progress it says {message:?}");
    }
    let after = State::of(&host).await?;
    after.runs(&second)?;
    let last_good = after.last_good.as_deref().unwrap_or_default();
    ensure!(
        last_good.trim_end().ends_with(&before.image.to_string()),
        "the last good image is {last_good:?}, not {}",
        before.image
    );
    let sums = host
        .exec_ok(&["sha256sum", &format!("/proc/{}/exe", after.pid), IN_MACHINE])
        .await?;
    let sums: Vec<_> = sums.lines().filter_map(|line| line.split(' ').next()).collect();
    ensure!(
        sums.len() == 2 && sums[0] == sums[1],
        "the image's program and the machine's: {sums:?}"
    );
    let pause = from_switch_to_stop(&host).await?;
    ensure!(pause <= RESTART, "the agent was stopped {pause:?} after the switch");
    ensure!(
        Readiness::of(cluster, host.name()).await? == ready,
        "the node was not Ready all along"
    );

    let back = ask_for(context, &host, &before.image)
        .await?
        .over(context, OVER)
        .await?;
    back.complete().context("the way back")
}

/// From the moment at which the file with the selection was written until systemd began to stop the agent's unit.
async fn from_switch_to_stop(host: &Host) -> Result<Duration> {
    let switched = host.exec_ok(&["stat", "--format=%.9Y", SELECTION]).await?;
    let switched = Duration::try_from_secs_f64(switched.trim().parse()?)?;
    // Source: sd-messages.h, SD_MESSAGE_UNIT_STOPPING.
    let stopping = "MESSAGE_ID=de5b426a63be47a7b6ac3eaac82e2f6f";
    let line = host
        .journal(&["--output=json", "--lines=1", stopping, &format!("UNIT={UNIT}")])
        .await?;
    let entry: serde_json::Value = serde_json::from_str(&line).context("the agent's unit was never stopped")?;
    let stamp = entry["__REALTIME_TIMESTAMP"].as_str().context("an entry has no time")?;
    let stopped = Duration::from_micros(stamp.parse()?);
    stopped.checked_sub(switched).with_context(|| {
        format!(
            "the last stop of the unit was {:?} before the switch",
            switched.saturating_sub(stopped)
        )
    })
}

/// To another image and back to the first; and of the images that upgrades brought only those stay that may run again.
async fn na_t13_na_t14_na_r27_fc_u7_back(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let (second, third) = (
        context.variant(Variant::Second).await?,
        context.variant(Variant::Third).await?,
    );
    let first = State::of(&host).await?.image;
    // Field case U7: a job that never ends, and a unit that failed, are no concern of the agent's restart.
    host.sh("systemd-run --quiet --no-block --unit=hung --property=Type=oneshot sleep infinity; systemd-run --quiet --unit=broken false || true")
        .await?;
    // Somebody else's, in the agent's own namespace.
    let foreign = &context.cloud().images.pause;
    host.agent().ctr(&["images", "pull", &foreign.to_string()]).await?;

    for image in [&second, &first] {
        let seen = ask_for(context, &host, image).await?.over(context, OVER).await?;
        seen.complete().with_context(|| image.to_string())?;
        State::of(&host).await?.runs(image)?;
    }
    // Now it is the one that a recovery would go back to.
    let after = State::of(&host).await?;
    ensure!(
        after.has(&second),
        "the last good image was removed; there are {:?}",
        after.images
    );

    let seen = ask_for(context, &host, &third).await?.over(context, OVER).await?;
    seen.complete().with_context(|| third.to_string())?;
    wait::until_true("the image that will not run again is gone", TIDY, async || {
        Ok(!State::of(&host).await?.has(&second))
    })
    .await?;
    let after = State::of(&host).await?;
    after.runs(&third)?;
    for image in [&first, &third, foreign] {
        ensure!(after.has(image), "{image} was removed; there are {:?}", after.images);
    }
    // The content of a removed image goes too, what it shares with others stays.
    let digest = second.digest.to_string();
    let content = host.agent().ctr(&["content", "list", "--quiet"]).await?;
    ensure!(
        !content.contains(&digest),
        "the removed image's manifest is still there"
    );
    Ok(())
}

/// What runs already is no reason to start anew.
async fn fc_u5_same_digest(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let before = State::of(&host).await?;
    let mark = context.cloud().registry.mark();
    let seen = ask_for(context, &host, &before.image)
        .await?
        .over(context, OVER)
        .await?;
    seen.complete()?;
    ensure!(seen.took <= AT_ONCE, "it took {:?}", seen.took);
    let after = State::of(&host).await?;
    after.runs(&before.image)?;
    ensure!(
        (after.pid, after.started) == (before.pid, before.started),
        "the agent was restarted: {before:?}, {after:?}"
    );
    ensure!(
        after.images == before.images,
        "{:?} became {:?}",
        before.images,
        after.images
    );
    let pulls = context.cloud().registry.pulls(host.address(), mark)?;
    ensure!(pulls.is_empty(), "it pulled: {pulls:?}");
    Ok(())
}
