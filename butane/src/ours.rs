//! What on a host is the agent's: no file of the operator's brings, links, masks or adds to it.

use hostexec::HostPath;
use units::machine::Machine;
use units::name;

use crate::bu::Bu;
use crate::place::shown;
use crate::{Error, place};

const ETC_DIR: HostPath = HostPath::fixed(name::ETC_DIR);
const SETTINGS_ENV: HostPath = HostPath::fixed(name::SETTINGS_ENV);
const SYSTEMD: HostPath = HostPath::fixed("/etc/systemd");
const UNIT_DIR: HostPath = HostPath::fixed(name::UNIT_DIR);
/// What every unit of ours begins with.
const UNITS: &str = "aks-flex-node-";
/// Units of the system that ours cannot do without.
const NEEDED: [&str; 8] = [
    name::CONTAINERD,
    "dbus.service",
    "dbus.socket",
    "multi-user.target",
    "systemd-machined.service",
    "systemd-nspawn@.service",
    "systemd-nspawn@kube1.service",
    "systemd-nspawn@kube2.service",
];
/// The machines of a host.
const MACHINES: [&str; 2] = ["kube1", "kube2"];

/// Refuses what a Butane file has of ours.
///
/// # Errors
/// The first path or unit that is the agent's.
pub(crate) fn judge(file: &str, bu: &Bu) -> Result<(), Error> {
    let files = bu.storage.files.iter().map(|file| &file.path);
    let folders = bu.storage.directories.iter().map(|folder| &folder.path);
    let links = bu.storage.links.iter().map(|link| &link.path);
    for path in files.chain(folders).chain(links) {
        if HostPath::new(path.as_str()).is_ok_and(|path| is(&path)) {
            return Err(refused(shown(path, "a path"), file));
        }
    }
    for link in &bu.storage.links {
        if NEEDED
            .iter()
            .any(|unit| link.path == format!("{}/{unit}", name::UNIT_DIR))
        {
            return Err(Error::key(
                &link.path,
                file,
                "the agent needs it: bring drop-ins of it, and no link",
            ));
        }
    }
    for unit in &bu.systemd.units {
        let at = |below: &str| UNIT_DIR.join(below).is_ok_and(|path| is(&path));
        let added = unit
            .dropins
            .iter()
            .any(|drop_in| at(&format!("{}.d/{}", unit.name, drop_in.name)));
        if at(&unit.name) || added {
            let name = if place::is_unit(&unit.name) {
                &unit.name
            } else {
                "a unit"
            };
            return Err(refused(name, file));
        }
        if unit.mask == Some(true) && NEEDED.contains(&unit.name.as_str()) {
            return Err(Error::key(&unit.name, file, "the agent needs it: take mask: out"));
        }
    }
    Ok(())
}

fn refused(key: &str, file: &str) -> Error {
    Error::key(
        key,
        file,
        "it is the agent's own: leave it out, and write what the agent is given in agent.env, bootstrap.env, base-config.json or secrets/",
    )
}

/// Whether a folder at the path would hold something of ours, or is something of ours.
pub(crate) fn meets(folder: &HostPath) -> bool {
    is(folder)
        || [ETC_DIR, SETTINGS_ENV, UNIT_DIR]
            .iter()
            .any(|own| own.is_within(folder))
}

/// Whether the path is the agent's.
fn is(path: &HostPath) -> bool {
    if path.is_within(&ETC_DIR) || path.is_within(&SETTINGS_ENV) {
        return true;
    }
    // Units, their drop-ins, and the links of other units to them, in whichever folder of systemd's.
    let unit = path.is_within(&SYSTEMD) && path.as_str().split('/').any(is_units);
    unit || MACHINES.iter().any(|machine| is_machines(path, machine))
}

/// Whether a name in a path is that of a unit of ours, or of a folder of drop-ins that systemd reads for one.
fn is_units(component: &str) -> bool {
    let whole = |suffix: &str| suffix.is_empty() || suffix.starts_with('.');
    let slice = component.strip_prefix(name::SLICE).is_some_and(whole);
    // Of `a-b-c.service` systemd also reads `a-b-.service.d` and `a-.service.d`.
    let stem = component.strip_suffix(".service.d").filter(|stem| stem.ends_with('-'));
    slice || component.starts_with(UNITS) || stem.is_some_and(|stem| UNITS.starts_with(stem))
}

fn is_machines(path: &HostPath, name: &str) -> bool {
    let machine = Machine {
        name,
        devices: vec![],
        binds: vec![],
        required: vec![],
    };
    machine
        .files()
        .is_ok_and(|files| files.iter().any(|file| path.is_within(&file.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> HostPath {
        HostPath::new(text).unwrap()
    }

    #[test]
    fn every_name_that_the_units_room_knows_is_ours() {
        for unit in [
            name::BOOTSTRAP,
            name::RESET,
            name::AGENT,
            name::AGENT_RECOVERY,
            name::NSPAWN_PRE_START,
            name::NSPAWN_POST_START,
            name::SLICE,
        ] {
            for below in ["", ".d/x.conf", ".wants/x.service"] {
                assert!(is(&path(&format!("{}/{unit}{below}", name::UNIT_DIR))), "{unit}{below}");
            }
        }
        for own in [
            name::AGENT_WANTED,
            name::BOOTSTRAP_WANTED,
            name::ETC_DIR,
            name::SETTINGS_ENV,
            name::AGENT_IMAGE_ENV,
            name::AGENT_IMAGE_LAST_GOOD_ENV,
            name::BOOTSTRAP_ENV,
            name::CONFIG,
            "/etc/systemd/system/aks-flex-node-nspawn-pre-start@kube1.service.d/x.conf",
            "/etc/systemd/system/aks-flex-.service.d/x.conf",
            "/etc/systemd/system.control/aks-flex-node-agent.service",
            "/etc/systemd/nspawn/kube1.nspawn",
            "/etc/systemd/system/systemd-nspawn@kube2.service.d/override.conf",
        ] {
            assert!(is(&path(own)), "{own}");
        }
    }

    #[test]
    fn what_is_but_named_alike_is_not() {
        for other in [
            "/etc/aks-flex-node-agent-hosts",
            "/etc/aks-flex-nodes",
            "/etc/systemd/system/aks.service",
            "/etc/systemd/system/service.d/x.conf",
            "/etc/systemd/system/x-.service.d/x.conf",
            "/etc/systemd/system/systemd-nspawn@kube1.service.d/50-x.conf",
            "/etc/systemd/nspawn/mine.nspawn",
            "/opt/aks-flex-node-agent.tar",
        ] {
            assert!(!is(&path(other)), "{other}");
        }
    }
}
