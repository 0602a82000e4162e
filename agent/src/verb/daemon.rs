//! `daemon`: serves the node until it is told to stop.

use super::{Surroundings, agent_unit};
use crate::{
    daemon,
    exit::{Exit, Failure},
};

/// Serves the node.
///
/// # Errors
/// The configuration can't work.
pub async fn daemon(here: &Surroundings, path: &str) -> Result<Exit, Failure> {
    let settings = here.settings(path)?;
    here.log.add_file(&here.host, settings.log_dir());
    daemon::run(&here.host, &settings, agent_unit(&settings)).await;
    Ok(Exit::Done)
}
