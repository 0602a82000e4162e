//! A pull: registry ▸ content ▸ snapshots ▸ image, under a lease.
//!
//! ```text
//! lease ─▶ describe ─▶ blobs (resumed where a dead pull stopped) ─▶ layers unpacked, diff ids compared
//!       ─▶ labels that hold it together ─▶ image ─▶ lease ends
//! ```
//!
//! What may pass is tried again from the start, which takes up what is here. A pull that fails takes its half-done blobs
//! back and ends its lease, so nothing of it stays; one whose process dies is taken up by the next, or by a sweep, and its
//! lease ends by itself. What is here already is hashed before it is trusted, and brought anew in place where it is
//! damaged: the image keeps its name, as something may still run from what was unpacked.

use std::collections::{BTreeSet, HashMap};
use std::time::Duration;

use containerd_client::services::v1::{CreateImageRequest, Image, Info, UpdateImageRequest, UpdateRequest};
use containerd_client::types;
use image::oci::{Descriptor, Platform};
use image::{Digest, ImageRef, Select};
use tokio::time::{Instant, sleep, timeout_at};

use super::error::{PullError, Why};
use super::images::{PULLED_AS, SNAPSHOTTER, STATE, chain_ids, label};
use super::lease::nanoseconds;
use super::link::{Containerd, ContainerdError, Link, created, refused};
use super::registries::Registries;
use super::registry::{Described, Limits, Session};
use super::room::{Disk, Need};
use super::write;
use crate::model::chain;

/// How long a lease outlives the limit of its pull, if nobody ends it.
const LEASE_SPARE: Duration = Duration::from_secs(600);

const LAYER: &str = "get a layer";
/// Pauses before what may pass is tried again. Of a pull: 15 s in all, so that a registry that refuses every connection has failed well
/// within a minute. Half as much again at most is added by chance: many nodes may pull at once.
pub const PAUSES: [Duration; 4] = [
    Duration::from_secs(1),
    Duration::from_secs(2),
    Duration::from_secs(4),
    Duration::from_secs(8),
];

/// What a pull brought, or found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pulled {
    /// The image, under its name.
    pub image: ImageRef,
    /// The manifest for this host: the image's digest itself, or one that its index names.
    pub platform_digest: Digest,
    /// Its config: what Docker calls the image's id.
    pub config_digest: Digest,
    /// Bytes that came over the wire in the last attempt.
    pub bytes: u64,
    /// How often it was begun.
    pub attempts: u32,
}

/// What a pull tells on its way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// How far it is.
    Bytes {
        /// Bytes that are here.
        done: u64,
        /// All that the image has.
        all: u64,
    },
    /// Something failed that may pass, and it is begun anew. What is here stays.
    Again {
        /// The how-manieth attempt begins, from 2.
        attempt: u32,
        /// What failed.
        why: String,
    },
}

impl Containerd {
    /// Pulls an image, unless it is here and whole down to its bytes.
    ///
    /// # Errors
    /// Nothing new stays: half-done blobs are taken back, and what only this pull held is collected. What failed and may
    /// pass was tried again, within the limit for all of it.
    pub async fn pull(
        &self,
        image: &ImageRef,
        registries: &Registries,
        limits: Limits,
        mut progress: impl FnMut(Progress),
    ) -> Result<Pulled, PullError> {
        let deadline = Instant::now() + limits.overall;
        let mut pauses = PAUSES.into_iter();
        let mut attempt = 1;
        let mut kept = Kept::default();
        let mut last = None;
        let pulled = loop {
            let trying = self.attempt(image, registries, limits, &mut kept, &mut progress);
            let error = match timeout_at(deadline, trying).await {
                Ok(Ok(pulled)) => {
                    break Ok(Pulled {
                        attempts: attempt,
                        ..pulled
                    });
                }
                Ok(Err(error)) => error,
                Err(_) => {
                    break Err(PullError::Overall {
                        registry: image.repository.registry().to_owned(),
                        limit: limits.overall,
                        last: last.map(Box::new),
                    });
                }
            };
            let pause = pauses.next().map(jittered);
            let Some(pause) = pause.filter(|pause| error.may_pass() && Instant::now() + *pause < deadline) else {
                break Err(error);
            };
            attempt += 1;
            let why = chain(&error);
            tracing::warn!(why, attempt, ?pause, "a pull is begun anew");
            progress(Progress::Again { attempt, why });
            last = Some(error);
            sleep(pause).await;
        };
        if kept.lease.is_none() {
            return pulled;
        }
        match (pulled, self.sweep_pulls().await) {
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

    async fn attempt(
        &self,
        image: &ImageRef,
        registries: &Registries,
        limits: Limits,
        kept: &mut Kept,
        progress: impl FnMut(Progress),
    ) -> Result<Pulled, PullError> {
        let mut link = self.link().await?;
        if let Some(whole) = link.whole(image).await? {
            if link.sound(&whole.layers).await? {
                return Ok(Pulled {
                    image: image.clone(),
                    platform_digest: whole.manifest,
                    config_digest: whole.config,
                    bytes: 0,
                    attempts: 0,
                });
            }
            tracing::warn!(%image, "the image is here and damaged: it is pulled anew");
        }
        // A new one each time: no token, and no verdict on a mirror, outlives an attempt.
        let session = Session::open(registries, &image.repository, limits)?;
        if kept.lease.is_none() {
            kept.lease = Some(link.lease(limits.overall + LEASE_SPARE).await?);
        }
        link.lease.clone_from(&kept.lease);
        let mut pull = Pull {
            containerd: self,
            link: &link,
            session: &session,
            progress,
            done: 0,
            total: 0,
            damaged: &mut kept.damaged,
        };
        pull.all(image).await
    }
}

/// Up to half as much again.
fn jittered(pause: Duration) -> Duration {
    let chance = u32::try_from(nanoseconds() / 1000 % 500).unwrap_or_default();
    pause + pause * chance / 1000
}

/// What outlives an attempt.
#[derive(Default)]
struct Kept {
    lease: Option<String>,
    /// Blobs that were here and were not what their digests say.
    damaged: BTreeSet<Digest>,
}

struct Pull<'a, P> {
    containerd: &'a Containerd,
    link: &'a Link,
    session: &'a Session,
    progress: P,
    done: u64,
    total: u64,
    damaged: &'a mut BTreeSet<Digest>,
}

impl<P: FnMut(Progress)> Pull<'_, P> {
    async fn all(&mut self, image: &ImageRef) -> Result<Pulled, PullError> {
        let described = self
            .session
            .describe(&Select::Digest(image.digest.clone()), &Platform::here())
            .await?;
        self.room(&described).await?;
        self.total = described.blobs().map(|blob| blob.size).sum();
        let mut bytes: u64 = described.documents().map(|blob| blob.descriptor.size).sum();
        for layer in &described.layers {
            bytes += self.layer(layer).await?;
        }
        for blob in described.documents() {
            while !write::whole(self.link, &blob.descriptor, &blob.bytes).await?
                && !self.sound(&blob.descriptor).await?
            {}
            self.advance(blob.descriptor.size);
        }
        if !self.damaged.is_empty() {
            self.link.drop_snapshots(&described).await;
        }
        self.link.unpack(&described).await?;
        self.bind(&described).await?;
        self.name(image, described.root()).await?;
        let (platform_digest, config_digest) =
            (described.manifest.descriptor.digest, described.config.descriptor.digest);
        Ok(Pulled {
            image: image.clone(),
            platform_digest,
            config_digest,
            bytes,
            attempts: 0,
        })
    }

