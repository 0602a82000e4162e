//! Plans: what must be made true for a host to become what the settings ask for. Pure.
//!
//! ```text
//!  Settings + Facts ─▶ Goal ─┬─▶ start      a host without a node gets one
//!                            ├─▶ lifecycle  a machine's settings follow its host's devices
//!                            └─▶ converge   units and programs follow the agent that runs
//!  Remains + Ledger ─▶ reset     all that is ours goes
//! ```
//!
//! Later issues add `repave` (the alternate machine takes over) and `root` (the binary install's folder) beside these.

mod containerd;
mod converge;
mod goal;
mod host;
mod images;
mod kubelet;
mod machine;
mod nspawn;
mod problems;
mod programs;
pub mod reset;
mod sources;
mod start;

use hostexec::HostPath;

pub use converge::{Upgrade, converge};
pub use goal::{Credential, Exec, Goal, Kubelet, Unfit};
pub use nspawn::lifecycle;
pub use programs::{Programs, Versions};
pub use sources::record;
pub use start::start;

/// A path below a fixed folder, by a name that is plain because it comes from a table or a parsed value.
fn join(folder: &HostPath, name: &str) -> HostPath {
    folder
        .join(name)
        .expect("names of tables and of parsed values are plain")
}

#[cfg(test)]
mod hostile;
#[cfg(test)]
mod tests;
