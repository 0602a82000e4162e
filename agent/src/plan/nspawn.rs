//! What systemd on the host reads about a machine.

use std::fmt::Write as _;

use hostexec::HostPath;

use super::{Goal, join};
use crate::{
    config::Access,
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

/// A machine's settings on the host.
pub(super) fn files(goal: &Goal) -> Vec<File> {
    let at = |path: String| HostPath::new(path).expect("a machine's name is plain");
    let machine = goal.machine;
    let drop_in = format!("/etc/systemd/system/systemd-nspawn@{machine}.service.d");
    let open = |path, text| File::open(Place::Host, at(path), 0o644, text);
    vec![
        open(format!("/etc/systemd/nspawn/{machine}.nspawn"), nspawn(goal)),
        open(format!("{drop_in}/override.conf"), service(goal)),
        open(format!("{drop_in}/aks-flex-node-dependencies.conf"), dependencies(goal)),
    ]
}

/// The plan of a machine's `pre-start`: its settings follow the host's devices.
#[must_use]
pub fn lifecycle(goal: &Goal) -> Plan {
    Plan::task("configure-nspawn", Step::Files(files(goal)))
}

fn nspawn(goal: &Goal) -> String {
    let mut text = String::from(
        "[Exec]\nCapability=all\nPrivateUsers=no\nSystemCallFilter=@keyring bpf perf_event_open\n\n\
         [Network]\nVirtualEthernet=no\n\n\
         [Files]\nBindReadOnly=/lib/modules\n",
    );
    let mut bind = |access, source: &str, target: &str| {
        let key = match access {
            Access::ReadWrite => "Bind",
            Access::ReadOnly => "BindReadOnly",
        };
        let (source, target) = (source.replace(':', "\\:"), target.replace(':', "\\:"));
        let pair = if source == target {
            source
        } else {
            format!("{source}:{target}")
        };
        writeln!(text, "{key}={pair}").expect("a string takes all");
    };
    bind(Access::ReadOnly, join(&IMAGES, "current").as_str(), IMAGES.as_str());
    for device in &goal.devices {
        bind(Access::ReadWrite, device.as_str(), device.as_str());
    }
    for mount in &goal.mounts {
        bind(mount.access, mount.source.as_str(), mount.target.as_str());
    }
    text
}

fn service(goal: &Goal) -> String {
    let machine = goal.machine;
    let hook = |template: &str| template.replace('@', &format!("@{machine}"));
    let (before, after) = (
        hook(units::name::NSPAWN_PRE_START),
        hook(units::name::NSPAWN_POST_START),
    );
    let mut text = format!(
        "[Unit]\nWants={before}\nAfter={before}\nStartLimitIntervalSec=0\n\n\
         [Service]\nRestart=on-failure\nRestartSec=10s\n\
         Environment=SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1\nEnvironment=SYSTEMD_NSPAWN_API_VFS_WRITABLE=network\n\
         ExecStartPre=-/usr/bin/machinectl terminate {machine}\n\
         ExecStartPre=-/usr/bin/umount --lazy /run/systemd/nspawn/unix-export/{machine}\n\
         ExecStartPost=-/usr/bin/systemctl --no-block start {after}\n"
    );
    for group in ["char-ipvtap", "char-macvtap"]
        .into_iter()
        .chain(goal.device_groups.iter().map(String::as_str))
    {
        writeln!(text, "DeviceAllow={group} rwm").expect("a string takes all");
    }
    for device in &goal.devices {
        writeln!(text, "DeviceAllow={} rwm", device.as_str().replace('%', "%%")).expect("a string takes all");
    }
    text
}

fn dependencies(goal: &Goal) -> String {
    let mut text = String::from("[Unit]\nWants=systemd-udev-settle.service\nAfter=systemd-udev-settle.service\n");
    for service in &goal.services {
        write!(text, "Requires={service}\nAfter={service}\n").expect("a string takes all");
    }
    text
}
