//! A reset that an operation or the cluster asks for: the node goes while there is an agent to tell of it, and then the reset's own unit
//! takes the agent away. Whoever starts in the middle of it goes on from the record.

use std::io;
use std::time::Duration;

use hostexec::{Call, Host, HostPath, Tool, ToolError};
use tokio::time::sleep;
use tracing::{error, info, warn};
use units::name;

use super::driver::Driver;
use super::{LONGEST_PAUSE, PAUSE};
use crate::cluster::Standing;
use crate::model::chain;
use crate::observe;
use crate::plan;
use crate::removal::{Report, Scope};
use crate::remove;
use crate::report::{self, End};
use crate::reset::{Event, Reset};
use crate::store;
use crate::upgrade::Order;

/// How long the reset's unit may take to end this agent, before it is started again.
const ENDS: Duration = Duration::from_secs(120);
/// How long systemd may take for an answer.
const ASK: Duration = Duration::from_secs(10);

/// Why a reset can't be begun or go on.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Its record can't be read or written.
    #[error("the record of a reset can't be kept")]
    Record(#[source] io::Error),
    /// The reset's unit can't be started.
    #[error("{} can't be started", name::RESET)]
    Unit(#[source] ToolError),
    /// It can't be written where the install did not bring it.
    #[error("{} can't be written", name::RESET)]
    Write(#[source] io::Error),
}

/// Records that somebody who waits for no answer wants the host reset: a machine that the cluster deleted (node-agent specification 8.7).
/// The worker's next pass, or that of the next daemon, hands over to the reset's unit.
///
/// # Errors
/// It could not be recorded: nothing is begun.
pub fn ask(host: &Host) -> Result<(), Error> {
    transition(host, Event::Ordered).map(drop)
}

/// Records that an operation wants the host reset.
///
/// # Errors
/// As [`ask`].
pub(super) fn ask_for(host: &Host, order: Order) -> Result<(), Error> {
    transition(host, Event::Asked { order }).map(drop)
}

/// Whether a reset is under way: nobody is to make anything anew then.
pub(super) fn is_under_way(host: &Host) -> bool {
    store::reset::load(host).is_ok_and(|reset| reset != Reset::Idle)
}

fn transition(host: &Host, event: Event) -> Result<Reset, Error> {
    let before = store::reset::load(host).map_err(Error::Record)?;
    let from = before.name();
    let Some(after) = before.clone().next(event) else {
        warn!(from, "a reset's record does not take what happened");
        return Ok(before);
    };
    if after != before {
        store::reset::save(host, &after).map_err(Error::Record)?;
        info!(from, to = after.name(), "the reset's state changed");
    }
    Ok(after)
}

impl Driver<'_> {
    /// Drives a reset until none is under way, or this process is ended by it. True if there was one.
    pub(super) async fn settle_reset(&mut self) -> bool {
        let mut pause = PAUSE;
        let mut met = false;
        loop {
            let outcome = match store::reset::load(self.host) {
                Ok(Reset::Idle) => return met,
                Ok(reset) => self.advance_reset(reset).await,
                Err(error) => Err(Error::Record(error)),
            };
            match outcome {
                Ok(()) => pause = PAUSE,
                Err(error) => {
                    error!(error = chain(&error), "the reset does not go on; trying again");
                    sleep(pause).await;
                    pause = (pause * 2).min(LONGEST_PAUSE);
                }
            }
            met = true;
        }
    }

    async fn advance_reset(&mut self, reset: Reset) -> Result<(), Error> {
        let event = match reset {
            Reset::Idle => return Ok(()),
            Reset::Asked { order } => match self.teller.begin(&order, IN_PROGRESS).await {
                Standing::Current => Event::Announced,
                Standing::NotCurrent => {
                    self.teller.note_ended(&order.uid);
                    Event::Dropped
                }
            },
            Reset::Removing { .. } => {
                let report = remove(self.host, Scope::Node).await;
                let summary = report::clean(&report.summary());
                match report.is_done() {
                    true => Event::NodeGone { summary },
                    false => Event::NodeStays { summary },
                }
            }
            Reset::Gone { order, summary } => {
                let message = format!("the node is off this host, and the agent goes next: {summary}");
                self.tell(&order, ("Complete", "Succeeded"), message).await;
                Event::Told
            }
            Reset::Stays { order, summary } => {
                let message = format!("the node could not be taken off this host, and its agent stays: {summary}");
                self.tell(&order, ("Failed", "ExecutionFailed"), message).await;
                Event::Told
            }
            Reset::Leaving => {
                hand_over(self.host).await?;
                sleep(ENDS).await;
                return Ok(());
            }
        };
        transition(self.host, event).map(drop)
    }

    async fn tell(&mut self, order: &Order, (phase, reason): (&'static str, &'static str), message: String) {
        let end = End {
            phase,
            reason,
            message: report::bounded(&message),
            started_at: Some(order.started_at),
            generation: order.generation,
        };
        self.teller.publish(&order.name, &order.uid, &end).await;
    }
}

const IN_PROGRESS: &str = "taking the node off this host";

/// Takes off this host what is the agent's, as far as that can be done.
pub async fn remove(host: &Host, scope: Scope) -> Report {
    let (ledger, trouble) = match store::ledger::load(host) {
        Ok(ledger) => (ledger, None),
        Err(error) => {
            warn!(error = chain(&error), "going on by names alone");
            (None, Some(chain(&error)))
        }
    };
    let found = observe::remains(host);
    let plan = plan::reset::reset(&found, ledger.as_ref(), scope);
    let mut report = remove::run(&plan, host, &found, ledger.as_ref()).await;
    if let Some(why) = trouble {
        let what = "what the agent changed in files and units of the host's own";
        report.add(what, crate::removal::End::Kept(format!("nothing tells of it: {why}")));
    }
    report
}

/// Starts the reset's own unit, which ends this agent. Where the install did not bring that unit, it is written for this boot.
///
/// # Errors
/// It could not be written, or systemd did not start it.
pub async fn hand_over(host: &Host) -> Result<(), Error> {
    let run = async |line: &[&str]| {
        let call = Call::new(Tool::Systemctl, line).limit(ASK);
        host.call(call).await.map(drop).map_err(Error::Unit)
    };
    let at = |folder: &str| HostPath::new(format!("{folder}/{}", name::RESET)).expect("a unit's name is plain");
    let folders = [name::UNIT_DIR, "/run/systemd/system", "/usr/lib/systemd/system"];
    if !folders.iter().any(|folder| host.exists(&at(folder)).unwrap_or(false)) {
        let unit = units::reset();
        let path = plan::reset::names::RESET_FOR_THIS_BOOT;
        host.write(&path, unit.text.as_bytes(), 0o644).map_err(Error::Write)?;
        run(&["daemon-reload"]).await?;
    }
    run(&["--no-block", "start", name::RESET]).await?;
    info!(unit = name::RESET, "the agent goes");
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A host whose systemctl writes down what it is asked.
    fn host() -> (tempfile::TempDir, Host) {
        let dir = tempfile::tempdir().unwrap();
        let host = Host::rooted(dir.path());
        let tool = HostPath::fixed("/usr/bin/systemctl");
        host.write(&tool, b"#!/bin/sh\necho \"$*\" >> \"$0.asked\"\n", 0o755)
            .unwrap();
        (dir, host)
    }

    #[tokio::test]
    async fn the_resets_unit_is_started_and_written_where_the_install_did_not_bring_it() {
        let (dir, host) = host();
        let asked = || fs::read_to_string(dir.path().join("usr/bin/systemctl.asked")).unwrap();
        let start = "--no-block start aks-flex-node-reset.service\n";
        hand_over(&host).await.unwrap();
        assert_eq!(asked(), format!("daemon-reload\n{start}"));
        let written = host.read_text(&plan::reset::names::RESET_FOR_THIS_BOOT).unwrap();
        assert_eq!(written, units::reset().text);
        // It goes with the rest.
        assert!(
            observe::remains(&host)
                .there
                .contains(&plan::reset::names::RESET_FOR_THIS_BOOT)
        );
        hand_over(&host).await.unwrap();
        assert_eq!(asked(), format!("daemon-reload\n{start}{start}"));
    }

    #[test]
    fn a_deletion_signal_is_recorded_once_and_outlives_the_daemon() {
        let (_dir, host) = host();
        assert!(!is_under_way(&host));
        ask(&host).unwrap();
        ask(&host).unwrap();
        assert!(is_under_way(&host));
        assert_eq!(store::reset::load(&host).unwrap(), Reset::Leaving);
    }
}
