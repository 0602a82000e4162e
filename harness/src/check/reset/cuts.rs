//! `reset.cuts`: whoever carries a reset out dies at one moment of it, or the host's power does. What is left is finished by the next start
//! of the agent where there still is one, and by a second reset else; then nothing is left, and the host joins again.

use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};

use super::rejoin::Rejoin;
use super::snapshot::Snapshot;
use super::{Context, RESET, UNIT, by_unit, ends, joined};
use crate::check::context::Depth;
use crate::host::{Disk, Host, Outside};
use crate::wait;

/// Who dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Blow {
    /// Every process of the reset's unit.
    Kill,
    /// The host's power.
    Power,
}

/// What is gone when the blow falls, first to last.
const MOMENTS: [&str; 5] = [
    "/etc/aks-flex-node/bootstrap.env",
    "/var/lib/machines/kube1/etc/hostname",
    "/etc/systemd/nspawn/kube1.nspawn",
    "/etc/systemd/system/multi-user.target.wants/aks-flex-node-agent.service",
    "/etc/aks-flex-node/config.json",
];

/// The short depth: the power goes when the machine does, and the process when the agent does.
const SHORT: [(usize, Blow); 2] = [(1, Blow::Power), (3, Blow::Kill)];

pub(super) async fn fc_x3_cuts(context: &Context) -> Result<()> {
    let mut joining = context.joining().await?;
    joining.options.disk = Disk::Image(3000);
    let (host, before) = joined(context, &joining).await?;
    let full = MOMENTS
        .iter()
        .enumerate()
        .flat_map(|(moment, _)| [(moment, Blow::Kill), (moment, Blow::Power)]);
    let cases: Vec<(usize, Blow)> = match context.depth {
        Depth::Short => SHORT.into(),
        Depth::Full => full.collect(),
    };
    let mut first = true;
    for (moment, blow) in cases {
        let what = || format!("{blow:?} once {} is gone", MOMENTS[moment]);
        if !std::mem::take(&mut first) {
            let again = Rejoin::under(context, &host, host.name()).await?;
            again
                .join(context, &host)
                .await
                .with_context(|| format!("the join before: {}", what()))?;
        }
        cut(&host, MOMENTS[moment], blow).await.with_context(what)?;
        before
            .is_restored(&Snapshot::of(&host).await?, LATER_BOOT)
            .with_context(what)?;
    }
    Ok(())
}

/// What differs on a host that has booted once more, whoever did what on it.
const LATER_BOOT: &[&str] = &[];

async fn cut(host: &Host, gone: &str, blow: Blow) -> Result<()> {
    // A file that a boot would join with.
    host.write_file("/etc/aks-flex-node/bootstrap.env", "AKS_FLEX_NODE_AUTH=x\n", 0o600)
        .await?;
    host.exec_ok(&["systemctl", "start", "--no-block", UNIT]).await?;
    let outside = host.outside()?;
    strike(&outside, gone, blow).await?;
    match blow {
        Blow::Kill => {
            wait::until_true("the end of the unit that was hit", RESET, async || {
                Ok(host.exec(&["systemctl", "is-active", UNIT]).await?.stdout.trim() == "failed")
            })
            .await?;
            let again = by_unit(host).await?;
            ensure!(
                again.contains(" 0 could not be removed"),
                "the second reset says {again}"
            );
            Ok(())
        }
        Blow::Power => {
            host.power_cut().await?;
            host.start().await?;
            host.wait_booted().await?;
            let link = "/etc/systemd/system/multi-user.target.wants/aks-flex-node-agent.service";
            if host.exists(link).await? {
                ends(host).await.context("the agent does not go on with the reset")
            } else {
                by_unit(host).await.map(drop)
            }
        }
    }
}

/// Waits, from outside and without a pause, until the file is gone, and strikes.
async fn strike(outside: &Outside, gone: &str, blow: Blow) -> Result<()> {
    const GROUP: &str = "/system.slice/system-aksflex.slice/aks-flex-node-reset.service";
    let path = outside.root.join(gone.trim_start_matches('/'));
    let deadline = std::time::Instant::now() + RESET;
    while path.symlink_metadata().is_ok() {
        if std::time::Instant::now() > deadline {
            bail!("{gone} does not go");
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    match blow {
        Blow::Power => outside.freeze()?,
        Blow::Kill => {
            for pid in outside.processes(GROUP) {
                let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
            }
        }
    }
    Ok(())
}
