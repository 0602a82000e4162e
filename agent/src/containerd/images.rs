//! The images that containerd has in our namespace: whether one is whole, which there are, how one goes.

use std::collections::HashMap;
use std::time::Duration;

use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::snapshots::{Kind, StatSnapshotRequest};
use containerd_client::services::v1::{
    DeleteContentRequest, DeleteImageRequest, DeleteRequest, GetImageRequest, InfoRequest, ListImagesRequest,
    ReadContentRequest,
};
use containerd_client::tonic::Request;
use hostexec::HostPath;
use image::oci::{Config, Descriptor, Document, Platform};
use image::{Digest, ImageRef};
use sha2::{Digest as _, Sha256};

use super::link::{Containerd, ContainerdError, Link, found, refused};
use super::rootfs;

/// On the images that upgrades pulled, with their own name: only those are ever removed (R27). A name that a person gives
/// to such an image has its labels too.
pub(super) const PULLED_AS: &str = "aks-flex-node/pulled-as";
/// What unpacks images; the units' `ctr run` names the same.
pub(super) const SNAPSHOTTER: &str = "overlayfs";
/// Where containerd keeps everything, unless its configuration says otherwise.
pub(super) const STATE: HostPath = HostPath::fixed("/var/lib/containerd");
const READ: &str = "read content";
/// How long a lease may last that only makes the collector run.
const COLLECT: Duration = Duration::from_secs(60);

/// An image in our namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LocalImage {
    /// Its name, mostly `<repository>@sha256:<hex>`.
    pub name: String,
    /// What it points to.
    pub digest: Option<Digest>,
    /// Who brought it.
    pub origin: Origin,
}

/// Who brought an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// An AgentUpgrade; it may go when nothing needs it.
    Upgrade,
    /// The install, or a person.
    Other,
}

/// An image that is whole and unpacked.
pub(super) struct Whole {
    pub(super) manifest: Digest,
    pub(super) config: Digest,
    /// Its topmost snapshot.
    pub(super) chain: Digest,
    pub(super) layers: Vec<Descriptor>,
    pub(super) env: Vec<String>,
}

impl Containerd {
    /// All images in our namespace, by name.
    ///
    /// # Errors
    /// containerd can't be reached or refuses.
    pub async fn images(&self) -> Result<Vec<LocalImage>, ContainerdError> {
        let link = self.link().await?;
        let answer = link
            .client
            .images()
            .list(link.call(ListImagesRequest { filters: Vec::new() }))
            .await;
        let images = answer.map_err(refused("list images"))?.into_inner().images;
        let mut images: Vec<_> = images
            .into_iter()
            .map(|image| LocalImage {
                digest: image.target.and_then(|target| target.digest.parse().ok()),
                origin: match image.labels.get(PULLED_AS) {
                    Some(name) if *name == image.name => Origin::Upgrade,
                    Some(_) | None => Origin::Other,
                },
                name: image.name,
            })
            .collect();
        images.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(images)
    }

    /// Removes an image's name, and all that only it held; absent is fine.
    ///
    /// # Errors
    /// containerd can't be reached or refuses.
    pub async fn remove_image(&self, name: &str) -> Result<(), ContainerdError> {
        let link = self.link().await?;
        let request = DeleteImageRequest {
            name: name.to_owned(),
            sync: true,
            target: None,
        };
        found(link.client.images().delete(link.call(request)).await).map_err(refused("remove an image"))?;
        Ok(())
    }

    /// Whether the image can be run as it is: its name, all its content, and its layers unpacked.
    ///
    /// # Errors
    /// containerd can't be reached or refuses.
    pub async fn image_present(&self, image: &ImageRef) -> Result<bool, ContainerdError> {
        Ok(self.link().await?.whole(image).await?.is_some())
    }

    /// Brings all that containerd wrote to the disk: it does not do so itself (field cases P1, P4).
    ///
    /// # Errors
    /// The disk has failed.
    pub async fn sync(&self) -> Result<(), ContainerdError> {
        let host = self.host.clone();
        let synced = tokio::task::spawn_blocking(move || match host.open_dir(&STATE) {
            Ok(state) => rootfs::sync(state.path()),
            Err(_) => {
                nix::unistd::sync(); // it is kept elsewhere
                Ok(())
            }
        });
        let synced = synced
            .await
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()));
        synced.map_err(|source| ContainerdError::Host {
            step: "sync what was pulled",
            source,
        })
    }
}

impl Link {
    /// The image, if nothing of it is missing.
    pub(super) async fn whole(&self, image: &ImageRef) -> Result<Option<Whole>, ContainerdError> {
        let Some(record) = self.image(&image.to_string()).await? else {
            return Ok(None);
        };
        if record
            .target
            .as_ref()
            .is_none_or(|target| target.digest != image.digest.as_str())
        {
            return Ok(None);
        }
        let platform = Platform::here();
        let Some(root) = self.read(&image.digest).await? else {
            return Ok(None);
        };
        let (manifest, document) = match Document::parse(&root) {
            Ok(Document::Manifest(document)) => (image.digest.clone(), document),
            Ok(Document::Index(index)) => {
                let Ok(chosen) = index.choose(&platform) else {
                    return Ok(None);
                };
                let Some(bytes) = self.read(&chosen.digest).await? else {
                    return Ok(None);
                };
                let Ok(Document::Manifest(document)) = Document::parse(&bytes) else {
                    return Ok(None);
                };
                (chosen.digest.clone(), document)
            }
            Err(_) => return Ok(None),
        };
        let Some(config) = self.read(&document.config.digest).await? else {
            return Ok(None);
        };
        let Ok(config) = Config::parse(&config) else {
            return Ok(None);
        };
        if document.check().is_err() || config.check(&document, &platform).is_err() {
            return Ok(None);
        }
        for layer in &document.layers {
            if !self.has(layer).await? {
                return Ok(None);
            }
        }
        let Some(chain) = chain_ids(&config.rootfs.diff_ids).pop() else {
            return Ok(None);
        };
        if !self.has_snapshot(&chain).await? {
            return Ok(None);
        }
        let env = config.config.and_then(|run| run.env).unwrap_or_default();
        Ok(Some(Whole {
            manifest,
            config: document.config.digest,
            chain,
            layers: document.layers,
            env,
        }))
    }

