//! The two watches: MachineOperations, and the own Node. What they see is kept in one place that the worker reads.

use std::collections::BTreeMap;
use std::pin::pin;
use std::time::Duration;

use futures::StreamExt as _;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{self, Config, Event};
use tokio::sync::watch::Sender;
use tokio::time::sleep;
use tracing::{error, info, warn};

use super::wire::MachineOperation;
use super::{Client, Error};
use crate::model::{NodeName, chain};
use crate::operation::Operation;

/// Pause after the first fault, and the longest one.
const PAUSE: Duration = Duration::from_millis(500);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Pause after an answer that only a person can change: no such kind, no right.
const PATIENCE: Duration = Duration::from_secs(20);

/// What the watches have seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Every operation, by name.
    pub operations: BTreeMap<String, Operation>,
    /// Whether the list above is whole.
    pub whole: bool,
    /// The own Node's labels; none when there is no Node, or it has not been seen yet.
    pub labels: Option<BTreeMap<String, String>>,
}

/// Keeps `seen` up to date with the cluster's MachineOperations. Ends only when the credential is refused.
pub async fn watch_operations(client: &Client, seen: &Sender<Seen>) -> Error {
    let mut stream = pin!(watcher::watcher(client.operations(), Config::default()));
    let mut fault = Fault::new("machineoperations");
    let mut fresh = BTreeMap::new();
    while let Some(event) = stream.next().await {
        let event = match event {
            Ok(event) => event,
            Err(error) => match fault.meet(error).await {
                Some(end) => return end,
                None => continue,
            },
        };
        if !matches!(event, Event::Init) {
            fault.over();
        }
        match event {
            Event::Init => fresh.clear(),
            Event::InitApply(object) => {
                if let Some(operation) = there(object) {
                    fresh.insert(operation.name.clone(), operation);
                }
            }
            Event::InitDone => {
                let all = std::mem::take(&mut fresh);
                seen.send_modify(|seen| (seen.operations, seen.whole) = (all, true));
            }
            Event::Apply(object) => {
                let name = object.metadata.name.clone().unwrap_or_default();
                let operation = there(object);
                seen.send_modify(|seen| {
                    match operation {
                        Some(operation) => seen.operations.insert(name, operation),
                        None => seen.operations.remove(&name),
                    };
                });
            }
            Event::Delete(object) => seen.send_modify(|seen| {
                seen.operations
                    .remove(object.metadata.name.as_deref().unwrap_or_default());
            }),
        }
    }
    Error::Away("the watch of machineoperations ended".into())
}

/// What an object asks for; nothing, if it is being deleted: it only waits for somebody's finalizer.
fn there(object: MachineOperation) -> Option<Operation> {
    if let Some(part) = object.unreadable {
        let name = object.metadata.name.as_deref().unwrap_or_default();
        warn!(name, part, "a MachineOperation can't be read, and is passed over");
    }
    let goes = object.metadata.deletion_timestamp.is_some();
    (!goes).then(|| object.into())
}

/// Keeps `seen` up to date with the own Node. Ends only when the credential is refused.
pub async fn watch_node(client: &Client, node: &NodeName, seen: &Sender<Seen>) -> Error {
    // The labels are in the metadata: the rest of the object, which changes every few seconds, is not asked for.
    let api: Api<PartialObjectMeta<Node>> = Api::all(client.0.clone());
    let only = Config::default().fields(&format!("metadata.name={node}"));
    let mut stream = pin!(watcher::watcher(api, only));
    let mut fault = Fault::new("nodes");
    let mut fresh = None;
    let set = |labels: Option<BTreeMap<String, String>>| {
        seen.send_if_modified(|seen| {
            let differs = seen.labels != labels;
            seen.labels = labels;
            differs
        });
    };
    while let Some(event) = stream.next().await {
        match event {
            Ok(Event::Init) => {
                fresh = None;
                continue;
            }
            Ok(Event::InitApply(node)) => fresh = Some(node.metadata.labels.unwrap_or_default()),
            Ok(Event::InitDone) => set(fresh.take()),
            Ok(Event::Apply(node)) => set(Some(node.metadata.labels.unwrap_or_default())),
            Ok(Event::Delete(_)) => set(None),
            Err(error) => {
                if let Some(end) = fault.meet(error).await {
                    return end;
                }
                continue;
            }
        }
        fault.over();
    }
    Error::Away("the watch of the node ended".into())
}

/// What keeps a watch from seeing: said once when it begins, once when it changes its kind, once when it is over.
struct Fault {
    what: &'static str,
    said: Option<std::mem::Discriminant<Error>>,
    pause: Duration,
}

impl Fault {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            said: None,
            pause: PAUSE,
        }
    }

    /// Says it, waits, and gives back an error that another try with the same client can't mend.
    async fn meet(&mut self, fault: watcher::Error) -> Option<Error> {
        let error = match fault {
            watcher::Error::InitialListFailed(error)
            | watcher::Error::WatchStartFailed(error)
            | watcher::Error::WatchFailed(error) => Error::of(error),
            watcher::Error::WatchError(status) => Error::of_status(&status),
            other @ watcher::Error::NoResourceVersion => Error::Away(chain(&other)),
        };
        // The watch is too old: the next step lists anew. That happens, and is no fault.
        if matches!(&error, Error::Refused(text) if text.contains("too old")) {
            return None;
        }
        let kind = std::mem::discriminant(&error);
        let first = self.said.replace(kind) != Some(kind);
        let what = self.what;
        let wait = match &error {
            Error::Unauthorized(_) => return Some(error),
            Error::Denied(_) => {
                if first {
                    error!(what, %error, "looking again from time to time");
                }
                PATIENCE
            }
            Error::Missing(_) => {
                if first {
                    warn!(
                        what,
                        "the cluster does not have this kind at v1alpha3 of unbounded-cloud.io; looking again from time to time"
                    );
                }
                PATIENCE
            }
            Error::Away(_) | Error::Conflict(_) | Error::Refused(_) | Error::Settings(_) => {
                if first {
                    warn!(what, %error, "the watch will go on when the API server answers");
                }
                let pause = self.pause;
                self.pause = (pause * 2).min(LONGEST_PAUSE);
                pause
            }
        };
        sleep(jittered(wait)).await;
        None
    }

    fn over(&mut self) {
        if self.said.take().is_some() {
            info!(what = self.what, "the watch goes on");
        }
        self.pause = PAUSE;
    }
}

/// Up to a quarter longer, so that a fleet does not come back all at once.
fn jittered(pause: Duration) -> Duration {
    pause + pause.mul_f64(super::jitter::fraction() / 4.0)
}
