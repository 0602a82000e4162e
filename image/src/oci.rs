//! What registries and layouts say of an image: index, manifest, config; and which of several platforms is ours.
//!
//! Only what decides something is read. Docker's version 2 media types mean the same as OCI's and are taken for them.
//! Source: OCI image-spec 1.1, image-index.md, manifest.md, config.md.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::digest::Digest;

/// Media types as we write them.
pub mod media {
    /// An index.
    pub const INDEX: &str = "application/vnd.oci.image.index.v1+json";
    /// A manifest.
    pub const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
    /// A config.
    pub const CONFIG: &str = "application/vnd.oci.image.config.v1+json";
    /// A layer, gzip.
    pub const LAYER_GZIP: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
    /// A layer, zstd.
    pub const LAYER_ZSTD: &str = "application/vnd.oci.image.layer.v1.tar+zstd";
    /// A layer as plain tar.
    pub const LAYER_TAR: &str = "application/vnd.oci.image.layer.v1.tar";

    /// Docker's index.
    pub const DOCKER_INDEX: &str = "application/vnd.docker.distribution.manifest.list.v2+json";
    /// Docker's manifest.
    pub const DOCKER_MANIFEST: &str = "application/vnd.docker.distribution.manifest.v2+json";
    /// Docker's config.
    pub const DOCKER_CONFIG: &str = "application/vnd.docker.container.image.v1+json";
    const DOCKER_LAYER: &str = "application/vnd.docker.image.rootfs.";
    const OCI_LAYER: &str = "application/vnd.oci.image.layer.";

    /// What a registry is asked for, in the order of liking.
    pub const DOCUMENTS: [&str; 4] = [INDEX, MANIFEST, DOCKER_INDEX, DOCKER_MANIFEST];

    /// Whether a descriptor of this type is a layer to unpack. Its compression is read from its first bytes.
    #[must_use]
    pub fn is_layer(media_type: &str) -> bool {
        media_type.starts_with(OCI_LAYER) || media_type.starts_with(DOCKER_LAYER)
    }
}

/// Why what came is no image for this host.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OciError {
    /// Not JSON, or not of an image.
    #[error("what the name leads to is not an image: {0}")]
    NotAnImage(&'static str),
    /// None for our platform.
    #[error("the image has nothing for {wanted}; it has {found}")]
    Platform {
        /// What was looked for, `linux/amd64`.
        wanted: String,
        /// What there is.
        found: String,
    },
    /// It has no layers.
    #[error("the image has no layers")]
    NoLayers,
}

/// What points to a blob.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Descriptor {
    /// What the blob is.
    pub media_type: String,
    /// Its digest.
    pub digest: Digest,
    /// Its length in bytes.
    pub size: u64,
    /// For whom it is, in an index.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub platform: Option<Platform>,
    /// Notes.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub annotations: BTreeMap<String, String>,
}

/// A kind of machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Platform {
    /// Processor, in Go's words: `amd64`.
    pub architecture: String,
    /// Operating system: `linux`.
    pub os: String,
}

impl Platform {
    /// Linux on the processor this program was built for.
    #[must_use]
    pub fn here() -> Self {
        Self::linux(match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            other => other,
        })
    }

    /// Linux on the processor named.
    #[must_use]
    pub fn linux(architecture: &str) -> Self {
        Self {
            architecture: architecture.to_owned(),
            os: "linux".to_owned(),
        }
    }
}

impl std::fmt::Display for Platform {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.os, self.architecture)
    }
}

/// What an image's name leads to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// One image.
    Manifest(Manifest),
    /// Images of several platforms.
    Index(Index),
}

/// Images of several platforms.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Index {
    /// One a platform, and whatever else was attached.
    pub manifests: Vec<Descriptor>,
}

/// One image.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Manifest {
    /// Its config.
    pub config: Descriptor,
    /// Its layers, lowest first.
    pub layers: Vec<Descriptor>,
}

/// An image's config: what to run, and what its layers are once unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Config {
    /// Processor.
    #[serde(default)]
    pub architecture: String,
    /// Operating system.
    #[serde(default)]
    pub os: String,
    /// How a container of it is run.
    #[serde(default)]
    pub config: Option<Run>,
    /// The layers' digests when unpacked.
    pub rootfs: RootFs,
}

/// How a container of an image is run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "PascalCase", default)]
pub struct Run {
    /// `NAME=value`.
    pub env: Option<Vec<String>>,
    /// The program and its first arguments.
    pub entrypoint: Option<Vec<String>>,
    /// Notes.
    pub labels: Option<BTreeMap<String, String>>,
}

/// The layers' digests when unpacked.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct RootFs {
    /// One a layer, lowest first.
    pub diff_ids: Vec<Digest>,
}

