//! The nouns of the agent. Parsing is the only thing here that fails; inside, a value can't be wrong.

mod arch;
mod chain;
mod machine;
mod mode;
mod node;
mod secret;
mod state;

pub use arch::{Arch, UnknownArch};
pub use chain::chain;
pub use machine::{MachineName, UnknownMachine};
pub use mode::Mode;
pub use node::{BadNodeName, NodeName};
pub use secret::Secret;
pub use state::State;
