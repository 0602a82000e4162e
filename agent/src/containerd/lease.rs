//! Leases, which keep what a pull brings until the image holds it; and taking back what a pull left.

use std::cell::Cell;
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
/// How long a sweep may take. A lease's end waits for containerd's collector, which may hang with its disk.
const SWEEP: Duration = Duration::from_secs(60);

impl Containerd {
    /// Takes back what pulls of dead processes left: half-done blobs, and what their leases hold.
    ///
    /// # Errors
    /// containerd can't be reached, refuses, or is not done within a minute; another sweep goes on.
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
        self.sweep_within(SWEEP).await
    }

    async fn sweep_within(&self, limit: Duration) -> Result<(), ContainerdError> {
        let step = Cell::new("take a pull back");
        let swept = tokio::time::timeout(limit, self.sweep_on(&step)).await;
        swept.unwrap_or_else(|_| {
            Err(ContainerdError::Late {
                step: step.get(),
                limit,
            })
        })
    }

    async fn sweep_on(&self, step: &Cell<&'static str>) -> Result<(), ContainerdError> {
        let mut tries = 0;
        loop {
            // A writer that was just let go may hold its blob for a moment.
            let aborted = self.abort_blobs(step).await;
            match (aborted, self.end_leases(step).await) {
                (Ok(()), ended) => return ended,
                (Err(error), _) if tries == SWEEPS.0 => return Err(error),
                (Err(error), _) => tracing::debug!(%error, "a half-done blob can't be taken back yet"),
            }
            tries += 1;
            tokio::time::sleep(SWEEPS.1).await;
        }
    }

    async fn abort_blobs(&self, step: &Cell<&'static str>) -> Result<(), ContainerdError> {
        step.set("list half-done blobs");
        let mut content = self.client.content();
        let request = ListStatusesRequest { filters: Vec::new() };
        let answer = content
            .list_statuses(self.call(request))
            .await
            .map_err(refused(step.get()))?;
        step.set("take a half-done blob back");
        for status in answer
            .into_inner()
            .statuses
            .into_iter()
            .filter(|status| status.r#ref.starts_with(REF))
        {
            let request = AbortRequest { r#ref: status.r#ref };
            found(content.abort(self.call(request)).await).map_err(refused(step.get()))?;
        }
        Ok(())
    }

    async fn end_leases(&self, step: &Cell<&'static str>) -> Result<(), ContainerdError> {
        step.set("list leases");
        let mut leases = LeasesClient::new(self.client.channel());
        let request = ListRequest {
            filters: vec![format!("labels.\"{}\"=={}", PULL.0, PULL.1)],
        };
        let answer = leases.list(self.call(request)).await.map_err(refused(step.get()))?;
        step.set("end a lease");
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
            found(leases.delete(self.long(request)).await).map_err(refused(step.get()))?;
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

#[cfg(test)]
mod tests {
    use hostexec::Host;

    use super::*;

    #[tokio::test]
    async fn fc_u27_a_containerd_that_answers_nothing_does_not_hold_a_sweep_for_ever() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("run/containerd")).unwrap();
        let listener = tokio::net::UnixListener::bind(dir.path().join("run/containerd/containerd.sock")).unwrap();
        let silent = async {
            let mut open = Vec::new();
            loop {
                open.push(listener.accept().await.unwrap());
            }
        };
        let containerd = Containerd::connect(&Host::rooted(dir.path()));
        let limit = Duration::from_secs(1);
        let error = tokio::select! {
            swept = async { containerd.link().await.unwrap().sweep_within(limit).await } => swept.unwrap_err(),
            () = silent => unreachable!(),
        };
        assert_eq!(
            error.to_string(),
            "containerd: list half-done blobs: no answer within 1 s"
        );
    }
}
