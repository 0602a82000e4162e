//! A bundle of offline artifacts: what a node's programs and images come from where there is no network but the cluster's.
//!
//! ```text
//! manifest.json ──▶ versions, images ──▶ the path of every file ──(bundle: are they there?)──▶ Bundle
//! ```
//!
//! A bundle is the reference's own, so that one bundle serves both agents. Source: node-agent specification, 5.4.3; the paths of
//! its files: documentation and releases of the reference's bundles.

mod manifest;

use std::collections::BTreeMap;

pub use manifest::{Manifest, Wrong};

use crate::{model::Arch, step::Origin};

/// A bundle of which every file was found.
#[derive(Clone, Debug)]
pub struct Bundle {
    /// What it says of itself.
    pub manifest: Manifest,
    files: BTreeMap<String, Origin>,
}

impl Bundle {
    /// A bundle of these files.
    ///
    /// # Errors
    /// Those that its manifest names and that are not among them.
    pub fn of(manifest: Manifest, arch: Arch, files: BTreeMap<String, Origin>) -> Result<Self, Vec<String>> {
        let named = self::files(&manifest, arch).into_iter().map(|(path, _)| path);
        let missing: Vec<_> = named.filter(|path| !files.contains_key(path)).collect();
        match missing.is_empty() {
            true => Ok(Self { manifest, files }),
            false => Err(missing),
        }
    }

    /// How a file of the bundle is had.
    ///
    /// # Panics
    /// The path is none that [`files`] names for its manifest.
    #[must_use]
    pub fn origin(&self, path: &str) -> Origin {
        self.files.get(path).expect("a bundle has all its files").clone()
    }
}

/// Where the files of a bundle lie in it.
pub mod path {
    use image::Digest;

    use crate::model::Arch;

    /// The bundle's description.
    pub const MANIFEST: &str = "manifest.json";

    /// A program of Kubernetes.
    #[must_use]
    pub fn kubernetes(version: &str, arch: Arch, program: &str) -> String {
        format!("kubernetes/v{version}/bin/linux/{arch}/{program}")
    }

    /// crictl.
    #[must_use]
    pub fn crictl(version: &str, arch: Arch) -> String {
        format!("crictl/v{version}/crictl-v{version}-linux-{arch}.tar.gz")
    }

    /// containerd.
    #[must_use]
    pub fn containerd(version: &str, arch: Arch) -> String {
        format!("containerd/v{version}/containerd-{version}-linux-{arch}.tar.gz")
    }

    /// runc.
    #[must_use]
    pub fn runc(version: &str, arch: Arch) -> String {
        format!("runc/v{version}/runc.{arch}")
    }

    /// The CNI plugins.
    #[must_use]
    pub fn cni(version: &str, arch: Arch) -> String {
        format!("cni/v{version}/cni-plugins-linux-{arch}-v{version}.tgz")
    }

    /// The node problem detector.
    #[must_use]
    pub fn npd(version: &str, arch: Arch) -> String {
        format!("node-problem-detector/v{version}/node-problem-detector-v{version}-linux_{arch}.tar.gz")
    }

    /// An image's archive. What no file's name can hold is replaced; the start of a digest keeps names apart that become one so.
    #[must_use]
    pub fn image(arch: Arch, image: &str) -> String {
        let digest = Digest::of(image.as_bytes());
        let name = image.replace(['/', ':', '@'], "_");
        format!("container-images/{arch}/{name}-{}.tar", &digest.hex()[..12])
    }

    /// The checksum beside a file.
    #[must_use]
    pub fn checksum(path: &str) -> String {
        format!("{path}.sha256")
    }
}

/// The programs of Kubernetes that a node has.
pub const KUBERNETES: [&str; 3] = ["kubelet", "kubectl", "kube-proxy"];

/// Every file of a bundle but its manifest, and whether a checksum lies beside it in a folder.
#[must_use]
pub fn files(manifest: &Manifest, arch: Arch) -> Vec<(String, bool)> {
    let kubernetes = KUBERNETES.map(|program| (path::kubernetes(&manifest.kubernetes, arch, program), true));
    let others = [
        path::crictl(&manifest.crictl, arch),
        path::containerd(&manifest.containerd, arch),
        path::runc(&manifest.runc, arch),
        path::cni(&manifest.cni, arch),
    ];
    let npd = manifest.npd.iter().map(|version| path::npd(version, arch));
    let images = manifest.images.iter().map(|image| (path::image(arch, image), true));
    kubernetes
        .into_iter()
        .chain(others.into_iter().chain(npd).map(|path| (path, false)))
        .chain(images)
        .collect()
}

#[cfg(test)]
mod tests;
