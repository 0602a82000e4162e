//! `cargo harness up`: a bed for people, with a host that has joined and a pod that runs.

use anyhow::{Result, bail};

use crate::base::{Base, Release};
use crate::bed::Bed;
use crate::cache::Cache;
use crate::cli;
use crate::cloud::{Cloud, Ingredients};
use crate::host::Host;
use crate::node::{Joining, READY};
use crate::process::interrupted;
use crate::product::Product;
use crate::progress::{result, step};
use crate::run::{self, Life, Run};

/// The host's name, its node's, and its pod's.
const HOST: &str = "node1";
const POD: &str = "web";

/// Makes the bed and says how to look at it.
///
/// # Errors
/// A step failed, or we were interrupted: what stands by then stays, to be looked at; `down` removes it.
pub(crate) async fn up(options: &cli::Up) -> Result<()> {
    let cache = Cache::open()?;
    let name = &options.bed.run;
    // Before what takes minutes. One whose maker is gone is taken down when the bed is made.
    if Run::open(&cache, name).is_ok_and(|run| !run.abandoned()) {
        bail!(run::already(name));
    }
    Base::of(&cache, Release::default()).await?;
    let ingredients = Ingredients::of(&cache, options.kube.as_deref()).await?;
    let bed = step("network", Bed::make(&cache, name, Life::Lasting)).await?;
    let stands = tokio::select! {
        stands = stand(&bed, &ingredients, options) => stands,
        signal = interrupted() => Err(signal),
    };
    match stands {
        Ok(host) => Ok(result(&guide(&bed, &host))?),
        Err(error) => Err(error.context(format!(
            "the bed does not stand whole: look at it with `cargo harness logs --run {name}`, remove it with `cargo harness down --run {name}`"
        ))),
    }
}

async fn stand(bed: &Bed, ingredients: &Ingredients, options: &cli::Up) -> Result<Host> {
    let cloud = Cloud::up(&bed.run, &bed.net, ingredients).await?;
    let dir = bed.run.cloud_dir().join("agent");
    let product = step(
        "the agent's image",
        Product::make(&cloud, &dir, options.image.as_deref()),
    )
    .await?;
    let joining = step("bootstrap token", Joining::of(&cloud, &product, HOST)).await?;
    let host = step("host, by Ignition", joining.create(&bed.run, &product)).await?;
    step("boot", async {
        host.start().await?;
        host.wait_booted().await
    })
    .await?;
    step("node Ready", cloud.cluster.node_ready(HOST, READY)).await?;
    step("pod Running", async {
        cloud.cluster.pod(POD, HOST, &cloud.images.busybox.to_string()).await?;
        cloud.cluster.pod_running(POD, READY).await
    })
    .await?;
    Ok(host)
}

/// What there is, and how to look at it.
fn guide(bed: &Bed, host: &Host) -> String {
    let run = &bed.run.id;
    let of = if run == "bed" {
        String::new()
    } else {
        format!(" --run {run}")
    };
    let name = host.name();
    let rows = [
        (format!("exec{of} {name} -- systemctl status aks-flex-node-agent"), ""),
        (format!("exec{of} {name} -- machinectl list"), ""),
        (format!("kubectl{of} -- get nodes,pods -o wide"), ""),
        (
            format!("logs{of} {name}"),
            "its journal; without a name, what else there is",
        ),
        (
            format!("image --run {run} --variant second"),
            "another agent for it, and how to upgrade to that",
        ),
        (
            format!("boot{of} node2"),
            "one more host; --inputs, --ignition: from what is yours",
        ),
        (format!("down{of}"), "removes all of it"),
    ];
    let rows = rows.map(|(verb, what)| format!("  cargo harness {verb:48}  {what}").trim_end().to_owned());
    format!(
        "\nThe bed {run} stands: network {}/24 (`nsenter --net={}`), registry, cluster, host {name} ({}), pod {POD}.\n\n{}\n\nIts files: {}\n",
        bed.net.gateway(),
        bed.net.file().unwrap_or_default().display(),
        host.address(),
        rows.join("\n"),
        bed.run.dir.display()
    )
}
