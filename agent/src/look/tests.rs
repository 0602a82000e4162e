use std::{collections::BTreeMap, fs, os::unix::fs::PermissionsExt as _, path::Path};

use super::*;
use crate::{
    config,
    model::MachineName,
    observe,
    plan::{self, Goal},
    preflight::Verdict,
};

/// A host below a folder, on which nothing is in the way but what a folder can't have.
struct Stub {
    dir: tempfile::TempDir,
}

/// Answers as systemd on a host where nothing of ours runs.
const SYSTEMCTL: &str = "case \"$*\" in
    --version) echo 'systemd 255 (255-27.acl1)' ;;
    *docker*) for unit in docker containerd kubelet systemd-machined; do printf 'Id=%s.service\\nActiveState=inactive\\n\\n' $unit; done ;;
    *) echo 'Environment=CONTAINERD_CONFIG=/etc/containerd/config.toml' ;;
esac";

impl Stub {
    fn new() -> Self {
        let stub = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        for (path, text) in [
            (
                "etc/os-release",
                "ID=azurelinux\nVARIANT_ID=azurecontainerlinux\nVERSION_ID=3.0.20260809\n",
            ),
            ("etc/hostname", "edge-1\n"),
            ("etc/containerd/config.toml", "version = 2\n"),
            ("etc/extensions/containerd-flatcar.raw", ""),
            ("proc/meminfo", "MemTotal:        4028752 kB\n"),
            ("proc/cpuinfo", "processor\t: 0\n"),
            ("proc/swaps", "Filename\tType\tSize\tUsed\tPriority\n"),
            ("proc/1/net/tcp", "  sl  local_address\n"),
            ("sys/fs/cgroup/cgroup.controllers", "cpu memory\n"),
        ] {
            stub.write(path, text, 0o644);
        }
        for folder in ["etc/systemd/system", "var/lib", "run/systemd/system"] {
            fs::create_dir_all(stub.dir.path().join(folder)).unwrap();
        }
        for tool in hostexec::Tool::ALL {
            stub.tool(tool.name(), "exit 0");
        }
        stub.tool("systemctl", SYSTEMCTL);
        stub
    }

    fn write(&self, path: &str, text: &str, mode: u32) {
        let path = hostexec::HostPath::new(format!("/{path}")).unwrap();
        Host::rooted(self.dir.path())
            .write(&path, text.as_bytes(), mode)
            .unwrap();
    }

    fn tool(&self, name: &str, script: &str) {
        self.write(&format!("usr/bin/{name}"), &format!("#!/bin/sh\n{script}\n"), 0o755);
    }

    fn subject(&self) -> Subject {
        let host = Host::rooted(self.dir.path());
        let settings = config::tests::sample();
        let facts = observe::facts(&host).unwrap();
        let goal = Goal::of(&settings, &facts, MachineName::FIRST).unwrap();
        let programs = plan::Programs::of(&settings, None).unwrap();
        let plan = plan::start(
            &goal,
            &programs,
            &facts,
            settings.routing(),
            &units::AgentUnit::default(),
        )
        .unwrap();
        Subject {
            host,
            mode: Mode::Container,
            settings,
            facts,
            plan: Some(plan),
        }
    }

    /// What these checks find, by check and target: `ok`, `skipped`, `warning` or `error`.
    async fn found(&self, checks: &[Check]) -> BTreeMap<(Check, String), &'static str> {
        let found = look(&self.subject(), &Only::these(checks.to_vec())).await;
        found
            .into_iter()
            .map(|finding| {
                let verdict = match finding.verdict {
                    Verdict::Ok => "ok",
                    Verdict::Skipped => "skipped",
                    Verdict::Warning(_) => "warning",
                    Verdict::Error(_) => "error",
                };
                ((finding.check, finding.target.unwrap_or_default()), verdict)
            })
            .collect()
    }

    /// The targets of this check that are no `ok`.
    async fn bad(&self, check: Check) -> Vec<String> {
        let found = self.found(&[check]).await;
        assert!(!found.is_empty(), "{check:?}");
        found
            .into_iter()
            .filter(|(_, verdict)| *verdict != "ok")
            .map(|((_, target), _)| target)
            .collect()
    }
}

/// What can be judged below a folder, wherever the tests run.
const HERE: [Check; 18] = [
    Check::HostImage,
    Check::HostOsConfiguration,
    Check::HostTargets,
    Check::HostTools,
    Check::NspawnRuntime,
    Check::SystemdVersion,
    Check::Selinux,
    Check::DockerActive,
    Check::KubeletActive,
    Check::ContainerdSync,
    Check::SwapActive,
    Check::Cgroups,
    Check::KernelSettings,
    Check::Firewall,
    Check::NvidiaDriver,
    Check::ExistingDeployment,
    Check::KubeletBindAddress,
    Check::ContainerdMetricsBindAddress,
];

