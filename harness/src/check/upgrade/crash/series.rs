//! A host that many die on, one after the other: each time an upgrade, a blow, and all that must hold after it.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Error, Result, bail, ensure};
use image::ImageRef;

use super::look::{Agent, Ended, Look};
use super::observer::{Blow, Trap};
use super::point::{Fault, Road, Sight};
use super::setting::{Kind, Setting};
use super::victim::Victim;
use crate::agent::UNIT;
use crate::check::Context;
use crate::check::upgrade::OVER;
use crate::check::upgrade::asked::{Asked, insist_on};
use crate::check::upgrade::state::Readiness;
use crate::host::{Disk, Host};
use crate::wait::{self, Stop};

/// Within this of a blow, or of the next boot, all holds again.
const AGAIN: Duration = Duration::from_secs(60);
/// How often a point is tried for that was missed.
const TRIES: u32 = 6;
/// How long after the end of an operation its journal may still be there.
const GRACE: Duration = Duration::from_secs(5);
/// What a pull is slowed down to, in Mbit/s: seconds for the ballast.
const SLOW: u32 = 40;
/// The disk of a host that loses its power, in MiB.
const DISK: u32 = 6144;
/// Why a row of the table is not good.
pub(super) enum Wrong {
    /// The point was never met: nothing is shown.
    Missed(String),
    /// What must hold does not.
    Violated(Error),
}

/// A host that is used for case after case.
pub(super) struct Series<'a> {
    pub(super) context: &'a Context,
    pub(super) host: Host,
    power: bool,
    /// How many images that have to be pulled were asked for.
    pub(super) heavy: u64,
}

/// What was done to an upgrade.
struct Case {
    name: String,
    /// Who died, if somebody did.
    victim: Option<Victim>,
    road: Road,
    /// Whether the candidate can't have run before whoever made it run was dead.
    innocent: bool,
}

impl<'a> Series<'a> {
    /// A host that joins for it. With a disk that loses what was not synced, for those whose power is cut.
    ///
    /// # Errors
    /// It does not join.
    pub(super) async fn begin(context: &'a Context, power: bool) -> Result<Self> {
        let mut joining = context.joining().await?;
        if power {
            joining.options.disk = Disk::Image(DISK);
        }
        let host = context.boot(&joining).await?;
        context.is_joined(&host).await?;
        Ok(Self {
            context,
            host,
            power,
            heavy: 0,
        })
    }

    /// Another host in the place of one that is broken.
    ///
    /// # Errors
    /// The old one can't be removed, or the new one does not join.
    pub(super) async fn anew(self) -> Result<Self> {
        self.host.down().await?;
        Self::begin(self.context, self.power).await
    }

    /// Somebody dies at a point of an upgrade, and all that must hold does so soon.
    ///
    /// # Errors
    /// What does not hold, or that the point was never met.
    pub(super) async fn fault(&mut self, fault: Fault) -> Result<Ended, Wrong> {
        let mut missed = String::new();
        for _ in 0..TRIES {
            match self.once(fault).await.map_err(Wrong::Violated)? {
                Ok(ended) => return Ok(ended),
                Err(why) => missed = why,
            }
        }
        Err(Wrong::Missed(format!("missed {TRIES} times, at last: {missed}")))
    }

    /// One try; the inner error says how the point was missed, after which everything holds all the same.
    async fn once(&mut self, fault: Fault) -> Result<Result<Ended, String>> {
        let setting = self.setting_of(fault).await?;
        let slow = matches!(fault.point.sight, Sight::Pulled(_));
        let trap = Trap::set(
            self.host.outside()?,
            fault,
            setting.from.clone(),
            setting.to.to_string(),
        )?;
        if slow {
            self.host.slow(SLOW).await?;
        }
        let stop = Arc::new(AtomicBool::new(false));
        let told = stop.clone();
        let trap = tokio::task::spawn_blocking(move || trap.spring(&told));
        let asked = insist_on(self.context, &self.host, &setting.to).await?;
        let blow = self.blow(trap, &stop, &asked).await;
        let struck = Instant::now();
        if slow && fault.victim != Victim::Power {
            self.host.unslow().await?;
        }
        let blow = blow?;
        let case = Case {
            name: format!("{} at {}", fault.victim, fault.point.name),
            victim: blow.as_ref().map(|_| fault.victim),
            road: fault.point.road,
            innocent: fault.point.precedes_selection()
                && fault.victim.writes()
                && matches!(blow, Some(Blow { late: None })),
        };
        let ended = self.aftermath(&case, &setting, &asked, struck).await?;
        Ok(match blow {
            None => Err("the upgrade ended without it".to_owned()),
            Some(Blow { late: Some(why) }) => Err(why),
            Some(Blow { late: None }) => Ok(ended),
        })
    }

    pub(super) async fn readiness(&self) -> Result<Option<Readiness>> {
        if self.power {
            return Ok(None);
        }
        Readiness::of(&self.context.cloud().cluster, self.host.name())
            .await
            .map(Some)
    }

    /// The node did not notice: its kubelet is the one it was, and it was Ready all along.
    async fn node_is_left_alone(&self, setting: &Setting) -> Result<()> {
        let look = Look::of(&self.host).await?;
        let kubelet = look.kubelet();
        ensure!(
            setting.kubelet.is_none() || setting.kubelet.as_deref() == kubelet,
            "the kubelet {:?} became {kubelet:?}",
            setting.kubelet
        );
        let readiness = self.readiness().await?;
        ensure!(
            readiness == setting.readiness,
            "the node was not Ready all along: {:?} became {readiness:?}",
            setting.readiness
        );
        Ok(())
    }

