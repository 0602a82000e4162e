//! A candidate on its way onto the host, and images on their way off it: what the daemon asks of containerd.

use std::time::Duration;

use hostexec::{Host, HostPath};
use image::ImageRef;
use tokio::time::Instant;
use tracing::{info, warn};
use units::name;

use crate::containerd::{self, Containerd, Limits, Origin, Output, Registries, View};
use crate::model::chain;
use crate::report;
use crate::store::{journal, selection};
use crate::upgrade::{Progress, Worked};

/// Where the check runs: within the unit of the agent that asks for it, beside that agent's own container.
const CHECK_GROUP: &str = "check";
const CHECK_LINE: [&str; 2] = ["/usr/bin/aks-flex-node", "version"];
/// How long a candidate's check may take. Source: node-agent specification, Q06.
const CHECK: Duration = Duration::from_secs(60);
/// How often the log says how far a pull is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Brings the image onto this host, whole and on its disk, and sees its agent run.
///
/// # Errors
/// What failed, in a sentence for the operation's status. Nothing is selected.
pub(super) async fn stage(
    host: &Host,
    image: &ImageRef,
    _before: Worked,
    mut tell: impl FnMut(Progress),
) -> Result<(), String> {
    let containerd = Containerd::connect(host);
    let registries = Registries::load(host, hosts_dir(host).as_ref()).map_err(|error| chain(&error))?;
    let mut said = Instant::now();
    let pulled = containerd.pull(image, &registries, Limits::AGENT, |event| match event {
        containerd::Progress::Bytes { done, all } => {
            if said.elapsed() >= PROGRESS {
                said = Instant::now();
                info!(done, all, "pulling the agent image");
            }
            tell(Progress::Pulling { done, all });
        }
        containerd::Progress::Again { attempt, why } => tell(Progress::Again { attempt, why }),
    });
    let pulled = pulled
        .await
        .map_err(|error| format!("the agent image could not be pulled: {}", chain(&error)))?;
    info!(image = %pulled.image, platform = %pulled.platform_digest, bytes = pulled.bytes, "the agent image is here");
    // What the check runs is what the next boot would run.
    containerd.sync().await.map_err(|error| chain(&error))?;
    tell(Progress::Checking);
    let cgroup = format!("{}/{}/{CHECK_GROUP}", name::SLICE_CGROUP, name::AGENT);
    match containerd
        .run_check(image, &CHECK_LINE, View::Image, &cgroup, CHECK)
        .await
    {
        Ok(Output { code: 0, .. }) => Ok(()),
        Ok(Output { code, tail }) => {
            let ended = format!("the agent of the image ended with status {code}");
            Err(report::clean(&format!("{ended}: {}", tail.trim())))
        }
        Err(error) => Err(format!("the agent of the image could not be run: {}", chain(&error))),
    }
}

/// The image that the agent's container was made of: ours, since a container of that name is the agent's alone.
///
/// # Errors
/// When containerd does not say.
pub(super) async fn running(host: &Host) -> Result<ImageRef, String> {
    let image = Containerd::connect(host)
        .container_image(name::AGENT_ID)
        .await
        .map_err(|error| chain(&error))?;
    let image = image.ok_or_else(|| format!("there is no container {}", name::AGENT_ID))?;
    image.parse().map_err(|error| {
        format!(
            "container {} has an image that is not named by digest: {error}",
            name::AGENT_ID
        )
    })
}

/// Removes the images that upgrades brought and that will not run again (node-agent specification 10B.7): not the selected
/// one, the last good one, the install's, or one of an upgrade that is going on. When one of these can't be known, all stay.
pub(super) async fn remove_unused(host: &Host) {
    if let Err(why) = try_remove_unused(host).await {
        warn!(why, "images of earlier upgrades stay");
    }
}

async fn try_remove_unused(host: &Host) -> Result<(), String> {
    let containerd = Containerd::connect(host);
    containerd.sweep_pulls().await.map_err(|error| chain(&error))?;
    let images = containerd.images().await.map_err(|error| chain(&error))?;
    // An upgrade must not begin between the look and the removal.
    let Some(_lock) = journal::try_lock(host).map_err(|error| chain(&error))? else {
        return Ok(());
    };
    let upgrade = journal::load(host).map_err(|error| chain(&error))?;
    let mut keep: Vec<ImageRef> = upgrade.images().into_iter().cloned().collect();
    for path in [selection::SELECTED, selection::LAST_GOOD, selection::SETTINGS] {
        keep.extend(selection::load(host, &path).map_err(|error| error.to_string())?);
    }
    keep.push(running(host).await?);
    for image in images {
        let kept = image
            .digest
            .as_ref()
            .is_none_or(|digest| keep.iter().any(|keep| keep.digest == *digest));
        if image.origin == Origin::Upgrade && !kept {
            containerd
                .remove_image(&image.name)
                .await
                .map_err(|error| chain(&error))?;
            info!(image = image.name, "image of an earlier upgrade removed");
        }
    }
    Ok(())
}

/// Where the install keeps its mirrors, authorities and credentials of registries.
fn hosts_dir(host: &Host) -> Option<HostPath> {
    match selection::hosts_dir(host) {
        Ok(dir) => dir,
        Err(error) => {
            warn!(%error, "the registries' settings are not used");
            None
        }
    }
}
