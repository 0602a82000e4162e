//! A machine and the services in it, driven through machined and systemd.

use std::time::Duration;

use hostexec::{Call, Host, HostPath, Output, Tool, ToolError};
use tokio::time::{Instant, sleep, timeout};

use super::{
    Context, Error, file, unit,
    words::{self, NO_CERTIFICATE},
};
use crate::model::MachineName;

/// The longest a plain question to a machine takes.
const ASK: Duration = Duration::from_secs(10);
/// The longest a service's start takes: containerd on a slow disk.
const START: Duration = Duration::from_secs(150);

/// Has the machine started at every boot. Whether machined enables the target that pulls machines in differs by release.
pub(super) async fn enable(host: &Host, machine: MachineName) -> Result<(), Error> {
    host.run(Tool::Machinectl, &["enable", machine.as_str()]).await?;
    unit::enable(host, "machines.target").await
}

/// Starts the machine and waits for its first answer.
pub(super) async fn start(context: &Context, machine: MachineName) -> Result<(), Error> {
    let host = &context.host;
    if let Err(error) = host.run(Tool::Machinectl, &["start", machine.as_str()]).await {
        if !is_registered(host, machine).await && !error.to_string().contains("already exists") {
            return Err(not_up(host, machine, error).await);
        }
        tracing::warn!(machine = machine.as_str(), %error, "a stale registration is in the way");
        clear(context, machine).await;
        if let Err(error) = host.run(Tool::Machinectl, &["start", machine.as_str()]).await {
            return Err(not_up(host, machine, error).await);
        }
    }
    let until = Instant::now() + context.waits.boot;
    loop {
        if call(host, machine, &["/bin/true"], ASK)
            .await
            .is_ok_and(|output| output.code == Some(0))
        {
            return Ok(());
        }
        if Instant::now() >= until {
            let journal = unit::journal(host, &nspawn_unit(machine)).await;
            return Err(Error::Mute {
                machine: machine.as_str(),
                seconds: context.waits.boot.as_secs(),
                journal,
            });
        }
        sleep(context.waits.poll).await;
    }
}

/// Clears a registration whose machine is gone: what machined keeps after nspawn was killed.
async fn clear(context: &Context, machine: MachineName) {
    let host = &context.host;
    let unit = nspawn_unit(machine);
    for (tool, args) in [
        (Tool::Systemctl, ["reset-failed", unit.as_str()]),
        (Tool::Machinectl, ["terminate", machine.as_str()]),
    ] {
        if let Err(error) = host.run(tool, &args).await {
            tracing::warn!(%error, "clearing a stale registration");
        }
    }
    let until = Instant::now() + context.waits.gone;
    while is_registered(host, machine).await && Instant::now() < until {
        sleep(context.waits.poll).await;
    }
}

/// Whether machined knows the machine.
pub(super) async fn is_registered(host: &Host, machine: MachineName) -> bool {
    let show = ["show", machine.as_str()];
    host.call(Call::new(Tool::Machinectl, &show).any_code().limit(ASK))
        .await
        .is_ok_and(|output| output.code == Some(0))
}

async fn not_up(host: &Host, machine: MachineName, source: ToolError) -> Error {
    let unit = nspawn_unit(machine);
    let journal = unit::journal(host, &unit).await;
    Error::Unit { unit, journal, source }
}

fn nspawn_unit(machine: MachineName) -> String {
    format!("systemd-nspawn@{machine}.service")
}

/// Runs a program in the machine and takes whatever exit code it has.
pub(super) async fn call(
    host: &Host,
    machine: MachineName,
    program: &[&str],
    limit: Duration,
) -> Result<Output, ToolError> {
    let machine = format!("--machine={machine}");
    let mut args = vec!["--quiet", machine.as_str(), "--collect", "--pipe", "--wait", "--"];
    args.extend_from_slice(program);
    host.call(Call::new(Tool::SystemdRun, &args).any_code().limit(limit))
        .await
}

/// Runs a program in the machine that must succeed.
pub(super) async fn run(host: &Host, machine: MachineName, program: &[&str], limit: Duration) -> Result<(), ToolError> {
    let machine = format!("--machine={machine}");
    let mut args = vec!["--quiet", machine.as_str(), "--collect", "--pipe", "--wait", "--"];
    args.extend_from_slice(program);
    host.call(Call::new(Tool::SystemdRun, &args).limit(limit))
        .await
        .map(drop)
}

