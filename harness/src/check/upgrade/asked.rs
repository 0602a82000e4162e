//! Operations as a check asks for them: with parameters that no builder would make, and watched until they are over.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail, ensure};
use image::ImageRef;

use crate::check::Context;
use crate::cloud::cluster::{Operation, upgrade_to};
use crate::host::Host;
use crate::wait;

/// An operation that a host was asked for.
pub(super) struct Asked {
    pub(super) name: String,
    at: Instant,
}

/// What was seen of an operation.
pub(super) struct Seen {
    /// How it ended.
    pub(super) over: Operation,
    /// What it said while it was going on.
    pub(super) in_progress: Vec<String>,
    /// How long it took, as seen from outside.
    pub(super) took: Duration,
}

/// Asks a host's agent to become an image.
///
/// # Errors
/// kubectl's.
pub(super) async fn ask_for(context: &Context, host: &Host, image: &ImageRef) -> Result<Asked> {
    ask_with(context, host, image, &[]).await
}

/// The same for an image that may have failed here before.
///
/// # Errors
/// kubectl's.
pub(super) async fn insist_on(context: &Context, host: &Host, image: &ImageRef) -> Result<Asked> {
    ask_with(context, host, image, &[("force", "true")]).await
}

async fn ask_with(context: &Context, host: &Host, image: &ImageRef, more: &[(&'static str, &str)]) -> Result<Asked> {
    let more = more.iter().map(|(key, value)| (*key, (*value).to_owned()));
    let parameters: Vec<_> = upgrade_to(image).into_iter().chain(more).collect();
    ask(context, host, &parameters).await
}

/// Asks a host's agent for an upgrade with these parameters, whatever they are.
///
/// # Errors
/// kubectl's.
pub(super) async fn ask(context: &Context, host: &Host, parameters: &[(&str, impl AsRef<str>)]) -> Result<Asked> {
    static NUMBER: AtomicU32 = AtomicU32::new(1);
    let name = format!("asked-{}-{}", host.name(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let cluster = &context.cloud().cluster;
    cluster
        .machine_operation(&name, host.name(), "AgentUpgrade", parameters)
        .await?;
    Ok(Asked {
        name,
        at: Instant::now(),
    })
}

impl Asked {
    /// One that was asked for in another way.
    pub(super) fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            at: Instant::now(),
        }
    }

    /// Waits until it is over.
    ///
    /// # Errors
    /// It is not within the limit.
    pub(super) async fn over(self, context: &Context, limit: Duration) -> Result<Seen> {
        let mut in_progress = Vec::new();
        let over = wait::until(&format!("operation {} is over", self.name), limit, async || {
            let operation = context.cloud().cluster.operation(&self.name).await?;
            match operation.phase() {
                "Complete" | "Failed" => return Ok(Some(operation)),
                "InProgress" if in_progress.last().map(String::as_str) != Some(operation.message()) => {
                    in_progress.push(operation.message().to_owned());
                }
                _ => {}
            }
            Ok(None)
        })
        .await?;
        Ok(Seen {
            over,
            in_progress,
            took: self.at.elapsed(),
        })
    }
}

impl Seen {
    /// It is complete.
    ///
    /// # Errors
    /// It is not.
    pub(super) fn complete(&self) -> Result<()> {
        self.ended("Complete", &["Succeeded"])
    }

    /// It failed, for one of these reasons.
    ///
    /// # Errors
    /// It did not, or for another.
    pub(super) fn failed(&self, reasons: &[&str]) -> Result<()> {
        self.ended("Failed", reasons)
    }

    /// Its message has each of these words, or one of those that stand in one with `|` between them.
    ///
    /// # Errors
    /// Which it has not.
    pub(super) fn names(&self, says: &[&str]) -> Result<()> {
        let message = self.over.message();
        for words in says {
            ensure!(
                words.split('|').any(|word| message.contains(word)),
                "the message does not name {words}: {message:?}"
            );
        }
        Ok(())
    }

    fn ended(&self, phase: &str, reasons: &[&str]) -> Result<()> {
        let over = &self.over;
        if over.phase() != phase || !reasons.contains(&over.reason()) {
            bail!(
                "the operation ended {}, {}, and not {phase}, {}: {}",
                over.phase(),
                over.reason(),
                reasons.join(" or "),
                over.message()
            );
        }
        Ok(())
    }
}
