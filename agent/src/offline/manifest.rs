//! `manifest.json` of a bundle.

use std::collections::BTreeSet;

use serde::Deserialize;

/// What a bundle holds. Versions are without a `v`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Manifest {
    /// kubelet, kubectl, kube-proxy.
    pub kubernetes: String,
    /// containerd.
    pub containerd: String,
    /// runc.
    pub runc: String,
    /// CNI plugins.
    pub cni: String,
    /// crictl.
    pub crictl: String,
    /// The node problem detector, which a bundle may be without.
    pub npd: Option<String>,
    /// The container images whose archives are in it.
    pub images: BTreeSet<String>,
}

/// What is wrong with a manifest: keys, and no value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It can't be read as one.
    #[error("manifest.json is no JSON object of the form of a manifest (line {line}, column {column})")]
    Json {
        /// Where.
        line: usize,
        /// Where.
        column: usize,
    },
    /// It is longer than a description may be.
    #[error("manifest.json is longer than 1 MiB")]
    Long,
    /// It is of another form.
    #[error("schemaVersion of manifest.json is none that this release reads: it reads 1")]
    Schema,
    /// Fields without which it is no use.
    #[error("manifest.json lacks {}", .0.join(", "))]
    Missing(Vec<&'static str>),
    /// A field that would lead elsewhere than to a file of the bundle.
    #[error("{0} of manifest.json holds what no version or name of an image has")]
    Field(&'static str),
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct File {
    schema_version: Option<u64>,
    versions: Versions,
    container_images: Option<Vec<String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Versions {
    kubernetes: Option<String>,
    containerd: Option<String>,
    runc: Option<String>,
    cni: Option<String>,
    crictl: Option<String>,
    npd: Option<String>,
}

impl Manifest {
    /// Reads a manifest. Keys that aren't known are another tool's.
    ///
    /// # Errors
    /// It is none, lacks a version, or has one that could lead out of the bundle.
    pub fn parse(bytes: &[u8]) -> Result<Self, Wrong> {
        let file: File = serde_json::from_slice(bytes).map_err(|error| Wrong::Json {
            line: error.line(),
            column: error.column(),
        })?;
        if !matches!(file.schema_version, None | Some(0 | 1)) {
            return Err(Wrong::Schema);
        }
        let mut missing = Vec::new();
        let plain = |value: Option<String>| {
            value
                .as_deref()
                .unwrap_or_default()
                .trim()
                .trim_start_matches('v')
                .to_owned()
        };
        let mut version = |key, value: Option<String>| {
            let value = plain(value);
            if value.is_empty() {
                missing.push(key);
            }
            (key, value)
        };
        let v = file.versions;
        let versions = [
            version("versions.kubernetes", v.kubernetes),
            version("versions.containerd", v.containerd),
            version("versions.runc", v.runc),
            version("versions.cni", v.cni),
            version("versions.crictl", v.crictl),
        ];
        if !missing.is_empty() {
            return Err(Wrong::Missing(missing));
        }
        let npd = Some(plain(v.npd)).filter(|npd| !npd.is_empty());
        if npd.as_deref().is_some_and(|npd| !is_version(npd)) {
            return Err(Wrong::Field("versions.npd"));
        }
        if let Some((key, _)) = versions.iter().find(|(_, version)| !is_version(version)) {
            return Err(Wrong::Field(key));
        }
        let images = file.container_images.unwrap_or_default();
        let images: BTreeSet<String> = images
            .iter()
            .map(|image| image.trim().to_owned())
            .filter(|image| !image.is_empty())
            .collect();
        if !images.iter().all(|image| is_image(image)) {
            return Err(Wrong::Field("containerImages"));
        }
        let [kubernetes, containerd, runc, cni, crictl] = versions.map(|(_, version)| version);
        Ok(Self {
            kubernetes,
            containerd,
            runc,
            cni,
            crictl,
            npd,
            images,
        })
    }
}

/// Whether a text can stand in a file's name for a version.
fn is_version(text: &str) -> bool {
    text.len() <= 64
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._+-".contains(c))
}

/// Whether a text can be the name of an image, which becomes that of a file.
fn is_image(text: &str) -> bool {
    text.len() <= 200
        && text.starts_with(|first: char| first.is_ascii_alphanumeric())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || "._-:/@".contains(c))
}
