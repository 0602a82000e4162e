//! What the cluster is told of operations, and for how long it is tried.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::{LONGEST_PAUSE, PAUSE};
use crate::cluster::{Client, Ending, Error, Standing, jitter};
use crate::report::End;
use crate::upgrade::Order;

/// How often a status is tried again that the API server answers but does not take.
const REFUSALS: u32 = 5;
/// Between two words on how far something is. Source: the least that an operation's watchers need.
const EVERY: Duration = Duration::from_secs(5);

/// Writes statuses.
pub(super) struct Teller {
    clients: watch::Receiver<Option<Client>>,
    /// Operations that were ended, and that the watch may not have seen end yet.
    ended: BTreeSet<String>,
}

impl Teller {
    /// One that speaks through the latest client.
    pub(super) fn new(clients: watch::Receiver<Option<Client>>) -> Self {
        Self {
            clients,
            ended: BTreeSet::new(),
        }
    }

    /// The client, once there is one.
    pub(super) async fn client(&mut self) -> Client {
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

    /// Whether the operation was ended here.
    pub(super) fn has_ended(&self, uid: &str) -> bool {
        self.ended.contains(uid)
    }

    /// Takes note of one that is over or gone.
    pub(super) fn note_ended(&mut self, uid: &str) {
        self.ended.insert(uid.to_owned());
    }

    /// Forgets the operations that are gone.
    pub(super) fn forget_unless(&mut self, is_there: impl Fn(&str) -> bool) {
        self.ended.retain(|uid| is_there(uid));
    }

    /// Says that the operation is being carried out, however long it takes until the cluster hears it.
    pub(super) async fn begin(&mut self, order: &Order, message: &str) -> Standing {
        self.tell(async |client| {
            let generation = order.generation;
            client
                .begin(&order.name, &order.uid, message, order.started_at, generation)
                .await
        })
        .await
    }

    /// Says how far an operation is: the latest word, once, at most every 5 s. Never ends; that the cluster is away is no
    /// matter.
    pub(super) async fn follow(&self, order: &Order, mut words: watch::Receiver<String>) -> std::convert::Infallible {
        loop {
            if words.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
            let message = words.borrow_and_update().clone();
            let client = self.clients.borrow().clone();
            if let Some(client) = client {
                let told = client.begin(&order.name, &order.uid, &message, order.started_at, order.generation);
                if let Err(error) = told.await {
                    warn!(%error, "how far the operation is was not written");
                }
            }
            sleep(EVERY).await;
        }
    }

    /// Says how an operation ended, however long it takes until the cluster hears it.
    pub(super) async fn publish(&mut self, name: &str, uid: &str, end: &End) {
        let ending = Ending {
            phase: end.phase,
            reason: end.reason,
            message: end.message.clone(),
            started_at: end.started_at,
            completed_at: Timestamp::now(),
            generation: end.generation,
        };
        let standing = self.tell(async |client| client.finish(name, uid, &ending).await).await;
        self.note_ended(uid);
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
}
