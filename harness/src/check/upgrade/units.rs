//! The units that each start of the agent brings up to itself: in which order, when not, and after a start that was cut short.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::asked::{ask_for, insist_on};
use super::state::{State, journal};
use super::{OVER, TIDY};
use crate::agent::UNIT;
use crate::agent_image::Variant;
use crate::check::Context;
use crate::cloud::control_plane;
use crate::host::{Host, Refusal};
use crate::wait;

/// Where the agent writes its units.
const FOLDER: &str = "/etc/systemd/system";
/// In the order in which they are written. Source: units, `written_by_agent`.
const UNITS: [&str; 4] = [
    "aks-flex-node-nspawn-pre-start@.service",
    "aks-flex-node-nspawn-post-start@.service",
    "aks-flex-node-agent-recovery.service",
    UNIT,
];
/// What no agent writes.
const MARK: &str = "# tampered with";
/// How often a start is cut short.
const CUTS: u32 = 6;
/// How long a candidate that has not been judged is watched.
const UNJUDGED: Duration = Duration::from_secs(5);

/// What is in the units, in the order of `UNITS`.
type Texts = Vec<String>;

/// Every case on one host.
pub(super) async fn na_r06_na_r10_na_r11_na_r12_units(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let wanted = texts(&host).await?;
    in_order(&host, "the join").await?;

    tamper(&host).await?;
    restart(&host).await?;
    are(&host, &wanted).await?;
    in_order(&host, "a restart").await?;

    reloads_though_nothing_changed(&host).await?;
    a_write_that_fails(&host, &wanted)
        .await
        .context("the agent's unit can't be written")?;
    held_back(context, &host, &wanted).await.context("a good candidate")?;
    after_the_way_back(context, &host, &wanted)
        .await
        .context("a bad candidate")?;
    cut_short(context, &host, &wanted)
        .await
        .context("starts that are cut short")
}

/// An earlier start may have died between the writing and systemd's reading.
async fn reloads_though_nothing_changed(host: &Host) -> Result<()> {
    let unit = format!("{FOLDER}/{}", UNITS[2]);
    host.sh(&format!(
        "cp -a {unit} /run/unit; echo '{MARK}' >> {unit}; systemctl daemon-reload; cp {unit} {unit}.new
         cat /run/unit > {unit}.new; mv {unit}.new {unit}"
    ))
    .await?;
    ensure!(is_stale(host).await? == "yes", "systemd has read the unit already");
    restart(host).await?;
    ensure!(is_stale(host).await? == "no", "systemd was not told to read its units");
    Ok(())
}

async fn is_stale(host: &Host) -> Result<String> {
    let line = ["systemctl", "show", "--value", "--property=NeedDaemonReload", UNITS[2]];
    Ok(host.exec_ok(&line).await?.trim().to_owned())
}

/// What the agent's unit names is written before it, and an agent with the old unit is better than none; the next start finishes.
async fn a_write_that_fails(host: &Host, wanted: &Texts) -> Result<()> {
    let unit = format!("{FOLDER}/{UNIT}");
    tamper(host).await?;
    // Nothing can be put in the place of what is mounted.
    host.sh(&format!("mount --bind {unit} {unit}")).await?;
    let started = restart(host).await;
    let found = texts(host).await;
    host.exec_ok(&["umount", &unit]).await?;
    started?;
    let found = found?;
    ensure!(found[..3] == wanted[..3], "the others were not written: {found:?}");
    ensure!(found[3] != wanted[3], "the agent's unit was written");
    restart(host).await?;
    are(host, wanted).await
}

/// A candidate that was not found good yet writes no unit; once it was, it does.
async fn held_back(context: &Context, host: &Host, wanted: &Texts) -> Result<()> {
    let second = context.variant(Variant::Second).await?;
    let api = format!("{}:{}", context.bed.net.gateway(), control_plane::PORT);
    let asked = ask_for(context, host, &second).await?;
    journal_says(host, "switched").await?;
    // It worked before: until it answers, the candidate is not found good.
    host.block(&api, Refusal::Reset).await?;
    let tampered = tamper(host).await?;
    let unjudged = async {
        journal_says(host, "judging").await?;
        ensure!(
            State::of(host).await?.image == second,
            "the candidate does not run while it is judged"
        );
        let mut look = std::time::Instant::now();
        let end = look + UNJUDGED;
        while look < end {
            are(host, &tampered).await?;
            look = std::time::Instant::now();
        }
        journal_says(host, "judging").await
    };
    let unjudged = unjudged.await;
    host.unblock(&api).await?;
    unjudged?;
    asked.over(context, OVER).await?.complete()?;
    wait::until_true("the units are the good candidate's", TIDY, async || {
        Ok(texts(host).await? == *wanted)
    })
    .await?;
    in_order(host, "the verdict").await
}

