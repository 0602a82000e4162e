//! Layers of the content store made into snapshots, which are held to the config's diff ids.

use std::collections::HashMap;

use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::snapshots::snapshots_client::SnapshotsClient;
use containerd_client::services::v1::snapshots::{
    CommitSnapshotRequest, PrepareSnapshotRequest, RemoveSnapshotRequest,
};
use containerd_client::services::v1::{AddResourceRequest, ApplyRequest, Resource};
use image::Digest;
use image::oci::Descriptor;

use super::images::{SNAPSHOTTER, chain_ids};
use super::lease::nanoseconds;
use super::link::{ContainerdError, Link, created, found, refused};
use super::pull::descriptor;
use super::registry::Described;

impl Link {
    /// What is here already is held as well, or the collector could take it meanwhile.
    pub(super) async fn hold(&self, kind: &str, id: &Digest) -> Result<(), ContainerdError> {
        let resource = Some(Resource {
            id: id.to_string(),
            r#type: kind.to_owned(),
        });
        let request = AddResourceRequest {
            id: self.lease.clone().unwrap_or_default(),
            resource,
        };
        let answer = LeasesClient::new(self.client.channel())
            .add_resource(self.call(request))
            .await;
        created(answer).map_err(refused("hold what is here already"))?;
        Ok(())
    }

    /// Unpacks what is not unpacked yet, each layer onto the one below.
    pub(super) async fn unpack(&self, described: &Described) -> Result<(), ContainerdError> {
        let chain = chain_ids(&described.diff_ids);
        let mut parent = String::new();
        for ((layer, diff_id), name) in described.layers.iter().zip(&described.diff_ids).zip(&chain) {
            if self.has_snapshot(name).await? {
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
    ) -> Result<(), ContainerdError> {
        let mut snapshots = SnapshotsClient::new(self.client.channel());
        let snapshotter = SNAPSHOTTER.to_owned();
        let prepare = PrepareSnapshotRequest {
            snapshotter: snapshotter.clone(),
            key: key.to_owned(),
            parent: parent.to_owned(),
            labels: HashMap::new(),
        };
        let mounts = snapshots
            .prepare(self.call(prepare))
            .await
            .map_err(refused("prepare a snapshot"))?;
        let apply = ApplyRequest {
            diff: Some(descriptor(layer)),
            mounts: mounts.into_inner().mounts,
            payloads: HashMap::new(),
            sync_fs: true,
        };
        let applied = self
            .client
            .diff()
            .apply(self.long(apply))
            .await
            .map_err(refused("unpack a layer"))?;
        let got = applied
            .into_inner()
            .applied
            .map(|applied| applied.digest)
            .unwrap_or_default();
        if got != diff_id.as_str() {
            let what = format!("{} unpacks to {got}, not to {diff_id}", layer.digest);
            return Err(ContainerdError::wrong("unpack a layer", what));
        }
        let commit = CommitSnapshotRequest {
            snapshotter,
            name: name.to_string(),
            key: key.to_owned(),
            labels: HashMap::new(),
        };
        if created(snapshots.commit(self.call(commit)).await)
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
        let removed = SnapshotsClient::new(self.client.channel())
            .remove(self.call(request))
            .await;
        if let Err(status) = found(removed) {
            tracing::warn!(
                error = status.message(),
                "a half-unpacked snapshot is left to containerd's collector"
            );
        }
    }

    /// Takes snapshots away that were made of damaged layers, the topmost first. Those that something runs on stay.
    pub(super) async fn drop_snapshots(&self, described: &Described) {
        for name in chain_ids(&described.diff_ids).iter().rev() {
            let request = RemoveSnapshotRequest {
                snapshotter: SNAPSHOTTER.to_owned(),
                key: name.to_string(),
            };
            let removed = SnapshotsClient::new(self.client.channel())
                .remove(self.call(request))
                .await;
            if let Err(status) = found(removed) {
                tracing::warn!(error = status.message(), "a snapshot of a damaged layer stays in use");
                return;
            }
        }
    }
}
