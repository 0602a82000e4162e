//! Looks at the host's files.

use std::{collections::BTreeSet, io};

use hostexec::{Host, HostPath};
use nix::sys::statvfs::{FsFlags, statvfs};
use units::name;

use super::{Look, Subject, a_look, blocking};
use crate::{
    facts::Rootfs,
    model::MachineName,
    observe,
    preflight::{
        Check, Seen,
        judge::{self, Folder, Hierarchy, Holder, ImageTraits, Room, Setting},
    },
    step::{Place, Step, Sysctl},
};

/// Folders of the system's own configuration. Source: node-agent specification, 4.2.
const OS: [HostPath; 2] = [HostPath::fixed("/etc/sysctl.d"), HostPath::fixed("/etc/systemd/system")];
/// Folders of machines.
const MACHINES: [HostPath; 2] = [
    HostPath::fixed("/var/lib/machines"),
    HostPath::fixed("/etc/systemd/nspawn"),
];

pub(super) fn looks(subject: &Subject) -> Vec<Look<'_>> {
    let (host, mode) = (&subject.host, subject.mode);
    vec![
        a_look(&[Check::HostImage], async move {
            vec![judge::host_image(&subject.facts.os, &blocking(host, traits).await)]
        }),
        a_look(&[Check::HostOsConfiguration], async move {
            judge::writable(Check::HostOsConfiguration, &folders(host, OS.into()).await)
        }),
        a_look(&[Check::HostTargets], async move {
            judge::targets(&folders(host, targets(subject)).await)
        }),
        a_look(&[Check::NspawnMachineProvisioning], async move {
            let machine = MACHINES[0]
                .join(MachineName::FIRST.as_str())
                .expect("a machine's name is plain");
            judge::provisioning(&folders(host, MACHINES.into_iter().chain([machine]).collect()).await)
        }),
        a_look(&[Check::MountPropagation], async move {
            // This process' own: not the host's file.
            let seen = blocking(host, |_| std::fs::read_to_string("/proc/self/mountinfo")).await;
            vec![judge::propagation(&seen)]
        }),
        a_look(&[Check::SwapActive], async move {
            vec![judge::swap(&text(host, "/proc/swaps").await)]
        }),
        a_look(
            &[Check::DiskSpace],
            async move { judge::disk(&blocking(host, room).await) },
        ),
        a_look(&[Check::Cgroups], async move {
            vec![judge::cgroups(&blocking(host, hierarchy).await)]
        }),
        a_look(&[Check::KernelSettings], async move {
            let wanted = sysctls(subject);
            judge::kernel_settings(&blocking(host, move |host| settings(host, &wanted)).await)
        }),
        a_look(&[Check::NvidiaDriver], async move {
            vec![judge::gpu(
                subject.facts.gpu,
                &blocking(host, observe::gpu_on_bus).await,
                mode,
            )]
        }),
        a_look(&[Check::ExistingDeployment], async move {
            let mut there = folders_of_machines(subject);
            let seen = blocking(host, existing).await.map(|paths| {
                there.extend(paths);
                there
            });
            judge::existing(&seen, mode)
        }),
        a_look(&[Check::KubeletBindAddress], async move {
            vec![judge::kubelet_port(&holder(host, 10250).await)]
        }),
        a_look(&[Check::ContainerdMetricsBindAddress], async move {
            vec![judge::metrics_port(&holder(host, 10257).await)]
        }),
    ]
}

async fn text(host: &Host, path: &'static str) -> Seen<String> {
    blocking(host, move |host| host.read_text(&HostPath::fixed(path))).await
}

fn is_there(host: &Host, path: &'static str) -> io::Result<bool> {
    host.exists(&HostPath::fixed(path))
}

/// What is listed in a folder; nothing where there is none.
fn listed(host: &Host, folder: &HostPath) -> io::Result<Vec<String>> {
    if host.is_dir(folder)? {
        host.list(folder)
    } else {
        Ok(Vec::new())
    }
}

fn traits(host: &Host) -> io::Result<ImageTraits> {
    let extensions = listed(host, &HostPath::fixed("/etc/extensions"))?;
    let any = |part| extensions.iter().any(|name| name.starts_with(part));
    Ok(ImageTraits {
        containerd_extension: any("containerd"),
        aks_extension: any("aks-"),
    })
}

/// Each folder, and what it is to a writer.
async fn folders(host: &Host, paths: Vec<HostPath>) -> Vec<(String, Seen<Folder>)> {
    let looks = paths.into_iter().map(async |path| {
        let name = path.to_string();
        (name, blocking(host, move |host| folder(host, path)).await)
    });
    futures::future::join_all(looks).await
}

fn folder(host: &Host, mut path: HostPath) -> io::Result<Folder> {
    loop {
        match host.metadata(&path) {
            Ok(found) if found.is_dir() => break,
            Ok(_) => return Ok(Folder::NoFolder),
            Err(error) if error.kind() == io::ErrorKind::NotADirectory => return Ok(Folder::NoFolder),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                path = path.parent().ok_or(error)?;
            }
            Err(error) => return Err(error),
        }
    }
    let dir = host.open_dir(&path)?;
    let read_only = statvfs(dir.path())?.flags().contains(FsFlags::ST_RDONLY);
    Ok(if read_only { Folder::ReadOnly } else { Folder::Writable })
}

