//! What a reset costs: the unit's own time on a host whose node runs a pod, and of it that of the machine's stop.

use anyhow::{Context, Result};

use super::{Figure, monotonic};
use crate::cloud::Cloud;
use crate::host::Host;
use crate::node::READY;

const UNIT: &str = "aks-flex-node-reset.service";

/// Resets the host, which is of no more use then.
///
/// # Errors
/// The reset fails.
pub(super) async fn measure(host: &Host, cloud: &Cloud) -> Result<Figure> {
    cloud
        .cluster
        .pod("bench-reset", host.name(), &cloud.images.busybox.to_string())
        .await?;
    cloud.cluster.pod_running("bench-reset", READY).await?;
    host.exec_within(READY, &["systemctl", "start", UNIT]).await?;
    let times = "--property=ExecMainStartTimestampMonotonic,InactiveEnterTimestampMonotonic,Result";
    let said = host.exec_ok(&["systemctl", "show", times, UNIT]).await?;
    let value = |name: &str| said.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
    anyhow::ensure!(value("Result") == Some("success"), "{UNIT} failed: {said}");
    let log = host
        .journal(&["--boot", "--output=short-monotonic", "--unit", UNIT])
        .await?;
    let begun = log.lines().find_map(monotonic).context("it logged nothing")?;
    let ended: f64 = value("InactiveEnterTimestampMonotonic").context("no end")?.parse()?;
    let machine = log
        .lines()
        .find(|line| line.contains("machine kube1"))
        .and_then(|line| {
            line.split_once("milliseconds=")?
                .1
                .split(' ')
                .next()?
                .parse::<f64>()
                .ok()
        });
    Ok(Figure {
        what: "reset by its unit, with a pod: started → nothing left",
        value: format!("{:.1} s", ended / 1e6 - begun),
        bound: "15 s",
        beside: format!(
            "of it the machine's stop {:.1} s",
            machine.context("no stop of a machine")? / 1e3
        ),
    })
}
