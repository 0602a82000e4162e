//! The operating system: which it is, its systemd, its tools, its services, and who we are on it.

use std::collections::BTreeMap;

use hostexec::Tool;

use crate::{
    config::Mistake,
    facts::{Gpu, OsRelease},
    model::Mode,
    preflight::{Check, Finding, Remedy, Seen},
};

/// What settings ask for that can't be: each under the check that is meant for its key.
#[must_use]
pub fn settings(mistakes: &[Mistake]) -> Vec<Finding> {
    let of = |key: &str| match key {
        "networking.localDNS" => Check::LocalDns,
        _ if key.starts_with("azure") => Check::ClusterCredentials,
        _ => Check::AgentConfig,
    };
    let mut found: Vec<Finding> = mistakes
        .iter()
        .map(|mistake| of(&mistake.key).mistaken(mistake))
        .collect();
    for (check, good) in [
        (
            Check::AgentConfig,
            "this release does all that the configuration asks for",
        ),
        (Check::ClusterCredentials, "kubelet has a credential"),
        (Check::LocalDns, "LocalDNS is not asked for"),
    ] {
        if !found.iter().any(|finding| finding.check == check) {
            found.push(check.ok(good));
        }
    }
    let unread = "this release does not read the AKS machine: the configuration is the goal";
    found.push(Check::AksMachineGoal.skip(unread));
    found
}

/// `is-privileged-user`
#[must_use]
pub fn user(effective: u32) -> Finding {
    const ROOT: Remedy = Remedy::new("run it as root");
    match effective {
        0 => Check::IsPrivilegedUser.ok("it runs as root"),
        _ => Check::IsPrivilegedUser.fail("it does not run as root", ROOT),
    }
}

/// What tells the three images of ACL apart. Source: acl-facts, head and section 4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ImageTraits {
    /// containerd comes by an extension in `/etc/extensions`.
    pub containerd_extension: bool,
    /// AKS' own extension is there.
    pub aks_extension: bool,
}

/// `host-image`
#[must_use]
pub fn host_image(os: &OsRelease, traits: &Seen<ImageTraits>) -> Finding {
    const OTHER: Remedy =
        Remedy::new("use Azure Container Linux, which this install is made for, or try first what you need of it");
    let check = Check::HostImage;
    if !os.is_acl() {
        return check
            .warn("the host is not Azure Container Linux", OTHER)
            .on("os-release");
    }
    let which = match traits {
        Err(why) => return check.unseen(why).on("/etc/extensions"),
        Ok(ImageTraits {
            aks_extension: true, ..
        }) => "the image of AKS",
        Ok(ImageTraits {
            containerd_extension: true,
            ..
        }) => "the gallery's image",
        Ok(ImageTraits { .. }) => "the flattened image, without extensions",
    };
    let version: String = os.version_id.chars().take(32).collect();
    check
        .ok(format!("Azure Container Linux, {which}"))
        .seen(format!("version {version}"))
}

/// Tools that a container install can't do without, besides those of `nspawn-runtime`.
const NEEDED: [Tool; 4] = [Tool::SystemdRun, Tool::Journalctl, Tool::Sysctl, Tool::Ctr];
/// Tools that the agent uses where the host gives cause to.
const AT_TIMES: [Tool; 10] = [
    Tool::Modprobe,
    Tool::Swapoff,
    Tool::Ip,
    Tool::Nft,
    Tool::Iptables,
    Tool::IptablesSave,
    Tool::Mount,
    Tool::Umount,
    Tool::Mountpoint,
    Tool::Findmnt,
];
/// The tools of `nspawn-runtime`. Source: node-agent specification, 4.2.
const RUNTIME: [Tool; 3] = [Tool::Systemctl, Tool::Machinectl, Tool::SystemdNspawn];

/// `host-tools`
#[must_use]
pub fn tools(has: &impl Fn(Tool) -> bool) -> Vec<Finding> {
    const NEED: Remedy = Remedy::new(
        "add the tool to the host, by an image or a system extension that has it: the agent installs nothing there",
    );
    const MAY_NEED: Remedy = Remedy::new(
        "add the tool to the host, by an image or a system extension that has it, unless you know that it is not needed there",
    );
    let check = Check::HostTools;
    let missing = |tools: &[Tool]| tools.iter().copied().filter(|tool| !has(*tool)).collect::<Vec<_>>();
    let needed = missing(&NEEDED).into_iter().map(|tool| {
        check
            .fail(
                format!("the host has no {}, and no node can be made without", tool.name()),
                NEED,
            )
            .on(tool.name())
    });
    let at_times = missing(&AT_TIMES).into_iter().map(|tool| {
        check
            .warn(
                format!("the host has no {}, which the agent uses at times", tool.name()),
                MAY_NEED,
            )
            .on(tool.name())
    });
    let found: Vec<_> = needed.chain(at_times).collect();
    if found.is_empty() {
        let all: Vec<_> = NEEDED.iter().chain(&AT_TIMES).map(|tool| tool.name()).collect();
        vec![check.ok("the host has every tool").seen(all.join(", "))]
    } else {
        found
    }
}

