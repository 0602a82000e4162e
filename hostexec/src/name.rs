//! The host's own name.

use crate::{Host, HostPath, host::ROOT};
use nix::{
    sched::{CloneFlags, setns},
    unistd::gethostname,
};
use std::{fs::File, io, path::Path, thread};

/// The name that the host is given at its boot.
const STATIC: HostPath = HostPath::fixed("/etc/hostname");

impl Host {
    /// The name that the host's kernel goes by now, as it is: it may still be `localhost` early in a boot.
    ///
    /// `ctr run` gives the container a name of its own, and a file of `/proc/sys` shows the reader's: so a thread enters
    /// the namespace of the host's first process. Where the host is but a folder, its `/etc/hostname` is all there is.
    ///
    /// # Errors
    /// Neither the kernel's name nor `/etc/hostname` can be read.
    pub fn host_name(&self) -> io::Result<String> {
        let name = if self.root() == Path::new("/") {
            own()
        } else if self.root() == Path::new(ROOT) {
            within(Path::new("/proc/1/ns/uts"))
        } else {
            return self.read_text(&STATIC);
        };
        name.or_else(|error| {
            tracing::warn!(%error, "the kernel does not tell the host's name");
            self.read_text(&STATIC)
        })
    }
}

fn own() -> io::Result<String> {
    gethostname()?
        .into_string()
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the host's name is not UTF-8"))
}

/// A namespace belongs to a thread, so one that ends thereafter leaves no trace of it.
fn within(namespace: &Path) -> io::Result<String> {
    let names = File::open(namespace)?;
    let thread = thread::Builder::new().spawn(move || {
        setns(names, CloneFlags::CLONE_NEWUTS)?;
        own()
    })?;
    thread
        .join()
        .map_err(|_| io::Error::other("the thread that asks for the host's name panicked"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_that_is_but_a_folder_is_named_by_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        assert_eq!(host.host_name().unwrap_err().kind(), io::ErrorKind::NotFound);
        host.write(&STATIC, b"edge-1\n", 0o644).unwrap();
        assert_eq!(host.host_name().unwrap(), "edge-1\n");
    }

    #[test]
    fn a_name_is_asked_for_in_a_thread_of_its_own() {
        if !nix::unistd::geteuid().is_root() {
            return; // entering a namespace, even one's own, is root's
        }
        let here = Path::new("/proc/thread-self/ns/uts");
        let before = std::fs::read_link(here).unwrap();
        assert_eq!(within(here).unwrap(), own().unwrap());
        assert_eq!(std::fs::read_link(here).unwrap(), before);
        assert!(within(Path::new("/proc/thread-self/ns/none")).is_err());
    }
}
