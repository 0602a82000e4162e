//! What systemd makes of the failures and the restarts of the agent's unit, on hosts of both releases: which failure starts recovery, what
//! recovery is told of it, and that no number of starts is too many.
//!
//!     joined ▸ good ▸ (fails after 0, 10, 40 s ▸ good)… ▸ (fails up to a start limit ▸ good)… ▸ wanted restarts

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;

use super::asked::{ask_for, insist_on};
use super::state::{State, journal};
use super::{OVER, TIDY};
use crate::agent::UNIT;
use crate::agent_image::Variant;
use crate::base::Release;
use crate::check::Context;
use crate::check::context::Depth;
use crate::host::Host;
use crate::wait;

/// What the agent's unit starts when it fails.
const RECOVERY: &str = "aks-flex-node-agent-recovery.service";
/// Where drop-ins of the check's own lie; a reboot would take them away.
const DROP_INS: &str = "/run/systemd/system";
/// Where each run of recovery leaves a line: what systemd told it.
const RUNS: &str = "/run/recoveries";
/// Source: systemd.exec(5), `$MONITOR_SERVICE_RESULT`.
const TOLD: &str = "[Service]
ExecStartPre=/bin/sh -c 'echo \"$${MONITOR_UNIT:-none} $${MONITOR_SERVICE_RESULT:-none} $${MONITOR_EXIT_CODE:-none} \
$${MONITOR_EXIT_STATUS:-none} $${MONITOR_INVOCATION_ID:-none}\" >> /run/recoveries'
";
/// A start limit as another unit may have it, and failures on the way to it that start nothing.
const LIMITED: &str = "[Unit]\nStartLimitIntervalSec=600\nStartLimitBurst=3\n[Service]\nRestartMode=direct\n";
/// How often a host is made to restart its agent.
const WANTED: u32 = 10;
/// As long as these may take on a busy machine, one after the other.
const RESTARTS: Duration = Duration::from_secs(120);

/// A daemon that fails, and how long it takes.
#[derive(Clone, Copy, Debug)]
struct Fails {
    variant: Variant,
    after: Duration,
}

impl Fails {
    const AT_ONCE: Self = Self::new(Variant::Exits, 0);
    const AFTER_10: Self = Self::new(Variant::ExitsAfter10, 10);
    const AFTER_40: Self = Self::new(Variant::ExitsAfter40, 40);

    const fn new(variant: Variant, seconds: u64) -> Self {
        Self {
            variant,
            after: Duration::from_secs(seconds),
        }
    }
}

/// Which failures start recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum When {
    /// Each.
    Each,
    /// That at the start limit alone.
    AtTheLimit,
}

/// What one run of recovery was told: the unit that failed, and how.
#[derive(Debug)]
struct Told {
    unit: String,
    result: String,
    /// The code and the status.
    end: String,
    invocation: String,
}

/// Two hosts side by side. The short depth shares the long waits out between them.
pub(super) async fn fc_s1_fc_s2_fc_s3_fc_s10_systemd(context: &Context) -> Result<()> {
    let all: &[Fails] = &[Fails::AT_ONCE, Fails::AFTER_10, Fails::AFTER_40];
    let (older, newer, limited): (&[Fails], &[Fails], &[Fails]) = match context.depth {
        Depth::Short => (
            &[Fails::AT_ONCE, Fails::AFTER_40],
            &[Fails::AT_ONCE, Fails::AFTER_10],
            &[Fails::AT_ONCE],
        ),
        Depth::Full => (all, all, all),
    };
    let on = async |release, fails| {
        on(context, release, fails, limited)
            .await
            .with_context(|| format!("{release:?}"))
    };
    tokio::try_join!(on(Release::Trixie, older), on(Release::Forky, newer)).map(drop)
}

