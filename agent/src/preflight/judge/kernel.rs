//! What the kernel holds: swap, groups, settings, listeners, packet filters.

use std::collections::BTreeSet;

use units::host::Family;

use crate::preflight::{Check, Finding, Remedy, Seen};

/// `swap-active`, from `/proc/swaps`. Source: proc_swaps(5): a line of titles, then one a swap.
#[must_use]
pub fn swap(seen: &Seen<String>) -> Finding {
    const ON: Remedy = Remedy::new(
        "`start` turns it off and keeps it off; to do so yourself, run `swapoff -a` and take it out of /etc/fstab",
    );
    let check = Check::SwapActive;
    match seen {
        Err(why) => check.unseen(why).on("/proc/swaps"),
        Ok(text) => match text.lines().skip(1).filter(|line| !line.trim().is_empty()).count() {
            0 => check.ok("no swap is on"),
            count => check
                .warn("swap is on, and kubelet does not start with it", ON)
                .seen(format!("{count} active")),
        },
    }
}

/// How the kernel's control groups are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hierarchy {
    /// Nothing is mounted.
    Absent,
    /// One tree a controller.
    Legacy,
    /// One tree.
    Unified,
}

/// `cgroups`
#[must_use]
pub fn cgroups(seen: &Seen<Hierarchy>) -> Finding {
    const ABSENT: Remedy = Remedy::new("mount control groups at /sys/fs/cgroup, as systemd does at boot");
    const LEGACY: Remedy = Remedy::new(
        "boot with one tree of control groups (version 2): take systemd.unified_cgroup_hierarchy=0 off the kernel's command line",
    );
    let check = Check::Cgroups;
    match seen {
        Err(why) => check.unseen(why),
        Ok(Hierarchy::Unified) => check.ok("control groups are version 2"),
        Ok(Hierarchy::Absent) => check.fail("there are no control groups", ABSENT),
        Ok(Hierarchy::Legacy) => check.fail(
            "control groups are version 1, and the agent's units and machines need version 2",
            LEGACY,
        ),
    }
    .on("/sys/fs/cgroup")
}

/// A kernel setting that a node needs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    /// Its dotted name.
    pub key: &'static str,
    /// What it must be.
    pub wanted: &'static str,
    /// What it is; none where the kernel doesn't have it, as long as its module isn't loaded.
    pub found: Option<String>,
    /// Whether `start` could change it.
    pub writable: bool,
}

/// `kernel-settings`: field case N6.
#[must_use]
pub fn kernel_settings(seen: &Seen<Vec<Setting>>) -> Vec<Finding> {
    const READ_ONLY: Remedy = Remedy::new("set it on the host (`sysctl -w`), or let /proc/sys of the host be written");
    let check = Check::KernelSettings;
    let settings = match seen {
        Ok(settings) => settings,
        Err(why) => return vec![check.unseen(why).on("/proc/sys")],
    };
    let differ = |setting: &&Setting| {
        setting
            .found
            .as_deref()
            .is_some_and(|found| found.trim() != setting.wanted)
    };
    let bad: Vec<_> = settings
        .iter()
        .filter(differ)
        .filter(|setting| !setting.writable)
        .map(|Setting { key, wanted, found, .. }| {
            let found = found.as_deref().unwrap_or_default().trim();
            let message = format!("it is {found}, must be {wanted}, and can only be read");
            check.fail(message, READ_ONLY).on(*key)
        })
        .collect();
    if bad.is_empty() {
        let evidence = format!(
            "{} of {} are to be changed",
            settings.iter().filter(differ).count(),
            settings.len()
        );
        vec![
            check
                .ok("kernel settings are right, or `start` sets them")
                .seen(evidence),
        ]
    } else {
        bad
    }
}

/// Who listens on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// The process' name, where it is known.
    pub process: Option<String>,
}

/// The inode of the socket that listens on `port`, from `/proc/net/tcp` or `tcp6`. Source: proc_pid_net(5); `0A` is `TCP_LISTEN`.
#[must_use]
pub fn listener(table: &str, port: u16) -> Option<u64> {
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let local = fields.get(1)?.rsplit_once(':')?.1;
        let listens = *fields.get(3)? == "0A" && u16::from_str_radix(local, 16) == Ok(port);
        listens.then(|| fields.get(9)?.parse().ok()).flatten()
    })
}

