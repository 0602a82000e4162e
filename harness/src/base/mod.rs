//! The base of every host: a Debian tree made to look like Azure Container Linux, `/usr` as one read-only image.
//!
//!     usr.img         squashfs: /usr, with the lower half of /etc in /usr/share/distro/etc
//!     containerd.img  squashfs: the extension that brings containerd, mounted below /usr/share/distro/sysext. An image of its own: overlayfs
//!                     refuses a layer that lies inside another
//!     skel/           the rest of the root, a few MB, copied for each host

mod content;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::ca::Ca;
use crate::cache::Cache;
use crate::command::Command;
use crate::debian;
use crate::progress;
use content::{ABSENT, ABSENT_PROGRAMS, FILES, File, LINKS, PACKAGES, SYSEXT_FILES, SYSEXT_MOVED};

/// The release of Debian that a base is made of, and so the versions of what is below the agent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Release {
    /// Older than the image in containerd: systemd 257, containerd 1.7.24, runc 1.1.15.
    #[default]
    Trixie,
    /// Newer than the image in systemd: systemd 262, containerd 2.1.9, runc 1.3.6. Not released yet: its versions move.
    Forky,
}

impl Release {
    /// What the mirror calls it.
    fn suite(self) -> &'static str {
        match self {
            Self::Trixie => "trixie",
            Self::Forky => "forky",
        }
    }
}

/// The lower half of `/etc`, below `/usr`. Source: microsoft/azure-container-linux, architecture.md.
pub(crate) const LOWER_ETC: &str = "usr/share/distro/etc";

/// Where the extension that brings containerd is seen.
pub(crate) const SYSEXT: &str = "usr/share/distro/sysext/containerd";

/// Where Azure Linux keeps the certificates it trusts.
const TRUST: &str = "etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem";

/// A base that is there.
#[derive(Clone, Debug)]
pub(crate) struct Base {
    pub(crate) dir: PathBuf,
}

impl Base {
    /// The base of this recipe and a release, built if no run before has done so.
    ///
    /// # Errors
    /// The tree can't be made: no mirror, no network, a package gone.
    pub(crate) async fn of(cache: &Cache, release: Release) -> Result<Self> {
        let ca = Ca::of(cache).await?;
        let authority = fs::read_to_string(ca.certificate())?;
        let suite = release.suite();
        let what = format!("build the hosts' base image of {suite} (once)");
        let make = async |new: &Path| progress::step(&what, build(new, suite, &authority)).await;
        let name = format!("base-{suite}");
        Ok(Self {
            dir: cache.produce(&name, &recipe(suite, &authority), make).await?,
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

/// All that decides what the base is. The text of these files stands for the steps.
fn recipe(suite: &str, authority: &str) -> String {
    let (steps, content) = (include_str!("mod.rs"), include_str!("content.rs"));
    let mut recipe = format!("{suite}\n{steps}\n{content}\n{authority}\n");
    for File(place, mode, text) in FILES.iter().chain(SYSEXT_FILES) {
        recipe.push_str(&format!("{place} {mode:o}\n{text}\n"));
    }
    recipe
}

async fn build(new: &Path, suite: &str, authority: &str) -> Result<()> {
    let tree = new.join("os");
    let mirror = debian::mirror()?;
    let leave_out = ["doc", "man", "locale", "info", "bash-completion", "zsh"];
    Command::line(&["mmdebstrap", "--quiet", "--variant=minbase"])
        .arg(format!("--include={PACKAGES}"))
        .args(leave_out.map(|what| format!("--dpkgopt=path-exclude=/usr/share/{what}/*")))
        // The index of what is not released yet is good for a week, and a mirror may be older than that.
        .arg("--aptopt=Acquire::Check-Valid-Until \"false\"")
        .arg(suite)
        .arg(&tree)
        .arg(format!("deb {mirror} {suite} main"))
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
    fn another_authority_or_release_is_another_base() {
        assert_ne!(recipe("trixie", "one"), recipe("trixie", "two"));
        assert_ne!(recipe("trixie", "one"), recipe("forky", "one"));
    }
}
