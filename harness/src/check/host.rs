//! `host.*`: that the bed's own hosts are what the other checks take them for.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Check, Context, check};
use crate::base::Release;
use crate::host::{Cut, Disk, Host, Options, Variant};
use crate::net::{ADDRESS, BRIDGE};
use crate::wait;

pub(super) const CHECKS: [Check; 6] = [
    check!("host.image", Hosts, 120, image),
    check!("host.second-image", Hosts, 420, second_image),
    check!("host.life", Hosts, 240, life),
    check!("host.presets", Hosts, 180, presets),
    check!("host.power-cut", Hosts, 180, power_cut),
    check!("host.network", Hosts, 120, network),
];

/// A unit that Ignition writes; it runs if it is enabled.
fn ignition(units: &str) -> Option<String> {
    Some(format!(
        r#"{{"ignition":{{"version":"3.3.0"}},"systemd":{{"units":[{units}]}}}}"#
    ))
}

/// What the image looks like from inside.
async fn image(context: &Context) -> Result<()> {
    looks_like_the_image(context, Release::Trixie, 257, "1.7.").await
}

/// The other release looks the same. Its base may have to be made first.
async fn second_image(context: &Context) -> Result<()> {
    looks_like_the_image(context, Release::Forky, 262, "2.").await
}

async fn looks_like_the_image(context: &Context, release: Release, systemd: u32, containerd: &str) -> Result<()> {
    let options = Options {
        release,
        ..Options::default()
    };
    let host = context.host(options).await?;
    let versions = host.sh("systemctl --version | head -n 1; ctr version").await?;
    let found = versions.split_whitespace().nth(1).and_then(|word| word.parse().ok());
    ensure!(
        found.is_some_and(|found: u32| found >= systemd) && versions.contains(&format!("Version:  {containerd}")),
        "{release:?} has other versions: {versions}"
    );
    let usr = host
        .sh("stat --file-system --format=%T /usr; findmnt --noheadings --output SOURCE,OPTIONS --target /usr")
        .await?;
    ensure!(
        usr.contains("overlay") && usr.contains("sysext") && usr.contains("ro"),
        "/usr is not an extension's overlay: {usr}"
    );
    let touch = host.exec(&["touch", "/usr/bin/new"]).await?;
    ensure!(
        touch.stderr.contains("Read-only file system"),
        "/usr can be written: {touch:?}"
    );
    host.sh("touch /etc/new /opt/new /var/new /root/new").await?;
    for absent in ["python3", "perl", "apt-get", "dpkg"] {
        ensure!(!host.exec(&["which", absent]).await?.ok(), "{absent} is on the host");
    }
    let state = host.exec(&["systemctl", "is-system-running", "--wait"]).await?.stdout;
    ensure!(state.trim() == "degraded", "the host is {state}");
    let failed = host
        .sh("systemctl list-units --failed --plain --no-legend | cut -d' ' -f1")
        .await?;
    ensure!(failed.trim() == "acl-sysupdate.service", "failed units: {failed}");
    let limits = host
        .sh("systemctl show -P TimeoutStopUSec -P TimeoutStopFailureMode systemd-journald.service")
        .await?;
    ensure!(
        limits == "45s\nabort\n" || limits.contains("abort"),
        "stop limits: {limits}"
    );
    // The machine's own settings must not be reached, nor its clock.
    let before = std::fs::read_to_string("/proc/sys/vm/overcommit_memory")?;
    host.sh("[ $(cat /proc/sys/kernel/panic) = -1 ]; sysctl -qw vm.overcommit_memory=1 kernel.panic=10")
        .await?;
    ensure!(
        host.sh("cat /proc/sys/vm/overcommit_memory /proc/sys/kernel/panic")
            .await?
            == "1\n10\n"
    );
    ensure!(
        std::fs::read_to_string("/proc/sys/vm/overcommit_memory")? == before,
        "the machine's setting was changed"
    );
    ensure!(
        !host.exec(&["date", "--set", "2001-01-01"]).await?.ok(),
        "the clock can be set"
    );
    host.sh("modprobe overlay; ctr version; test -S /run/docker/libcontainerd/docker-containerd.sock")
        .await?;
    Ok(())
}

