//! `preflight`: whether the host can become a node. Changes nothing.

use std::io::Write as _;

use super::{Output, Surroundings, agent_unit};
use crate::{
    config::{Mistake, Settings},
    exit::{Exit, Failure},
    look::{self, Only, Subject},
    model::MachineName,
    observe,
    plan::{self, Goal, Programs, Unfit},
    preflight::{
        Check, Finding, Ignored, Remedy, Report, Status, Strictness, Verdict,
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
    let found = examine(here, settings, &only).await?;
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

/// Answers the checks that are asked for.
///
/// # Errors
/// The host can't be looked at for a plan.
async fn examine(here: &Surroundings, settings: Settings, only: &Only) -> Result<Vec<Finding>, Failure> {
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
        // It has a check of its own.
        Err(Unfit::Gpu) => None,
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
    found.extend(look::look(&subject, only).await);
    Ok(found)
}

/// What a start can run into by itself; the others mean what an earlier try of it left.
const OF_A_START: &[Check] = &[
    Check::HostOsConfiguration,
    Check::HostTargets,
    Check::HostTools,
    Check::NspawnRuntime,
    Check::MountPropagation,
    Check::Selinux,
    Check::Cgroups,
    Check::OfflineArtifacts,
    Check::Dns,
    Check::ApiServerReachable,
    Check::Clock,
    Check::BootstrapToken,
    Check::AzureIdentity,
    Check::NvidiaDriver,
    Check::OciImage,
    Check::KubernetesArtifacts,
    Check::CriArtifacts,
    Check::CniArtifacts,
    Check::NpdArtifact,
];

/// Logs what is wrong with the host, after a start that failed: a line each, with what to do. A check never keeps a start from its try, for one that
/// errs would keep a host from its node.
pub(super) async fn explain(here: &Surroundings, settings: &Settings) {
    let only = Only::these(OF_A_START.to_vec());
    let found = match examine(here, settings.clone(), &only).await {
        Ok(found) => found,
        Err(failure) => {
            tracing::warn!(
                error = &failure as &dyn std::error::Error,
                "preflight could not look for the reason"
            );
            return;
        }
    };
    for finding in found {
        let (Verdict::Error(remedy) | Verdict::Warning(remedy)) = &finding.verdict else {
            continue;
        };
        tracing::warn!(
            check = finding.check.name(),
            target = finding.target.as_deref(),
            found = finding.message,
            remedy = remedy.as_str(),
            "preflight finds"
        );
    }
}

fn unknown(option: &str, also: &str) -> Failure {
    let names: Vec<_> = Check::ALL.iter().map(|check| check.name()).collect();
    Failure::Usage(format!("{option} names no check: there are {also}{}", names.join(", ")))
}
