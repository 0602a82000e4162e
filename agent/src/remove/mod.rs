//! Makes the ends of a reset true, one after the other. What can't be made true is told, and does not keep the next from being tried.
//!
//! Each is bounded in time, and none needs anybody but the kernel for what is a file: machined, D-Bus, containerd and systemd may be dead.
//! Deliberately absent: a link that is followed, a mount that is entered, a file that has to be written first.

mod files;
mod network;
mod systemd;

use std::time::{Duration, Instant};

use hostexec::Host;
use image::Digest;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::containerd::{Containerd, Origin};
use crate::facts::Remains;
use crate::ledger::Ledger;
use crate::model::chain;
use crate::plan::reset;
use crate::removal::{End, Removal, Report};
use crate::store::selection;

use systemd::Systemd;

/// How long containerd may take for all it is asked.
const CONTAINERS: Duration = Duration::from_secs(20);
/// What says whose a machine's folder is: it goes last.
const MARK: &str = ".aks-flex-node-rootfs";
/// How long a folder may take to be removed; another reset goes on.
pub(crate) const TREE: Duration = Duration::from_secs(300);

/// Makes every end of `plan` true, as far as that can be done.
pub async fn run(plan: &[Removal], host: &Host, found: &Remains, ledger: Option<&Ledger>) -> Report {
    let mut report = Report::default();
    for what in &found.unread {
        report.add(what, End::CouldNot("it can't be looked at".into()));
    }
    for (what, why) in reset::left_alone(found, ledger) {
        report.add(what, End::Kept(why));
    }
    let mut systemd = Systemd::new(host);
    for removal in plan {
        // Another reset goes by these.
        if reset::is_last(removal) && !report.is_done() {
            continue;
        }
        let started = Instant::now();
        let ends = end(removal, host, &mut systemd, report.is_done()).await;
        let milliseconds = started.elapsed().as_millis();
        for (what, end) in ends {
            match &end {
                End::Absent => {}
                End::Removed => info!(what, milliseconds, "removed"),
                End::Kept(why) => info!(what, why, "kept"),
                End::CouldNot(why) => warn!(what, why, milliseconds, "could not be removed"),
            }
            report.add(what, end);
        }
    }
    report
}

async fn end(removal: &Removal, host: &Host, systemd: &mut Systemd<'_>, done: bool) -> Vec<(String, End)> {
    let one = |end: End| vec![(removal.what(), end)];
    match removal {
        Removal::Stopped { unit } => one(systemd.stop(unit).await),
        Removal::MachineOff { machine } => one(systemd.stop_machine(*machine).await),
        Removal::Unmounted { path, .. } => one(files::unmount(host, path).await),
        Removal::MachineFolder { machine, path } => {
            if systemd.machine_runs(*machine).await {
                return one(End::CouldNot("the machine still runs".into()));
            }
            files::clear(host, path, Some(MARK)).await
        }
        Removal::Gone { path } => files::clear(host, path, None).await,
        Removal::EmptyFolder { path } => one(files::remove_empty(host, path, done)),
        Removal::PutBack { path, written, copy } => one(files::put_back(host, path, written, copy.as_ref())),
        Removal::UnitAsBefore { unit, was } => one(systemd.as_before(unit, was).await),
        Removal::SysctlAsBefore { key, value, was } => one(network::sysctl(host, key, value, was).await),
        Removal::Interface { name } => one(network::interface(host, name).await),
        Removal::Chains => one(network::chains(host).await),
        Removal::Routes => one(network::routes(host).await),
        Removal::FirewallAnew { unit } => one(systemd.anew(unit).await),
        Removal::Reload { units } => one(systemd.reload(units).await),
        Removal::Containers => match timeout(CONTAINERS, containers(host)).await {
            Ok(ends) => ends,
            Err(_) => one(End::CouldNot(format!(
                "containerd does not answer within {} s",
                CONTAINERS.as_secs()
            ))),
        },
    }
}

/// Removes the containers of the agent's units that have stopped, and the images that upgrades brought.
async fn containers(host: &Host) -> Vec<(String, End)> {
    let containerd = Containerd::connect(host);
    let mut ends = Vec::new();
    let could_not = |error: &dyn std::error::Error| End::CouldNot(chain(error));
    let list = match containerd.containers().await {
        Ok(list) => list,
        Err(error) => return vec![("containers and images of the agent".to_owned(), could_not(&error))],
    };
    let ours = reset::names::containers();
    for id in list.iter().filter(|id| ours.contains(id)) {
        let end = match containerd.cleanup(id).await {
            Ok(()) => End::Removed,
            Err(error) => could_not(&error),
        };
        ends.push((format!("container {id}"), end));
    }
    let swept = containerd.sweep_pulls().await;
    if let Err(error) = swept {
        ends.push(("what a pull left".to_owned(), could_not(&error)));
    }
    let installs: Option<Digest> = match selection::load(host, &selection::SETTINGS) {
        Ok(image) => image.map(|image| image.digest),
        Err(error) => {
            // Which one the install runs is not known, and no host is left without one.
            let why = format!("which image is the install's can't be told: {error}");
            ends.push(("images that upgrades brought".to_owned(), End::Kept(why)));
            return ends;
        }
    };
    let images = match containerd.images().await {
        Ok(images) => images,
        Err(error) => {
            ends.push(("images that upgrades brought".to_owned(), could_not(&error)));
            return ends;
        }
    };
    for image in images {
        if image.origin != Origin::Upgrade || (image.digest.is_some() && image.digest == installs) {
            continue;
        }
        let end = match containerd.remove_image(&image.name).await {
            Ok(()) => End::Removed,
            Err(error) => could_not(&error),
        };
        ends.push((format!("image {}", image.name), end));
    }
    ends
}

#[cfg(test)]
mod tests;
