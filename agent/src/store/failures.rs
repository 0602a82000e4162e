//! Keeps the record of images that failed on this host by their own fault.
//!
//! What can't be read counts as no record, for it must never hold an upgrade up.

use std::io;

use hostexec::{Host, HostPath};
use serde::{Deserialize, Serialize};

use crate::upgrade::Failures;

/// Where the record is.
pub const PATH: HostPath = HostPath::fixed("/etc/aks-flex-node/agent-upgrade-failures.json");
/// The form this agent writes; additions don't raise it.
const VERSION: u64 = 1;

#[derive(Serialize, Deserialize)]
struct File {
    version: u64,
    failures: Failures,
}

/// The record; empty when there is none, or none that can be read, which is logged.
#[must_use]
pub fn load(host: &Host) -> Failures {
    let read = |bytes: Vec<u8>| match serde_json::from_slice::<File>(&bytes) {
        Ok(file) if file.version == VERSION => Ok(file.failures),
        Ok(file) => Err(format!("it is of version {}", file.version)),
        Err(error) => Err(error.to_string()),
    };
    let failures = match host.read(&PATH) {
        Ok(bytes) => read(bytes),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Failures::default(),
        Err(error) => Err(error.to_string()),
    };
    failures.unwrap_or_else(|why| {
        tracing::warn!(path = %PATH, why, "the record of failed images can't be read, and counts as empty");
        Failures::default()
    })
}

/// Replaces the record.
///
/// # Errors
/// When it could not be written; the old one stands.
pub fn save(host: &Host, failures: &Failures) -> io::Result<()> {
    if failures.is_empty() {
        return host.remove(&PATH);
    }
    let file = File {
        version: VERSION,
        failures: failures.clone(),
    };
    let mut text = serde_json::to_vec_pretty(&file).expect("a record of texts and numbers is JSON");
    text.push(b'\n');
    host.write_if_changed(&PATH, &text, 0o600).map(drop)
}

#[cfg(test)]
mod tests {
    use image::Digest;
    use jiff::Timestamp;

    use super::*;

    #[test]
    fn a_record_reads_back_and_an_empty_one_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        assert_eq!(load(&host), Failures::default());
        let digest = Digest::of(b"x");
        let failures = Failures::default().with(&digest, "u-1", Timestamp::UNIX_EPOCH, "status 1");
        save(&host, &failures).unwrap();
        assert_eq!(load(&host), failures);
        insta::assert_snapshot!(host.read_text(&PATH).unwrap());
        save(&host, &failures.without(&digest)).unwrap();
        assert!(!host.exists(&PATH).unwrap());
    }

    #[test]
    fn what_is_no_record_holds_nothing_up() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        for text in ["", "{", "[]", r#"{"version":2,"failures":[]}"#, r#"{"version":1}"#] {
            host.write(&PATH, text.as_bytes(), 0o600).unwrap();
            assert_eq!(load(&host), Failures::default(), "{text}");
        }
        save(
            &host,
            &Failures::default().with(&Digest::of(b"x"), "u", Timestamp::UNIX_EPOCH, "w"),
        )
        .unwrap();
        assert!(load(&host).of(&Digest::of(b"x")).is_some());
    }
}
