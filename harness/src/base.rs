//! The base of every host: a Debian tree made to look like Azure Container Linux, `/usr` as one read-only image.
//!
//!     usr.img         squashfs: /usr, with the lower half of /etc in /usr/share/distro/etc
//!     containerd.img  squashfs: the extension that brings containerd, mounted below /usr/share/distro/sysext. An image of its own: overlayfs
//!                     refuses a layer that lies inside another
//!     skel/           the rest of the root, a few MB, copied for each host

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::ca::Ca;
use crate::cache::Cache;
use crate::command::Command;
use crate::debian;
use crate::progress;

/// The release the tree is made of: systemd 257, containerd 1.7.24, runc 1.1.15.
const SUITE: &str = "trixie";

/// What `mmdebstrap` puts in besides the essential packages: what the image has, as far as the agent or a check may meet it.
const PACKAGES: &str = "systemd,systemd-sysv,systemd-container,systemd-resolved,udev,dbus,libpam-systemd,libnss-myhostname,\
libnss-resolve,containerd,runc,iproute2,iptables,nftables,iputils-ping,procps,kmod,curl,ca-certificates,openssl,jq,less,netbase,\
util-linux,strace,socat,conntrack,ethtool";

/// The lower half of `/etc`, below `/usr`. Source: microsoft/azure-container-linux, architecture.md.
pub(crate) const LOWER_ETC: &str = "usr/share/distro/etc";

/// Where the extension that brings containerd is seen.
pub(crate) const SYSEXT: &str = "usr/share/distro/sysext/containerd";

/// Where Azure Linux keeps the certificates it trusts.
const TRUST: &str = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";

/// A text of ours in the tree: its place, its mode, itself.
struct File(&'static str, u32, &'static str);

const FILES: &[File] = &[
    File("usr/lib/os-release", 0o644, include_str!("../acl/os-release")),
    File(
        "usr/lib/systemd/system.conf.d/10-acl.conf",
        0o644,
        include_str!("../acl/limits.conf"),
    ),
    File(
        "usr/lib/systemd/system/service.d/10-timeout-abort.conf",
        0o644,
        include_str!("../acl/timeout-abort.conf"),
    ),
    File(
        "usr/lib/systemd/system/ensure-sysext.service",
        0o644,
        include_str!("../acl/ensure-sysext.service"),
    ),
    File(
        "usr/lib/systemd/system/acl-sysupdate.service",
        0o644,
        include_str!("../acl/acl-sysupdate.service"),
    ),
    File(
        "usr/lib/systemd/system/media.mount",
        0o644,
        include_str!("../acl/media.mount"),
    ),
    File(
        "usr/lib/systemd/system/test-shield.service",
        0o644,
        include_str!("../acl/test-shield.service"),
    ),
    File("usr/libexec/test-shield", 0o755, include_str!("../acl/test-shield")),
    File(
        "usr/lib/systemd/system-preset/90-default.preset",
        0o644,
        include_str!("../acl/default.preset"),
    ),
    File(
        "usr/lib/systemd/system-preset/99-default-disable.preset",
        0o644,
        include_str!("../acl/disable.preset"),
    ),
    File(
        "usr/lib/systemd/network/20-unmanaged.network",
        0o644,
        include_str!("../acl/default.network"),
    ),
    File(
        "usr/lib/sysctl.d/50-acl.conf",
        0o644,
        include_str!("../acl/sysctl.conf"),
    ),
    File("usr/sbin/modprobe", 0o755, include_str!("../acl/modprobe")),
    File("etc/fstab", 0o644, include_str!("../acl/fstab")),
    File("etc/hosts", 0o644, include_str!("../acl/hosts")),
    File("etc/selinux/config", 0o644, include_str!("../acl/selinux-config")),
];

/// As `FILES`, below the extension.
const SYSEXT_FILES: &[File] = &[
    File(
        "usr/lib/extension-release.d/extension-release.containerd",
        0o644,
        include_str!("../acl/extension-release"),
    ),
    File(
        "usr/lib/systemd/system/containerd.service",
        0o644,
        include_str!("../acl/containerd.service"),
    ),
    File(
        "usr/lib/systemd/system/containerd.service.d/10-acl.conf",
        0o644,
        include_str!("../acl/containerd-acl.conf"),
    ),
    File(
        "usr/share/containerd/config.toml",
        0o644,
        include_str!("../acl/containerd.toml"),
    ),
    File("usr/sbin/runc", 0o755, include_str!("../acl/runc")),
];

/// What moves from the tree into the extension.
const SYSEXT_MOVED: &[(&str, &str)] = &[
    ("usr/bin/containerd", "usr/bin/containerd"),
    ("usr/bin/containerd-shim-runc-v2", "usr/bin/containerd-shim-runc-v2"),
    ("usr/bin/ctr", "usr/bin/ctr"),
    ("usr/sbin/runc", "usr/libexec/runc.real"),
];