/// Every path below a folder, and of each what a change would show.
fn snapshot(dir: &Path) -> BTreeMap<String, (u32, std::time::SystemTime, Vec<u8>)> {
    let mut all = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let found = fs::symlink_metadata(&path).unwrap();
        if found.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        let bytes = if found.is_file() {
            fs::read(&path).unwrap()
        } else {
            Vec::new()
        };
        all.insert(
            path.display().to_string(),
            (found.permissions().mode(), found.modified().unwrap(), bytes),
        );
    }
    all
}

#[tokio::test]
async fn a_host_with_nothing_in_the_way_is_all_ok_and_stays_as_it_is() {
    let stub = Stub::new();
    let before = snapshot(stub.dir.path());
    let found = stub.found(&HERE).await;
    let bad: Vec<_> = found.iter().filter(|(_, verdict)| **verdict != "ok").collect();
    assert!(bad.is_empty() && found.len() == HERE.len(), "{found:#?}");
    assert_eq!(snapshot(stub.dir.path()), before);
}

#[tokio::test]
async fn what_is_wrong_with_a_host_is_seen_where_it_is() {
    let stub = Stub::new();
    stub.write("proc/swaps", "Filename\n/swapfile file 1 0 -2\n", 0o644);
    assert_eq!(stub.bad(Check::SwapActive).await.len(), 1);
    stub.write(
        "proc/1/net/tcp",
        "  sl\n   0: 00000000:280A 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 777 1\n",
        0o644,
    );
    fs::create_dir_all(stub.dir.path().join("proc/42/fd")).unwrap();
    std::os::unix::fs::symlink("socket:[777]", stub.dir.path().join("proc/42/fd/3")).unwrap();
    stub.write("proc/42/comm", "squatter\n", 0o644);
    let held = look(&stub.subject(), &Only::these(vec![Check::KubeletBindAddress])).await;
    assert_eq!(held[0].message, "the port is taken by squatter");
    stub.write("sys/fs/selinux/enforce", "1", 0o644);
    assert_eq!(stub.bad(Check::Selinux).await.len(), 0);
    stub.write("sys/bus/pci/devices/0001/vendor", "0x10de\n", 0o644);
    stub.write("sys/bus/pci/devices/0001/class", "0x030200\n", 0o644);
    assert_eq!(stub.bad(Check::NvidiaDriver).await.len(), 1);
    stub.write("etc/systemd/system/aks-flex-node-agent.service", "", 0o644);
    stub.write("var/lib/machines/kube2/etc/os-release", "", 0o644);
    assert_eq!(
        stub.bad(Check::ExistingDeployment).await,
        [
            "/etc/systemd/system/aks-flex-node-agent.service",
            "/var/lib/machines/kube2"
        ]
    );
    stub.write("proc/1/net/ip_tables_names", "filter\n", 0o644);
    stub.tool("iptables", "[ \"$*\" = -S ] && echo '-P FORWARD DROP'");
    assert_eq!(stub.bad(Check::Firewall).await, ["policy of forward"]);
    stub.write("var/lib/machines/kube1", "no folder", 0o644);
    assert_eq!(
        stub.bad(Check::NspawnMachineProvisioning).await,
        ["/var/lib/machines/kube1"]
    );
}

#[tokio::test]
async fn fc_h6_tools_that_are_missing_are_named_at_once() {
    let stub = Stub::new();
    for tool in ["systemd-nspawn", "machinectl", "ctr", "nft"] {
        fs::remove_file(stub.dir.path().join("usr/bin").join(tool)).unwrap();
    }
    assert_eq!(stub.bad(Check::NspawnRuntime).await, ["machinectl", "systemd-nspawn"]);
    assert_eq!(stub.bad(Check::HostTools).await, ["ctr", "nft"]);
}

#[tokio::test]
async fn a_systemd_that_does_not_answer_hangs_nothing() {
    let stub = Stub::new();
    stub.tool("systemctl", "exec sleep 60");
    let began = std::time::Instant::now();
    let found = stub.found(&HERE).await;
    assert!(began.elapsed() < LIMIT, "{:?}", began.elapsed());
    let bad: Vec<_> = found
        .iter()
        .filter(|(_, verdict)| **verdict != "ok")
        .map(|((check, _), _)| *check)
        .collect();
    assert_eq!(
        bad,
        [
            Check::NspawnRuntime,
            Check::SystemdVersion,
            Check::DockerActive,
            Check::KubeletActive,
            Check::ContainerdSync
        ]
    );
}

#[tokio::test]
async fn only_what_is_asked_for_is_looked_at() {
    let stub = Stub::new();
    let found = stub.found(&[Check::SwapActive]).await;
    assert_eq!(found.len(), 1);
    assert!(Only::default().has(Check::Dns));
}
