//! Hosts that reach nothing, or little, but their cluster.

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Context;
use crate::ca::Ca;
use crate::cache;
use crate::cloud::bundle::{self, BUSYBOX, PAUSE};
use crate::cloud::downloads::RUNC;
use crate::command::Command;
use crate::host::{Host, Refusal};
use crate::node::{Joining, READY};
use crate::wait;

/// Where the host has what it was prepared with.
const PREPARED: &str = "/var/lib/prepared";
const CONFIG: &str = "/etc/aks-flex-node/config.json";

/// From a folder, an OCI layout and an archive on the host: it joins with no network but the API server's, runs a pod, and preflight says before
/// that all is there.
pub(super) async fn na_r18_offline(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    let cloud = context.cloud();
    let dir = context.bed.run.cloud_dir().join(format!("prepared-{}", joining.name));
    cache::private_dir(&dir)?;
    bundle::folder(&context.bed.run, cloud, &dir.join("bundle")).await?;
    let archive = dir.join("agent.tar");
    Command::line(&["tar", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(context.product().layout())
        .arg(".")
        .run()
        .await?;
    let binds = &mut joining.options.binds;
    binds.push((dir.clone(), PREPARED.to_owned()));
    binds.push((cloud.layout("machine"), "/var/lib/rootfs".to_owned()));
    let agent = format!(
        "AKS_FLEX_NODE_AGENT_IMAGE={}\nAKS_FLEX_NODE_AGENT_ARCHIVE={PREPARED}/agent.tar\n",
        joining.agent
    );
    joining.inputs.push(("agent.env".to_owned(), agent));
    let template = format!("file://{PREPARED}/{{{{ if .KubernetesVersion }}}}");
    offline(&mut joining, &template, "oci-layout:///var/lib/rootfs");
    let server = format!("{}:6443", context.bed.net.gateway());
    joining.config["node"]["kubelet"]["clusterFQDN"] = server.clone().into();

    // An operator's slip first: it is refused before a host is made.
    let refused = context
        .provision(&joining)
        .await
        .err()
        .context("it took a template it can't fill in")?;
    ensure!(
        format!("{refused:#}").contains("bootstrap.offlineArtifacts.source"),
        "it says {refused:#}"
    );
    offline(
        &mut joining,
        &format!("file://{PREPARED}/bundle"),
        "oci-layout:///var/lib/rootfs",
    );
    let host = context.provision(&joining).await?;
    host.reach_only(&server).await?;
    let runc = format!("runc/v{RUNC}/runc.amd64");
    let (there, away) = (dir.join("bundle").join(&runc), dir.join("runc"));
    std::fs::rename(&there, &away)?;
    host.start().await?;
    // A bundle that is not whole is told by the file that it lacks, once more by preflight with what to do, and nothing is begun.
    let lacks = format!("lacks {runc}:");
    wait::until_true("the bootstrap names the file", READY, async || {
        let said = host
            .journal(&["--output=cat", "--unit=aks-flex-node-bootstrap.service"])
            .await?;
        let explained = said
            .lines()
            .any(|line| line.contains("preflight finds") && line.contains("check=offline-artifacts"));
        Ok(said.contains(&lacks) && explained)
    })
    .await?;
    ensure!(
        !host.exists("/var/lib/machines/kube1").await?,
        "it made a machine of half a bundle"
    );
    std::fs::rename(&away, &there)?;
    context.is_joined(&host).await?;
    runs_a_pod(context, &host).await?;
    is_good(&host).await?;
    cache::remove_tree(&dir)
}

/// From an OCI artifact: the publishers' servers are away.
pub(super) async fn na_r18_offline_registry(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    let cloud = context.cloud();
    let dir = context.bed.run.cloud_dir().join(format!("prepared-{}", joining.name));
    cache::private_dir(&dir)?;
    bundle::folder(&context.bed.run, cloud, &dir.join("bundle")).await?;
    let artifact = bundle::artifact(cloud, &dir.join("bundle"), &dir).await?;
    let source = format!("oci://{}:{{{{ .KubernetesVersionNoV }}}}", artifact.repository);
    let machine = cloud.images.machine.to_string();
    offline(&mut joining, &source, &machine);
    let host = context.provision(&joining).await?;
    host.block(&format!("{}:443", context.bed.net.gateway()), Refusal::Reset)
        .await?;
    host.start().await?;
    context.is_joined(&host).await?;
    runs_a_pod(context, &host).await?;
    is_good(&host).await?;
    cache::remove_tree(&dir)
}

/// From an archive on a server of https, which has half of it at first: that is told, leaves nothing, and the host joins by itself once the whole is
/// there.
pub(super) async fn na_r18_offline_archive(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    let cloud = context.cloud();
    let run = &context.bed.run;
    let dir = run.cloud_dir().join(format!("prepared-{}", joining.name));
    let served = dir.join("served");
    cache::private_dir(&dir)?;
    cache::private_dir(&served)?;
    bundle::folder(run, cloud, &dir.join("bundle")).await?;
    let archive = dir.join("bundle.tar.zst");
    Command::line(&["tar", "--zstd", "-cf"])
        .arg(&archive)
        .arg("-C")
        .arg(dir.join("bundle"))
        .arg(".")
        .run()
        .await?;
    let bytes = std::fs::read(&archive)?;
    let digest = image::Digest::of(&bytes);
    let answer = |bytes: &[u8]| {
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            bytes.len()
        );
        [head.as_bytes(), bytes].concat()
    };
    std::fs::write(served.join("bundle.tar.zst"), answer(&bytes[..bytes.len() / 2]))?;
    // A name that leads to the bed, and a certificate of the authority that every host trusts.
    let (name, port) = ("mcr.microsoft.com", 8443);
    let pair = Ca::of(&run.cache)
        .await?
        .issue(&dir, "server", &[format!("DNS:{name}")])
        .await?;
    let net = &context.bed.net;
    let _server = net
        .command("openssl")
        .args([
            "s_server",
            "-quiet",
            "-HTTP",
            "-accept",
            &format!("{}:{port}", net.gateway()),
            "-cert",
        ])
        .arg(&pair.certificate)
        .arg("-key")
        .arg(&pair.key)
        .dir(&served)
        .into_inner()
        .kill_on_drop(true)
        .spawn()?;
    let machine = cloud.images.machine.to_string();
    offline(&mut joining, &format!("https://{name}:{port}/bundle.tar.zst"), &machine);
    joining.config["bootstrap"]["offlineArtifacts"]["sha256"] = digest.hex().into();
    let host = context.provision(&joining).await?;
    host.block(&format!("{}:443", net.gateway()), Refusal::Reset).await?;
    host.start().await?;
    wait::until_true("the bootstrap names the archive", READY, async || {
        let said = host
            .journal(&["--output=cat", "--unit=aks-flex-node-bootstrap.service"])
            .await?;
        Ok(said.contains("the archive of offline artifacts has the SHA-256"))
    })
    .await?;
    let left = host
        .sh("ls -A /var/lib/unbounded/offline-artifacts /var/lib/machines 2> /dev/null | grep -e kube1 -e whole || :")
        .await?;
    ensure!(left.is_empty(), "half an archive leaves {left}");
    std::fs::write(served.join("new"), answer(&bytes))?;
    std::fs::rename(served.join("new"), served.join("bundle.tar.zst"))?;
    context.is_joined(&host).await?;
    runs_a_pod(context, &host).await?;
    is_good(&host).await?;
    cache::remove_tree(&dir)
}

fn offline(joining: &mut Joining, source: &str, machine: &str) {
    let config = &mut joining.config;
    config["bootstrap"]["offlineArtifacts"] = json!({ "source": source });
    config["bootstrap"]["ociImage"] = machine.into();
    config["components"]["sandboxImage"] = PAUSE.into();
}

/// Of an image that only the bundle has, in a sandbox that only the bundle has.
async fn runs_a_pod(context: &Context, host: &Host) -> Result<()> {
    let cluster = &context.cloud().cluster;
    let pod = format!("offline-{}", host.name());
    cluster.pod(&pod, host.name(), BUSYBOX).await?;
    cluster.pod_running(&pod, READY).await
}

/// `preflight` finds the bundle, and a second start takes nothing anew.
async fn is_good(host: &Host) -> Result<()> {
    let agent = ["/usr/bin/aks-flex-node"];
    let asked = [
        "preflight",
        "--config",
        CONFIG,
        "--output",
        "json",
        "--check",
        "offline-artifacts",
    ];
    let said = host.agent().exec(&[&agent[..], &asked].concat()).await?;
    ensure!(said.ok(), "preflight: {said:?}");
    let report: Value = serde_json::from_str(&said.stdout).context("preflight's report")?;
    ensure!(
        report.to_string().contains("the offline bundle has all its files"),
        "preflight says {report}"
    );
    let seen = "find /var/lib/unbounded /var/lib/machines/kube1/usr/local/bin /var/lib/machines/kube1/opt/cni/bin -type f -printf '%p %T@ %s\\n' | sort";
    let before = host.sh(seen).await?;
    ensure!(before.contains("image-1.tar"), "no archive was staged: {before}");
    let again = host
        .agent()
        .exec(&[&agent[..], &["start", "--config", CONFIG]].concat())
        .await?;
    ensure!(again.ok(), "a second start: {again:?}");
    let after = host.sh(seen).await?;
    ensure!(before == after, "a second start changed {before} into {after}");
    Ok(())
}
