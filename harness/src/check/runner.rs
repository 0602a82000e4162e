//! Runs checks side by side, each within its limit, and reports.

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, bail};
use tokio::task::JoinSet;

use super::context::{Depth, World};
use super::report::{Ended, LIMITS, Report, Row};
use super::{Check, Context, Needs, all};
use crate::base::{Base, Release};
use crate::bed::Bed;
use crate::cache::Cache;
use crate::cli;
use crate::cloud::{Cloud, Ingredients};
use crate::process::interrupted;
use crate::product::Product;
use crate::progress::{self, step};
use crate::run::Life;

/// How much longer a check may take at full depth.
const FULL: u32 = 10;

/// How long what explains a failure may take to collect.
const KEEP: Duration = Duration::from_secs(120);

/// Which checks are wanted.
pub(crate) struct Selection {
    checks: Vec<Check>,
}

impl Selection {
    /// Those named and those of the groups; all, if neither is given.
    ///
    /// # Errors
    /// A name or group that no check has.
    pub(crate) fn of(names: &[String], groups: &[String]) -> Result<Self> {
        let known = all();
        for name in names {
            if !known.iter().any(|check| check.name == name) {
                bail!("there is no check {name}: `cargo harness check --list` names them");
            }
        }
        for group in groups {
            if !known.iter().any(|check| check.group() == group) {
                bail!("there is no group {group}: `cargo harness check --list` names the checks");
            }
        }
        let wanted = |check: &Check| {
            (names.is_empty() && groups.is_empty())
                || names.iter().any(|name| name == check.name)
                || groups.iter().any(|group| group == check.group())
        };
        Ok(Self {
            checks: known.into_iter().filter(wanted).collect(),
        })
    }
}

