//! The long-lived agent: what runs side by side, and in which order a start goes.
//!
//! ```text
//!  journal ─▶ READY=1 ─┬─ units, machine's program ─▶ worker: upgrade to its end, then operations one by one
//!                      ├─ identity: certificate, or an Azure identity's token ─▶ client
//!                      ├─ watches: operations, own Node ─▶ seen
//!                      ├─ after a minute: systemd forgets earlier restarts
//!                      └─ watchdog; at its beat, the container's resolver follows the host's
//! ```
//!
//! What an agent does before READY=1 is time in which the host has none, at each upgrade: it is what a start can fail in.
//! A candidate is judged by the worker, and so after its units' turn.
//!
//! One thread and one future: SIGTERM drops it all, and whatever it was at goes on from the journal. Deliberately absent:
//! an exit because the cluster is away, refuses us, or lacks the kind.

mod bearer;
mod candidate;
pub mod check;
mod driver;
mod identity;
mod judge;
mod local;
pub mod recover;
pub mod reset;
mod resolver;
pub mod switch;
mod teller;
mod worker;

use std::time::Duration;

use hostexec::{Host, Tool};
use sd_notify::NotifyState;
use tokio::sync::{Notify, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, sleep, timeout};
use tracing::{info, warn};
use units::AgentUnit;

use crate::apply;
use crate::cluster::{self, Client, Endpoint, Seen, jitter};
use crate::config::{MachineOperations, Settings};
use crate::model::chain;
use crate::store::{inputs, state};

/// The beat where systemd watches nothing, three times over.
const UNWATCHED: Duration = Duration::from_secs(60);
/// Pause after the first failure of something that is tried again, and the longest one.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Pause before a watch is begun anew with the same client.
const AGAIN: Duration = Duration::from_secs(5);
/// How long units and programs may take before the worker begins without them.
const CONVERGE: Duration = Duration::from_secs(20);
/// An agent that was ready for so long is no part of a row of failures: should it end, it starts after the shortest pause.
const SETTLED: Duration = Duration::from_secs(60);

/// Runs the daemon; in a container, `container` is its own root. It does not end by itself: whoever drops it stops it, at any time.
pub async fn run(host: &Host, container: Option<&Host>, settings: &Settings, unit: AgentUnit) {
    let _stopping = Stopping;
    work(host, container, settings, unit).await;
}

/// Tells systemd that the end was asked for, however the daemon is ended.
struct Stopping;

impl Drop for Stopping {
    fn drop(&mut self) {
        notify(&[NotifyState::Stopping]);
    }
}

async fn work(host: &Host, container: Option<&Host>, settings: &Settings, unit: AgentUnit) {
    let machine = match state::load(host) {
        Ok(state) => state.map(|state| state.active_machine),
        Err(error) => {
            warn!(error = chain(&error), "which machine is active is not known");
            None
        }
    };
    let local = local::Local {
        host: host.clone(),
        unit,
        machine,
    };
    // The watchdog counts from READY=1; a start that takes too long is judged by the unit's own limit.
    let running = match local::started(host).await {
        Ok(running) => {
            info!(image = %running, "this agent");
            Some(running)
        }
        Err(error) => {
            warn!(error, "which image this agent runs is not known yet");
            None
        }
    };
    if let Err(error) = apply::sweep(host, machine) {
        warn!(%error, "what a killed agent left beside its files stays");
    }
    notify(&[NotifyState::Ready, NotifyState::Status("serving")]);

    let endpoint = endpoint(settings);
    let (clients, clients_seen) = watch::channel(None);
    let (seen, seen_by_worker) = watch::channel(Seen::default());
    let refused = Notify::new();
    let worker = worker::Worker {
        driver: driver::Driver {
            host,
            node: settings.node_name(),
            around: judge::Surroundings {
                machine,
                endpoint: endpoint.clone(),
            },
            local: &local,
            seen: seen_by_worker.clone(),
            teller: teller::Teller::new(clients_seen.clone()),
            held_back: false,
        },
        running,
        instance: jitter::instance(),
        seen: seen_by_worker,
    };
    let work = async {
        // Cut short, the next start goes on: a systemd that is slow to read its units is no reason to take no operations.
        if timeout(CONVERGE, local.converge(local::standing(host))).await.is_err() {
            warn!(limit = ?CONVERGE, "units and the machine's program are not brought up to this agent in time");
        }
        // A daemon runs where a host has joined.
        inputs::consume_left(host);
        worker.run().await;
    };
    // None of these needs to end by itself, and each may be dropped at any time.
    tokio::join!(
        watchdog(host, container),
        work,
        forget_restarts(host),
        identity(settings, host, endpoint, &clients, &refused),
        watches(settings, clients_seen, &seen, &refused),
    );
}