impl Document {
    /// Reads what a registry gave for an image's name.
    ///
    /// # Errors
    /// When it is neither index nor manifest, or could pass for both.
    pub fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Shape {
            media_type: Option<String>,
            manifests: Option<serde::de::IgnoredAny>,
            layers: Option<serde::de::IgnoredAny>,
            config: Option<serde::de::IgnoredAny>,
        }
        let shape: Shape = serde_json::from_slice(bytes).map_err(|_| OciError::NotAnImage("it is no JSON object"))?;
        let index = match (shape.manifests, shape.layers.is_some() || shape.config.is_some()) {
            (Some(_), false) => true,
            (None, true) => false,
            (Some(_), true) => return Err(OciError::NotAnImage("it is a manifest and an index at once")),
            (None, false) => return Err(OciError::NotAnImage("it has neither layers nor manifests")),
        };
        let known = match shape.media_type.as_deref() {
            None | Some("") => true,
            Some(media::INDEX | media::DOCKER_INDEX) => index,
            Some(media::MANIFEST | media::DOCKER_MANIFEST) => !index,
            Some(_) => false,
        };
        if !known {
            return Err(OciError::NotAnImage("its media type is not that of an image"));
        }
        if index {
            let index = serde_json::from_slice(bytes).map_err(|_| OciError::NotAnImage("its index is malformed"))?;
            Ok(Self::Index(index))
        } else {
            let manifest = serde_json::from_slice(bytes).map_err(|_| OciError::NotAnImage("its manifest is malformed"));
            Ok(Self::Manifest(manifest?))
        }
    }
}

impl Index {
    /// The manifest for `platform`; a lone one that names no platform is taken at its word.
    ///
    /// # Errors
    /// When there is none; the text lists what there is.
    pub fn choose(&self, platform: &Platform) -> Result<&Descriptor, OciError> {
        if let Some(found) = self.manifests.iter().find(|m| m.platform.as_ref() == Some(platform)) {
            return Ok(found);
        }
        if let [only] = self.manifests.as_slice()
            && only.platform.is_none()
        {
            return Ok(only);
        }
        let mut found: Vec<_> = self
            .manifests
            .iter()
            .filter_map(|m| m.platform.as_ref())
            .map(Platform::to_string)
            .collect();
        found.retain(|platform| platform != "unknown/unknown"); // attestations beside the images
        found.sort();
        found.dedup();
        let found = if found.is_empty() {
            "nothing for any platform".to_owned()
        } else {
            found.join(", ")
        };
        Err(OciError::Platform {
            wanted: platform.to_string(),
            found,
        })
    }
}

impl Manifest {
    /// Holds the manifest to what can be unpacked.
    ///
    /// # Errors
    /// When it has no layers, or config or layers are of something else.
    pub fn check(&self) -> Result<(), OciError> {
        if !matches!(self.config.media_type.as_str(), media::CONFIG | media::DOCKER_CONFIG) {
            return Err(OciError::NotAnImage("its config is not that of an image"));
        }
        if self.layers.is_empty() {
            return Err(OciError::NoLayers);
        }
        if !self.layers.iter().all(|layer| media::is_layer(&layer.media_type)) {
            return Err(OciError::NotAnImage("one of its layers is not a layer"));
        }
        Ok(())
    }
}

impl Config {
    /// Reads a config.
    ///
    /// # Errors
    /// When it is none.
    pub fn parse(bytes: &[u8]) -> Result<Self, OciError> {
        serde_json::from_slice(bytes).map_err(|_| OciError::NotAnImage("its config is malformed"))
    }

