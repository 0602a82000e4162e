//! What keeps a host from joining for a while: it tries again, by itself, and joins when it can.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;

use super::bootstrap::{Bootstrap, UNIT};
use super::{BASE_CONFIG, CONFIG, Context, INPUTS};
use crate::host::{Disk, Host, Refusal};
use crate::node::READY;
use crate::wait;

const AGENT: &str = "aks-flex-node-agent.service";

async fn joins(context: &Context, host: &Host) -> Result<()> {
    context.cloud().cluster.node_ready(host.name(), READY).await?;
    host.wait_active(&[AGENT], READY).await
}

/// na_r05: registry and API server are away at the first boot and come back one after the other; the pauses between the tries grow.
pub(super) async fn retries(context: &Context) -> Result<()> {
    let host = context.provision(&context.joining().await?).await?;
    let gateway = context.bed.net.gateway();
    let (registry, api) = (format!("{gateway}:5000"), format!("{gateway}:6443"));
    host.block(&registry, Refusal::Reset).await?;
    host.block(&api, Refusal::Reset).await?;
    host.start().await?;
    host.wait_booted().await?;
    let bootstrap = Bootstrap(&host);
    bootstrap.failures(3, Duration::from_secs(120)).await?;
    host.unblock(&registry).await?;
    // Far enough that only the API server is missing.
    let kubelet = ["systemctl", "--machine=kube1", "is-active", "kubelet.service"];
    wait::until_true("kubelet without its API server", READY, async || {
        Ok(host.exec(&kubelet).await?.stdout.trim() == "active")
    })
    .await?;
    let trying = [
        "journalctl",
        "--machine=kube1",
        "--unit=kubelet.service",
        "--output=cat",
    ];
    wait::until_true("a refused connection", READY, async || {
        Ok(host.exec(&trying).await?.stdout.contains("connection refused"))
    })
    .await?;
    ensure!(
        !host.sh(LINKED).await?.contains("yes"),
        "the agent's unit is enabled before the host has joined"
    );
    host.unblock(&api).await?;
    joins(context, &host).await?;
    let pauses = bootstrap.pauses().await?;
    ensure!(pauses.len() >= 3, "there were {} tries", pauses.len());
    let grows = pauses.windows(2).all(|pair| pair[1] > pair[0].mul_f64(1.2));
    ensure!(
        grows && pauses[0] >= Duration::from_secs(5),
        "the pauses between the tries do not grow: {pauses:?}"
    );
    ensure!(!host.exists(INPUTS).await?, "{INPUTS} is there");
    Ok(())
}

/// Whether the agent's unit is enabled.
const LINKED: &str = "[ ! -L /etc/systemd/system/multi-user.target.wants/aks-flex-node-agent.service ] || echo yes";

/// The registry does not have the image, and the host has: that one runs. Without it the bootstrap fails, and is tried again.
pub(super) async fn local_image(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    let there = joining.agent.to_string();
    // A repository that the registry has never heard of.
    let gone = there.replacen("/agent@", "/agent-that-was@", 1);
    ensure!(gone != there, "{there} is in another repository");
    joining.agent = gone.parse::<ImageRef>().ok().context("it names no image")?;
    let host = context.boot(&joining).await?;
    let bootstrap = Bootstrap(&host);
    bootstrap.failures(1, Duration::from_secs(120)).await?;
    let why = ["AKS_FLEX_NODE_AGENT_IMAGE could not be pulled and is not on the host"];
    bootstrap.says(&why, Duration::from_secs(10)).await?;
    // As someone who prepares hosts by hand would bring it there.
    host.sh(&format!(
        "c='ctr --namespace aks-flex-node'; $c images pull --local {there} > /dev/null; $c images tag {there} {gone}; $c images rm {there}"
    ))
    .await?;
    joins(context, &host).await?;
    let how = ["the pull failed: running the image that is on the host"];
    bootstrap.says(&how, Duration::from_secs(10)).await?;
    let runs = host
        .sh("ctr --namespace aks-flex-node containers list | grep -w aks-flex-node-agent")
        .await?;
    ensure!(runs.contains(&gone), "the agent runs as {runs}");
    Ok(())
}

/// Everything that a join leaves half done where it is not careful: empty files, temporary ones, a machine's folder that is not whole.
const TORN: &str = r#"
for f in $(find /etc/aks-flex-node /etc/systemd/system /etc/systemd/nspawn /etc/sysctl.d -type f -empty 2> /dev/null); do echo "$f is empty"; done
find /etc /var/lib/machines -xdev -name '.aks-flex-node-tmp-*' 2> /dev/null || true
for d in /var/lib/machines/kube1 /var/lib/machines/.kube1*; do [ ! -e "$d" ] || echo "$d is there"; done
"#;

/// Leaves so many MiB free on the host's disk: to root, for whom ext4 keeps nothing back but the 16 MiB of its own.
async fn fill(host: &Host, free: u32) -> Result<()> {
    host.sh(&format!(
        "rm -f /var/filler; sync; all=$(stat -f -c '%f %S' /var | {{ read -r blocks size; echo $(( (blocks * size >> 20) - 16 )); }}); \
         [ $all -gt {free} ]; fallocate -l $(( all - {free} ))M /var/filler"
    ))
    .await
    .map(drop)
}

/// The disk is full at first for the agent's own image, then for the machine's: each time a failure that says so, is tried again and leaves
/// only whole files; with space the host joins.
pub(super) async fn disk_full(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    joining.options.disk = Disk::Image(4096);
    let registry = format!("{}:5000", context.bed.net.gateway());
    let host = context.provision(&joining).await?;
    // It shall not have the images before its disk is full.
    host.block(&registry, Refusal::Reset).await?;
    host.start().await?;
    host.wait_booted().await?;
    let bootstrap = Bootstrap(&host);
    // Less than the image has packed: its pull ends before anything of it is there by its name.
    fill(&host, 2).await?;
    host.unblock(&registry).await?;
    let limit = Duration::from_secs(120);
    bootstrap
        .says(&["no space left on device", "could not be pulled"], limit)
        .await?;
    whole(&host).await.context("after a pull into a full disk")?;
    // Room for the agent's image and what it unpacks to, not for a machine.
    fill(&host, 160).await?;
    bootstrap
        .says(
            &["no space is left on the disk of /var/lib/machines", "MiB are free"],
            limit,
        )
        .await?;
    whole(&host).await.context("after a machine that did not fit")?;
    wait::until_true("the next try's turn", limit, async || {
        Ok(bootstrap.property("SubState").await?.starts_with("auto-restart"))
    })
    .await?;
    let status = bootstrap.property("ExecMainStatus").await?;
    ensure!(status == "1", "{UNIT} ended with {status}, not 1");
    host.sh("rm /var/filler").await?;
    joins(context, &host).await
}

/// What is there of the agent's files is whole.
async fn whole(host: &Host) -> Result<()> {
    let torn = host.sh(TORN).await?;
    ensure!(torn.is_empty(), "it left behind: {torn}");
    host.read_file(INPUTS).await.context("the inputs are lost")?;
    for path in [BASE_CONFIG, CONFIG] {
        if host.exists(path).await? {
            let text = host.read_file(path).await?;
            serde_json::from_str::<serde_json::Value>(&text).with_context(|| format!("{path} is not whole"))?;
        }
    }
    Ok(())
}
