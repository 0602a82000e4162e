//! The one door to the host: its tools, its files, its links, its locks.
//!
//! ```text
//!            ┌ Tool (one table) ──┬─▶ Host::run      a tool, clean environment, time limit, one log line
//!  caller ─▶ Host                 └─▶ shim           the program `host-exec`: chroot or setns, then exec
//!            └ HostPath ─▶ Dir (openat2 below the host's root) ─▶ read, replace, link, lock, remove
//! ```
//!
//! Deliberately absent: a way to run what is not in the table, to follow a link out of the host's root, or to turn a
//! [`HostPath`] into a path of the container by joining text.

mod call;
mod clear;
mod dir;
mod environment;
mod file;
mod host;
mod lock;
mod name;
mod path;
mod replace;
pub mod shim;
mod tool;
mod tree;

#[cfg(test)]
mod again;

pub use call::{Call, Output, ToolError};
pub use clear::{Left, Stays};
pub use dir::Dir;
pub use file::{Emptied, Written};
pub use host::Host;
pub use lock::Lock;
pub use path::{HostPath, NotPlain};
pub use replace::Replacement;
pub use tool::{Tool, Way};
