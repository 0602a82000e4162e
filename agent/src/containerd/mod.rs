//! The edge to images and to the host's containerd: registries, pulls, a check's container, leftovers.
//!
//! The agent pulls itself (registry ▸ content ▸ snapshots, under a lease): that works on every containerd since 1.6, and
//! limits, progress and credentials stay in its hands (design D3). Only the namespace `aks-flex-node` is touched.

mod artifact;
mod ask;
mod blob;
mod container;
mod error;
mod images;
mod lease;
mod link;
mod pull;
mod registries;
mod registry;
mod room;
mod rootfs;
mod run;
mod shim;
mod spec;
mod unpack;
mod write;

pub use artifact::{Artifact, artifact, blob};
pub use error::{PullError, Why};
pub use images::{LocalImage, Origin};
pub use link::{Containerd, ContainerdError};
pub use pull::{PAUSES, Progress, Pulled};
pub use registries::{Registries, RegistriesError, host_certificates};
pub use registry::Limits;
pub use room::{NoRoom, Of};
pub use rootfs::{Unpacked, resolve_image, unpack_image};
pub use run::{CHECK, CheckError, Output};
pub use spec::View;
