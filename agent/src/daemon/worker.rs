//! The one worker: takes operations one at a time, oldest first.

use std::time::Duration;

use image::ImageRef;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::driver::Driver;
use super::{LONGEST_PAUSE, PAUSE, candidate, local, reset, switch};
use crate::cluster::{Error, Seen, Standing, jitter};
use crate::model::chain;
use crate::operation::{self, Admission, Known, Operation, Phase};
use crate::report::{self, End};
use crate::store::{failures, journal};
use crate::upgrade::{Event, Order, Upgrade};

/// How long somebody else's lock is waited for. Source: node-agent specification, appendix D.
const LOCKED: Duration = Duration::from_secs(5);

/// What the worker works with.
pub(super) struct Worker<'a> {
    /// Who carries upgrades out.
    pub(super) driver: Driver<'a>,
    /// The image this daemon runs, once it is known and the journal knows it too.
    pub(super) running: Option<ImageRef>,
    /// This process among all that ever were.
    pub(super) instance: String,
    /// What the cluster holds.
    pub(super) seen: watch::Receiver<Seen>,
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
        self.driver.settle(&running).await;
        candidate::remove_unused(self.driver.host).await;
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
            match local::started(self.driver.host).await {
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

    /// Looks at every operation once and sees to the first that needs it.
    async fn pass(&mut self, running: &ImageRef) -> Result<Next, Error> {
        // Asked for by an operation or a deletion, it goes before all else, and ends this agent.
        if self.driver.settle_reset().await {
            return Ok(Next::Again);
        }
        let seen = self.seen.borrow_and_update().clone();
        if !seen.whole {
            return Ok(Next::News);
        }
        let me = self.driver.me(&seen);
        self.driver
            .teller
            .forget_unless(|uid| seen.operations.values().any(|operation| operation.uid == uid));
        let mut operations: Vec<_> = seen.operations.into_values().collect();
        operation::queue(&mut operations);
        // Of what is in progress nothing can be said while the journal can't be read.
        let (upgrade, known) = match journal::load(self.driver.host) {
            Ok(Upgrade::Idle) => (Upgrade::Idle, true),
            // Left when the journal could not be reached for a moment.
            Ok(_) => {
                self.driver.settle(running).await;
                return Ok(Next::Again);
            }
            Err(_) => (Upgrade::Idle, false),
        };
        let failures = failures::load(self.driver.host);
        let mut next = Next::News;
        for operation in operations {
            if !known && operation.phase == Phase::InProgress {
                continue;
            }
            let known = Known {
                upgrade: &upgrade,
                failures: &failures,
                running,
            };
            match operation::admit(&operation, &me, known) {
                Admission::Ignore | Admission::Wait => {}
                Admission::DeleteAt(time) if time <= Timestamp::now() => {
                    self.driver
                        .teller
                        .client()
                        .await
                        .remove(&operation.name, &operation.uid)
                        .await?;
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
                Admission::Deny { .. } | Admission::Upgrade { .. } | Admission::Reset
                    if self.driver.teller.has_ended(&operation.uid) => {}
                Admission::Deny { reason, message } => {
                    self.driver
                        .teller
                        .publish(&operation.name, &operation.uid, &report::denied(reason, &message))
                        .await;
                }
                Admission::Upgrade { to } => {
                    self.upgrade(&operation, to, running).await?;
                    return Ok(Next::Again);
                }
                Admission::Reset => {
                    self.reset(&operation).await?;
                    return Ok(Next::Again);
                }
            }
        }
        Ok(next)
    }

    /// The operation, if it still is the one that was seen, with what its end needs to know.
    async fn order(&mut self, operation: &Operation) -> Result<Option<Order>, Error> {
        let client = self.driver.teller.client().await;
        if client.current(&operation.name, &operation.uid).await? == Standing::NotCurrent {
            self.driver.teller.note_ended(&operation.uid);
            return Ok(None);
        }
        Ok(Some(Order {
            name: operation.name.clone(),
            uid: operation.uid.clone(),
            generation: client.machine_generation(self.driver.node.as_str()).await?,
            machine: self.driver.around.machine.map(|machine| machine.to_string()),
            daemon: self.instance.clone(),
            started_at: Timestamp::now(),
        }))
    }

    async fn reset(&mut self, operation: &Operation) -> Result<(), Error> {
        let Some(order) = self.order(operation).await? else {
            return Ok(());
        };
        info!(operation = order.name, "operation taken");
        if let Err(error) = reset::ask_for(self.driver.host, order) {
            let what = "the reset can't be recorded, and so was not begun";
            self.not_begun(operation, what, &error).await;
        }
        Ok(())
    }

    async fn not_begun(&mut self, operation: &Operation, what: &str, error: &dyn std::error::Error) {
        let end = End {
            phase: "Failed",
            reason: "ExecutionFailed",
            message: report::clean(&format!("{what}: {}", chain(error))),
            started_at: None,
            generation: 0,
        };
        self.driver.teller.publish(&operation.name, &operation.uid, &end).await;
    }

    async fn upgrade(&mut self, operation: &Operation, to: ImageRef, running: &ImageRef) -> Result<(), Error> {
        let Some(order) = self.order(operation).await? else {
            return Ok(());
        };
        info!(operation = order.name, image = %to, "operation taken");
        let asked = Event::Asked {
            order,
            from: running.clone(),
            to,
        };
        match switch::transition(self.driver.host, asked).await {
            Ok(_) => {
                self.driver.settle(running).await;
                candidate::remove_unused(self.driver.host).await;
            }
            Err(switch::Error::Locked) => {
                info!("another upgrade is under way on this host; looking again soon");
                sleep(LOCKED).await;
            }
            // Without a journal nothing is begun (fc_r12).
            Err(error) => {
                let what = "the upgrade can't be recorded, and so was not begun";
                self.not_begun(operation, what, &error).await;
            }
        }
        Ok(())
    }
}
