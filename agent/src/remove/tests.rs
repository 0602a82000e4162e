use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Instant;

use hostexec::HostPath;
use image::Digest;

use super::*;
use crate::ledger::{Before, Thing};
use crate::observe;
use crate::removal::{Report, Scope};
use crate::store;

/// A host with these tools, each a line of shell.
fn host(tools: &[(&str, &str)]) -> (tempfile::TempDir, Host) {
    let dir = tempfile::tempdir().unwrap();
    let host = Host::rooted(dir.path());
    for (tool, script) in tools {
        let path = HostPath::new(format!("/usr/bin/{tool}")).unwrap();
        host.write(&path, format!("#!/bin/sh\n{script}\n").as_bytes(), 0o755)
            .unwrap();
    }
    (dir, host)
}

/// Every unit is stopped.
const STILL: (&str, &str) = ("systemctl", "[ $1 != show ] || echo inactive");

async fn reset(host: &Host) -> Report {
    let ledger = store::ledger::load(host).ok().flatten();
    let found = observe::remains(host);
    let plan = reset::reset(&found, ledger.as_ref(), Scope::All);
    run(&plan, host, &found, ledger.as_ref()).await
}

fn write(host: &Host, path: &str, text: &str) {
    host.write(&HostPath::new(path).unwrap(), text.as_bytes(), 0o644)
        .unwrap();
}

fn all(dir: &std::path::Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![dir.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).unwrap().flatten() {
            if entry.file_type().unwrap().is_dir() {
                folders.push(entry.path());
            }
            found.push(entry.path().strip_prefix(dir).unwrap().display().to_string());
        }
    }
    found.sort();
    found
}

#[tokio::test]
async fn a_host_without_anything_is_told_so_and_nothing_is_made_there() {
    let (dir, host) = host(&[STILL]);
    fs::create_dir_all(dir.path().join("run")).unwrap();
    let before = all(dir.path());
    let report = reset(&host).await;
    assert_eq!(report, Report::default());
    assert_eq!(all(dir.path()), before);
    let (_dir, bare) = self::host(&[]);
    assert_eq!(reset(&bare).await, Report::default());
}

#[tokio::test]
async fn fc_x3_fc_x6_files_and_folders_of_ours_go_and_what_others_put_into_them_is_told() {
    let (dir, host) = host(&[STILL]);
    for foreign in [
        "/etc/aks-flex-node/notes.txt",
        "/etc/systemd/system/systemd-nspawn@kube1.service.d/mine.conf",
    ] {
        write(&host, foreign, "mine");
    }
    write(&host, "/etc/systemd/system/static-routes.service", "[Service]\n");
    fs::create_dir_all(dir.path().join("var/lib/machines/other/etc")).unwrap();
    let before = all(dir.path());
    for ours in [
        "/etc/aks-flex-node/config.json",
        "/etc/aks-flex-node/daemon-credentials/client.key",
        "/etc/aks-flex-node/.aks-flex-node-tmp-x",
        "/var/lib/machines/kube1/etc/hostname",
        "/var/lib/machines/kube1/.aks-flex-node-rootfs",
        "/var/lib/machines/.kube2.aks-flex-node/half",
        "/var/lib/unbounded/container-images/staged/image-0.tar",
        "/var/log/aks-flex-node/aks-flex-node.log",
    ] {
        write(&host, ours, "x");
    }
    for marked in [
        "/etc/systemd/nspawn/kube1.nspawn",
        "/etc/systemd/system/systemd-nspawn@kube1.service.d/override.conf",
        "/etc/systemd/system/nftables-flush.service",
    ] {
        write(
            &host,
            marked,
            "# Written by aks-flex-node; changes are lost at its next start.\n",
        );
    }
    for (link, target) in [
        ("/var/log/journal/0f", "/var/lib/machines/kube1/var/log/journal/0f"),
        (
            "/etc/systemd/system/systemd-nspawn@kube1.service.wants/nftables-flush.service",
            "/x",
        ),
    ] {
        host.link(target, &HostPath::fixed(link)).unwrap();
    }
    let report = reset(&host).await;
    // There is no containerd to ask.
    let could_not: Vec<&str> = report.could_not.iter().map(|line| line.what.as_str()).collect();
    assert_eq!(could_not, ["containers and images of the agent"]);
    let kept: Vec<String> = report
        .kept
        .iter()
        .map(|line| format!("{}: {}", line.what, line.why))
        .collect();
    assert_eq!(
        kept,
        [
            "/etc/systemd/system/systemd-nspawn@kube1.service.d: in it is what the agent did not make: mine.conf",
            "/etc/aks-flex-node: in it is what the agent did not make: notes.txt"
        ]
    );
    let after: Vec<String> = all(dir.path())
        .into_iter()
        .filter(|path| !before.contains(path))
        .collect();
    // Folders that systemd or the host may have had before: without a ledger nobody knows.
    assert_eq!(after, ["etc/systemd/nspawn", "var/log", "var/log/journal"]);
    for path in &before {
        assert!(dir.path().join(path).exists(), "{path} is gone");
    }
}

