//! `recover-agent-upgrade`: the recovery unit's command.

use super::Surroundings;
use crate::{
    daemon,
    exit::{Exit, Failure},
};

/// Puts the last good agent back if an upgrade is at stake.
///
/// # Errors
/// The journal could not be written, or the agent's unit not be restarted.
pub async fn recover(here: &Surroundings, cause: daemon::recover::Cause<'_>) -> Result<Exit, Failure> {
    daemon::recover::run(&here.host, cause).await?;
    Ok(Exit::Done)
}
