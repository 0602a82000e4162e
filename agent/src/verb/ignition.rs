//! `ignition`: renders the Ignition config of a folder of inputs. Runs where an operator works, not on a host.

use std::{
    io::{self, Write},
    path::Path,
};

use butane::{Inputs, Spec};

use crate::exit::{Exit, Failure};

/// Prints the config, with an end of line.
///
/// # Errors
/// The inputs can't be read, or would go wrong at boot; nothing is printed then.
pub fn ignition(dir: &Path, spec: Spec) -> Result<Exit, Failure> {
    let config = butane::render(&Inputs::load(dir)?, spec)?;
    // Printed with its keys in the order in which they were rendered: the same inputs, the same bytes.
    let printed = writeln!(io::stdout(), "{config:#}");
    printed.map_err(|source| Failure::Host {
        what: "print the Ignition config",
        source,
    })?;
    Ok(Exit::Done)
}
