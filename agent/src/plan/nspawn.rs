//! What systemd on the host reads about a machine.

use units::machine::{Access, Bind, Device, Machine, MachineError};

use super::{Goal, Unfit, host, images, join};
use crate::{
    config,
    step::{File, Plan, Step},
};

/// The plan of a machine's `pre-start`: its settings follow the host's devices.
///
/// # Errors
/// As [`files`].
pub fn lifecycle(goal: &Goal) -> Result<Plan, Unfit> {
    Ok(Plan::task("configure-nspawn", Step::UnitFiles(files(goal)?)))
}

/// A machine's settings on the host.
///
/// # Errors
/// A device or mount of the settings would mean something else to systemd.
pub(super) fn files(goal: &Goal) -> Result<Vec<File>, MachineError> {
    let nodes = goal.devices.iter().cloned().map(Device::Node);
    let groups = goal.device_groups.iter().cloned().map(Device::Group);
    let read_only = |source, target| Bind {
        source,
        target,
        access: Access::ReadOnly,
    };
    let modules = goal
        .modules
        .iter()
        .map(|folder| read_only(folder.clone(), folder.clone()));
    let shown = read_only(join(&images::FOLDER, images::CURRENT), images::FOLDER);
    let mounts = goal.mounts.iter().map(|mount| Bind {
        source: mount.source.clone(),
        target: mount.target.clone(),
        access: match mount.access {
            config::Access::ReadWrite => Access::ReadWrite,
            config::Access::ReadOnly => Access::ReadOnly,
        },
    });
    let machine = Machine {
        name: goal.machine.as_str(),
        devices: nodes.chain(groups).collect(),
        binds: modules.chain([shown]).chain(mounts).collect(),
        required: goal.services.clone(),
    };
    Ok(machine.files()?.map(host::file).into())
}
