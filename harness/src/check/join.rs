//! `join.*`: from Ignition to a node that is Ready.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Check, Context, check};
use crate::node::READY;

pub(super) const CHECKS: [Check; 1] = [check!("join.first-boot", Cloud, 360, first_boot)];

/// Ignition, bootstrap, node Ready, pod Running, its log.
async fn first_boot(context: &Context) -> Result<()> {
    let joining = context.joining().await?;
    let host = context.boot(&joining).await?;
    let cluster = &context.cloud().cluster;
    cluster.node_ready(host.name(), READY).await?;
    let pod = format!("web-{}", host.name());
    cluster.pod(&pod, host.name(), &context.cloud().images.busybox).await?;
    cluster.pod_running(&pod, READY).await?;
    let log = cluster.logs(&pod).await?;
    ensure!(log.contains(&format!("hello from {pod}")), "the pod's log: {log:?}");
    host.wait_active(&["aks-flex-node-agent.service"], Duration::from_secs(60))
        .await
}
