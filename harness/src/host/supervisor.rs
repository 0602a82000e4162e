//! What runs in namespaces of its own, as hidden verbs of this program: putting a host's root together, booting it again and again, taking
//! its power away. Every mount made here goes with the last process that sees it.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail};
use clap::Subcommand;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, setns, unshare};

use super::cgroup::{self, Group};
use super::{Disk, Plan, Variant, ignition, read_plan};
use crate::base::{Base, LOWER_ETC, SYSEXT};
use crate::command::PATH;
use crate::net::BRIDGE;
use crate::process::Process;

/// How nspawn says that the host wants to boot again. Source: systemd-nspawn(1), `--keep-unit` with an own restart loop.
const REBOOT: i32 = 133;

/// What must not reach the machine under the test: its clock is not namespaced, nor are its kernel modules.
const DROPPED: &str = "CAP_SYS_TIME,CAP_SYS_MODULE";

/// Verbs that this program asks itself to do.
#[derive(Subcommand)]
pub(crate) enum Inner {
    /// Copy the skeleton into the host's root.
    MakeRoot { dir: PathBuf, skeleton: PathBuf },
    /// Boot the host, and again whenever it reboots.
    Supervise { dir: PathBuf },
    /// Take the host's power away.
    Cut { dir: PathBuf },
    /// Run a command that sees the root of a host that is off as `/`.
    Offline {
        dir: PathBuf,
        /// With the upper half of `/etc` alone.
        #[arg(long)]
        upper: bool,
        #[arg(last = true)]
        command: Vec<std::ffi::OsString>,
    },
}

/// Does a hidden verb. Not from inside an async runtime: it changes this process's namespaces.
///
/// # Errors
/// What the verb met.
pub(crate) fn inner(verb: Inner) -> Result<()> {
    unshare(CloneFlags::CLONE_NEWNS).context("no mount namespace of our own")?;
    mount(
        None::<&str>,
        "/",
        None::<&str>,
        MsFlags::MS_REC | MsFlags::MS_PRIVATE,
        None::<&str>,
    )?;
    match verb {
        Inner::MakeRoot { dir, skeleton } => make_root(&dir, &skeleton),
        Inner::Supervise { dir } => supervise(&dir),
        Inner::Cut { dir } => cut(&dir),
        Inner::Offline { dir, upper, command } => {
            let root = Root::mount(&dir, &read_plan(&dir)?)?;
            if !upper {
                root.mount_etc()?;
            }
            let (program, args) = command.split_first().context("no command")?;
            Err(chroot(&root).arg(program).args(args).exec().into())
        }
    }
}

fn make_root(dir: &Path, skeleton: &Path) -> Result<()> {
    let root = dir.join("root");
    if dir.join("disk.img").exists() {
        must(
            Command::new("mount")
                .args(["-o", "loop"])
                .arg(dir.join("disk.img"))
                .arg(&root),
        )?;
        fs::set_permissions(&root, fs::Permissions::from_mode(0o755))?;
    }
    must(Command::new("cp").arg("-a").arg(skeleton.join(".")).arg(&root))?;
    fs::create_dir(root.join(".etc-work"))?;
    Ok(())
}

fn supervise(dir: &Path) -> Result<()> {
    let plan = read_plan(dir)?;
    // Out of the terminal's session: the host outlives who started it.
    nix::unistd::setsid()?;
    cgroup::unified()?;
    let group = Group::new(&plan.group);
    group.enter()?;
    fs::write(dir.join("supervisor.json"), serde_json::to_vec(&Process::own())?)?;
    setns(
        fs::File::open(&plan.netns).context("the run's network is gone")?,
        CloneFlags::CLONE_NEWNET,
    )?;
    // nspawn keeps its sockets below /run, by the machine's name: another run may have a host of that name.
    mount(Some("tmpfs"), "/run", Some("tmpfs"), MsFlags::empty(), Some("mode=755"))?;
    let root = Root::mount(dir, &plan)?;
    loop {
        root.tidy_etc()?;
        root.mount_etc()?;
        if !dir.join("provisioned").exists() {
            provision(dir, &plan, &root)?;
            fs::write(dir.join("provisioned"), "")?;
        }
        let status = boot(dir, &plan, &root)?;
        fs::write(dir.join("status"), status.to_string())?;
        group.prune();
        umount(&root.etc())?;
        if status.code() != Some(REBOOT) {
            return Ok(());
        }
    }
}