/// Links: place and target. What is on by default is on by a link on `/usr`, which no preset can take away.
const LINKS: &[(&str, &str)] = &[
    (
        "usr/lib/systemd/system/multi-user.target.wants/systemd-networkd.service",
        "../systemd-networkd.service",
    ),
    (
        "usr/lib/systemd/system/multi-user.target.wants/acl-sysupdate.service",
        "../acl-sysupdate.service",
    ),
    (
        "usr/lib/systemd/system/sockets.target.wants/systemd-networkd.socket",
        "../systemd-networkd.socket",
    ),
    (
        "usr/lib/systemd/system/network-online.target.wants/systemd-networkd-wait-online.service",
        "../systemd-networkd-wait-online.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/systemd-resolved.service",
        "../systemd-resolved.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/systemd-sysext.service",
        "../systemd-sysext.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/ensure-sysext.service",
        "../ensure-sysext.service",
    ),
    (
        "usr/lib/systemd/system/sysinit.target.wants/test-shield.service",
        "../test-shield.service",
    ),
    (
        "usr/lib/systemd/system/local-fs.target.wants/media.mount",
        "../media.mount",
    ),
    (
        "usr/lib/systemd/system/dbus-org.freedesktop.resolve1.service",
        "systemd-resolved.service",
    ),
    (
        "usr/lib/systemd/system/dbus-org.freedesktop.network1.service",
        "systemd-networkd.service",
    ),
    ("etc/extensions/containerd", "/usr/share/distro/sysext/containerd"),
    ("etc/resolv.conf", "/run/systemd/resolve/stub-resolv.conf"),
    ("etc/os-release", "../usr/lib/os-release"),
    ("etc/ssl/certs", "/etc/pki/tls/certs"),
    (
        "etc/pki/tls/certs/ca-bundle.crt",
        "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    ),
];

/// What Debian has and the image has not: package management and scripting languages, Debian's own defaults.
const ABSENT: &[&str] = &[
    "etc/alternatives",
    "etc/apt",
    "etc/cron.daily",
    "etc/debconf.conf",
    "etc/debian_version",
    "etc/dpkg",
    "etc/hostname",
    "etc/init.d",
    "etc/machine-id",
    "etc/resolv.conf",
    "etc/os-release",
    "etc/ssl/certs",
    "etc/systemd/system",
    "usr/bin/containerd-shim",
    "usr/bin/containerd-shim-runc-v1",
    "usr/bin/containerd-stress",
    "usr/bin/runc",
    "usr/lib/apt",
    "usr/lib/dpkg",
    "usr/lib/sysctl.d",
    "usr/lib/systemd/system-preset",
    "usr/lib/systemd/system/containerd.service",
    "usr/lib/systemd/system/sysinit.target.wants/systemd-firstboot.service",
    "usr/lib/x86_64-linux-gnu/perl-base",
    "usr/sbin/modprobe",
    "usr/share/perl5",
    "var/lib/apt",
    "var/lib/dpkg",
    "var/cache/apt",
    "var/cache/debconf",
];

/// Programs of `usr/bin` and `usr/sbin` that the image has not, by how their names begin.
const ABSENT_PROGRAMS: &[&str] = &[
    "apt",
    "dpkg",
    "deb-",
    "debconf",
    "perl",
    "python",
    "update-ca-cert",
    "update-alternatives",
];

/// A base that is there.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) dir: PathBuf,
}

impl Base {
    /// The base of this recipe, built if no run before has done so.
    ///
    /// # Errors
    /// The tree can't be made: no mirror, no network, a package gone.
    pub(crate) async fn of(cache: &Cache) -> Result<Self> {
        let ca = Ca::of(cache).await?;
        let authority = fs::read_to_string(ca.certificate())?;
        let make =
            async |new: &Path| progress::step("build the hosts' base image (once)", build(new, &authority)).await;
        Ok(Self {
            dir: cache.produce("base", &recipe(&authority), make).await?,
        })
    }

    /// The image of `/usr`.
    pub(crate) fn usr(&self) -> PathBuf {
        self.dir.join("usr.img")
    }

    /// The image of the extension.
    pub(crate) fn extension(&self) -> PathBuf {
        self.dir.join("containerd.img")
    }

    /// The rest of the root.
    pub(crate) fn skeleton(&self) -> PathBuf {
        self.dir.join("skel")
    }
}

/// All that decides what the base is. This file's own text stands for the steps.
fn recipe(authority: &str) -> String {
    let mut recipe = format!("{}\n{authority}\n", include_str!("base.rs"));
    for File(place, mode, text) in FILES.iter().chain(SYSEXT_FILES) {
        recipe.push_str(&format!("{place} {mode:o}\n{text}\n"));
    }
    recipe
}

