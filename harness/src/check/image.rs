//! `image.*`: that the agent's image depends on nothing but what it is made of.

use anyhow::Result;

use super::context::Depth;
use super::{Check, Context, check};
use crate::agent_image::{Profile, Twice, reproducible};

// The image itself may have to be built first.
pub(super) const CHECKS: [Check; 1] = [check!("image.reproducible", Hosts, 900, same_digest)];

/// Two images of the same inputs are the same bytes; at full depth the programs are built twice too, in two folders.
async fn same_digest(context: &Context) -> Result<()> {
    let twice = match context.depth {
        Depth::Short => Twice::Assembled,
        Depth::Full => Twice::Built,
    };
    reproducible(Profile::of_environment()?, twice).await
}
