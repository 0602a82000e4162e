//! `preflight`: whether the host can become a node. Changes nothing.

use std::io::Write as _;

use super::{Output, Surroundings, agent_unit};
use crate::{
    config::Mistake,
    exit::{Exit, Failure},
    look::{self, Only, Subject},
    model::MachineName,
    observe,
    plan::{self, Goal, Programs, Unfit},
    preflight::{
        Check, Ignored, Remedy, Report, Status, Strictness,
        judge::{self, Offline},
    },
};

/// What is asked for, as the command line has it.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// `--output`
    pub output: Output,
    /// `--ignore-preflight-errors`
    pub ignored: Vec<String>,
    /// `--fail-on-warnings`
    pub strictness: Strictness,
    /// `--check`
    pub only: Vec<String>,
}

/// Looks, and prints the report.
///
/// # Errors
/// The command line or the configuration can't work, or the host can't be looked at for a plan. What a check finds is in the report.
pub async fn preflight(here: &Surroundings, path: &str, asked: &Asked) -> Result<Exit, Failure> {
    let ignored = Ignored::parse(asked.ignored.iter().map(String::as_str))
        .map_err(|_| unknown("--ignore-preflight-errors", "all, "))?;
    let only: Result<_, _> = asked.only.iter().map(|name| name.parse()).collect();
    let only = Only::these(only.map_err(|_| unknown("--check", ""))?);

    let settings = here.settings_as_they_are(path)?;
    let facts = observe::facts(&here.host)?;
    let mut mistakes: Vec<Mistake> = settings
        .startable()
        .err()
        .iter()
        .flat_map(|bad| bad.iter().cloned())
        .collect();
    let goal = Goal::of(&settings, &facts, MachineName::FIRST);
    let (offline, bundle) = look::offline(&here.host, &settings, facts.arch).await;
    let mut found = vec![judge::offline(&offline)];
    let planned = goal.and_then(|goal| {
        let programs = Programs::of(&settings, bundle)?;
        plan::start(&goal, &programs, &facts, settings.routing(), &agent_unit(&settings))
    });
    let plan = match planned {
        // What does not come out of a bundle is no matter, and what does is not there.
        Ok(_) if matches!(offline, Offline::Unusable(_)) => None,
        Ok(plan) => Some(plan),
        Err(Unfit::Setting(mistake)) => {
            if !mistakes.iter().any(|known| known.key == mistake.key) {
                mistakes.push(mistake);
            }
            None
        }
        Err(Unfit::Existing { path, wrong, write }) => {
            found.push(
                Check::HostTargets
                    .fail(format!("the file {wrong}"), Remedy::new(write))
                    .on(path.as_str()),
            );
            None
        }
        Err(Unfit::Machine(_)) => {
            const WRITE: Remedy =
                Remedy::new("write devices and mounts without characters that mean something to systemd");
            let message = "a device or a mount would mean something else in the machine's settings";
            found.push(Check::AgentConfig.fail(message, WRITE).on("bootstrap"));
            None
        }
    };
    found.extend(judge::settings(&mistakes));
    found.retain(|finding| only.has(finding.check));
    let subject = Subject {
        host: here.host.clone(),
        mode: here.mode,
        settings,
        facts,
        plan,
    };
    found.extend(look::look(&subject, &only).await);

    let report = Report::of(found, &ignored, asked.strictness);
    let text = match asked.output {
        Output::Text => report.to_string(),
        Output::Json => report.json(),
    };
    let mut stdout = std::io::stdout().lock();
    let printed = stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush());
    printed.map_err(|source| Failure::Host {
        what: "print the report",
        source,
    })?;
    Ok(match report.status() {
        Status::Ok => Exit::Done,
        Status::Failed => Exit::Failed,
    })
}

fn unknown(option: &str, also: &str) -> Failure {
    let names: Vec<_> = Check::ALL.iter().map(|check| check.name()).collect();
    Failure::Usage(format!("{option} names no check: there are {also}{}", names.join(", ")))
}
