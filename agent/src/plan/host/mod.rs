//! What a node needs of its host before it has a machine. Source: node-agent specification, 5.2, 5.11.
//!
//! The host's containerd is never touched in the container install: it runs the agent. Packages and apt are the binary install's.

mod docker;
mod filter;
mod kernel;
mod routes;
mod swap;

use super::Unfit;
use crate::{
    config::Routing,
    facts::Facts,
    step::{Plan, Step},
};

/// The phases of the host, side by side.
///
/// # Errors
/// A file of the host's own can't be read as what it is for.
pub(super) fn setup(facts: &Facts, routing: &Routing) -> Result<Plan, Unfit> {
    let mut phases = vec![
        kernel::configure(),
        filter::clearing(),
        docker::disable(facts.docker.as_deref())?,
        // Another kubelet would hold the machine's port.
        Plan::task("disable-host-kubelet", Step::UnitsMasked(vec!["kubelet.service"])),
        swap::disable(facts.fstab.as_deref(), facts.fstab_kept.as_deref()),
    ];
    phases.extend(filter::firewalls(&facts.firewalls));
    // The check of what routes hide comes after those that are set.
    let routes: Vec<Plan> = routes::plans(routing);
    if !routes.is_empty() {
        phases.push(Plan::Serial(routes));
    }
    Ok(Plan::Parallel(phases))
}

#[cfg(test)]
mod tests;
