//! `node.*`: the whole of a node, and what it makes of its host.

mod host;

use super::{Check, Context, check};

pub(super) const CHECKS: [Check; 1] = [check!(
    "node.host-phases",
    Cloud,
    600,
    host::na_r23_fc_x4_phases_of_the_host
)];
