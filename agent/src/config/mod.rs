//! The agent's configuration: the file as written ([`File`]) and as meant ([`Settings`]).
//!
//! ```text
//! bytes ─▶ JSON ─▶ File ─▶ host's name, older keys ─▶ Settings
//!            │       └ a wrong type: its path          └ every mistake: key, what is wrong, what to write
//!            └ no JSON: line and column
//! ```
//!
//! Deliberately absent: texts that repeat a value, and defaults in two places.

mod amount;
mod auth;
mod decode;
mod duration;
mod error;
mod file;
mod fresh;
mod image;
mod legacy;
mod load;
mod meaning;
mod offline;
mod routing;
mod settings;
#[cfg(test)]
pub(crate) mod tests;
mod value;

use hostexec::HostPath;

pub use auth::is_bootstrap_token;
pub use auth::{
    Auth, BootstrapToken, Credential, Identity, KubeletAuth, PUBLIC_AUTHORITY, ServicePrincipal, authority_of,
};
pub use decode::Mistyped;
pub use error::{Error, Mistake, Mistakes};
pub use file::File;
pub use image::on_host;
pub use load::{Loaded, credential_at, exposed, guard, load, parse, read_credential};
pub use meaning::name_of_its_own;
pub use offline::{At, OfflineArchive, OfflineSource};
pub use routing::Routing;
pub use settings::{
    Access, ClusterId, Device, ImageGc, LogLevel, MachineClient, MachineOperations, Mount, MountPoint, Settings,
};

pub use value::{cluster_id, resource_manager};

/// Where the configuration lies unless `--config` says otherwise; the lifecycle hooks read it there always.
pub const PATH: HostPath = HostPath::fixed("/etc/aks-flex-node/config.json");
