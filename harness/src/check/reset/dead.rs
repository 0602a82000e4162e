//! `reset.dead`: a reset on a host whose machined, D-Bus and containerd don't answer, with a configuration and a ledger that can't be read, a
//! file that can't be removed at first, and a disk that is full: it ends in time, does what it can, and says what it could not. The second
//! one, with all of them back, finishes it.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::snapshot::Snapshot;
use super::{Context, RESET, by_unit, joined};
use crate::host::Host;

/// Within this a reset ends whoever does not answer, on a busy machine.
const ENDS: Duration = Duration::from_secs(90);

const BROKEN: &str = r#"
echo '{' > /etc/aks-flex-node/config.json
: > /etc/aks-flex-node/ledger.json
chattr +i /var/lib/machines/kube1/etc/hostname /var/lib/machines/kube1/etc 2> /dev/null || :
cp /var/lib/machines/kube1/usr/local/bin/aks-flex-node /root/aks-flex-node
# The agent's next start would have it started again.
systemctl mask --quiet --runtime --now containerd.service
"#;
/// Whoever asks them waits.
const MUTE: &str = "systemctl kill --signal=STOP systemd-machined.service dbus.service";
const BACK: &str = r#"
systemctl kill --signal=CONT systemd-machined.service dbus.service
systemctl unmask --quiet --runtime containerd.service
systemctl start containerd.service
rm /root/aks-flex-node
"#;

pub(super) async fn na_r22_fc_n10_dead(context: &Context) -> Result<()> {
    let (host, before) = joined(context, &context.joining().await?).await?;
    host.sh(BROKEN).await?;
    host.sh(MUTE).await?;
    // Without containerd the machine's copy of the program does it.
    let started = Instant::now();
    let reset = host
        .exec_within(RESET, &["/root/aks-flex-node", "reset", "--json"])
        .await?;
    let took = started.elapsed();
    let report = reported(&reset.stdout).with_context(|| format!("{reset:?}"))?;
    host.sh(BACK).await?;
    ensure!(took < ENDS, "it took {took:?}: {report}");
    ensure!(reset.code == Some(1), "it ended with {:?}: {report}", reset.code);
    let could_not = report["couldNot"].to_string();
    ensure!(could_not.contains("containers and images of the agent"), "{report}");
    ensure!(report["kept"].to_string().contains("it is torn"), "{report}");
    gone(&host).await?;
    let again = by_unit(&host).await?;
    ensure!(
        again.contains(" 0 could not be removed"),
        "the second reset says {again}"
    );
    // What only the ledger told is not put back.
    before.is_restored(&Snapshot::of(&host).await?, UNTOLD)
}

/// What only a ledger tells of.
const UNTOLD: &[&str] = &[
    // systemd's own, of a machine that was killed.
    "+ file /run/systemd/nspawn/locks/*",
    "+ content /run/systemd/nspawn/locks/*",
    "- sysctl*",
    "+ sysctl*",
    "+ folder /etc/systemd/nspawn*",
    "+ link /etc/systemd/system/multi-user.target.wants/machines.target*",
    "+ unit-file machines.target enabled",
    "- unit-file machines.target disabled",
];

fn reported(stdout: &str) -> Result<Value> {
    Ok(serde_json::from_str(stdout)?)
}

/// Machine, agent and their files are gone whoever did not answer.
async fn gone(host: &Host) -> Result<()> {
    for path in [
        "/var/lib/machines/kube1",
        "/etc/systemd/system/aks-flex-node-agent.service",
        "/etc/aks-flex-node/config.json",
    ] {
        ensure!(!host.exists(path).await?, "{path} is there");
    }
    Ok(())
}