impl Selection {
    /// Without those names, unless they are all that is wanted: what was left out.
    pub(crate) fn without(&mut self, names: &[&'static str]) -> Vec<&'static str> {
        let is_one = |check: &Check| names.contains(&check.name);
        if self.checks.iter().all(is_one) {
            return Vec::new();
        }
        self.checks
            .extract_if(.., |check| is_one(check))
            .map(|check| check.name)
            .collect()
    }

    fn needs_cloud(&self) -> bool {
        self.checks.iter().any(|check| check.needs != Needs::Hosts)
    }
}

/// The checks, a line each: its name, how long it may take at the short depth, and whether `test` leaves it out.
pub(crate) fn list(selection: &Selection, left: &[&str]) -> String {
    let width = selection.checks.iter().map(|check| check.name.len()).max();
    let width = width.unwrap_or_default();
    let line = |check: &Check| {
        let mark = if left.contains(&check.name) {
            "   not in `test`"
        } else {
            ""
        };
        format!("{:width$}  {:>4} s at most{mark}\n", check.name, check.limit.as_secs())
    };
    selection.checks.iter().map(line).collect()
}

/// Runs the selected checks on a bed of their own and prints the table. True if none failed.
///
/// # Errors
/// The bed can't be made or not taken down, or the report can't be written. A failed check is no error.
pub(crate) async fn run(selection: Selection, options: &cli::Check) -> Result<bool> {
    let cache = Cache::open()?;
    // Once, before the clocks of the checks run.
    Base::of(&cache, Release::default()).await?;
    let ingredients = if selection.needs_cloud() {
        Some(Ingredients::of(&cache, options.kube.as_deref()).await?)
    } else {
        None
    };
    let bed = Bed::make(&cache, &format!("check-{}", std::process::id()), Life::Ours).await?;
    let checked = tokio::select! {
        report = checked(&bed, ingredients.as_ref(), selection, options) => report,
        signal = interrupted() => Err(signal),
    };
    // However it went: nothing stays but the artifacts.
    let down = step("take the bed down", bed.down()).await;
    let report = checked?;
    if let Some(path) = &options.report {
        report.write(path)?;
    }
    progress::result(&format!("{}\n", report.table()))?;
    down?;
    Ok(report.good())
}

async fn checked(
    bed: &Bed,
    ingredients: Option<&Ingredients>,
    selection: Selection,
    options: &cli::Check,
) -> Result<Report> {
    let seed = options.seed.unwrap_or_else(|| u64::from(std::process::id()));
    progress::note(&match selection.checks.len() {
        1 => format!("1 check, seed {seed}"),
        many => format!("{many} checks, {} side by side, seed {seed}", options.jobs),
    });
    let world = match ingredients {
        Some(ingredients) => Some(Rc::new(world(bed, ingredients, options).await?)),
        None => None,
    };
    let depth = if options.full { Depth::Full } else { Depth::Short };
    let order: Vec<&str> = selection.checks.iter().map(|check| check.name).collect();
    let (alone, beside): (Vec<_>, Vec<_>) = selection
        .checks
        .into_iter()
        .partition(|check| check.needs == Needs::Alone);
    let start = |check| {
        let context = Context::new(bed.clone(), world.clone(), depth, options.n, seed);
        one(check, Rc::new(context))
    };
    let mut waiting = VecDeque::from(beside);
    let mut running = JoinSet::new();
    let mut report = Report {
        checks: Vec::new(),
        limits: LIMITS,
    };
    loop {
        while running.len() < usize::from(options.jobs)
            && let Some(check) = waiting.pop_front()
        {
            running.spawn_local(start(check));
        }
        let Some(row) = running.join_next().await else { break };
        report.checks.push(row?);
    }
    for check in alone {
        report.checks.push(start(check).await);
    }
    report
        .checks
        .sort_by_key(|row| order.iter().position(|name| *name == row.name));
    Ok(report)
}

/// The cloud, and the agent's image in its registry.
async fn world(bed: &Bed, ingredients: &Ingredients, options: &cli::Check) -> Result<World> {
    let cloud = Cloud::up(&bed.run, &bed.net, ingredients).await?;
    let dir = bed.run.cloud_dir().join("agent");
    let product = step(
        "the agent's image",
        Product::make(&cloud, &dir, options.image.as_deref()),
    )
    .await?;
    Ok(World::new(cloud, product))
}

/// One check from its first host to its last.
async fn one(check: Check, context: Rc<Context>) -> Row {
    let start = Instant::now();
    progress::note(&format!("{} …", check.name));
    let limit = check.limit * if context.depth == Depth::Full { FULL } else { 1 };
    // A task of its own: a panic in it is its failure, not ours.
    let mut body = tokio::task::spawn_local((check.body)(context.clone()));
    let ended = match tokio::time::timeout(limit, &mut body).await {
        Ok(Ok(ended)) => ended,
        Ok(Err(panic)) => Err(anyhow!("{panic}")),
        Err(_) => {
            body.abort();
            Err(anyhow!("not done within its limit of {} s", limit.as_secs()))
        }
    };
    let seconds = start.elapsed().as_secs_f64();
    let (result, mut message) = match &ended {
        Ok(()) => (Ended::Pass, String::new()),
        Err(error) => (Ended::Fail, format!("{error:#}")),
    };
    let mut artifacts = None;
    if result == Ended::Fail {
        let dir = context.artifacts(check.name);
        match tokio::time::timeout(KEEP, context.keep(&dir)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => message.push_str(&format!("; the artifacts are not whole: {error:#}")),
            Err(_) => message.push_str("; the artifacts are not whole: they took too long"),
        }
        artifacts = Some(dir);
    }
    let host = context
        .hosts()
        .iter()
        .map(|host| host.name().to_owned())
        .collect::<Vec<_>>()
        .join(" ");
    if result == Ended::Pass {
        context.give_back();
    }
    let result = match context.clear().await {
        Ok(()) => result,
        Err(error) => {
            message.push_str(&format!("; its hosts can't be removed: {error:#}"));
            Ended::Fail
        }
    };
    progress::note(&format!(
        "{} {} {seconds:.1} s {message}",
        check.name,
        format!("{result:?}").to_lowercase()
    ));
    Row {
        name: check.name.to_owned(),
        result,
        seconds,
        host,
        message,
        artifacts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_has_limits_and_says_what_test_leaves_out() {
        let some = Selection::of(&["bed.crash".into(), "host.life".into()], &[]).unwrap();
        let list = list(&some, &["host.life"]);
        let lines: Vec<&str> = list.lines().collect();
        assert_eq!(lines[0], "bed.crash   240 s at most");
        assert!(
            lines[1].starts_with("host.life ") && lines[1].ends_with(" at most   not in `test`"),
            "{list}"
        );
    }

    #[test]
    fn a_name_or_group_that_is_not_there_is_an_error_and_nothing_means_all() {
        assert!(Selection::of(&["no.such".into()], &[]).is_err());
        assert!(Selection::of(&[], &["nosuch".into()]).is_err());
        assert_eq!(Selection::of(&[], &[]).unwrap().checks.len(), all().len());
        let some = Selection::of(&["host.life".into()], &[]).unwrap();
        assert_eq!(
            some.checks.iter().map(|check| check.name).collect::<Vec<_>>(),
            ["host.life"]
        );
    }
}