async fn on(context: &Context, release: Release, fails: &[Fails], limited: &[Fails]) -> Result<()> {
    let mut joining = context.joining().await?;
    joining.options.release = release;
    let host = context.boot(&joining).await?;
    context.is_joined(&host).await?;
    drop_in(&host, RECOVERY, Some(TOLD)).await?;
    let interval = host.agent().property("StartLimitIntervalUSec").await?;
    ensure!(interval == "0", "the unit's starts are counted for {interval}");

    good(context, &host).await.context("the first good one")?;
    for fails in fails {
        let told = falls_back(context, &host, *fails, When::Each).await;
        told.with_context(|| format!("{fails:?}"))?;
        good(context, &host).await.with_context(|| format!("after {fails:?}"))?;
    }
    for fails in limited {
        drop_in(&host, UNIT, Some(LIMITED)).await?;
        let told = falls_back(context, &host, *fails, When::AtTheLimit).await;
        drop_in(&host, UNIT, None).await?;
        let told = told.with_context(|| format!("{fails:?}, up to a start limit"))?;
        ensure!(
            told.result == at_the_limit(release),
            "at its start limit the unit's failure is told as {told:?}"
        );
        good(context, &host).await.context("after a start limit")?;
    }
    wanted(&host).await.context("restarts that were wanted")
}

/// How systemd tells of the failure at the start limit: it is all the same to recovery.
fn at_the_limit(release: Release) -> &'static str {
    match release {
        Release::Trixie => "exit-code",
        Release::Forky => "start-limit-hit",
    }
}

/// Lays a drop-in over a unit, or takes it away, and begins to count its starts anew.
async fn drop_in(host: &Host, unit: &str, text: Option<&str>) -> Result<()> {
    let path = format!("{DROP_INS}/{unit}.d/check.conf");
    match text {
        Some(text) => host.write_file(&path, text, 0o644).await?,
        None => host.exec_ok(&["rm", &path]).await.map(drop)?,
    }
    host.sh(&format!("systemctl daemon-reload; systemctl reset-failed {unit}"))
        .await
        .map(drop)
}

/// To another good image: nothing that was before stands in the way.
async fn good(context: &Context, host: &Host) -> Result<()> {
    let second = context.variant(Variant::Second).await?;
    let first = &context.product().image;
    let to = if State::of(host).await?.image == second {
        first
    } else {
        &second
    };
    forget(host).await?;
    ask_for(context, host, to)
        .await?
        .over(context, OVER)
        .await?
        .complete()?;
    runs_well(host, to).await?;
    nothing_was_recovered(host).await
}

/// Such an image is switched to, fails, and the one before runs again: because of the first failure that starts recovery. Returns what it
/// was told: of that very start, unless a limit has stopped it or recovery came late.
async fn falls_back(context: &Context, host: &Host, fails: Fails, when: When) -> Result<Told> {
    let good = State::of(host).await?.image;
    let candidate = context.variant(fails.variant).await?;
    forget(host).await?;
    let limit = match when {
        When::Each => OVER + fails.after,
        // As often as the limit lets it start.
        When::AtTheLimit => OVER + fails.after * 3,
    };
    let seen = insist_on(context, host, &candidate).await?.over(context, limit).await?;
    seen.failed(&["DaemonFailed"])?;
    seen.names(&["exit-code|start-limit-hit", "misbehave: it ends"])?;
    runs_well(host, &good).await?;

    let mut told = told(host).await?;
    let first = told.first().context("recovery did not run")?;
    ensure!(told.iter().all(|told| told.unit == UNIT), "recovery was told {told:?}");
    match when {
        // Where recovery comes late, systemd has started the unit anew, and tells it of that start.
        When::Each if first.result == "success" && first.end == "none none" => {}
        When::Each => {
            ensure!(
                first.result == "exit-code" && first.end == "exited 1",
                "recovery was told {first:?}"
            );
            let line = ["--output=cat", &format!("_SYSTEMD_INVOCATION_ID={}", first.invocation)];
            let said = host.journal(&line).await?;
            ensure!(
                said.contains("misbehave: it ends"),
                "recovery was told of another start, {first:?}, which says: {said}"
            );
        }
        // It may be of the start that was refused. None comes after it.
        When::AtTheLimit => ensure!(
            told.len() == 1 && first.end == "exited 1",
            "recovery ran {} times: {told:?}",
            told.len()
        ),
    }
    // No loop of it. One that fails at once may do so again before recovery is there, and the way back cuts a start short that systemd began meanwhile:
    // each is a failure to systemd, and recovery then finds nothing to do.
    ensure!(told.len() <= 4, "recovery ran {} times: {told:?}", told.len());
    Ok(told.swap_remove(0))
}

