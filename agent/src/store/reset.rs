//! Keeps the record of a reset under way: one JSON line. That there is none means that none is.

use std::io;

use hostexec::{Host, HostPath};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::aside;
use crate::plan::reset::names;
use crate::reset::Reset;
use crate::upgrade::Order;

/// Where it is.
pub const PATH: HostPath = names::RECORD;
/// Where a copy of one that could not be read is kept.
const UNREADABLE: HostPath = HostPath::fixed("/etc/aks-flex-node/reset.json.unreadable");
/// The form this agent writes, and the only one it reads.
const VERSION: u64 = 1;

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Phase {
    Asked,
    Removing,
    Gone,
    Stays,
    Leaving,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Operation {
    name: String,
    uid: String,
    observed_generation: i64,
    daemon: String,
    started_at: Timestamp,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct File {
    version: u64,
    phase: Phase,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    operation: Option<Operation>,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    summary: String,
}

/// The record. One that can't be read is put aside and counts as none: whoever asked will ask again, and nothing is removed unasked.
///
/// # Errors
/// It can't be read at all, or not be put aside.
pub fn load(host: &Host) -> io::Result<Reset> {
    let bytes = match host.read(&PATH) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Reset::Idle),
        Err(error) => return Err(error),
    };
    match parse(&bytes) {
        Some(reset) => Ok(reset),
        None => {
            tracing::error!(path = %PATH, aside = %UNREADABLE, "the record of a reset can't be read, and is put aside");
            aside::put(host, &PATH, &UNREADABLE)?;
            Ok(Reset::Idle)
        }
    }
}

/// Replaces the record; that of none is removed.
///
/// # Errors
/// It could not be written; the old one stands.
pub fn save(host: &Host, reset: &Reset) -> io::Result<()> {
    match render(reset) {
        Some(text) => host.write(&PATH, text.as_bytes(), 0o600),
        None => host.remove(&PATH),
    }
}

fn parse(bytes: &[u8]) -> Option<Reset> {
    let file: File = serde_json::from_slice(bytes).ok()?;
    let order = || {
        let operation = file.operation?;
        Some(Order {
            name: operation.name,
            uid: operation.uid,
            generation: operation.observed_generation,
            machine: None,
            daemon: operation.daemon,
            started_at: operation.started_at,
        })
    };
    if file.version != VERSION {
        return None;
    }
    let summary = file.summary;
    Some(match file.phase {
        Phase::Asked => Reset::Asked { order: order()? },
        Phase::Removing => Reset::Removing { order: order()? },
        Phase::Gone => Reset::Gone {
            order: order()?,
            summary,
        },
        Phase::Stays => Reset::Stays {
            order: order()?,
            summary,
        },
        Phase::Leaving => Reset::Leaving,
    })
}

fn render(reset: &Reset) -> Option<String> {
    let (phase, order, summary) = match reset {
        Reset::Idle => return None,
        Reset::Asked { order } => (Phase::Asked, Some(order), ""),
        Reset::Removing { order } => (Phase::Removing, Some(order), ""),
        Reset::Gone { order, summary } => (Phase::Gone, Some(order), summary.as_str()),
        Reset::Stays { order, summary } => (Phase::Stays, Some(order), summary.as_str()),
        Reset::Leaving => (Phase::Leaving, None, ""),
    };
    let file = File {
        version: VERSION,
        phase,
        operation: order.map(|order| Operation {
            name: order.name.clone(),
            uid: order.uid.clone(),
            observed_generation: order.generation,
            daemon: order.daemon.clone(),
            started_at: order.started_at,
        }),
        summary: summary.to_owned(),
    };
    let mut line = serde_json::to_string(&file).expect("a record of texts and numbers is JSON");
    line.push('\n');
    Some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_is_one_line_and_reads_back() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        let mut lines = String::new();
        for state in crate::reset::tests::all() {
            save(&host, &state).unwrap();
            assert_eq!(load(&host).unwrap(), state);
            lines.push_str(&render(&state).unwrap_or_default());
        }
        insta::assert_snapshot!(lines);
        save(&host, &Reset::Idle).unwrap();
        assert!(!host.exists(&PATH).unwrap());
    }

    #[test]
    fn one_that_can_not_be_read_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        for text in [
            "",
            "{\"version\":1",
            "{}",
            "{\"version\":2,\"phase\":\"leaving\"}",
            "{\"version\":1,\"phase\":\"gone\"}",
        ] {
            host.write(&PATH, text.as_bytes(), 0o600).unwrap();
            assert_eq!(load(&host).unwrap(), Reset::Idle, "{text}");
            assert!(host.exists(&UNREADABLE).unwrap() && !host.exists(&PATH).unwrap());
        }
    }
}
