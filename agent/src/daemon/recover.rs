//! `recover-agent-upgrade`: the recovery unit's command, run by the last good agent after a failure of the agent's unit.
//!
//! It shares nothing with what it recovers (design D7): no network, no configuration, no API server, no containerd, and no
//! systemd if that does not answer. Started at *every* failure, it does nothing where no upgrade is at stake.

use std::time::{Duration, UNIX_EPOCH};

use hostexec::{Call, Host, Tool};
use image::ImageRef;
use tracing::{error, info, warn};
use units::name;

use super::switch::{self, Error, Which};
use crate::report;
use crate::store::{journal, selection};
use crate::upgrade::{Event, Upgrade};

/// How long a tool may take: whoever is asked here may be dead.
const SHORT: Duration = Duration::from_secs(8);
/// As many failures in a row are a loop, when what failed ran for less than this.
const LOOP: u32 = 3;
const SHORT_LIVED: Duration = Duration::from_secs(60);

/// What systemd knows of the agent's unit; empty when it does not answer.
#[derive(Debug, Default, PartialEq, Eq)]
struct Unit {
    result: String,
    status: String,
    active: String,
    sub: String,
    restarts: u32,
    started: Option<Duration>,
    lived: Option<Duration>,
}

/// What the recovery unit knows of the failure that started it.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cause<'a> {
    /// In a sentence.
    pub message: Option<&'a str>,
    /// The invocation of the agent's unit that failed: `MONITOR_INVOCATION_ID` of systemd.exec(5), since systemd 251.
    pub invocation: Option<&'a str>,
}

impl<'a> Cause<'a> {
    /// Whether it tells of a success: started late, recovery is told of the start that runs by then, and not of the one that failed.
    fn is_late(&self) -> bool {
        self.message.is_some_and(|message| message.contains(": success"))
    }

    /// The invocation, if it is one: 32 digits.
    fn invocation(&self) -> Option<&'a str> {
        self.invocation.filter(|id| id.len() == 32)
    }
}

/// Goes back to the last good image if an upgrade is at stake.
///
/// # Errors
/// When the journal could not be written, or the agent's unit not be restarted.
pub async fn run(host: &Host, cause: Cause<'_>) -> Result<(), Error> {
    let unit = unit(host).await;
    let start = failed_start(host, cause).await;
    let start = start.as_deref();
    let before = match journal::load(host) {
        Ok(upgrade) => upgrade,
        Err(error) => return unreadable(host, &unit, error).await,
    };
    match &before {
        Upgrade::Idle | Upgrade::Staging { .. } | Upgrade::Over { .. } => {
            if unit.is_in_a_loop() {
                name_the_way_back(host);
            }
            return Ok(());
        }
        Upgrade::Switched { to, .. } | Upgrade::Judging { to, .. }
            if unit.is_another_start()
                || another_is_selected(host, to)
                || unit.restarts < LOOP && failed_before_the_selection(host, start).await =>
        {
            info!("what failed was the agent before the switch, which says nothing of the candidate");
            return Ok(());
        }
        Upgrade::Switched { .. } | Upgrade::Judging { .. } | Upgrade::Back { .. } => {}
    }
    if unit.restarts < LOOP && containerd_restarted(host, &unit, start).await {
        info!("containerd went down under the agent, which is not the agent's fault; systemd starts it again");
        return Ok(());
    }
    let why = why(host, &unit, cause, start).await;
    let after = switch::transition(host, Event::Crashed { why }).await?;
    let Upgrade::Back { to, .. } = &after else {
        // Somebody else was faster: the daemon goes on from there.
        return Ok(());
    };
    let selected = selection::load(host, &selection::SELECTED).ok().flatten();
    if before == after && selected.as_ref() == Some(to) {
        // It is the last good agent that fails: systemd starts it again, in its own time.
        info!(image = %to, "the last good image is selected already");
        return Ok(());
    }
    switch::name_image(host, &after, Which::Selected, to).await?;
    info!(image = %to, "going back to the last good image");
    switch::restart_now(host).await
}

/// What an upgrade was about can't be known. A healthy agent is left alone; one that can't stay up gives way to the last
/// good one. The journal stays: the agent that comes up reports it.
async fn unreadable(host: &Host, unit: &Unit, why: journal::Error) -> Result<(), Error> {
    error!(error = %why, "no upgrade can be recovered from this");
    let last_good = selection::load(host, &selection::LAST_GOOD).ok().flatten();
    let selected = selection::next(host).ok();
    let Some(last_good) = last_good.filter(|image| selected.as_ref() != Some(image)) else {
        return Ok(());
    };
    if !unit.is_in_a_loop() {
        return Ok(());
    }
    warn!(image = %last_good, "the agent fails again and again: going back to the last good image");
    switch::name_image_anyway(host, Which::Selected, &last_good).await?;
    switch::restart_now(host).await
}

