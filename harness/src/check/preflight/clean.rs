//! `preflight.clean`: a host with nothing in the way, which is the same afterwards.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{CONFIG, Context, Fresh, bad};
use crate::host::Host;
use crate::wait;

/// Longer than any boot on a busy machine.
const REST: Duration = Duration::from_secs(120);

/// Every file of the host with its mode, owner, size, time and digest, but what is no disk, containerd's store, the journal and a login's.
const FILES: &str = "find / \\( -path /proc -o -path /sys -o -path /dev -o -path /opt/kube -o -path /var/lib/containerd -o -path /run/containerd \
    -o -path /run/docker -o -path /var/log/journal -o -path /run/log -o -path /run/systemd -o -path /run/udev -o -path /run/agetty.reload -o -path /usr \\) -prune \
    -o ! -type f -printf '%y %m %U:%G %l %p\\n' -o -printf '%y %m %U:%G %s %T@ %p\\n' | sort; \
    find /etc /var/lib /root /opt -xdev \\( -path /var/lib/containerd -o -path /opt/kube \\) -prune -o -type f -print0 | sort -z | xargs -0 sha256sum";

/// What else a look could have changed.
const KERNEL: &str = "cut -d' ' -f4- /proc/self/mountinfo | sort; systemctl list-units --type=service --state=active --plain --no-legend | cut -d' ' -f1 | \
    grep -v -e systemd-hostnamed -e user@ -e user-runtime-dir; \
    if [ -e /proc/modules ]; then cut -d' ' -f1 /proc/modules; fi; find /proc/sys/vm /proc/sys/kernel /proc/sys/net/ipv4 -name '*panic*' -o -name '*forward*' -o -name '*overcommit*' | sort | xargs grep -s . || true";

async fn state(host: &Host) -> Result<String> {
    host.sh(&format!("{FILES}; {KERNEL}")).await
}

/// Once its boot is over and nothing changes by itself any more.
async fn at_rest(host: &Host) -> Result<String> {
    wait::until("the host is at rest", REST, async || {
        let jobs = host.sh("systemctl list-jobs --no-legend").await?;
        let first = state(host).await?;
        let second = state(host).await?;
        Ok((jobs.trim().is_empty() && first == second).then_some(second))
    })
    .await
}

pub(super) async fn clean(context: &Context) -> Result<()> {
    let fresh = Fresh::new(context).await?;
    // The first run of a container makes what containerd needs for any.
    fresh.bad().await?;
    let before = at_rest(&fresh.host).await?;
    let report = fresh.report(("", ""), &[]).await?;
    let after = state(&fresh.host).await?;
    let changed: Vec<&str> = after
        .lines()
        .filter(|line| !before.lines().any(|old| old == *line))
        .collect();
    let gone: Vec<&str> = before
        .lines()
        .filter(|line| !after.lines().any(|new| new == *line))
        .collect();
    ensure!(
        changed.is_empty() && gone.is_empty(),
        "the host is another: {changed:#?}, and not {gone:#?}"
    );
    ensure!(before.contains(CONFIG), "the host was not looked at");
    let bad = bad(&report);
    ensure!(report["status"] == "ok" && bad.is_empty(), "{bad:#?} of {report:#}");

    // One check alone, text, and what is refused.
    let one = fresh.report(("", ""), &["--check", "swap-active"]).await?;
    ensure!(
        one["checks"].as_array().is_some_and(|lines| lines.len() == 1),
        "one check: {one}"
    );
    let image = &context.product().image;
    let agent = fresh.host.agent();
    let run = async |more: &[&str]| {
        let line = ["/usr/bin/aks-flex-node", "preflight", "--config", CONFIG];
        agent.run(image, &[], &[&line[..], more].concat()).await
    };
    let text = run(&[]).await?;
    ensure!(
        text.ok() && text.stdout.starts_with("[preflight] ") && text.stdout.contains("\t[OK swap-active]: "),
        "{text:?}"
    );
    for refused in [
        &["--output", "yaml"][..],
        &["--ignore-preflight-errors", "canary"],
        &["--check", "canary"],
    ] {
        let said = run(refused).await?;
        ensure!(
            said.code == Some(78) && said.stdout.is_empty() && !said.stderr.contains("canary"),
            "{refused:?}: {said:?}"
        );
    }
    Ok(())
}
