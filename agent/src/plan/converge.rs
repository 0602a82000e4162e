//! Units and programs that follow the agent that runs.

use hostexec::HostPath;
use units::{AgentUnit, Unit};

use super::join;
use crate::{
    model::MachineName,
    step::{File, Place, Plan, Step},
};

/// Whether an AgentUpgrade waits for its verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upgrade {
    /// None does.
    None,
    /// One does: what the last good agent needs to come back is not this agent's to write yet.
    Pending,
}

/// What every start of the daemon makes true, before it needs the cluster or a credential: units as this agent writes
/// them, its program in the active machine, and a systemd that has read its units, also when none changed now: an
/// earlier start may have died between the two.
#[must_use]
pub fn converge(unit: &AgentUnit, active: Option<MachineName>, upgrade: Upgrade) -> Plan {
    let mut plans = Vec::new();
    match upgrade {
        Upgrade::None => {
            plans.push(Plan::task("write-lifecycle-units", Step::Files(lifecycle_units())));
            plans.push(Plan::task("write-agent-units", Step::Files(agent_units(unit))));
        }
        // The agent's own too: should it not work, the last good agent could not be started either.
        Upgrade::Pending => {}
    }
    if let Some(machine) = active {
        plans.push(Plan::task("install-agent", Step::AgentBinary { machine }));
    }
    plans.push(Plan::task("reload-units", Step::Reload));
    Plan::Serial(plans)
}

/// The hooks of machines.
pub(super) fn lifecycle_units() -> Vec<File> {
    [units::nspawn_pre_start(), units::nspawn_post_start()].map(file).into()
}

/// The recovery's unit, and then the agent's, which names it.
pub(super) fn agent_units(unit: &AgentUnit) -> Vec<File> {
    [units::agent_recovery(), units::agent(unit)].map(file).into()
}

fn file(unit: Unit) -> File {
    File::open(
        Place::Host,
        join(&HostPath::fixed(units::name::UNIT_DIR), unit.name),
        0o644,
        unit.text,
    )
}
