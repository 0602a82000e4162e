//! `nspawn-lifecycle`: what a machine's units ask for before and after it starts.

use hostexec::Tool;

use super::Surroundings;
use crate::{
    apply::{self, Context},
    config,
    exit::{Exit, Failure},
    facts::Gpu,
    model::MachineName,
    observe,
    plan::{self, Goal},
};

/// Before a machine starts: its settings follow the host's devices. Without a configuration, which is so until a first
/// start has written it, there is nothing to follow.
///
/// # Errors
/// The host can't be looked at, or the machine's settings not be written.
pub async fn pre_start(here: &Surroundings, machine: MachineName) -> Result<Exit, Failure> {
    let settings = match here.settings(config::PATH.as_str()) {
        Err(Failure::Config(config::Error::Missing { .. })) => return Ok(Exit::Done),
        settings => settings?,
    };
    let facts = observe::facts(&here.host)?;
    let goal = Goal::of(&settings, &facts, machine)?;
    let context = Context::new(here.host.clone()).map_err(Failure::Tls)?;
    apply::run(&plan::lifecycle(&goal)?, &context).await?;
    Ok(Exit::Done)
}

/// After a machine has started: nothing, but on a host with a GPU, which is not supported from the image.
///
/// # Errors
/// The host has a GPU, or can't be looked at.
pub async fn post_start(here: &Surroundings) -> Result<Exit, Failure> {
    match observe::facts(&here.host)?.gpu {
        Gpu::None => Ok(Exit::Done),
        Gpu::Nvidia => Err(Failure::NotYet {
            command: "nspawn-lifecycle post-start",
            instead: "a host with a GPU can't be a node of this agent",
        }),
    }
}

/// The machine starts anew, so that it has what its settings say now.
///
/// # Errors
/// systemd refuses, or the machine doesn't come up.
pub async fn reconcile(here: &Surroundings, machine: MachineName) -> Result<Exit, Failure> {
    let unit = format!("systemd-nspawn@{machine}.service");
    here.host
        .run(Tool::Systemctl, &["restart", &unit])
        .await
        .map_err(Failure::Tool)?;
    Ok(Exit::Done)
}
