//! The wire to a registry: what one repository has, from the first place that has it.
//!
//! ```text
//! mirror ──fails──▶ mirror ──fails──▶ the registry itself; a place that can't be reached is not asked again
//! ```

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use image::oci::{Config, Descriptor, Document, Manifest, OciError, Platform, media};
use image::{Digest, Repository, Select};
use oci_client::Reference;
use oci_client::client::{Certificate, CertificateEncoding, Client, ClientConfig, ClientProtocol};
use oci_client::errors::OciDistributionError;
use reqwest::header::ACCEPT;

use super::ask;
use super::blob::BlobReader;
use super::error::{PullError, Why, why};
use super::registries::{Endpoint, Registries, Resolve, Scheme, Verify};

/// How long a place may take to answer the telephone: a dead mirror must not cost more (field case C13).
pub(super) const CONNECT: Duration = Duration::from_secs(10);
/// Tries of one thing at one place, when what failed may pass.
pub(super) const TRIES: u32 = 3;
/// Pause before the second try; it doubles.
pub(super) const PAUSE: Duration = Duration::from_millis(500);
/// Largest document that is taken. Source: distribution-spec, "Pushing Manifests": registries should take 4 MiB.
const LARGEST_DOCUMENT: u64 = 4 << 20;

/// Who we say we are.
pub(super) const AGENT: &str = concat!("aks-flex-node/", env!("CARGO_PKG_VERSION"));
const SET_UP: &str = "set up TLS for a pull";

/// How long a pull may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// All of it.
    pub overall: Duration,
    /// Without a byte coming.
    pub idle: Duration,
}

impl Limits {
    /// An agent's image: 10 minutes, and 1 without a byte. Source: node-agent.md 15.
    pub const AGENT: Self = Self {
        overall: Duration::from_secs(600),
        idle: Duration::from_secs(60),
    };
}

pub(super) struct Place {
    pub(super) endpoint: Endpoint,
    /// For tokens.
    pub(super) client: Client,
    pub(super) content: reqwest::Client,
}

/// One repository, for the length of one pull.
pub(super) struct Session {
    repository: Repository,
    pub(super) places: Vec<Place>,
    /// Places before this one could not be reached.
    first: AtomicUsize,
}

/// An image as a registry describes it, checked for this host.
#[derive(Debug)]
pub(super) struct Described {
    /// The index, if its name led to one.
    pub(super) index: Option<Blob>,
    /// The manifest for this host.
    pub(super) manifest: Blob,
    pub(super) layers: Vec<Descriptor>,
    pub(super) config: Blob,
    pub(super) diff_ids: Vec<Digest>,
}

/// A small blob in memory.
#[derive(Clone, Debug)]
pub(super) struct Blob {
    pub(super) descriptor: Descriptor,
    pub(super) bytes: Vec<u8>,
}

impl Blob {
    /// A document under the media type that it names itself, or else the one given.
    fn document(digest: Digest, bytes: Vec<u8>, otherwise: &str) -> Self {
        let named: Option<serde_json::Value> = serde_json::from_slice(&bytes).ok();
        let named = named
            .as_ref()
            .and_then(|json| json["mediaType"].as_str())
            .filter(|named| !named.is_empty());
        let media_type = named.unwrap_or(otherwise).to_owned();
        let size = bytes.len() as u64;
        let descriptor = Descriptor {
            media_type,
            digest,
            size,
            platform: None,
            annotations: Default::default(),
        };
        Self { descriptor, bytes }
    }
}

impl Described {
    /// What the image's name led to.
    pub(super) fn root(&self) -> &Descriptor {
        &self.index.as_ref().unwrap_or(&self.manifest).descriptor
    }

    /// Its blobs that are in memory, what names others after what is named.
    pub(super) fn documents(&self) -> impl Iterator<Item = &Blob> {
        [Some(&self.config), Some(&self.manifest), self.index.as_ref()]
            .into_iter()
            .flatten()
    }

    /// All its blobs.
    pub(super) fn blobs(&self) -> impl Iterator<Item = &Descriptor> {
        self.layers.iter().chain(self.documents().map(|blob| &blob.descriptor))
    }
}

