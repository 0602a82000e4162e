//! A first boot's inputs made into the configuration: grammar, variables, layers. Pure; `verb::bootstrap` does the rest.
//!
//! ```text
//! bootstrap.env ─▶ grammar ──▶ Inputs ─┐
//! options ─────────────────────────────┼─▶ render ─▶ config.json's bytes ─▶ config::parse, before they are written
//! base file, what Azure says ──────────┘
//! ```
//!
//! Deliberately absent: the process' environment. What the image sets there is no input.

mod error;
mod fetched;
mod inputs;
mod key;
mod render;

use hostexec::HostPath;

pub use butane::env::Unreadable;
pub use error::Error;
pub use fetched::{Fetch, SOME_DATA, fetch, identified};
pub use inputs::Inputs;
pub use key::Key;
pub use render::{Below, protected_files, render};

/// The inputs, as Ignition or an operator writes them.
pub const INPUTS: HostPath = HostPath::fixed("/etc/aks-flex-node/bootstrap.env");

/// The agent in its image.
pub const INSTALLED_AGENT: &str = "/usr/bin/aks-flex-node";