async fn build(new: &Path, authority: &str) -> Result<()> {
    let tree = new.join("os");
    let mirror = debian::mirror()?;
    let leave_out = ["doc", "man", "locale", "info", "bash-completion", "zsh"];
    Command::line(&["mmdebstrap", "--quiet", "--variant=minbase"])
        .arg(format!("--include={PACKAGES}"))
        .args(leave_out.map(|what| format!("--dpkgopt=path-exclude=/usr/share/{what}/*")))
        .arg(SUITE)
        .arg(&tree)
        .arg(format!("deb {mirror} {SUITE} main"))
        .limit(Duration::from_secs(900))
        .run()
        .await?;
    let trusted = fs::read_to_string(tree.join("etc/ssl/certs/ca-certificates.crt"))?;
    straighten(&tree)?;
    take_away(&tree)?;
    extension(&tree)?;
    for File(place, mode, text) in FILES {
        put(&tree.join(place), text, *mode)?;
    }
    put(&tree.join(TRUST), &format!("{trusted}\n{authority}"), 0o644)?;
    for (place, target) in LINKS {
        link(&tree.join(place), target)?;
    }
    for folder in [
        "var/log/journal",
        "var/lib/machines",
        "oem",
        "boot",
        "media",
        "usr/lib/modules",
    ] {
        fs::create_dir_all(tree.join(folder))?;
    }
    let lower = tree.join(LOWER_ETC);
    fs::rename(tree.join("etc"), &lower)?;
    fs::create_dir(tree.join("etc"))?;
    let extension = tree.join(SYSEXT);
    squash(&extension, &new.join("containerd.img")).await?;
    fs::remove_dir_all(&extension)?;
    fs::create_dir(&extension)?;
    squash(&tree.join("usr"), &new.join("usr.img")).await?;
    fs::remove_dir_all(tree.join("usr"))?;
    fs::create_dir(tree.join("usr"))?;
    fs::rename(&tree, new.join("skel"))?;
    Ok(())
}

async fn squash(folder: &Path, image: &Path) -> Result<()> {
    let quick = ["-comp", "lz4", "-noappend", "-quiet", "-no-progress"];
    Command::new("mksquashfs")
        .arg(folder)
        .arg(image)
        .args(quick)
        .run()
        .await
}

/// Debian's `awk`, `iptables` and so on are links through `/etc/alternatives`, which the image has not: they become plain links.
fn straighten(tree: &Path) -> Result<()> {
    for folder in ["usr/bin", "usr/sbin"] {
        for entry in fs::read_dir(tree.join(folder))? {
            let path = entry?.path();
            let Ok(target) = fs::read_link(&path) else { continue };
            let Ok(choice) = target.strip_prefix("/etc/alternatives") else {
                continue;
            };
            let program = fs::read_link(tree.join("etc/alternatives").join(choice))?;
            link(&path, &program.to_string_lossy())?;
        }
    }
    Ok(())
}

fn take_away(tree: &Path) -> Result<()> {
    for place in ABSENT {
        let path = tree.join(place);
        match fs::symlink_metadata(&path) {
            Ok(meta) if meta.is_dir() => fs::remove_dir_all(&path)?,
            Ok(_) => fs::remove_file(&path)?,
            Err(_) => {}
        }
    }
    for folder in ["usr/bin", "usr/sbin"] {
        for entry in fs::read_dir(tree.join(folder))? {
            let path = entry?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if ABSENT_PROGRAMS.iter().any(|start| name.starts_with(start)) {
                fs::remove_file(&path)?;
            }
        }
    }
    Ok(())
}

/// Moves containerd and what belongs to it out of the tree into its extension.
fn extension(tree: &Path) -> Result<()> {
    let root = tree.join(SYSEXT);
    for (from, to) in SYSEXT_MOVED {
        let to = root.join(to);
        fs::create_dir_all(to.parent().context("a place has a folder")?)?;
        fs::rename(tree.join(from), &to).with_context(|| format!("{from} is not in the tree"))?;
    }
    for File(place, mode, text) in SYSEXT_FILES {
        put(&root.join(place), text, *mode)?;
    }
    link(
        &root.join("usr/lib/systemd/system/multi-user.target.wants/containerd.service"),
        "../containerd.service",
    )
}

fn put(path: &Path, text: &str, mode: u32) -> Result<()> {
    fs::create_dir_all(path.parent().context("a place has a folder")?)?;
    fs::write(path, text)?;
    Ok(fs::set_permissions(path, fs::Permissions::from_mode(mode))?)
}

fn link(path: &Path, target: &str) -> Result<()> {
    fs::create_dir_all(path.parent().context("a place has a folder")?)?;
    if fs::symlink_metadata(path).is_ok() {
        fs::remove_file(path)?;
    }
    symlink(target, path).with_context(|| format!("the link {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_authority_is_another_base() {
        assert_ne!(recipe("one"), recipe("two"));
    }
}
