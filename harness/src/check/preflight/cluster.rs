//! `preflight.cluster`: the API server, its certificate, its clock, names and sources go wrong one after the other, and just that is told.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::{Bad, Context, Fresh, bad, said, wanted};
use crate::ca::Ca;
use crate::cache::Cache;
use crate::cloud::azure::{How, Page, Who, object_id};
use crate::cloud::faulty::{self, Door, Fault};
use crate::cloud::registry;
use crate::host::Refusal;
use crate::wait;

/// What all checks together may take, and a container's start on a busy machine.
const ALL: Duration = Duration::from_secs(20 + 10);
const PROGRAMS: [&str; 8] = [
    "error kubernetes-artifacts kubelet",
    "error kubernetes-artifacts kubectl",
    "error kubernetes-artifacts kube-proxy",
    "error cri-artifacts crictl",
    "error cri-artifacts containerd",
    "error cri-artifacts runc",
    "error cni-artifacts cni",
    "error npd-artifact npd",
];
const API: &str = "error api-server-reachable api-server-reachable";

/// fc_k1, fc_k4, fc_k5, fc_k6.
pub(super) async fn cluster(context: &Context) -> Result<()> {
    let fresh = Fresh::new(context).await?;
    wanted("nothing is wrong", &fresh.bad().await?, &[])?;
    tls(&fresh).await?;
    clock(&fresh).await?;
    token(&fresh).await?;
    identity(&fresh).await?;
    sources(&fresh).await?;
    // The host's resolver needs a moment to believe its server again.
    wait::until_true("everything was taken back", ALL * 4, async || {
        wanted("everything was taken back", &fresh.bad().await?, &[])?;
        Ok(true)
    })
    .await
}

/// The bed's authority, and its certificate.
async fn authority() -> Result<(String, Ca)> {
    let ca = Ca::of(&Cache::open()?).await?;
    Ok((std::fs::read_to_string(ca.certificate())?, ca))
}

/// The configuration with another API server.
async fn server(fresh: &Fresh<'_>, address: &str, ca: &str) -> Result<()> {
    let mut config = fresh.config.clone();
    config["node"]["kubelet"]["clusterFQDN"] = address.into();
    config["node"]["kubelet"]["caCertData"] = BASE64_STANDARD.encode(ca).into();
    fresh.configure(&config).await
}

/// A server with every certificate that there can be, and none.
async fn tls(fresh: &Fresh<'_>) -> Result<()> {
    let faulty = &fresh.context.cloud().faulty;
    let (ca, _) = authority().await?;
    let address = format!("{}:{}", faulty::HOST, faulty::PORT);
    server(fresh, &address, &ca).await?;
    wanted("a server with a good certificate", &fresh.bad().await?, &[])?;
    for (door, message) in [
        (Door::Early, "its certificate is not valid yet"),
        (Door::Late, "its certificate has expired"),
        (
            Door::Stranger,
            "its certificate is not signed by the configuration's CA",
        ),
        (Door::OtherName, "its certificate is for another name"),
        (Door::Mute, "no answer within 8 s"),
    ] {
        faulty.set(&fresh.host, Fault::door(door))?;
        let report = timed(fresh).await;
        faulty.heal(&fresh.host)?;
        let report = report?;
        wanted(&format!("{door:?}"), &bad(&report), &[API])?;
        let (told, remedy) = said(&report, "api-server-reachable")?;
        ensure!(told == message && !remedy.is_empty(), "{door:?}: {told}: {remedy}");
    }
    server(fresh, &format!("{}:{}", faulty::HOST, faulty::PLAIN_PORT), &ca).await?;
    let report = timed(fresh).await?;
    wanted("plain HTTP", &bad(&report), &[API])?;
    ensure!(
        said(&report, "api-server-reachable")?.0.contains("plain HTTP"),
        "{report:#}"
    );
    fresh.configure(&fresh.config).await
}

