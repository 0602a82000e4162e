//! The node agent of aks-flex-node: a small pure core decides, a thin edge acts.
//!
//! The modules stand in the order of the rooms; a room imports only from rooms named before it (`tests/rooms.rs`).

pub mod model;

pub mod config;

pub mod bootstrap;
pub mod facts;
pub mod ledger;
pub mod removal;
pub mod step;

pub mod offline;

pub mod plan;
pub mod preflight;

pub mod reset;
pub mod upgrade;

pub mod operation;
pub mod report;

pub mod observe;

pub mod store;

pub mod fetch;

pub mod containerd;

pub mod bundle;

pub mod apply;

pub mod remove;

pub mod azure;
pub mod cluster;

pub mod look;

pub mod exit;
pub mod log;

pub mod daemon;

pub mod verb;

pub mod cli;
