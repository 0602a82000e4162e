//! The programs in the image, built by Cargo: static, and with the same bytes wherever the workspace lies.

use std::env;
use std::env::consts::ARCH;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::Profile;
use super::content::VERSION;
use crate::cargo::cargo;
use crate::command::Command;

/// A first build with everything that belongs to it, on a busy machine.
const LIMIT: Duration = Duration::from_secs(3600);

/// What goes into an image, as bytes: Cargo may replace its files at any time.
#[derive(Clone)]
pub(super) struct Programs {
    /// The agent, or what stands in its place, or nothing.
    pub(super) agent: Option<Vec<u8>>,
    pub(super) host_exec: Vec<u8>,
    /// The tools of the host that `host-exec` runs.
    pub(super) tools: Vec<String>,
}

/// A workspace to build in.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Workspace {
    #[serde(rename = "workspace_root")]
    root: PathBuf,
    #[serde(rename = "target_directory")]
    target: PathBuf,
    #[serde(skip)]
    origin: Option<Origin>,
}

/// What a shipped agent says that it was made of: an input of the build like any other, so the time is the commit's, not the build's.
#[derive(Clone, Debug)]
struct Origin {
    /// With `-dirty` when files of it were changed.
    commit: String,
    time: String,
}

impl Origin {
    /// None, where the sources are not in a repository of Git.
    async fn of(root: &Path) -> Option<Self> {
        let git = async |line: &[&str]| Command::new("git").arg("-C").arg(root).args(line).read().await.ok();
        let said = git(&["log", "-1", "--format=%H %cI"]).await?;
        let (commit, time) = said.trim().split_once(' ')?;
        let changed = git(&["status", "--porcelain", "--untracked-files=no"]).await?;
        let dirty = if changed.trim().is_empty() { "" } else { "-dirty" };
        Some(Self {
            commit: format!("{commit}{dirty}"),
            time: time.to_owned(),
        })
    }
}

