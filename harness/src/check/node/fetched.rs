//! Hosts that are told by Azure what they join with: their inputs name a cluster, a pool and an identity, and hold no secret.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Context;
use crate::cloud::azure::{Page, Who, object_id};
use crate::cloud::join::CLUSTER_ID;
use crate::host::Host;
use crate::node::{INPUTS, Joining, READY};
use crate::wait;

const CONFIG: &str = "/etc/aks-flex-node/config.json";
const POOL: &str = "flexnodes";
const UNIT: &str = "aks-flex-node-bootstrap.service";
/// Plays Azure Arc's agent on the host.
const HIMDS: &str = include_str!("himds");

/// A host without token, API server, CA and version, and what its pool says of them.
async fn joining(context: &Context, auth: &str) -> Result<(Joining, Value)> {
    let mut joining = context.joining().await?;
    let config = &mut joining.config;
    let kubelet = config["node"]["kubelet"].take();
    let version = config["components"]["kubernetes"].take();
    // Left over from another cluster: what Azure says counts.
    config["azure"] = json!({ "bootstrapToken": { "token": "abcdef.0123456789abcdef" } });
    let inputs = format!(
        "AKS_FLEX_NODE_BASE_CONFIG_FILE=/etc/aks-flex-node/base-config.json\nAKS_FLEX_NODE_FETCH_BOOTSTRAP_DATA=true\n{auth}\
         AKS_FLEX_NODE_CLUSTER_RESOURCE_ID={CLUSTER_ID}\nAKS_FLEX_NODE_AGENT_POOL_NAME={POOL}\n"
    );
    joining.inputs.push(("bootstrap.env".to_owned(), inputs));
    let data = json!({
        "azure": { "bootstrapToken": { "token": joining.token.reveal() } },
        "components": { "kubernetes": version, "containerd": "" },
        "node": { "kubelet": kubelet },
    });
    Ok((joining, data))
}

/// Waits until the bootstrap has said it.
async fn says(host: &Host, text: &str) -> Result<()> {
    wait::until_true(&format!("the bootstrap says {text:?}"), READY, async || {
        Ok(host.journal(&["--output=cat", "--unit", UNIT]).await?.contains(text))
    })
    .await
}

/// It has joined, with what its pool says; the inputs are gone, and the token is in no journal.
async fn is_good(context: &Context, host: &Host, joining: &Joining) -> Result<()> {
    context.is_joined(host).await?;
    wait::until_true("the end of the inputs", Duration::from_secs(60), async || {
        Ok(!host.exists(INPUTS).await?)
    })
    .await?;
    let config: Value = serde_json::from_str(&host.read_file(CONFIG).await?)?;
    ensure!(
        config["azure"]["bootstrapToken"]["token"] == joining.token.reveal()
            && config["azure"]["targetAgentPoolName"] == POOL
            && config["node"]["labels"]["bed"] == "yes",
        "the configuration is not that of the pool and the operator"
    );
    let mode = host.sh(&format!("stat --format='%a %U' {CONFIG}")).await?;
    ensure!(mode.trim() == "600 root", "{CONFIG} is {mode}");
    let said = host
        .exec_ok(&["journalctl", "--merge", "--quiet", "--output=cat"])
        .await?;
    let token = joining.token.reveal();
    for canary in [token.as_str(), "canary", "eyJ"] {
        let line = said.lines().find(|line| line.contains(canary));
        ensure!(line.is_none(), "a journal has {line:?}");
    }
    Ok(())
}

/// By its virtual machine's identity, whose role comes late: it joins by itself once it may ask.
pub(super) async fn fetched_bootstrap(context: &Context) -> Result<()> {
    let client = object_id("of node.fetched-bootstrap");
    let auth = format!("AKS_FLEX_NODE_AUTH=msi\nAKS_FLEX_NODE_MSI_CLIENT_ID={client}\n");
    let (joining, data) = joining(context, &auth).await?;
    let host = context.provision(&joining).await?;
    let azure = &context.cloud().azure;
    azure.set(&host, &Page::managed(&client))?;
    let mark = azure.mark();
    host.start().await?;
    host.wait_booted().await?;
    says(
        &host,
        "HTTP status 403, AuthorizationFailed): this identity may not list",
    )
    .await?;
    ensure!(
        !host.exists(CONFIG).await?,
        "it wrote a configuration without what it has to be told"
    );
    azure.set(&host, &Page::managed(&client).pool(data))?;
    is_good(context, &host, &joining).await?;
    let path = format!("{CLUSTER_ID}/agentPools/{POOL}/listBootstrapData");
    let asked = azure.requests(&host, mark)?;
    let asked: Vec<_> = asked.iter().filter(|request| request.of == Who::Manager).collect();
    ensure!(
        asked.len() >= 2 && asked.iter().all(|request| request.path == path),
        "it asked {asked:?}"
    );
    Ok(())
}

/// By its identity in Azure Arc, whose agent comes after the first boot's own units. na_r17: what the container has not is not missed.
pub(super) async fn na_r17_arc(context: &Context) -> Result<()> {
    let client = object_id("of node.arc");
    let (joining, data) = joining(context, "AKS_FLEX_NODE_AUTH=arc\n").await?;
    let host = context.provision(&joining).await?;
    context.cloud().azure.set(&host, &Page::managed(&client).pool(data))?;
    host.start().await?;
    host.wait_booted().await?;
    host.write_file("/run/himds", HIMDS, 0o755).await?;
    host.sh(
        "install -d -m 0750 /var/opt/azcmagent/tokens
         systemd-run --quiet --unit=himdsd.service socat TCP-LISTEN:40342,bind=127.0.0.1,reuseaddr,fork EXEC:/run/himds",
    )
    .await?;
    is_good(context, &host, &joining).await?;
    let left = host.sh("ls /var/opt/azcmagent/tokens").await?;
    ensure!(left.is_empty(), "challenges were not answered: {left}");
    let after = host
        .exec_ok(&["systemctl", "show", "--property=After", crate::agent::UNIT])
        .await?;
    ensure!(after.contains("himdsd.service"), "the agent's unit is {after}");

    let program = "/usr/bin/aks-flex-node";
    let asked = ["preflight", "--config", CONFIG, "--output", "json"];
    let said = host.agent().exec(&[&[program][..], &asked].concat()).await?;
    let report: Value = serde_json::from_str(&said.stdout).context("preflight's report")?;
    let lines = report["checks"].as_array().context("a report has lines")?;
    let own = |line: &&Value| {
        ["azure arc", "azcmagent", "himds"]
            .iter()
            .any(|word| line.to_string().to_lowercase().contains(word))
    };
    let bad: Vec<&Value> = lines
        .iter()
        .filter(|line| line["severity"] == "error")
        .filter(own)
        .collect();
    ensure!(bad.is_empty(), "preflight holds against Arc {bad:?}");
    let identity = lines.iter().find(|line| line["name"] == "azure-identity");
    ensure!(
        identity.is_some_and(|line| line["severity"] == "ok"),
        "preflight says of the identity {identity:?}"
    );
    Ok(())
}