    /// Refuses an image that has no room, before any of it comes.
    async fn room(&self, described: &Described) -> Result<(), PullError> {
        let mut need = Need::default();
        for blob in described.blobs() {
            if !self.link.has(blob).await? {
                need.blob(blob);
            }
        }
        for (layer, name) in described.layers.iter().zip(chain_ids(&described.diff_ids)) {
            if !self.link.has_snapshot(&name).await? {
                need.unpacked(layer);
            }
        }
        let found = self.containerd.host.open_dir(&STATE).and_then(|folder| {
            let found = nix::sys::statvfs::statvfs(folder.path())?;
            Ok(Disk::from(found))
        });
        match found {
            Ok(disk) => need
                .fits(disk)
                .map_err(|source| PullError::NoRoom { folder: STATE, source }),
            // It is kept elsewhere: the disk itself will say when it is full.
            Err(error) => {
                tracing::debug!(%error, "how full containerd's disk is, is not known");
                Ok(())
            }
        }
    }

    fn advance(&mut self, by: u64) {
        self.done += by;
        (self.progress)(Progress::Bytes {
            done: self.done,
            all: self.total,
        });
    }

    /// Brings a layer into the content store; gives the bytes that came.
    async fn layer(&mut self, layer: &Descriptor) -> Result<u64, PullError> {
        let before = self.done;
        let mut came = 0;
        loop {
            self.done = before;
            let Some(mut writer) = write::Writer::open(self.link, layer).await? else {
                if self.sound(layer).await? {
                    self.advance(layer.size);
                    return Ok(came);
                }
                continue;
            };
            let start = writer.offset();
            self.advance(start);
            let mut blob = self.session.blob(layer, start, LAYER);
            while let Some(bytes) = blob.next().await? {
                writer.write(&bytes).await?;
                came += bytes.len() as u64;
                self.advance(bytes.len() as u64);
            }
            match writer.commit().await? {
                write::Committed::Whole => return Ok(came),
                // What lay there from before a crash may be the damaged part.
                write::Committed::Mismatch if start > 0 => {
                    tracing::warn!(layer = %layer.digest, "what an earlier pull left of a layer is damaged");
                    write::abort(self.link, layer).await?;
                }
                write::Committed::Mismatch => {
                    return Err(PullError::Registry {
                        registry: self.session.registry().to_owned(),
                        step: LAYER,
                        why: Why::Nonsense("its digest is not the one that was named"),
                    });
                }
            }
        }
    }

    /// Holds a blob that is here already, or the collector could take it meanwhile. One that is not what its digest says
    /// is taken away instead.
    async fn sound(&mut self, blob: &Descriptor) -> Result<bool, ContainerdError> {
        if self.link.sound([blob]).await? {
            self.link.hold("content", &blob.digest).await?;
            return Ok(true);
        }
        tracing::warn!(blob = %blob.digest, "content of the image is here and damaged: it is brought anew");
        if !self.damaged.insert(blob.digest.clone()) {
            let what = format!("{} is damaged, and what holds it is not ours", blob.digest);
            return Err(ContainerdError::wrong("bring damaged content anew", what));
        }
        self.link.purge(&blob.digest).await?;
        Ok(false)
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
