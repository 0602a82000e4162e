//! The bootstrap unit of a host, and what its tries came to.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::host::Host;
use crate::wait;

pub(super) const UNIT: &str = "aks-flex-node-bootstrap.service";

/// Source: sd-messages.h, SD_MESSAGE_UNIT_FAILURE_RESULT and SD_MESSAGE_UNIT_RESTART_SCHEDULED.
const FAILED: &str = "MESSAGE_ID=d9b373ed55a64feb8242e02dbe79a49c";
const RESTARTED: &str = "MESSAGE_ID=5eb03494b6584870a536b337290809b3";

/// How long the journal may lag behind.
const LAG: Duration = Duration::from_secs(10);

/// The bootstrap unit of a host.
#[derive(Clone, Copy)]
pub(super) struct Bootstrap<'a>(pub(super) &'a Host);

impl Bootstrap<'_> {
    /// A property of the unit, as `systemctl show` prints it.
    ///
    /// # Errors
    /// systemctl's.
    pub(super) async fn property(self, name: &str) -> Result<String> {
        let said = self
            .0
            .exec_ok(&["systemctl", "show", "--property", name, "--value", UNIT])
            .await?;
        Ok(said.trim().to_owned())
    }

    /// Waits until that many tries have failed.
    ///
    /// # Errors
    /// They have not, in time.
    pub(super) async fn failures(self, number: usize, limit: Duration) -> Result<()> {
        let what = format!("{number} failed tries of {UNIT} on host {}", self.0.name());
        wait::until_true(&what, limit, async || Ok(self.times(FAILED).await?.len() >= number)).await
    }

    /// The pauses between the end of a failed try and the next one, on a host that has booted once.
    ///
    /// # Errors
    /// The journal can't be read.
    pub(super) async fn pauses(self) -> Result<Vec<Duration>> {
        let ends = self.times(FAILED).await?;
        let starts = self.times(RESTARTED).await?;
        ends.into_iter()
            .zip(starts)
            .map(|(end, start)| start.checked_sub(end).context("a try began before the last one's end"))
            .collect()
    }

    /// When systemd said that of the unit, since the boot.
    async fn times(self, message: &str) -> Result<Vec<Duration>> {
        let unit = format!("UNIT={UNIT}");
        let lines = self.0.journal(&["--output=json", &unit, message]).await?;
        lines
            .lines()
            .map(|line| {
                let entry: Value = serde_json::from_str(line)?;
                let micros = entry["__MONOTONIC_TIMESTAMP"].as_str().context("no time in an entry")?;
                Ok(Duration::from_micros(micros.parse()?))
            })
            .collect()
    }

    /// Everything that the unit has said in all its tries.
    ///
    /// # Errors
    /// The journal can't be read.
    pub(super) async fn said(self) -> Result<String> {
        self.0.journal(&["--output=cat", "--unit", UNIT]).await
    }

    /// Waits until the unit has said all of this.
    ///
    /// # Errors
    /// It has not: what it said instead is in the error.
    pub(super) async fn says(self, texts: &[&str], limit: Duration) -> Result<()> {
        wait::until_true("a message of the bootstrap", limit, async || {
            let said = self.said().await?;
            for text in texts {
                ensure!(said.contains(text), "{UNIT} does not say {text:?}: {}", end(&said));
            }
            Ok(true)
        })
        .await
    }

    /// Starts the unit and waits until this one try is over, whatever came of it. What it has said is handed back, which is all of `texts`.
    ///
    /// # Errors
    /// It did not say all of them.
    pub(super) async fn one_try(self, texts: &[&str]) -> Result<String> {
        self.0.exec_within(LAG * 6, &["systemctl", "start", UNIT]).await?;
        self.last_try(texts).await
    }

    /// What the last try said, which is all of `texts`.
    ///
    /// # Errors
    /// It did not say all of them.
    pub(super) async fn last_try(self, texts: &[&str]) -> Result<String> {
        let id = self.property("InvocationID").await?;
        ensure!(!id.is_empty(), "{UNIT} was never started");
        let own = format!("_SYSTEMD_INVOCATION_ID={id}");
        let of = format!("INVOCATION_ID={id}");
        wait::until("the bootstrap's message", LAG, async || {
            let said = self.0.journal(&["--output=cat", &own, "+", &of]).await?;
            for text in texts {
                ensure!(said.contains(text), "{UNIT} does not say {text:?}: {}", end(&said));
            }
            Ok(Some(said))
        })
        .await
    }
}

/// The last lines of a text, on one.
fn end(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(8)..].join(" | ")
}
