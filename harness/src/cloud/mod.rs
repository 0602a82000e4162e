//! What stands around the hosts of a run: names, downloads, a registry and a cluster, each a real server in the run's network.
//!
//!     hosts ─▶ names (dnsmasq) ─▶ downloads (nginx: the official URLs)   registry (docker-registry, TLS)
//!         └──▶ control plane (etcd, kube-apiserver, kube-controller-manager) ◀── cluster (what tests say and ask)
//!                                                                            ◀── approver (the daemon certificates' approver)
//!
//! No server looks beyond that network, and none has anything to forward to. Each outlives the harness and ends with the run.

pub(crate) mod approver;
pub(crate) mod cluster;
pub(crate) mod control_plane;
pub(crate) mod downloads;
pub(crate) mod kubernetes;
mod kubernetes_source;
pub(crate) mod names;
mod pki;
pub(crate) mod registry;
mod server;

use std::fs;

use anyhow::{Context, Result};
use image::ImageRef;
use serde::{Deserialize, Serialize};

use crate::ca::Ca;
use crate::machine_image;
use crate::net::Net;
use crate::progress::step;
use crate::run::Run;

use cluster::Cluster;
use control_plane::ControlPlane;
use downloads::Downloads;
use kubernetes::Kubernetes;
use registry::Registry;

/// The repository of the machine's operating system.
const MACHINE_OS: &str = "aks-flex-node/machine-os";

/// The cloud of a run.
#[derive(Clone)]
pub(crate) struct Cloud {
    run: Run,
    net: Net,
    /// Its registry.
    pub(crate) registry: Registry,
    /// The cluster that hosts join.
    pub(crate) cluster: Cluster,
    /// The server of the official download URLs.
    pub(crate) downloads: Downloads,
    /// Where the real kubelet and kubectl are: hosts bind it to `/opt/kube`.
    pub(crate) kubernetes: Kubernetes,
    /// What is in the registry.
    pub(crate) images: Images,
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
    /// Makes and starts everything, in a network that is up. What takes long is made once and kept in the cache.
    ///
    /// # Errors
    /// A part that can't be made or does not serve. What was started until then is in the run's records.
    pub(crate) async fn up(run: &Run, net: &Net) -> Result<Self> {
        let ca = Ca::of(&run.cache).await?;
        let kubernetes = step("Kubernetes binaries", Kubernetes::find(&run.cache)).await?;
        let plane = ControlPlane::of(run, net, &kubernetes);
        let cluster = Cluster::of(plane.clone());
        let registry = Registry::of(run, net);
        let downloads = Downloads::of(run, net);
        let served = step("resolver, registry and downloads", async {
            names::start(run, net).await?;
            registry.prepare(&ca).await?;
            registry.start().await?;
            downloads.prepare(&ca).await?;
            downloads.start().await
        });
        served.await?;
        let control = step("control plane", async {
            plane.prepare()?;
            plane.start().await?;
            cluster.prepare().await
        });
        let images = step("images of machine and pods", Self::push(run, &registry, &ca));
        let (control, images) = tokio::join!(control, images);
        control?;
        let images = images?;
        let file = File {
            kubernetes: kubernetes.clone(),
            images: images.clone(),
        };
        fs::write(run.cloud_dir().join("cloud.json"), serde_json::to_vec(&file)?)?;
        approver::start(run)?;
        Ok(Self {
            run: run.clone(),
            net: net.clone(),
            registry,
            cluster,
            downloads,
            kubernetes,
            images,
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
            run: run.clone(),
            net: net.clone(),
            registry: Registry::of(run, net),
            cluster: Cluster::of(ControlPlane::of(run, net, &file.kubernetes)),
            downloads: Downloads::of(run, net),
            kubernetes: file.kubernetes,
            images: file.images,
        })
    }

    async fn push(run: &Run, registry: &Registry, ca: &Ca) -> Result<Images> {
        let cache = &run.cache;
        Ok(Images {
            machine: registry
                .push(
                    &machine_image::machine(cache, &ca.certificate()).await?,
                    MACHINE_OS,
                    "trixie",
                )
                .await?,
            pause: registry.push(&machine_image::pause(cache).await?, "pause", "1").await?,
            busybox: registry
                .push(&machine_image::busybox(cache).await?, "busybox", "1")
                .await?,
        })
    }
}
