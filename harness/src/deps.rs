//! What the bed needs of the machine: root on Debian, Debian packages, installed when they are missing, and their programs in `PATH`.

use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::Duration;

use anyhow::{Result, bail};

use crate::command::Command;
use crate::progress;

/// A Debian package.
struct Package {
    name: &'static str,
    /// By which we know that it is there.
    file: &'static str,
    /// Those that the harness starts by name.
    programs: &'static [&'static str],
}

/// A row of the table: package, file, programs.
const fn row(name: &'static str, file: &'static str, programs: &'static [&'static str]) -> Package {
    Package { name, file, programs }
}

const PACKAGES: &[Package] = &[
    row("apt", "/usr/bin/apt-get", &["apt-get"]),
    row("coreutils", "/usr/bin/cp", &["chroot", "cp", "date", "nice", "sleep"]),
    row("dash", "/bin/sh", &["sh"]),
    row("mount", "/usr/bin/mount", &["mount"]),
    row("tar", "/usr/bin/tar", &["tar"]),
    row("systemd-container", "/usr/bin/systemd-nspawn", &["systemd-nspawn"]),
    row("mmdebstrap", "/usr/bin/mmdebstrap", &["mmdebstrap"]),
    row("squashfs-tools", "/usr/bin/mksquashfs", &["mksquashfs"]),
    row("e2fsprogs", "/usr/sbin/mkfs.ext4", &["mkfs.ext4"]),
    row("iproute2", "/usr/bin/ip", &["bridge", "ip", "tc"]),
    row("nftables", "/usr/sbin/nft", &["nft"]),
    row("util-linux", "/usr/bin/nsenter", &["nsenter", "setpriv", "unshare"]),
    row("openssl", "/usr/bin/openssl", &["openssl"]),
    row("ca-certificates", "/etc/ssl/certs/ca-certificates.crt", &[]),
    row("curl", "/usr/bin/curl", &["curl"]),
    row("zstd", "/usr/bin/zstd", &["zstd"]),
    row("ignition", "/usr/lib/dracut/modules.d/30ignition/ignition", &[]),
    row("docker-registry", "/usr/bin/docker-registry", &["docker-registry"]),
    row("skopeo", "/usr/bin/skopeo", &["skopeo"]),
    // A judge of unit tests.
    row("umoci", "/usr/bin/umoci", &["umoci"]),
    row("dnsmasq-base", "/usr/sbin/dnsmasq", &["dnsmasq"]),
    row("nginx-light", "/usr/sbin/nginx", &["nginx"]),
    row("etcd-server", "/usr/bin/etcd", &["etcd"]),
    row("busybox-static", "/bin/busybox", &[]),
    row("containernetworking-plugins", "/usr/lib/cni/bridge", &[]),
];

/// What builds the agent: not ours to install.
const BUILDERS: &[(&str, &str)] = &[("Rust", "rustc"), ("gcc", "cc")];

/// Sees to it that everything is there; the packages that it installed.
///
/// # Errors
/// One message that names all that is missing, when we may not or can't install it.
pub(crate) async fn ensure() -> Result<Vec<&'static str>> {
    let there = |package: &&Package| Path::new(package.file).exists();
    let missing: Vec<&str> = PACKAGES
        .iter()
        .filter(|package| !there(package))
        .map(|package| package.name)
        .collect();
    let debian = Path::new("/etc/debian_version").exists();
    let mut lacks: Vec<String> = root().err().map(|error| error.to_string()).into_iter().collect();
    if !debian {
        lacks.push("the bed needs Debian".to_owned());
    }
    if !missing.is_empty() && !lacks.is_empty() {
        lacks.push(format!("the packages {} are missing", missing.join(", ")));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let builders = BUILDERS.iter().map(|(of, program)| (*of, *program));
    lacks.extend(not_in(
        &path,
        PACKAGES.iter().filter(there).flat_map(Package::rows).chain(builders),
    ));
    if !lacks.is_empty() {
        bail!("{}", lacks.join("; "));
    }
    if !missing.is_empty() {
        progress::step(&format!("install {}", missing.join(" ")), install(&missing)).await?;
        if let Some(lack) = not_in(&path, PACKAGES.iter().flat_map(Package::rows)) {
            bail!("{lack}");
        }
    }
    Ok(missing)
}

/// Whether we are root.
///
/// # Errors
/// We are not.
pub(crate) fn root() -> Result<()> {
    if !nix::unistd::geteuid().is_root() {
        bail!("the bed needs to run as root (it makes namespaces, mounts and hosts)");
    }
    Ok(())
}

impl Package {
    /// Each program, after the package that it is of.
    fn rows(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let name = self.name;
        self.programs.iter().map(move |program| (name, *program))
    }
}

/// One sentence about the programs that `PATH` does not lead to, each with what it is of.
fn not_in<'a>(path: &OsStr, programs: impl Iterator<Item = (&'a str, &'a str)>) -> Option<String> {
    let leads = |program: &str| {
        std::env::split_paths(path).any(|folder| {
            let meta = folder.join(program).metadata();
            meta.is_ok_and(|meta| meta.is_file() && meta.permissions().mode() & 0o111 != 0)
        })
    };
    let lacking: Vec<_> = programs.filter(|(_, program)| !leads(program)).collect();
    let of_one = |rows: &[(&str, &str)]| {
        let names: Vec<&str> = rows.iter().map(|(_, program)| *program).collect();
        format!("{} ({})", names.join(" "), rows[0].0)
    };
    let named: Vec<String> = lacking.chunk_by(|one, other| one.0 == other.0).map(of_one).collect();
    let path = path.to_string_lossy();
    (!named.is_empty()).then(|| {
        format!(
            "these programs are not in PATH, which is `{path}`: {}",
            named.join(", ")
        )
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_path_does_not_lead_to_is_named_at_once_with_its_package() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("nft"), "").unwrap();
        let path = folder.path().as_os_str();
        let asked = || [("nftables", "nft"), ("iproute2", "ip"), ("iproute2", "tc")].into_iter();
        let said = not_in(path, asked()).unwrap();
        assert!(said.ends_with(": nft (nftables), ip tc (iproute2)"), "{said}");
        for program in ["nft", "ip", "tc"] {
            let file = folder.path().join(program);
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, PermissionsExt::from_mode(0o755)).unwrap();
        }
        assert_eq!(not_in(path, asked()), None);
    }
}
