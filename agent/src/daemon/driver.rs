//! Drives an upgrade from wherever its journal stands: makes the steps of a state true, and saves what came of them.

use std::time::Duration;

use hostexec::Host;
use image::ImageRef;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, warn};

use super::judge::{self, Surroundings};
use super::switch::{self, Which};
use super::teller::Teller;
use super::{LONGEST_PAUSE, PAUSE, candidate, local};
use crate::cluster::{Seen, Standing, jitter};
use crate::model::{NodeName, chain};
use crate::operation::{self, Kind, Me, Phase};
use crate::report;
use crate::store::{failures, journal};
use crate::upgrade::{self, Event, Order, Step, Upgrade};

/// How long after it was asked for a restart has certainly failed. Source: node-agent specification, appendix D.
const RESTART: Duration = Duration::from_secs(30);

/// What an upgrade is driven with.
pub(super) struct Driver<'a> {
    /// The host.
    pub(super) host: &'a Host,
    /// The node's name, and the AKS machine's.
    pub(super) node: &'a NodeName,
    /// What a candidate is judged by.
    pub(super) around: Surroundings,
    /// How this agent's units and program are brought onto the host.
    pub(super) local: &'a local::Local,
    /// What the cluster holds.
    pub(super) seen: watch::Receiver<Seen>,
    /// Who tells the cluster.
    pub(super) teller: Teller,
    /// Whether units and program were held back while this agent was unjudged; a death before they are brought up is made good by the
    /// next start.
    pub(super) held_back: bool,
}