/// Enables a service of the machine and has it run with what it reads now: one that runs with something older is
/// started anew.
pub(super) async fn run_service(
    context: &Context,
    machine: MachineName,
    unit: &str,
    reads: &[HostPath],
) -> Result<(), Error> {
    let host = &context.host;
    let files = file::inside(host, machine).map_err(Error::File)?;
    let stamp = HostPath::fixed("/usr/local/share/aks-flex-node/started")
        .join(unit)
        .expect("a unit's name is plain");
    let inputs = file::digest(&files, reads).map_err(Error::File)?;
    let current = files.read_text(&stamp).is_ok_and(|text| text.trim() == inputs.as_str());
    let active = is_active(host, machine, unit).await?;
    let start = async {
        // Enabling has the machine's systemd read its units.
        run(host, machine, &["systemctl", "enable", "--now", unit], START).await?;
        if active && !current {
            run(host, machine, &["systemctl", "restart", unit], START).await?;
        }
        Ok(())
    };
    if let Err(source) = start.await {
        let journal = inner_journal(host, machine, unit).await;
        return Err(Error::Unit {
            unit: format!("{unit} in {machine}"),
            journal,
            source,
        });
    }
    files
        .write_if_changed(&stamp, format!("{inputs}\n").as_bytes(), 0o600)
        .map_err(Error::File)?;
    Ok(())
}

async fn is_active(host: &Host, machine: MachineName, unit: &str) -> Result<bool, ToolError> {
    let output = call(host, machine, &["systemctl", "is-active", unit], ASK).await?;
    Ok(output.stdout.trim() == "active")
}

/// Waits until kubelet is active and holds the credential it works with.
pub(super) async fn wait_for_kubelet(context: &Context, machine: MachineName, credential: &str) -> Result<(), Error> {
    let (host, waits) = (&context.host, context.waits);
    let active = async || is_active(host, machine, "kubelet.service").await.unwrap_or(false);
    until(context, machine, waits.active, "is not active", active).await?;
    let joined = async || {
        let asked = call(host, machine, &["test", "-s", credential], ASK).await;
        asked.is_ok_and(|output| output.code == Some(0))
    };
    until(context, machine, waits.joined, NO_CERTIFICATE, joined).await?;
    // It may have ended since: kubelet without a way to its API server starts again and again.
    until(context, machine, waits.active, "is not active", active).await
}

/// kubelet's word on itself. Source: `healthzBindAddress` and `healthzPort` of a KubeletConfiguration, by default.
const HEALTH: &str = "http://127.0.0.1:10248/healthz";

/// Watches kubelet until the same one has been well for a moment, or has run for long.
pub(super) async fn watch_kubelet(context: &Context, machine: MachineName) -> Result<(), Error> {
    const SHOW: [&str; 4] = [
        "systemctl",
        "show",
        "--property=ActiveState,InvocationID",
        "kubelet.service",
    ];
    let waits = context.waits;
    let end = Instant::now() + waits.active;
    let mut seen: Option<Seen> = None;
    loop {
        let asked = call(&context.host, machine, &SHOW, ASK).await;
        let said = asked.map(|output| output.stdout).unwrap_or_default();
        let active = said.lines().any(|line| line == "ActiveState=active");
        let asked = timeout(ASK, context.fetcher.reaches(HEALTH)).await;
        let now = Instant::now();
        let well = asked.is_ok_and(|answer| answer.is_ok());
        let same = seen.take().filter(|before| before.said == said);
        let since = same.as_ref().map_or(now, |before| before.since);
        let well = well.then(|| same.and_then(|before| before.well).unwrap_or(now));
        if active && (well.is_some_and(|well| now - well >= waits.steady) || now - since >= waits.lasting) {
            return Ok(());
        }
        seen = active.then_some(Seen { said, since, well });
        if now >= end {
            return Err(Error::Kubelet {
                what: "does not stay active",
                seconds: waits.active.as_secs(),
                hint: "",
                journal: inner_journal(&context.host, machine, "kubelet.service").await,
            });
        }
        sleep(waits.poll).await;
    }
}

/// A kubelet that is active.
struct Seen {
    /// What systemd says of it: another one has another invocation.
    said: String,
    since: Instant,
    /// Since when it has been well.
    well: Option<Instant>,
}

async fn until(
    context: &Context,
    machine: MachineName,
    limit: Duration,
    what: &'static str,
    holds: impl AsyncFn() -> bool,
) -> Result<(), Error> {
    let end = Instant::now() + limit;
    while !holds().await {
        if Instant::now() >= end {
            let journal = inner_journal(&context.host, machine, "kubelet.service").await;
            return Err(Error::Kubelet {
                what,
                seconds: limit.as_secs(),
                hint: words::hint(&journal, what),
                journal,
            });
        }
        sleep(context.waits.kubelet_poll).await;
    }
    Ok(())
}

/// The last lines a service of the machine logged.
async fn inner_journal(host: &Host, machine: MachineName, unit: &str) -> String {
    let program = [
        "journalctl",
        "--unit",
        unit,
        "--lines",
        LINES,
        "--output",
        "cat",
        "--no-pager",
        "--quiet",
    ];
    match call(host, machine, &program, ASK).await {
        Ok(output) => words::one_line(&words::telling(&output.stdout)),
        Err(error) => format!("({error})"),
    }
}

/// More than a Go program's farewell, which has all its goroutines.
const LINES: &str = "4000";