/// The agent fails again and again though no upgrade is under way: what it runs was found good, or chosen by hand. Which of the two
/// images is the better one can't be known here, so nothing is changed, but it is said how to.
fn name_the_way_back(host: &Host) {
    let last_good = selection::load(host, &selection::LAST_GOOD).ok().flatten();
    let selected = selection::next(host).ok();
    if let Some(last_good) = last_good.filter(|image| selected.as_ref() != Some(image)) {
        let (from, to) = (selection::LAST_GOOD, selection::SELECTED);
        warn!(
            image = %last_good,
            "the agent fails again and again, and no upgrade is under way: what is selected stays; to go back to the image before it: \
             cp {from} {to} && systemctl restart {}", name::AGENT
        );
    }
}

/// How the unit failed, and what was written by that start of it; by the unit, where that start says nothing: at a start limit systemd
/// 262 names the start that it refused.
async fn why(host: &Host, unit: &Unit, cause: Cause<'_>, start: Option<&str>) -> String {
    let mut log = String::new();
    if let Some(invocation) = start {
        log = last_lines(host, &["_SYSTEMD_INVOCATION_ID=", invocation].concat()).await;
    }
    if log.trim().is_empty() {
        log = last_lines(host, &["_SYSTEMD_UNIT=", name::AGENT].concat()).await;
    }
    let how = match cause.message.filter(|_| !cause.is_late()) {
        Some(message) => message.to_owned(),
        None => unit.how(),
    };
    report::crash(&how, &log)
}

/// What systemd writes when a unit has failed. Source: systemd's catalog, "unit-failure-result", since 243.
const FAILED: &str = "MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c";

/// The start that failed: the one that recovery was told of, or, if that goes on, the last that systemd says has failed.
async fn failed_start(host: &Host, cause: Cause<'_>) -> Option<String> {
    if !cause.is_late() {
        return cause.invocation().map(str::to_owned);
    }
    let unit = ["UNIT=", name::AGENT].concat();
    let line = [
        FAILED,
        &unit,
        "--boot",
        "--lines=1",
        "--output=cat",
        "--output-fields=INVOCATION_ID",
        "--no-pager",
        "--quiet",
    ];
    let output = host.call(Call::new(Tool::Journalctl, &line).limit(SHORT)).await.ok()?;
    let id = output.stdout.trim();
    (id.len() == 32).then(|| id.to_owned())
}

async fn last_lines(host: &Host, which: &str) -> String {
    let line = [which, "--lines=20", "--output=cat", "--no-pager", "--quiet"];
    match host.call(Call::new(Tool::Journalctl, &line).limit(SHORT)).await {
        Ok(output) => output.stdout,
        Err(error) => {
            warn!(%error, "the agent's last lines can't be had");
            String::new()
        }
    }
}

async fn unit(host: &Host) -> Unit {
    let line = [
        "show",
        name::AGENT,
        "--property=Result,ExecMainStatus,ActiveState,SubState,NRestarts,ExecMainStartTimestampMonotonic,\
         ExecMainExitTimestampMonotonic",
    ];
    match host.call(Call::new(Tool::Systemctl, &line).limit(SHORT)).await {
        Ok(output) => Unit::parse(&output.stdout),
        Err(error) => {
            warn!(%error, "systemd does not say how the agent's unit failed");
            Unit::default()
        }
    }
}

/// Whether the selection names something else, so that the candidate has not run either. One that can't be read says
/// nothing: what the unit would run then may be older than the last good image.
fn another_is_selected(host: &Host, candidate: &ImageRef) -> bool {
    let selected = match selection::load(host, &selection::SELECTED) {
        Ok(None) => selection::next(host),
        Ok(Some(image)) => Ok(image),
        Err(error) => Err(error),
    };
    selected.is_ok_and(|selected| selected.digest != candidate.digest)
}

