//! Folders, disks and mounts.

use crate::{
    model::Mode,
    preflight::{Check, Finding, Remedy, Seen},
};

/// What a folder of the host is to one who wants to write into it. Judged by its mount's flags, whatever its file system is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// It, or the first folder above it that is there, can be written.
    Writable,
    /// It is on a file system mounted read-only.
    ReadOnly,
    /// Something else stands in its place.
    NoFolder,
}

const READ_ONLY: Remedy = Remedy::new(
    "make the folder writable: remount its file system, or take away the extension or mount that makes it read-only",
);
const IN_THE_WAY: Remedy = Remedy::new("take away what stands where a folder must be");

/// Folders that must be written.
#[must_use]
pub fn writable(check: Check, folders: &[(String, Seen<Folder>)]) -> Vec<Finding> {
    let bad: Vec<_> = folders
        .iter()
        .filter_map(|(path, seen)| {
            let finding = match seen {
                Ok(Folder::Writable) => return None,
                Ok(Folder::ReadOnly) => check.fail("the folder can only be read", READ_ONLY),
                Ok(Folder::NoFolder) => check.fail("no folder is there, but something else", IN_THE_WAY),
                Err(why) => check.unseen(why),
            };
            Some(finding.on(path))
        })
        .collect();
    if bad.is_empty() {
        let paths: Vec<_> = folders.iter().map(|(path, _)| path.as_str()).collect();
        vec![check.ok("every folder can be written").seen(paths.join(", "))]
    } else {
        bad
    }
}

/// `host-targets`: folders that the plan writes into.
#[must_use]
pub fn targets(folders: &[(String, Seen<Folder>)]) -> Vec<Finding> {
    writable(Check::HostTargets, folders)
}

/// `nspawn-machine-provisioning`
#[must_use]
pub fn provisioning(folders: &[(String, Seen<Folder>)]) -> Vec<Finding> {
    writable(Check::NspawnMachineProvisioning, folders)
}

/// What is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// In bytes.
    pub bytes: u64,
    /// In files; none where they aren't counted.
    pub files: Option<u64>,
}

/// Source: node-agent specification, 4.2.
const BYTES: u64 = 8 << 30;
/// A rootfs has some ten thousand files, a pod's image some thousand.
const FILES: u64 = 50_000;

/// `disk-space`, of `/var/lib`
#[must_use]
pub fn disk(seen: &Seen<Room>) -> Vec<Finding> {
    const FULL: Remedy = Remedy::new("free at least 8 GiB on the file system of /var/lib, or give it a larger one");
    const NO_FILES: Remedy =
        Remedy::new("remove files from the file system of /var/lib, or make it with more inodes: 50000 must be free");
    let check = Check::DiskSpace;
    let room = match seen {
        Ok(room) => room,
        Err(why) => return vec![check.unseen(why).on("/var/lib")],
    };
    let gib = |bytes: u64| format!("{}.{} GiB", bytes >> 30, ((bytes % (1 << 30)) * 10) >> 30);
    let files = room
        .files
        .map_or("files not counted".to_owned(), |files| format!("{files} inodes"));
    let evidence = format!("{} and {files} free", gib(room.bytes));
    let mut found = Vec::new();
    if room.bytes < BYTES {
        found.push(check.fail(format!("{} are free, and 8 GiB must be", gib(room.bytes)), FULL));
    }
    if let Some(files) = room.files.filter(|files| *files < FILES) {
        found.push(check.fail(format!("{files} inodes are free, and {FILES} must be"), NO_FILES));
    }
    if found.is_empty() {
        found.push(check.ok("there is room for a node"));
    }
    let on = |finding: Finding| finding.on("/var/lib").seen(evidence.as_str());
    found.into_iter().map(on).collect()
}

/// `mount-propagation`, from this process' mountinfo. Source: proc_pid_mountinfo(5), "optional fields".
#[must_use]
pub fn propagation(seen: &Seen<String>) -> Finding {
    const PRIVATE: Remedy = Remedy::new(
        "mount the host's root into the container with rslave (or rshared), as the agent's units do; and if the host's own root is \
         private, run `mount --make-rshared /` on the host",
    );
    const ABSENT: Remedy =
        Remedy::new("run the image as the agent's units do: the host's root at /host, with rbind and rslave");
    let check = Check::MountPropagation;
    let text = match seen {
        Ok(text) => text,
        Err(why) => return check.unseen(why).on("/host"),
    };
    // The last that was mounted there is the one that is seen.
    let fields = text
        .lines()
        .filter_map(|line| line.split_once(" - ").map(|(fields, _)| fields))
        .map(|fields| fields.split(' ').collect::<Vec<_>>())
        .rfind(|fields| fields.get(4) == Some(&"/host"));
    let Some(fields) = fields else {
        return check
            .fail("the host's root is not mounted at /host", ABSENT)
            .on("/host");
    };
    let optional = fields.get(6..).unwrap_or_default();
    let way = |prefix| optional.iter().any(|field: &&str| field.starts_with(prefix));
    if way("master:") || way("shared:") {
        check.ok("mounts of the host reach the agent").seen(optional.join(" "))
    } else {
        check.fail(
            "the host's root is mounted private: mounts that the host makes later never reach the agent",
            PRIVATE,
        )
    }
    .on("/host")
}

/// `existing-deployment`, from the paths and machines that are there.
#[must_use]
pub fn existing(seen: &Seen<Vec<String>>, mode: Mode) -> Vec<Finding> {
    const CONTAINER: Remedy = Remedy::new(
        "a reset is needed before this host can join anew: `systemctl start aks-flex-node-reset`; or, if a join was cut short here, let the \
         bootstrap unit go on with it and ignore this check",
    );
    const BINARY: Remedy = Remedy::new("a reset is needed before this host can join anew: run `aks-flex-node reset`");
    let check = Check::ExistingDeployment;
    let remedy = match mode {
        Mode::Container => CONTAINER,
        Mode::Binary => BINARY,
    };
    match seen {
        Err(why) => vec![check.unseen(why)],
        Ok(paths) if paths.is_empty() => vec![check.ok("nothing of a node is on this host")],
        Ok(paths) => paths
            .iter()
            .map(|path| check.fail("something of a node is there already", remedy).on(path))
            .collect(),
    }
}
