//! What the agent keeps on the host between two starts: each file has one owner here, and is replaced whole.

mod aside;
pub mod credentials;
pub mod failures;
pub mod inputs;
pub mod journal;
pub mod ledger;
pub mod reset;
pub mod selection;
pub mod state;