/// `kubelet-bind-address`
#[must_use]
pub fn kubelet_port(seen: &Seen<Option<Holder>>) -> Finding {
    port(Check::KubeletBindAddress, 10250, seen)
}

/// `containerd-metrics-bind-address`
#[must_use]
pub fn metrics_port(seen: &Seen<Option<Holder>>) -> Finding {
    port(Check::ContainerdMetricsBindAddress, 10257, seen)
}

fn port(check: Check, port: u16, seen: &Seen<Option<Holder>>) -> Finding {
    const TAKEN: Remedy =
        Remedy::new("stop what listens there, and keep it from starting again: the machine shares the host's network");
    match seen {
        Err(why) => check.unseen(why),
        Ok(None) => check.ok("nobody listens there"),
        Ok(Some(Holder { process: Some(name) })) => check.fail(format!("the port is taken by {name}"), TAKEN),
        Ok(Some(Holder { process: None })) => check.fail("the port is taken", TAKEN),
    }
    .on(format!("TCP port {port}"))
}

/// `firewall`, from what `iptables -S` and `nft list chains` print; nothing where the kernel holds no filter. `opened`: the firewalls that
/// `start` opens, which are iptables' own.
#[must_use]
pub fn firewall(seen: &Seen<Vec<String>>, opened: &[Family]) -> Vec<Finding> {
    const FORWARD: Remedy = Remedy::new(
        "let the firewall forward pods' traffic: set the policy of FORWARD to accept, or accept the pods' and the nodes' ranges there",
    );
    const INPUT: Remedy =
        Remedy::new("let the firewall accept TCP 10250 and the traffic of the cluster's network from other nodes");
    let check = Check::Firewall;
    let texts = match seen {
        Ok(texts) => texts,
        Err(why) => return vec![check.unseen(why)],
    };
    let dropping: BTreeSet<(&str, Whose)> = texts.iter().flat_map(|text| dropping(text)).collect();
    let stays = |hook: &str| {
        dropping.contains(&(hook, Whose::Others)) || (opened.is_empty() && dropping.contains(&(hook, Whose::Iptables)))
    };
    let found: Vec<_> = [
        ("forward", FORWARD, "pods can't reach anything outside their node"),
        ("input", INPUT, "the API server can't reach kubelet"),
    ]
    .into_iter()
    .filter(|(hook, ..)| stays(hook))
    .map(|(hook, remedy, comes)| {
        let message = format!("the firewall drops what no rule accepts: without rules for the cluster, {comes}");
        check.warn(message, remedy).on(format!("policy of {hook}"))
    })
    .collect();
    match (found.is_empty(), dropping.is_empty()) {
        (false, _) => found,
        (true, true) => vec![check.ok("the firewall drops nothing by default")],
        (true, false) => vec![check.ok("the firewall drops by default, and `start` lets a node's traffic through")],
    }
}

/// Whose chain it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Whose {
    /// One of iptables' own, of either kind.
    Iptables,
    /// Somebody's, in nftables.
    Others,
}

/// Which hooks drop by policy, and by whose.
fn dropping(text: &str) -> Vec<(&'static str, Whose)> {
    let name = |word: &str| {
        ["forward", "input"]
            .into_iter()
            .find(|hook| hook.eq_ignore_ascii_case(word))
    };
    let mut chain = Whose::Others;
    let mut found = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split([' ', '\t', ';']).filter(|word| !word.is_empty()).collect();
        match words[..] {
            // iptables: `-P FORWARD DROP`
            ["-P", chain, "DROP"] => found.extend(name(chain).map(|hook| (hook, Whose::Iptables))),
            ["chain", "FORWARD" | "INPUT", "{"] => chain = Whose::Iptables,
            ["chain", _, "{"] => chain = Whose::Others,
            // nft: `type filter hook forward priority filter; policy drop;`
            ["type", "filter", "hook", hook, .., "policy", "drop"] => {
                found.extend(name(hook).map(|hook| (hook, chain)))
            }
            _ => {}
        }
    }
    found
}
