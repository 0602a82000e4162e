//! `upgrade.crash-matrix`, `upgrade.random-cuts`: whoever dies at whatever moment of an upgrade, the host ends with the old agent or the new
//! one, and the operation with one true end.
//!
//!     point × victim ─▶ observer (a thread: inotify, looks) ─strikes─▶ look: does all hold?
//!
//! Nothing in the product helps: points are seen from outside, by what is on the host's disk, in its control groups and in containerd's folder.

mod cuts;
mod look;
mod matrix;
mod observer;
mod point;
mod series;
mod setting;
mod victim;

pub(super) use cuts::fc_p1_fc_u14_random_cuts;
pub(super) use matrix::fc_u14_fc_u16_fc_u22_fc_r17_fc_c3_matrix;