/// A server whose clock is an hour ahead: the host's is behind.
async fn clock(fresh: &Fresh<'_>) -> Result<()> {
    let net = &fresh.context.bed.net;
    let folder = fresh.context.bed.run.dir.join("ahead");
    std::fs::create_dir_all(&folder)?;
    let (certificate, ca) = authority().await?;
    let pair = ca.issue(&folder, "ahead", &[format!("IP:{}", net.gateway())]).await?;
    let date = crate::command::Command::line(&["date", "--utc", "--date=+1 hour", "+%a, %d %b %Y %H:%M:%S GMT"])
        .read()
        .await?;
    std::fs::write(
        folder.join("readyz"),
        format!(
            "HTTP/1.1 200 OK\r\nDate: {}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            date.trim()
        ),
    )?;
    let port = "6444";
    let address = format!("{}:{port}", net.gateway());
    let mut ahead = net
        .command("openssl")
        .args(["s_server", "-quiet", "-HTTP", "-accept", &address, "-cert"])
        .arg(&pair.certificate)
        .arg("-key")
        .arg(&pair.key)
        .dir(&folder)
        .into_inner()
        .kill_on_drop(true)
        .spawn()?;
    server(fresh, &address, &certificate).await?;
    let report = crate::wait::until(
        "a server whose clock is ahead answers",
        Duration::from_secs(30),
        async || {
            let report = fresh.report(("", ""), &[]).await?;
            Ok((!bad(&report).contains(API)).then_some(report))
        },
    )
    .await;
    ahead.kill().await?;
    let report = report?;
    wanted("a clock that is behind", &bad(&report), &["error clock clock"])?;
    let told = said(&report, "clock")?.0;
    ensure!(told.contains("60 min behind"), "{told}");
    fresh.configure(&fresh.config).await
}

/// A token that nobody made.
async fn token(fresh: &Fresh<'_>) -> Result<()> {
    let mut config = fresh.config.clone();
    config["azure"]["bootstrapToken"]["token"] = "abcdef.0123456789abcdef".into();
    fresh.configure(&config).await?;
    let report = timed(fresh).await?;
    wanted(
        "a token that nobody made",
        &bad(&report),
        &["error bootstrap-token bootstrap-token"],
    )?;
    ensure!(
        said(&report, "bootstrap-token")?.1.contains("new bootstrap token"),
        "{report:#}"
    );
    fresh.configure(&fresh.config).await
}

/// An Azure identity that the virtual machine does not have, whose metadata service is mute, or a stranger's; and one that it has.
async fn identity(fresh: &Fresh<'_>) -> Result<()> {
    const BAD: &str = "error azure-identity azure-identity";
    let client = object_id("of preflight.cluster");
    let mut config = fresh.config.clone();
    let settings = config["azure"].as_object_mut().context("a configuration has azure")?;
    settings.remove("bootstrapToken");
    settings.insert("managedIdentity".to_owned(), serde_json::json!({ "clientId": client }));
    fresh.configure(&config).await?;
    let azure = &fresh.context.cloud().azure;
    for (page, words, remedy) in [
        (
            Page::default(),
            "the metadata service (169.254.169.254) says HTTP status 400",
            "assign it",
        ),
        (
            Page::managed(&client).wrong(Who::Metadata, How::Silence),
            "does not answer: no answer within",
            "azure.bootstrapToken",
        ),
        (
            Page::managed(&client).wrong(Who::Metadata, How::Stranger),
            "is not it",
            "what stands between",
        ),
    ] {
        azure.set(&fresh.host, &page)?;
        let report = timed(fresh).await?;
        wanted("an identity without a token", &bad(&report), &[BAD])?;
        let told = said(&report, "azure-identity")?;
        ensure!(told.0.contains(words) && told.1.contains(remedy), "{told:?}");
    }
    azure.set(&fresh.host, &Page::managed(&client))?;
    wanted("an identity that it has", &bad(&timed(fresh).await?), &[])?;
    azure.forget(&fresh.host)?;
    fresh.configure(&fresh.config).await
}

/// Servers and the resolver go away.
async fn sources(fresh: &Fresh<'_>) -> Result<()> {
    let (host, gateway) = (&fresh.host, fresh.context.bed.net.gateway());
    let registry = format!("{gateway}:{}", registry::PORT);
    host.block(&registry, Refusal::Reset).await?;
    wanted(
        "no registry",
        &bad(&timed(fresh).await?),
        &["error oci-image oci-image"],
    )?;
    host.unblock(&registry).await?;
    let downloads = format!("{gateway}:443");
    host.block(&downloads, Refusal::Silence).await?;
    wanted("no downloads", &bad(&timed(fresh).await?), &PROGRAMS)?;
    host.unblock(&downloads).await?;

    host.block_names().await?;
    host.sh("resolvectl flush-caches").await?;
    let report = timed(fresh).await?;
    host.heal().await?;
    let lines: Bad = bad(&report);
    let others: Vec<_> = lines.iter().filter(|line| !line.starts_with("error dns ")).collect();
    ensure!(
        others.is_empty() && lines.contains("error dns the API server") && lines.contains("error dns kubelet"),
        "no resolver: {lines:#?}"
    );
    Ok(())
}

/// The report, had in time.
async fn timed(fresh: &Fresh<'_>) -> Result<Value> {
    let began = Instant::now();
    let report = fresh.report(("", ""), &[]).await.context("a preflight")?;
    ensure!(began.elapsed() < ALL, "it took {:?}", began.elapsed());
    Ok(report)
}
