//! The node problem detector of a node: the bed's is a stand-in that says the conditions of its monitor, as the real one does.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::Context;
use crate::host::Host;
use crate::node::READY;
use crate::wait;

const UNIT: &str = "node-problem-detector.service";
/// A condition of the release's monitor, which kubelet does not say.
const CONDITION: &str = "KernelDeadlock";
const PROGRAM: &str = "/var/lib/machines/kube1/usr/bin/node-problem-detector";
const MONITOR: &str = "/var/lib/machines/kube1/etc/node-problem-detector/kernel-monitor.json";

/// It runs in the machine, as kubelet, and its condition is the node's; one that was killed comes back, and says it again.
pub(super) async fn problem_detector(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let modes = host.sh(&format!("stat --format='%a %U' {PROGRAM} {MONITOR}")).await?;
    ensure!(modes == "755 root\n644 root\n", "its files are {modes:?}");
    let first = heard(context, &host, "").await?;
    let before = invocation(&host).await?;
    host.exec_ok(&["systemctl", "--machine=kube1", "kill", "--signal=KILL", UNIT])
        .await?;
    wait::until_true("another one", Duration::from_secs(60), async || {
        let after = invocation(&host).await?;
        Ok(!after.is_empty() && after != before)
    })
    .await?;
    heard(context, &host, &first).await.map(drop)
}

/// The time at which the detector was last heard, which is after `since`.
async fn heard(context: &Context, host: &Host, since: &str) -> Result<String> {
    let cluster = &context.cloud().cluster;
    wait::until("the detector's condition", READY, async || {
        let node = cluster
            .kubectl(&["get", "node", host.name(), "--output=json"], "")
            .await?;
        let node: Value = serde_json::from_str(&node).context("a node")?;
        let all = node["status"]["conditions"].as_array();
        let own = all
            .into_iter()
            .flatten()
            .find(|condition| condition["type"] == CONDITION);
        let Some(own) = own else { return Ok(None) };
        ensure!(own["status"] == "False", "the condition is {own}");
        let heard = own["lastHeartbeatTime"].as_str().unwrap_or_default();
        Ok((heard > since).then(|| heard.to_owned()))
    })
    .await
}

/// Of the detector that runs; none does: empty.
async fn invocation(host: &Host) -> Result<String> {
    let show = [
        "systemctl",
        "--machine=kube1",
        "show",
        "--property=ActiveState,InvocationID",
        UNIT,
    ];
    let said = host.exec_ok(&show).await?;
    Ok(if said.contains("ActiveState=active") {
        said
    } else {
        String::new()
    })
}
