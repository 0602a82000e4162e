//! Keeps the agent's state: `daemon-state.json` and its checksum.
//!
//! ```text
//!  save: checksum of old and new ─▶ state ─▶ checksum of new
//!  load: none ─▶ no state · pair agrees ─▶ state · anything else ─▶ an error
//! ```
//!
//! What can't be read is never taken for "no state": a host would be built anew on top of a running node.

use hostexec::{Host, HostPath};
use image::Digest;

use crate::model::State;

/// The state of a node; there is none where there is no node.
pub const STATE: HostPath = HostPath::fixed("/etc/aks-flex-node/daemon-state.json");
const CHECKSUM: HostPath = HostPath::fixed("/etc/aks-flex-node/daemon-state.json.sha256");

/// Why the state can't be had or kept.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The disk said no.
    #[error("can't {verb} the agent's state")]
    Io {
        /// What was tried.
        verb: &'static str,
        /// On which file, and why.
        #[source]
        source: std::io::Error,
    },
    /// The pair is torn: a power cut between the two files, or somebody edited one.
    #[error("{STATE} and {CHECKSUM} don't agree: {torn}; restore the pair, or reset the node")]
    Torn {
        /// In which way.
        torn: Torn,
    },
    /// The checksum agrees, and the state still isn't one.
    #[error("{STATE} holds no state of this agent")]
    Form(#[source] serde_json::Error),
}

/// In which way the two files don't agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Torn {
    /// There is a state without a checksum.
    #[error("the checksum is missing")]
    NoChecksum,
    /// The checksum is of something else.
    #[error("the checksum is that of other bytes")]
    Mismatch,
}

/// The state as it was saved; none on a host that has no node yet.
///
/// # Errors
/// The files can't be read, don't agree, or hold something else.
pub fn load(host: &Host) -> Result<Option<State>, Error> {
    let io = |source| Error::Io { verb: "read", source };
    if !host.exists(&STATE).map_err(io)? {
        return Ok(None);
    }
    let bytes = host.read(&STATE).map_err(io)?;
    if !host.exists(&CHECKSUM).map_err(io)? {
        return Err(Error::Torn { torn: Torn::NoChecksum });
    }
    let checksum = host.read(&CHECKSUM).map_err(io)?;
    let digest = Digest::of(&bytes);
    if !checksum
        .split(|byte| *byte == b'\n')
        .any(|line| line.trim_ascii() == digest.hex().as_bytes())
    {
        return Err(Error::Torn { torn: Torn::Mismatch });
    }
    serde_json::from_slice(&bytes).map(Some).map_err(Error::Form)
}

/// When the state was last written; none on a host that has no node yet.
///
/// # Errors
/// The file can't be looked at.
pub fn saved_at(host: &Host) -> std::io::Result<Option<std::time::SystemTime>> {
    match host.metadata(&STATE) {
        Ok(found) => found.modified().map(Some),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Saves the state. Between its two files a power cut must leave a pair that agrees: the checksum first names the state
/// that is there and the one to come, and the latter alone in the end.
///
/// # Errors
/// A file could not be replaced: the pair stands for the state before, or for this one.
pub fn save(host: &Host, state: &State) -> Result<(), Error> {
    let io = |source| Error::Io { verb: "save", source };
    let mut bytes = serde_json::to_vec_pretty(state).expect("a state has a JSON form");
    bytes.push(b'\n');
    let after = Digest::of(&bytes);
    let before = match host.read(&STATE) {
        Ok(bytes) => Some(Digest::of(&bytes)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(error) => return Err(io(error)),
    };
    let write = |digests: &[&Digest]| {
        let lines: String = digests.iter().map(|digest| format!("{}\n", digest.hex())).collect();
        host.write_if_changed(&CHECKSUM, lines.as_bytes(), 0o600).map_err(io)
    };
    match before {
        Some(before) if before != after => write(&[&before, &after])?,
        Some(_) | None => write(&[&after])?,
    };
    host.write_if_changed(&STATE, &bytes, 0o600).map_err(io)?;
    write(&[&after])?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::model::MachineName;

    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        (dir, host)
    }

    #[test]
    fn what_was_saved_is_loaded_and_only_root_may_read_it() {
        let (dir, host) = host();
        assert_eq!(load(&host).unwrap(), None);
        let state = State {
            active_machine: MachineName::Kube2,
            ..State::first("1.34.0")
        };
        save(&host, &state).unwrap();
        assert_eq!(load(&host).unwrap(), Some(state));
        for name in ["daemon-state.json", "daemon-state.json.sha256"] {
            let mode = dir
                .path()
                .join("etc/aks-flex-node")
                .join(name)
                .metadata()
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{name}");
        }
    }

    #[test]
    fn the_files_have_the_form_that_was_always_written() {
        let (_dir, host) = host();
        save(&host, &State::first("1.34.0")).unwrap();
        insta::assert_snapshot!(host.read_text(&STATE).unwrap() + &host.read_text(&CHECKSUM).unwrap(), @r#"
        {
          "appliedSettingsVersion": "1.34.0",
          "appliedKubernetesVersion": "1.34.0",
          "activeMachine": "kube1"
        }
        d4faeac4eafede68d6b7c9004aa261131c426e2f06965cbb0717ea1a37e191af
        "#);
    }

    #[test]
    fn fc_p5_cut_after_any_of_its_writes_a_save_leaves_the_state_before_or_the_new_one() {
        let (_dir, host) = host();
        let (old, new) = (State::first("1.34.0"), State::first("1.35.0"));
        save(&host, &old).unwrap();
        let pair = || (host.read(&STATE).unwrap(), host.read(&CHECKSUM).unwrap());
        let before = pair();
        save(&host, &new).unwrap();
        let after = pair();
        let both = [before.1.clone(), after.1.clone()].concat();
        for (state, checksum, want) in [
            (&before.0, &before.1, &old),
            (&before.0, &both, &old),
            (&after.0, &both, &new),
            (&after.0, &after.1, &new),
        ] {
            host.write(&STATE, state, 0o600).unwrap();
            host.write(&CHECKSUM, checksum, 0o600).unwrap();
            assert_eq!(load(&host).unwrap().as_ref(), Some(want));
            // The next save makes it whole, whatever it finds.
            save(&host, want).unwrap();
            assert_eq!(
                host.read(&CHECKSUM).unwrap(),
                if want == &old {
                    before.1.clone()
                } else {
                    after.1.clone()
                }
            );
        }
    }

    #[test]
    fn a_torn_pair_is_an_error_and_never_no_state() {
        let (_dir, host) = host();
        save(&host, &State::first("1.34.0")).unwrap();
        let newer = serde_json::to_vec(&State::first("1.35.0")).unwrap();
        host.write(&STATE, &newer, 0o600).unwrap();
        assert!(matches!(load(&host).unwrap_err(), Error::Torn { torn: Torn::Mismatch }));
        host.remove(&CHECKSUM).unwrap();
        assert!(matches!(
            load(&host).unwrap_err(),
            Error::Torn { torn: Torn::NoChecksum }
        ));
        host.write(&STATE, b"", 0o600).unwrap();
        host.write(&CHECKSUM, format!("{}\n", Digest::of(b"").hex()).as_bytes(), 0o600)
            .unwrap();
        assert!(matches!(load(&host).unwrap_err(), Error::Form(_)));
        host.remove(&STATE).unwrap();
        assert_eq!(load(&host).unwrap(), None);
    }
}
