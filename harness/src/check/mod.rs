//! Checks: named, independent of one another and of their order, each with its time limit.
//!
//! A check is an async function over a `Context`, which makes hosts for it, remembers them for the artifacts of a failure, and takes them down.

mod agent;
mod bed;
mod cluster;
mod context;
mod faulty;
mod host;
mod hostexec;
mod image;
mod join;
mod node;
mod preflight;
mod report;
mod reset;
mod runner;
mod upgrade;

use std::pin::Pin;
use std::rc::Rc;
use std::time::Duration;

use anyhow::Result;

pub(crate) use context::Context;
pub(crate) use runner::{Selection, list, run};

/// What a check needs before it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Hosts and their network.
    Hosts,
    /// All of it: registry, cluster, and the agent's image.
    Cloud,
    /// As `Cloud`, and nothing beside it: it has as many hosts of its own as run side by side else, and the kernel gives a user no more than
    /// 128 inotify instances, of which each host takes two dozen.
    Alone,
}

type Body = fn(Rc<Context>) -> Pin<Box<dyn Future<Output = Result<()>>>>;

/// A check.
pub(crate) struct Check {
    /// `group.name`.
    pub(crate) name: &'static str,
    pub(crate) needs: Needs,
    /// How long it may take on a busy machine, short depth.
    pub(crate) limit: Duration,
    body: Body,
}

impl Check {
    /// What stands before the first dot of the name.
    pub(crate) fn group(&self) -> &'static str {
        self.name.split_once('.').map_or(self.name, |(group, _)| group)
    }
}

/// A row of the list of checks: name, needs, limit in seconds, function.
macro_rules! check {
    ($name:literal, $needs:ident, $seconds:literal, $function:path) => {
        $crate::check::Check {
            name: $name,
            needs: $crate::check::Needs::$needs,
            limit: std::time::Duration::from_secs($seconds),
            body: |context| Box::pin(async move { $function(&context).await }),
        }
    };
}
use check;

/// Every check there is, in the order in which they are started.
pub(crate) fn all() -> Vec<Check> {
    bed::CHECKS
        .into_iter()
        .chain(host::CHECKS)
        .chain(join::CHECKS)
        .chain(node::CHECKS)
        .chain(reset::CHECKS)
        .chain(agent::CHECKS)
        .chain(hostexec::CHECKS)
        .chain(image::CHECKS)
        .chain(preflight::CHECKS)
        .chain(cluster::CHECKS)
        .chain(upgrade::CHECKS)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_have_a_group() {
        let mut names: Vec<_> = all().iter().map(|check| check.name).collect();
        assert!(names.iter().all(|name| name.contains('.')));
        let before = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), before);
    }
}
