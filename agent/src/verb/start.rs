//! `start`: joins the host to its cluster.

use super::Surroundings;
use crate::{
    config::Settings,
    exit::{Exit, Failure},
};

/// Joins the host, as the configuration says.
///
/// # Errors
/// What was done stays; the next try goes on from there.
pub async fn start(here: &Surroundings, path: &str) -> Result<Exit, Failure> {
    let settings = here.settings(path)?;
    here.log.add_file(&here.host, settings.log_dir());
    join(here, &settings).await
}

pub(super) async fn join(_here: &Surroundings, settings: &Settings) -> Result<Exit, Failure> {
    settings.startable().map_err(Failure::Unfit)?;
    Err(Failure::NotYet {
        command: "start",
        instead: "none",
    })
}
