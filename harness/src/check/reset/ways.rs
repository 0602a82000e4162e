//! `reset.ways`: a host is reset by its unit, by an operation whose daemon dies in the middle, and by the verb in the agent's own container;
//! after each it is byte for byte what it was, and after each it joins again: under another name, under the old one after its Node was
//! deleted and with its registry away, and with an image that it is given.
//!
//!     off ▸ booted, as it was ▸ joined ▸ unit ▸ joined ▸ operation ▸ joined ▸ verb ▸ joined

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::rejoin::Rejoin;
use super::snapshot::Snapshot;
use super::{Context, NOTHING, RESET, by_unit, ends, joined, mark, said};
use crate::agent::{SELECTION, UNIT};
use crate::agent_image::Variant;
use crate::host::Host;
use crate::node::READY;
use crate::wait;

/// What others have, in the agent's folders and beside them: it has to survive.
const CANARIES: &str = r#"
mkdir -p /var/lib/machines/kube1/var/lib/kubelet/{etc,tmp,loop} /srv/precious
echo theirs > /srv/precious/file
mount --bind /etc /var/lib/machines/kube1/var/lib/kubelet/etc
mount -t tmpfs tmpfs /var/lib/machines/kube1/var/lib/kubelet/tmp
echo theirs > /var/lib/machines/kube1/var/lib/kubelet/tmp/file
mount --bind /srv/precious /var/lib/machines/kube1/var/lib/kubelet/loop
ln -s /srv/precious /var/lib/machines/kube1/var/lib/kubelet/link
ln -s /srv/precious /var/lib/machines/kube1/away
echo theirs > /etc/aks-flex-node/notes.txt
echo theirs > /var/log/aks-flex-node/theirs.log
echo '[Unit]' > /etc/systemd/system/systemd-nspawn@kube1.service.d/theirs.conf
mkdir -p /var/lib/machines/other/etc
echo theirs > /var/lib/machines/other/etc/file
nft add table inet canary
ip link add theirs0 type veth peer name theirs1
"#;

/// Takes them away again; whatever of them is gone makes this fail.
const SURVIVED: &str = r#"
k=/var/lib/machines/kube1/var/lib/kubelet
diff -q /etc/hostname $k/etc/hostname
for file in $k/tmp/file $k/loop/file /srv/precious/file /etc/aks-flex-node/notes.txt /var/log/aks-flex-node/theirs.log /var/lib/machines/other/etc/file; do
    [ "$(cat $file)" = theirs ]
done
[ "$(cat /etc/systemd/system/systemd-nspawn@kube1.service.d/theirs.conf)" = '[Unit]' ]
ip link del theirs0
nft list table inet canary > /dev/null
nft delete table inet canary
umount $k/etc $k/tmp $k/loop
rm -r /etc/aks-flex-node /var/log/aks-flex-node /var/lib/machines/other /srv/precious /etc/systemd/system/systemd-nspawn@kube1.service.d
"#;

pub(super) async fn na_t16_na_t17_fc_x1_fc_x4_fc_x6_fc_x7_fc_k2_ways(context: &Context) -> Result<()> {
    let registry = format!("{}:5000", context.bed.net.gateway());
    let (host, before) = joined(context, &context.joining().await?).await?;
    unit(context, &host, &before).await.context("by its unit")?;
    let other = format!("{}-b", host.name());
    Rejoin::under(context, &host, &other)
        .await?
        .join(context, &host)
        .await
        .context("the join under another name")?;
    operation(context, &host, &other, &before)
        .await
        .context("by an operation")?;
    let cluster = &context.cloud().cluster;
    cluster.kubectl(&["delete", "node", host.name()], "").await?;
    let away = Rejoin::under(context, &host, host.name()).await?;
    away.join_offline(context, &host, &registry)
        .await
        .context("the join after the Node's deletion")?;
    verb(&host, &before).await.context("by the verb")?;
    let second = context.variant(Variant::Second).await?;
    host.write_file(SELECTION, format!("AKS_FLEX_NODE_AGENT_IMAGE={second}\n"), 0o600)
        .await?;
    let given = Rejoin::under(context, &host, host.name()).await?;
    given
        .join(context, &host)
        .await
        .context("the join with a given image")?;
    let containers = host.agent().ctr(&["containers", "list"]).await?;
    ensure!(
        containers.contains(&second.to_string()),
        "the agent runs as {containers}"
    );
    Ok(())
}

