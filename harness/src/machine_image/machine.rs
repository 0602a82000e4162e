//! The machine's operating system: a Debian tree of some 180 MB, unpacked by mmdebstrap without being configured, and finished here.
//!
//! Configuring it Debian's way would want dpkg, perl and apt in it, and half a minute more; what the maintainer scripts would have
//! done that a machine needs (accounts, library cache, alternatives, units) is done below, by hand.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;

use super::layout::{self, Compression};
use crate::cache::{self, Cache};
use crate::command::{Command, PATH};
use crate::debian;

const SUITE: &str = "trixie";

/// systemd as a system; containerd and runc behind their shims; what the shims, the units and kubelet call.
const PACKAGES: &[&str] = &[
    "base-files",
    "base-passwd",
    "bash",
    "conntrack",
    "containerd",
    "coreutils",
    "dbus",
    "ethtool",
    "findutils",
    "grep",
    "gzip",
    "hostname",
    "iproute2",
    "iptables",
    "jq",
    "kmod",
    "libc-bin",
    "libnss-myhostname",
    "mawk",
    "mount",
    "procps",
    "runc",
    "sed",
    "socat",
    "systemd",
    "tar",
    "util-linux",
];

/// Not needed in a machine, and heavy: old shims of containerd, character sets, compilers of policies.
const DROPPED: &[&str] = &[
    "boot",
    "etc/apt",
    "usr/bin/containerd-shim",
    "usr/bin/containerd-shim-runc-v1",
    "usr/bin/containerd-stress",
    "usr/lib/x86_64-linux-gnu/gconv",
    "usr/share/bash-completion",
    "usr/share/bug",
    "usr/share/common-licenses",
    "usr/share/doc",
    "usr/share/doc-base",
    "usr/share/info",
    "usr/share/lintian",
    "usr/share/locale",
    "usr/share/man",
    "usr/share/perl5",
    "var/cache",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/log",
];

/// Units that would take the host's network or seats away from it, or wait for what never comes.
const MASKED: &[&str] = &[
    "systemd-networkd.service",
    "systemd-networkd.socket",
    "systemd-networkd-wait-online.service",
    "systemd-resolved.service",
    "systemd-logind.service",
    "systemd-timesyncd.service",
    "getty.target",
    "console-getty.service",
];

/// Files of the tree: path below it, mode, content.
const FILES: &[(&str, u32, &str)] = &[
    (
        "etc/systemd/system/bed-shield.service",
        0o644,
        include_str!("files/bed-shield.service"),
    ),
    ("usr/libexec/bed-shield", 0o755, include_str!("files/bed-shield")),
    (
        "etc/systemd/system.conf.d/bed.conf",
        0o644,
        include_str!("files/system.conf"),
    ),
    (
        "etc/cni/net.d/10-bridge.conflist",
        0o644,
        include_str!("files/10-bridge.conflist"),
    ),
    (
        "etc/nsswitch.conf",
        0o644,
        "passwd: files\ngroup: files\nshadow: files\nhosts: files myhostname dns\n",
    ),
    ("etc/hosts", 0o644, "127.0.0.1 localhost\n"),
    ("etc/fstab", 0o644, ""),
    // Empty, not missing: a machine is not at its first boot, whose presets would enable what nobody asked for.
    ("etc/machine-id", 0o444, ""),
    // Nothing is left to be done at the first boot after an update.
    ("etc/.updated", 0o644, ""),
    ("var/.updated", 0o644, ""),
];

/// Folders of the tree, with their modes; the first is the root.
const FOLDERS: &[(&str, u32)] = &[
    ("", 0o755),
    ("tmp", 0o1777),
    ("var/tmp", 0o1777),
    ("var/log/journal", 0o755),
    ("var/cache", 0o755),
    ("var/lib/kubelet", 0o700),
    ("usr/local/bin", 0o755),
    ("opt/cni/bin", 0o755),
    ("opt/kube", 0o755),
    ("mnt", 0o755),
];

/// Links of the tree: where, and to what.
const LINKS: &[(&str, &str)] = &[
    (
        "etc/systemd/system/sysinit.target.wants/bed-shield.service",
        "../bed-shield.service",
    ),
    ("etc/os-release", "../usr/lib/os-release"),
    ("var/run", "/run"),
    ("var/lock", "/run/lock"),
    ("etc/localtime", "../usr/share/zoneinfo/UTC"),
    ("usr/bin/sh", "bash"),
    ("usr/bin/awk", "mawk"),
    ("usr/sbin/iptables", "iptables-nft"),
    ("usr/sbin/iptables-save", "iptables-nft-save"),
    ("usr/sbin/iptables-restore", "iptables-nft-restore"),
    ("usr/sbin/ip6tables", "ip6tables-nft"),
];

