//! Looks at a host for preflight: each bounded, all side by side, and none that changes anything.
//!
//! ```text
//!  looks ─▶ what was seen ─▶ preflight::judge ─▶ findings
//! ```
//!
//! Whether a folder can be written is judged by its mount's flags: nothing is tried.

mod files;
mod identity;
mod network;
mod server;
mod tools;

pub use network::offline;

use std::{io, time::Duration};

use futures::future::{FutureExt as _, LocalBoxFuture, join_all};
use hostexec::Host;
use tokio::{task::spawn_blocking, time::timeout};

use crate::{
    config::Settings,
    facts::Facts,
    model::Mode,
    preflight::{Check, Finding, Seen, Unseen, judge},
    step::Plan,
};

/// The longest that one look takes. Together they take what the longest does: see [`server`].
const LIMIT: Duration = Duration::from_secs(10);

/// What is looked at.
#[derive(Clone, Debug)]
pub struct Subject {
    /// The host.
    pub host: Host,
    /// The install.
    pub mode: Mode,
    /// The configuration.
    pub settings: Settings,
    /// What a plan follows from.
    pub facts: Facts,
    /// What `start` would do; none where the configuration makes no plan.
    pub plan: Option<Plan>,
}

/// Which checks are asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only(Vec<Check>);

impl Only {
    /// These; all, where there are none.
    #[must_use]
    pub fn these(checks: Vec<Check>) -> Self {
        Self(checks)
    }

    /// Whether a check is among them.
    #[must_use]
    pub fn has(&self, check: Check) -> bool {
        self.0.is_empty() || self.0.contains(&check)
    }
}

/// One look: the checks that it is for, and the looking.
struct Look<'a> {
    checks: &'static [Check],
    looking: LocalBoxFuture<'a, Vec<Finding>>,
}

fn a_look<'a>(checks: &'static [Check], looking: impl Future<Output = Vec<Finding>> + 'a) -> Look<'a> {
    Look {
        checks,
        looking: looking.boxed_local(),
    }
}

/// Looks for what the checks that are asked for need, and judges it.
pub async fn look(subject: &Subject, only: &Only) -> Vec<Finding> {
    let asked = |look: &Look<'_>| {
        look.checks
            .iter()
            .any(|check| only.has(*check) && check.applies(subject.mode))
    };
    let looks = files::looks(subject)
        .into_iter()
        .chain(tools::looks(subject))
        .chain(network::looks(subject))
        .chain(identity::looks(subject))
        .filter(asked)
        .map(|look| look.looking);
    let mut found: Vec<Finding> = join_all(looks).await.into_iter().flatten().collect();
    found.push(judge::user(nix::unistd::geteuid().as_raw()));
    found.retain(|finding| only.has(finding.check) && finding.check.applies(subject.mode));
    found
}

/// A look at files, which a dead disk could hold up.
async fn blocking<T: Send + 'static>(
    host: &Host,
    look: impl FnOnce(&Host) -> io::Result<T> + Send + 'static,
) -> Seen<T> {
    let host = host.clone();
    match timeout(LIMIT, spawn_blocking(move || look(&host))).await {
        Err(_) => Err(Unseen::Late(LIMIT)),
        Ok(Ok(seen)) => seen.map_err(|error| Unseen::Failed(error.to_string())),
        Ok(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
    }
}

#[cfg(test)]
mod tests;
