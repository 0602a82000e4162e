//! The resolver's files of the container. `ctr` shows it the host's as they are at its start; a host that replaces them later (a lease, another
//! network) would go on unseen, and an agent that runs for months ask a resolver that is gone: field case H9.
//!
//! The C library reads `/etc/resolv.conf` anew for the first name after it has changed.

use std::io;
use std::path::Path;

use hostexec::{Host, HostPath, Written};
use nix::mount::{MntFlags, umount2};
use tracing::{info, warn};

/// What says how names are looked up.
const FILES: [HostPath; 2] = [HostPath::fixed("/etc/resolv.conf"), HostPath::fixed("/etc/hosts")];

/// Has the container's files say what the host's say now; none of them is missing for a moment.
pub(super) fn follow(host: &Host, container: &Host) {
    for file in &FILES {
        match same(host, container, file) {
            Ok(Written::Same) => {}
            Ok(Written::Changed) => info!(%file, "the host has another, and so has this container now"),
            Err(error) => warn!(%file, %error, "names may be looked up as the host did when this container started"),
        }
    }
}

fn same(host: &Host, container: &Host, file: &HostPath) -> io::Result<Written> {
    let text = match host.read(file) {
        Ok(text) => text,
        // Half-way through being replaced, or a link into what is not there yet: the old one is better than none.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Written::Same),
        Err(error) => return Err(error),
    };
    if container.read(file).is_ok_and(|own| own == text) {
        return Ok(Written::Same);
    }
    match container.write_if_changed(file, &text, 0o644) {
        // The mount that showed the host's old one. It is this container's alone.
        Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
            umount2(Path::new(file.as_str()), MntFlags::MNT_DETACH)?;
            container.write_if_changed(file, &text, 0o644)
        }
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn fc_h9_the_container_follows_the_hosts_resolver_through_its_links() {
        let (of_host, of_container) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (host, container) = (Host::rooted(of_host.path()), Host::rooted(of_container.path()));
        let [resolv, hosts] = &FILES;
        host.write(hosts, b"127.0.0.1 localhost\n", 0o644).unwrap();
        container.write(resolv, b"nameserver 10.0.0.1\n", 0o644).unwrap();
        follow(&host, &container);
        assert_eq!(
            container.read(resolv).unwrap(),
            b"nameserver 10.0.0.1\n",
            "none is no reason to have none"
        );
        assert_eq!(container.read(hosts).unwrap(), b"127.0.0.1 localhost\n");
        let stub = HostPath::fixed("/run/resolver/stub.conf");
        host.write(&stub, b"nameserver 10.0.0.2\n", 0o644).unwrap();
        symlink(stub.as_str(), of_host.path().join("etc/resolv.conf")).unwrap();
        follow(&host, &container);
        assert_eq!(container.read(resolv).unwrap(), b"nameserver 10.0.0.2\n");
        assert!(matches!(same(&host, &container, resolv), Ok(Written::Same)));
    }
}
