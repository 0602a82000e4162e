//! `daemon`: serves the node until it is told to stop.

use std::path::Path;

use hostexec::Host;

use super::{Surroundings, agent_unit};
use crate::{
    daemon,
    exit::{Exit, Failure},
    model::Mode,
};

/// Serves the node.
///
/// # Errors
/// The configuration can't work.
pub async fn daemon(here: &Surroundings, path: &str) -> Result<Exit, Failure> {
    let settings = here.settings(path)?;
    here.log_to(settings.log_dir());
    let container = match here.mode {
        Mode::Container => Some(Host::rooted(Path::new("/"))),
        Mode::Binary => None,
    };
    daemon::run(&here.host, container.as_ref(), &settings, agent_unit(&settings)).await;
    Ok(Exit::Done)
}