/// With everybody's canaries in the way, which stay and are told; then a second one, which has nothing to do.
async fn unit(context: &Context, host: &Host, before: &Snapshot) -> Result<()> {
    let pod = format!("reset-{}", host.name());
    let cluster = &context.cloud().cluster;
    let image = context.cloud().images.busybox.to_string();
    cluster.pod(&pod, host.name(), &image).await?;
    cluster.pod_running(&pod, READY).await?;
    host.sh(CANARIES).await?;
    let planned = host
        .agent()
        .exec(&["/usr/bin/aks-flex-node", "plan", "reset", "--json"])
        .await?;
    let plan: Value = serde_json::from_str(&planned.stdout).with_context(|| format!("plan reset: {planned:?}"))?;
    ensure!(
        plan.to_string().contains("/var/lib/machines/kube1"),
        "the plan is {plan}"
    );
    host.wait_active(&[UNIT], READY).await?;
    let report = by_unit(host).await?;
    for kept in [
        "kept       /var/lib/machines/kube1/var/lib/kubelet/etc: something is mounted there",
        "kept       /var/lib/machines/kube1/var/lib/kubelet/tmp: something is mounted there (tmpfs)",
        "in it is what the agent did not make: notes.txt",
        "in it is what the agent did not make: theirs.log",
        "in it is what the agent did not make: theirs.conf",
    ] {
        ensure!(report.contains(kept), "it does not tell {kept:?}: {report}");
    }
    host.sh(SURVIVED).await.context("the canaries")?;
    let again = by_unit(host).await?;
    ensure!(again.contains(" 0 could not be removed"), "{again}");
    let third = by_unit(host).await?;
    ensure!(
        third.contains(NOTHING),
        "a reset of a host without anything says {third}"
    );
    before.is_restored(&Snapshot::of(host).await?, &[])?;
    // The Node is the cluster's.
    ensure!(cluster.get("node", host.name()).await?.is_some(), "the Node is gone");
    cluster
        .kubectl(&["delete", "pod", &pod, "--grace-period=0", "--force"], "")
        .await
        .map(drop)
}

/// The daemon dies while the node goes: the next one goes on, and the operation ends once, before the agent does.
async fn operation(context: &Context, host: &Host, node: &str, before: &Snapshot) -> Result<()> {
    let cluster = &context.cloud().cluster;
    let name = format!("reset-{node}");
    let mark = mark(host).await?;
    let pid = host.agent().daemon().await?;
    cluster
        .machine_operation(&name, node, "AgentReset", &[("", ""); 0])
        .await?;
    let record = "/etc/aks-flex-node/reset.json";
    wait::until_true("the node is being removed", RESET, async || {
        Ok(host
            .read_file(record)
            .await
            .is_ok_and(|text| text.contains("\"removing\"")))
    })
    .await?;
    host.sh(&format!("kill -KILL {pid}")).await?;
    let over = cluster.operation_over(&name, RESET).await?;
    ensure!(
        (over.phase(), over.reason()) == ("Complete", "Succeeded")
            && over.message().contains("the node is off this host"),
        "the operation: {}",
        over.text()
    );
    ends(host).await?;
    let said = said(host, &mark).await?;
    ensure!(said.contains(" 0 could not be removed"), "the reset's unit says {said}");
    let later = cluster.operation(&name).await?;
    ensure!(
        later.text() == over.text(),
        "the operation has changed after its end: {}",
        later.text()
    );
    before.is_restored(&Snapshot::of(host).await?, &[])
}

/// In the agent's own container, which goes with it.
async fn verb(host: &Host, before: &Snapshot) -> Result<()> {
    let said = host.agent().exec(&["/usr/bin/aks-flex-node", "reset"]).await?;
    ensure!(said.stdout.contains("the reset goes on by itself"), "it says {said:?}");
    ends(host).await?;
    before.is_restored(&Snapshot::of(host).await?, &[])
}
