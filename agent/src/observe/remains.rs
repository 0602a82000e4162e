//! Looks for what of the agent's there is on a host: by names and places, by marks in files, and in no machine.
//!
//! What can't be looked at is told and passed over: a reset does what it can.

use std::io;
use std::path::Path;

use hostexec::{Host, HostPath};

use super::ROOTFS_MARK;
use crate::facts::{Folder, Remains};
use crate::model::MachineName;
use crate::plan::reset::{self, names};

/// What of the agent's there is, but for what only the ledger or a tool of the host can tell.
#[must_use]
pub fn remains(host: &Host) -> Remains {
    let mut look = Look {
        host,
        found: Remains::default(),
    };
    for path in names::FIXED {
        look.at(path);
    }
    for machine in MachineName::ALL {
        look.at(names::unpacking(machine));
        look.at(names::lock(machine));
        let folder = look.machine(machine);
        look.found.machines.insert(machine, folder);
    }
    for path in names::marked() {
        look.marked(path);
    }
    look.sysctls();
    look.listed(&names::ETC, names::is_in_etc);
    look.listed(&names::RUN, names::is_in_run);
    look.units();
    look.journals();
    look.mounts();
    look.found.interfaces = look.list(&HostPath::fixed("/sys/class/net"));
    look.found
}

struct Look<'a> {
    host: &'a Host,
    found: Remains,
}

impl Look<'_> {
    /// What was read; nothing where there is nothing, or it can't be looked at.
    fn read<T>(&mut self, read: io::Result<T>) -> Option<T> {
        match read {
            Ok(value) => Some(value),
            Err(error) if [io::ErrorKind::NotFound, io::ErrorKind::NotADirectory].contains(&error.kind()) => None,
            Err(error) => {
                self.found.unread.push(error.to_string());
                None
            }
        }
    }

    fn list(&mut self, folder: &HostPath) -> Vec<String> {
        let listed = self.host.list(folder);
        self.read(listed).unwrap_or_default()
    }

    fn at(&mut self, path: HostPath) {
        let there = self.host.exists(&path);
        if self.read(there) == Some(true) {
            self.found.there.insert(path);
        }
    }

    fn listed(&mut self, folder: &HostPath, is_ours: impl Fn(&str) -> bool) {
        for name in self.list(folder) {
            if let Some(path) = folder.join(&name).ok().filter(|_| is_ours(&name)) {
                self.found.there.insert(path);
            }
        }
    }

    fn marked(&mut self, path: HostPath) {
        let text = self.host.read_text(&path);
        if self.read(text).is_some_and(|text| text.contains(names::MARK)) {
            self.found.there.insert(path);
        }
    }

    fn sysctls(&mut self) {
        let bytes = self.host.read(&names::SYSCTLS);
        if self.read(bytes).is_some_and(|bytes| bytes == reset::sysctls()) {
            self.found.there.insert(names::SYSCTLS);
        }
    }

    fn machine(&mut self, machine: MachineName) -> Folder {
        let folder = names::folder(machine);
        // Followed, a link would lead to what is not the machine's.
        if self.host.read_link(&folder).is_ok() {
            return Folder::Unmarked;
        }
        let entries = self.list(&folder);
        if entries.iter().any(|name| name == ROOTFS_MARK.name()) {
            Folder::Ours
        } else if entries.is_empty() {
            let there = self.host.exists(&folder);
            match self.read(there) {
                Some(true) => Folder::Unmarked,
                Some(false) | None => Folder::Absent,
            }
        } else {
            Folder::Unmarked
        }
    }

    /// The agent's units, and the links that start them or its machines.
    fn units(&mut self) {
        let folder = HostPath::fixed(units::name::UNIT_DIR);
        for name in self.list(&folder) {
            let Ok(path) = folder.join(&name) else { continue };
            if names::is_unit(&name) {
                self.found.there.insert(path);
            } else if name.ends_with(".wants") || name.ends_with(".requires") {
                self.listed(&path, names::is_link);
            }
        }
    }

    /// Links in the host's journal to those of machines. Source: systemd-nspawn(1), "--link-journal=guest".
    fn journals(&mut self) {
        for name in self.list(&names::JOURNALS) {
            let Ok(path) = names::JOURNALS.join(&name) else {
                continue;
            };
            let into = |target: &str| {
                MachineName::ALL
                    .into_iter()
                    .any(|machine| Path::new(target).starts_with(names::folder(machine).as_str()))
            };
            if self.host.read_link(&path).is_ok_and(|target| into(&target)) {
                self.found.there.insert(path);
            }
        }
    }

    fn mounts(&mut self) {
        let table = self.host.read_text(&MOUNTS);
        let table = self.read(table).unwrap_or_default();
        self.found.mounts = mounts(&table)
            .filter(|(point, _)| point.is_within(&names::RUN))
            .collect();
    }
}

/// The host's mounts: those of its first process.
const MOUNTS: HostPath = HostPath::fixed("/proc/1/mountinfo");

/// Where something is mounted, and as which type. Source: proc_pid_mountinfo(5).
fn mounts(table: &str) -> impl Iterator<Item = (HostPath, String)> {
    table.lines().filter_map(|line| {
        let (point, kind) = line.split_once(" - ")?;
        let point = HostPath::new(point.split(' ').nth(4)?).ok()?;
        Some((point, kind.split(' ').next()?.to_owned()))
    })
}

/// Whether something is mounted there; where that can't be told, it counts as such.
#[must_use]
pub fn is_mounted(host: &Host, path: &HostPath) -> bool {
    let table = host.read_text(&MOUNTS);
    table.map_or(true, |table| mounts(&table).any(|(point, _)| point == *path))
}
