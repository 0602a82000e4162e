//! `reset`: all that is the agent's goes, and nothing that is not.
//!
//! ```text
//!  what would make it anew stops ─▶ machines ─▶ network ─▶ the host as it was ─▶ the agent ─▶ its folder, the ledger last
//! ```
//!
//! In this order it may be cut anywhere: until the last but one, the agent's unit and the record of the reset are there, and the next start
//! goes on. What stands there is told by names, by the ledger, and by marks in files ([`names`]).

pub mod chains;
pub mod names;
pub mod tables;

use std::collections::BTreeSet;

use hostexec::HostPath;

use crate::{
    facts::{Folder, Remains},
    ledger::{Before, Ledger, Thing},
    model::MachineName,
    removal::{Removal, Scope},
    step::Entry,
};

/// All of it, in order. Without a ledger, names have to do.
#[must_use]
pub fn reset(found: &Remains, ledger: Option<&Ledger>, scope: Scope) -> Vec<Removal> {
    let all = scope == Scope::All;
    let mut plan = Vec::new();
    if all {
        plan.extend(names::running().into_iter().map(|unit| Removal::Stopped { unit }));
        // From here on no boot joins anew.
        plan.extend(gone(found, |path| names::INPUTS.contains(path)));
    }
    plan.extend(machines(found, ledger));
    plan.extend(around(found));
    if is_node(found, ledger) {
        plan.extend(network(found, ledger));
    }
    plan.extend(host(found, ledger));
    if all {
        plan.extend(agent(found, ledger));
    }
    plan
}

/// Whether a node is, or was, on this host: without one, a bridge of a usual name is somebody else's.
fn is_node(found: &Remains, ledger: Option<&Ledger>) -> bool {
    ledger.is_some()
        || found.there.contains(&names::STATE)
        || found.machines.values().any(|folder| *folder == Folder::Ours)
}

fn things(ledger: Option<&Ledger>) -> &[Thing] {
    ledger.map_or(&[], |ledger| &ledger.things)
}

fn gone(found: &Remains, which: impl Fn(&HostPath) -> bool) -> Vec<Removal> {
    let paths = found.there.iter().filter(|path| which(path));
    paths.map(|path| Removal::Gone { path: path.clone() }).collect()
}

/// Whether the machine's folder is the agent's to remove.
fn is_ours(found: &Remains, ledger: Option<&Ledger>, machine: MachineName) -> bool {
    let recorded = things(ledger)
        .iter()
        .any(|thing| matches!(thing, Thing::Machine { machine: ours } if *ours == machine));
    match found.machines.get(&machine) {
        Some(Folder::Ours) => true,
        Some(Folder::Unmarked) | Some(Folder::Absent) | None => recorded,
    }
}

fn machines(found: &Remains, ledger: Option<&Ledger>) -> Vec<Removal> {
    let ours: Vec<MachineName> = MachineName::ALL
        .into_iter()
        .filter(|machine| is_ours(found, ledger, *machine) || found.there.contains(&names::settings(*machine)))
        .collect();
    let mut plan: Vec<Removal> = ours
        .iter()
        .map(|machine| Removal::MachineOff { machine: *machine })
        .collect();
    for machine in MachineName::ALL {
        for (path, kind) in names::mounts(machine) {
            if found.mounts.iter().any(|(at, of)| *at == path && *of == kind) {
                plan.push(Removal::Unmounted { path, kind });
            }
        }
        let path = names::unpacking(machine);
        if found.there.contains(&path) {
            plan.push(Removal::MachineFolder { machine, path });
        }
        let there = found
            .machines
            .get(&machine)
            .is_some_and(|folder| *folder != Folder::Absent);
        if there && is_ours(found, ledger, machine) {
            let path = names::folder(machine);
            plan.push(Removal::MachineFolder { machine, path });
        }
    }
    plan
}

/// What lies around the machines.
fn around(found: &Remains) -> Vec<Removal> {
    let mut plan = gone(found, names::is_around);
    let folders = names::AROUND_FOLDERS
        .into_iter()
        .chain(MachineName::ALL.map(names::bpffs));
    plan.extend(empty_after(&plan, folders));
    plan
}

/// These folders, and the `.wants` of which a link goes, once they are empty.
fn empty_after(plan: &[Removal], folders: impl IntoIterator<Item = HostPath>) -> Vec<Removal> {
    let parents = plan.iter().filter_map(|removal| {
        let Removal::Gone { path } = removal else { return None };
        path.parent().filter(names::is_made_by_its_content)
    });
    let all: BTreeSet<HostPath> = parents.chain(folders).collect();
    // What lies deeper comes first.
    all.into_iter()
        .rev()
        .map(|path| Removal::EmptyFolder { path })
        .collect()
}

fn network(found: &Remains, ledger: Option<&Ledger>) -> Vec<Removal> {
    let interfaces = found.interfaces.iter().filter(|name| names::is_interface(name, ledger));
    let mut plan: Vec<Removal> = interfaces
        .map(|name| Removal::Interface { name: name.clone() })
        .collect();
    plan.extend([Removal::Chains, Removal::Routes]);
    plan
}

