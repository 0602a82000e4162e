//! A machine's life: its hooks at each start of it, and what is told when kubelet does not come.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::Context;
use crate::agent_image::Variant;
use crate::host::{Host, Refusal};
use crate::node::READY;
use crate::wait;

const MACHINE: &str = "systemd-nspawn@kube1.service";
const SETTINGS: &str = "/etc/systemd/nspawn/kube1.nspawn";
/// What somebody else wrote: a machine that has it would see a folder of the host.
const TAMPERED: &str = "\n[Files]\nBind=/root:/canary\n";
/// How often a machine is killed in the check's documented depth.
const KILLS: u32 = 3;

/// After an upgrade, and without its registry: the hook runs before each start of the machine, by the image that the agent's unit runs, and
/// leaves nothing behind.
pub(super) async fn na_t05_na_t22_lifecycle(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let second = context.variant(Variant::Second).await?;
    let over = context.upgrade(&host, &second).await?;
    ensure!(over.phase() == "Complete", "the upgrade: {}", over.text());
    let good = host.read_file(SETTINGS).await?;
    host.block(&format!("{}:5000", context.bed.net.gateway()), Refusal::Reset)
        .await?;
    let mark = context.cloud().registry.mark();
    let kills = context.times.unwrap_or(1).min(KILLS);
    let kill = format!("systemctl kill --kill-whom=main --signal=KILL {MACHINE}");
    let again = format!("systemctl stop {MACHINE}; systemctl start {MACHINE}");
    let mut deeds = vec![
        ("a restart", format!("systemctl restart {MACHINE}")),
        ("a stop and a start", again),
    ];
    deeds.extend((0..kills).map(|_| ("a crash", kill.clone())));
    for (what, how) in deeds {
        started_anew(&host, &good, &how)
            .await
            .with_context(|| what.to_owned())?;
    }
    host.write_file(SETTINGS, format!("{good}{TAMPERED}"), 0o644).await?;
    host.reboot().await?;
    context.is_joined(&host).await.context("after a reboot")?;
    is_good(&host, &good).await.context("after a reboot")?;

    let containers = host.agent().ctr(&["containers", "list"]).await?;
    ensure!(
        containers.contains(&second.to_string()),
        "the agent runs as {containers}"
    );
    let pulls = context.cloud().registry.pulls(host.address(), mark)?;
    ensure!(pulls.is_empty(), "it pulled: {pulls:?}");
    Ok(())
}

/// Does it to a machine whose settings were tampered with, and waits for another leader.
async fn started_anew(host: &Host, good: &str, how: &str) -> Result<()> {
    let leader = async || {
        host.sh("machinectl show --property=Leader --value kube1 2> /dev/null || :")
            .await
    };
    let before = leader().await?;
    ensure!(!before.trim().is_empty(), "there is no machine");
    host.write_file(SETTINGS, format!("{good}{TAMPERED}"), 0o644).await?;
    host.sh(how).await?;
    wait::until_true("another leader of the machine", READY, async || {
        let now = leader().await?;
        Ok(!now.trim().is_empty() && now != before)
    })
    .await?;
    host.wait_active(&[MACHINE], READY).await?;
    is_good(host, good).await
}

/// The machine has the settings that the agent wrote, and no hook's container is left.
async fn is_good(host: &Host, good: &str) -> Result<()> {
    let settings = host.read_file(SETTINGS).await?;
    ensure!(settings == good, "the machine was started with {settings:?}");
    // systemd-nspawn is active before the machine's systemd answers; a stop that comes earlier is lost.
    let inside = async |line: &[&str]| {
        let run = ["systemd-run", "--quiet", "--machine=kube1", "--pipe", "--wait"];
        host.exec(&[&run[..], line].concat()).await
    };
    wait::until_true("the machine answers", READY, async || Ok(inside(&["true"]).await?.ok())).await?;
    ensure!(
        !inside(&["ls", "/canary"]).await?.ok(),
        "the machine has what somebody else wrote"
    );
    wait::until_true("the hooks leave no container", Duration::from_secs(30), async || {
        let containers = host.agent().ctr(&["containers", "list", "--quiet"]).await?;
        Ok(containers
            .split_whitespace()
            .all(|name| name == crate::agent::CONTAINER))
    })
    .await
}

/// kubelet does not start: the bootstrap says so, with kubelet's own last words, and is tried again.
pub(super) async fn fc_k1_kubelet_does_not_start(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    // More than any host has: kubelet ends with an error of its own.
    joining.config["node"]["kubelet"]["systemReserved"] = json!({ "memory": "900Ti" });
    let host = context.boot(&joining).await?;
    wait::until_true("the bootstrap tells why", READY, async || {
        let said = host
            .journal(&["--output=cat", "--unit=aks-flex-node-bootstrap.service"])
            .await?;
        let last = said
            .lines()
            .rfind(|line| line.contains("kubelet does not stay active"))
            .unwrap_or_default();
        Ok(last.contains("the end of its journal:") && last.contains("Node Allocatable"))
    })
    .await?;
    let said = host
        .journal(&["--output=cat", "--unit=aks-flex-node-bootstrap.service"])
        .await?;
    ensure!(
        !said.contains("kubectl get csr"),
        "it sends the reader after a certificate request"
    );
    let ended = host
        .sh("systemctl show --property=ExecMainStatus --value aks-flex-node-bootstrap.service")
        .await?;
    ensure!(
        ended.trim() == "1" || ended.trim() == "0",
        "the bootstrap ended with {ended}"
    );
    host.read_file(crate::node::INPUTS)
        .await
        .map(drop)
        .context("the inputs are gone")
}
