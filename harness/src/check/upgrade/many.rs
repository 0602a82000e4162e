//! Many upgrades one after the other: the daemon's memory, the folder of its state and containerd's store are after them what they were.

use anyhow::{Context as _, Result, ensure};
use image::{Digest, ImageRef};

use super::asked::{Asked, Seen, ask, ask_for};
use super::state::{State, journal};
use super::store::Store;
use super::{OVER, TIDY};
use crate::agent_image::Variant;
use crate::check::Context;
use crate::check::context::Depth;
use crate::cloud::cluster::upgrade_to;
use crate::host::Host;
use crate::progress::note;
use crate::wait;

/// How many upgrades there are at short depth, and as documented.
const SHORT: u32 = 10;
const FULL: u32 = 200;
/// So many rounds of operations that end without a restart come for each upgrade.
const ROUNDS: u32 = 2;
/// What the memory of one daemon may differ by from the second quarter of a row to the last one, in KiB: pages that its allocator keeps or
/// gives back.
const NOISE: u64 = 256;
/// The same for daemons that follow one another, each looked at at another moment of its first second: equal ones differ by 300.
const MORE_NOISE: u64 = 768;
/// Where the agent keeps its state.
const FOLDER: &str = "/etc/aks-flex-node";

/// To another image and back, again and again; then operations that one daemon ends without a restart.
pub(super) async fn fc_m2_many(context: &Context) -> Result<()> {
    let host = context.joined().await?;
    let images = [context.variant(Variant::Second).await?, State::of(&host).await?.image];
    let times = context.times.unwrap_or(match context.depth {
        Depth::Short => SHORT,
        Depth::Full => FULL,
    });
    // From here on both images are where they will be: selected, and the last good one.
    for image in &images {
        upgrade(context, &host, image).await.context("before the row")?;
    }
    let before = Kept::of(&host).await?;

    let mut row = Vec::new();
    for (time, image) in (1..=times).zip(images.iter().cycle()) {
        let resident = upgrade(context, &host, image).await;
        row.push(resident.with_context(|| format!("upgrade {time} of {times}"))?);
    }
    let upgrades = flat(&row, MORE_NOISE)
        .context("resident memory of one daemon after the other, each at the end of its upgrade")?;
    before.is_the_same(&host).await.context("after the upgrades")?;

    let daemon = State::of(&host).await?;
    row.clear();
    for round in 1..=times * ROUNDS {
        no_upgrade(context, &host, &daemon.image)
            .await
            .with_context(|| format!("round {round} of operations without a restart"))?;
        row.push(resident(&host, daemon.pid).await?);
    }
    let rounds = flat(&row, NOISE).context("resident memory of one daemon that was not restarted")?;
    let after = State::of(&host).await?;
    ensure!(
        (after.pid, after.started) == (daemon.pid, daemon.started),
        "the daemon was restarted: {daemon:?}, {after:?}"
    );
    before.is_the_same(&host).await.context("after the rounds")?;
    note(&format!(
        "many upgrades: {times} of them, resident memory {upgrades}; {} operations without a restart, {rounds}",
        row.len() * 3
    ));
    Ok(())
}

/// An upgrade that ends well on one agent: how much memory that one has then, in KiB.
async fn upgrade(context: &Context, host: &Host, image: &ImageRef) -> Result<u64> {
    let old = State::of(host).await?.pid;
    over(context, ask_for(context, host, image).await?).await?.complete()?;
    host.agent().only_new(old, TIDY).await?;
    let state = State::of(host).await?;
    state.runs(image)?;
    resident(host, state.pid).await
}

/// An upgrade to what runs already, one without a digest, one to a digest that is nowhere.
async fn no_upgrade(context: &Context, host: &Host, running: &ImageRef) -> Result<()> {
    let asked = ask_for(context, host, running).await?;
    over(context, asked).await?.complete()?;
    let [url, _] = upgrade_to(running);
    let asked = ask(context, host, &[url]).await?;
    over(context, asked).await?.failed(&["InvalidParameters"])?;
    let nowhere = running.repository.at(Digest::of(b"no image has this"));
    let asked = ask_for(context, host, &nowhere).await?;
    over(context, asked).await?.failed(&["ExecutionFailed"])
}

/// Waits for an operation's end, and takes it out of the cluster: what the daemon knows of the cluster does not grow.
async fn over(context: &Context, asked: Asked) -> Result<Seen> {
    let name = asked.name.clone();
    let seen = asked.over(context, OVER).await?;
    let line = ["delete", "machineoperation", &name, "--wait=false"];
    context.cloud().cluster.kubectl(&line, "").await?;
    Ok(seen)
}

/// Resident memory of a process, in KiB.
async fn resident(host: &Host, pid: u32) -> Result<u64> {
    let script = format!("awk '/^VmRSS:/ {{ print $2 }}' /proc/{pid}/status");
    Ok(host.sh(&script).await?.trim().parse()?)
}

/// Does not grow: the median of the last quarter is that of the second one, but for noise. The first one warms up.
///
/// # Errors
/// It grows.
fn flat(row: &[u64], noise: u64) -> Result<String> {
    if row.len() < 4 {
        return Ok(format!("{row:?} KiB, too few to compare"));
    }
    let quarter = row.len() / 4;
    let (second, last) = (row.iter().skip(quarter).take(quarter), row.iter().rev().take(quarter));
    let (second, last) = (median(second), median(last));
    ensure!(
        last <= second + noise,
        "it grows: the median of the second quarter is {second} KiB, of the last one {last} KiB, of {row:?}"
    );
    Ok(format!(
        "{second} KiB in the second quarter, {last} KiB in the last one"
    ))
}

fn median<'a>(of: impl Iterator<Item = &'a u64>) -> u64 {
    let mut all: Vec<u64> = of.copied().collect();
    all.sort_unstable();
    all.get(all.len() / 2).copied().unwrap_or_default()
}

/// What must not grow on the host's disk.
struct Kept {
    /// Every file of the state with its size.
    files: String,
    store: Store,
}

impl Kept {
    async fn of(host: &Host) -> Result<Self> {
        idle(host).await?;
        Ok(Self {
            files: files(host).await?,
            store: Store::of(host).await?,
        })
    }

    async fn is_the_same(&self, host: &Host) -> Result<()> {
        idle(host).await?;
        let files = files(host).await?;
        ensure!(files == self.files, "{FOLDER} was\n{}and is\n{files}", self.files);
        self.store.is_as_before(host).await
    }
}

async fn files(host: &Host) -> Result<String> {
    host.sh(&format!("find {FOLDER} -type f -printf '%s %p\\n' | sort --key=2"))
        .await
}

async fn idle(host: &Host) -> Result<()> {
    wait::until_true("no upgrade is going on", TIDY, async || {
        Ok(journal(host).await?.is_none())
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_grows_from_the_second_quarter_on_is_found_and_what_warms_up_is_not() {
        let grows: Vec<u64> = (0..40).map(|time| 9000 + time * 20).collect();
        assert!(flat(&grows, NOISE).unwrap_err().to_string().contains("it grows"));
        let warm: Vec<u64> = (0..40).map(|time| 9000 + time.min(9) * 300 + time % 3).collect();
        assert!(flat(&warm, NOISE).is_ok());
        for short in 1..6 {
            assert!(flat(&warm[10..10 + short], NOISE).is_ok(), "{short}");
        }
    }
}