/// `nspawn-runtime`: tools, and a host that systemd booted.
#[must_use]
pub fn runtime(has: &impl Fn(Tool) -> bool, booted: &Seen<bool>, mode: Mode) -> Vec<Finding> {
    const NOT_BOOTED: Remedy = Remedy::new("run it on a host whose first process is systemd");
    const EXTENSION: Remedy = Remedy::new(
        "put systemd-container onto the host, by an image or a system extension (systemd-sysext) that has it: not every image of Azure \
         Container Linux has systemd-nspawn and machinectl, and the agent installs nothing there",
    );
    const PACKAGE: Remedy = Remedy::new("install the package systemd-container");
    let check = Check::NspawnRuntime;
    let lacks = |tool: &Tool| {
        let message = format!("the host has no {}, and no machine can run without", tool.name());
        match mode {
            Mode::Container => check.fail(message, EXTENSION),
            Mode::Binary => check.warn(message, PACKAGE),
        }
        .on(tool.name())
    };
    let mut found: Vec<_> = RUNTIME.iter().filter(|tool| !has(**tool)).map(lacks).collect();
    match booted {
        Ok(true) => {}
        Ok(false) => found.push(
            check
                .fail("systemd did not boot this host", NOT_BOOTED)
                .on("/run/systemd/system"),
        ),
        Err(why) => found.push(check.unseen(why).on("/run/systemd/system")),
    }
    found
}

/// `nspawn-runtime`, if nothing is missing: whether systemd answers, and machined if it runs.
#[must_use]
pub fn machined(answer: &Seen<()>) -> Finding {
    const MUTE: Remedy = Remedy::new(
        "see `systemctl status dbus systemd-machined` and the journal on the host; with SELinux enforcing, see the check selinux, too",
    );
    let check = Check::NspawnRuntime;
    match answer {
        Ok(()) => check.ok("machines can run"),
        Err(why) => check
            .fail(format!("systemd gives no answer: {why}"), MUTE)
            .on("systemd"),
    }
}

/// `systemd-version`, from `systemctl --version`.
#[must_use]
pub fn systemd_version(seen: &Seen<String>) -> Finding {
    /// For `MONITOR_*` of units that `OnFailure=` starts. Source: systemd.exec(5), "Environment Variables Set or Propagated".
    const LEAST: u32 = 251;
    /// For `RestartSteps=` and `DelegateSubgroup=`. Source: systemd.service(5), systemd.resource-control(5).
    const WHOLE: u32 = 254;
    const OLD: Remedy = Remedy::new("use a host with systemd 255 or later");
    let check = Check::SystemdVersion;
    let text = match seen {
        Ok(text) => text,
        Err(why) => return check.unseen(why),
    };
    let version: Option<u32> = text
        .split_whitespace()
        .nth(1)
        .and_then(|word| word.split(|letter: char| !letter.is_ascii_digit()).next()?.parse().ok());
    match version {
        None => check.warn("systemd does not tell its version", OLD),
        Some(version @ ..LEAST) => check.fail(
            format!("systemd is {version}: a recovery is not told which start failed before {LEAST}"),
            OLD,
        ),
        Some(version @ ..WHOLE) => check.warn(
            format!("systemd is {version}: pauses between tries don't grow, and a unit's own group is not set apart, before {WHOLE}"),
            OLD,
        ),
        Some(version) => check
            .ok("systemd knows every directive of the agent's units")
            .seen(format!("systemd {version}: RestartSteps=, DelegateSubgroup=, MONITOR_*")),
    }
}

/// Whether SELinux enforces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Enforcement {
    /// The kernel has none, or it is off.
    Off,
    /// It only logs.
    Permissive,
    /// It denies.
    Enforcing,
}