#[tokio::test]
async fn files_of_the_hosts_own_are_put_back_unless_somebody_has_changed_them() {
    let (dir, host) = host(&[STILL]);
    let digest = |text: &str| Digest::of(text.as_bytes());
    let mut things = Vec::new();
    for (path, now) in [("/etc/fstab", "ours"), ("/etc/docker/daemon.json", "changed")] {
        let kept = store::ledger::keep(&host, path.as_bytes(), 0o640).unwrap();
        write(&host, path, now);
        things.push(Thing::File {
            path: HostPath::fixed(path),
            written: vec![digest("ours")],
            before: Before::File(kept),
        });
    }
    for (path, now) in [
        ("/etc/fstab.bak", "ours"),
        ("/etc/sysctl.d/99-kubernetes.conf", "changed"),
    ] {
        write(&host, path, now);
        things.push(Thing::File {
            path: HostPath::fixed(path),
            written: vec![digest("ours")],
            before: Before::Nothing,
        });
    }
    store::ledger::add(&host, things).unwrap();
    fs::create_dir_all(dir.path().join("var/lib/containerd")).unwrap();
    let report = reset(&host).await;
    let read = |path: &'static str| host.read_text(&HostPath::fixed(path));
    assert_eq!(read("/etc/fstab").unwrap(), "/etc/fstab");
    let mode = fs::metadata(dir.path().join("etc/fstab")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o640);
    assert!(read("/etc/fstab.bak").is_err());
    assert_eq!(read("/etc/docker/daemon.json").unwrap(), "changed");
    assert_eq!(
        read("/etc/docker/daemon.json.before-aks-flex-node").unwrap(),
        "/etc/docker/daemon.json"
    );
    assert_eq!(read("/etc/sysctl.d/99-kubernetes.conf").unwrap(), "changed");
    assert_eq!(report.kept.len(), 2, "{report}");
    // Since containerd could not be asked, the next reset needs it still.
    assert!(!report.is_done() && host.exists(&store::ledger::PATH).unwrap());
}

#[tokio::test]
async fn fc_n10_a_systemd_that_does_not_answer_is_asked_once_and_holds_nothing_up() {
    let (dir, host) = host(&[("systemctl", "echo x >> \"$0.asked\"; exec sleep 60")]);
    write(&host, "/etc/aks-flex-node/config.json", "{");
    write(&host, "/var/lib/machines/kube1/.aks-flex-node-rootfs", "x");
    let started = Instant::now();
    let report = reset(&host).await;
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let asked = fs::read_to_string(dir.path().join("usr/bin/systemctl.asked")).unwrap();
    assert_eq!(asked.lines().count(), 1);
    assert!(!report.is_done() && !host.exists(&HostPath::fixed("/etc/aks-flex-node/config.json")).unwrap());
    // Nothing of the machine lives, by the kernel's word.
    assert!(!dir.path().join("var/lib/machines/kube1").exists(), "{report}");
}

#[tokio::test]
async fn a_unit_that_does_not_stop_is_killed_and_then_told() {
    let script = r#"case "$1" in
        show) [ -e "$0.killed" ] && echo failed || echo active;;
        stop) exit 1;;
        kill) touch "$0.killed";;
        esac"#;
    let (_dir, host) = host(&[("systemctl", script)]);
    let mut systemd = Systemd::new(&host);
    assert_eq!(systemd.stop("x.service").await, End::Removed);
    assert_eq!(systemd.stop("x.service").await, End::Absent);
}
