//! What it costs to run a tool of the host through `host-exec`, beside what others do to get there.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use image::ImageRef;

use super::Figure;
use crate::agent_image;
use crate::host::Host;

/// In how many rounds each program is run how often. Within a round the programs take turns; the rounds, which are entered from outside, too.
const ROUNDS: usize = 10;
const TIMES: &str = "20";

/// The stopwatch, where the host and, below `/host`, the container have it.
const STOPWATCH: &str = "/var/tmp/stopwatch";

/// A tool of the table that the host has not: here it is `true`.
const TOOL: &str = "tdnf";

/// Measures `host-exec true`, `chroot / true`, `nsenter -m true` and `true`.
///
/// # Errors
/// The stopwatch can't be built, or one of them fails.
pub(super) async fn measure(host: &Host, image: &ImageRef) -> Result<Vec<Figure>> {
    let program = agent_image::small_program("stopwatch").await?;
    host.write_file(STOPWATCH, program, 0o755).await?;
    host.sh(&format!(
        "mount -t tmpfs -o mode=755 probe /usr/local/sbin; ln -s /usr/bin/true /usr/local/sbin/{TOOL}"
    ))
    .await?;
    // A process of the host as the agent would enter it.
    let outside = [
        STOPWATCH,
        TIMES,
        "--",
        "/usr/bin/true",
        "--",
        "/usr/sbin/chroot",
        "/",
        "/usr/bin/true",
        "--",
        "/usr/bin/nsenter",
        "--target",
        "1",
        "--mount",
        "/usr/bin/true",
    ];
    let stopwatch = Path::new("/host").join(STOPWATCH.trim_start_matches('/'));
    let stopwatch = stopwatch.to_str().context("a path that is text")?;
    let inside = [stopwatch, TIMES, "--", "/usr/bin/host-exec", TOOL];
    let mut times: [Vec<f64>; 4] = Default::default();
    for _ in 0..ROUNDS {
        let bare = host.exec_ok(&outside).await?;
        let ours = host.agent().run(image, &[], &inside).await?;
        ensure!(ours.ok(), "{ours:?}");
        for (line, times) in bare.lines().chain(ours.stdout.lines()).zip(&mut times) {
            for micros in line.split(' ') {
                times.push(micros.parse()?);
            }
        }
    }
    host.exec_ok(&["umount", "/usr/local/sbin"]).await?;
    host.exec_ok(&["rm", STOPWATCH]).await?;
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
                "`chroot /host true` {}: {:.2} ×; `nsenter -m true` {}: {:.2} ×",
                chroot.text(),
                ours.middle / chroot.middle,
                nsenter.text(),
                ours.middle / nsenter.middle
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

    fn text(&self) -> String {
        format!("{:.2} ms, {:.2} ms", self.middle / 1e3, self.least / 1e3)
    }
}
