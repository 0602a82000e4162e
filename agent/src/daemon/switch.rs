//! What an upgrade changes on the host: the journal, the two selections, and the restart.
//!
//! Every change is made under one lock and starts from the journal as it is then: the daemon and the recovery unit may
//! both be at it, and whoever comes second goes on from what the first one wrote.

use std::time::Duration;

use hostexec::{Call, Host, Lock, Tool, ToolError};
use image::ImageRef;
use tokio::time::{Instant, sleep};
use tracing::{info, warn};
use units::name;

use crate::store::{journal, selection};
use crate::upgrade::{Event, Refused, Upgrade};

/// How long the lock is waited for. Its holder keeps it for milliseconds, or is dead and has let go of it.
const LOCK: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_millis(50);
/// How long a tool may take in recovery, where systemd may not answer at all (node-agent specification 10B.5).
const SHORT: Duration = Duration::from_secs(10);

/// Why a change could not be made.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The journal can't be read or written.
    #[error(transparent)]
    Journal(#[from] journal::Error),
    /// Somebody holds the lock.
    #[error("another upgrade or recovery holds {}", journal::LOCK)]
    Locked,
    /// The journal does not take the event.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A selection could not be written.
    #[error("the agent image could not be selected")]
    Select(#[source] std::io::Error),
    /// The unit could not be restarted.
    #[error("the agent's unit could not be restarted")]
    Restart(#[source] ToolError),
}

/// Which of the two files names the image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// What the unit's next start runs.
    Selected,
    /// What recovery runs.
    LastGood,
}

/// Saves the state after `event`, and gives it back. Nothing else is done.
///
/// # Errors
/// When the journal can't be read or written, or does not take the event; it stands as it was.
pub async fn transition(host: &Host, event: Event) -> Result<Upgrade, Error> {
    let _lock = lock(host).await?;
    let before = journal::load(host)?;
    let (from, by) = (before.name(), event.name());
    let after = before.clone().next(event)?;
    if after != before {
        journal::save(host, &after)?;
        info!(from, by, to = after.name(), "the upgrade's state changed");
    }
    Ok(after)
}

/// Makes a file name that image, as long as the journal still says `state`.
///
/// # Errors
/// When it could not be written, or the journal has moved on: the old file stands.
pub async fn name_image(host: &Host, state: &Upgrade, which: Which, image: &ImageRef) -> Result<(), Error> {
    let _lock = lock(host).await?;
    if journal::load(host)? != *state {
        return Err(Error::Refused(Refused {
            state: "another than it was",
            event: "select",
        }));
    }
    write(host, which, image)
}

/// Makes a file name that image, whatever the journal says.
///
/// # Errors
/// When it could not be written: the old file stands.
pub async fn name_image_anyway(host: &Host, which: Which, image: &ImageRef) -> Result<(), Error> {
    let _lock = lock(host).await?;
    write(host, which, image)
}

fn write(host: &Host, which: Which, image: &ImageRef) -> Result<(), Error> {
    let (path, written) = match which {
        Which::Selected => (selection::SELECTED, selection::select(host, image)),
        Which::LastGood => (
            selection::LAST_GOOD,
            selection::save(host, &selection::LAST_GOOD, image),
        ),
    };
    if written.map_err(Error::Select)? == hostexec::Written::Changed {
        info!(%path, %image, "the agent image changed");
    }
    Ok(())
}

/// Restarts the agent's unit in a second, by a timer of systemd's: a restart asked for here would end its asker.
/// Source of the line: node-agent specification 10A.5.
///
/// # Errors
/// When no timer could be set.
pub async fn restart_soon(host: &Host, now: jiff::Timestamp) -> Result<(), Error> {
    let unit = format!("--unit=aks-flex-node-agent-upgrade-restart-{}", now.as_nanosecond());
    let line = [
        "--quiet",
        "--collect",
        &unit,
        "--on-active=1s",
        "--timer-property=AccuracySec=100ms",
        "/usr/bin/systemctl",
        "restart",
        name::AGENT,
    ];
    host.call(Call::new(Tool::SystemdRun, &line).limit(SHORT))
        .await
        .map_err(Error::Restart)?;
    info!("the agent restarts in a second");
    Ok(())
}

/// Restarts the agent's unit from outside it. That its count of failures can't be reset is no hindrance (na_r09).
///
/// # Errors
/// When the restart itself was refused.
pub async fn restart_now(host: &Host) -> Result<(), Error> {
    if let Err(error) = host
        .call(Call::new(Tool::Systemctl, &["reset-failed", name::AGENT]).limit(SHORT))
        .await
    {
        warn!(%error, "the agent's unit keeps its count of failures");
    }
    let line = ["--no-block", "restart", name::AGENT];
    host.call(Call::new(Tool::Systemctl, &line).limit(SHORT))
        .await
        .map_err(Error::Restart)?;
    Ok(())
}

async fn lock(host: &Host) -> Result<Lock, Error> {
    let end = Instant::now() + LOCK;
    loop {
        if let Some(lock) = journal::try_lock(host)? {
            return Ok(lock);
        }
        if Instant::now() >= end {
            return Err(Error::Locked);
        }
        sleep(RETRY).await;
    }
}