/// Boot, reboot, power off and on, with a unit that Ignition brought and that requires containerd.
async fn life(context: &Context) -> Result<()> {
    let unit = r#"{"name":"probe.service","enabled":true,"contents":"[Unit]\nRequires=containerd.service\nAfter=containerd.service ensure-sysext.service\n[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/ctr version\n[Install]\nWantedBy=multi-user.target\n"}"#;
    let host = context
        .host(Options {
            ignition: ignition(unit),
            ..Options::default()
        })
        .await?;
    host.wait_active(&["probe.service"], Duration::from_secs(30)).await?;
    ensure!(
        host.exec(&["sh", "-c", "exit 7"]).await?.code == Some(7),
        "exit codes pass through"
    );
    let boot = |host: Host| async move { host.read_file("/proc/sys/kernel/random/boot_id").await };
    let first = boot(host.clone()).await?;
    host.write_file("/etc/kept", "kept", 0o640).await?;
    host.reboot().await?;
    host.wait_active(&["probe.service"], Duration::from_secs(30)).await?;
    ensure!(
        boot(host.clone()).await? != first,
        "the boot id is the same after a reboot"
    );
    host.poweroff().await?;
    ensure!(
        host.read_file("/etc/kept").await? == "kept",
        "a file is read while the host is off"
    );
    let changed = host.changed().await?;
    ensure!(
        changed.lines().any(|line| line == "f kept"),
        "what changed in /etc: {changed}"
    );
    ensure!(
        !changed.contains("nsswitch"),
        "a shipped file is said to have changed: {changed}"
    );
    host.start().await?;
    host.wait_booted().await?;
    let boots = host.journal(&["--list-boots"]).await?;
    ensure!(
        boots.lines().filter(|line| !line.contains("BOOT ID")).count() == 3,
        "three boots in the journal: {boots}"
    );
    Ok(())
}

/// Both images: on a first boot presets decide in full, on a captured one only links count.
async fn presets(context: &Context) -> Result<()> {
    let unit = |name: &str, enabled: &str| {
        format!(
            r#"{{"name":"{name}.service"{enabled},"contents":"[Service]\nType=oneshot\nRemainAfterExit=yes\nExecStart=/usr/bin/true\n[Install]\nWantedBy=multi-user.target\n"}}"#
        )
    };
    let link = r#"{"path":"/etc/systemd/system/multi-user.target.wants/linked.service","target":"../linked.service"}"#;
    let config = format!(
        r#"{{"ignition":{{"version":"3.3.0"}},"storage":{{"links":[{link}]}},"systemd":{{"units":[{},{}]}}}}"#,
        unit("lined", r#","enabled":true"#),
        unit("linked", "")
    );
    for (variant, lined, linked) in [
        (Variant::FirstBoot, "active", "inactive"),
        (Variant::Captured, "inactive", "active"),
    ] {
        let options = Options {
            ignition: Some(config.clone()),
            variant,
            ..Options::default()
        };
        let host = context.host(options).await?;
        let _ = host.exec(&["systemctl", "is-system-running", "--wait"]).await?;
        let states = host
            .exec(&["systemctl", "is-active", "lined.service", "linked.service"])
            .await?
            .stdout;
        ensure!(
            states == format!("{lined}\n{linked}\n"),
            "{variant:?}: preset line, link: {states}"
        );
        ensure!(
            host.read_file("/etc/machine-id").await?.trim().len() == 32,
            "{variant:?}: no machine-id after the boot"
        );
    }
    Ok(())
}

/// With a disk, what was synced survives a power cut and what was not doesn't.
async fn power_cut(context: &Context) -> Result<()> {
    let host = context
        .host(Options {
            disk: Disk::Image(2048),
            ..Options::default()
        })
        .await?;
    host.sh("echo safe > /var/safe; sync /var/safe /var; echo lost > /var/lost")
        .await?;
    host.power_cut().await?;
    host.start().await?;
    host.wait_booted().await?;
    ensure!(
        host.read_file("/var/safe").await? == "safe\n",
        "what was synced is lost"
    );
    let lost = host.sh("cat /var/lost 2>/dev/null || true").await?;
    ensure!(lost.is_empty(), "what was not synced survived: {lost:?}");
    Ok(())
}

/// Faults of one host's cable; and the gateway is the same one, whoever comes and goes.
async fn network(context: &Context) -> Result<()> {
    let host = context.host(Options::default()).await?;
    let gateway = context.bed.net.gateway();
    let bridge = context.bed.net.command("ip").args(["-brief", "link", "show", BRIDGE]);
    let bridge = bridge.read().await?;
    ensure!(bridge.contains(ADDRESS), "the bridge took a port's address: {bridge}");
    let reaches = async || Ok(host.exec(&["ping", "-q", "-c1", "-W1", &gateway]).await?.ok());
    wait::until_true("the gateway answers", Duration::from_secs(20), reaches).await?;
    for how in [Cut::Link, Cut::Drop, Cut::Reset] {
        host.cut(how).await?;
        ensure!(!reaches().await?, "{how:?}: the gateway still answers");
        host.heal().await.with_context(|| format!("{how:?}"))?;
        wait::until_true("the gateway answers again", Duration::from_secs(20), reaches).await?;
    }
    Ok(())
}
