//! `cargo harness bench`: the figures of docs/performance.md, measured on a bed of its own, each beside a bare tool where there is one.

mod boot;
mod door;
mod reset;
mod unpack;
mod upgrade;

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use image::ImageRef;

use crate::agent;
use crate::base::{Base, Release};
use crate::bed::Bed;
use crate::cache::Cache;
use crate::cli;
use crate::cloud::{Cloud, Ingredients};
use crate::host::Host;
use crate::node::Joining;
use crate::process::interrupted;
use crate::product::Product;
use crate::progress::step;
use crate::run::Life;
use crate::wait;

/// How often what takes a second or less is repeated; the median counts.
const TIMES: usize = 9;

/// A line of the table.
struct Figure {
    what: &'static str,
    value: String,
    /// What it must not exceed, if the product's goals say so.
    bound: &'static str,
    /// The same done by a bare tool, and the ratio.
    beside: String,
}

/// Measures and writes docs/performance.md.
///
/// # Errors
/// The bed can't be made, the host does not join, or an upgrade does not end as it must.
pub(crate) async fn bench(options: &cli::Bench) -> Result<()> {
    let cache = Cache::open()?;
    Base::of(&cache, Release::default()).await?;
    let ingredients = Ingredients::of(&cache, options.kube.as_deref()).await?;
    let bed = Bed::make(&cache, &format!("bench-{}", std::process::id()), Life::Ours).await?;
    let measured = tokio::select! {
        measured = measure(&bed, &ingredients, options) => measured,
        signal = interrupted() => Err(signal),
    };
    let down = step("take the bed down", bed.down()).await;
    let text = page(&measured?);
    let usual = || Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/performance.md");
    let path = options.output.clone().unwrap_or_else(usual);
    fs::write(&path, &text).with_context(|| path.display().to_string())?;
    print!("{text}");
    down
}

async fn measure(bed: &Bed, ingredients: &Ingredients, options: &cli::Bench) -> Result<Vec<Figure>> {
    let cloud = Cloud::up(&bed.run, &bed.net, ingredients).await?;
    let product = Product::make(&cloud, &bed.run.cloud_dir().join("agent"), options.image.as_deref()).await?;
    let mut figures = vec![Figure {
        what: "image, compressed",
        value: format!("{:.2} MB", product.size as f64 / 1e6),
        bound: "6 MB",
        beside: String::new(),
    }];
    figures.extend(step("a layer", unpack::measure(&ingredients.machine)).await?);
    let joining = Joining::of(&cloud, &product, "bench1").await?;
    let host = joining.create(&bed.run, &product).await?;
    figures.extend(step("first boot", boot::measure(&host, &cloud)).await?);
    figures.push(step("idle daemon", idle(&host)).await?);
    figures.extend(step("host-exec", door::measure(&host)).await?);
    figures.push(step("ctr run", container(&host, &product.image, &cloud.images.busybox)).await?);
    figures.extend(step("upgrades", upgrade::measure(&host, &cloud, &product)).await?);
    figures.push(step("reset", reset::measure(&host, &cloud)).await?);
    Ok(figures)
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The time of a line of `--output=short-monotonic`: `[    5.123456] host …`.
fn monotonic(line: &str) -> Option<f64> {
    line.strip_prefix('[')?.split_once(']')?.0.trim().parse().ok()
}

/// What the daemon keeps in memory when nothing happens: all of it, and its share of what it has in common with others.
async fn idle(host: &Host) -> Result<Figure> {
    // What it needed to start is given back by then; nothing says when.
    let calm = Duration::from_secs(30);
    wait::until_true("the daemon has been ready for a while", calm * 2, async || {
        Ok(agent::now(host).await? > host.agent().ready_at().await? + calm)
    })
    .await?;
    let pid = host.agent().daemon().await?;
    let said = host
        .sh(&format!(
            "awk '/^VmRSS:/ {{ print $2 }}' /proc/{pid}/status; awk '/^Pss:/ {{ print $2 }}' /proc/{pid}/smaps_rollup"
        ))
        .await?;
    let (resident, share) = said.trim().split_once('\n').context("two numbers")?;
    let megabytes = |kibibytes: &str| Ok::<_, anyhow::Error>(kibibytes.parse::<f64>()? * 1024.0 / 1e6);
    Ok(Figure {
        what: "idle daemon, resident",
        value: format!("{:.1} MB", megabytes(resident)?),
        bound: "12 MB",
        beside: format!("its proportional share (PSS): {:.1} MB", megabytes(share)?),
    })
}

/// A container of the agent's image that does nothing, beside one of busybox that does nothing.
async fn container(host: &Host, agent: &ImageRef, busybox: &ImageRef) -> Result<Figure> {
    let (agent, busybox) = (agent.to_string(), busybox.to_string());
    let pull = ["ctr", "--namespace", "aks-flex-node", "images", "pull", &busybox];
    host.exec_ok(&pull).await?;
    let own = run(host, &[&agent, "bench", "/usr/bin/aks-flex-node", "version"]).await?;
    let bare = run(host, &[&busybox, "bench", "/bin/true"]).await?;
    Ok(Figure {
        what: "`ctr run`, agent's `version`",
        value: format!("{:.0} ms", own * 1e3),
        bound: "",
        beside: format!("busybox `true` {:.0} ms: {:.2} ×", bare * 1e3, own / bare),
    })
}

/// The median time of `ctr run`, taken inside: entering the host is no part of it.
async fn run(host: &Host, what: &[&str]) -> Result<f64> {
    let mut times = Vec::new();
    for _ in 0..TIMES {
        let line = ["ctr", "--namespace", "aks-flex-node", "run", "--rm", "--net-host"].join(" ");
        let script = format!(
            "s=$EPOCHREALTIME; {line} {} > /dev/null < /dev/null; echo $s $EPOCHREALTIME",
            what.join(" ")
        );
        let said = host.sh(&script).await?;
        let (start, end) = said.trim().split_once(' ').context("two times")?;
        times.push(end.parse::<f64>()? - start.parse::<f64>()?);
    }
    Ok(median(times))
}

fn seconds(time: f64) -> String {
    format!("{time:.1} s")
}

fn page(figures: &[Figure]) -> String {
    let mut text = String::from("# Figures\n\nMeasured by `cargo harness bench`, which writes this page. ");
    let _ = writeln!(
        text,
        "Machine: {}.\n\n| what | measured | bound | beside |\n| --- | --- | --- | --- |",
        machine()
    );
    for Figure {
        what,
        value,
        bound,
        beside,
    } in figures
    {
        let _ = writeln!(text, "| {what} | {value} | {bound} | {beside} |");
    }
    text
}

/// The machine by what counts: processor, how many, memory, kernel.
fn machine() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let field = |text: &str, name: &str| {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        line.split_once(':')
            .map_or(String::new(), |(_, value)| value.trim().to_owned())
    };
    let processors = std::thread::available_parallelism().map_or(0, usize::from);
    let memory = field(&read("/proc/meminfo"), "MemTotal");
    let kernel = read("/proc/sys/kernel/osrelease");
    format!(
        "{processors} × {}, {memory} memory, Linux {}",
        field(&read("/proc/cpuinfo"), "model name"),
        kernel.trim()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_the_journal_are_read() {
        assert_eq!(monotonic("[    5.250000] h1 systemd[1]: Started x"), Some(5.25));
        assert_eq!(monotonic("-- Boot 0123 --"), None);
    }
}
