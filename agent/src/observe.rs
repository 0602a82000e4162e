//! Looks at the host. Reads, and changes nothing.

mod remains;

use std::{io, os::unix::fs::MetadataExt as _};

use hostexec::{Host, HostPath};
use units::host::Family;

use crate::{
    facts::{Existing, Facts, Gpu, OsRelease, Presence, Rootfs},
    model::{Arch, MachineName, Secret},
};

pub use remains::{is_mounted, remains};

/// The mark of a whole file system, at its root; written last. It holds the image's name.
pub const ROOTFS_MARK: HostPath = HostPath::fixed("/.aks-flex-node-rootfs");

/// Devices every machine is given where the host has them.
const DEVICES: [HostPath; 3] = [
    HostPath::fixed("/dev/kvm"),
    HostPath::fixed("/dev/net/tun"),
    HostPath::fixed("/dev/vhost-net"),
];
/// Block devices that no pod is given.
const NOT_BLOCK: [&str; 5] = ["loop", "ram", "zram", "fd", "sr"];

/// The host can't be looked at.
#[derive(Debug, thiserror::Error)]
#[error("can't look at the host")]
pub struct Error(#[from] io::Error);

/// Everything a plan may depend on.
///
/// # Errors
/// A file that every Linux has can't be read, or a folder of machines can't.
pub fn facts(host: &Host) -> Result<Facts, Error> {
    let os = ["/etc/os-release", "/usr/lib/os-release"]
        .into_iter()
        .find_map(|path| optional(host, path).transpose());
    let mut rootfs = std::collections::BTreeMap::new();
    for machine in MachineName::ALL {
        rootfs.insert(machine, self::rootfs(host, machine)?);
    }
    Ok(Facts {
        arch: Arch::HERE,
        host_name: host.host_name()?.trim().to_owned(),
        memory_mib: optional(host, "/proc/meminfo")?.as_deref().and_then(memory_mib),
        cores: cores(&host.read_text(&HostPath::fixed("/proc/cpuinfo"))?),
        os: os.transpose()?.as_deref().map(OsRelease::parse).unwrap_or_default(),
        resolv_conf: optional(host, "/etc/resolv.conf")?,
        modules: modules(host)?,
        devices: devices(host)?,
        gpu: gpu(host)?,
        rootfs,
        fstab: own_file(host, HostPath::fixed("/etc/fstab"))?,
        fstab_kept: match host.exists(&HostPath::fixed("/etc/fstab.bak"))? {
            true => Presence::There,
            false => Presence::Absent,
        },
        docker: own_file(host, HostPath::fixed("/etc/docker/daemon.json"))?,
        units: units(host)?,
        firewalls: firewalls(host)?,
    })
}

/// Units that a plan does something about where there are any: others' that stand in a node's way, and ours of settings that may be gone.
const UNITS: [&str; 5] = [
    "docker.socket",
    "docker.service",
    "kubelet.service",
    units::host::STATIC_ROUTES,
    units::host::ROUTE_OVERLAP,
];

fn units(host: &Host) -> io::Result<Vec<&'static str>> {
    let mut found = Vec::new();
    for unit in UNITS {
        for folder in [units::name::UNIT_DIR, "/run/systemd/system", "/usr/lib/systemd/system"] {
            let path = HostPath::fixed(folder).join(unit).expect("names of ours are plain");
            // A masked one is a link to nowhere in particular, and there all the same.
            if host.exists(&path)? || host.read_link(&path).is_ok() {
                found.push(unit);
                break;
            }
        }
    }
    Ok(found)
}

