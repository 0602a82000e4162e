//! Keeps the ledger, and copies of files of the host as they were before the agent changed them.

use std::io;

use hostexec::{Host, HostPath};
use image::Digest;

use super::aside;
use crate::ledger::{Ledger, Thing, Unreadable};
use crate::plan::reset::names;

/// Where it is.
pub const PATH: HostPath = names::LEDGER;
/// Where one that could not be read is kept.
const UNREADABLE: HostPath = HostPath::fixed("/etc/aks-flex-node/ledger.json.unreadable");
/// Held by whoever adds to it: the daemon, a machine's hook.
const LOCK: HostPath = HostPath::fixed("/run/aks-flex-node-ledger.lock");

/// Why there is no ledger to go by.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The file can't be read.
    #[error("{PATH} can't be read")]
    Io(#[from] io::Error),
    /// It is none.
    #[error("{PATH} can't be gone by: {0}")]
    Unreadable(#[from] Unreadable),
}

/// The ledger; none where nothing was written of one.
///
/// # Errors
/// There is something, and it is no ledger of this agent's.
pub fn load(host: &Host) -> Result<Option<Ledger>, Error> {
    match host.read(&PATH) {
        Ok(bytes) => Ok(Some(Ledger::parse(&bytes)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::Io(error)),
    }
}

/// Adds these things, and makes a ledger where there is none. One that can't be read is put aside.
///
/// # Errors
/// It could not be written; the old one stands.
pub fn add(host: &Host, things: Vec<Thing>) -> io::Result<()> {
    let _lock = host.lock(&LOCK)?;
    let mut ledger = match load(host) {
        Ok(Some(ledger)) => ledger,
        Ok(None) => begun(host)?,
        Err(Error::Io(error)) => return Err(error),
        Err(error @ Error::Unreadable(_)) => {
            tracing::error!(%error, aside = %UNREADABLE, "a new ledger is begun");
            aside::put(host, &PATH, &UNREADABLE)?;
            begun(host)?
        }
    };
    for thing in things {
        ledger.add(thing);
    }
    host.write_if_changed(&PATH, &ledger.render(), 0o600).map(drop)
}

/// One that knows what was there before.
fn begun(host: &Host) -> io::Result<Ledger> {
    let interfaces = match host.list(&HostPath::fixed("/sys/class/net")) {
        Ok(names) => names,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        Err(error) => return Err(error),
    };
    Ok(Ledger::begun(interfaces))
}

/// Keeps a copy of a file of the host, with its mode.
///
/// # Errors
/// It could not be written.
pub fn keep(host: &Host, bytes: &[u8], mode: u32) -> io::Result<Digest> {
    let digest = Digest::of(bytes);
    host.write_if_changed(&names::copy(&digest), bytes, mode)?;
    Ok(digest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ledger_knows_the_interfaces_of_its_beginning_and_a_torn_one_is_put_aside() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        std::fs::create_dir_all(dir.path().join("sys/class/net/eth0")).unwrap();
        assert!(load(&host).unwrap().is_none());
        let thing = |unit: &str| Thing::Enabled { unit: unit.into() };
        add(&host, vec![thing("a.service")]).unwrap();
        std::fs::create_dir_all(dir.path().join("sys/class/net/cni0")).unwrap();
        add(&host, vec![thing("b.service")]).unwrap();
        let ledger = load(&host).unwrap().unwrap();
        assert_eq!((ledger.interfaces, ledger.things.len()), (vec!["eth0".to_owned()], 2));
        for text in ["", "{", "{\"version\":7}"] {
            host.write(&PATH, text.as_bytes(), 0o600).unwrap();
            assert!(matches!(load(&host), Err(Error::Unreadable(_))), "{text}");
            add(&host, vec![thing("c.service")]).unwrap();
            assert_eq!(host.read_text(&UNREADABLE).unwrap(), text);
            host.remove(&UNREADABLE).unwrap();
        }
    }
}
