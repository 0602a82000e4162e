//! `join.*`: from Ignition to a node that is Ready; what keeps a host from it, and what a host that has joined looks like.

mod again;
mod bootstrap;
mod faults;
mod first;
mod refused;
mod secrets;
mod traces;

pub(super) use secrets::found;

use super::{Check, Context, check};
use crate::node::INPUTS;

pub(super) const CHECKS: [Check; 12] = [
    check!("join.disk-full", Cloud, 420, faults::disk_full),
    check!("join.retries", Cloud, 420, faults::retries),
    check!("join.secrets", Cloud, 360, secrets::secrets),
    check!("join.first-boot", Cloud, 360, first::first_boot),
    check!("join.local-image", Cloud, 360, faults::local_image),
    check!("join.final", Cloud, 360, refused::refused),
    check!("join.nothing-on-host", Cloud, 360, traces::nothing_on_host),
    check!("join.in-the-machine", Cloud, 360, first::in_the_machine),
    check!("join.certificate", Cloud, 360, first::certificate),
    check!("join.token-revoked", Cloud, 360, again::token_revoked),
    check!("join.second-boot", Cloud, 420, again::second_boot),
    check!("join.empty-machine-id", Cloud, 180, first::empty_machine_id),
];

/// Which agent a host runs, unless it was upgraded.
const SETTINGS: &str = "/etc/aks-flex-node-agent.env";
const BASE_CONFIG: &str = "/etc/aks-flex-node/base-config.json";
/// The configuration that the agent makes of them.
pub(super) const CONFIG: &str = "/etc/aks-flex-node/config.json";