impl Session {
    pub(super) fn open(registries: &Registries, repository: &Repository, limits: Limits) -> Result<Self, PullError> {
        let mut places = Vec::new();
        for endpoint in registries.endpoints(repository.registry()) {
            let certificates = endpoint.certificates.iter();
            let certificates = certificates
                .map(|der| Certificate {
                    encoding: CertificateEncoding::Der,
                    data: der.as_ref().to_vec(),
                })
                .collect();
            let config = ClientConfig {
                protocol: match endpoint.scheme {
                    Scheme::Http => ClientProtocol::Http,
                    Scheme::Https => ClientProtocol::Https,
                },
                accept_invalid_certificates: endpoint.verify == Verify::Skip,
                extra_root_certificates: certificates,
                read_timeout: Some(limits.idle),
                connect_timeout: Some(CONNECT.min(limits.idle)),
                user_agent: AGENT,
                ..ClientConfig::default()
            };
            // Not `Client::new`: on a fault that goes on with another configuration, without our certificates.
            let client = Client::try_from(config).map_err(|error| PullError::Registry {
                registry: endpoint.authority.clone(),
                step: SET_UP,
                why: why(error),
            })?;
            let content = ask::client(&endpoint, limits).map_err(|error| PullError::Registry {
                registry: endpoint.authority.clone(),
                step: SET_UP,
                why: why(OciDistributionError::RequestError(error)),
            })?;
            places.push(Place {
                endpoint,
                client,
                content,
            });
        }
        Ok(Self {
            repository: repository.clone(),
            places,
            first: AtomicUsize::new(0),
        })
    }

    /// The registry's name, as the image's name has it.
    pub(super) fn registry(&self) -> &str {
        self.repository.registry()
    }

    /// The places from `first` on that may be asked for this.
    pub(super) fn places(&self, needs: Resolve) -> impl Iterator<Item = (usize, &Place)> {
        let first = self.first.load(Ordering::Relaxed);
        let last = self.places.len() - 1;
        let may = move |place: &Place| needs == Resolve::DigestsOnly || place.endpoint.resolve == Resolve::Trusted;
        self.places
            .iter()
            .enumerate()
            .filter(move |(at, place)| *at == last || (*at >= first && may(place)))
    }

    pub(super) fn reference(&self, place: &Place, select: &Select) -> Reference {
        let (registry, path) = (self.registry().to_owned(), self.repository.path().to_owned());
        let mut reference = match select {
            Select::Tag(tag) => Reference::with_tag(registry, path, tag.to_string()),
            Select::Digest(digest) => Reference::with_digest(registry, path, digest.to_string()),
        };
        if place.endpoint.authority != self.registry() {
            reference.set_mirror_registry(place.endpoint.authority.clone());
        }
        reference
    }

    pub(super) fn failed(place: &Place, step: &'static str, why: Why) -> PullError {
        PullError::Registry {
            registry: place.endpoint.authority.clone(),
            step,
            why,
        }
    }

    /// A place failed: if it could not be reached at all, it is not asked again.
    pub(super) fn leave(&self, at: usize, error: &PullError) {
        let next = (at + 1).min(self.places.len() - 1);
        if let PullError::Registry {
            why: Why::Transport(_) | Why::Silent | Why::Unnamed,
            ..
        } = error
        {
            self.first.fetch_max(next, Ordering::Relaxed);
        }
        if next > at {
            tracing::warn!(error = %error, "a mirror failed, the next is asked");
        }
    }