/// The agent that came back writes its own.
async fn after_the_way_back(context: &Context, host: &Host, wanted: &Texts) -> Result<()> {
    let exits = context.variant(Variant::Exits).await?;
    let asked = insist_on(context, host, &exits).await?;
    journal_says(host, "switched").await?;
    tamper(host).await?;
    asked.over(context, OVER).await?.failed(&["DaemonFailed"])?;
    are(host, wanted).await?;
    ensure!(is_stale(host).await? == "no", "systemd was not told to read its units");
    Ok(())
}

/// Killed at any moment of its start, an agent leaves each unit as it was or as it shall be, and the next start finishes.
async fn cut_short(context: &Context, host: &Host, wanted: &Texts) -> Result<()> {
    let mut moment = context.seed;
    for cut in 0..CUTS {
        let tampered = tamper(host).await?;
        // Source: Knuth's multiplier for 64 bits; up to a fifth of a second after the daemon has come up.
        moment = moment.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let milliseconds = (moment >> 33) % 200;
        // The child that a daemon makes to run a tool looks like it for a moment: the oldest is the daemon.
        let script = format!(
            "old=$(pgrep --oldest --full --exact '/usr/bin/aks-flex-node daemon .*')
             systemctl --no-block restart {UNIT}
             for _ in $(seq 2000); do
                 new=$(pgrep --oldest --full --exact '/usr/bin/aks-flex-node daemon .*' || true)
                 [ -z \"$new\" ] || [ \"$new\" = \"$old\" ] || break
                 sleep 0.01
             done
             sleep 0.{milliseconds:03}; kill -KILL $new; cd {FOLDER}
             for unit in {}; do cat $unit; echo '====='; done",
            UNITS.join(" ")
        );
        let found = host.sh(&script).await?;
        for (at, text) in found.split_terminator("=====\n").enumerate() {
            ensure!(
                text == tampered[at] || text == wanted[at],
                "cut {cut}, {milliseconds} ms after the start, left {}: {text}",
                UNITS[at]
            );
        }
        converged(host).await?;
        are(host, wanted).await?;
        in_order(host, "a start that was cut short").await?;
        ensure!(is_stale(host).await? == "no", "systemd was not told to read its units");
    }
    Ok(())
}

async fn restart(host: &Host) -> Result<()> {
    host.exec_ok(&["systemctl", "restart", UNIT]).await?;
    converged(host).await
}

/// Waits until there is one agent, and its units are as it wants them or can't be.
async fn converged(host: &Host) -> Result<()> {
    let pid = wait::until("exactly one agent", TIDY, async || host.agent().only().await).await?;
    host.agent().converged(pid, TIDY).await
}

/// Appends a line to each of the units, and has systemd read them.
async fn tamper(host: &Host) -> Result<Texts> {
    host.sh(&format!(
        "cd {FOLDER}; for unit in {}; do echo '{MARK}' >> $unit; done; systemctl daemon-reload",
        UNITS.join(" ")
    ))
    .await?;
    texts(host).await
}

async fn texts(host: &Host) -> Result<Texts> {
    let script = format!(
        "cd {FOLDER}; for unit in {}; do cat $unit; echo '====='; done",
        UNITS.join(" ")
    );
    let all = host.sh(&script).await?;
    let texts: Texts = all.split_terminator("=====\n").map(str::to_owned).collect();
    ensure!(texts.len() == UNITS.len(), "not {} units: {all}", UNITS.len());
    Ok(texts)
}

async fn are(host: &Host, wanted: &Texts) -> Result<()> {
    let found = texts(host).await?;
    for ((unit, found), wanted) in UNITS.iter().zip(&found).zip(wanted) {
        ensure!(found == wanted, "{unit} is not as it shall be: {found}");
    }
    Ok(())
}

/// No unit was written before one that it names: none came after the agent's. The kernel's clock for files ticks, so some may be as old.
async fn in_order(host: &Host, after: &str) -> Result<()> {
    let said = host
        .sh(&format!("cd {FOLDER}; stat --format='%.9Z' -- {}", UNITS.join(" ")))
        .await?;
    let times: Vec<&str> = said.lines().collect();
    ensure!(
        times.len() == UNITS.len() && times.iter().all(|time| *time <= times[UNITS.len() - 1]),
        "after {after} {UNITS:?} were written at {times:?}"
    );
    Ok(())
}

async fn journal_says(host: &Host, phase: &str) -> Result<()> {
    wait::until_true(&format!("the journal says {phase:?}"), OVER, async || {
        Ok(journal(host).await?.is_some_and(|journal| journal["phase"] == phase))
    })
    .await
}
