//! What stands around the hosts of a run: names, downloads, a registry and a cluster, each a real server in the run's network.
//!
//!     hosts ─▶ names (dnsmasq) ─▶ downloads (nginx: the official URLs)   registry (docker-registry, TLS) ◀── faulty (goes wrong as a check wants)
//!         └──▶ control plane (etcd, kube-apiserver, kube-controller-manager) ◀── cluster (what tests say and ask)
//!                                                                            ◀── approver (the daemon certificates' approver)
//!                     ◀──reviews tokens── azure (metadata service, Entra ID, resource manager)
//!
//! No server looks beyond that network, and none has anything to forward to. Each outlives the harness and ends with the run.

pub(crate) mod approver;
pub(crate) mod azure;
pub(crate) mod bundle;
pub(crate) mod cluster;
pub(crate) mod control_plane;
pub(crate) mod downloads;
pub(crate) mod faulty;
mod http;
pub(crate) mod join;
pub(crate) mod kubernetes;
mod kubernetes_source;
mod log;
pub(crate) mod names;
mod pki;
pub(crate) mod registry;
mod server;

pub(crate) use log::Mark;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use image::ImageRef;
use serde::{Deserialize, Serialize};

use crate::ca::Ca;
use crate::cache::Cache;
use crate::machine_image;
use crate::net::Net;
use crate::progress::step;
use crate::run::Run;

use azure::Azure;
use cluster::Cluster;
use control_plane::ControlPlane;
use downloads::Downloads;
use faulty::Faulty;
use kubernetes::Kubernetes;
use registry::Registry;

/// The repository of the machine's operating system.
const MACHINE_OS: &str = "aks-flex-node/machine-os";

/// What clouds are made of: made once, kept in the cache, the same for all runs.
#[derive(Clone, Debug)]
pub(crate) struct Ingredients {
    ca: Ca,
    kubernetes: Kubernetes,
    /// OCI layouts.
    pub(crate) machine: PathBuf,
    pause: PathBuf,
    busybox: PathBuf,
}

impl Ingredients {
    /// Finds or makes everything that takes long: on a machine that has none of it, a minute, or a quarter of an hour when
    /// Kubernetes has to be built. `named` is a folder or archive with Kubernetes binaries, which then has to have them.
    ///
    /// # Errors
    /// A source that does not answer, a package that is not installed, or what was named is not whole.
    pub(crate) async fn of(cache: &Cache, named: Option<&Path>) -> Result<Self> {
        let ca = Ca::of(cache).await?;
        Ok(Self {
            kubernetes: step("Kubernetes binaries", Kubernetes::find(cache, named)).await?,
            machine: step("machine image", machine_image::machine(cache, &ca.certificate())).await?,
            pause: machine_image::pause(cache).await?,
            busybox: machine_image::busybox(cache).await?,
            ca,
        })
    }
}

/// The cloud of a run.
#[derive(Clone, Debug)]
pub(crate) struct Cloud {
    /// Its registry.
    pub(crate) registry: Registry,
    /// The same registry, seen through a server that goes wrong as a check wants.
    pub(crate) faulty: Faulty,
    /// What gives hosts' accounts tokens.
    pub(crate) azure: Azure,
    /// The cluster that hosts join.
    pub(crate) cluster: Cluster,
    /// What is in the registry.
    pub(crate) images: Images,
    kubernetes: Kubernetes,
    layouts: PathBuf,
}

/// What the bed pushes before the first host is there.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Images {
    /// The operating system of the nspawn machine.
    pub(crate) machine: ImageRef,
    /// The sandbox of pods.
    pub(crate) pause: ImageRef,
    /// What pods of tests run.
    pub(crate) busybox: ImageRef,
}

/// What another process has to know of a cloud that stands: `cloud.json` in its folder.
#[derive(Serialize, Deserialize)]
struct File {
    kubernetes: Kubernetes,
    images: Images,
}

impl Cloud {
    /// The programs that it is made of.
    pub(crate) fn kubernetes(&self) -> &Kubernetes {
        &self.kubernetes
    }

    /// Makes and starts everything, in a network that is up.
    ///
    /// # Errors
    /// A part that can't be made or does not serve. What was started until then is in the run's records.
    pub(crate) async fn up(run: &Run, net: &Net, of: &Ingredients) -> Result<Self> {
        let plane = ControlPlane::of(run, net, &of.kubernetes);
        let cluster = Cluster::of(plane.clone());
        let registry = Registry::of(run, net);
        let faulty = Faulty::of(run, net);
        let downloads = Downloads::of(run, net);
        let azure = Azure::of(run, net);
        let serve = step("resolver, registry and downloads", async {
            names::start(run, net).await?;
            registry.prepare(&of.ca).await?;
            registry.start().await?;
            faulty.prepare(&of.ca)?;
            faulty.start().await?;
            azure.prepare(&of.ca).await?;
            azure.start().await?;
            downloads.prepare(&of.ca).await?;
            downloads.start().await
        });
        serve.await?;
        let control = step("control plane", async {
            plane.prepare()?;
            plane.start().await?;
            cluster.prepare().await
        });
        let push = step("images into the registry", async {
            Ok(Images {
                machine: registry.push(&of.machine, MACHINE_OS, "trixie").await?,
                pause: registry.push(&of.pause, "pause", "1").await?,
                busybox: registry.push(&of.busybox, "busybox", "1").await?,
            })
        });
        let (control, images) = tokio::join!(control, push);
        let layouts = run.cloud_dir().join("layouts");
        crate::cache::remove_tree(&layouts)?;
        crate::cache::private_dir(&layouts)?;
        for (name, layout) in [("machine", &of.machine), ("pause", &of.pause), ("busybox", &of.busybox)] {
            std::os::unix::fs::symlink(layout, layouts.join(name))?;
        }
        control?;
        let file = File {
            kubernetes: of.kubernetes.clone(),
            images: images?,
        };
        fs::write(run.cloud_dir().join("cloud.json"), serde_json::to_vec(&file)?)?;
        approver::start(run)?;
        Ok(Self {
            registry,
            faulty,
            azure,
            cluster,
            images: file.images,
            kubernetes: file.kubernetes,
            layouts: run.cloud_dir().join("layouts"),
        })
    }

    /// The cloud of a run that stands.
    ///
    /// # Errors
    /// It was never up.
    pub(crate) fn of(run: &Run, net: &Net) -> Result<Self> {
        let path = run.cloud_dir().join("cloud.json");
        let text = fs::read(&path).with_context(|| format!("the run {} has no cloud", run.id))?;
        let file: File = serde_json::from_slice(&text).with_context(|| format!("reading {}", path.display()))?;
        Ok(Self {
            registry: Registry::of(run, net),
            faulty: Faulty::of(run, net),
            azure: Azure::of(run, net),
            cluster: Cluster::of(ControlPlane::of(run, net, &file.kubernetes)),
            images: file.images,
            kubernetes: file.kubernetes,
            layouts: run.cloud_dir().join("layouts"),
        })
    }

    /// The OCI layout of one of its images: `machine`, `pause`, `busybox`.
    pub(crate) fn layout(&self, name: &str) -> PathBuf {
        let link = self.layouts.join(name);
        fs::canonicalize(&link).unwrap_or(link)
    }

    /// What a host that is to join must see of the machine: from, to.
    pub(crate) fn binds(&self) -> Vec<(PathBuf, String)> {
        vec![(self.kubernetes.folder().to_owned(), join::KUBE.to_owned())]
    }
}
