//! What the bed needs of the machine: root on Debian, and Debian packages, installed when they are missing.

use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::command::Command;
use crate::progress;

/// A package, and the file by which we know that it is there.
const PACKAGES: &[(&str, &str)] = &[
    ("systemd-container", "/usr/bin/systemd-nspawn"),
    ("mmdebstrap", "/usr/bin/mmdebstrap"),
    ("squashfs-tools", "/usr/bin/mksquashfs"),
    ("e2fsprogs", "/usr/sbin/mkfs.ext4"),
    ("iproute2", "/usr/bin/ip"),
    ("nftables", "/usr/sbin/nft"),
    ("util-linux", "/usr/bin/nsenter"),
    ("openssl", "/usr/bin/openssl"),
    ("ca-certificates", "/etc/ssl/certs/ca-certificates.crt"),
    ("curl", "/usr/bin/curl"),
    ("zstd", "/usr/bin/zstd"),
    ("ignition", "/usr/lib/dracut/modules.d/30ignition/ignition"),
    ("docker-registry", "/usr/bin/docker-registry"),
    ("skopeo", "/usr/bin/skopeo"),
    ("dnsmasq-base", "/usr/sbin/dnsmasq"),
    ("nginx-light", "/usr/sbin/nginx"),
    ("etcd-server", "/usr/bin/etcd"),
    ("busybox-static", "/bin/busybox"),
    ("containernetworking-plugins", "/usr/lib/cni/bridge"),
];

/// Sees to it that everything is there.
///
/// # Errors
/// One message that names all that is missing, when we may not or can't install it.
pub(crate) async fn ensure() -> Result<()> {
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|(_, file)| !Path::new(file).exists())
        .map(|(package, _)| *package)
        .collect();
    let root = nix::unistd::geteuid().is_root();
    let debian = Path::new("/etc/debian_version").exists();
    let mut lacks = Vec::new();
    if !root {
        lacks.push("to run as root (it makes namespaces, mounts and hosts)".to_owned());
    }
    if !debian {
        lacks.push("Debian".to_owned());
    }
    if !missing.is_empty() && (!root || !debian) {
        lacks.push(format!("the packages {}", missing.join(", ")));
    }
    if !lacks.is_empty() {
        bail!("the bed needs {}", lacks.join("; "));
    }
    if missing.is_empty() {
        return Ok(());
    }
    progress::step(&format!("install {}", missing.join(" ")), install(&missing)).await
}

async fn install(packages: &[&str]) -> Result<()> {
    let limit = Duration::from_secs(600);
    Command::line(&["apt-get", "-q", "update"]).limit(limit).run().await?;
    Command::line(&["apt-get", "-q", "-y", "install", "--no-install-recommends"])
        .args(packages)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .limit(limit)
        .run()
        .await
}
