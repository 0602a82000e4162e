//! Preflight: whether a host can become a node, told before anything is changed. Pure.
//!
//! ```text
//!  what was seen ─judge─▶ Findings ─▶ Report ─┬─▶ text
//!                                             └─▶ JSON
//! ```
//!
//! A finding that isn't good carries a [`Remedy`]: there is no other way to make one. Texts are ours and numbers the host's: no URL,
//! token or image of the configuration is among them. Deliberately absent: a look at anything, which is the room `look`'s.

mod check;
mod finding;
pub mod judge;
mod report;

pub use check::{Check, UnknownCheck};
pub use finding::{Finding, Remedy, Seen, Unseen, Verdict};
pub use report::{Ignored, Report, Status, Strictness};

#[cfg(test)]
mod tests;
