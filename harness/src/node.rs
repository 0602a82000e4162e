//! A host that is to join the cluster: its inputs, its Ignition config, its first boot.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use image::ImageRef;
use serde_json::Value;

use crate::cache;
use crate::cloud::cluster::{Operation, Token, upgrade_to};
use crate::cloud::{Cloud, join};
use crate::host::{Host, Options};
use crate::product::Product;
use crate::run::{Run, secret};

/// How long from the start of a host until its node is Ready, on a busy machine.
pub(crate) const READY: Duration = Duration::from_secs(240);

/// What the bootstrap reads on a host.
pub(crate) const INPUTS: &str = "/etc/aks-flex-node/bootstrap.env";

/// What a host is given to join. Everything may be changed before the host is made.
pub(crate) struct Joining {
    /// Of the host, and of its node.
    pub(crate) name: String,
    pub(crate) token: Token,
    /// The agent that it starts.
    pub(crate) agent: ImageRef,
    /// The agent's configuration.
    pub(crate) config: Value,
    /// Files that lie over the usual inputs of `aks-flex-node ignition`, by name.
    pub(crate) inputs: Vec<(String, String)>,
    /// Put in the place of `bootstrap.env` after the rendering, which would refuse it.
    pub(crate) spoilt: Option<String>,
    /// Disk, variant, binds. Its Ignition config is rendered over.
    pub(crate) options: Options,
}

impl Joining {
    /// What makes a host of that name join with a bootstrap token of its own.
    ///
    /// # Errors
    /// The API server does not answer.
    pub(crate) async fn of(cloud: &Cloud, product: &Product, name: &str) -> Result<Self> {
        let token = cloud.cluster.token(name).await?;
        let config = join::config(cloud, &token)?;
        let options = Options {
            binds: cloud.binds(),
            ..Options::default()
        };
        Ok(Self {
            name: name.to_owned(),
            token,
            agent: product.image.clone(),
            config,
            inputs: Vec::new(),
            spoilt: None,
            options,
        })
    }

    /// Writes the inputs into a folder of the run, in the place of what an earlier host of that name was given.
    ///
    /// # Errors
    /// A file can't be written.
    pub(crate) fn write_inputs(&self, run: &Run) -> Result<PathBuf> {
        let folder = run.cloud_dir().join("inputs").join(&self.name);
        cache::remove_tree(&folder)?;
        join::write_inputs(&folder, &self.agent, &self.config)?;
        for (name, text) in &self.inputs {
            let path = folder.join(name);
            let _ = std::fs::remove_file(&path);
            if let Some(folder) = path.parent() {
                std::fs::create_dir_all(folder)?;
            }
            secret(&path, text.as_bytes())?;
        }
        Ok(folder)
    }

    /// Renders the Ignition config and makes the host, off.
    ///
    /// # Errors
    /// What the agent says of the inputs, or the host can't be made.
    pub(crate) async fn create(&self, run: &Run, product: &Product) -> Result<Host> {
        let mut ignition = product.ignition(&self.write_inputs(run)?).await?;
        if let Some(text) = &self.spoilt {
            ignition = spoil(&ignition, text)?;
        }
        Host::create(
            run,
            &self.name,
            Options {
                ignition: Some(ignition),
                ..self.options.clone()
            },
        )
        .await
    }
}

/// An Ignition config with that text in the bootstrap's inputs.
fn spoil(ignition: &str, text: &str) -> Result<String> {
    let mut config: Value = serde_json::from_str(ignition)?;
    let files = config["storage"]["files"].as_array_mut();
    let inputs = files
        .into_iter()
        .flatten()
        .find(|file| file["path"] == INPUTS)
        .with_context(|| format!("it brings no {INPUTS}"))?;
    inputs["contents"]["source"] = format!("data:;base64,{}", BASE64_STANDARD.encode(text)).into();
    Ok(config.to_string())
}

impl Cloud {
    /// Asks the agent of a host for an upgrade to that image, under a name of its own, and waits until the operation is over.
    ///
    /// # Errors
    /// It is not over in time.
    pub(crate) async fn upgrade(&self, host: &str, to: &ImageRef, limit: Duration) -> Result<Operation> {
        static NUMBER: AtomicU32 = AtomicU32::new(1);
        let name = format!("upgrade-{host}-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
        self.cluster
            .machine_operation(&name, host, "AgentUpgrade", &upgrade_to(to))
            .await?;
        self.cluster.operation_over(&name, limit).await
    }
}
