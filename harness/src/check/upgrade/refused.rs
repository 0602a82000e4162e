//! Operations after which everything is as it was.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::asked::ask_for;
use super::canary::Canary;
use super::state::{LAST_GOOD, State};
use super::{OVER, PULL};
use crate::agent::{SELECTION, UNIT};
use crate::agent_image::Variant;
use crate::check::Context;
use crate::check::context::Depth;
use crate::cloud::cluster::Cluster;
use crate::cloud::registry;
use crate::host::{Host, Refusal};
use crate::wait;

const RECOVERY: &str = "aks-flex-node-agent-recovery.service";
/// A digest that is one.
const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

/// An AgentUpgrade that can't work.
struct Bad {
    name: &'static str,
    url: Option<&'static str>,
    digest: Option<&'static str>,
    /// What the message names.
    says: &'static str,
}

const fn bad(name: &'static str, url: &'static str, digest: &'static str, says: &'static str) -> Bad {
    Bad {
        name,
        url: Some(url),
        digest: Some(digest),
        says,
    }
}

/// In each of them CANARY becomes the word that must not come out, and HEX a digest.
const BAD: [Bad; 17] = [
    Bad {
        name: "no-url",
        url: None,
        digest: Some("HEX"),
        says: "downloadURL",
    },
    Bad {
        name: "no-digest",
        url: Some("oci://registry.test:5000/CANARY/agent"),
        digest: None,
        says: "sha256",
    },
    bad(
        "digest-in-url",
        "oci://registry.test:5000/CANARY@sha256:HEX",
        "HEX",
        "digest",
    ),
    bad(
        "archive",
        "https://registry.test:5000/CANARY/agent.tar.gz",
        "HEX",
        "archive",
    ),
    bad(
        "archive-query",
        "https://registry.test/agent.tar.gz?sig=CANARY",
        "HEX",
        "archive",
    ),
    bad(
        "user-info",
        "oci://user:CANARY@registry.test:5000/agent",
        "HEX",
        "downloadURL",
    ),
    bad(
        "query",
        "oci://registry.test:5000/agent?token=CANARY",
        "HEX",
        "downloadURL",
    ),
    bad(
        "fragment",
        "oci://registry.test:5000/agent#CANARY",
        "HEX",
        "downloadURL",
    ),
    bad(
        "capitals",
        "oci://registry.test:5000/Agent/CANARY",
        "HEX",
        "downloadURL",
    ),
    bad("no-registry", "oci://agent/CANARY", "HEX", "registry"),
    bad("no-scheme", "registry.test:5000/CANARY", "HEX", "oci://"),
    bad("short-digest", "oci://registry.test:5000/CANARY", "HEX-short", "sha256"),
    bad("long-digest", "oci://registry.test:5000/CANARY", "HEX0", "sha256"),
    bad(
        "space-in-url",
        "oci://registry.test:5000/agent CANARY",
        "HEX",
        "downloadURL",
    ),
    bad(
        "space-in-digest",
        "oci://registry.test:5000/CANARY",
        "HEX HEX",
        "sha256",
    ),
    bad("word-for-digest", "oci://registry.test:5000/agent", "CANARY", "sha256"),
    bad("both", "oci://Registry?CANARY", "CANARY", "sha256"),
];

