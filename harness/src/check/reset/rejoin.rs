//! A host that was reset joins again.

use anyhow::Result;
use serde_json::Value;

use super::{BOOTSTRAP, Context};
use crate::host::{Host, Refusal};
use crate::node::{INPUTS, Joining, READY};
use crate::wait;

const BASE_CONFIG: &str = "/etc/aks-flex-node/base-config.json";

/// What a host joins with again.
pub(super) struct Rejoin {
    /// The node's name.
    pub(super) node: String,
    config: Value,
}

impl Rejoin {
    /// A join under that name, with a token of its own.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(super) async fn under(context: &Context, host: &Host, node: &str) -> Result<Self> {
        let mut config = Joining::of(context.cloud(), context.product(), node).await?.config;
        if node != host.name() {
            config["agent"]["nodeName"] = node.into();
        }
        Ok(Self {
            node: node.to_owned(),
            config,
        })
    }

    /// Writes the inputs anew and starts the bootstrap; waits until the node is Ready since then, and its agent active.
    ///
    /// # Errors
    /// It is not so in time.
    pub(super) async fn join(&self, context: &Context, host: &Host) -> Result<()> {
        let since = self.begin(host).await?;
        self.joined(context, host, &since).await
    }

    /// The same with the registry away, until the bootstrap runs the image that is on the host: the machine's is from there too.
    ///
    /// # Errors
    /// It is not so in time.
    pub(super) async fn join_offline(&self, context: &Context, host: &Host, registry: &str) -> Result<()> {
        host.block(registry, Refusal::Reset).await?;
        let since = self.begin(host).await?;
        let told = "the pull failed: running the image that is on the host";
        wait::until_true("the bootstrap runs the image that is on the host", READY, async || {
            let of = format!("--since={}", since.trim().replace('T', " ").replace('Z', " UTC"));
            let said = host
                .journal(&["--boot", "--output=cat", "--unit", BOOTSTRAP, &of])
                .await?;
            Ok(said.contains(told))
        })
        .await?;
        host.unblock(registry).await?;
        self.joined(context, host, &since).await
    }

    async fn begin(&self, host: &Host) -> Result<String> {
        let config = serde_json::to_string_pretty(&self.config)?;
        host.write_file(BASE_CONFIG, config, 0o600).await?;
        let inputs = format!("AKS_FLEX_NODE_BASE_CONFIG_FILE={BASE_CONFIG}\n");
        host.write_file(INPUTS, inputs, 0o600).await?;
        let since = host.sh("date --utc +%FT%TZ").await?;
        host.exec_ok(&["systemctl", "start", "--no-block", BOOTSTRAP]).await?;
        Ok(since.trim().to_owned())
    }

    async fn joined(&self, context: &Context, host: &Host, since: &str) -> Result<()> {
        context
            .cloud()
            .cluster
            .node_ready_since(&self.node, since, READY)
            .await?;
        host.wait_active(&["aks-flex-node-agent.service"], READY).await
    }
}
