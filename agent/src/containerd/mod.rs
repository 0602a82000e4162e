//! The edge to images and to the host's containerd: registries, pulls, a check's container, leftovers.
//!
//! The agent pulls itself (registry ▸ content ▸ snapshots, under a lease): that works on every containerd since 1.6, and
//! limits, progress and credentials stay in its hands (design D3). Only the namespace `aks-flex-node` is touched.

mod registries;
mod registry;
mod rootfs;

pub use registries::{Registries, RegistriesError, host_certificates};
pub use registry::{Limits, PullError, Why};
pub use rootfs::{Unpacked, unpack_image};

/// Why containerd did not do its part.
#[derive(Debug, thiserror::Error)]
pub enum ContainerdError {
    /// It answered with an error.
    #[error("containerd: {step}: {what}")]
    Refused {
        /// What it was asked for.
        step: &'static str,
        /// Its answer.
        what: String,
    },
}