/// The layout of the machine's image, which trusts that authority.
///
/// # Errors
/// mmdebstrap's; nothing half made is kept.
pub(crate) async fn build(cache: &Cache, authority: &Path) -> Result<PathBuf> {
    let trusted = fs::read_to_string(authority).with_context(|| format!("reading {}", authority.display()))?;
    let recipe = format!("{SUITE} {PACKAGES:?} {DROPPED:?} {MASKED:?} {FILES:?} {FOLDERS:?} {LINKS:?} {trusted}");
    let made = cache.produce("machine-os", &recipe, async |new| {
        let root = new.join("root");
        unpack(&root).await?;
        finish(&root, &trusted)?;
        accounts(&root).await?;
        let layout = new.join("layout");
        let packed = {
            let (root, layout) = (root.clone(), layout.clone());
            tokio::task::spawn_blocking(move || layout::pack(&root, &layout, Compression::Zstd, &json!({})))
        };
        packed.await??;
        cache::remove_tree(&root)
    });
    Ok(made.await?.join("layout"))
}

async fn unpack(root: &Path) -> Result<()> {
    let mirror = debian::mirror()?;
    Command::tied("mmdebstrap")
        .args(["--quiet", "--mode=root", "--variant=extract"])
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .args(["doc", "man", "locale", "info"].map(|kind| format!("--dpkgopt=path-exclude=/usr/share/{kind}/*")))
        .arg(format!("--include={}", PACKAGES.join(",")))
        .arg(SUITE)
        .arg(root)
        .arg(format!("deb [trusted=yes] {mirror} {SUITE} main"))
        .limit(Duration::from_secs(900))
        .run()
        .await
}

/// What needs no program: files, links, and what is left out.
fn finish(root: &Path, trusted: &str) -> Result<()> {
    for path in DROPPED {
        let path = root.join(path);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => cache::remove_tree(&path)?,
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
    }
    empty(&root.join("dev"))?;
    for (path, mode, text) in FILES {
        write(&root.join(path), *mode, text)?;
    }
    write(&root.join("etc/ssl/certs/ca-certificates.crt"), 0o644, trusted)?;
    for (folder, mode) in FOLDERS {
        let path = root.join(folder);
        fs::create_dir_all(&path)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(*mode))?;
    }
    let units = root.join("etc/systemd/system");
    for unit in MASKED {
        replace_link("/dev/null", &units.join(unit))?;
    }
    for (link, target) in LINKS {
        replace_link(target, &root.join(link))?;
    }
    // The machine's containerd is the agent's, with the agent's unit.
    for unit in [
        "usr/lib/systemd/system/containerd.service",
        "etc/containerd/config.toml",
    ] {
        match fs::remove_file(root.join(unit)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error.into()),
            Ok(()) | Err(_) => {}
        }
    }
    Ok(())
}

/// Users, groups and the library cache, as the packages' scripts would have made them.
async fn accounts(root: &Path) -> Result<()> {
    for name in ["passwd", "group"] {
        let master = root.join("usr/share/base-passwd").join(format!("{name}.master"));
        fs::copy(&master, root.join("etc").join(name)).with_context(|| format!("copying {}", master.display()))?;
    }
    // The tree's own programs: this machine's are of another release.
    for program in ["systemd-sysusers", "ldconfig"] {
        Command::new("chroot")
            .env("PATH", PATH)
            .arg(root)
            .arg(program)
            .run()
            .await?;
    }
    Ok(())
}

fn empty(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            cache::remove_tree(&entry.path())?
        } else {
            fs::remove_file(entry.path())?
        }
    }
    Ok(())
}

fn write(path: &Path, mode: u32, text: &str) -> Result<()> {
    fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
    fs::write(path, text).with_context(|| format!("writing {}", path.display()))?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn replace_link(target: &str, at: &Path) -> Result<()> {
    fs::create_dir_all(at.parent().context("a link lies in a folder")?)?;
    match fs::symlink_metadata(at) {
        Ok(meta) if meta.is_dir() => cache::remove_tree(at)?,
        Ok(_) => fs::remove_file(at)?,
        Err(_) => {}
    }
    symlink(target, at).with_context(|| format!("linking {}", at.display()))
}
