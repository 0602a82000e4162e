//! `configure-static-routes` and `check-route-overlap`: the host's routes, set and looked at before each start of the machine.

use hostexec::HostPath;
use units::{host, machine::HostFile};

use super::file;
use crate::{
    config::Routing,
    step::{File, Place, Plan, Step},
};

/// Those that the settings ask for, in order; what an earlier start made of settings that are gone goes. `there`: units of the host.
pub(super) fn plans(routing: &Routing, there: &[&str]) -> Vec<Plan> {
    let mut plans = Vec::new();
    let routes = host::static_routes(&routing.routes);
    let script = routes[0].path.clone();
    let tasks = ["configure-static-routes", "enable-static-routes", "set-static-routes"];
    if !routing.routes.is_empty() {
        plans.push(unit(tasks, host::STATIC_ROUTES, routes, None));
    } else if there.contains(&host::STATIC_ROUTES) {
        plans.push(gone(tasks, host::STATIC_ROUTES, routes));
    }
    let overlap = host::route_overlap(&routing.expected, routing.overlap);
    let tasks = ["configure-route-overlap", "enable-route-overlap", "check-route-overlap"];
    if !routing.expected.is_empty() {
        // It is looked again when the routes have changed.
        plans.push(unit(tasks, host::ROUTE_OVERLAP, overlap, Some(script)));
    } else if there.contains(&host::ROUTE_OVERLAP) {
        plans.push(gone(tasks, host::ROUTE_OVERLAP, overlap));
    }
    plans
}

fn unit(tasks: [&'static str; 3], unit: &'static str, written: [HostFile; 2], too: Option<HostPath>) -> Plan {
    let [configure, enable, run] = tasks;
    let reads = written.iter().map(|written| written.path.clone());
    let reads = reads.chain(too).collect();
    Plan::Serial(vec![
        Plan::task(configure, Step::UnitFiles(written.map(file).into())),
        Plan::task(enable, Step::UnitEnabled { unit }),
        Plan::task(run, Step::UnitCurrent { unit, reads }),
    ])
}

/// The unit is not stopped: the machine requires it, and would go with it.
fn gone(tasks: [&'static str; 3], unit: &'static str, written: [HostFile; 2]) -> Plan {
    let [configure, disable, reload] = tasks;
    let files = written.map(|written| File::absent(Place::Host, written.path));
    Plan::Serial(vec![
        Plan::task(disable, Step::UnitDisabled { unit }),
        Plan::task(configure, Step::Files(files.into())),
        Plan::task(reload, Step::Reload),
    ])
}
