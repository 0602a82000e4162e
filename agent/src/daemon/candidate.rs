//! A candidate on its way onto the host, and images on their way off it: what the daemon asks of containerd.

use std::time::Duration;

use hostexec::{Host, HostPath};
use image::ImageRef;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use units::name;

use super::check;
use crate::containerd::{self, CheckError, Containerd, ContainerdError, Limits, Origin, Output, Registries, View};
use crate::model::chain;
use crate::report;
use crate::store::{journal, selection};
use crate::upgrade::{Progress, Worked};

/// Where the check runs: within the unit of the agent that asks for it, beside that agent's own container.
const CHECK_GROUP: &str = "check";
const PROGRAM: &str = "/usr/bin/aks-flex-node";
/// How long a candidate's `version` may take. Source: node-agent specification, Q06.
const VERSION: Duration = Duration::from_secs(60);
/// How long its look at the host may take, of whose parts each ends after 8 s.
const SELF_CHECK: Duration = Duration::from_secs(30);
/// How often the log says how far a pull is.
const PROGRESS: Duration = Duration::from_secs(5);

/// Brings the image onto this host, whole and on its disk, sees its agent run, and has it look at the host: what worked
/// `before` must work for it.
///
/// # Errors
/// What failed, in a sentence for the operation's status. Nothing is selected.
pub(super) async fn stage(
    host: &Host,
    image: &ImageRef,
    before: Worked,
    mut tell: impl FnMut(Progress),
) -> Result<(), String> {
    let containerd = Containerd::connect(host);
    let registries = Registries::load(host, hosts_dir(host).as_ref()).map_err(|error| chain(&error))?;
    let mut said = Instant::now();
    let mut attempts = 1;
    let pulled = containerd.pull(image, &registries, Limits::AGENT, |event| match event {
        containerd::Progress::Bytes { done, all } => {
            if said.elapsed() >= PROGRESS {
                said = Instant::now();
                info!(done, all, "pulling the agent image");
            }
            tell(Progress::Pulling { done, all });
        }
        containerd::Progress::Again { attempt, why } => {
            attempts = attempt;
            tell(Progress::Again { attempt, why });
        }
    });
    let pulled = pulled.await.map_err(|error| {
        let tried = if attempts > 1 {
            format!(" in {attempts} attempts")
        } else {
            String::new()
        };
        format!("the agent image could not be pulled{tried}: {}", chain(&error))
    })?;
    info!(
        image = %pulled.image,
        platform = %pulled.platform_digest,
        bytes = pulled.bytes,
        attempts = pulled.attempts,
        "the agent image is here"
    );
    tell(Progress::Checking);
    // What the check runs is what the next boot would run.
    containerd.sync().await.map_err(|error| chain(&error))?;
    let report = look(&containerd, image).await?;
    report.map_or(Ok(()), |report| check::fit(&report, before))
}

/// The candidate says who it is and what it finds on this host, in one container: each costs a tenth of a second. One that ends
/// without saying it is asked for its `version` alone, which tells a release that knows no self-check, of which nothing more is
/// asked, from a program that does not work.
async fn look(containerd: &Containerd, image: &ImageRef) -> Result<Option<check::Report>, String> {
    let line = ["self-check", "--config", name::CONFIG];
    let looked = run(containerd, image, &line, View::Host, SELF_CHECK).await?;
    let report = check::parse(&looked.tail).filter(|_| looked.code == 0);
    if report.is_some() {
        info!(?report, "what the agent of the image finds on this host");
        return Ok(report);
    }
    let version = done(
        "version",
        run(containerd, image, &["version"], View::Image, VERSION).await?,
    )?;
    if version.lines().any(|line| line.trim() == check::LINE) {
        done("self-check", looked)?;
        return Err("the agent of the image does not say what it finds on this host".to_owned());
    }
    info!("the agent of the image knows no self-check: that it runs must do");
    Ok(None)
}

/// What a run that ended well wrote.
fn done(verb: &str, Output { code, tail }: Output) -> Result<String, String> {
    if code == 0 {
        return Ok(tail);
    }
    let ended = format!("the agent of the image, run with `{verb}`, ended with status {code}");
    Err(report::clean(&format!("{ended}: {}", tail.trim())))
}

/// Runs the image's agent to its end. Begins anew while it is containerd that went away: when that takes the agent along, the next
/// daemon goes on.
async fn run(
    containerd: &Containerd,
    image: &ImageRef,
    line: &[&str],
    view: View,
    limit: Duration,
) -> Result<Output, String> {
    let cgroup = format!("{}/{}/{CHECK_GROUP}", name::SLICE_CGROUP, name::AGENT);
    let argv = [&[PROGRAM], line].concat();
    // It is started anew within seconds, or this agent ends with it.
    let mut pauses = containerd::PAUSES.into_iter();
    let ended = loop {
        let ended = containerd.run_check(image, &argv, view, &cgroup, limit).await;
        let (Err(CheckError::Containerd(error @ ContainerdError::Away { .. })), Some(pause)) = (&ended, pauses.next())
        else {
            break ended;
        };
        warn!(%error, "the agent of the image is run anew");
        sleep(pause).await;
    };
    ended.map_err(|error| {
        let verb = line.first().copied().unwrap_or_default();
        format!(
            "the agent of the image could not be run with `{verb}`: {}",
            chain(&error)
        )
    })
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
    // What a daemon that died, or whose containerd did, left of its check.
    containerd
        .cleanup(containerd::CHECK)
        .await
        .map_err(|error| chain(&error))?;
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
