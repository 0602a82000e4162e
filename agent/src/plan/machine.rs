//! The files of a machine's operating system, whatever runs in it.

use hostexec::HostPath;

use super::Goal;
use crate::step::{File, Place};

/// Files every machine has. Its resolver and its network are the host's: it shares the host's network namespace, and a
/// networkd of its own would take the host's address away.
pub(super) fn files(goal: &Goal) -> Vec<File> {
    let place = Place::Machine(goal.machine);
    let at = HostPath::fixed;
    let mut files = vec![
        File::open(place, at("/etc/hostname"), 0o644, format!("{}\n", goal.host_name)),
        File::open(
            place,
            at("/etc/modules-load.d/kubernetes.conf"),
            0o644,
            "overlay\nbr_netfilter\n",
        ),
        File::open(
            place,
            at("/etc/tmpfiles.d/kmsg.conf"),
            0o644,
            "L /dev/kmsg - - - - /dev/console\n",
        ),
    ];
    for unit in [
        "systemd-networkd.service",
        "systemd-networkd.socket",
        "systemd-resolved.service",
    ] {
        files.push(File::link(
            place,
            super::join(&at("/etc/systemd/system"), unit),
            "/dev/null",
        ));
    }
    if let Some(text) = &goal.resolv_conf {
        files.push(File::open(place, at("/etc/resolv.conf"), 0o644, text));
    }
    files
}