    pub(super) async fn image(
        &self,
        name: &str,
    ) -> Result<Option<containerd_client::services::v1::Image>, ContainerdError> {
        let request = GetImageRequest { name: name.to_owned() };
        let answer = found(self.client.images().get(self.call(request)).await).map_err(refused("look for an image"))?;
        Ok(answer.and_then(|answer| answer.into_inner().image))
    }

    /// A document of the content store, whole and hashed; `None` if it is missing or damaged.
    async fn read(&self, digest: &Digest) -> Result<Option<Vec<u8>>, ContainerdError> {
        let mut bytes = Vec::new();
        let read = self
            .pieces(self.call(whole(digest)), |piece| bytes.extend_from_slice(piece))
            .await?;
        Ok((read && Digest::of(&bytes) == *digest).then_some(bytes))
    }

    /// Whether these blobs are what their digests say, read to their last byte.
    pub(super) async fn sound<'a>(
        &self,
        blobs: impl IntoIterator<Item = &'a Descriptor>,
    ) -> Result<bool, ContainerdError> {
        for blob in blobs {
            if !self.has(blob).await? || !self.hashes(&blob.digest).await? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn hashes(&self, digest: &Digest) -> Result<bool, ContainerdError> {
        let mut hash = Sha256::new();
        let read = self
            .pieces(self.long(whole(digest)), |piece| hash.update(piece))
            .await?;
        Ok(read && Digest::from_hash(hash) == *digest)
    }

    /// Hands out what is read, piece by piece; false if it is missing, or went away meanwhile.
    async fn pieces(
        &self,
        request: Request<ReadContentRequest>,
        mut each: impl FnMut(&[u8]),
    ) -> Result<bool, ContainerdError> {
        let answer = found(self.client.content().read(request).await).map_err(refused(READ))?;
        let Some(mut stream) = answer.map(|answer| answer.into_inner()) else {
            return Ok(false);
        };
        loop {
            match found(stream.message().await).map_err(refused(READ))? {
                Some(Some(piece)) => each(&piece.data),
                Some(None) => return Ok(true),
                None => return Ok(false),
            }
        }
    }

    /// Takes a blob away, whatever names it. Its file goes with the collector only, and until then would be taken for
    /// what is missing: so the collector is run, by the end of a lease.
    pub(super) async fn purge(&self, digest: &Digest) -> Result<(), ContainerdError> {
        const STEP: &str = "take damaged content away";
        let request = DeleteContentRequest {
            digest: digest.to_string(),
        };
        found(self.client.content().delete(self.call(request)).await).map_err(refused(STEP))?;
        let lease = self.lease(COLLECT).await?;
        let request = DeleteRequest { id: lease, sync: true };
        found(
            LeasesClient::new(self.client.channel())
                .delete(self.call(request))
                .await,
        )
        .map_err(refused(STEP))?;
        Ok(())
    }

    pub(super) async fn has(&self, blob: &Descriptor) -> Result<bool, ContainerdError> {
        let request = InfoRequest {
            digest: blob.digest.to_string(),
        };
        let answer =
            found(self.client.content().info(self.call(request)).await).map_err(refused("look for content"))?;
        let size = answer.and_then(|answer| answer.into_inner().info).map(|info| info.size);
        Ok(size.is_some_and(|size| u64::try_from(size) == Ok(blob.size)))
    }

    pub(super) async fn has_snapshot(&self, chain: &Digest) -> Result<bool, ContainerdError> {
        let request = StatSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: chain.to_string(),
        };
        let mut snapshots =
            containerd_client::services::v1::snapshots::snapshots_client::SnapshotsClient::new(self.client.channel());
        let answer = found(snapshots.stat(self.call(request)).await).map_err(refused("look for a snapshot"))?;
        let info = answer.and_then(|answer| answer.into_inner().info);
        Ok(info.is_some_and(|info| info.kind() == Kind::Committed))
    }
}

/// The names of the snapshots of layers, lowest first. Source: OCI image-spec, config.md, "Layer ChainID".
pub(super) fn chain_ids(diff_ids: &[Digest]) -> Vec<Digest> {
    let mut chain: Vec<Digest> = Vec::with_capacity(diff_ids.len());
    for diff_id in diff_ids {
        let next = match chain.last() {
            None => diff_id.clone(),
            Some(below) => Digest::of(format!("{below} {diff_id}").as_bytes()),
        };
        chain.push(next);
    }
    chain
}

/// All of a blob.
fn whole(digest: &Digest) -> ReadContentRequest {
    ReadContentRequest {
        digest: digest.to_string(),
        offset: 0,
        size: 0,
    }
}

/// Labels of one entry.
pub(super) fn label(key: &str, value: &str) -> HashMap<String, String> {
    HashMap::from([(key.to_owned(), value.to_owned())])
}
