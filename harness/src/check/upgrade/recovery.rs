//! The way back, with everything out of reach that it must not need: each time a candidate is switched to, something is taken away, the
//! candidate is killed, and the last good agent runs again.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;

use super::asked::{Asked, ask_for, insist_on};
use super::state::{LAST_GOOD, State};
use super::{OVER, TIDY};
use crate::agent::{SELECTION, UNIT};
use crate::agent_image::Variant;
use crate::check::Context;
use crate::cloud::registry;
use crate::host::{Cut, Host, Refusal};
use crate::wait;

/// Within this of a candidate's end the last good agent runs.
const BACK: Duration = Duration::from_secs(60);
/// Where the agent's unit says how it is to be started.
const CONFIG: &str = "/etc/aks-flex-node/config.json";

/// What is taken away.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// The cable.
    Network,
    /// The registry alone.
    Registry,
    /// The agent's configuration is gone.
    NoConfig,
    /// It is no JSON.
    TornConfig,
    /// The message bus hangs.
    Bus,
    /// machined hangs.
    Machined,
    /// `systemctl reset-failed` is refused.
    ResetRefused,
    /// It does not come to an end.
    ResetHangs,
    /// The selection has no byte.
    NoSelection,
    /// Nor has the name of the last good image.
    NoLastGood,
}

impl Fault {
    /// Whether the agent that comes back can't run before it is mended: unlike recovery it needs its configuration, and machined
    /// (node-agent specification 11.4).
    fn holds_agent(self) -> bool {
        matches!(self, Self::NoConfig | Self::TornConfig | Self::Bus | Self::Machined)
    }

    async fn make(self, context: &Context, host: &Host) -> Result<()> {
        match self {
            Self::None => Ok(()),
            Self::Network => host.cut(Cut::Link).await,
            Self::Registry => host.block(&registry_of(context), Refusal::Reset).await,
            Self::NoConfig => host.sh(&format!("mv {CONFIG} /run/config.json")).await.map(drop),
            Self::TornConfig => host
                .sh(&format!("cp -a {CONFIG} /run/config.json; truncate -s 40 {CONFIG}"))
                .await
                .map(drop),
            Self::Bus => signal(host, "dbus.service", "STOP").await,
            Self::Machined => signal(host, "systemd-machined.service", "STOP").await,
            Self::ResetRefused => wrap_systemctl(host, "echo Access denied >&2; exit 1").await,
            Self::ResetHangs => wrap_systemctl(host, "exec sleep 600").await,
            Self::NoSelection => host.exec_ok(&["truncate", "--size=0", SELECTION]).await.map(drop),
            Self::NoLastGood => host.exec_ok(&["truncate", "--size=0", LAST_GOOD]).await.map(drop),
        }
    }

    async fn mend(self, context: &Context, host: &Host) -> Result<()> {
        match self {
            Self::None | Self::NoSelection | Self::NoLastGood => Ok(()),
            Self::Network => host.heal().await,
            Self::Registry => host.unblock(&registry_of(context)).await,
            Self::NoConfig | Self::TornConfig => host.sh(&format!("mv /run/config.json {CONFIG}")).await.map(drop),
            Self::Bus => signal(host, "dbus.service", "CONT").await,
            Self::Machined => signal(host, "systemd-machined.service", "CONT").await,
            Self::ResetRefused | Self::ResetHangs => host.sh("umount /usr/bin/systemctl").await.map(drop),
        }
    }
}

fn registry_of(context: &Context) -> String {
    format!("{}:{}", context.bed.net.gateway(), registry::PORT)
}

async fn signal(host: &Host, unit: &str, signal: &str) -> Result<()> {
    let script = format!("kill -{signal} $(systemctl show --property=MainPID --value {unit})");
    host.sh(&script).await.map(drop)
}

/// Puts a script before the host's systemctl that does something else for `reset-failed`.
async fn wrap_systemctl(host: &Host, instead: &str) -> Result<()> {
    let script = format!(
        "#!/bin/sh\ncase \" $* \" in *' reset-failed '*) {instead} ;; esac\nexec /run/systemctl-itself \"$@\"\n"
    );
    host.write_file("/run/systemctl-wrapped", script, 0o755).await?;
    host.sh("cp /usr/bin/systemctl /run/systemctl-itself; mount --bind /run/systemctl-wrapped /usr/bin/systemctl")
        .await
        .map(drop)
}

