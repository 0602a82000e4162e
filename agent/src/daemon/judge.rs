//! Whether this agent does what the one before it did (design D6): looked at before a switch, and asked of the candidate.

use std::io::Read as _;
use std::time::Duration;

use hostexec::{Call, Host, HostPath, Tool};
use image::Digest;
use sha2::{Digest as _, Sha256};
use tokio::time::{Instant, sleep};

use crate::cluster::{Client, Credential, Endpoint};
use crate::model::MachineName;
use crate::upgrade::Worked;

/// How long the host's own services have to answer a candidate, after a reboot too. All are asked side by side.
pub(super) const LOCAL: Duration = Duration::from_secs(45);
/// How long the API server has.
pub(super) const API_SERVER: Duration = Duration::from_secs(45);
/// How long each has when it is looked at before a switch.
const BEFORE: Duration = Duration::from_secs(8);
const TOOL: Duration = Duration::from_secs(8);
const PAUSE: Duration = Duration::from_secs(1);
/// The agent in a machine. Source: node-agent specification 5.9.4.
const IN_MACHINE: &str = "usr/local/bin/aks-flex-node";

/// Where the things are that are asked.
#[derive(Clone, Debug)]
pub(super) struct Surroundings {
    /// The active machine.
    pub(super) machine: Option<MachineName>,
    /// The API server.
    pub(super) endpoint: Option<Endpoint>,
}

/// What works now.
pub(super) async fn observe(host: &Host, around: &Surroundings) -> Worked {
    let (host_exec, systemd, machine, api_server) = tokio::join!(
        host_exec(host),
        systemd(host),
        machine(host, around.machine),
        api_server(around.endpoint.as_ref(), BEFORE),
    );
    Worked {
        host_exec: host_exec.is_ok(),
        systemd: systemd.is_ok(),
        machine: machine.is_ok(),
        api_server: api_server.is_ok(),
    }
}

/// Asks this agent for all that worked before; what did not work then is not its fault now (fc_r10).
///
/// # Errors
/// What does not work, in a sentence for the operation's status.
pub(super) async fn judge(host: &Host, around: &Surroundings, before: Worked) -> Result<(), String> {
    let named = |name: &'static str, result: Result<(), String>| result.map_err(|why| format!("{name}: {why}"));
    let tools = async {
        let asked = when(before.host_exec, until(LOCAL, async || host_exec(host).await)).await;
        named(
            "the host's tools could be run before the switch, and can't be now",
            asked,
        )
    };
    let systemd = async {
        let asked = when(before.systemd, until(LOCAL, async || systemd(host).await)).await;
        named("systemd answered before the switch, and does not now", asked)
    };
    let machine = async {
        let asked = when(
            before.machine,
            until(LOCAL, async || machine(host, around.machine).await),
        )
        .await;
        named("the machine ran before the switch, and does not answer now", asked)?;
        let same = when(before.machine, async { same_program(host, around.machine) }).await;
        named("the machine's agent is not that of the image", same)
    };
    let api_server = async {
        let asked = when(before.api_server, api_server(around.endpoint.as_ref(), API_SERVER)).await;
        named("the API server answered before the switch, and does not now", asked)
    };
    tokio::try_join!(tools, systemd, machine, api_server).map(drop)
}

async fn when(worked: bool, ask: impl Future<Output = Result<(), String>>) -> Result<(), String> {
    if worked { ask.await } else { Ok(()) }
}

async fn until(limit: Duration, ask: impl AsyncFn() -> Result<(), String>) -> Result<(), String> {
    let end = Instant::now() + limit;
    loop {
        match ask().await {
            Ok(()) => return Ok(()),
            Err(why) if Instant::now() + PAUSE >= end => return Err(why),
            Err(_) => sleep(PAUSE).await,
        }
    }
}

/// A tool that asks nobody.
pub(super) async fn host_exec(host: &Host) -> Result<(), String> {
    let line = Call::new(Tool::Systemctl, &["--version"]).limit(TOOL);
    host.call(line).await.map(drop).map_err(|error| error.to_string())
}

/// A tool that asks systemd.
pub(super) async fn systemd(host: &Host) -> Result<(), String> {
    let line = Call::new(Tool::Systemctl, &["show", "--property=Version", "--value"]).limit(TOOL);
    host.call(line).await.map(drop).map_err(|error| error.to_string())
}

/// A tool that asks for the machine.
pub(super) async fn machine(host: &Host, machine: Option<MachineName>) -> Result<(), String> {
    let Some(machine) = machine else {
        return Err("there is no active machine".into());
    };
    let line = ["show", machine.as_str(), "--property=State", "--value"];
    let output = host
        .call(Call::new(Tool::Machinectl, &line).limit(TOOL))
        .await
        .map_err(|error| error.to_string())?;
    match output.stdout.trim() {
        "running" => Ok(()),
        other => Err(format!("machine {machine} is {other}")),
    }
}

fn same_program(host: &Host, machine: Option<MachineName>) -> Result<(), String> {
    let Some(machine) = machine else {
        return Ok(());
    };
    let path = HostPath::fixed("/var/lib/machines")
        .join(machine.as_str())
        .and_then(|root| root.join(IN_MACHINE));
    let path = path.map_err(|error| error.to_string())?;
    let theirs = host.open(&path).and_then(digest).map_err(|error| error.to_string())?;
    let ours = std::fs::File::open("/proc/self/exe").and_then(digest);
    let ours = ours.map_err(|error| format!("/proc/self/exe: {error}"))?;
    if theirs == ours {
        Ok(())
    } else {
        Err(format!("{path} differs"))
    }
}

/// Streamed: the agent's program is larger than all the memory it otherwise needs.
fn digest(mut file: std::fs::File) -> std::io::Result<Digest> {
    let mut hash = Sha256::new();
    let mut part = [0; 16 * 1024];
    loop {
        match file.read(&mut part)? {
            0 => return Ok(Digest::from_hash(hash)),
            read => hash.update(&part[..read]),
        }
    }
}

async fn api_server(endpoint: Option<&Endpoint>, limit: Duration) -> Result<(), String> {
    let Some(endpoint) = endpoint else {
        return Err("none is configured".into());
    };
    let client = Client::new(endpoint, &Credential::None).map_err(|error| error.to_string())?;
    client.answers(limit).await.map_err(|error| error.to_string())
}