    /// What a name leads to.
    pub(super) async fn document(&self, select: &Select) -> Result<(Digest, Vec<u8>), PullError> {
        const STEP: &str = "get the manifest";
        let needs = match select {
            Select::Tag(_) => Resolve::Trusted,
            Select::Digest(_) => Resolve::DigestsOnly,
        };
        let mut last = None;
        for (at, place) in self.places(needs) {
            let error = match again(|| self.manifest(place, select)).await {
                Ok(None) => Self::failed(place, STEP, Why::Nonsense("it is larger than a manifest may be")),
                Ok(Some(bytes)) => {
                    let got = Digest::of(&bytes);
                    match select {
                        Select::Digest(wanted) if *wanted != got => PullError::Digest {
                            registry: place.endpoint.authority.clone(),
                            wanted: wanted.clone(),
                            got,
                        },
                        Select::Digest(_) | Select::Tag(_) => return Ok((got, bytes)),
                    }
                }
                Err(Why::Silent) => Self::failed(place, STEP, ask::silence(place).await),
                Err(why) => Self::failed(place, STEP, why),
            };
            self.leave(at, &error);
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| self.nobody(STEP)))
    }

    /// The bytes of a manifest or an index; `None` if they are too many.
    async fn manifest(&self, place: &Place, select: &Select) -> Result<Option<Vec<u8>>, OciDistributionError> {
        let accept = media::DOCUMENTS.join(", ");
        let response = self.ask(place, "manifests", select, (ACCEPT, &accept)).await?;
        Ok(ask::within(response, LARGEST_DOCUMENT).await?)
    }

    pub(super) fn nobody(&self, step: &'static str) -> PullError {
        PullError::Registry {
            registry: self.registry().to_owned(),
            step,
            why: Why::Nonsense("there is nobody to ask"),
        }
    }

    /// A blob that fits in memory, checked.
    async fn small(&self, descriptor: &Descriptor) -> Result<Vec<u8>, PullError> {
        if descriptor.size > LARGEST_DOCUMENT {
            return Err(OciError::NotAnImage("its config is larger than one may be").into());
        }
        let mut bytes = Vec::new();
        let mut blob = self.blob(descriptor, 0, "get the config");
        while let Some(more) = blob.next().await? {
            bytes.extend_from_slice(&more);
        }
        let got = Digest::of(&bytes);
        if got != descriptor.digest {
            let wanted = descriptor.digest.clone();
            return Err(PullError::Digest {
                registry: self.registry().to_owned(),
                wanted,
                got,
            });
        }
        Ok(bytes)
    }

    /// The image that a name leads to, for this platform.
    pub(super) async fn describe(&self, select: &Select, platform: &Platform) -> Result<Described, PullError> {
        let (digest, bytes) = self.document(select).await?;
        let (root, manifest, document) = match Document::parse(&bytes)? {
            Document::Manifest(document) => (None, Blob::document(digest, bytes, media::MANIFEST), document),
            Document::Index(index) => {
                let chosen = index.choose(platform)?.digest.clone();
                let (chosen, inner) = self.document(&Select::Digest(chosen)).await?;
                let Document::Manifest(document) = Document::parse(&inner)? else {
                    return Err(OciError::NotAnImage("an index stands where this platform's manifest should").into());
                };
                let root = Blob::document(digest, bytes, media::INDEX);
                (Some(root), Blob::document(chosen, inner, media::MANIFEST), document)
            }
        };
        document.check()?;
        let config = self.small(&document.config).await?;
        let parsed = Config::parse(&config)?;
        parsed.check(&document, platform)?;
        let Manifest {
            config: descriptor,
            layers,
        } = document;
        let config = Blob {
            descriptor,
            bytes: config,
        };
        Ok(Described {
            index: root,
            manifest,
            layers,
            config,
            diff_ids: parsed.rootfs.diff_ids,
        })
    }

    /// A blob from the byte `offset` on.
    pub(super) fn blob<'a>(&'a self, descriptor: &Descriptor, offset: u64, step: &'static str) -> BlobReader<'a> {
        BlobReader::new(self, descriptor, offset, step)
    }
}

/// Tries again what may pass.
pub(super) async fn again<T, F>(mut what: impl FnMut() -> F) -> Result<T, Why>
where
    F: Future<Output = Result<T, OciDistributionError>>,
{
    let mut pause = PAUSE;
    let mut tries = 1;
    loop {
        match what().await.map_err(why) {
            Err(why) if why.may_pass() && why != Why::Silent && tries < TRIES => {
                tracing::debug!(%why, "a request to a registry is tried again");
                tokio::time::sleep(pause).await;
                pause *= 2;
                tries += 1;
            }
            done => return done,
        }
    }
}
