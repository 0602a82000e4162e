//! `start`: a host without a node gets one, in the container install.

use units::AgentUnit;

use super::{Goal, Programs, Unfit, containerd, converge, host, images, kubelet, machine, nspawn, problems, sources};
use crate::{
    config::Routing,
    facts::Facts,
    model::State,
    step::{File, Plan, Step},
};

/// The plan of a first start. Its order is that of the reference, but that the agent's unit is enabled when it has come
/// up: bootstrap goes by that link, so a node without an agent is tried again.
///
/// The phases of a host that isn't image-based (packages, apt), and of LocalDNS, are later issues': they go beside the host's and after the
/// machine's programs.
///
/// # Errors
/// A device or mount of the settings would mean something else to systemd; a file of the host's own can't be read.
pub fn start(
    goal: &Goal,
    programs: &Programs,
    facts: &Facts,
    routing: &Routing,
    unit: &AgentUnit,
) -> Result<Plan, Unfit> {
    let machine = goal.machine;
    let mut configured = vec![
        Plan::task("configure-containerd", Step::Files(containerd::files(goal))),
        Plan::task("configure-kubelet", Step::Files(kubelet::files(goal))),
    ];
    let mut watched = Vec::new();
    if programs.versions.npd.is_some() {
        let files = problems::files(goal);
        watched.push(service(
            goal,
            "start-node-problem-detector",
            problems::UNIT,
            &files,
            &[problems::COMPONENT],
        ));
        configured.push(Plan::task("configure-node-problem-detector", Step::Files(files)));
    }
    let mut plans = vec![host::setup(facts, routing)?];
    plans.extend(images::staged(goal, programs));
    plans.extend([
        Plan::task(
            "provision-rootfs",
            Step::Rootfs {
                machine,
                image: goal.image.clone(),
            },
        ),
        Plan::Parallel(vec![
            sources::downloads(goal, programs),
            Plan::task("configure-machine", Step::Files(machine::files(goal))),
            Plan::task("install-agent", Step::AgentBinary { machine }),
        ]),
        // The machine's settings name the lifecycle units, so these come first.
        Plan::task("write-lifecycle-units", Step::Files(converge::lifecycle_units())),
        Plan::task("configure-nspawn", Step::Files(nspawn::files(goal)?)),
        Plan::task("reload-machine-units", Step::Reload),
        Plan::Parallel(configured),
        Plan::task("enable-nspawn-machine", Step::MachineEnabled { machine }),
        Plan::task("start-nspawn-machine", Step::MachineRunning { machine }),
        service(
            goal,
            "start-containerd",
            containerd::UNIT,
            &containerd::files(goal),
            &["containerd", "runc", "cni"],
        ),
    ]);
    plans.extend(images::imported(goal, programs));
    plans.extend([
        service(
            goal,
            "start-kubelet",
            kubelet::UNIT,
            &kubelet::files(goal),
            &["kubelet"],
        ),
        Plan::task(
            "wait-for-kubelet",
            Step::KubeletJoined {
                machine,
                credential: kubelet::CERTIFICATE,
            },
        ),
        Plan::task("watch-kubelet", Step::KubeletSteady { machine }),
    ]);
    plans.extend(watched);
    plans.extend([
        Plan::task(
            "save-state",
            Step::StateSaved(State::first(&programs.versions.kubernetes)),
        ),
        Plan::task("write-agent-units", Step::Files(converge::agent_units(unit))),
        Plan::task("reload-agent-units", Step::Reload),
        Plan::task(
            "start-agent",
            Step::UnitRunning {
                unit: units::name::AGENT,
            },
        ),
        Plan::task(
            "enable-agent",
            Step::UnitEnabled {
                unit: units::name::AGENT,
            },
        ),
    ]);
    Ok(Plan::Serial(plans))
}

fn service(goal: &Goal, task: &'static str, unit: &'static str, files: &[File], components: &[&str]) -> Plan {
    let records = components.iter().map(|component| sources::record(component));
    let reads = files
        .iter()
        .filter(|file| file.is_file())
        .map(|file| file.path.clone())
        .chain(records)
        .collect();
    Plan::task(
        task,
        Step::ServiceRunning {
            machine: goal.machine,
            unit,
            reads,
        },
    )
}