/// Parameters that can't work fail at once with a text that repeats none of them, and nothing else happens.
pub(super) async fn na_t10_na_t11_na_t12_na_r01_na_r20_invalid(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let cluster = &context.cloud().cluster;
    let canary = Canary::of(&host, context.seed).await?;
    let before = State::of(&host).await?;
    let mark = context.cloud().registry.mark();
    let over = canary.watch(all_over(cluster, &host, &canary.word)).await?;
    for bad in &BAD {
        let status = &over[bad.name];
        let completed = completed(status).with_context(|| bad.name)?;
        ensure!(
            status["phase"] == "Failed" && completed["status"] == "False" && completed["reason"] == "InvalidParameters",
            "{}: {status}",
            bad.name
        );
        let message = status["message"].as_str().unwrap_or_default();
        ensure!(
            message.contains(bad.says),
            "{}: the message does not name {}: {message}",
            bad.name,
            bad.says
        );
        ensure!(
            !status.to_string().contains(&canary.word),
            "{}: the status repeats what was given: {status}",
            bad.name
        );
    }
    let both = over["both"]["message"].as_str().unwrap_or_default();
    ensure!(!both.contains("downloadURL"), "the digest is to be named first: {both}");
    let after = State::of(&host).await?;
    ensure!(after == before, "{before:?} became {after:?}");
    let asked = context.cloud().registry.requests(mark)?;
    let asked: Vec<_> = asked.iter().filter(|request| request.from == host.address()).collect();
    ensure!(asked.is_empty(), "the registry was asked: {asked:?}");
    Ok(())
}

/// Asks for every one of them at once, and waits until all are over: their statuses, by name.
async fn all_over(cluster: &Cluster, host: &Host, word: &str) -> Result<BTreeMap<&'static str, Value>> {
    let fill = |text: &str| {
        let text = text.replace("HEX-short", &HEX[1..]).replace("HEX", HEX);
        text.replace("CANARY", word)
    };
    let name = |bad: &Bad| format!("bad-{}-{}", host.name(), bad.name);
    let items: Vec<Value> = BAD
        .iter()
        .map(|bad| {
            let mut parameters = serde_json::Map::new();
            for (key, value) in [("downloadURL", bad.url), ("sha256", bad.digest)] {
                if let Some(value) = value {
                    parameters.insert(key.to_owned(), fill(value).into());
                }
            }
            json!({
                "apiVersion": "unbounded-cloud.io/v1alpha3",
                "kind": "MachineOperation",
                "metadata": { "name": name(bad) },
                "spec": { "machineRef": host.name(), "operationKind": "AgentUpgrade", "parameters": parameters },
            })
        })
        .collect();
    let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
    cluster.kubectl(&["create", "-f", "-"], &list.to_string()).await?;
    wait::until("every bad operation is over", OVER, async || {
        let all: Value =
            serde_json::from_str(&cluster.kubectl(&["get", "machineoperations", "-o", "json"], "").await?)?;
        let all = all["items"].as_array().context("no list")?;
        let mut over = BTreeMap::new();
        for bad in &BAD {
            let found = all.iter().find(|one| one["metadata"]["name"] == name(bad).as_str());
            let status = &found.context("an operation is gone")?["status"];
            if matches!(status["phase"].as_str(), Some("Complete" | "Failed")) {
                over.insert(bad.name, status.clone());
            }
        }
        Ok((over.len() == BAD.len()).then_some(over))
    })
    .await
}

fn completed(status: &Value) -> Result<&Value> {
    let conditions = status["conditions"].as_array().context("it has no conditions")?;
    let completed = conditions.iter().find(|condition| condition["type"] == "Completed");
    completed.context("it has no condition Completed")
}

/// A digest that the registry does not have; nothing was ever selected on this host.
pub(super) async fn unknown_digest(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    // Without the file the install's image runs, which is the one that runs.
    host.exec_ok(&["rm", "-f", SELECTION]).await?;
    let before = State::of(&host).await?;
    before.runs(&before.image)?;
    let nowhere = before.image.repository.at(format!("sha256:{HEX}").parse()?);
    let seen = ask_for(context, &host, &nowhere).await?.over(context, OVER).await?;
    seen.failed(&["ExecutionFailed"])?;
    came_to_nothing(&host, &before, seen.over.message(), &["manifest", "404"]).await
}

