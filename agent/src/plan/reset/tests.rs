use std::collections::BTreeMap;

use image::Digest;

use super::*;
use crate::ledger::UnitWas;

fn path(text: &'static str) -> HostPath {
    HostPath::fixed(text)
}

/// A host that has joined, as a look finds it.
fn found() -> Remains {
    let mut there: BTreeSet<HostPath> = [
        "/etc/aks-flex-node/config.json",
        "/etc/aks-flex-node/daemon-state.json",
        "/etc/aks-flex-node/before",
        "/etc/aks-flex-node/ledger.json",
        "/etc/aks-flex-node/reset.json",
        "/etc/aks-flex-node/bootstrap.env",
        "/etc/systemd/nspawn/kube1.nspawn",
        "/etc/systemd/system/aks-flex-node-agent.service",
        "/etc/systemd/system/multi-user.target.wants/aks-flex-node-agent.service",
        "/etc/systemd/system/nftables-flush.service",
        "/etc/systemd/system/systemd-nspawn@kube1.service.d/override.conf",
        "/etc/systemd/system/systemd-nspawn@kube1.service.wants/nftables-flush.service",
        "/etc/unbounded/kube/nftables-clear.nft",
        "/run/aks-flex-node-agent-upgrade.lock",
        "/var/log/aks-flex-node/aks-flex-node.log",
        "/var/log/journal/0f",
    ]
    .map(path)
    .into();
    there.insert(names::unpacking(MachineName::Kube2));
    Remains {
        there,
        machines: BTreeMap::from([
            (MachineName::Kube1, Folder::Ours),
            (MachineName::Kube2, Folder::Unmarked),
        ]),
        mounts: vec![(names::bpffs(MachineName::Kube1), "bpf".into())],
        interfaces: ["lo", "host0", "cni0", "wg0", "wg1"].map(str::to_owned).into(),
        unread: Vec::new(),
    }
}

fn ledger() -> Ledger {
    let mut ledger = Ledger::begun(vec!["lo".into(), "host0".into(), "wg0".into()]);
    let digest = |text: &str| Digest::of(text.as_bytes());
    let was = |state: &str, active| UnitWas {
        state: state.into(),
        active,
    };
    for thing in [
        Thing::File {
            path: path("/etc/fstab"),
            written: vec![digest("ours")],
            before: Before::File(digest("theirs")),
        },
        Thing::File {
            path: names::SYSCTLS,
            written: vec![digest("x")],
            before: Before::Nothing,
        },
        Thing::File {
            path: names::settings(MachineName::Kube1),
            written: vec![digest("y")],
            before: Before::Nothing,
        },
        Thing::Parent {
            path: path("/etc/aks-flex-node"),
        },
        Thing::Parent {
            path: path("/etc/docker"),
        },
        Thing::Unit {
            unit: "docker.service".into(),
            was: was("enabled", true),
        },
        Thing::Sysctl {
            key: "net.ipv4.ip_forward".into(),
            value: "1".into(),
            was: "0".into(),
        },
        Thing::Sysctl {
            key: "vm.panic_on_oom".into(),
            value: "0".into(),
            was: "0".into(),
        },
        Thing::Firewall {
            unit: "iptables.service".into(),
        },
        Thing::Log {
            path: path("/srv/log/aks-flex-node.log"),
        },
    ] {
        ledger.add(thing);
    }
    ledger
}

fn shown(plan: &[Removal]) -> String {
    plan.iter().map(|removal| format!("{removal:?}\n")).collect()
}

#[test]
fn a_whole_reset_is_as_reviewed() {
    insta::assert_snapshot!(shown(&reset(&found(), Some(&ledger()), Scope::All)));
}

