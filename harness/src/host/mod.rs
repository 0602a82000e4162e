//! A host: one machine that plays Azure Container Linux, booted by systemd-nspawn in a mount namespace and a control group of its own.
//!
//! Its state is a folder of the run, so that any later process can drive it; a supervisor (`supervisor.rs`), which outlives us, boots it.
//!
//!     create ▸ start ▸ (exec, read, journal, cut, …) ▸ reboot | poweroff | power_cut ▸ start … ▸ down

mod cgroup;
mod faults;
mod ignition;
mod inside;
mod outside;
pub(crate) mod supervisor;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

pub(crate) use faults::{Cut, Refusal};
pub(crate) use outside::Outside;

use crate::base::{Base, Release};
use crate::cache;
use crate::command::Command;
use crate::net::Net;
use crate::process::Process;
use crate::run::Run;
use crate::wait::{self, Stop};

/// How long a boot, a reboot or a shutdown may take on a busy machine.
const LIFE: Duration = Duration::from_secs(90);

/// Which image the host plays. Source: acl-facts: the gallery's image, and the one that a cloud captured after a first boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Variant {
    /// No machine-id: systemd sees a first boot, and presets decide, in full (`disable *` takes away what nobody enabled).
    #[default]
    FirstBoot,
    /// An empty machine-id: no first boot for systemd, presets are not applied, only links count.
    Captured,
}

/// Where the host's root lies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Disk {
    /// A plain folder: fast; a power cut loses nothing.
    #[default]
    Folder,
    /// An ext4 image of that many MiB: a power cut loses what was not synced.
    Image(u32),
}

/// What a host is made of.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Options {
    /// The Ignition config (JSON, 3.0.0 to 3.3.0) of its first boot.
    pub(crate) ignition: Option<String>,
    pub(crate) disk: Disk,
    pub(crate) variant: Variant,
    /// Of which release its system is.
    pub(crate) release: Release,
    /// Folders of the machine seen read-only in the host: from, to.
    pub(crate) binds: Vec<(PathBuf, String)>,
}

/// `host.json`: what the supervisor needs to know.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Plan {
    name: String,
    /// The control group, below the root of the cgroup2 hierarchy.
    group: String,
    netns: PathBuf,
    /// The last number of its address.
    number: u8,
    address: String,
    gateway: String,
    base: PathBuf,
    options: Options,
}

/// A host of a run.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    dir: PathBuf,
    plan: Plan,
    net: Net,
}

impl Host {
    /// Makes a host, which is off.
    ///
    /// # Errors
    /// There is one of that name, or the name is not `[a-z][a-z0-9]{0,8}`: more would not fit an interface's name.
    pub(crate) async fn create(run: &Run, name: &str, options: Options) -> Result<Self> {
        plain(name).map_err(anyhow::Error::msg)?;
        let base = Base::of(&run.cache, options.release).await?;
        let net = Net::of(run);
        let dir = run.host_dir(name);
        let plan = {
            let _lock = run.cache.lock("hosts").await?;
            if dir.exists() {
                bail!("there is a host {name} in run {} already", run.id);
            }
            let taken: Vec<u8> = Self::list(run).iter().map(|host| host.plan.number).collect();
            let number = (10..=250)
                .find(|number| !taken.contains(number))
                .context("no address is free")?;
            let plan = Plan {
                name: name.to_owned(),
                group: format!("{}/{name}", net.name),
                netns: net.file().context("the run's network is gone")?,
                number,
                address: net.address(number),
                gateway: net.gateway(),
                base: base.dir.clone(),
                options,
            };
            cache::private_dir(&dir)?;
            // It may hold a bootstrap token in its Ignition config.
            crate::run::secret(&dir.join("host.json"), &serde_json::to_vec(&plan)?)?;
            plan
        };
        let host = Self { dir, plan, net };
        host.make_root(&base).await?;
        Ok(host)
    }

    /// The host of that name.
    ///
    /// # Errors
    /// There is none.
    pub(crate) fn open(run: &Run, name: &str) -> Result<Self> {
        let names = || {
            Self::list(run)
                .into_iter()
                .map(|host| host.plan.name)
                .collect::<Vec<_>>()
                .join(", ")
        };
        Self::read(run, name)
            .with_context(|| format!("there is no host {name} in run {}; there are: {}", run.id, names()))
    }

