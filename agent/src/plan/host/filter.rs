//! The host's packet filter: cleared before each start of the machine, and open to what a node needs where the host has a firewall.

use units::host::{self, Family, Written};

use crate::step::{File, Place, Plan, Step};

/// `configure-nftables`: no start of the machine meets rules of an earlier one. Nothing is cleared now: the machine's own start does it,
/// so that a second `start` leaves the rules of a running node alone.
pub(super) fn clearing() -> Plan {
    Plan::Serial(vec![
        Plan::task(
            "configure-nftables",
            Step::UnitFiles(host::nftables_flush().map(file).into()),
        ),
        Plan::task(
            "enable-nftables-flush",
            Step::UnitEnabled {
                unit: host::NFTABLES_FLUSH,
            },
        ),
    ])
}

/// `open-firewall`: now, and each time the firewall's unit starts.
pub(super) fn firewalls(found: &[Family]) -> Option<Plan> {
    let files = found.iter().map(|family| {
        let drop_in = host::firewall(*family);
        File::open(Place::Host, drop_in.path, 0o644, drop_in.text)
    });
    (!found.is_empty()).then(|| {
        Plan::Serial(vec![
            Plan::task("write-firewall-drop-ins", Step::UnitFiles(files.collect())),
            Plan::task("open-firewall", Step::FirewallsOpen(found.to_vec())),
        ])
    })
}

pub(super) fn file(written: Written) -> File {
    File::open(Place::Host, written.file.path, written.mode, written.file.text)
}
