//! `join.nothing-on-host`: what of the agent is on a host that has joined.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::{Result, ensure};

use super::Context;
use crate::host::Host;
use crate::node::READY;
use crate::wait;

/// Files and links below `/etc`, with their modes: the agent's and those that its Ignition config brought. `*` stands for the rest of a name.
const OURS: [&str; 28] = [
    "f 600 aks-flex-node-agent.env",
    "f 600 aks-flex-node/config.json",
    "f 600 aks-flex-node/daemon-credentials/client.crt",
    "f 600 aks-flex-node/daemon-credentials/client.key",
    "f 600 aks-flex-node/daemon-credentials/daemon-controller-2*",
    "l 777 aks-flex-node/daemon-credentials/daemon-controller-current.pem",
    "f 600 aks-flex-node/daemon-state.json",
    "f 600 aks-flex-node/daemon-state.json.sha256",
    "f 600 aks-flex-node/ledger.json",
    "f 644 sysctl.d/99-kubernetes.conf",
    "f 644 systemd/nspawn/kube1.nspawn",
    "f 644 systemd/system-preset/20-ignition.preset",
    "f 644 systemd/system/aks-flex-node-agent-recovery.service",
    "f 644 systemd/system/aks-flex-node-agent.service",
    "f 644 systemd/system/aks-flex-node-bootstrap.service",
    "f 644 systemd/system/aks-flex-node-nspawn-post-start@.service",
    "f 644 systemd/system/aks-flex-node-nspawn-pre-start@.service",
    "f 644 systemd/system/aks-flex-node-reset.service",
    "l 777 systemd/system/machines.target.wants/systemd-nspawn@kube1.service",
    "l 777 systemd/system/multi-user.target.wants/aks-flex-node-agent.service",
    "l 777 systemd/system/multi-user.target.wants/aks-flex-node-bootstrap.service",
    "l 777 systemd/system/multi-user.target.wants/machines.target",
    "f 644 systemd/system/nftables-flush.service",
    "l 777 systemd/system/systemd-nspawn@kube1.service.wants/nftables-flush.service",
    "l 777 systemd/system/systemd-nspawn@kube2.service.wants/nftables-flush.service",
    "f 600 unbounded/kube/nftables-clear.nft",
    "f 644 systemd/system/systemd-nspawn@kube1.service.d/aks-flex-node-dependencies.conf",
    "f 644 systemd/system/systemd-nspawn@kube1.service.d/override.conf",
];

/// What an agent has besides that was ever upgraded.
const UPGRADED: [&str; 3] = [
    "f 600 aks-flex-node/agent-image.env",
    "f 600 aks-flex-node/agent-image-last-good.env",
    "f 600 aks-flex-node/agent-upgrade-signal.json",
];

/// What a host has below `/etc` that boots for the first time and joins nothing: systemd's, Ignition's and the bed's own.
const THE_HOSTS: [&str; 14] = [
    "f 600 .ignition-result.json",
    "f 600 .pwd.lock",
    "f 644 .updated",
    "f 644 hostname",
    "f 644 ld.so.cache",
    "f 444 machine-id",
    "f 644 systemd/network/10-host0.network",
    "l 777 systemd/system/dbus-org.freedesktop.*",
    "l 777 systemd/system/multi-user.target.wants/systemd-networkd.service",
    "l 777 systemd/system/network-online.target.wants/systemd-networkd-wait-online.service",
    "l 777 systemd/system/sockets.target.wants/systemd-networkd.socket",
    "l 777 systemd/system/sysinit.target.wants/systemd-network-generator.service",
    "l 777 systemd/system/sysinit.target.wants/systemd-resolved.service",
    "l 777 systemd/system/multi-user.target.wants/remote-fs.target",
];

/// Folders and files outside `/etc` that bear the agent's name or its reference's. The machine and containerd's store are not looked into.
const ELSEWHERE: [&str; 6] = [
    "d 755 /var/lib/unbounded",
    "d 750 /var/log/aks-flex-node",
    "f 600 /var/log/aks-flex-node/aks-flex-node.log",
    "d 700 /run/aks-flex-node-agent",
    "f 600 /run/aks-flex-node-agent-upgrade.lock",
    "f 600 /run/aks-flex-node-ledger.lock",
];

/// What `find` passes over: what is no disk, the image's own (read-only) and the bed's, containerd's store, the machine.
const APART: &str = "-path /proc -o -path /sys -o -path /dev -o -path /opt/kube -o -path /.etc-work \
    -o -path /var/lib/containerd -o -path /run/containerd -o -path /var/lib/machines -o -path /run/systemd -o -path /run/bpffs";