#[test]
fn of_the_node_alone_nothing_goes_that_the_agent_needs() {
    let plan = reset(&found(), Some(&ledger()), Scope::Node);
    for removal in &plan {
        let of_agent = |path: &HostPath| path.is_within(&names::ETC) || names::is_agents_unit(path);
        match removal {
            Removal::Gone { path } | Removal::EmptyFolder { path } => assert!(!of_agent(path), "{path}"),
            Removal::Stopped { unit } => assert!(!names::running().contains(unit), "{unit}"),
            Removal::Containers => panic!("{removal:?}"),
            Removal::MachineOff { .. }
            | Removal::Unmounted { .. }
            | Removal::MachineFolder { .. }
            | Removal::PutBack { .. }
            | Removal::UnitAsBefore { .. }
            | Removal::SysctlAsBefore { .. }
            | Removal::Interface { .. }
            | Removal::Chains
            | Removal::Routes
            | Removal::FirewallAnew { .. }
            | Removal::Reload { .. } => {}
        }
    }
    assert!(plan.iter().any(|removal| matches!(removal, Removal::MachineOff { .. })));
}

#[test]
fn no_boot_joins_anew_once_a_reset_has_begun_and_the_ledger_goes_last() {
    let plan = reset(&found(), Some(&ledger()), Scope::All);
    let at = |path: &HostPath| {
        let is = |removal: &Removal| matches!(removal, Removal::Gone { path: gone } if gone == path);
        plan.iter().position(is).unwrap_or_else(|| panic!("{path} does not go"))
    };
    let machine = plan
        .iter()
        .position(|removal| matches!(removal, Removal::MachineOff { .. }));
    assert!(Some(at(&names::INPUTS[0])) < machine);
    // With the agent's unit a boot goes on, for as long as the record is there.
    assert!(machine < Some(at(&names::AGENT_WANTED)));
    let last = at(&names::LEDGER);
    assert!(at(&names::AGENT_WANTED) < at(&names::RECORD) && at(&names::RECORD) < last);
    let after = &plan[last + 1..];
    assert_eq!(after, [Removal::EmptyFolder { path: names::ETC }]);
    for file in plan.iter().filter(|removal| is_last(removal)) {
        assert!(matches!(file, Removal::Gone { path } if names::LAST.contains(path)));
    }
}

#[test]
fn fc_x4_what_others_have_under_our_names_stays() {
    let mut bare = Remains {
        machines: BTreeMap::from([(MachineName::Kube1, Folder::Unmarked)]),
        interfaces: vec!["cni0".into(), "wg0".into()],
        ..Remains::default()
    };
    let text = shown(&reset(&bare, None, Scope::All));
    assert!(
        !text.contains("Interface") && !text.contains("Machine") && !text.contains("Containers"),
        "{text}"
    );
    assert_eq!(left_alone(&bare, None)[0].0, "/var/lib/machines/kube1");
    // The mark went with a reset that was cut: the ledger knows.
    let mut ledger = Ledger::default();
    ledger.add(Thing::Machine {
        machine: MachineName::Kube1,
    });
    let text = shown(&reset(&bare, Some(&ledger), Scope::All));
    assert!(
        text.contains("MachineFolder") && text.contains("\"cni0\"") && !text.contains("wg0"),
        "{text}"
    );
    assert!(left_alone(&bare, Some(&ledger)).is_empty());
    bare.machines.clear();
    assert!(!is_node(&bare, None));
}

#[test]
fn names_of_the_install_are_nobodys_to_remove() {
    for name in [units::name::BOOTSTRAP, units::name::RESET] {
        assert!(!names::is_unit(name) && !names::is_link(name));
    }
    assert!(names::is_link("systemd-nspawn@kube2.service") && !names::is_link("systemd-nspawn@other.service"));
    for ours in [
        "config.json",
        "agent-image.env",
        "daemon-credentials",
        "agent-upgrade-signal.json.unreadable.2",
    ] {
        assert!(names::is_in_etc(ours), "{ours}");
    }
    assert!(!names::is_in_etc("notes.txt") && !names::is_in_run("aks-flex-node-reset.lock"));
}
