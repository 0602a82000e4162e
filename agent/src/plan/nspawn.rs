//! What systemd on the host reads about a machine.

use hostexec::HostPath;
use units::machine::{Access, Bind, Device, Machine, MachineError};

use super::{Goal, Unfit, host, join};
use crate::{
    config,
    step::{File, Place, Plan, Step},
};

/// Where archives of container images are shown to machines.
const IMAGES: HostPath = HostPath::fixed("/var/lib/unbounded/container-images");

/// The folder that machines are given for container images: it must be there, also when nothing is in it.
pub(super) fn image_folder() -> Vec<File> {
    let none = join(&IMAGES, "none");
    vec![
        File::folder(Place::Host, none.clone(), 0o755),
        File::link(Place::Host, join(&IMAGES, "current"), none.as_str()),
    ]
}

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
    let images = read_only(join(&IMAGES, "current"), IMAGES);
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
        binds: modules.chain([images]).chain(mounts).collect(),
        required: goal.services.clone(),
    };
    Ok(machine.files()?.map(host::file).into())
}
