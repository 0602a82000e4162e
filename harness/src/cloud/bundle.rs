//! A bundle of offline artifacts, made of what the bed's download server and registry have: in a folder, and as an OCI artifact.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use image::{Digest, ImageRef};
use serde_json::{Value, json};

use super::Cloud;
use super::downloads::{CNI, CONTAINERD, CRICTL, NPD, RUNC, served};
use super::kubernetes::VERSION as KUBERNETES;
use crate::cache;
use crate::command::Command;
use crate::run::Run;

/// Images under names that no registry of the bed has, and the layouts that they are made of.
pub(crate) const PAUSE: &str = "offline.example/pause:3.9";
/// What pods of tests run.
pub(crate) const BUSYBOX: &str = "offline.example/busybox:1";

/// Where its files come from, below the served tree, and where they lie in the bundle.
fn files() -> Vec<(String, String)> {
    let kubernetes = ["kubelet", "kubectl", "kube-proxy"].into_iter().flat_map(|program| {
        let path = format!("v{KUBERNETES}/bin/linux/amd64/{program}");
        [path.clone(), format!("{path}.sha256")]
    });
    let kubernetes = kubernetes.map(|path| (format!("dl.k8s.io/{path}"), format!("kubernetes/{path}")));
    let release = |project: &str, name: &str, version: &str, file: String| {
        (
            format!("objects.githubusercontent.com/{project}/releases/download/v{version}/{file}"),
            format!("{name}/v{version}/{file}"),
        )
    };
    kubernetes
        .chain([
            release(
                "kubernetes-sigs/cri-tools",
                "crictl",
                CRICTL,
                format!("crictl-v{CRICTL}-linux-amd64.tar.gz"),
            ),
            release(
                "containerd/containerd",
                "containerd",
                CONTAINERD,
                format!("containerd-{CONTAINERD}-linux-amd64.tar.gz"),
            ),
            release("opencontainers/runc", "runc", RUNC, "runc.amd64".to_owned()),
            release(
                "containernetworking/plugins",
                "cni",
                CNI,
                format!("cni-plugins-linux-amd64-v{CNI}.tgz"),
            ),
            release(
                "kubernetes/node-problem-detector",
                "node-problem-detector",
                NPD,
                format!("node-problem-detector-v{NPD}-linux_amd64.tar.gz"),
            ),
        ])
        .collect()
}

/// Makes the bundle in a folder that is not there yet.
///
/// # Errors
/// skopeo's, or a file can't be written.
pub(crate) async fn folder(run: &Run, cloud: &Cloud, folder: &Path) -> Result<()> {
    let tree = served(run).await?;
    for (from, to) in files() {
        let to = folder.join(to);
        fs::create_dir_all(to.parent().context("a file lies in a folder")?)?;
        fs::copy(tree.join(&from), &to).with_context(|| from.clone())?;
    }
    for (name, layout) in [(PAUSE, "pause"), (BUSYBOX, "busybox")] {
        let digest = Digest::of(name.as_bytes());
        let file = format!("{}-{}.tar", name.replace(['/', ':'], "_"), &digest.hex()[..12]);
        let path = folder.join("container-images/amd64").join(file);
        fs::create_dir_all(path.parent().context("a file lies in a folder")?)?;
        let from = format!("oci:{}", cloud.layout(layout).display());
        let to = format!("docker-archive:{}:{name}", path.display());
        Command::line(&["skopeo", "copy", "--quiet", &from, &to]).run().await?;
        let sum = Digest::of(&fs::read(&path)?);
        fs::write(path.with_extension("tar.sha256"), format!("{}  image\n", sum.hex()))?;
    }
    let manifest = json!({
        "schemaVersion": 1,
        "versions": {
            "kubernetes": format!("v{KUBERNETES}"), "containerd": CONTAINERD, "runc": RUNC, "cni": CNI, "crictl": CRICTL, "npd": NPD,
        },
        "containerImages": [PAUSE, BUSYBOX],
    });
    Ok(fs::write(folder.join("manifest.json"), manifest.to_string())?)
}

/// Pushes a bundle's folder into the bed's registry, as `oras push` would; the artifact's name is without a scheme.
///
/// # Errors
/// skopeo's, or a file can't be read.
pub(crate) async fn artifact(cloud: &Cloud, folder: &Path, scratch: &Path) -> Result<ImageRef> {
    let layout = scratch.join("artifact");
    let blobs = layout.join("blobs/sha256");
    fs::create_dir_all(&blobs)?;
    let put = |bytes: &[u8], kind: &str| -> Result<Value> {
        let digest = Digest::of(bytes);
        fs::write(blobs.join(digest.hex()), bytes)?;
        Ok(json!({ "mediaType": kind, "digest": digest.as_str(), "size": bytes.len() }))
    };
    let mut layers = Vec::new();
    for path in below(folder)? {
        let mut layer = put(&fs::read(&path)?, "application/vnd.oci.image.layer.v1.tar")?;
        let title = path
            .strip_prefix(folder)?
            .to_str()
            .context("a bundle's paths are text")?;
        layer["annotations"] = json!({ "org.opencontainers.image.title": title });
        layers.push(layer);
    }
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "artifactType": "application/vnd.unknown.artifact.v1",
        "config": put(b"{}", "application/vnd.oci.empty.v1+json")?,
        "layers": layers,
    });
    let root = put(
        manifest.to_string().as_bytes(),
        "application/vnd.oci.image.manifest.v1+json",
    )?;
    fs::write(
        layout.join("index.json"),
        json!({ "schemaVersion": 2, "manifests": [root] }).to_string(),
    )?;
    fs::write(layout.join("oci-layout"), "{\"imageLayoutVersion\": \"1.0.0\"}")?;
    let pushed = cloud.registry.push(&layout, "bundle", KUBERNETES).await;
    cache::remove_tree(&layout)?;
    pushed
}

fn below(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        match path.is_dir() {
            true => found.extend(below(&path)?),
            false => found.push(path),
        }
    }
    found.sort();
    Ok(found)
}
