//! What `start` makes of its host besides the machine: swap, docker, packet filter and routes; what `plan start` says of it; and that a
//! second `start` changes nothing.
//!
//!     first boot, registry away ▸ the host as operators have them ▸ joined ▸ second start ▸ reboot ▸ a network that is hidden

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::Context;
use crate::agent::UNIT;
use crate::host::{Host, Refusal};
use crate::node::READY;
use crate::wait;

/// What it does is what that of Azure Container Linux does.
const FIREWALL: &str = include_str!("../../../acl/iptables.service");
const FSTAB: &str = "LABEL=OEM /oem btrfs nofail,x-systemd.device-timeout=1s 0 2\n/swap.img none swap nofail,sw 0 0\n";
const MACHINE: &str = "systemd-nspawn@kube1.service";
/// kubelet's own port, and a network that only a route of the settings leads to.
const KUBELET: &str = "-A INPUT -p tcp -m tcp --dport 10250 -j ACCEPT";
const ROUTED: &str = "10.77.0.0/16";
/// A network of the cluster that something on the host may hide.
const EXPECTED: &str = "10.224.0.0/12";

pub(super) async fn na_r23_fc_x4_phases_of_the_host(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    joining.config["hostRouting"] = json!({
        "staticRoutes": {"enabled": true, "routes": [{"destination": ROUTED, "metric": 7}]},
        "routeOverlap": {"expectedCidrs": [EXPECTED], "mode": "STRICT"},
    });
    let registry = format!("{}:5000", context.bed.net.gateway());
    let host = context.provision(&joining).await?;
    // The bootstrap shall meet the host as it is after this.
    host.block(&registry, Refusal::Reset).await?;
    host.start().await?;
    host.wait_booted().await?;
    furnish(&host).await?;
    host.unblock(&registry).await?;
    context.is_joined(&host).await?;

    is_made(&host).await.context("after the join")?;
    let backup = host.read_file("/etc/fstab.bak").await?;
    ensure!(backup == FSTAB, "the copy of fstab is {backup:?}");
    plans(&host).await.context("plan start")?;
    // Whoever clears the packet filter under the machine takes it along.
    host.sh("nft add table inet canary").await?;
    starts_again(&host).await.context("a second start")?;

    host.exec_ok(&["systemctl", "restart", "iptables.service"]).await?;
    is_open(&host).await.context("after a restart of the firewall")?;
    host.reboot().await?;
    context.is_joined(&host).await.context("after a reboot")?;
    is_made(&host).await.context("after a reboot")?;
    hidden(context, &host).await.context("a network that is hidden")
}

