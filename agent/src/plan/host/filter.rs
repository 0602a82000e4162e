//! The host's packet filter: cleared before each start of the machine, and open to what a node needs where the host has a firewall.

use units::host::{self, Family};

use super::file;
use crate::step::{Plan, Step};

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
    let files = found.iter().map(|family| file(host::firewall(*family)));
    (!found.is_empty()).then(|| {
        Plan::Serial(vec![
            Plan::task("write-firewall-drop-ins", Step::UnitFiles(files.collect())),
            Plan::task("open-firewall", Step::FirewallsOpen(found.to_vec())),
        ])
    })
}