    /// Holds the config to its manifest and to the platform. A config that names no platform at all is taken.
    ///
    /// # Errors
    /// When it is another platform's, or its layers are not the manifest's.
    pub fn check(&self, manifest: &Manifest, platform: &Platform) -> Result<(), OciError> {
        let found = Platform {
            architecture: self.architecture.clone(),
            os: self.os.clone(),
        };
        let silent = self.architecture.is_empty() && self.os.is_empty();
        if !silent && found != *platform {
            return Err(OciError::Platform {
                wanted: platform.to_string(),
                found: found.to_string(),
            });
        }
        if self.rootfs.diff_ids.len() != manifest.layers.len() {
            return Err(OciError::NotAnImage(
                "its config and its manifest differ in the number of layers",
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn descriptor(media_type: &str, platform: Option<&str>) -> Descriptor {
        let platform = platform.and_then(|p| p.split_once('/'));
        Descriptor {
            media_type: media_type.to_owned(),
            digest: Digest::of(b"x"),
            size: 1,
            platform: platform.map(|(os, arch)| Platform {
                os: os.into(),
                architecture: arch.into(),
            }),
            annotations: BTreeMap::new(),
        }
    }

    fn index(platforms: &[Option<&str>]) -> Index {
        Index {
            manifests: platforms.iter().map(|p| descriptor(media::MANIFEST, *p)).collect(),
        }
    }

    #[test]
    fn our_platform_is_chosen_and_a_miss_lists_what_there_is() {
        let amd64 = Platform::linux("amd64");
        let both = index(&[Some("linux/arm64"), Some("linux/amd64")]);
        assert_eq!(both.choose(&amd64), Ok(&both.manifests[1]));
        assert!(index(&[None]).choose(&amd64).is_ok());
        for (platforms, want) in [
            (
                vec![Some("windows/amd64"), Some("linux/arm64"), Some("unknown/unknown")],
                "the image has nothing for linux/amd64; it has linux/arm64, windows/amd64",
            ),
            (
                vec![],
                "the image has nothing for linux/amd64; it has nothing for any platform",
            ),
            (
                vec![None, None],
                "the image has nothing for linux/amd64; it has nothing for any platform",
            ),
        ] {
            assert_eq!(index(&platforms).choose(&amd64).unwrap_err().to_string(), want);
        }
    }

    #[test]
    fn a_document_is_known_by_its_shape_and_its_media_type_must_agree() {
        let d = serde_json::to_string(&descriptor(media::CONFIG, None)).unwrap();
        let manifest = |mt: &str| format!(r#"{{"schemaVersion":2,{mt}"config":{d},"layers":[{d}]}}"#);
        let index = |mt: &str| format!(r#"{{"schemaVersion":2,{mt}"manifests":[{d}]}}"#);
        let mt = |mt: &str| format!(r#""mediaType":"{mt}","#);
        for text in [
            manifest(""),
            manifest(&mt(media::MANIFEST)),
            manifest(&mt(media::DOCKER_MANIFEST)),
        ] {
            assert!(
                matches!(Document::parse(text.as_bytes()), Ok(Document::Manifest(_))),
                "{text}"
            );
        }
        for text in [index(""), index(&mt(media::INDEX)), index(&mt(media::DOCKER_INDEX))] {
            assert!(
                matches!(Document::parse(text.as_bytes()), Ok(Document::Index(_))),
                "{text}"
            );
        }
        for text in [
            manifest(&mt(media::INDEX)),
            index(&mt(media::MANIFEST)),
            manifest(&mt("application/vnd.docker.distribution.manifest.v1+json")),
            manifest(&format!(r#""manifests":[{d}],"#)),
            r#"{"schemaVersion":2}"#.into(),
            "[]".into(),
            "<html>".into(),
            String::new(),
        ] {
            assert!(
                matches!(Document::parse(text.as_bytes()), Err(OciError::NotAnImage(_))),
                "{text}"
            );
        }
    }

    #[test]
    fn what_cannot_be_unpacked_here_is_refused() {
        let layer = || descriptor(media::LAYER_GZIP, None);
        let good = Manifest {
            config: descriptor(media::CONFIG, None),
            layers: vec![layer()],
        };
        assert_eq!(good.check(), Ok(()));
        let docker = "application/vnd.docker.image.rootfs.diff.tar.gzip";
        let docker = Manifest {
            config: descriptor(media::DOCKER_CONFIG, None),
            layers: vec![descriptor(docker, None)],
        };
        assert_eq!(docker.check(), Ok(()));
        assert_eq!(
            Manifest {
                layers: vec![],
                ..good.clone()
            }
            .check(),
            Err(OciError::NoLayers)
        );
        let chart = descriptor("application/vnd.cncf.helm.config.v1+json", None);
        assert!(
            Manifest {
                config: chart.clone(),
                ..good.clone()
            }
            .check()
            .is_err()
        );
        assert!(
            Manifest {
                layers: vec![chart],
                ..good.clone()
            }
            .check()
            .is_err()
        );

        let config = |arch: &str, layers: usize| {
            let ids = vec![Digest::of(b""); layers];
            let json = serde_json::json!({"architecture": arch, "os": if arch.is_empty() { "" } else { "linux" },
                "rootfs": {"type": "layers", "diff_ids": ids}});
            Config::parse(json.to_string().as_bytes())
                .unwrap()
                .check(&good, &Platform::linux("amd64"))
        };
        assert_eq!(config("amd64", 1), Ok(()));
        assert_eq!(config("", 1), Ok(()));
        assert!(matches!(config("arm64", 1), Err(OciError::Platform { .. })));
        assert!(matches!(config("amd64", 2), Err(OciError::NotAnImage(_))));
        assert!(Config::parse(b"{}").is_err());
    }
}
