//! `preflight.*`: what the agent says of a host that is to join: of a good one, and of one on which one thing is really wrong.

mod clean;
mod cluster;
mod host;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use super::{Check, Context, check};
use crate::agent::RUN;
use crate::host::{Host, Options};

pub(super) const CHECKS: [Check; 3] = [
    check!("preflight.clean", Cloud, 300, clean::clean),
    check!("preflight.host", Cloud, 600, host::host),
    check!("preflight.cluster", Cloud, 600, cluster::cluster),
];

const CONFIG: &str = "/etc/aks-flex-node/config.json";

/// A host that has not joined, with a configuration and the agent's image.
struct Fresh<'a> {
    context: &'a Context,
    host: Host,
    config: Value,
}

/// What a preflight said: `severity check target` of each line that is neither ok nor skipped, without the warnings every host of the bed has.
type Bad = BTreeSet<String>;

/// Lines of every host of the bed.
const USUAL: [&str; 0] = [];

impl<'a> Fresh<'a> {
    async fn new(context: &'a Context) -> Result<Self> {
        let joining = context.joining().await?;
        let options = Options {
            ignition: None,
            ..joining.options.clone()
        };
        let host = context.host(options).await?;
        let fresh = Self {
            context,
            host,
            config: joining.config.clone(),
        };
        fresh.configure(&fresh.config).await?;
        let image = &context.product().image;
        fresh
            .host
            .sh(&format!(
                "[ -e /etc/hosts ] || echo 127.0.0.1 localhost > /etc/hosts
                 ctr --namespace aks-flex-node images pull --local --snapshotter overlayfs {image} > /dev/null"
            ))
            .await?;
        Ok(fresh)
    }

    async fn configure(&self, config: &Value) -> Result<()> {
        self.host.write_file(CONFIG, config.to_string(), 0o600).await
    }

    /// Runs it as the units run the agent, but for `changed` in the mounts, and reads its report. Its exit code must go with it.
    async fn report(&self, changed: (&str, &str), more: &[&str]) -> Result<Value> {
        let run: Vec<String> = RUN.iter().map(|word| word.replace(changed.0, changed.1)).collect();
        let run: Vec<&str> = run.iter().map(String::as_str).collect();
        let image = self.context.product().image.to_string();
        let ctr = ["ctr", "--namespace", "aks-flex-node"];
        let line = [
            "/usr/bin/aks-flex-node",
            "preflight",
            "--config",
            CONFIG,
            "--output",
            "json",
        ];
        let said = self
            .host
            .exec(&[&ctr[..], &run, &[&image, "preflight"], &line, more].concat())
            .await?;
        let report: Value = serde_json::from_str(&said.stdout).with_context(|| format!("no report: {said:?}"))?;
        let expected = if report["status"] == "ok" { 0 } else { 1 };
        ensure!(said.code == Some(expected), "{} and {:?}", report["status"], said.code);
        let text = report.to_string();
        for value in self.secrets() {
            ensure!(
                !text.contains(&value),
                "the report has a value of the configuration: {text}"
            );
        }
        Ok(report)
    }

    /// Values of the configuration that no report may have.
    fn secrets(&self) -> Vec<String> {
        let at = |path: &str| self.config.pointer(path).and_then(Value::as_str).map(str::to_owned);
        [
            "/azure/bootstrapToken/token",
            "/bootstrap/ociImage",
            "/node/kubelet/clusterFQDN",
        ]
        .into_iter()
        .filter_map(at)
        .collect()
    }

    /// What is bad.
    async fn bad(&self) -> Result<Bad> {
        Ok(bad(&self.report(("", ""), &[]).await?))
    }

    /// Does something to the host or around it, and wants these lines to be bad, and no other; then takes it back.
    async fn row(&self, make: &str, expected: &[&str], undo: &str) -> Result<()> {
        self.host.sh(make).await.with_context(|| make.to_owned())?;
        let bad = self.bad().await;
        self.host.sh(undo).await.with_context(|| undo.to_owned())?;
        wanted(make, &bad?, expected)
    }
}

fn bad(report: &Value) -> Bad {
    let lines = report["checks"].as_array().into_iter().flatten();
    let text = |line: &Value, key: &str| line[key].as_str().unwrap_or_default().to_owned();
    lines
        .filter(|line| ["error", "warning"].contains(&text(line, "severity").as_str()))
        .map(|line| {
            format!(
                "{} {} {}",
                text(line, "severity"),
                text(line, "name"),
                text(line, "target")
            )
        })
        .filter(|line| !USUAL.contains(&line.as_str()))
        .collect()
}

fn wanted(what: &str, bad: &Bad, expected: &[&str]) -> Result<()> {
    let expected: Bad = expected.iter().map(|line| (*line).to_owned()).collect();
    ensure!(*bad == expected, "{what}: {bad:#?}, and not {expected:#?}");
    Ok(())
}

/// The message and the remedy of a check's first line.
fn said(report: &Value, check: &str) -> Result<(String, String)> {
    let mut lines = report["checks"].as_array().into_iter().flatten();
    let line = lines.find(|line| line["name"] == check).context("no such line")?;
    let text = |key: &str| line[key].as_str().unwrap_or_default().to_owned();
    Ok((text("message"), text("remedy")))
}
