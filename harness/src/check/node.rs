//! `node.*`: the whole of a node, and what it makes of its host.

mod fetched;
mod host;
mod identity;
mod life;
mod offline;
mod problems;

use super::{Check, Context, check};

pub(super) const CHECKS: [Check; 12] = [
    check!("node.host-phases", Cloud, 600, host::na_r23_fc_x4_phases_of_the_host),
    check!("node.lifecycle", Cloud, 600, life::na_t05_na_t22_lifecycle),
    check!("node.diagnosis", Cloud, 480, life::fc_k1_kubelet_does_not_start),
    check!(
        "node.credential-plugin",
        Cloud,
        480,
        identity::na_r08_fc_h12_credential_plugin
    ),
    check!("node.problem-detector", Cloud, 420, problems::problem_detector),
    check!("node.offline", Cloud, 480, offline::na_r18_offline),
    check!("node.offline-registry", Cloud, 480, offline::na_r18_offline_registry),
    check!("node.offline-archive", Cloud, 480, offline::na_r18_offline_archive),
    check!("node.managed-identity", Cloud, 420, identity::managed_identity),
    check!("node.service-principal", Cloud, 420, identity::service_principal),
    check!("node.fetched-bootstrap", Cloud, 420, fetched::fetched_bootstrap),
    check!("node.arc", Cloud, 420, fetched::na_r17_arc),
];
