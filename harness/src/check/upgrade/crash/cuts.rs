//! Somebody dies at a moment drawn by chance.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Result, bail};

use super::look::Agent;
use super::series::Series;
use super::setting::Kind;
use super::victim::Victim;
use crate::chance::Chance;
use crate::check::Context;
use crate::check::context::Depth;
use crate::progress;

/// So many hosts are at it side by side.
const LANES: u32 = 3;
/// How long after its end an upgrade may still be struck.
const AFTER: Duration = Duration::from_secs(2);
/// Of how many broken hosts all is kept, in each lane.
const KEPT: u32 = 5;

/// Who can die at any moment: the daemon is whichever runs then. The last one is always there.
const VICTIMS: [Victim; 6] = [
    Victim::Daemon,
    Victim::Ctr,
    Victim::Container,
    Victim::Recovery,
    Victim::Containerd,
    Victim::Power,
];

/// What came of the cuts.
#[derive(Default)]
struct Tally {
    ended: BTreeMap<(Victim, Agent), u32>,
    violated: Vec<String>,
}

/// The power is cut, or a process killed, at a moment between the question and two seconds after the end: all holds within a minute.
pub(in crate::check::upgrade) async fn fc_p1_fc_u14_random_cuts(context: &Context) -> Result<()> {
    let times = context.times.unwrap_or(match context.depth {
        Depth::Short => 20,
        Depth::Full => 100,
    });
    let share = |lane: u32| times / LANES + u32::from(lane < times % LANES);
    let lanes = tokio::join!(
        lane(context, 0, share(0)),
        lane(context, 1, share(1)),
        lane(context, 2, share(2))
    );
    let mut all = Tally::default();
    for tally in [lanes.0?, lanes.1?, lanes.2?] {
        for (key, count) in tally.ended {
            *all.ended.entry(key).or_default() += count;
        }
        all.violated.extend(tally.violated);
    }
    progress::note(&summary(context.seed, times, &all));
    if !all.violated.is_empty() {
        bail!("{}: {}", summary(context.seed, times, &all), all.violated.join(" | "));
    }
    Ok(())
}

/// One host's cuts, one after the other; another host when one is broken.
async fn lane(context: &Context, number: u32, times: u32) -> Result<Tally> {
    let mut tally = Tally::default();
    if times == 0 {
        return Ok(tally);
    }
    let mut chance = Chance::of(context.seed.wrapping_add(u64::from(number) << 32));
    let mut series = Series::begin(context, true).await?;
    let good = series.undisturbed(Kind::Good).await?;
    let heavy = series.undisturbed(Kind::Heavy).await?;
    let bad = series.undisturbed(Kind::Bad).await?;
    for time in 1..=times {
        let (kind, lasts) = match chance.below(8) {
            0 => (Kind::Heavy, heavy),
            1 | 2 => (Kind::Bad, bad),
            _ => (Kind::Good, good),
        };
        let span = u64::try_from((lasts + AFTER).as_millis())?;
        let after = Duration::from_millis(chance.below(span));
        // Power as often as all the others together, for it alone loses what was written.
        let mut victims = if chance.below(2) == 0 {
            &VICTIMS[5..]
        } else {
            &VICTIMS[..]
        }
        .to_vec();
        let first = usize::try_from(chance.below(victims.len() as u64))?;
        victims.rotate_left(first);
        let cut = format!("lane {number}, cut {time} of {times}");
        match series.cut(kind, after, &victims).await {
            Ok((victim, ended)) => {
                progress::note(&format!("{cut}: {victim}, {after:?} after {kind:?}: {ended}"));
                *tally.ended.entry((victim, ended.on)).or_default() += 1;
            }
            Err(error) => {
                let mut wrong = format!("seed {}, {cut}: {error:#}", context.seed);
                if tally.violated.len() < KEPT as usize {
                    let kept = context
                        .artifacts("upgrade.random-cuts")
                        .join(format!("lane-{number}-cut-{time}"));
                    context.keep(&kept).await?;
                    wrong.push_str(&format!("; see {}", kept.display()));
                }
                progress::note(&wrong);
                tally.violated.push(wrong);
                series = series.anew().await?;
            }
        }
    }
    if let Err(error) = series.end().await {
        tally
            .violated
            .push(format!("lane {number}: the upgrade after all cuts: {error:#}"));
    }
    Ok(tally)
}

/// All in one line.
fn summary(seed: u64, times: u32, tally: &Tally) -> String {
    let on = |agent: Agent| -> u32 {
        let counts = tally.ended.iter().filter(|((_, on), _)| *on == agent);
        counts.map(|(_, count)| count).sum()
    };
    let by: Vec<String> = tally
        .ended
        .iter()
        .map(|((victim, on), count)| format!("{victim} {on:?} {count}"))
        .collect();
    format!(
        "random cuts: seed {seed}, {times} asked for: {} ended on the new agent, {} on the old one, {} violated ({})",
        on(Agent::New),
        on(Agent::Old),
        tally.violated.len(),
        by.join(", ")
    )
}
