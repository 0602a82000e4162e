//! The journal of an AgentUpgrade: one JSON line that both agents of an upgrade can read.
//!
//! Its fields are those of the reference (node-agent specification 10.0) and more. That there is no file is the state
//! "idle"; a file that can't be read is an error with a name, and never "idle".

use std::io;

use hostexec::{Host, HostPath, Lock};
use image::ImageRef;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::aside;
use crate::upgrade::{Fault, Order, Outcome, Reason, Upgrade, Worked};

/// Where it is.
pub const PATH: HostPath = HostPath::fixed("/etc/aks-flex-node/agent-upgrade-signal.json");
/// Where a copy of one that could not be read is kept for whoever wants to know.
pub const UNREADABLE: HostPath = HostPath::fixed("/etc/aks-flex-node/agent-upgrade-signal.json.unreadable");
/// Held by whoever changes the journal or the selected image. Source: node-agent specification 10.0.
pub const LOCK: HostPath = HostPath::fixed("/run/aks-flex-node-agent-upgrade.lock");

/// The form this agent writes. It reads none above it.
pub const VERSION: u64 = 1;
/// The forms it reads.
pub const READS: [u64; 1] = [VERSION];

/// Why the journal can't be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read at all, or written.
    #[error("the upgrade journal can't be reached")]
    Io(#[source] io::Error),
    /// There is nothing in it.
    #[error("the upgrade journal {PATH} is empty")]
    Empty,
    /// It breaks off, or is no JSON.
    #[error("the upgrade journal {PATH} is torn")]
    Torn,
    /// It is JSON, but no journal of this agent.
    #[error("the upgrade journal {PATH} was written by something else: {0}")]
    Foreign(String),
    /// A later agent wrote it.
    #[error("the upgrade journal {PATH} is of version {0}, and this agent knows version {VERSION}")]
    Future(u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum Phase {
    Staging,
    Switched,
    Judging,
    Back,
    Over,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    version: u64,
    phase: Phase,
    operation_name: String,
    #[serde(rename = "operationUID")]
    operation_uid: String,
    #[serde(default)]
    observed_generation: i64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    active_machine: Option<String>,
    candidate_path: ImageRef,
    #[serde(default)]
    initiating_daemon_instance: String,
    switch_committed: bool,
    recovery_required: bool,
    #[serde(default)]
    failure: String,
    started_at: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    from: Option<ImageRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempt: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    worked_before: Option<Worked>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<Reason>,
    #[serde(default, skip_serializing_if = "is_default")]
    fault: Fault,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    blamed: Option<ImageRef>,
}

fn is_default(fault: &Fault) -> bool {
    *fault == Fault::default()
}

/// Reads the journal.
///
/// # Errors
/// When there is one and it can't be understood.
pub fn load(host: &Host) -> Result<Upgrade, Error> {
    match host.read(&PATH) {
        Ok(bytes) => parse(&bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Upgrade::Idle),
        Err(error) if error.kind() == io::ErrorKind::IsADirectory => {
            Err(Error::Foreign("it is no regular file".into()))
        }
        Err(error) => Err(Error::Io(error)),
    }
}

/// Replaces the journal; "idle" removes it.
///
/// # Errors
/// When it could not be written; the old one stands.
pub fn save(host: &Host, upgrade: &Upgrade) -> Result<(), Error> {
    match render(upgrade) {
        Some(text) => host.write(&PATH, text.as_bytes(), 0o600),
        None => host.remove(&PATH),
    }
    .map_err(Error::Io)
}

/// Puts an unreadable journal aside, so that the next upgrade can be recorded.
///
/// # Errors
/// When it could not be moved; it stands where it was.
pub fn put_aside(host: &Host) -> Result<(), Error> {
    aside::put(host, &PATH, &UNREADABLE).map_err(Error::Io)
}

/// Takes the lock of all that an upgrade changes, if nobody holds it.
///
/// # Errors
/// When the lock can't be made.
pub fn try_lock(host: &Host) -> Result<Option<Lock>, Error> {
    host.try_lock(&LOCK).map_err(Error::Io)
}

/// Reads a journal's bytes.
///
/// # Errors
/// As [`load`]; never because there is no file.
pub fn parse(bytes: &[u8]) -> Result<Upgrade, Error> {
    if bytes.iter().all(|byte| byte.is_ascii_whitespace() || *byte == 0) {
        return Err(Error::Empty);
    }
    let value: serde_json::Value = serde_json::from_slice(bytes).map_err(|_| Error::Torn)?;
    match value.get("version").and_then(serde_json::Value::as_u64) {
        Some(VERSION) => {}
        Some(later) if later > VERSION => return Err(Error::Future(later)),
        Some(_) | None => return Err(Error::Foreign("it has no version that this agent knows".into())),
    }
    let file: File = serde_json::from_value(value).map_err(|error| Error::Foreign(error.to_string()))?;
    file.try_into()
}

/// A journal as it is written: one line; none for "idle".
#[must_use]
pub fn render(upgrade: &Upgrade) -> Option<String> {
    let order = upgrade.order()?.clone();
    let blank = |phase, candidate: &ImageRef| File {
        version: VERSION,
        phase,
        operation_name: order.name,
        operation_uid: order.uid,
        observed_generation: order.generation,
        active_machine: order.machine,
        candidate_path: candidate.clone(),
        initiating_daemon_instance: order.daemon,
        switch_committed: false,
        recovery_required: false,
        failure: String::new(),
        started_at: order.started_at,
        from: None,
        attempt: None,
        worked_before: None,
        reason: None,
        fault: Fault::default(),
        blamed: None,
    };
    let file = match upgrade {
        Upgrade::Idle => return None,
        Upgrade::Staging { from, to, attempt, .. } => File {
            from: Some(from.clone()),
            attempt: Some(*attempt),
            ..blank(Phase::Staging, to)
        },
        Upgrade::Switched { from, to, before, .. } => File {
            switch_committed: true,
            from: Some(from.clone()),
            worked_before: Some(*before),
            ..blank(Phase::Switched, to)
        },
        Upgrade::Judging { from, to, before, .. } => File {
            switch_committed: true,
            from: Some(from.clone()),
            worked_before: Some(*before),
            ..blank(Phase::Judging, to)
        },
        Upgrade::Back {
            to, failed, why, fault, ..
        } => File {
            switch_committed: true,
            recovery_required: true,
            failure: why.clone(),
            from: Some(to.clone()),
            fault: *fault,
            ..blank(Phase::Back, failed)
        },
        Upgrade::Over {
            selected,
            outcome,
            blamed,
            ..
        } => {
            let (reason, failure) = match outcome {
                Outcome::Succeeded => (None, String::new()),
                Outcome::Failed { reason, why } => (Some(*reason), why.clone()),
            };
            File {
                switch_committed: true,
                failure,
                reason,
                blamed: blamed.clone(),
                ..blank(Phase::Over, selected)
            }
        }
    };
    let mut line = serde_json::to_string(&file).expect("a journal of texts and numbers is JSON");
    line.push('\n');
    Some(line)
}

impl TryFrom<File> for Upgrade {
    type Error = Error;

    fn try_from(file: File) -> Result<Self, Error> {
        let order = Order {
            name: file.operation_name,
            uid: file.operation_uid,
            generation: file.observed_generation,
            machine: file.active_machine,
            daemon: file.initiating_daemon_instance,
            started_at: file.started_at,
        };
        let to = file.candidate_path;
        let from = || {
            file.from
                .ok_or_else(|| Error::Foreign("it does not say which image ran before".into()))
        };
        let before = file.worked_before.unwrap_or_default();
        Ok(match file.phase {
            Phase::Staging => Self::Staging {
                order,
                from: from()?,
                to,
                attempt: file.attempt.unwrap_or(1),
            },
            Phase::Switched => Self::Switched {
                order,
                from: from()?,
                to,
                before,
            },
            Phase::Judging => Self::Judging {
                order,
                from: from()?,
                to,
                before,
            },
            Phase::Back => Self::Back {
                order,
                to: from()?,
                failed: to,
                why: file.failure,
                fault: file.fault,
            },
            Phase::Over => Self::Over {
                order,
                selected: to,
                outcome: match file.reason {
                    None => Outcome::Succeeded,
                    Some(reason) => Outcome::Failed {
                        reason,
                        why: file.failure,
                    },
                },
                blamed: file.blamed,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    fn image(digit: char) -> ImageRef {
        format!("registry.test/agent@sha256:{}", digit.to_string().repeat(64))
            .parse()
            .unwrap()
    }

    fn all() -> Vec<Upgrade> {
        let order = Order {
            name: "up".into(),
            uid: "u-1".into(),
            generation: 3,
            machine: Some("kube1".into()),
            daemon: "00ff".into(),
            started_at: "2026-11-29T10:00:00Z".parse().unwrap(),
        };
        let (from, to) = (image('a'), image('b'));
        let before = Worked {
            systemd: true,
            ..Worked::default()
        };
        vec![
            Upgrade::Staging {
                order: order.clone(),
                from: from.clone(),
                to: to.clone(),
                attempt: 2,
            },
            Upgrade::Switched {
                order: order.clone(),
                from: from.clone(),
                to: to.clone(),
                before,
            },
            Upgrade::Judging {
                order: order.clone(),
                from: from.clone(),
                to: to.clone(),
                before,
            },
            Upgrade::Back {
                order: order.clone(),
                to: from.clone(),
                failed: to.clone(),
                why: "exit status 1\n\"quoted\"".into(),
                fault: Fault::Candidate,
            },
            Upgrade::Over {
                order: order.clone(),
                selected: to,
                outcome: Outcome::Succeeded,
                blamed: None,
            },
            Upgrade::Over {
                order,
                selected: from,
                outcome: Outcome::Failed {
                    reason: Reason::ExecutionFailed,
                    why: "no such image".into(),
                },
                blamed: None,
            },
        ]
    }

    /// What came to version 1 later: an agent that does not know it reads the rest.
    fn later() -> Vec<Upgrade> {
        let mut all = all();
        for state in &mut all {
            match state {
                Upgrade::Back { fault, .. } => *fault = Fault::Host,
                Upgrade::Over { blamed, .. } => *blamed = Some(image('b')),
                Upgrade::Idle | Upgrade::Staging { .. } | Upgrade::Switched { .. } | Upgrade::Judging { .. } => {}
            }
        }
        all.split_off(3)
    }

    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        (dir, host)
    }

    #[test]
    fn each_state_is_one_line_of_this_form_and_reads_back() {
        let states: Vec<_> = all().into_iter().chain(later()).collect();
        let lines: Vec<_> = states.iter().map(|state| render(state).unwrap()).collect();
        for (line, state) in lines.iter().zip(states) {
            assert_eq!(line.matches('\n').count(), 1);
            assert_eq!(parse(line.as_bytes()).unwrap(), state);
        }
        insta::assert_snapshot!(lines.concat());
    }

    /// Written once, never edited: what an agent of version 1 left on a host.
    #[test]
    fn the_journal_of_version_1_is_read_for_ever() {
        let shipped = include_str!("fixtures/journal-1.jsonl");
        let read: Vec<_> = shipped.lines().map(|line| parse(line.as_bytes()).unwrap()).collect();
        assert_eq!(read, all());
    }

    #[test]
    fn what_is_no_journal_has_a_name_and_is_never_idle() {
        let whole = render(&all()[1]).unwrap();
        let foreign = r#"{"operationName":"up","activeMachine":"kube1","candidatePath":"/opt/x"}"#;
        assert!(matches!(parse(b""), Err(Error::Empty)));
        assert!(matches!(parse(&[0; 512]), Err(Error::Empty)));
        assert!(matches!(parse(b" \n"), Err(Error::Empty)));
        assert!(matches!(parse(foreign.as_bytes()), Err(Error::Foreign(_))));
        assert!(matches!(parse(b"[]"), Err(Error::Foreign(_))));
        assert!(matches!(
            parse(br#"{"version":2,"phase":"dreaming"}"#),
            Err(Error::Future(2))
        ));
        assert!(matches!(
            parse(br#"{"version":1,"phase":"dreaming"}"#),
            Err(Error::Foreign(_))
        ));
        for cut in 1..whole.len() - 2 {
            assert!(
                matches!(parse(&whole.as_bytes()[..cut]), Err(Error::Torn)),
                "cut at {cut}"
            );
        }
        assert!(
            parse(whole.trim_end().as_bytes()).is_ok(),
            "a line without its end is whole"
        );
        let more = whole.replacen('{', r#"{"later":{"a":1},"#, 1);
        assert_eq!(
            parse(more.as_bytes()).unwrap(),
            all()[1],
            "a field more is none too many"
        );
    }

    #[test]
    fn no_file_is_idle_and_idle_is_no_file() {
        let (dir, host) = host();
        assert_eq!(load(&host).unwrap(), Upgrade::Idle);
        save(&host, &all()[0]).unwrap();
        let file = dir.path().join("etc/aks-flex-node/agent-upgrade-signal.json");
        assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
        assert_eq!(load(&host).unwrap(), all()[0]);
        save(&host, &Upgrade::Idle).unwrap();
        save(&host, &Upgrade::Idle).unwrap();
        assert!(!file.exists());
    }

    #[test]
    fn one_that_can_not_be_read_is_put_aside_whole() {
        let (dir, host) = host();
        host.write(&PATH, b"{\"version\":1", 0o600).unwrap();
        assert!(matches!(load(&host), Err(Error::Torn)));
        put_aside(&host).unwrap();
        assert_eq!(load(&host).unwrap(), Upgrade::Idle);
        let kept = dir
            .path()
            .join("etc/aks-flex-node/agent-upgrade-signal.json.unreadable");
        assert_eq!(std::fs::read(kept).unwrap(), b"{\"version\":1");
    }
}
