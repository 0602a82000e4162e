//! What a node needs of its host before it has a machine. Source: node-agent specification, 5.2, 5.11.
//!
//! The host's containerd is never touched in the container install: it runs the agent. Packages and apt are the binary install's.

mod docker;
mod filter;
pub(super) mod kernel;
mod routes;
mod swap;

use units::machine::HostFile;

use super::Unfit;
use crate::{
    config::Routing,
    facts::Facts,
    step::{File, Place, Plan, Step},
};

/// A kubelet of the host's own.
const KUBELET: &str = "kubelet.service";

/// The phases of the host, side by side.
///
/// # Errors
/// A file of the host's own can't be read as what it is for.
pub(super) fn setup(facts: &Facts, routing: &Routing) -> Result<Plan, Unfit> {
    let mut phases = vec![
        kernel::configure(),
        filter::clearing(),
        swap::disable(facts.fstab.as_ref(), facts.fstab_kept),
    ];
    phases.extend(docker::disable(facts)?);
    if facts.units.contains(&KUBELET) {
        // It would hold the machine's port.
        phases.push(Plan::task("disable-host-kubelet", Step::UnitsOff(vec![KUBELET])));
    }
    phases.extend(filter::firewalls(&facts.firewalls));
    // The check of what routes hide comes after those that are set.
    let routes = routes::plans(routing, &facts.units);
    if !routes.is_empty() {
        phases.push(Plan::Serial(routes));
    }
    Ok(Plan::Parallel(phases))
}

/// A file as `units` renders it.
pub(super) fn file(file: HostFile) -> File {
    File::open(Place::Host, file.path, file.mode, file.text)
}

#[cfg(test)]
mod tests;
