//! What an upgrade changes on a host, and what it must not: looked at before and after.

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;
use serde_json::Value;

use crate::agent::{CONTAINER, SELECTION};
use crate::cloud::cluster::Cluster;
use crate::host::Host;

/// The image that recovery goes back to.
pub(super) const LAST_GOOD: &str = "/etc/aks-flex-node/agent-image-last-good.env";
/// The upgrade that is going on.
const JOURNAL: &str = "/etc/aks-flex-node/agent-upgrade-signal.json";
/// The install's settings: the image that runs when none is selected.
const SETTINGS: &str = "/etc/aks-flex-node-agent.env";
/// What each of these files holds before the image.
const KEY: &str = "AKS_FLEX_NODE_AGENT_IMAGE=";

/// Which agent runs and which would run next: all that a refused operation leaves as it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct State {
    /// The image that containerd says the agent's container was made of.
    pub(super) image: ImageRef,
    /// The daemon's process.
    pub(super) pid: u32,
    /// When it started, in ticks since the machine's boot.
    pub(super) started: u64,
    /// `agent-image.env`, byte by byte, if it is there.
    pub(super) selected: Option<String>,
    /// `agent-image-last-good.env`, likewise.
    pub(super) last_good: Option<String>,
    settings: String,
    /// The names of the images in the agent's namespace.
    pub(super) images: Vec<String>,
}

impl State {
    /// What is so now.
    ///
    /// # Errors
    /// There is not exactly one agent, or the host can't be looked at.
    pub(super) async fn of(host: &Host) -> Result<Self> {
        let pid = host.agent().daemon().await?;
        let image = image(host).await?;
        Ok(Self {
            image: image.parse().ok().with_context(|| format!("{image} names no image"))?,
            pid,
            started: started(host, pid).await?,
            selected: file(host, SELECTION).await?,
            last_good: file(host, LAST_GOOD).await?,
            settings: host.read_file(SETTINGS).await?,
            images: images(host).await?,
        })
    }

    /// Whether it is this image that runs and that the next start runs too.
    ///
    /// # Errors
    /// What is not so.
    pub(super) fn runs(&self, image: &ImageRef) -> Result<()> {
        ensure!(self.image == *image, "{} runs, not {image}", self.image);
        let next = self.selected.as_ref().unwrap_or(&self.settings);
        ensure!(
            next.lines().any(|line| line == format!("{KEY}{image}")),
            "{image} runs, and the next start would run what is in {next:?}"
        );
        Ok(())
    }

    /// Whether that image is on the host.
    pub(super) fn has(&self, image: &ImageRef) -> bool {
        self.images.contains(&image.to_string())
    }
}

async fn image(host: &Host) -> Result<String> {
    let record = host.agent().ctr(&["containers", "info", CONTAINER]).await?;
    let record: Value = serde_json::from_str(&record).context("reading what `ctr containers info` says")?;
    let image = record["Image"].as_str().context("the container has no image")?;
    Ok(image.to_owned())
}

/// The names of the images in the agent's namespace.
///
/// # Errors
/// ctr's.
pub(super) async fn images(host: &Host) -> Result<Vec<String>> {
    let mut images: Vec<String> = host
        .agent()
        .ctr(&["images", "list", "--quiet"])
        .await?
        .lines()
        .map(str::to_owned)
        .collect();
    images.sort_unstable();
    Ok(images)
}

/// When a process of the host started. Source: proc_pid_stat(5), field 22, the 20th after the name.
async fn started(host: &Host, pid: u32) -> Result<u64> {
    let stat = host.read_file(&format!("/proc/{pid}/stat")).await?;
    let (_, fields) = stat.rsplit_once(')').context("a process has no name")?;
    let field = fields.split_whitespace().nth(19).context("a process has no start")?;
    Ok(field.parse()?)
}

/// What the journal of an upgrade says, if one is going on.
///
/// # Errors
/// The host can't be looked at, or the journal is no JSON.
pub(super) async fn journal(host: &Host) -> Result<Option<Value>> {
    // One look: it may go at any time.
    let text = host.sh(&format!("cat {JOURNAL} 2> /dev/null || true")).await?;
    if text.is_empty() {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&text).context("reading the journal")?))
}

async fn file(host: &Host, path: &str) -> Result<Option<String>> {
    Ok(if host.exists(path).await? {
        Some(host.read_file(path).await?)
    } else {
        None
    })
}

/// A node's condition Ready: its status and since when it has it. The same twice means that it was so all along.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Readiness {
    status: String,
    since: String,
}

impl Readiness {
    /// What the cluster says now; it must be Ready.
    ///
    /// # Errors
    /// There is no such node, or it is not Ready.
    pub(super) async fn of(cluster: &Cluster, node: &str) -> Result<Self> {
        let object = cluster
            .get("node", node)
            .await?
            .with_context(|| format!("no node {node}"))?;
        let conditions = object["status"]["conditions"]
            .as_array()
            .context("it has no conditions")?;
        let ready = conditions.iter().find(|condition| condition["type"] == "Ready");
        let ready = ready.context("it does not say whether it is ready")?;
        let text = |key: &str| ready[key].as_str().unwrap_or_default().to_owned();
        let readiness = Self {
            status: text("status"),
            since: text("lastTransitionTime"),
        };
        ensure!(readiness.status == "True", "node {node} is not Ready: {ready}");
        Ok(readiness)
    }
}
