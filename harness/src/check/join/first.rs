//! A host's first boot, and who its agent is afterwards.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Context;
use super::bootstrap::{Bootstrap, UNIT};
use crate::host::Variant;
use crate::node::READY;
use crate::wait;

/// na_t01: Ignition, bootstrap, node Ready, pod Running, its log.
pub(super) async fn first_boot(context: &Context) -> Result<()> {
    let joining = context.joining().await?;
    let host = context.boot(&joining).await?;
    let cluster = &context.cloud().cluster;
    cluster.node_ready(host.name(), READY).await?;
    let pod = format!("web-{}", host.name());
    cluster
        .pod(&pod, host.name(), &context.cloud().images.busybox.to_string())
        .await?;
    cluster.pod_running(&pod, READY).await?;
    let log = cluster.logs(&pod).await?;
    ensure!(log.contains(&format!("hello from {pod}")), "the pod's log: {log:?}");
    host.wait_active(&["aks-flex-node-agent.service"], Duration::from_secs(60))
        .await
}

/// An image whose machine-id is there and empty: systemd sees no first boot, applies no preset, and the join begins all the same.
pub(super) async fn empty_machine_id(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    joining.options.variant = Variant::Captured;
    let host = context.boot(&joining).await?;
    let bootstrap = Bootstrap(&host);
    wait::until_true("the bootstrap's start", READY, async || {
        Ok(bootstrap.property("ExecMainStartTimestampMonotonic").await? != "0")
    })
    .await?;
    // It is the link that enabled it; and what nobody enabled has not run.
    let enabled = host.exec(&["systemctl", "is-enabled", UNIT]).await?.stdout;
    ensure!(enabled.trim() == "enabled", "{UNIT} is {enabled}");
    let reset = "aks-flex-node-reset.service";
    host.exec_ok(&["systemctl", "cat", reset]).await?;
    let ran = host
        .exec_ok(&[
            "systemctl",
            "show",
            "--property=ConditionTimestampMonotonic",
            "--value",
            reset,
        ])
        .await?;
    ensure!(ran.trim() == "0", "{reset} was started");
    let presets = host.journal(&["--output=cat", "_PID=1"]).await?;
    ensure!(
        !presets.contains("Populated /etc with preset unit settings"),
        "systemd applied presets: this is not the image that was meant"
    );
    Ok(())
}

/// na_t03: the agent's program is in the machine, is the one of the running image, and runs there, where kubelet calls it for credentials.
pub(super) async fn in_the_machine(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let path = "/usr/local/bin/aks-flex-node";
    let said = host
        .exec_ok(&[
            "systemd-run",
            "--machine=kube1",
            "--quiet",
            "--pipe",
            "--wait",
            path,
            "version",
        ])
        .await?;
    ensure!(
        said.starts_with("AKS Flex Node Agent\nVersion: "),
        "{path} version says {said:?}"
    );
    let sums = host
        .sh(&format!(
            "pid=$(pgrep --full --exact '/usr/bin/aks-flex-node daemon .*'); \
             sha256sum < /proc/$pid/exe; sha256sum < /var/lib/machines/kube1{path}"
        ))
        .await?;
    let sums: Vec<&str> = sums.lines().collect();
    ensure!(
        sums.len() == 2 && sums[0] == sums[1],
        "the machine's agent is not the running one: {sums:?}"
    );
    Ok(())
}

/// na_t23: the daemon's certificate names the node and two groups, no more and no less, and belongs to its key.
pub(super) async fn certificate(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let pem = host
        .read_file("/etc/aks-flex-node/daemon-credentials/daemon-controller-current.pem")
        .await?;
    let openssl = |args: &'static [&'static str]| crate::command::Command::new("openssl").args(args).stdin(pem.clone());
    let subject = openssl(&["x509", "-noout", "-subject", "-nameopt", "multiline,-align"])
        .read()
        .await?;
    // Go writes the groups as one set.
    let mut fields: Vec<&str> = subject
        .lines()
        .skip(1)
        .flat_map(|line| line.split(" + "))
        .map(str::trim)
        .collect();
    fields.sort_unstable();
    let name = format!("commonName = system:node:{}", host.name());
    ensure!(
        fields
            == [
                &name,
                "organizationName = aks-flex-node-daemons",
                "organizationName = system:nodes"
            ],
        "its subject is {fields:?}"
    );
    let of_certificate = openssl(&["x509", "-noout", "-pubkey"]).read().await?;
    let of_key = openssl(&["pkey", "-pubout"]).read().await?;
    ensure!(of_certificate == of_key, "its key is another's");
    Ok(())
}
