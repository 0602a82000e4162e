//! `configure-static-routes` and `check-route-overlap`: the host's routes, set and looked at before each start of the machine.

use units::host;

use super::filter::file;
use crate::{
    config::Routing,
    step::{Plan, Step},
};

/// Those that the settings ask for, in order.
pub(super) fn plans(routing: &Routing) -> Vec<Plan> {
    let mut plans = Vec::new();
    if !routing.routes.is_empty() {
        let written = host::static_routes(&routing.routes);
        plans.push(unit(
            ["configure-static-routes", "enable-static-routes", "set-static-routes"],
            host::STATIC_ROUTES,
            written,
        ));
    }
    if !routing.expected.is_empty() {
        let written = host::route_overlap(&routing.expected, routing.overlap);
        plans.push(unit(
            ["configure-route-overlap", "enable-route-overlap", "check-route-overlap"],
            host::ROUTE_OVERLAP,
            written,
        ));
    }
    plans
}

fn unit(tasks: [&'static str; 3], unit: &'static str, written: [host::Written; 2]) -> Plan {
    let [configure, enable, run] = tasks;
    let reads = written.iter().map(|written| written.file.path.clone()).collect();
    Plan::Serial(vec![
        Plan::task(configure, Step::UnitFiles(written.map(file).into())),
        Plan::task(enable, Step::UnitEnabled { unit }),
        Plan::task(run, Step::UnitCurrent { unit, reads }),
    ])
}
