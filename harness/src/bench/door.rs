//! What it costs to run a tool of the host through `host-exec`, beside what others do to get there.

use anyhow::{Context, Result};

use super::Figure;
use crate::agent_image;
use crate::host::Host;

/// How often each of the programs is run: they take turns.
const TIMES: &str = "200";

/// A tool of the table that the host has not: here it is `true`.
const TOOL: &str = "tdnf";

/// Lays out, in mounts that end with it, what `host-exec` meets in the container: the host's root at `/host`. So all four are run by one
/// process, in turn, on one side of the container's wall: rounds inside and outside would not meet the same load.
/// $1: the stopwatch; $2: `host-exec`.
const SCRIPT: &str = r#"
mount -t tmpfs -o mode=755 probe /usr/local/sbin
ln -s /usr/bin/true "/usr/local/sbin/$3"
mkdir -p /host
mount --rbind / /host
exec "$1" "$4" -- /usr/bin/true -- /usr/sbin/chroot /host /usr/bin/true -- \
    /usr/bin/nsenter --target 1 --mount /usr/bin/true -- "$2" "$3""#;

/// Measures `true`, `chroot /host true`, `nsenter -m true` and `host-exec true`.
///
/// # Errors
/// The stopwatch can't be built, or one of them fails.
pub(super) async fn measure(host: &Host) -> Result<Vec<Figure>> {
    const STOPWATCH: &str = "/var/tmp/stopwatch";
    const HOST_EXEC: &str = "/var/tmp/host-exec";
    let program = agent_image::small_program("stopwatch").await?;
    host.write_file(STOPWATCH, program, 0o755).await?;
    let daemon = host.agent().daemon().await?;
    host.exec_ok(&["cp", &format!("/proc/{daemon}/root/usr/bin/host-exec"), HOST_EXEC])
        .await?;
    let alone = [
        "unshare",
        "--mount",
        "--propagation=private",
        "bash",
        "-euc",
        SCRIPT,
        "bash",
    ];
    let said = host
        .exec_ok(&[&alone[..], &[STOPWATCH, HOST_EXEC, TOOL, TIMES]].concat())
        .await?;
    host.exec_ok(&["rm", STOPWATCH, HOST_EXEC]).await?;
    host.exec_ok(&["rmdir", "/host"]).await?;
    let times = said.lines().map(|line| line.split(' ').map(str::parse).collect());
    let times: Vec<Vec<f64>> = times.collect::<Result<_, _>>()?;
    let times: [Vec<f64>; 4] = times.try_into().ok().context("four lines of times")?;
    let [bare, chroot, nsenter, ours] = times.map(|mut times| {
        times.sort_by(f64::total_cmp);
        Spread {
            least: times.first().copied().unwrap_or(f64::NAN),
            middle: times.get(times.len() / 2).copied().unwrap_or(f64::NAN),
        }
    });
    let (chroot, nsenter, ours) = (chroot.over(&bare), nsenter.over(&bare), ours.over(&bare));
    Ok(vec![
        Figure {
            what: "`true`, directly (median, least)",
            value: bare.text(),
            bound: "",
            beside: String::new(),
        },
        Figure {
            what: "`host-exec true`, over that",
            value: ours.text(),
            bound: "0.8 × chroot; below nsenter",
            beside: format!(
                "`chroot /host true` {}: {}; `nsenter -m true` {}: {}",
                chroot.text(),
                ours.beside(&chroot),
                nsenter.text(),
                ours.beside(&nsenter)
            ),
        },
    ])
}

/// Microseconds.
struct Spread {
    least: f64,
    middle: f64,
}

impl Spread {
    fn over(&self, other: &Self) -> Self {
        Self {
            least: self.least - other.least,
            middle: self.middle - other.middle,
        }
    }

    fn beside(&self, other: &Self) -> String {
        format!("{:.2} ×, {:.2} ×", self.middle / other.middle, self.least / other.least)
    }

    fn text(&self) -> String {
        format!("{:.2} ms, {:.2} ms", self.middle / 1e3, self.least / 1e3)
    }
}
