//! The agent's systemd units and the two files of a machine, rendered from typed values.
//!
//! ```text
//! files/*.service.in ─┐
//! files/<line>.in ────┼─ fill ─▶ Unit { name, text } ─▶ Ignition (bootstrap, reset) or the agent (the others)
//! typed values ───────┘
//! ```
//!
//! The templates are whole unit files; what all of them do alike is a line or a few in a file of its own (`run.in`,
//! `clean.in`). Rendering is pure: writing, reloading and starting are the agent's.

mod service;
mod template;

pub mod host;
pub mod line;
pub mod machine;
pub mod name;
pub mod unit;

pub use service::{NotAService, ServiceName};
pub use unit::{
    AgentUnit, Unit, agent, agent_recovery, bootstrap, nspawn_post_start, nspawn_pre_start, reset, written_by_agent,
};