/// Prints the daemon's process.
const DAEMON: &str = "pgrep --full --exact '/usr/bin/aks-flex-node daemon .*'";

/// na_t04, and the modes of na_r19: no program of the agent is on the host, and of its files just those that are documented, as documented.
pub(super) async fn nothing_on_host(context: &Context) -> Result<()> {
    let host = context.shared().await?;
    let there = programs(&host).await?;
    ensure!(there.is_empty(), "programs of the agent are on the host: {there}");
    // The daemon asks for it once the node has joined.
    wait::until_true("the daemon has a certificate", READY, async || {
        host.exists("/etc/aks-flex-node/daemon-credentials/daemon-controller-current.pem")
            .await
    })
    .await?;
    let etc = entries(
        &host,
        "cd /etc; find . -mindepth 1 ! -type d -printf '%y %m %P\\n'",
        &host.changed().await?,
    )
    .await?;
    let strange: Vec<&String> = etc
        .iter()
        .filter(|entry| {
            !OURS
                .iter()
                .chain(&UPGRADED)
                .chain(&THE_HOSTS)
                .any(|known| is(known, entry))
        })
        .collect();
    ensure!(strange.is_empty(), "below /etc there is {strange:#?}");
    let missing: Vec<&&str> = OURS
        .iter()
        .filter(|known| !etc.iter().any(|entry| is(known, entry)))
        .collect();
    ensure!(missing.is_empty(), "below /etc there is not {missing:#?}, of {etc:#?}");
    let folders = host
        .sh("stat -c '%a %U:%G' /etc/aks-flex-node /etc/aks-flex-node/daemon-credentials")
        .await?;
    ensure!(
        folders == "755 root:root\n700 root:root\n",
        "the folders' modes: {folders}"
    );
    let named = host
        .sh(&format!(
            "find / \\( {APART} -o -path /etc -o -path /usr \\) -prune -o \\( -name '*aks-flex-node*' -o -name '*unbounded*' \\) -printf '%y %m %p\\n'"
        ))
        .await?;
    let strange: Vec<&str> = named.lines().filter(|entry| !ELSEWHERE.contains(entry)).collect();
    ensure!(strange.is_empty(), "elsewhere there is {strange:#?}");
    // Were there any, they would be found: by the same bytes, and by what only an agent's program says.
    for (plant, planted) in [
        ("cp /proc/$pid/exe /var/tmp/planted", "by its bytes"),
        ("head -c -1 /proc/$pid/exe > /var/tmp/planted", "by its words"),
    ] {
        host.sh(&format!("pid=$({DAEMON}); {plant}")).await?;
        let found = programs(&host).await;
        host.sh("rm /var/tmp/planted").await?;
        ensure!(
            found?.contains("/var/tmp/planted"),
            "a program of the agent is not found {planted}"
        );
    }
    Ok(())
}

/// The files of the host that are a program of the running image, or one of any agent: executable or ELF, with words in it that only they have.
async fn programs(host: &Host) -> Result<String> {
    let script = format!(
        r#"
        pid=$({daemon})
        sums=$(sha256sum < /proc/$pid/root/usr/bin/aks-flex-node; sha256sum < /proc/$pid/root/usr/bin/host-exec)
        sizes=$(stat -L -c '-o -size %sc' /proc/$pid/root/usr/bin/aks-flex-node /proc/$pid/root/usr/bin/host-exec)
        find / \( {apart} \) -prune -o -type f \( -false $sizes \) -print0 | xargs -0 -r sha256sum | grep -F "$sums" || true
        find / \( {apart} -o -path /usr \) -prune -o -type f -print0 | xargs -0 -r grep -laE '{words}' | while read -r file; do
            [ ! -x "$file" ] && [ "$(head -c 4 "$file" | tail -c 3)" != ELF ] || echo "$file"
        done
        "#,
        daemon = DAEMON,
        apart = APART,
        words = "AKS Flex Node Agent|is not on the host \\(looked in",
    );
    let found = host
        .exec_within(Duration::from_secs(120), &["bash", "-uc", &script])
        .await?;
    Ok(found.stdout)
}

/// Of what a listing has, those whose path (the last word) is in `changed` (`kind path`).
async fn entries(host: &Host, list: &str, changed: &str) -> Result<Vec<String>> {
    let paths: BTreeSet<&str> = changed
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(_, path)| path)
        .collect();
    let all = host.sh(list).await?;
    Ok(all
        .lines()
        .filter(|entry| entry.splitn(3, ' ').last().is_some_and(|path| paths.contains(path)))
        .map(str::to_owned)
        .collect())
}

fn is(known: &str, entry: &str) -> bool {
    match known.strip_suffix('*') {
        Some(start) => entry.starts_with(start),
        None => known == entry,
    }
}
