//! `node.*`: the whole of a node, and what it makes of its host.

mod host;
mod offline;

use super::{Check, Context, check};

pub(super) const CHECKS: [Check; 3] = [
    check!("node.host-phases", Cloud, 600, host::na_r23_fc_x4_phases_of_the_host),
    check!("node.offline", Cloud, 480, offline::na_r18_offline),
    check!("node.offline-registry", Cloud, 480, offline::na_r18_offline_registry),
];