/// A registry that refuses connections; at full depth also one that says nothing.
pub(super) async fn na_r03_registry_down(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let image = context.variant(Variant::Third).await?;
    let before = State::of(&host).await?;
    host.write_file(
        SELECTION,
        format!("AKS_FLEX_NODE_AGENT_IMAGE={}\n", before.image),
        0o600,
    )
    .await?;
    let before = State::of(&host).await?;
    ensure!(!before.has(&image), "{image} is here already");
    let server = format!("{}:{}", context.bed.net.gateway(), registry::PORT);
    let hows: &[(Refusal, std::time::Duration)] = match context.depth {
        Depth::Short => &[(Refusal::Reset, OVER)],
        Depth::Full => &[(Refusal::Reset, OVER), (Refusal::Silence, PULL)],
    };
    for (how, limit) in hows {
        host.block(&server, *how).await?;
        let asked = ask_for(context, &host, &image).await?;
        let seen = asked.over(context, *limit).await;
        host.unblock(&server).await?;
        let seen = seen?;
        seen.failed(&["ExecutionFailed"])?;
        came_to_nothing(&host, &before, seen.over.message(), &["manifest"]).await?;
    }
    Ok(())
}

/// The host is as it was, and the message names the registry, the step, and nothing secret.
async fn came_to_nothing(host: &Host, before: &State, message: &str, says: &[&str]) -> Result<()> {
    let registry = format!("{}:{}", registry::HOST, registry::PORT);
    for word in [registry.as_str(), "pull"].iter().chain(says) {
        ensure!(message.contains(word), "the message does not name {word}: {message:?}");
    }
    for word in ["oci://", "https://", "http://", "Bearer"] {
        ensure!(!message.contains(word), "the message holds {word}: {message:?}");
    }
    let after = State::of(host).await?;
    ensure!(after == *before, "{before:?} became {after:?}");
    Ok(())
}

/// The recovery unit is started at every failure of the agent's unit: it must do nothing when there is nothing to recover.
pub(super) async fn na_r26_recovery_quiet(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let found = State::of(&host).await?;

    host.exec_ok(&["rm", "-f", LAST_GOOD]).await?;
    let before = State::of(&host).await?;
    let how = recover(&host).await.context("without a last good image")?;
    ensure!(
        how.contains("ConditionResult=no"),
        "without a last good image it ran: {how}"
    );
    let after = State::of(&host).await?;
    ensure!(after == before, "without a last good image {before:?} became {after:?}");

    // Another image than the one that runs: going back to it would be seen.
    let second = context.variant(Variant::Second).await?;
    host.agent().ctr(&["images", "pull", &second.to_string()]).await?;
    host.write_file(LAST_GOOD, format!("AKS_FLEX_NODE_AGENT_IMAGE={second}\n"), 0o600)
        .await?;
    let before = State::of(&host).await?;
    let how = recover(&host).await.context("without an upgrade")?;
    ensure!(
        how.contains("ConditionResult=yes"),
        "with a last good image it did not run: {how}"
    );
    let after = State::of(&host).await?;
    ensure!(after == before, "without an upgrade {before:?} became {after:?}");

    if !found.has(&second) {
        host.agent().ctr(&["images", "rm", &second.to_string()]).await?;
    }
    match found.last_good {
        Some(text) => host.write_file(LAST_GOOD, text, 0o600).await,
        None => host.exec_ok(&["rm", LAST_GOOD]).await.map(drop),
    }
}

/// Starts the recovery unit, waits for its end, which must be a good one, and says how it went.
async fn recover(host: &Host) -> Result<String> {
    host.exec_ok(&["systemctl", "start", RECOVERY]).await?;
    let how = host
        .exec_ok(&[
            "systemctl",
            "show",
            "--property=ConditionResult,Result,ExecMainStatus,ActiveState",
            RECOVERY,
        ])
        .await?;
    for good in ["Result=success", "ExecMainStatus=0", "ActiveState=inactive"] {
        ensure!(how.lines().any(|line| line == good), "the recovery unit: {how}");
    }
    let jobs = host.exec_ok(&["systemctl", "list-jobs", "--no-legend", UNIT]).await?;
    ensure!(jobs.is_empty(), "it asked for a restart: {jobs}");
    Ok(how)
}