/// Whatever is out of reach, the last good agent is back soon, pulls nothing, and the operation says why.
pub(super) async fn fc_r4_fc_r5_fc_r15_fc_r16_fc_s9_fc_u15_fc_u28_fc_n10_recovery(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    // The first upgrade ever: nothing says which image was the last good one.
    ensure!(!host.exists(LAST_GOOD).await?, "this host was upgraded before");
    for fault in [
        Fault::None,
        Fault::Network,
        Fault::Registry,
        Fault::NoConfig,
        Fault::TornConfig,
        Fault::Bus,
        Fault::Machined,
        Fault::ResetRefused,
        Fault::ResetHangs,
    ] {
        comes_back(context, &host, fault)
            .await
            .with_context(|| format!("{fault:?}"))?;
    }
    // From here on the last good image is not the install's.
    let second = context.variant(Variant::Second).await?;
    let seen = ask_for(context, &host, &second).await?.over(context, OVER).await?;
    seen.complete()?;
    let exits = context.variant(Variant::Exits).await?;
    let seen = insist_on(context, &host, &exits).await?.over(context, OVER).await?;
    seen.failed(&["DaemonFailed"])?;
    State::of(&host)
        .await?
        .runs(&second)
        .context("never older than the last good one")?;
    for fault in [Fault::NoSelection, Fault::NoLastGood] {
        comes_back(context, &host, fault)
            .await
            .with_context(|| format!("{fault:?}"))?;
    }
    reboot_wins(context, &host).await.context("a reboot is on its way")
}

/// A candidate dies when the host is already going down: nobody tries to stop that, and the next boot sees the rest done.
async fn reboot_wins(context: &Context, host: &Host) -> Result<()> {
    let good = State::of(host).await?.image;
    let asked = switched_to_mute(context, host).await?;
    let script = format!("systemctl --no-block reboot; systemctl kill --kill-whom=main --signal=KILL {UNIT}");
    host.reboot_by(&script).await?;
    let seen = asked.over(context, OVER).await?;
    seen.failed(&["DaemonFailed"])?;
    wait::until_true("the last good agent runs", TIDY, async || {
        State::of(host).await?.runs(&good)?;
        Ok(true)
    })
    .await?;
    let said = host
        .exec_ok(&["journalctl", "--boot=-1", "--quiet", "--output=cat", "_PID=1"])
        .await?;
    let refused: Vec<_> = said
        .lines()
        .filter(|line| line.contains("destructive") && line.starts_with(UNIT))
        .collect();
    ensure!(refused.len() <= 1, "it was tried again and again: {refused:?}");
    Ok(())
}

async fn comes_back(context: &Context, host: &Host, fault: Fault) -> Result<()> {
    let good = State::of(host).await?.image;
    let asked = switched_to_mute(context, host).await?;
    fault.make(context, host).await?;
    let result = falls_back(context, host, fault, &good).await;
    if !fault.holds_agent() {
        fault.mend(context, host).await?;
    }
    result?;

    let seen = asked.over(context, OVER).await?;
    seen.failed(&["DaemonFailed"])?;
    for word in ["signal", "misbehave: running, and never ready"] {
        let message = seen.over.message();
        ensure!(message.contains(word), "it does not say {word:?}: {message:?}");
    }
    let only = wait::until("exactly one agent", TIDY, async || host.agent().only().await).await?;
    let after = State::of(host).await?;
    after.runs(&good)?;
    ensure!(after.pid == only, "the agent was restarted once more");
    Ok(())
}

/// A candidate that never becomes ready runs.
async fn switched_to_mute(context: &Context, host: &Host) -> Result<Asked> {
    let mute = context.variant(Variant::Mute).await?;
    let asked = insist_on(context, host, &mute).await?;
    wait::until_true("the candidate runs", OVER, async || {
        Ok(State::of(host).await?.image == mute)
    })
    .await?;
    Ok(asked)
}

async fn falls_back(context: &Context, host: &Host, fault: Fault, good: &ImageRef) -> Result<()> {
    let registry = &context.cloud().registry;
    let mark = registry.mark();
    let start = Instant::now();
    host.exec_ok(&["systemctl", "kill", "--kill-whom=main", "--signal=KILL", UNIT])
        .await?;
    if fault.holds_agent() {
        // What recovery has to do is done without it.
        wait::until_true("the last good image is selected", BACK, async || {
            Ok(host.read_file(SELECTION).await?.contains(&good.to_string()))
        })
        .await?;
        fault.mend(context, host).await?;
    }
    wait::until_true("the last good agent runs", BACK, async || {
        let only = host.agent().only().await?;
        Ok(only.is_some() && State::of(host).await?.image == *good)
    })
    .await?;
    let took = start.elapsed();
    ensure!(took <= BACK, "the last good agent was back after {took:?}");
    let requests = registry.requests(mark)?;
    let own: Vec<_> = requests
        .iter()
        .filter(|request| request.from == host.address())
        .collect();
    ensure!(own.is_empty(), "the registry was asked: {own:?}");
    Ok(())
}