/// Swap in its table, a docker with settings, a firewall with the older backend.
async fn furnish(host: &Host) -> Result<()> {
    host.write_file("/etc/fstab", FSTAB, 0o640).await?;
    // A file where systemd makes no link.
    let kubelet = "[Service]\nExecStart=/usr/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
    host.write_file("/etc/systemd/system/kubelet.service", kubelet, 0o644)
        .await?;
    host.write_file("/etc/docker/daemon.json", "{\"data-root\": \"/data\"}\n", 0o600)
        .await?;
    let docker = "[Unit]\nDescription=plays docker\n[Service]\nExecStart=/usr/bin/sleep infinity\n";
    host.write_file("/run/systemd/system/docker.service", docker, 0o644)
        .await?;
    host.write_file("/etc/systemd/system/iptables.service", FIREWALL, 0o644)
        .await?;
    host.sh("systemctl daemon-reload
         systemctl enable --now iptables.service
         systemctl enable --now kubelet.service
         systemctl start docker.service")
        .await
        .map(drop)
}

/// All that the phases are for holds.
async fn is_made(host: &Host) -> Result<()> {
    let fstab = host.read_file("/etc/fstab").await?;
    ensure!(fstab == FSTAB.replace("/swap.img", "# /swap.img"), "fstab is {fstab:?}");
    let mode = host
        .sh("stat --format=%a /etc/fstab /etc/fstab.bak /etc/docker/daemon.json")
        .await?;
    ensure!(
        mode == "640\n640\n600\n",
        "the modes of the host's own files are {mode:?}"
    );
    let docker: Value = serde_json::from_str(&host.read_file("/etc/docker/daemon.json").await?)?;
    ensure!(
        docker == json!({"data-root": "/data", "iptables": false}),
        "docker's settings are {docker}"
    );
    for (unit, state) in [("docker.service", "masked"), ("kubelet.service", "disabled")] {
        let is = host
            .sh(&format!(
                "systemctl is-enabled {unit} || :; systemctl is-active {unit} || :"
            ))
            .await?;
        ensure!(is.starts_with(state) && !is.contains("\nactive"), "{unit} is {is:?}");
    }
    let cleared = host
        .sh("journalctl --boot --quiet --output=cat --unit=nftables-flush.service | grep --count Finished || :")
        .await?;
    ensure!(cleared.trim() == "1", "the packet filter was cleared {cleared} times");
    is_open(host).await?;
    let route = host.sh(&format!("ip -4 route show {ROUTED}")).await?;
    ensure!(
        route.contains("via ") && route.contains("metric 7"),
        "the route is {route:?}"
    );
    ensure!(
        host.exists("/run/aks-flex-node/route-overlap.ok").await?,
        "the check of the routes left no result"
    );
    host.exec_ok(&["systemctl", "is-active", "containerd.service"])
        .await
        .map(drop)
}

/// The firewall lets through what a node needs, and keeps the rules it has.
async fn is_open(host: &Host) -> Result<()> {
    let rules = host.sh("iptables -S").await?;
    let expected = ["-P FORWARD ACCEPT", KUBELET, "-P INPUT DROP", "--dport 22 -j ACCEPT"];
    for line in expected {
        ensure!(rules.contains(line), "no {line} in {rules}");
    }
    let open = rules.matches(KUBELET).count();
    ensure!(open == 1, "kubelet's port is opened {open} times: {rules}");
    Ok(())
}

/// Everything that a start may change: files with their times, and the runs of units.
async fn snapshot(host: &Host) -> Result<String> {
    let units = [
        "containerd.service",
        MACHINE,
        UNIT,
        "static-routes.service",
        "iptables.service",
    ]
    .join(" ");
    host.sh(&format!(
        "find /etc /var/lib/unbounded /var/lib/machines/kube1/etc /var/lib/machines/kube1/usr/local -printf '%p %y %m %s %l %T@\\n' \
             | grep -v -e ' d ' -e /daemon-state -e /daemon-credentials | sort
         systemctl show --property=Id,InvocationID {units}
         systemctl --machine=kube1 show --property=Id,InvocationID kubelet.service containerd.service
         nft --stateless list ruleset; iptables -S"
    ))
    .await
}

/// The plan is printed in both forms, without a secret, and nothing is changed.
async fn plans(host: &Host) -> Result<()> {
    let before = snapshot(host).await?;
    let program = [
        "/usr/bin/aks-flex-node",
        "plan",
        "start",
        "--config",
        "/etc/aks-flex-node/config.json",
    ];
    let text = host.agent().exec(&program).await?;
    ensure!(
        text.ok() && text.stdout.contains("provision-rootfs: kube1 holds the image"),
        "{text:?}"
    );
    let json = host
        .agent()
        .exec(&[&program[..], &["--output", "json"]].concat())
        .await?;
    ensure!(json.ok(), "{json:?}");
    let plan: Value = serde_json::from_str(&json.stdout).context("the plan")?;
    ensure!(plan["serial"].is_array(), "the plan is {plan}");
    let config: Value = serde_json::from_str(&host.read_file("/etc/aks-flex-node/config.json").await?)?;
    let token = config["azure"]["bootstrapToken"]["token"]
        .as_str()
        .context("no token")?;
    ensure!(
        !text.stdout.contains(token) && !json.stdout.contains(token),
        "a plan shows the token"
    );
    let after = snapshot(host).await?;
    ensure!(
        before == after,
        "a plan changed something: {}",
        differing(&before, &after)
    );
    Ok(())
}

/// `start` on a host that has joined ends well, and changes nothing.
async fn starts_again(host: &Host) -> Result<()> {
    let before = snapshot(host).await?;
    let program = [
        "/usr/bin/aks-flex-node",
        "start",
        "--config",
        "/etc/aks-flex-node/config.json",
    ];
    let ended = host.agent().exec(&program).await?;
    ensure!(ended.ok(), "{ended:?}");
    let after = snapshot(host).await?;
    ensure!(before == after, "it changed: {}", differing(&before, &after));
    Ok(())
}

/// In mode STRICT the machine waits until nothing hides the network, and then starts by itself.
async fn hidden(context: &Context, host: &Host) -> Result<()> {
    host.sh(&format!(
        "ip route add {EXPECTED} dev lo; systemctl stop {MACHINE} check-route-overlap.service"
    ))
    .await?;
    host.exec_ok(&["systemctl", "start", "--no-block", MACHINE]).await?;
    wait::until_true("the check of the routes finds it", READY, async || {
        host.exists("/run/aks-flex-node/route-overlap.detected").await
    })
    .await?;
    let state = host.exec(&["systemctl", "is-active", MACHINE]).await?.stdout;
    ensure!(state.trim() == "inactive", "the machine is {state}");
    let said = host
        .journal(&["--boot", "--output=cat", "--unit=check-route-overlap.service"])
        .await?;
    ensure!(said.contains(EXPECTED), "the check of the routes says {said}");
    host.sh(&format!("ip route del {EXPECTED} dev lo")).await?;
    host.wait_active(&[MACHINE], READY).await?;
    context.is_joined(host).await
}

/// The first lines of either that the other has not.
fn differing(before: &str, after: &str) -> String {
    let only = |one: &str, other: &str| {
        let other: std::collections::HashSet<&str> = other.lines().collect();
        let lines = one.lines().filter(|line| !other.contains(line));
        lines.take(8).collect::<Vec<_>>().join("\n")
    };
    format!("before:\n{}\nafter:\n{}", only(before, after), only(after, before))
}