/// Ten restarts as fast as they complete trip nothing. Ten that overtake one another, and ten as the agent asks for its own, may each cut a
/// start short, which is a failure to systemd: recovery then finds nothing to do.
async fn wanted(host: &Host) -> Result<()> {
    let restart = format!("/usr/bin/systemctl restart {UNIT}");
    let timer = "systemd-run --quiet --collect --timer-property=AccuracySec=100ms";
    let ways = [
        ("one after the other", restart.clone()),
        ("overtaking one another", format!("{restart} --no-block")),
        ("by timers", format!("{timer} --on-active=${{n}}00ms {restart}")),
    ];
    for (number, (how, line)) in ways.into_iter().enumerate() {
        let image = State::of(host).await?.image;
        let before = host.agent().daemon().await?;
        forget(host).await?;
        let script = format!("set -eu; for n in $(seq {WANTED}); do {line}; done");
        let ended = host.exec_within(RESTARTS, &["bash", "-c", &script]).await?;
        ensure!(ended.ok(), "{how}: {ended:?}");
        let jobs = format!(
            "systemctl list-units --all --no-legend 'run-*.timer' 'run-*.service'; systemctl list-jobs --no-legend {UNIT}"
        );
        wait::until_true(&format!("{how}: all restarts are over"), RESTARTS, async || {
            Ok(host.sh(&jobs).await?.trim().is_empty())
        })
        .await?;
        runs_well(host, &image).await.context(how)?;
        ensure!(
            host.agent().daemon().await? != before,
            "{how}: the agent was not restarted"
        );
        if number == 0 {
            nothing_was_recovered(host).await.context(how)?;
        }
    }
    Ok(())
}

/// Exactly one agent of that image, which will be started again, from a unit without a blemish; and no upgrade is going on.
async fn runs_well(host: &Host, image: &ImageRef) -> Result<()> {
    wait::until_true("one agent, and no upgrade", TIDY, async || {
        Ok(host.agent().only().await?.is_some() && journal(host).await?.is_none())
    })
    .await?;
    State::of(host).await?.runs(image)?;
    let well = [
        "ActiveState=active",
        "NRestarts=0",
        "Result=success",
        "SubState=running",
    ];
    let show = "systemctl show --property=Result --property=NRestarts --property=ActiveState --property=SubState";
    // In an order that differs by version.
    let unit = host.sh(&format!("{show} {UNIT} | sort")).await?;
    ensure!(unit.lines().eq(well), "the agent's unit is {unit:?}");
    wait::until_true("recovery has ended well", TIDY, async || {
        let unit = host.sh(&format!("{show} {RECOVERY}")).await?;
        Ok(unit.contains("Result=success\n") && unit.contains("ActiveState=inactive\n"))
    })
    .await
}

async fn forget(host: &Host) -> Result<()> {
    host.exec_ok(&["rm", "--force", RUNS]).await.map(drop)
}

async fn nothing_was_recovered(host: &Host) -> Result<()> {
    let told = told(host).await?;
    ensure!(told.is_empty(), "recovery ran: {told:?}");
    Ok(())
}

/// What each run of recovery since `forget` was told.
async fn told(host: &Host) -> Result<Vec<Told>> {
    let lines = host.sh(&format!("cat {RUNS} 2> /dev/null || true")).await?;
    lines
        .lines()
        .map(|line| {
            let words: Vec<&str> = line.split(' ').collect();
            let [unit, result, code, status, invocation] = words[..] else {
                anyhow::bail!("recovery left the line {line:?}")
            };
            Ok(Told {
                unit: unit.to_owned(),
                result: result.to_owned(),
                end: format!("{code} {status}"),
                invocation: invocation.to_owned(),
            })
        })
        .collect()
}
