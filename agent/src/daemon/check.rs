//! What a candidate finds on this host before anything is selected: its own look, and the verdict of the agent that asked.
//!
//! ```text
//! old agent: what works now ─┐
//! candidate's `self-check` ──┴─▶ fit? (pure) ─▶ switched, or the operation has failed and nothing was touched
//! ```
//!
//! The line is read by other releases than the one that wrote it: fields are only ever added.

use std::time::Duration;

use hostexec::Host;
use serde::{Deserialize, Serialize};
use tokio::task::spawn_blocking;
use tokio::time::timeout;

use super::judge;
use crate::config;
use crate::model::{MachineName, chain};
use crate::report;
use crate::store::{journal, state};
use crate::upgrade::Worked;

/// What `version` says of an agent that has this check. An older one has not, and its `version` must do.
pub const LINE: &str = "Upgrade Self-Check: 1";
/// The release of this build. A build that wasn't told says so.
pub const RELEASE: &str = match option_env!("AKS_FLEX_NODE_BUILD_VERSION") {
    Some(version) => version,
    None => "dev",
};
/// How long a look may take that is no tool's; tools have the same.
const LOOK: Duration = Duration::from_secs(8);
/// Largest reason in the line, in bytes: all of it must fit in what is kept of a check's output.
const REASON: usize = 400;

/// What `self-check` prints: of each thing, why it does not work, or null.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Report {
    /// Its release, as `version` says it.
    pub version: String,
    /// Versions of the upgrade journal that this agent reads.
    pub journal: Vec<u64>,
    /// The configuration can't be read.
    pub config: Option<String>,
    /// The host's tools can't be run.
    pub host_exec: Option<String>,
    /// systemd gives no answer.
    pub systemd: Option<String>,
    /// The active machine does not run, or there is none.
    pub machine: Option<String>,
}

/// Looks at the host as a daemon would, side by side, and changes nothing.
pub async fn look(host: &Host, config: &str) -> Report {
    let machine = async {
        let host_ = host.clone();
        let found = blocking(move || state::load(&host_).map_err(|error| chain(&error))).await?;
        let machine: Option<MachineName> = found.map(|state| state.active_machine);
        judge::machine(host, machine).await
    };
    let (host_, path) = (host.clone(), config.to_owned());
    let config = blocking(move || {
        let name = host_.host_name().unwrap_or_default();
        let loaded = config::load(&host_, &path, &name);
        loaded.map(drop).map_err(|error| chain(&error))
    });
    let (config, host_exec, systemd, machine) =
        tokio::join!(config, judge::host_exec(host), judge::systemd(host), machine);
    let said = |result: Result<(), String>| result.err().map(|why| shortened(&report::clean(&why)));
    Report {
        version: RELEASE.to_owned(),
        journal: journal::READS.to_vec(),
        config: said(config),
        host_exec: said(host_exec),
        systemd: said(systemd),
        machine: said(machine),
    }
}

async fn blocking<T: Send + 'static>(look: impl FnOnce() -> Result<T, String> + Send + 'static) -> Result<T, String> {
    match timeout(LOOK, spawn_blocking(look)).await {
        Ok(done) => done.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic())),
        Err(_) => Err(format!("the disk gave no answer within {} s", LOOK.as_secs())),
    }
}

fn shortened(text: &str) -> String {
    match text.char_indices().find(|(at, _)| *at >= REASON) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text.to_owned(),
    }
}

/// Finds the line in what a candidate printed.
pub(super) fn parse(output: &str) -> Option<Report> {
    let mut lines = output.lines().rev().filter(|line| line.starts_with('{'));
    lines.find_map(|line| serde_json::from_str(line).ok())
}

/// Whether the candidate can take over: it reads what this agent writes, and does what works now. What does not work now
/// is not asked of it, as it will not be after the switch.
pub(super) fn fit(candidate: &Report, before: Worked) -> Result<(), String> {
    if !candidate.journal.contains(&journal::VERSION) {
        return Err(format!(
            "the agent of the image cannot take over from this one: it reads the upgrade journal in versions {:?}, and this \
             agent writes version {}",
            candidate.journal,
            journal::VERSION
        ));
    }
    let worked = [
        (true, &candidate.config, "can't work with this host's configuration"),
        (
            before.host_exec,
            &candidate.host_exec,
            "can't run the host's tools, and this agent can",
        ),
        (
            before.systemd,
            &candidate.systemd,
            "gets no answer from systemd, and this agent does",
        ),
        (
            before.machine,
            &candidate.machine,
            "does not find the machine running, and this agent does",
        ),
    ];
    match worked
        .into_iter()
        .find_map(|(asked, found, what)| found.as_ref().filter(|_| asked).map(|why| (what, why)))
    {
        // Another release wrote the reason.
        Some((what, why)) => Err(report::clean(&format!("the agent of the image {what}: {why}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Worked {
        Worked {
            host_exec: true,
            systemd: true,
            machine: true,
            api_server: true,
        }
    }

    fn good() -> Report {
        Report {
            journal: vec![journal::VERSION],
            ..Report::default()
        }
    }

    #[test]
    fn fc_u9_a_candidate_that_does_not_read_our_journal_cannot_take_over() {
        for journal in [vec![], vec![journal::VERSION + 1]] {
            let error = fit(&Report { journal, ..good() }, Worked::default()).unwrap_err();
            assert!(
                error.contains("cannot take over") && error.contains("version 1"),
                "{error}"
            );
        }
        let both = vec![journal::VERSION, journal::VERSION + 1];
        assert_eq!(
            fit(
                &Report {
                    journal: both,
                    ..good()
                },
                all()
            ),
            Ok(())
        );
    }

    #[test]
    fn what_works_now_must_work_for_the_candidate_and_what_does_not_is_not_asked() {
        let why = || Some("it said no".to_owned());
        let none = Worked::default;
        let cases = [
            (
                Report {
                    host_exec: why(),
                    ..good()
                },
                Worked {
                    host_exec: false,
                    ..all()
                },
                "tools",
            ),
            (
                Report {
                    systemd: why(),
                    ..good()
                },
                Worked {
                    systemd: false,
                    ..all()
                },
                "systemd",
            ),
            (
                Report {
                    machine: why(),
                    ..good()
                },
                Worked {
                    machine: false,
                    ..all()
                },
                "machine",
            ),
        ];
        for (report, not_then, named) in cases {
            let error = fit(&report, all()).unwrap_err();
            assert!(error.contains(named) && error.ends_with(": it said no"), "{error}");
            assert_eq!(fit(&report, not_then), Ok(()));
            assert_eq!(fit(&report, none()), Ok(()));
        }
        let config = Report {
            config: Some("token=canary".into()),
            ..good()
        };
        let error = fit(&config, none()).unwrap_err();
        assert!(error.contains("configuration") && !error.contains("canary"), "{error}");
    }

    #[test]
    fn the_line_is_found_among_others_and_may_say_more_than_we_know() {
        let line = r#"{"journal":[1,2],"config":null,"hostExec":null,"systemd":"why","machine":null,"more":1}"#;
        let report = parse(&format!("WARN {{x}}\n{line}\n{{broken\n")).unwrap();
        assert_eq!((report.journal, report.systemd.as_deref()), (vec![1, 2], Some("why")));
        assert_eq!(parse("no such command"), None);
        let text = serde_json::to_string(&good()).unwrap();
        assert_eq!(
            text,
            r#"{"version":"","journal":[1],"config":null,"hostExec":null,"systemd":null,"machine":null}"#
        );
        assert_eq!(shortened(&"é".repeat(REASON)).chars().count(), REASON / 2 + 1);
    }
}