fn boot(dir: &Path, plan: &Plan, root: &Root) -> Result<ExitStatus> {
    let console = fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(dir.join("console"))?;
    let mut nspawn = Command::new("systemd-nspawn");
    nspawn
        .args(["--quiet", "--boot", "--register=no", "--keep-unit", "--capability=all"])
        .args([
            "--console=read-only",
            "--kill-signal=SIGRTMIN+3",
            "--resolv-conf=off",
            "--timezone=off",
            "--link-journal=no",
        ])
        .arg(format!("--drop-capability={DROPPED}"))
        .arg(format!("--network-bridge={BRIDGE}"))
        .arg(format!("--machine={}", plan.name))
        .arg("--directory")
        .arg(&root.0)
        .arg("--bind=/dev/null:/dev/kmsg");
    for (from, to) in &plan.options.binds {
        nspawn.arg(format!("--bind-ro={}:{to}", from.display()));
    }
    // Without the first, runc inside can't make a session keyring; without the second the host sees the machine's old hierarchies.
    nspawn
        .env("SYSTEMD_SECCOMP", "0")
        .env("SYSTEMD_NSPAWN_UNIFIED_HIERARCHY", "1");
    nspawn.stdin(Stdio::null()).stdout(console.try_clone()?).stderr(console);
    nspawn.status().context("could not start systemd-nspawn")
}

/// What happens once, before the first boot: what a cloud's firmware and Ignition do.
fn provision(dir: &Path, plan: &Plan, root: &Root) -> Result<()> {
    let write = |place: &str, text: &str| -> Result<()> {
        let path = root.0.join(place);
        fs::create_dir_all(path.parent().context("a place has a folder")?)?;
        Ok(fs::write(path, text)?)
    };
    write("etc/hostname", &format!("{}\n", plan.name))?;
    let network = format!(
        "[Match]\nName=host0\n\n[Network]\nAddress={}/24\nGateway={1}\nDNS={1}\nKeepConfiguration=static\n",
        plan.address, plan.gateway
    );
    write("etc/systemd/network/10-host0.network", &network)?;
    if let Some(config) = &plan.options.ignition {
        ignition::apply(&dir.join("ignition"), config, &root.0)?;
    }
    match plan.options.variant {
        // The image's systemd applies presets in full on a first boot; Debian's only enables, so it is done for it beforehand.
        Variant::FirstBoot => {
            let proc = root.0.join("proc");
            mount(Some("proc"), &proc, Some("proc"), MsFlags::empty(), None::<&str>)?;
            let presets = ["systemctl", "preset-all", "--preset-mode=full", "--quiet"];
            must(chroot(root).args(presets))?;
            Ok(umount(&proc)?)
        }
        Variant::Captured => write("etc/machine-id", ""),
    }
}

fn cut(dir: &Path) -> Result<()> {
    let plan = read_plan(dir)?;
    cgroup::unified()?;
    let group = Group::new(&plan.group);
    if !group.exists() {
        return Ok(());
    }
    let image = dir.join("disk.img");
    let crash = dir.join("crash.img");
    if matches!(plan.options.disk, Disk::Image(_)) && group.populated() {
        // What has reached the image by now survives; what is in the host's page cache does not.
        group.freeze()?;
        must(Command::new("cp").arg("--sparse=always").arg(&image).arg(&crash))?;
    }
    group.kill()?;
    group.remove()?;
    if crash.exists() {
        fs::rename(&crash, &image)?;
    }
    Ok(())
}

/// A host's root, put together in this mount namespace.
struct Root(PathBuf);