/// Whether the failure is that of an agent that was started before the candidate was selected. Once systemd has started the
/// unit anew, its properties no longer tell the two apart.
async fn failed_before_the_selection(host: &Host, start: Option<&str>) -> bool {
    // The time of one that was emptied or torn is that of the accident.
    if !matches!(selection::load(host, &selection::SELECTED), Ok(Some(_))) {
        return false;
    }
    let selected = host
        .metadata(&selection::SELECTED)
        .and_then(|found| found.modified())
        .ok()
        .and_then(|time| time.duration_since(UNIX_EPOCH).ok());
    let started = began(host, start, "short-unix").await;
    started
        .zip(selected)
        .is_some_and(|(started, selected)| started < selected)
}

/// When the start began that failed, by the clock of that form of the journal; none when nobody says.
async fn began(host: &Host, start: Option<&str>, form: &str) -> Option<Duration> {
    let invocation = start?;
    let (which, form) = (format!("INVOCATION_ID={invocation}"), format!("--output={form}"));
    let line = [which.as_str(), &form, "--no-pager", "--quiet"];
    let output = host.call(Call::new(Tool::Journalctl, &line).limit(SHORT)).await.ok()?;
    // systemd's first word on it: `1764460800.123456 host systemd[1]: Starting …`, or `[    5.123456] host …`.
    let text = output.stdout.trim_start_matches(['[', ' ']);
    let first = text.split([' ', ']']).next()?;
    Duration::try_from_secs_f64(first.parse().ok()?).ok()
}

/// Whether containerd is down, or came up after the agent's unit last started: then every container's `ctr` has ended, good
/// agents' too. A candidate that brings containerd down each time is counted all the same, by the restarts.
async fn containerd_restarted(host: &Host, agent: &Unit, start: Option<&str>) -> bool {
    let line = [
        "show",
        name::CONTAINERD,
        "--property=ActiveState,ActiveEnterTimestampMonotonic",
    ];
    let Ok(output) = host.call(Call::new(Tool::Systemctl, &line).limit(SHORT)).await else {
        return false;
    };
    let down = ["inactive", "failed", "activating", "deactivating"];
    let down = value(&output.stdout, "ActiveState").is_some_and(|state| down.contains(&state));
    let up_since = moment(&output.stdout, "ActiveEnterTimestampMonotonic");
    if down {
        return true;
    }
    let started = match agent.started {
        Some(started) => Some(started),
        // It is being started anew already, and what failed is forgotten.
        None => began(host, start, "short-monotonic").await,
    };
    started
        .zip(up_since)
        .is_some_and(|(agent, containerd)| containerd > agent)
}

/// A property's value in the output of `systemctl show`.
fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let mut lines = text.lines().filter_map(|line| line.split_once('='));
    lines.find(|(name, _)| *name == key).map(|(_, value)| value)
}

/// A time since the boot; systemd writes 0 for one that it has not.
fn moment(text: &str, key: &str) -> Option<Duration> {
    let micros = value(text, key)?.parse().ok()?;
    (micros > 0).then(|| Duration::from_micros(micros))
}

impl Unit {
    fn parse(text: &str) -> Self {
        let owned = |key: &str| value(text, key).unwrap_or_default().to_owned();
        let started = moment(text, "ExecMainStartTimestampMonotonic");
        let exit = moment(text, "ExecMainExitTimestampMonotonic");
        Self {
            result: owned("Result"),
            status: owned("ExecMainStatus"),
            active: owned("ActiveState"),
            sub: owned("SubState"),
            restarts: owned("NRestarts").parse().unwrap_or(0),
            started,
            lived: started.zip(exit).and_then(|(start, exit)| exit.checked_sub(start)),
        }
    }

    /// How it failed, in a sentence.
    fn how(&self) -> String {
        let mut how = String::from("the agent's unit failed");
        for (name, value) in [("result", &self.result), ("status", &self.status)] {
            // Of a start that goes on they say nothing.
            if !["", "success", "0"].contains(&value.as_str()) {
                how.push_str(&format!(", {name} {value}"));
            }
        }
        how
    }

    /// Whether what runs now was started by somebody, and not again by systemd after a failure: then the failure was that
    /// of the agent before it, which did not end well when it was stopped for the switch.
    fn is_another_start(&self) -> bool {
        let starting = ["activating", "active"].contains(&self.active.as_str());
        starting && !self.sub.starts_with("auto-restart") && self.restarts == 0 && self.result == "success"
    }

    fn is_in_a_loop(&self) -> bool {
        self.restarts >= LOOP && self.lived.is_none_or(|lived| lived < SHORT_LIVED)
    }
}

#[cfg(test)]
mod tests;
