//! A pull: registry ▸ content ▸ snapshots ▸ image, under a lease.
//!
//! ```text
//! lease ─▶ describe ─▶ blobs (resumed where a dead pull stopped) ─▶ layers unpacked, diff ids compared
//!       ─▶ labels that hold it together ─▶ image ─▶ lease ends
//! ```
//!
//! A pull that fails takes its half-done blobs back and ends its lease, so nothing of it stays; one whose process dies
//! is taken up by the next, and its lease ends by itself.

use std::collections::HashMap;
use std::time::Duration;

use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::snapshots::snapshots_client::SnapshotsClient;
use containerd_client::services::v1::snapshots::{
    CommitSnapshotRequest, PrepareSnapshotRequest, RemoveSnapshotRequest,
};
use containerd_client::services::v1::{
    AddResourceRequest, ApplyRequest, CreateImageRequest, Image, Info, Resource, UpdateImageRequest, UpdateRequest,
};
use containerd_client::types;
use image::oci::{Descriptor, Platform};
use image::{Digest, ImageRef, Select};

use super::error::PullError;
use super::images::{PULLED_AS, SNAPSHOTTER, chain_ids, label};
use super::lease::nanoseconds;
use super::link::{Containerd, ContainerdError, Link, created, found, refused};
use super::registries::Registries;
use super::registry::{Described, Limits, Session};
use super::write;

/// How long a lease outlives the limit of its pull, if nobody ends it.
const LEASE_SPARE: Duration = Duration::from_secs(600);

/// What a pull brought, or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The image, under its name.
    pub image: ImageRef,
    /// The manifest for this host: the image's digest itself, or one that its index names.
    pub platform_digest: Digest,
    /// Its config: what Docker calls the image's id.
    pub config_digest: Digest,
    /// Bytes that came over the wire.
    pub bytes: u64,
}

impl Containerd {
    /// Pulls an image, unless it is here and whole; `progress` is told the bytes done and all.
    ///
    /// # Errors
    /// Nothing new stays: half-done blobs are taken back, and what only this pull held is collected.
    pub async fn pull(
        &self,
        image: &ImageRef,
        registries: &Registries,
        limits: Limits,
        progress: impl FnMut(u64, u64),
    ) -> Result<Pulled, PullError> {
        let mut link = self.link().await?;
        if let Some(whole) = link.whole(image).await? {
            let (platform_digest, config_digest) = (whole.manifest, whole.config);
            return Ok(Pulled {
                image: image.clone(),
                platform_digest,
                config_digest,
                bytes: 0,
            });
        }
        let session = Session::open(registries, &image.repository, limits)?;
        let lease = link.lease(limits.overall + LEASE_SPARE).await?;
        link.lease = Some(lease.clone());
        let mut pull = Pull {
            link: &link,
            session: &session,
            progress,
            done: 0,
            total: 0,
        };
        let late = |_| PullError::Overall {
            registry: image.repository.registry().to_owned(),
            limit: limits.overall,
        };
        let pulled = tokio::time::timeout(limits.overall, pull.all(image))
            .await
            .map_err(late)
            .flatten();
        link.lease = None;
        let swept = link.sweep().await;
        match (pulled, swept) {
            (Err(error), swept) => {
                if let Err(left) = swept {
                    tracing::warn!(error = %left, "a failed pull left something behind");
                }
                Err(error)
            }
            (Ok(_), Err(error)) => Err(error.into()),
            (Ok(pulled), Ok(())) => {
                self.sync().await?;
                Ok(pulled)
            }
        }
    }
}

struct Pull<'a, P> {
    link: &'a Link,
    session: &'a Session,
    progress: P,
    done: u64,
    total: u64,
}