/// `selinux`; `answered`: whether systemd answered over D-Bus.
#[must_use]
pub fn selinux(seen: &Seen<Enforcement>, answered: &Seen<()>) -> Finding {
    /// Source: node-agent specification, 11.8; acl-facts, section 7.
    const RULE: Remedy = Remedy::new(
        "use an image whose policy has `allow spc_t kernel_t:dbus send_msg;`, or, where the host's services run in domains of their own, the \
         same for init_t, system_dbusd_t and systemd_machined_t",
    );
    let check = Check::Selinux;
    match (seen, answered) {
        (Err(why), _) => check.unseen(why),
        (Ok(Enforcement::Off), _) => check.ok("SELinux is off"),
        (Ok(Enforcement::Permissive), _) => check.ok("SELinux only logs").seen("permissive"),
        (Ok(Enforcement::Enforcing), Ok(())) => check
            .ok("SELinux enforces, and lets the agent speak to systemd")
            .seen("enforcing"),
        (Ok(Enforcement::Enforcing), Err(_)) => check
            .fail(
                "SELinux enforces, and systemd gives the agent no answer over D-Bus",
                RULE,
            )
            .seen("enforcing"),
    }
}

/// What systemd says of a unit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitState {
    /// `ActiveState=`
    pub active: String,
}

/// Units by their names, from `systemctl show --property=Id,ActiveState`: blocks with a blank line between.
#[must_use]
pub fn units(text: &str) -> BTreeMap<String, UnitState> {
    let value = |block: &str, key| block.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned);
    text.split("\n\n")
        .filter_map(|block| {
            let active = value(block, "ActiveState=")?;
            Some((value(block, "Id=")?, UnitState { active }))
        })
        .collect()
}

/// `docker-active`, `containerd-active`, `kubelet-active`
#[must_use]
pub fn unit(check: Check, name: &str, seen: &Seen<BTreeMap<String, UnitState>>) -> Finding {
    const RUNS: Remedy = Remedy::new("move what needs it to another host: `start` stops the service and masks it");
    const UNKNOWN: Remedy = Remedy::new("see `systemctl status` of the service on the host");
    match seen.as_ref().map(|units| units.get(name)) {
        Err(why) => check.unseen(why),
        Ok(None) => check.warn("systemd does not say whether it runs", UNKNOWN),
        Ok(Some(state)) => match state.active.as_str() {
            "inactive" | "failed" => check.ok("it does not run").seen(state.active.as_str()),
            active => check
                .warn("it runs on the host, beside the one of the machine", RUNS)
                .seen(active),
        },
    }
    .on(name)
}

/// Where the host's containerd reads its configuration, from `systemctl show --property=Environment,ExecStart`: what its
/// unit says, or its own default. Source: acl-facts, section 6.
#[must_use]
pub fn containerd_config(unit: &str) -> &str {
    let words = || unit.split([' ', ';', '"', '\n', '=']);
    let behind = |word: &str| {
        let mut words = words().skip_while(|found| *found != word).skip(1);
        words.next().filter(|path| path.starts_with('/'))
    };
    behind("CONTAINERD_CONFIG")
        .or_else(|| behind("--config"))
        .or_else(|| behind("-c"))
        .unwrap_or("/etc/containerd/config.toml")
}

/// `containerd-sync`: field case P4. Both answers are good, for the agent syncs what it pulls.
#[must_use]
pub fn containerd_sync(seen: &Seen<Option<String>>) -> Finding {
    let check = Check::ContainerdSync;
    match seen {
        Err(why) => check.unseen(why),
        Ok(text) => {
            let on = text.as_deref().is_some_and(|text| {
                let mut lines = text.lines().map(|line| line.replace(' ', ""));
                lines.any(|line| line == "image_pull_with_sync_fs=true")
            });
            if on {
                check
                    .ok("the host's containerd syncs what it unpacks")
                    .seen("image_pull_with_sync_fs is on")
            } else {
                check
                    .ok("the host's containerd does not sync what it unpacks; the agent syncs its own images")
                    .seen("image_pull_with_sync_fs is off")
            }
        }
    }
}

/// `nvidia-driver`
#[must_use]
pub fn gpu(gpu: Gpu, on_bus: &Seen<bool>, mode: Mode) -> Finding {
    const NOT_HERE: Remedy =
        Remedy::new("use a host without a GPU: the install by image does not wire one into its machine");
    const DRIVER: Remedy = Remedy::new("install NVIDIA's driver, so that /dev/nvidia* is there");
    let check = Check::NvidiaDriver;
    let there = match (gpu, on_bus) {
        (Gpu::Nvidia, _) | (_, Ok(true)) => true,
        (Gpu::None, Ok(false)) => false,
        (Gpu::None, Err(why)) => return check.unseen(why),
    };
    match (mode, there, gpu) {
        (_, false, _) => check.ok("the host has no GPU of NVIDIA"),
        (Mode::Container, true, _) => check.fail("the host has a GPU of NVIDIA", NOT_HERE),
        (Mode::Binary, true, Gpu::Nvidia) => check.ok("the host has a GPU of NVIDIA, and its driver"),
        (Mode::Binary, true, Gpu::None) => check.fail("the host has a GPU of NVIDIA without a driver", DRIVER),
    }
}
