//! `self-check`: what this agent finds on the host, for the agent that thinks of giving it the host.

use std::io::Write as _;

use units::name;

use super::Surroundings;
use crate::{
    daemon,
    exit::{Exit, Failure},
};

/// Prints one line of JSON, and changes nothing. What does not work is in the line, and no failure.
///
/// # Errors
/// The line can't be printed.
pub async fn self_check(here: &Surroundings, path: &str) -> Result<Exit, Failure> {
    let path = if path.is_empty() { name::CONFIG } else { path };
    let report = daemon::check::look(&here.host, path).await;
    let failed = |source| Failure::Host {
        what: "print what was found",
        source,
    };
    let line = serde_json::to_string(&report).map_err(|error| failed(error.into()))?;
    writeln!(std::io::stdout().lock(), "{line}").map_err(failed)?;
    Ok(Exit::Done)
}