/// What was made of the host for its machines.
fn host(found: &Remains, ledger: Option<&Ledger>) -> Vec<Removal> {
    let units = [
        units::host::STATIC_ROUTES,
        units::host::ROUTE_OVERLAP,
        units::host::NFTABLES_FLUSH,
    ];
    let at = |unit: &str| names::unit(unit);
    let units: Vec<&str> = units
        .into_iter()
        .filter(|unit| found.there.contains(&at(unit)))
        .collect();
    let mut plan: Vec<Removal> = units
        .iter()
        .map(|unit| Removal::Stopped {
            unit: (*unit).to_owned(),
        })
        .collect();
    let files = gone(found, names::is_of_the_host);
    let emptied = empty_after(&files, []);
    plan.extend(files);
    plan.extend(emptied);
    for thing in things(ledger) {
        match thing {
            // Of what is the agent's by name, no copy is kept, and whoever changed it, it goes.
            Thing::File { path, .. } if names::is_by_name(path) => {}
            Thing::File { path, written, before } => plan.push(Removal::PutBack {
                path: path.clone(),
                written: written.clone(),
                copy: match before {
                    Before::Nothing => None,
                    Before::File(digest) => Some(names::copy(digest)),
                },
            }),
            Thing::Unit { unit, was } => plan.push(Removal::UnitAsBefore {
                unit: unit.clone(),
                was: was.clone(),
            }),
            Thing::Sysctl { key, value, was } if value != was => plan.push(Removal::SysctlAsBefore {
                key: key.clone(),
                value: value.clone(),
                was: was.clone(),
            }),
            Thing::Folder { path } => plan.push(Removal::Gone { path: path.clone() }),
            Thing::Parent { .. }
            | Thing::Sysctl { .. }
            | Thing::Log { .. }
            | Thing::Machine { .. }
            | Thing::Mount { .. }
            | Thing::Enabled { .. }
            | Thing::Firewall { .. } => {}
        }
    }
    let mut names: Vec<String> = names::host_units();
    names.extend(MachineName::ALL.map(|machine| format!("systemd-nspawn@{machine}.service")));
    plan.push(Removal::Reload { units: names });
    // Its drop-in is gone by now, and what the machine's starts cleared of its rules comes back.
    for thing in things(ledger) {
        if let Thing::Firewall { unit } = thing {
            plan.push(Removal::FirewallAnew { unit: unit.clone() });
        }
    }
    plan.extend(names::HOST_FOLDERS.map(|path| Removal::EmptyFolder { path }));
    let mut parents: Vec<&HostPath> = things(ledger)
        .iter()
        .filter_map(|thing| {
            let Thing::Parent { path } = thing else { return None };
            Some(path)
        })
        .filter(|path| is_shared(path))
        .collect();
    parents.sort_by(|a, b| b.cmp(a));
    plan.extend(
        parents
            .into_iter()
            .map(|path| Removal::EmptyFolder { path: path.clone() }),
    );
    plan
}

/// The agent itself.
fn agent(found: &Remains, ledger: Option<&Ledger>) -> Vec<Removal> {
    // The link first: a unit's file without its link is never started.
    let mut plan = gone(found, |path| *path == names::AGENT_WANTED);
    plan.extend(gone(found, |path| {
        names::is_agents_unit(path) && *path != names::AGENT_WANTED
    }));
    plan.push(Removal::Reload {
        units: names::running(),
    });
    if ledger.is_some()
        || found
            .there
            .iter()
            .any(|path| path.is_within(&names::ETC) || names::is_agents_unit(path))
    {
        plan.push(Removal::Containers);
    }
    for thing in things(ledger) {
        if let Thing::Log { path } = thing {
            plan.push(Removal::Gone { path: path.clone() });
            plan.extend(path.parent().map(|path| Removal::EmptyFolder { path }));
        }
    }
    plan.extend(gone(found, |path| {
        path.is_within(&names::LOGS) || path.is_within(&names::RUN)
    }));
    plan.push(Removal::EmptyFolder { path: names::LOGS });
    plan.extend(gone(found, |path| {
        path.is_within(&names::ETC) && !names::LAST.contains(path) && !names::INPUTS.contains(path)
    }));
    // What tells the next reset where this one was.
    let last = names::LAST.into_iter().filter(|path| found.there.contains(path));
    plan.extend(last.map(|path| Removal::Gone { path }));
    plan.push(Removal::EmptyFolder { path: names::ETC });
    plan
}

/// What the agent writes of kernel settings: a file that is just so is the agent's.
#[must_use]
pub fn sysctls() -> Vec<u8> {
    match super::host::kernel::file().entry {
        Entry::File { content, .. } => content.bytes().to_vec(),
        Entry::Link { .. } | Entry::Folder { .. } | Entry::Absent => Vec::new(),
    }
}

/// What stands where the agent's would, and is not: it is told with the reason why it stays.
#[must_use]
pub fn left_alone(found: &Remains, ledger: Option<&Ledger>) -> Vec<(String, String)> {
    let unmarked = |machine: &MachineName| found.machines.get(machine) == Some(&Folder::Unmarked);
    let others = MachineName::ALL
        .into_iter()
        .filter(|machine| unmarked(machine) && !is_ours(found, ledger, *machine));
    let why = "the agent did not put it there";
    others
        .map(|machine| (names::folder(machine).to_string(), why.to_owned()))
        .collect()
}

/// Whether these ends are the last, which others have to be true for: they hold what another reset goes by.
#[must_use]
pub fn is_last(removal: &Removal) -> bool {
    matches!(removal, Removal::Gone { path } if names::LAST.contains(path))
}

/// Whether a file stays for somebody else where it is not empty, without a word: it was made for one of ours, and others may use it.
#[must_use]
pub fn is_shared(path: &HostPath) -> bool {
    let ours = [names::ETC, names::LOGS].iter().any(|folder| path.is_within(folder));
    !(ours || names::HOST_FOLDERS.contains(path) || names::is_drop_in_folder(path))
}

#[cfg(test)]
mod tests;
