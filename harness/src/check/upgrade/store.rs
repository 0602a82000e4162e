//! What containerd holds in the agent's namespace: what a failed pull must leave as it was.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};

use super::TIDY;
use crate::host::Host;
use crate::wait;

/// Everything that a pull makes, by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Store(BTreeSet<String>);

/// A line each: what it is, and its name.
const LIST: &str = r"
    c='ctr --namespace aks-flex-node'
    $c images list -q | sed 's/^/image /'
    $c content list -q | sed 's/^/content /'
    $c content active | sed 1d | sed 's/^/half-done /; s/[[:space:]]*$//'
    $c snapshots list | sed 1d | awk '{ print $3, $1 }'
    $c leases list -q | sed 's/^/lease /'";

impl Store {
    /// What there is now.
    ///
    /// # Errors
    /// ctr's.
    pub(super) async fn of(host: &Host) -> Result<Self> {
        Ok(Self(host.sh(LIST).await?.lines().map(str::to_owned).collect()))
    }

    /// Waits until it is as it was: the collector may take a moment.
    ///
    /// # Errors
    /// What there is more, or less.
    pub(super) async fn is_as_before(&self, host: &Host) -> Result<()> {
        let mut now = self.clone();
        let same = wait::until_true("containerd's store is as it was", TIDY, async || {
            now = Self::of(host).await?;
            Ok(now == *self)
        });
        same.await.with_context(|| {
            let more: Vec<_> = now.0.difference(&self.0).collect();
            let less: Vec<_> = self.0.difference(&now.0).collect();
            format!("more: {more:?}, less: {less:?}")
        })
    }

    /// Nothing of it is half done, and nothing is held that no image holds.
    ///
    /// # Errors
    /// What is.
    pub(super) fn is_tidy(&self) -> Result<()> {
        let left: Vec<_> = self
            .0
            .iter()
            .filter(|line| line.starts_with("half-done ") || line.starts_with("lease "))
            .collect();
        ensure!(left.is_empty(), "there is left {left:?}");
        Ok(())
    }
}
