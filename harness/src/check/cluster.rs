//! `cluster.*`: the agent's edge to Kubernetes, by itself.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};

use super::{Check, Context, check};
use crate::bed::Bed;
use crate::cargo::cargo_by;
use crate::cloud::Cloud;
use crate::cloud::control_plane::ControlPlane;
use crate::run::Life;

/// The test may have to be built first.
const LIMIT: Duration = Duration::from_secs(840);

pub(super) const CHECKS: [Check; 1] = [check!("cluster.edge", Cloud, 900, edge)];

/// The agent's own test of that edge (`agent/tests/cluster.rs`), against a cluster where the operations' kind is still to come.
async fn edge(context: &Context) -> Result<()> {
    let bed = Bed::make(
        &context.bed.run.cache,
        &format!("{}-bare", context.bed.run.id),
        Life::Ours,
    )
    .await?;
    let tested = test(&bed, context.cloud()).await;
    bed.down().await?;
    tested
}

async fn test(bed: &Bed, cloud: &Cloud) -> Result<()> {
    let plane = ControlPlane::of(&bed.run, &bed.net, cloud.kubernetes());
    plane.prepare()?;
    plane.start().await?;
    let said = cargo_by(|cargo| bed.net.command(cargo))
        .args([
            "test",
            "--locked",
            "--offline",
            "--package=aks-flex-node",
            "--test=cluster",
        ])
        .args(["--", "--include-ignored"])
        .env("KUBECONFIG", plane.admin())
        .limit(LIMIT)
        .output()
        .await
        .context("the agent's test")?;
    ensure!(
        said.ok() && said.stdout.contains("1 passed"),
        "the agent's test: {}{}",
        said.stdout,
        said.stderr
    );
    Ok(())
}