fn own_file(host: &Host, path: HostPath) -> io::Result<Option<Existing>> {
    let text = match host.read_text(&path) {
        Ok(text) => Secret::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mode = host.metadata(&path)?.mode() & 0o777;
    Ok(Some(Existing { text, mode }))
}

/// Firewalls whose unit the host has, and did not mask. Source: acl-facts, "firewall"; systemd.unit(5), "Unit File Load Path".
fn firewalls(host: &Host) -> io::Result<Vec<Family>> {
    let mut found = Vec::new();
    for family in Family::ALL {
        let at = |folder| {
            HostPath::fixed(folder)
                .join(family.unit())
                .expect("names of ours are plain")
        };
        let ours = at(units::name::UNIT_DIR);
        let masked = host.read_link(&ours).is_ok_and(|target| target == "/dev/null");
        let there = !masked && (host.exists(&ours)? || host.exists(&at("/usr/lib/systemd/system"))?);
        found.extend(there.then_some(family));
    }
    Ok(found)
}

/// What stands in a machine's folder.
///
/// # Errors
/// The folder can't be read.
pub fn rootfs(host: &Host, machine: MachineName) -> Result<Rootfs, Error> {
    let folder = HostPath::fixed("/var/lib/machines")
        .join(machine.as_str())
        .expect("a machine's name is plain");
    if !host.exists(&folder)? {
        return Ok(Rootfs::Absent);
    }
    if !host.is_dir(&folder)? {
        return Ok(Rootfs::Foreign);
    }
    let dir = host.open_dir(&folder)?;
    let inside = Host::rooted(dir.path());
    if inside.exists(&ROOTFS_MARK)? {
        return Ok(Rootfs::Whole {
            image: inside.read_text(&ROOTFS_MARK)?.trim().to_owned(),
        });
    }
    Ok(if inside.list(&HostPath::ROOT)?.is_empty() {
        Rootfs::Absent
    } else {
        Rootfs::Foreign
    })
}

fn optional(host: &Host, path: &'static str) -> io::Result<Option<String>> {
    match host.read_text(&HostPath::fixed(path)) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

fn memory_mib(meminfo: &str) -> Option<u64> {
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let kib: u64 = total.split_whitespace().next()?.parse().ok()?;
    Some(kib / 1024)
}

fn cores(cpuinfo: &str) -> u32 {
    let count = cpuinfo
        .lines()
        .filter(|line| line.split(':').next().is_some_and(|key| key.trim() == "processor"));
    u32::try_from(count.count()).unwrap_or(u32::MAX).max(1)
}

fn modules(host: &Host) -> io::Result<Option<HostPath>> {
    const MODULES: HostPath = HostPath::fixed("/lib/modules");
    Ok(host.is_dir(&MODULES)?.then_some(MODULES))
}

/// Nodes below `/dev` that a machine is given: some by name, and the host's disks. Source: node-agent specification, 5.6.
fn devices(host: &Host) -> io::Result<Vec<HostPath>> {
    let block = listed(host, HostPath::fixed("/sys/class/block"))?
        .into_iter()
        .filter(|name| !NOT_BLOCK.iter().any(|kind| is_numbered(name, kind)))
        .filter_map(|name| HostPath::new(format!("/dev/{}", name.replace('!', "/"))).ok());
    let infiniband = listed(host, HostPath::fixed("/dev/infiniband"))?
        .into_iter()
        .filter_map(|name| HostPath::new(format!("/dev/infiniband/{name}")).ok());
    let mut devices = Vec::new();
    for path in DEVICES.into_iter().chain(block).chain(infiniband) {
        if host.exists(&path)? && !host.is_dir(&path)? {
            devices.push(path);
        }
    }
    devices.sort();
    devices.dedup();
    Ok(devices)
}

/// Whether `name` is `kind` and a number: `loop0` is a loop, `sram0` is no RAM disk.
fn is_numbered(name: &str, kind: &str) -> bool {
    name.strip_prefix(kind)
        .is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

/// NVIDIA. Source: the PCI ID Repository.
const NVIDIA: &str = "0x10de";

/// Whether a display controller of NVIDIA is on the bus, whatever drives it. Source: PCI Code and ID Assignment Specification: class 03.
///
/// # Errors
/// The bus can't be looked at.
pub fn gpu_on_bus(host: &Host) -> io::Result<bool> {
    let devices = HostPath::fixed("/sys/bus/pci/devices");
    for name in listed(host, devices.clone())? {
        let read = |file: &str| {
            let path = devices
                .join(&format!("{name}/{file}"))
                .map_err(|_| io::ErrorKind::InvalidData)?;
            host.read_text(&path)
        };
        if read("vendor")?.trim() == NVIDIA && read("class")?.starts_with("0x03") {
            return Ok(true);
        }
    }
    Ok(false)
}

fn gpu(host: &Host) -> io::Result<Gpu> {
    let nvidia = listed(host, HostPath::fixed("/dev"))?
        .iter()
        .any(|name| is_numbered(name, "nvidia"));
    Ok(if nvidia { Gpu::Nvidia } else { Gpu::None })
}

fn listed(host: &Host, folder: HostPath) -> io::Result<Vec<String>> {
    if host.exists(&folder)? {
        host.list(&folder)
    } else {
        Ok(Vec::new())
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use super::*;

    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("etc/hostname", "Edge-1\n"),
            ("proc/meminfo", "MemTotal:        4028752 kB\nMemFree: 1 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\nmodel name: x\n\nprocessor\t: 1\n"),
            ("usr/lib/os-release", "ID=azurelinux\nVARIANT_ID=azurecontainerlinux\n"),
            ("run/systemd/resolve/stub-resolv.conf", "nameserver 127.0.0.53\n"),
            ("dev/kvm", ""),
            ("dev/sda1", ""),
            ("dev/loop0", ""),
            ("dev/cciss/c0d0", ""),
            ("sys/class/block/sda1/size", ""),
            ("sys/class/block/loop0/size", ""),
            ("sys/class/block/gone/size", ""),
            ("sys/class/block/cciss!c0d0/size", ""),
        ] {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            Host::rooted(dir.path())
                .write(&at(&dir, &path), text.as_bytes(), 0o644)
                .unwrap();
        }
        symlink("../usr/lib/os-release", dir.path().join("etc/os-release")).unwrap();
        symlink(
            "/run/systemd/resolve/stub-resolv.conf",
            dir.path().join("etc/resolv.conf"),
        )
        .unwrap();
        let host = Host::rooted(dir.path());
        (dir, host)
    }

    fn at(dir: &tempfile::TempDir, path: &std::path::Path) -> HostPath {
        HostPath::new(format!("/{}", path.strip_prefix(dir.path()).unwrap().to_str().unwrap())).unwrap()
    }

    #[test]
    fn the_facts_are_the_hosts_links_followed_in_its_root() {
        let (_dir, host) = host();
        let facts = facts(&host).unwrap();
        assert_eq!(
            (facts.host_name.as_str(), facts.memory_mib, facts.cores),
            ("Edge-1", Some(3934), 2)
        );
        assert!(facts.os.is_acl());
        assert_eq!(facts.resolv_conf.as_deref(), Some("nameserver 127.0.0.53\n"));
        let devices: Vec<&str> = facts.devices.iter().map(HostPath::as_str).collect();
        assert_eq!(devices, ["/dev/cciss/c0d0", "/dev/kvm", "/dev/sda1"]);
        assert_eq!(facts.gpu, Gpu::None);
    }

    #[test]
    fn a_firewall_is_one_whose_unit_may_be_started() {
        let (dir, host) = host();
        assert_eq!(firewalls(&host).unwrap(), []);
        for unit in ["iptables.service", "ip6tables.service"] {
            let path = HostPath::fixed("/usr/lib/systemd/system").join(unit).unwrap();
            host.write(&path, b"[Unit]\n", 0o644).unwrap();
        }
        fs::create_dir_all(dir.path().join("etc/systemd/system")).unwrap();
        symlink("/dev/null", dir.path().join("etc/systemd/system/iptables.service")).unwrap();
        assert_eq!(firewalls(&host).unwrap(), [Family::V6]);
    }

    #[test]
    fn a_machines_folder_is_absent_whole_or_somebody_elses() {
        let (dir, host) = host();
        let look = || rootfs(&host, MachineName::Kube1).unwrap();
        assert_eq!(look(), Rootfs::Absent);
        fs::create_dir_all(dir.path().join("var/lib/machines/kube1")).unwrap();
        assert_eq!(look(), Rootfs::Absent);
        fs::create_dir(dir.path().join("var/lib/machines/kube1/etc")).unwrap();
        assert_eq!(look(), Rootfs::Foreign);
        let mark = HostPath::fixed("/var/lib/machines/kube1/.aks-flex-node-rootfs");
        host.write(&mark, b"registry.test/os:1\n", 0o644).unwrap();
        assert_eq!(
            look(),
            Rootfs::Whole {
                image: "registry.test/os:1".into()
            }
        );
    }
}