impl Driver<'_> {
    /// Drives an upgrade until none is going on, or this process is about to end.
    pub(super) async fn settle(&mut self, running: &ImageRef) {
        let mut pause = PAUSE;
        loop {
            let outcome = match journal::load(self.host) {
                Ok(Upgrade::Idle) => return,
                Ok(state) => self.advance(state, running).await.map_err(|error| chain(&error)),
                Err(error @ journal::Error::Io(_)) => {
                    error!(error = chain(&error), "no upgrade can be carried out");
                    return;
                }
                Err(error) => match self.end_unreadable(running, &error).await {
                    Ok(()) => return,
                    Err(error) => Err(error),
                },
            };
            match outcome {
                Ok(()) => pause = PAUSE,
                Err(error) => {
                    warn!(error, "the upgrade does not go on; trying again");
                    sleep(pause.mul_f64(1.0 + jitter::fraction() / 4.0)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Makes the steps of `state` true, and saves what came of them.
    async fn advance(&mut self, state: Upgrade, running: &ImageRef) -> Result<(), switch::Error> {
        if let Upgrade::Back { to, .. } = &state
            && to.digest == running.digest
        {
            // The last good agent never ended: there is nothing to restart.
            switch::name_image(self.host, &state, Which::Selected, to).await?;
            return self
                .save(Event::Started {
                    running: running.clone(),
                })
                .await;
        }
        let Some(order) = state.order().cloned() else {
            return Ok(());
        };
        for step in state.steps() {
            match step {
                Step::Announce => {
                    if self.announce(&order, &state).await == Standing::NotCurrent {
                        self.teller.note_ended(&order.uid);
                        return self.save(Event::Dropped).await;
                    }
                }
                Step::Stage(image) => {
                    let event = self.stage(&order, &image).await;
                    return self.save(event).await;
                }
                Step::Remember(image) => {
                    let named = switch::name_image(self.host, &state, Which::LastGood, &image).await;
                    if let Err(switch::Error::Select(error)) = named {
                        return self.unselectable(&error).await;
                    }
                    named?;
                }
                Step::Select(image) => {
                    let named = switch::name_image(self.host, &state, Which::Selected, &image).await;
                    if let (Err(switch::Error::Select(error)), Upgrade::Switched { .. }) = (&named, &state) {
                        return self.unselectable(error).await;
                    }
                    named?;
                }
                Step::Blame { image, why } => {
                    let record = failures::load(self.host);
                    self.record(&record.with(
                        &image.digest,
                        &order.uid,
                        Timestamp::now(),
                        &report::short(&report::clean(&why)),
                    ));
                }
                Step::Clear(image) => {
                    let record = failures::load(self.host);
                    if record.of(&image.digest).is_some() {
                        self.record(&record.without(&image.digest));
                    }
                }
                Step::Restart => return self.restart(&state).await,
                Step::Judge(before) => {
                    let event = match judge::judge(self.host, &self.around, before).await {
                        Ok(()) => Event::Passed,
                        Err(why) => {
                            error!(why, "this agent does not do; going back to the last good image");
                            Event::Failed { why }
                        }
                    };
                    self.held_back = event == Event::Passed;
                    return self.save(event).await;
                }
                Step::Publish(outcome) => {
                    let Upgrade::Over { selected, blamed, .. } = &state else {
                        return Ok(());
                    };
                    let record = failures::load(self.host);
                    let attempts = blamed
                        .as_ref()
                        .and_then(|image| record.of(&image.digest))
                        .map(|failure| failure.attempts);
                    let end = report::end(&order, selected, &outcome, attempts);
                    self.teller.publish(&order.name, &order.uid, &end).await;
                    self.save(Event::Published).await?;
                    // Whoever waits for the end need not wait for this.
                    if std::mem::take(&mut self.held_back) {
                        self.local.converge(upgrade::Standing::Settled).await;
                    }
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    async fn save(&self, event: Event) -> Result<(), switch::Error> {
        switch::transition(self.host, event).await.map(drop)
    }

    /// A record that can't be kept must not keep the operation from its end.
    fn record(&self, record: &crate::upgrade::Failures) {
        if let Err(error) = failures::save(self.host, record) {
            warn!(%error, "the record of failed images stays as it was");
        }
    }

    /// A disk that takes no selection: what runs stays, and the operation has failed (fc_r12).
    async fn unselectable(&self, error: &std::io::Error) -> Result<(), switch::Error> {
        let why = format!("the agent image could not be selected: {error}");
        error!(why, "nothing was switched");
        self.save(Event::Failed { why }).await
    }

    async fn restart(&self, state: &Upgrade) -> Result<(), switch::Error> {
        let why = match switch::restart_soon(self.host, Timestamp::now()).await {
            Ok(()) => {
                sleep(RESTART).await;
                format!("the agent was not restarted within {} s", RESTART.as_secs())
            }
            Err(error) => chain(&error),
        };
        error!(why, "the restart failed");
        if let Upgrade::Back { .. } = state {
            // What runs was found bad, perhaps since it can't run the host's tools. Its end does as well as a restart: the
            // unit starts what is selected.
            end_this_process();
            return std::future::pending().await;
        }
        self.save(Event::Failed { why }).await
    }

    async fn stage(&self, order: &Order, image: &ImageRef) -> Event {
        let mut seen = self.seen.clone();
        let gone = seen.wait_for(|seen| seen.whole && !waits(seen, &order.name, &order.uid));
        let (words, follow) = watch::channel(String::new());
        let stage = async {
            let before = judge::observe(self.host, &self.around).await;
            let tell = |progress| {
                words.send_replace(report::progress(image, &progress));
            };
            candidate::stage(self.host, image, before, tell).await
        };
        let staged = tokio::select! {
            // Dropped, a pull leaves a lease that ends by itself, and what the next pull goes on from.
            staged = stage => staged,
            // Nothing was selected: the operation can be left at any time.
            _ = gone => return Event::Dropped,
            never = self.teller.follow(order, follow) => match never {},
        };
        match staged {
            // Looked at once more: a pull may take minutes, and what failed in them is no fault of the candidate.
            Ok(()) => Event::Staged {
                before: judge::observe(self.host, &self.around).await,
            },
            Err(why) => {
                warn!(why, "the agent image could not be made ready");
                Event::Failed { why }
            }
        }
    }

    async fn announce(&mut self, order: &Order, state: &Upgrade) -> Standing {
        let Upgrade::Staging { to, .. } = state else {
            return Standing::Current;
        };
        self.teller.begin(order, &report::in_progress(to)).await
    }

    /// A journal that can't be read: this agent runs and stays, what it was about is ended as failed, and only then is
    /// the journal put aside.
    async fn end_unreadable(&mut self, running: &ImageRef, why: &journal::Error) -> Result<(), String> {
        error!(error = %why, "an upgrade's end can't be known; this agent stays");
        let keep = switch::name_image_anyway(self.host, Which::Selected, running).await;
        keep.map_err(|error| chain(&error))?;
        let seen = match self.seen.wait_for(|seen| seen.whole).await {
            Ok(seen) => seen.clone(),
            Err(_) => std::future::pending().await,
        };
        let me = self.me(&seen);
        let mut left: Vec<_> = seen.operations.into_values().collect();
        left.retain(|op| {
            op.kind == Kind::AgentUpgrade && op.phase == Phase::InProgress && op.target.is_one() && op.target.is(&me)
        });
        for operation in left {
            let message = format!("{why}; agent image {running} runs");
            let end = report::denied(operation::Denial::DaemonFailed, &message);
            self.teller.publish(&operation.name, &operation.uid, &end).await;
        }
        journal::put_aside(self.host).map_err(|error| chain(&error))
    }

    /// Who this agent is to the cluster, as it is seen now.
    pub(super) fn me(&self, seen: &Seen) -> Me {
        Me {
            machine: self.node.to_string(),
            labels: seen.labels.clone(),
        }
    }
}

/// Asks this process to end, as systemd would.
fn end_this_process() {
    if let Err(errno) = nix::sys::signal::raise(nix::sys::signal::Signal::SIGTERM) {
        error!(%errno, "this agent can't end itself");
    }
}

/// Whether the operation is still there and has not ended.
fn waits(seen: &Seen, name: &str, uid: &str) -> bool {
    seen.operations
        .get(name)
        .is_some_and(|operation| operation.uid == uid && operation.phase != Phase::Over)
}