    fn read(run: &Run, name: &str) -> Option<Self> {
        let dir = run.host_dir(name);
        let plan = read_plan(&dir).ok()?;
        Some(Self {
            dir,
            plan,
            net: Net::of(run),
        })
    }

    /// Every host of a run.
    pub(crate) fn list(run: &Run) -> Vec<Self> {
        let Ok(entries) = fs::read_dir(run.dir.join("hosts")) else {
            return Vec::new();
        };
        let mut hosts: Vec<_> = entries
            .filter_map(|entry| Self::read(run, entry.ok()?.file_name().to_str()?))
            .collect();
        hosts.sort_by_key(|host| host.plan.number);
        hosts
    }

    /// The name: of the host, and of its node.
    pub(crate) fn name(&self) -> &str {
        &self.plan.name
    }

    /// Its address on the run's network.
    pub(crate) fn address(&self) -> &str {
        &self.plan.address
    }

    /// What the host has said on its console.
    pub(crate) fn console(&self) -> PathBuf {
        self.dir.join("console")
    }

    async fn make_root(&self, base: &Base) -> Result<()> {
        let root = self.dir.join("root");
        fs::create_dir(&root)?;
        fs::set_permissions(&root, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
        if let Disk::Image(mebibytes) = self.plan.options.disk {
            let image = self.dir.join("disk.img");
            fs::File::create(&image)?.set_len(u64::from(mebibytes) << 20)?;
            let quick = "lazy_itable_init=1,lazy_journal_init=1";
            Command::line(&["mkfs.ext4", "-q", "-E", quick])
                .arg(&image)
                .run()
                .await?;
        }
        own(&["make-root"]).arg(&self.dir).arg(base.skeleton()).run().await
    }

    /// Boots it. Hands back as soon as systemd is about to run; `wait_booted` waits for the rest.
    ///
    /// # Errors
    /// It is on, or could not be put together: what the supervisor said is in the error.
    pub(crate) async fn start(&self) -> Result<()> {
        if self.is_on() {
            bail!("host {} is on", self.plan.name);
        }
        for stale in ["supervisor.json", "status"] {
            let _ = fs::remove_file(self.dir.join(stale));
        }
        self.unplug().await;
        let log = fs::File::create(self.dir.join("supervisor.log"))?;
        let mut supervisor = own(&["supervise"]).arg(&self.dir).into_inner();
        supervisor
            .kill_on_drop(false)
            .stdin(std::process::Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log);
        let mut child = supervisor.spawn().context("could not start a supervisor")?;
        wait::until_true(&format!("start of host {}", self.plan.name), LIFE, async || {
            if child.try_wait()?.is_some() {
                return Err(Stop(self.obituary()).into());
            }
            Ok(self.leader().is_some())
        })
        .await
    }

    /// Waits until the host has booted: basic.target reached, the extensions' services started.
    ///
    /// # Errors
    /// It died, or did not get there in time.
    pub(crate) async fn wait_booted(&self) -> Result<()> {
        self.wait_active(&["basic.target", "ensure-sysext.service", "containerd.service"], LIFE)
            .await
    }

    /// Waits until all these units are active.
    ///
    /// # Errors
    /// The host died, or one of them is not active in time.
    pub(crate) async fn wait_active(&self, units: &[&str], limit: Duration) -> Result<()> {
        let what = format!("{} active on host {}", units.join(", "), self.plan.name);
        wait::until_true(&what, limit, async || {
            if !self.is_on() {
                return Err(Stop(self.obituary()).into());
            }
            let states = self.exec(&[&["systemctl", "is-active"], units].concat()).await?.stdout;
            Ok(states.lines().count() == units.len() && states.lines().all(|state| state == "active"))
        })
        .await
    }

    /// When its systemd started, in UTC (`2026-01-31T23:59:59Z`).
    ///
    /// # Errors
    /// It died, or does not answer in time.
    pub(crate) async fn booted(&self) -> Result<String> {
        self.wait_active(&["basic.target"], LIFE).await?;
        let date = "date --utc +%FT%TZ --date=$(systemctl show --timestamp=unix --value --property=UserspaceTimestamp)";
        Ok(self.sh(date).await?.trim().to_owned())
    }

    /// Whether its supervisor lives.
    pub(crate) fn is_on(&self) -> bool {
        self.supervisor().is_some()
    }

    fn supervisor(&self) -> Option<Process> {
        let process: Process = serde_json::from_slice(&fs::read(self.dir.join("supervisor.json")).ok()?).ok()?;
        process.alive().then_some(process)
    }

    /// The host's first process, seen from outside: the only child of nspawn, the supervisor's only child.
    fn leader(&self) -> Option<Process> {
        let nspawn = Process::of(*self.supervisor()?.children().first()?)?;
        let name = fs::read_to_string(format!("/proc/{}/comm", nspawn.pid)).ok()?;
        (name.trim() == "systemd-nspawn").then_some(())?;
        Process::of(*nspawn.children().first()?)
    }

    /// What is known of a host that is off and should not be.
    fn obituary(&self) -> String {
        let read = |name: &str| fs::read_to_string(self.dir.join(name)).unwrap_or_default();
        let console = read("console");
        let end = console
            .lines()
            .rev()
            .take(5)
            .collect::<Vec<_>>()
            .into_iter()
            .rev()
            .collect::<Vec<_>>()
            .join(" | ");
        format!(
            "host {} is off: {} {end}",
            self.plan.name,
            read("supervisor.log").trim()
        )
    }

    /// Reboots it from inside and waits until it has booted again.
    ///
    /// # Errors
    /// It does not go down, or not come up again.
    pub(crate) async fn reboot(&self) -> Result<()> {
        self.reboot_by("systemctl reboot").await
    }

    /// As `reboot`, by a script of one's own.
    ///
    /// # Errors
    /// As `reboot`.
    pub(crate) async fn reboot_by(&self, script: &str) -> Result<()> {
        let before = self
            .leader()
            .with_context(|| format!("host {} is off", self.plan.name))?;
        // The answer may be lost with the bus.
        let _ = self.exec(&["bash", "-c", script]).await;
        wait::until_true(&format!("reboot of host {}", self.plan.name), LIFE, async || {
            Ok(self.leader().is_some_and(|leader| leader != before))
        })
        .await?;
        self.wait_booted().await
    }

    /// Powers it off from inside and waits until it is off.
    ///
    /// # Errors
    /// It does not go off in time.
    pub(crate) async fn poweroff(&self) -> Result<()> {
        let _ = self.exec(&["systemctl", "poweroff"]).await;
        wait::until_true(&format!("poweroff of host {}", self.plan.name), LIFE, async || {
            Ok(!self.is_on())
        })
        .await
    }

    /// Takes its power away, at one instant. With a disk image, what was not synced is lost.
    ///
    /// # Errors
    /// Its processes or control groups don't go.
    pub(crate) async fn power_cut(&self) -> Result<()> {
        own(&["cut"]).arg(&self.dir).run().await?;
        wait::until_true(&format!("end of host {}", self.plan.name), LIFE, async || {
            Ok(!self.is_on())
        })
        .await
    }

    /// Removes it, on or off.
    ///
    /// # Errors
    /// It can't be ended, or its folder can't be removed.
    pub(crate) async fn down(&self) -> Result<()> {
        self.power_cut().await?;
        // The kernel may keep its namespace for a minute, which answers for an address that the next host gets.
        self.unplug().await;
        self.forget_faults().await;
        cache::remove_tree(&self.dir)
    }
}

/// A name that a host may have.
pub(crate) fn plain(name: &str) -> Result<String, String> {
    let small = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    if !name.bytes().all(small) || name.len() > 9 || !name.starts_with(|first: char| first.is_ascii_lowercase()) {
        return Err("a host's name is a letter and up to eight letters or digits, all small".to_owned());
    }
    Ok(name.to_owned())
}

fn read_plan(dir: &Path) -> Result<Plan> {
    let text = fs::read(dir.join("host.json")).with_context(|| format!("no host in {}", dir.display()))?;
    Ok(serde_json::from_slice(&text)?)
}

/// This very program, asked to do a hidden verb of `supervisor.rs`: a process of its own, since it changes its namespaces.
fn own(verb: &[&str]) -> Command {
    Command::new("/proc/self/exe").arg("inner").args(verb)
}