impl Root {
    /// All but `/etc`: the disk if there is one, `/usr`.
    fn mount(dir: &Path, plan: &Plan) -> Result<Self> {
        let root = dir.join("root");
        if dir.join("disk.img").exists() {
            must(
                Command::new("mount")
                    .args(["-o", "loop"])
                    .arg(dir.join("disk.img"))
                    .arg(&root),
            )?;
        }
        let base = Base { dir: plan.base.clone() };
        for (image, place) in [(base.usr(), "usr"), (base.extension(), SYSEXT)] {
            must(
                Command::new("mount")
                    .args(["-t", "squashfs", "-o", "loop,ro"])
                    .arg(image)
                    .arg(root.join(place)),
            )?;
        }
        Ok(Self(root))
    }

    fn etc(&self) -> PathBuf {
        self.0.join("etc")
    }

    fn lower(&self) -> PathBuf {
        self.0.join(LOWER_ETC)
    }

    fn mount_etc(&self) -> Result<()> {
        let root = self.0.display();
        let options = format!(
            "lowerdir={root}/{LOWER_ETC},upperdir={root}/etc,workdir={root}/.etc-work,redirect_dir=on,metacopy=off"
        );
        let mounted = mount(
            Some("overlay"),
            &self.etc(),
            Some("overlay"),
            MsFlags::MS_NOATIME,
            Some(options.as_str()),
        );
        mounted.context("the overlay of /etc")
    }

    /// As the image's initramfs does at every boot: what equals the shipped file leaves the upper half. `/etc` must not be mounted.
    fn tidy_etc(&self) -> Result<()> {
        if self.etc().join(".no-dup-update").exists() {
            return Ok(());
        }
        same_files(&self.etc(), &self.lower())
    }
}

/// Removes from `upper` each regular file that equals its counterpart.
fn same_files(upper: &Path, lower: &Path) -> Result<()> {
    for entry in fs::read_dir(upper)? {
        let entry = entry?;
        let (above, below) = (entry.path(), lower.join(entry.file_name()));
        let kind = entry.file_type()?;
        let Ok(shipped) = fs::symlink_metadata(&below) else {
            continue;
        };
        let owner = |meta: &fs::Metadata| (meta.mode(), meta.uid(), meta.gid(), meta.len());
        if kind.is_dir() && shipped.is_dir() {
            same_files(&above, &below)?;
        } else if kind.is_file()
            && owner(&entry.metadata()?) == owner(&shipped)
            && fs::read(&above)? == fs::read(&below)?
        {
            fs::remove_file(&above)?;
        }
    }
    Ok(())
}

/// A command that sees the host's root as `/`.
fn chroot(root: &Root) -> Command {
    let mut command = Command::new("chroot");
    command.env("PATH", PATH).arg(&root.0);
    command
}

/// Runs a program to its end; what it says goes where ours goes.
pub(super) fn must(command: &mut Command) -> Result<()> {
    let status = command
        .stdin(Stdio::null())
        .status()
        .with_context(|| format!("could not start {command:?}"))?;
    if !status.success() {
        bail!(
            "{command:?}: {}",
            status.code().map_or_else(
                || format!("signal {:?}", status.signal()),
                |code| format!("exit code {code}")
            )
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_equals_the_shipped_file_leaves_the_upper_half() {
        let dir = tempfile::tempdir().unwrap();
        let (upper, lower) = (dir.path().join("upper"), dir.path().join("lower"));
        for half in [&upper, &lower] {
            fs::create_dir_all(half.join("a")).unwrap();
            fs::write(half.join("a/same"), "x").unwrap();
            fs::write(half.join("mode"), "x").unwrap();
        }
        fs::write(upper.join("own"), "x").unwrap();
        fs::set_permissions(upper.join("mode"), fs::Permissions::from_mode(0o600)).unwrap();
        same_files(&upper, &lower).unwrap();
        assert!(!upper.join("a/same").exists());
        assert!(upper.join("own").exists() && upper.join("mode").exists());
    }
}