impl<P: FnMut(u64, u64)> Pull<'_, P> {
    async fn all(&mut self, image: &ImageRef) -> Result<Pulled, PullError> {
        let described = self
            .session
            .describe(&Select::Digest(image.digest.clone()), &Platform::here())
            .await?;
        let documents = [
            Some(&described.config),
            Some(&described.manifest),
            described.index.as_ref(),
        ];
        let documents = documents.into_iter().flatten();
        let sizes = described
            .layers
            .iter()
            .chain(documents.clone().map(|blob| &blob.descriptor));
        self.total = sizes.map(|blob| blob.size).sum();
        let mut bytes: u64 = documents.clone().map(|blob| blob.descriptor.size).sum();
        for layer in &described.layers {
            bytes += self.layer(layer).await?;
        }
        for blob in documents {
            write::whole(self.link, &blob.descriptor, &blob.bytes).await?;
            self.advance(blob.descriptor.size);
        }
        self.unpack(&described).await?;
        self.bind(&described).await?;
        self.name(image, described.root()).await?;
        let (platform_digest, config_digest) =
            (described.manifest.descriptor.digest, described.config.descriptor.digest);
        Ok(Pulled {
            image: image.clone(),
            platform_digest,
            config_digest,
            bytes,
        })
    }

    fn advance(&mut self, by: u64) {
        self.done += by;
        (self.progress)(self.done, self.total);
    }

    /// Brings a layer into the content store; gives the bytes that came.
    async fn layer(&mut self, layer: &Descriptor) -> Result<u64, PullError> {
        let Some(mut writer) = write::Writer::open(self.link, layer).await? else {
            self.hold("content", &layer.digest).await?;
            self.advance(layer.size);
            return Ok(0);
        };
        let start = writer.offset();
        self.advance(start);
        let mut blob = self.session.blob(layer, start, "get a layer");
        while let Some(bytes) = blob.next().await? {
            writer.write(&bytes).await?;
            self.advance(bytes.len() as u64);
        }
        writer.commit().await?;
        Ok(layer.size - start)
    }

    /// What is here already is held as well, or the collector could take it meanwhile.
    async fn hold(&self, kind: &str, id: &Digest) -> Result<(), ContainerdError> {
        let resource = Some(Resource {
            id: id.to_string(),
            r#type: kind.to_owned(),
        });
        let request = AddResourceRequest {
            id: self.link.lease.clone().unwrap_or_default(),
            resource,
        };
        let answer = LeasesClient::new(self.link.client.channel())
            .add_resource(self.link.call(request))
            .await;
        created(answer).map_err(refused("hold what is here already"))?;
        Ok(())
    }

    async fn unpack(&self, described: &Described) -> Result<(), PullError> {
        let chain = chain_ids(&described.diff_ids);
        let mut parent = String::new();
        for ((layer, diff_id), name) in described.layers.iter().zip(&described.diff_ids).zip(&chain) {
            if self.link.has_snapshot(name).await? {
                self.hold(&format!("snapshots/{SNAPSHOTTER}"), name).await?;
            } else {
                let key = format!("extract-{} {name}", nanoseconds());
                let done = self.layer_applied(layer, diff_id, &key, &parent, name).await;
                if done.is_err() {
                    self.drop_snapshot(&key).await;
                }
                done?;
            }
            parent = name.to_string();
        }
        Ok(())
    }

    async fn layer_applied(
        &self,
        layer: &Descriptor,
        diff_id: &Digest,
        key: &str,
        parent: &str,
        name: &Digest,
    ) -> Result<(), PullError> {
        let mut snapshots = SnapshotsClient::new(self.link.client.channel());
        let snapshotter = SNAPSHOTTER.to_owned();
        let prepare = PrepareSnapshotRequest {
            snapshotter: snapshotter.clone(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels: HashMap::new(),
        };
        let mounts = snapshots
            .prepare(self.link.call(prepare))
            .await
            .map_err(refused("prepare a snapshot"))?;
        let apply = ApplyRequest {
            diff: Some(descriptor(layer)),
            mounts: mounts.into_inner().mounts,
            payloads: HashMap::new(),
            sync_fs: true,
        };
        let applied = self
            .link
            .client
            .diff()
            .apply(self.link.long(apply))
            .await
            .map_err(refused("unpack a layer"))?;
        let got = applied
            .into_inner()
            .applied
            .map(|applied| applied.digest)
            .unwrap_or_default();
        if got != diff_id.as_str() {
            let what = format!("{} unpacks to {got}, not to {diff_id}", layer.digest);
            return Err(ContainerdError::wrong("unpack a layer", what).into());
        }
        let commit = CommitSnapshotRequest {
            snapshotter,
            name: name.to_string(),
            key: key.to_owned(),
            labels: HashMap::new(),
        };
        if created(snapshots.commit(self.link.call(commit)).await)
            .map_err(refused("keep a snapshot"))?
            .is_none()
        {
            self.drop_snapshot(key).await; // somebody was faster
        }
        Ok(())
    }

    async fn drop_snapshot(&self, key: &str) {
        let request = RemoveSnapshotRequest {
            snapshotter: SNAPSHOTTER.to_owned(),
            key: key.to_owned(),
        };
        let removed = SnapshotsClient::new(self.link.client.channel())
            .remove(self.link.call(request))
            .await;
        if let Err(status) = found(removed) {
            tracing::warn!(
                error = status.message(),
                "a half-unpacked snapshot is left to containerd's collector"
            );
        }
    }

    /// Labels the content, so that the image holds all of it: the collector follows them.
    async fn bind(&self, described: &Described) -> Result<(), PullError> {
        let top = chain_ids(&described.diff_ids)
            .pop()
            .map(|chain| chain.to_string())
            .unwrap_or_default();
        let config = label(&format!("containerd.io/gc.ref.snapshot.{SNAPSHOTTER}"), &top);
        self.label(&described.config.descriptor.digest, config).await?;
        let mut manifest = label(
            "containerd.io/gc.ref.content.config",
            described.config.descriptor.digest.as_str(),
        );
        for (at, layer) in described.layers.iter().enumerate() {
            manifest.insert(format!("containerd.io/gc.ref.content.l.{at}"), layer.digest.to_string());
        }
        self.label(&described.manifest.descriptor.digest, manifest).await?;
        if let Some(index) = &described.index {
            let chosen = label(
                "containerd.io/gc.ref.content.m.0",
                described.manifest.descriptor.digest.as_str(),
            );
            self.label(&index.descriptor.digest, chosen).await?;
        }
        Ok(())
    }

    async fn label(&self, digest: &Digest, labels: HashMap<String, String>) -> Result<(), ContainerdError> {
        let paths = labels.keys().map(|key| format!("labels.{key}")).collect();
        let info = Info {
            digest: digest.to_string(),
            labels,
            ..Info::default()
        };
        let request = UpdateRequest {
            info: Some(info),
            update_mask: Some(prost_types::FieldMask { paths }),
        };
        let answer = self.link.client.content().update(self.link.call(request)).await;
        answer.map_err(refused("label content"))?;
        Ok(())
    }

    /// Names the image. One that others named keeps their labels: it is not an upgrade's to remove.
    async fn name(&self, image: &ImageRef, root: &Descriptor) -> Result<(), ContainerdError> {
        const STEP: &str = "name the image";
        let name = image.to_string();
        let mut images = self.link.client.images();
        let record = Image {
            labels: label(PULLED_AS, &name),
            name,
            target: Some(descriptor(root)),
            ..Image::default()
        };
        let create = CreateImageRequest {
            image: Some(record.clone()),
            source_date_epoch: None,
        };
        if created(images.create(self.link.call(create)).await)
            .map_err(refused(STEP))?
            .is_some()
        {
            return Ok(());
        }
        let mask = prost_types::FieldMask {
            paths: vec!["target".to_owned()],
        };
        let update = UpdateImageRequest {
            image: Some(record),
            update_mask: Some(mask),
            source_date_epoch: None,
        };
        images.update(self.link.call(update)).await.map_err(refused(STEP))?;
        Ok(())
    }
}

pub(super) fn descriptor(from: &Descriptor) -> types::Descriptor {
    types::Descriptor {
        media_type: from.media_type.clone(),
        digest: from.digest.to_string(),
        size: i64::try_from(from.size).unwrap_or(i64::MAX),
        annotations: HashMap::new(),
    }
}
