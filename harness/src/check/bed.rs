//! `bed.*`: that a bed leaves nothing behind, and that what checks rest on does what they think.

use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::faulty::faulty_registry;
use super::{Check, Context, check};
use crate::bed;
use crate::command::Command;
use crate::host::Host;
use crate::net::Net;
use crate::run::Run;
use crate::wait;

pub(super) const CHECKS: [Check; 2] = [
    check!("bed.crash", Hosts, 240, crash),
    check!("bed.faulty-registry", Cloud, 240, faulty_registry),
];

/// The harness is killed while its host runs: whatever verb comes next takes the run down.
async fn crash(context: &Context) -> Result<()> {
    let cache = &context.bed.run.cache;
    let mut harness = Command::line(&["/proc/self/exe", "check", "host.life", "--jobs=1"]).into_inner();
    let mut child = harness
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()?;
    let id = format!("check-{}", child.id().context("it has ended")?);
    let limit = Duration::from_secs(120);
    let (run, host) = wait::until("the other run's host is on", limit, async || {
        let run = Run::list(cache).into_iter().find(|run| run.id == id);
        let host = run
            .as_ref()
            .and_then(|run| Host::list(run).into_iter().find(Host::is_on));
        Ok(run.zip(host))
    })
    .await?;
    host.wait_booted().await?;
    child.kill().await?;
    ensure!(host.is_on(), "the host went with the harness");
    bed::sweep(cache).await?;
    ensure!(!host.is_on(), "the host still runs");
    ensure!(!run.dir.exists(), "the run's folder is there");
    ensure!(Net::of(&run).file().is_none(), "the run's network is there");
    ensure!(context.bed.run.dir.exists(), "a run whose process lives was taken down");
    Ok(())
}
