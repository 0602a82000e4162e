//! Leases, which keep what a pull brings until the image holds it; and taking back what a pull left.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use containerd_client::services::v1::leases_client::LeasesClient;
use containerd_client::services::v1::{AbortRequest, CreateRequest, DeleteRequest, ListRequest, ListStatusesRequest};

use super::images::label;
use super::link::{Containerd, ContainerdError, Link, found, refused};
use super::write::REF;

/// On our leases.
const PULL: (&str, &str) = ("aks-flex-node/pull", "true");
/// Further tries of taking a pull back, and the pause between them.
const SWEEPS: (u32, Duration) = (20, Duration::from_millis(100));

impl Containerd {
    /// Takes back what pulls of dead processes left: half-done blobs, and what their leases hold.
    ///
    /// # Errors
    /// containerd can't be reached or refuses.
    pub async fn sweep_pulls(&self) -> Result<(), ContainerdError> {
        self.link().await?.sweep().await
    }
}

impl Link {
    /// A lease that ends by itself.
    pub(super) async fn lease(&self, lasts: Duration) -> Result<String, ContainerdError> {
        let ends = jiff::Timestamp::try_from(SystemTime::now() + lasts);
        let ends = ends.map_err(|_| ContainerdError::wrong("take a lease", "the clock is out of bounds"))?;
        let id = format!("aks-flex-node-pull-{}-{}", std::process::id(), nanoseconds());
        let mut labels = label("containerd.io/gc.expire", &ends.to_string());
        labels.insert(PULL.0.to_owned(), PULL.1.to_owned());
        let request = CreateRequest { id: id.clone(), labels };
        let answer = LeasesClient::new(self.client.channel())
            .create(self.call(request))
            .await;
        answer.map_err(refused("take a lease"))?;
        Ok(id)
    }

    /// Ends our leases and takes half-done blobs back. There is one pull at a time, so all of them are over.
    pub(super) async fn sweep(&self) -> Result<(), ContainerdError> {
        let mut tries = 0;
        loop {
            // A writer that was just let go may hold its blob for a moment.
            match futures::future::join(self.abort_blobs(), self.end_leases()).await {
                (Ok(()), ended) => return ended,
                (Err(error), _) if tries == SWEEPS.0 => return Err(error),
                (Err(error), _) => tracing::debug!(%error, "a half-done blob can't be taken back yet"),
            }
            tries += 1;
            tokio::time::sleep(SWEEPS.1).await;
        }
    }

    async fn abort_blobs(&self) -> Result<(), ContainerdError> {
        let mut content = self.client.content();
        let request = ListStatusesRequest { filters: Vec::new() };
        let answer = content
            .list_statuses(self.call(request))
            .await
            .map_err(refused("list half-done blobs"))?;
        for status in answer
            .into_inner()
            .statuses
            .into_iter()
            .filter(|status| status.r#ref.starts_with(REF))
        {
            let request = AbortRequest { r#ref: status.r#ref };
            found(content.abort(self.call(request)).await).map_err(refused("take a half-done blob back"))?;
        }
        Ok(())
    }

    async fn end_leases(&self) -> Result<(), ContainerdError> {
        let mut leases = LeasesClient::new(self.client.channel());
        let request = ListRequest {
            filters: vec![format!("labels.\"{}\"=={}", PULL.0, PULL.1)],
        };
        let answer = leases.list(self.call(request)).await.map_err(refused("list leases"))?;
        for lease in answer
            .into_inner()
            .leases
            .into_iter()
            .filter(|lease| lease.labels.contains_key(PULL.0))
        {
            let request = DeleteRequest {
                id: lease.id,
                sync: true,
            };
            found(leases.delete(self.long(request)).await).map_err(refused("end a lease"))?;
        }
        Ok(())
    }
}

/// Makes a name that no other has.
pub(super) fn nanoseconds() -> u128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos())
}
