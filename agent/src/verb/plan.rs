//! `plan start`: what `start` would do on this host, changing nothing.

use std::io::Write as _;

use super::{Output, Surroundings, start};
use crate::{
    bundle::Purpose,
    exit::{Exit, Failure},
};

/// Prints the plan of a first start: an outline, or every byte of it but secrets.
///
/// # Errors
/// As `start`, before it begins.
pub async fn plan_start(here: &Surroundings, path: &str, output: Output) -> Result<Exit, Failure> {
    let settings = here.settings_as_they_are(path)?;
    let plan = start::plan(here, &settings, Purpose::Look).await?;
    let text = match output {
        Output::Text => plan.to_string(),
        Output::Json => {
            let text = serde_json::to_string_pretty(&plan).expect("a plan's keys are texts");
            text + "\n"
        }
    };
    std::io::stdout()
        .write_all(text.as_bytes())
        .map_err(|source| Failure::Host {
            what: "print the plan",
            source,
        })?;
    Ok(Exit::Done)
}
