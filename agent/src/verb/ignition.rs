//! `ignition`: renders the Ignition config of a folder of inputs. Runs where an operator works, not on a host.

use std::{
    io::{self, Write},
    path::Path,
};

use butane::Spec;

use super::Surroundings;
use crate::{
    bootstrap::{self, Below, Error, Fetch, Inputs},
    config,
    exit::{Exit, Failure},
    model::Mode,
};

/// Stands for the name that a host will have.
const SOME_HOST: &str = "host";

/// Prints the config, with an end of line.
///
/// # Errors
/// The inputs can't be read, or would go wrong at boot; nothing is printed then.
pub fn ignition(here: &Surroundings, dir: &Path, spec: Spec) -> Result<Exit, Failure> {
    let inputs = butane::Inputs::load(dir)?;
    judge(here, &inputs)?;
    let config = butane::render(&inputs, spec)?;
    // Printed with its keys in the order in which they were rendered: the same inputs, the same bytes.
    let printed = writeln!(io::stdout(), "{config:#}");
    printed.map_err(|source| Failure::Host {
        what: "print the Ignition config",
        source,
    })?;
    Ok(Exit::Done)
}

/// Makes the configuration that the bootstrap would make on a host: what can never work is said here, and not by a thousand hosts.
/// Files that the inputs name and Ignition doesn't bring are not looked for.
fn judge(here: &Surroundings, inputs: &butane::Inputs) -> Result<(), Failure> {
    let bootstrap = Inputs::parse(inputs.bootstrap())?;
    if bootstrap.base().is_some() && inputs.base_config().is_none() {
        return Ok(());
    }
    let fetch = bootstrap::fetch(&bootstrap)?;
    let below = Below {
        base: inputs.base_config(),
        fetched: match fetch {
            Fetch::Yes => Some(bootstrap::SOME_DATA),
            Fetch::No => None,
        },
    };
    let bytes = bootstrap::render(&bootstrap, below, Mode::Container, SOME_HOST)?;
    let made = config::parse(&bytes, &config::PATH, SOME_HOST).map_err(Error::Made)?;
    if fetch == Fetch::Yes {
        bootstrap::identified(&made.settings)?;
    }
    for key in &made.unknown {
        tracing::warn!(key, "the configuration has a key that this release does not know");
    }
    here.tell(&made);
    made.settings.startable().map_err(Failure::Unfit)
}