impl Workspace {
    /// The one that this program was built in, as Cargo sees it now.
    ///
    /// # Errors
    /// It is gone, or Cargo is.
    pub(super) async fn here() -> Result<Self> {
        let said = cargo()
            .args(["metadata", "--no-deps", "--format-version=1", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .read()
            .await?;
        let mut workspace: Self = serde_json::from_str(&said).context("reading what `cargo metadata` says")?;
        workspace.origin = Origin::of(&workspace.root).await;
        Ok(workspace)
    }

    /// A copy of its sources in a new folder, with a target folder of its own.
    ///
    /// # Errors
    /// A file can't be copied.
    pub(super) fn copy(&self, root: PathBuf, target: PathBuf) -> Result<Self> {
        copy(&self.root, &root, &["target", ".git", "artifacts"])?;
        let origin = self.origin.clone();
        Ok(Self { root, target, origin })
    }

    /// Builds the agent and `host-exec`.
    ///
    /// # Errors
    /// What Cargo said, or a program is not static.
    pub(super) async fn build(&self, profile: Profile) -> Result<Programs> {
        let target = format!("{ARCH}-unknown-linux-gnu");
        let mut build = cargo();
        if let (Profile::Image, Some(origin)) = (profile, &self.origin) {
            build = build
                .env("AKS_FLEX_NODE_BUILD_COMMIT", &origin.commit)
                .env("AKS_FLEX_NODE_BUILD_TIME", &origin.time);
        }
        build
            .args(["build", "--locked", "--quiet", "--profile", profile.name()])
            .args(["--target", &target, "--package=aks-flex-node", "--package=hostexec"])
            .arg("--target-dir")
            .arg(&self.target)
            .env("CARGO_ENCODED_RUSTFLAGS", self.flags()?)
            .env("AKS_FLEX_NODE_BUILD_VERSION", VERSION)
            .dir(&self.root)
            .limit(LIMIT)
            .run()
            .await?;
        let built = self.target.join(target).join(profile.name());
        let host_exec = built.join("host-exec");
        let tools = Command::new(&host_exec).arg("--list").read().await?;
        Ok(Programs {
            agent: Some(read_static(&built.join("aks-flex-node"))?),
            host_exec: read_static(&host_exec)?,
            tools: tools.lines().map(str::to_owned).collect(),
        })
    }

    /// Builds a small program of the bed's own, such as what stands in the agent's place in the images that misbehave: by rustc alone,
    /// since Cargo would first build all that the harness needs.
    ///
    /// # Errors
    /// What rustc said.
    pub(super) async fn small(&self, name: &str) -> Result<Vec<u8>> {
        let folder = tempfile::tempdir()?;
        let program = folder.path().join(name);
        Command::tied("rustc")
            .args(["--edition=2024", "--crate-name", name])
            .args(["-Copt-level=s", "-Cstrip=symbols", "-Ctarget-feature=+crt-static"])
            .arg("-o")
            .arg(&program)
            .arg(format!("harness/src/bin/{name}.rs"))
            .dir(&self.root)
            .run()
            .await?;
        read_static(&program)
    }

    /// rustc's flags, in Cargo's encoding. Of the prefixes that match a path the last one counts. The target folder always looks as
    /// if it lay in the workspace: generated code names it in the places of its panics.
    fn flags(&self) -> Result<OsString> {
        let home = env::var_os("CARGO_HOME").map(PathBuf::from);
        let home = home.or_else(|| Some(PathBuf::from(env::var_os("HOME")?).join(".cargo")));
        let home = home.context("neither CARGO_HOME nor HOME is set")?;
        let mut flags = OsString::from("-Ctarget-feature=+crt-static");
        for (from, to) in [(&home, "/cargo"), (&self.root, "/src"), (&self.target, "/src/target")] {
            flags.push("\u{1f}--remap-path-prefix=");
            flags.push(from);
            flags.push(format!("={to}"));
        }
        Ok(flags)
    }
}

/// A program's bytes. There is no loader in the image, so a program that asks for one would never start there.
fn read_static(path: &Path) -> Result<Vec<u8>> {
    let bytes = fs::read(path).with_context(|| path.display().to_string())?;
    match interpreted(&bytes) {
        Some(false) => Ok(bytes),
        Some(true) => bail!("{} is not static: it asks for a loader", path.display()),
        None => bail!("{} is no 64-bit ELF program", path.display()),
    }
}

/// Whether a program names a loader. Source: elf(5), `Elf64_Ehdr` and `Elf64_Phdr`, little-endian; `PT_INTERP` is 3.
fn interpreted(elf: &[u8]) -> Option<bool> {
    let number = |at: usize, width: usize| {
        let bytes = elf.get(at..at.checked_add(width)?)?;
        let value = bytes.iter().rev().fold(0, |value, byte| value << 8 | u64::from(*byte));
        usize::try_from(value).ok()
    };
    if !elf.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, width, count) = (number(32, 8)?, number(54, 2)?, number(56, 2)?);
    let kinds = (0..count).map(|row| number(table.checked_add(row * width)?, 4));
    Some(kinds.collect::<Option<Vec<_>>>()?.contains(&3))
}

fn copy(from: &Path, to: &Path, without: &[&str]) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let name = entry.file_name();
        let kind = entry.file_type()?;
        if without.iter().any(|other| name == *other) {
            continue;
        }
        if kind.is_dir() {
            copy(&entry.path(), &to.join(name), &[])?;
        } else if kind.is_file() {
            fs::copy(entry.path(), to.join(name))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_a_loader_is_refused() {
        let here = env::current_exe().unwrap();
        let error = read_static(&here).unwrap_err();
        assert!(error.to_string().ends_with("asks for a loader"), "{error}");
        assert_eq!(interpreted(b"#!/bin/sh\n"), None);
        assert_eq!(interpreted(b"\x7fELF\x02\x01"), None);
    }

    #[tokio::test]
    async fn what_stands_in_the_agents_place_is_static_answers_version_and_no_other_verb() {
        let program = Workspace::here().await.unwrap().small("misbehave").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("misbehave");
        fs::write(&path, program).unwrap();
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let version = Command::new(&path).arg("version").read().await.unwrap();
        assert!(version.contains("Version: misbehave"), "{version}");
        let reset = Command::new(&path).arg("reset").output().await.unwrap();
        assert_eq!(
            (reset.code, reset.stderr.as_str()),
            (Some(1), "misbehave: reset is not done by this image\n")
        );
    }
}
