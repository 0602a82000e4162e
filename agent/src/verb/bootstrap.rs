//! `bootstrap`: inputs to configuration, then `start`, then the inputs go.
//!
//! A crash at any point leaves the inputs, or a node that has joined: the next run does it all again, to the same end.

use std::{io, os::unix::fs::MetadataExt};

use hostexec::{Host, HostPath};

use super::{Surroundings, start};
use crate::{
    bootstrap::{self, Error, INPUTS, Inputs, Key},
    config,
    exit::{Exit, Failure},
};

/// Makes the configuration, joins the host, and removes the inputs, whose secrets are needed no more.
///
/// # Errors
/// The inputs stay where they are.
pub async fn bootstrap(here: &Surroundings, options: impl IntoIterator<Item = (Key, String)>) -> Result<Exit, Failure> {
    let settings = configure(here, options)?;
    here.log.set_level(settings.log_level());
    here.log.add_file(&here.host, settings.log_dir());
    let exit = start::join(here, &settings).await?;
    here.host
        .remove(&INPUTS)
        .map_err(failed("remove the bootstrap's inputs"))?;
    tracing::info!("the host has joined, and the bootstrap's inputs are removed");
    Ok(exit)
}

/// Writes the configuration that the inputs make, once it is known to work.
fn configure(
    here: &Surroundings,
    options: impl IntoIterator<Item = (Key, String)>,
) -> Result<config::Settings, Failure> {
    let host = &here.host;
    let inputs = read(host)?.with(options);
    for key in inputs.without_effect() {
        tracing::warn!(key = key.name(), "without effect where the agent runs from its image");
    }
    for (key, path) in bootstrap::protected_files(&inputs) {
        protected(host, &named(key, path)?, key)?;
    }
    let base = inputs.base().map(|path| {
        let path = named(Key::BaseConfigFile, path)?;
        host.read(&path).map_err(failed("read the base configuration"))
    });
    let name = host.host_name().map_err(failed("read the host's name"))?;
    let bytes = bootstrap::render(&inputs, base.transpose()?.as_deref(), here.mode, &name)?;
    let made = config::parse(&bytes, &config::PATH, &name).map_err(Error::Made)?;
    for key in &made.unknown {
        tracing::debug!(key, "the configuration has a key that this release does not know");
    }
    made.settings.startable().map_err(Failure::Unfit)?;
    if let Some(dir) = config::PATH.parent() {
        host.create_dir(&dir, 0o755)
            .map_err(failed("make the configuration's folder"))?;
    }
    host.write_if_changed(&config::PATH, &bytes, 0o600)
        .map_err(failed("write the configuration"))?;
    Ok(made.settings)
}

fn read(host: &Host) -> Result<Inputs, Error> {
    match host.metadata(&INPUTS) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(Error::NoInputs),
        Err(source) => {
            return Err(Error::Host {
                what: "look at the bootstrap's inputs",
                source,
            });
        }
        Ok(found) if exposed(&found) => return Err(Error::Exposed { path: INPUTS }),
        Ok(_) => {}
    }
    let bytes = host.read(&INPUTS).map_err(failed("read the bootstrap's inputs"))?;
    Inputs::parse(&bytes)
}

fn named(key: Key, path: &str) -> Result<HostPath, Error> {
    HostPath::new(path)
        .map_err(|_| Error::mistake(key.name(), "is not a plain path of the host", "write an absolute one"))
}

/// A file with a secret is there, and nobody else's.
fn protected(host: &Host, path: &HostPath, key: Key) -> Result<(), Error> {
    let mistake = |wrong, write| Err(Error::mistake(key.name(), wrong, write));
    match host.metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => mistake(
            "names a file that the host does not have",
            "write the file, or another path",
        ),
        Err(source) => Err(Error::Host {
            what: "look at a file that the bootstrap's inputs name",
            source,
        }),
        Ok(found) if !found.is_file() => mistake("names no regular file", "write another path"),
        Ok(found) if exposed(&found) => mistake(
            "names a file that others than root can read or change",
            "make it root's own, with mode 0600",
        ),
        Ok(_) => Ok(()),
    }
}

fn exposed(found: &std::fs::Metadata) -> bool {
    found.mode() & 0o077 != 0 || found.uid() != nix::unistd::geteuid().as_raw()
}

fn failed(what: &'static str) -> impl Fn(io::Error) -> Error {
    move |source| Error::Host { what, source }
}