/// Where else `start` writes on the host.
fn targets(subject: &Subject) -> Vec<HostPath> {
    let tasks = subject.plan.as_ref().map_or(Vec::new(), |plan| plan.tasks());
    let planned = tasks.into_iter().flat_map(|task| {
        if let Step::Files(files) | Step::UnitFiles(files) = &task.step {
            files.as_slice()
        } else {
            &[]
        }
    });
    let of_files = planned
        .filter(|file| file.place == Place::Host)
        .filter_map(|file| file.path.parent());
    let fixed = [HostPath::fixed(name::ETC_DIR), subject.settings.log_dir().clone()];
    let elsewhere = |path: &HostPath| !OS.iter().chain(&MACHINES).any(|folder| path.is_within(folder));
    let paths: BTreeSet<HostPath> = of_files.chain(fixed).filter(elsewhere).collect();
    paths.into_iter().collect()
}

fn room(host: &Host) -> io::Result<Room> {
    let dir = host.open_dir(&HostPath::fixed("/var/lib"))?;
    let found = statvfs(dir.path())?;
    Ok(Room {
        bytes: found.blocks_available().saturating_mul(found.fragment_size()),
        files: (found.files() > 0).then(|| found.files_available()),
    })
}

fn hierarchy(host: &Host) -> io::Result<Hierarchy> {
    Ok(if is_there(host, "/sys/fs/cgroup/cgroup.controllers")? {
        Hierarchy::Unified
    } else if listed(host, &HostPath::fixed("/sys/fs/cgroup"))?.is_empty() {
        Hierarchy::Absent
    } else {
        Hierarchy::Legacy
    })
}

/// The kernel settings of the plan.
fn sysctls(subject: &Subject) -> Vec<Sysctl> {
    let tasks = subject.plan.as_ref().map_or(Vec::new(), |plan| plan.tasks());
    let of = |step: &Step| {
        if let Step::Sysctls(sysctls) = step {
            sysctls.clone()
        } else {
            Vec::new()
        }
    };
    tasks.iter().flat_map(|task| of(&task.step)).collect()
}

fn settings(host: &Host, wanted: &[Sysctl]) -> io::Result<Vec<Setting>> {
    let look = |sysctl: &Sysctl| {
        let path = sysctl.path();
        let found = match host.read_text(&path) {
            Ok(text) => Some(text),
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // The file itself may be a mount.
        let writable = match host.open(&path) {
            Ok(file) => !nix::sys::statvfs::fstatvfs(&file)?.flags().contains(FsFlags::ST_RDONLY),
            Err(_) => true,
        };
        Ok(Setting {
            key: sysctl.key,
            wanted: sysctl.value,
            found,
            writable,
        })
    };
    wanted.iter().map(look).collect()
}

fn folders_of_machines(subject: &Subject) -> Vec<String> {
    let there = subject
        .facts
        .rootfs
        .iter()
        .filter(|(_, found)| **found != Rootfs::Absent);
    there
        .map(|(machine, _)| format!("/var/lib/machines/{machine}"))
        .collect()
}

/// What a node leaves on its host, besides its machines' folders.
fn existing(host: &Host) -> io::Result<Vec<String>> {
    let of_machines = MachineName::ALL.into_iter().flat_map(|machine| {
        [
            format!("/run/systemd/machines/{machine}"),
            format!("{}/{machine}.nspawn", name::NSPAWN_DIR),
            format!("{}/systemd-nspawn@{machine}.service.d", name::UNIT_DIR),
            format!("/run/bpffs/{machine}"),
        ]
    });
    let units = [name::AGENT, name::AGENT_RECOVERY].map(|unit| format!("{}/{unit}", name::UNIT_DIR));
    let mut found = Vec::new();
    for path in of_machines.chain(units).chain([crate::store::state::STATE.to_string()]) {
        if host.exists(&HostPath::new(path.as_str()).map_err(|_| io::ErrorKind::InvalidData)?)? {
            found.push(path);
        }
    }
    Ok(found)
}

async fn holder(host: &Host, port: u16) -> Seen<Option<Holder>> {
    blocking(host, move |host| {
        for table in ["/proc/1/net/tcp", "/proc/1/net/tcp6"] {
            let text = match host.read_text(&HostPath::fixed(table)) {
                Err(error) if error.kind() == io::ErrorKind::NotFound && table.ends_with('6') => continue,
                read => read?,
            };
            if let Some(inode) = judge::listener(&text, port) {
                let process = process(host, inode).unwrap_or_default();
                return Ok(Some(Holder { process }));
            }
        }
        Ok(None)
    })
    .await
}

/// The name of a process that has this socket open.
fn process(host: &Host, inode: u64) -> io::Result<Option<String>> {
    let socket = format!("socket:[{inode}]");
    for pid in host.list(&HostPath::fixed("/proc"))? {
        if !pid.bytes().all(|letter| letter.is_ascii_digit()) {
            continue;
        }
        let at = |file: &str| {
            HostPath::new(format!("/proc/{pid}/{file}")).map_err(|_| io::Error::from(io::ErrorKind::InvalidData))
        };
        // Processes come and go.
        let Ok(files) = host.list(&at("fd")?) else { continue };
        for file in files {
            if host
                .read_link(&at(&format!("fd/{file}"))?)
                .is_ok_and(|target| target == socket)
            {
                return Ok(host.read_text(&at("comm")?).ok().map(|name| name.trim().to_owned()));
            }
        }
    }
    Ok(None)
}
