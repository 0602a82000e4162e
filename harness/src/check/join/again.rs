//! A host that has joined goes on without what it joined with.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::Value;

use super::bootstrap::{Bootstrap, UNIT};
use super::{Context, INPUTS};
use crate::cloud::cluster::Cluster;
use crate::host::{Host, Refusal};
use crate::node::READY;
use crate::wait;

const AGENT: &str = "aks-flex-node-agent.service";

/// na_t15: without its registry a rebooted host becomes Ready again; the bootstrap is skipped, and nobody asks for an image.
pub(super) async fn second_boot(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let registry = format!("{}:5000", context.bed.net.gateway());
    let mark = context.cloud().registry.mark();
    host.block(&registry, Refusal::Reset).await?;
    let asked = Asked::count(context, &host, &registry).await?;
    host.reboot().await?;
    context.is_joined(&host).await?;
    let bootstrap = Bootstrap(&host);
    let skipped = bootstrap.property("ConditionResult").await?;
    let looked = bootstrap.property("ConditionTimestampMonotonic").await?;
    ensure!(
        skipped == "no" && looked != "0",
        "{UNIT} was not skipped: ConditionResult={skipped} at {looked}"
    );
    ensure!(!host.exists(INPUTS).await?, "{INPUTS} is there");
    let pulls = context.cloud().registry.pulls(host.address(), mark)?;
    ensure!(pulls.is_empty(), "it pulled: {pulls:?}");
    let asked = asked.number().await?;
    ensure!(asked == 0, "it asked its registry {asked} times");
    host.unblock(&registry).await
}

/// Counts a host's tries to reach a server.
struct Asked<'a> {
    context: &'a Context,
    table: String,
}

impl<'a> Asked<'a> {
    async fn count(context: &'a Context, host: &Host, server: &str) -> Result<Self> {
        let (address, port) = server.rsplit_once(':').context("a server has a port")?;
        // By this name `heal` and `down` take it away with the host's faults.
        let table = format!("{}_asked", host.name());
        let from = host.address();
        let rules = format!(
            "table inet {table} {{\nchain c {{\ntype filter hook input priority -10\n\
             ip saddr {from} ip daddr {address} tcp dport {port} tcp flags & (syn | ack) == syn counter\n}}\n}}\n"
        );
        context
            .bed
            .net
            .command("nft")
            .args(["-f", "-"])
            .stdin(rules)
            .run()
            .await?;
        Ok(Self { context, table })
    }

    async fn number(self) -> Result<u64> {
        let nft = |verb: &'static str| {
            let command = self.context.bed.net.command("nft").args([verb, "table", "inet"]);
            command.arg(&self.table)
        };
        let listed = nft("list").read().await?;
        nft("delete").run().await?;
        let words: Vec<&str> = listed.split_whitespace().collect();
        let at = words.iter().position(|word| *word == "packets").context("no counter")?;
        Ok(words.get(at + 1).context("a counter counts")?.parse()?)
    }
}

/// The token is gone and the daemon starts anew: it is known by its certificate, and obeys.
pub(super) async fn token_revoked(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let cluster = &context.cloud().cluster;
    let token = token_of(cluster, host.name()).await?;
    let revoked = async || {
        // An administrator's certificate would be asked first.
        let bare = [
            "--kubeconfig=/dev/null",
            "--insecure-skip-tls-verify",
            "get",
            "--raw=/api",
        ];
        let server = format!("--server={}", cluster.plane().url());
        let bearer = format!("--token={}", token.bearer);
        let answer = cluster
            .try_kubectl(&[&bare[..], &[server.as_str(), &bearer]].concat(), "")
            .await?;
        let refused = answer.stderr.contains("Unauthorized") || answer.stderr.contains("must be logged in");
        ensure!(answer.ok() != refused, "the API server says {answer:?}");
        Ok(refused)
    };
    ensure!(!revoked().await?, "the token is not known");
    cluster
        .kubectl(&["--namespace=kube-system", "delete", "secret", &token.secret], "")
        .await?;
    wait::until_true("the end of the token", Duration::from_secs(30), revoked).await?;
    host.exec_ok(&["systemctl", "restart", AGENT]).await?;
    let operation = format!("revoked-{}", host.name());
    // It can't work, and so can be answered without any change.
    let url = [("downloadURL", "oci://registry.test:5000/aks-flex-node/agent")];
    cluster
        .machine_operation(&operation, host.name(), "AgentUpgrade", &url)
        .await?;
    let answer = cluster.operation_over(&operation, Duration::from_secs(60)).await?;
    ensure!(
        answer.reason() == "InvalidParameters",
        "the operation: {}",
        answer.text()
    );
    host.wait_active(&[AGENT], READY).await
}

/// A bootstrap token in the cluster.
struct Token {
    /// The name of its object.
    secret: String,
    bearer: String,
}

async fn token_of(cluster: &Cluster, host: &str) -> Result<Token> {
    let listed = cluster
        .kubectl(&["--namespace=kube-system", "get", "secrets", "--output=json"], "")
        .await?;
    let listed: Value = serde_json::from_str(&listed)?;
    let description = BASE64_STANDARD.encode(format!("host {host}"));
    let secrets = listed["items"].as_array().context("no list")?;
    let secret = secrets
        .iter()
        .find(|secret| secret["data"]["description"] == description.as_str())
        .with_context(|| format!("host {host} has no token"))?;
    let part = |name: &str| -> Result<String> {
        let text = secret["data"][name].as_str().context("a token has two parts")?;
        Ok(String::from_utf8(BASE64_STANDARD.decode(text)?)?)
    };
    Ok(Token {
        secret: secret["metadata"]["name"].as_str().context("no name")?.to_owned(),
        bearer: format!("{}.{}", part("token-id")?, part("token-secret")?),
    })
}
