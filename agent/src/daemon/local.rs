//! What a start of the daemon does before it needs anybody but its host: it says to the journal what it is, and brings
//! units and the machine's program up to itself (node-agent specification 6.1).

use hostexec::Host;
use image::ImageRef;
use tracing::{error, warn};
use units::AgentUnit;

use super::{candidate, reset, switch};
use crate::apply::{self, Context};
use crate::model::{MachineName, chain};
use crate::plan;
use crate::store::{journal, selection};
use crate::upgrade::{Event, Standing};

/// What units and programs are brought up to this agent with.
pub(super) struct Local {
    /// The host.
    pub(super) host: Host,
    /// The values of the agent's unit.
    pub(super) unit: AgentUnit,
    /// The active machine.
    pub(super) machine: Option<MachineName>,
}

impl Local {
    /// Makes units and the machine's program those of this agent. A failure is logged: an agent with the units of the one
    /// before is better than none.
    pub(super) async fn converge(&self, standing: Standing) {
        if reset::is_under_way(&self.host) {
            return;
        }
        let upgrade = match standing {
            Standing::Settled => plan::Upgrade::None,
            Standing::Unjudged => plan::Upgrade::Pending,
        };
        let plan = plan::converge(&self.unit, self.machine, upgrade);
        // Made for the moment: it holds every certificate that the host trusts.
        let outcome = match Context::new(self.host.clone()) {
            Ok(context) => apply::run(&plan, &context).await.map_err(|error| chain(&error)),
            Err(error) => Err(chain(&error)),
        };
        if let Err(error) = outcome {
            error!(error, "units or the machine's program are not those of this agent");
        }
    }
}

/// Says to the journal that a daemon started, and as which image; gives the image back.
///
/// # Errors
/// When it can't be known which image this is, or the journal could not be written: it must be said again.
pub(super) async fn started(host: &Host) -> Result<ImageRef, String> {
    let running = match candidate::running(host).await {
        Ok(running) => running,
        Err(why) => {
            warn!(
                why,
                "containerd does not say which image this is; taking what the unit's files name"
            );
            selection::next(host).map_err(|error| error.to_string())?
        }
    };
    let event = Event::Started {
        running: running.clone(),
    };
    match switch::transition(host, event).await {
        Ok(_) => Ok(running),
        // The journal can't be read, whatever may be in it: the worker sees to that.
        Err(switch::Error::Journal(
            error @ (journal::Error::Empty
            | journal::Error::Torn
            | journal::Error::Foreign(_)
            | journal::Error::Future(_)),
        )) => {
            error!(%error, "an upgrade's journal can't be read");
            Ok(running)
        }
        Err(error) => Err(chain(&error)),
    }
}

/// What the journal says of this agent; of one that can't be read nothing is held against it.
#[must_use]
pub(super) fn standing(host: &Host) -> Standing {
    journal::load(host).map_or(Standing::Settled, |upgrade| upgrade.standing())
}