fn endpoint(settings: &Settings) -> Option<Endpoint> {
    Some(Endpoint {
        server: settings.api_server()?.to_owned(),
        authorities: settings.certificate_authority()?.to_owned(),
    })
}

async fn identity(
    settings: &Settings,
    host: &Host,
    endpoint: Option<Endpoint>,
    clients: &watch::Sender<Option<Client>>,
    refused: &Notify,
) {
    let Some(endpoint) = endpoint else {
        warn!("node.kubelet.clusterFQDN and node.kubelet.caCertData are not set: this agent serves its host alone");
        return;
    };
    // A token comes first: then it is exchanged for a certificate.
    if settings.auth().token().is_none() && settings.auth().identity().is_some() {
        let source = bearer::Source {
            host,
            endpoint,
            settings,
        };
        return bearer::keep(&source, clients, refused).await;
    }
    let source = identity::Source {
        host,
        endpoint,
        node: settings.node_name(),
        token: settings.auth().token(),
    };
    identity::keep(&source, clients, refused).await;
}

/// Keeps both watches going, anew with each new client.
async fn watches(
    settings: &Settings,
    mut clients: watch::Receiver<Option<Client>>,
    seen: &watch::Sender<Seen>,
    refused: &Notify,
) {
    loop {
        let client = clients.borrow_and_update().clone();
        let Some(client) = client else {
            if clients.changed().await.is_err() {
                return;
            }
            continue;
        };
        let operations = async {
            match settings.machine_operations() {
                MachineOperations::Auto => cluster::watch_operations(&client, seen).await,
                MachineOperations::Disable => std::future::pending().await,
            }
        };
        let error = tokio::select! {
            error = operations => error,
            error = cluster::watch_node(&client, settings.node_name(), seen) => error,
            // A new certificate: the old connections go with the old client.
            changed = clients.changed() => match changed {
                Ok(()) => continue,
                Err(_) => return,
            },
        };
        warn!(%error, "the watches end");
        if matches!(error, cluster::Error::Unauthorized(_)) {
            refused.notify_one();
        }
        tokio::select! {
            _ = clients.changed() => {}
            () = sleep(AGAIN.mul_f64(1.0 + jitter::fraction())) => {}
        }
    }
}

/// Has systemd begin to count anew, once this agent has proved itself: it never forgets a restart, and the pauses of a host's
/// whole life would add up.
async fn forget_restarts(host: &Host) {
    sleep(SETTLED).await;
    if let Err(error) = host.run(Tool::Systemctl, &["reset-failed", units::name::AGENT]).await {
        warn!(%error, "systemd keeps its count of this agent's restarts");
    }
}

/// Tells systemd that this thread turns: everything runs on it, and whatever blocks it stops this.
async fn watchdog(host: &Host, container: Option<&Host>) {
    let limit = sd_notify::watchdog_enabled();
    let mut tick = interval(limit.unwrap_or(UNWATCHED) / 3);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut following: Option<JoinHandle<()>> = None;
    loop {
        tick.tick().await;
        if limit.is_some() {
            notify(&[NotifyState::Watchdog]);
        }
        let idle = following.as_ref().is_none_or(JoinHandle::is_finished);
        if let (Some(container), true) = (container, idle) {
            let (host, container) = (host.clone(), container.clone());
            // A disk that hangs is not to hold up this thread.
            following = Some(spawn_blocking(move || resolver::follow(&host, &container)));
        }
    }
}

fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(%error, "systemd was not told");
    }
}
