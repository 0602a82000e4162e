//! The one worker: takes operations one at a time, and drives an upgrade from wherever its journal stands.

use std::collections::BTreeSet;
use std::time::Duration;

use hostexec::Host;
use image::ImageRef;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::judge::{self, Surroundings};
use super::switch::{self, Which};
use super::{candidate, local};
use crate::cluster::{Client, Ending, Error, Seen, Standing, jitter};
use crate::model::{NodeName, chain};
use crate::operation::{self, Admission, Kind, Me, Operation, Phase};
use crate::report::{self, End};
use crate::store::journal;
use crate::upgrade::{Event, Order, Step, Upgrade};

/// Pause after the first failure, and the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// How long after it was asked for a restart has certainly failed. Source: node-agent specification, appendix D.
const RESTART: Duration = Duration::from_secs(30);
/// How often a status is tried again that the API server answers but does not take.
const REFUSALS: u32 = 5;
/// How long somebody else's lock is waited for. Source: node-agent specification, appendix D.
const LOCKED: Duration = Duration::from_secs(5);

/// What the worker works with.
pub(super) struct Worker<'a> {
    /// The host.
    pub(super) host: &'a Host,
    /// The node's name, and the AKS machine's.
    pub(super) node: &'a NodeName,
    /// What a candidate is judged by.
    pub(super) around: Surroundings,
    /// How this agent's units and program are brought onto the host.
    pub(super) local: &'a local::Local,
    /// The image this daemon runs, once it is known and the journal knows it too.
    pub(super) running: Option<ImageRef>,
    /// This process among all that ever were.
    pub(super) instance: String,
    /// The client, once there is one.
    pub(super) clients: watch::Receiver<Option<Client>>,
    /// What the cluster holds.
    pub(super) seen: watch::Receiver<Seen>,
    /// Operations that were ended, and that the watch may not have seen end yet.
    pub(super) ended: BTreeSet<String>,
}

/// Whether there is more to do at once.
enum Next {
    /// There is.
    Again,
    /// When something new is seen.
    News,
    /// At this time, or when something new is seen.
    At(Timestamp),
}