    /// Waits for the blow. None, if the operation was over before.
    async fn blow(
        &self,
        trap: tokio::task::JoinHandle<Result<Option<Blow>>>,
        stop: &AtomicBool,
        asked: &Asked,
    ) -> Result<Option<Blow>> {
        let mut trap = trap;
        let over = async {
            let over = self.context.cloud().cluster.operation_over(&asked.name, OVER).await;
            tokio::time::sleep(GRACE).await;
            over
        };
        tokio::select! {
            blow = &mut trap => return blow?,
            over = over => {
                stop.store(true, Ordering::Relaxed);
                over?;
            }
        }
        trap.await?
    }

    /// After the blow: the power comes back if it was cut, and soon all holds.
    async fn aftermath(&self, case: &Case, setting: &Setting, asked: &Asked, struck: Instant) -> Result<Ended> {
        let mut since = struck;
        if case.victim == Some(Victim::Power) {
            self.host.power_cut().await?;
            since = Instant::now();
            self.host.start().await?;
        }
        let ended = self.holds(case, setting, asked, since).await?;
        if case.victim != Some(Victim::Power) {
            self.node_is_left_alone(setting).await?;
        }
        // Cases do not know of one another: the pauses between restarts, which grow, begin anew.
        self.host.exec_ok(&["systemctl", "reset-failed", UNIT]).await?;
        Ok(ended)
    }

    async fn holds(&self, case: &Case, setting: &Setting, asked: &Asked, since: Instant) -> Result<Ended> {
        let (from, to) = (setting.from.as_str(), setting.to.to_string());
        let replaced = case
            .victim
            .is_some_and(|victim| !matches!(victim, Victim::Recovery | Victim::Power));
        let cluster = &self.context.cloud().cluster;
        let what = format!("all holds after {}", case.name);
        wait::until(&what, AGAIN.saturating_sub(since.elapsed()), async || {
            let operation = cluster.operation(&asked.name).await?;
            let look = Look::of(&self.host).await?;
            let rules = look.rules(&operation, from, &to)?;
            let (held, broken): (Vec<_>, Vec<_>) = rules.iter().partition(|rule| rule.instead.is_none());
            if !broken.is_empty() {
                let held: Vec<&str> = held.iter().map(|rule| rule.name).collect();
                let broken: Vec<String> = broken
                    .iter()
                    .map(|rule| format!("NOT {}: {}", rule.name, rule.instead.as_deref().unwrap_or_default()))
                    .collect();
                bail!("{}; held: {}", broken.join("; "), held.join(", "));
            }
            if replaced && look.daemon() == Some(setting.old.as_str()) {
                bail!("the agent from before still runs");
            }
            let on = if look.image()? == from { Agent::Old } else { Agent::New };
            if on == Agent::New && case.road == Road::Bad {
                return Err(Stop("an image runs that can't".to_owned()).into());
            }
            if case.innocent && on == Agent::Old && !setting.blamed && look.blames(&to) {
                return Err(Stop("the candidate is remembered as one that failed, and it never ran".to_owned()).into());
            }
            let says = operation.message().lines().next().unwrap_or_default().to_owned();
            Ok(Some(Ended { on, says }))
        })
        .await
    }

    /// How long an upgrade takes that nobody disturbs, of images of that kind.
    ///
    /// # Errors
    /// It does not end as such an image has to.
    pub(super) async fn undisturbed(&mut self, kind: Kind) -> Result<Duration> {
        let look = Look::of(&self.host).await?;
        let setting = self.setting(kind, &look).await?;
        let asked = insist_on(self.context, &self.host, &setting.to).await?;
        let start = Instant::now();
        self.context.cloud().cluster.operation_over(&asked.name, OVER).await?;
        let took = start.elapsed();
        let case = Case {
            name: format!("an undisturbed upgrade, {kind:?}"),
            victim: None,
            road: kind.road(),
            innocent: false,
        };
        let ended = self.aftermath(&case, &setting, &asked, Instant::now()).await?;
        ensure!(
            (ended.on == Agent::New) == (kind.road() == Road::Good),
            "{}: {ended}",
            case.name
        );
        Ok(took)
    }

    /// At a moment of an upgrade the first of these who is there dies, and all that must hold does so soon. Says who it was.
    ///
    /// # Errors
    /// What does not hold.
    pub(super) async fn cut(&mut self, kind: Kind, after: Duration, victims: &[Victim]) -> Result<(Victim, Ended)> {
        let look = Look::of(&self.host).await?;
        let setting = self.setting(kind, &look).await?;
        let outside = self.host.outside()?;
        let asked = insist_on(self.context, &self.host, &setting.to).await?;
        tokio::time::sleep(after).await;
        let mut victim = None;
        for candidate in victims {
            if candidate.strike(&outside)?.is_some() {
                victim = Some(*candidate);
                break;
            }
        }
        let victim = victim.context("nobody was there to die")?;
        let case = Case {
            name: format!("{victim}, {after:?} after {kind:?} was asked for"),
            victim: Some(victim),
            road: kind.road(),
            innocent: false,
        };
        let ended = self.aftermath(&case, &setting, &asked, Instant::now()).await?;
        Ok((victim, ended))
    }

    /// An upgrade that nobody disturbs.
    pub(super) async fn upgrade(&self, to: &ImageRef) -> Result<()> {
        let asked = insist_on(self.context, &self.host, to).await?;
        asked
            .over(self.context, OVER)
            .await?
            .complete()
            .context("an undisturbed upgrade")
    }

    /// After all that, the host still does what it is for.
    ///
    /// # Errors
    /// The next upgrade does not succeed, or the node is not Ready.
    pub(super) async fn end(self) -> Result<()> {
        let look = Look::of(&self.host).await?;
        let other = self.other(look.image()?).await?;
        self.upgrade(&other).await?;
        self.context.is_joined(&self.host).await
    }
}