impl Worker<'_> {
    /// Works until it is dropped.
    pub(super) async fn run(mut self) {
        let running = self.running().await;
        self.settle(&running).await;
        candidate::remove_unused(self.host).await;
        let mut pause = PAUSE;
        loop {
            match self.pass(&running).await {
                Ok(Next::Again) => pause = PAUSE,
                Ok(Next::News) => {
                    pause = PAUSE;
                    self.news().await;
                }
                Ok(Next::At(time)) => {
                    pause = PAUSE;
                    let left = Duration::try_from(time.duration_since(Timestamp::now())).unwrap_or_default();
                    tokio::select! {
                        () = sleep(left) => {}
                        () = self.news() => {}
                    }
                }
                Err(error) => {
                    warn!(%error, "an operation could not be seen to; trying again");
                    sleep(pause.mul_f64(1.0 + jitter::fraction() / 4.0)).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// The image this daemon runs. Until that is known nothing can be decided.
    async fn running(&mut self) -> ImageRef {
        let mut pause = PAUSE;
        loop {
            if let Some(running) = &self.running {
                return running.clone();
            }
            match local::started(self.host).await {
                Ok(running) => self.running = Some(running),
                Err(error) => {
                    error!(%error, "which image this agent runs is not known");
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    async fn news(&mut self) {
        // Its sender lives as long as the daemon: an error is the end of both.
        if self.seen.changed().await.is_err() {
            std::future::pending().await
        }
    }

    async fn client(&mut self) -> Client {
        loop {
            let client = self.clients.borrow_and_update().clone();
            match client {
                Some(client) => return client,
                None => {
                    if self.clients.changed().await.is_err() {
                        std::future::pending().await
                    }
                }
            }
        }
    }

    /// Drives an upgrade until none is going on, or this process is about to end.
    async fn settle(&mut self, running: &ImageRef) {
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
                        self.ended.insert(order.uid);
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
                Step::Restart => return self.restart(&state).await,
                Step::Judge(before) => {
                    let event = match judge::judge(self.host, &self.around, before).await {
                        Ok(()) => Event::Passed,
                        Err(why) => {
                            error!(why, "this agent does not do; going back to the last good image");
                            Event::Failed { why }
                        }
                    };
                    self.save(event).await?;
                    // What was held back while it was unjudged.
                    if let Ok(Upgrade::Over { .. }) = journal::load(self.host) {
                        self.local.converge(crate::upgrade::Standing::Settled).await;
                    }
                    return Ok(());
                }
                Step::Publish(outcome) => {
                    let Upgrade::Over { selected, .. } = &state else {
                        return Ok(());
                    };
                    let end = report::end(&order, selected, &outcome);
                    self.publish(&order.name, &order.uid, &end).await;
                    return self.save(Event::Published).await;
                }
            }
        }
        Ok(())
    }

    async fn save(&self, event: Event) -> Result<(), switch::Error> {
        switch::transition(self.host, event).await.map(drop)
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
        let staged = tokio::select! {
            // Dropped, a pull leaves a lease that ends by itself, and what the next pull goes on from.
            staged = candidate::stage(self.host, image) => staged,
            // Nothing was selected: the operation can be left at any time.
            _ = gone => return Event::Dropped,
        };
        match staged {
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
        let message = report::in_progress(to);
        self.tell(async |client| {
            let generation = order.generation;
            client
                .begin(&order.name, &order.uid, &message, order.started_at, generation)
                .await
        })
        .await
    }

    /// Says how an operation ended, however long it takes until the cluster hears it.
    async fn publish(&mut self, name: &str, uid: &str, end: &End) {
        let ending = Ending {
            phase: end.phase,
            reason: end.reason,
            message: end.message.clone(),
            started_at: end.started_at,
            completed_at: Timestamp::now(),
            generation: end.generation,
        };
        let standing = self.tell(async |client| client.finish(name, uid, &ending).await).await;
        self.ended.insert(uid.to_owned());
        match standing {
            Standing::Current => info!(
                operation = name,
                phase = end.phase,
                reason = end.reason,
                "operation ended"
            ),
            Standing::NotCurrent => info!(operation = name, "operation is gone, or had ended"),
        }
    }

    async fn tell(&mut self, write: impl AsyncFn(Client) -> Result<Standing, Error>) -> Standing {
        let mut pause = PAUSE;
        let mut refusals = REFUSALS;
        loop {
            let client = self.client().await;
            match write(client).await {
                Ok(standing) => return standing,
                Err(error @ Error::Refused(_)) if refusals == 0 => {
                    error!(%error, "the cluster does not take the operation's status: it is left as it is");
                    return Standing::NotCurrent;
                }
                Err(error) => {
                    refusals -= u32::from(matches!(error, Error::Refused(_)));
                    warn!(%error, "the operation's status is not written yet");
                }
            }
            sleep(pause.mul_f64(1.0 + jitter::fraction() / 4.0)).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
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
            self.publish(&operation.name, &operation.uid, &end).await;
        }
        journal::put_aside(self.host).map_err(|error| chain(&error))
    }

    fn me(&self, seen: &Seen) -> Me {
        Me {
            machine: self.node.to_string(),
            labels: seen.labels.clone(),
        }
    }

    /// Looks at every operation once and sees to the first that needs it.
    async fn pass(&mut self, running: &ImageRef) -> Result<Next, Error> {
        let seen = self.seen.borrow_and_update().clone();
        if !seen.whole {
            return Ok(Next::News);
        }
        let me = self.me(&seen);
        self.ended
            .retain(|uid| seen.operations.values().any(|operation| operation.uid == *uid));
        let mut operations: Vec<_> = seen.operations.into_values().collect();
        operation::queue(&mut operations);
        // Of what is in progress nothing can be said while the journal can't be read.
        let (upgrade, known) = match journal::load(self.host) {
            Ok(Upgrade::Idle) => (Upgrade::Idle, true),
            // Left when the journal could not be reached for a moment.
            Ok(_) => {
                self.settle(running).await;
                return Ok(Next::Again);
            }
            Err(_) => (Upgrade::Idle, false),
        };
        let mut next = Next::News;
        for operation in operations {
            if !known && operation.phase == Phase::InProgress {
                continue;
            }
            match operation::admit(&operation, &me, &upgrade) {
                Admission::Ignore | Admission::Wait => {}
                Admission::DeleteAt(time) if time <= Timestamp::now() => {
                    self.client().await.remove(&operation.name, &operation.uid).await?;
                    info!(
                        operation = operation.name,
                        "operation removed: its time after the end is over"
                    );
                }
                Admission::DeleteAt(time) => {
                    next = match next {
                        Next::At(sooner) if sooner < time => Next::At(sooner),
                        Next::At(_) | Next::News | Next::Again => Next::At(time),
                    };
                }
                Admission::Deny { .. } | Admission::Upgrade { .. } if self.ended.contains(&operation.uid) => {}
                Admission::Deny { reason, message } => {
                    self.publish(&operation.name, &operation.uid, &report::denied(reason, &message))
                        .await;
                }
                Admission::Upgrade { to } => {
                    self.upgrade(&operation, to, running).await?;
                    return Ok(Next::Again);
                }
            }
        }
        Ok(next)
    }

    async fn upgrade(&mut self, operation: &Operation, to: ImageRef, running: &ImageRef) -> Result<(), Error> {
        let client = self.client().await;
        if client.current(&operation.name, &operation.uid).await? == Standing::NotCurrent {
            self.ended.insert(operation.uid.clone());
            return Ok(());
        }
        let order = Order {
            name: operation.name.clone(),
            uid: operation.uid.clone(),
            generation: client.machine_generation(self.node.as_str()).await?,
            machine: self.around.machine.map(|machine| machine.to_string()),
            daemon: self.instance.clone(),
            started_at: Timestamp::now(),
        };
        info!(operation = order.name, image = %to, "operation taken");
        let asked = Event::Asked {
            order,
            from: running.clone(),
            to,
        };
        match switch::transition(self.host, asked).await {
            Ok(_) => {
                self.settle(running).await;
                candidate::remove_unused(self.host).await;
            }
            Err(switch::Error::Locked) => {
                info!("another upgrade is under way on this host; looking again soon");
                sleep(LOCKED).await;
            }
            // Without a journal nothing is begun (fc_r12).
            Err(error) => {
                let end = End {
                    phase: "Failed",
                    reason: "ExecutionFailed",
                    message: report::clean(&format!(
                        "the upgrade can't be recorded, and so was not begun: {}",
                        chain(&error)
                    )),
                    started_at: None,
                    generation: 0,
                };
                self.publish(&operation.name, &operation.uid, &end).await;
            }
        }
        Ok(())
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
