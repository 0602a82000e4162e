//! Reads the configuration from the host.

use std::{fs::Metadata, io, os::unix::fs::MetadataExt};

use hostexec::{Host, HostPath};
use serde_json::Value;
use tracing::warn;

use super::{Error, File, Settings, decode};

/// A configuration, and the keys of its file that this release doesn't know.
#[derive(Debug)]
pub struct Loaded {
    /// The configuration.
    pub settings: Settings,
    /// Paths of keys that mean nothing to this release: a newer one's, or misspelt. Never an error.
    pub unknown: Vec<String>,
}

/// Reads the file at `path` of the host; `host_name` names the node where the file doesn't.
///
/// # Errors
/// There is no such file, or it can't work.
pub fn load(host: &Host, path: &str, host_name: &str) -> Result<Loaded, Error> {
    if path.is_empty() {
        return Err(Error::NoPath);
    }
    let path = HostPath::new(path).map_err(Error::BadPath)?;
    let bytes = host.read(&path).map_err(|source| {
        let path = path.clone();
        if [io::ErrorKind::NotFound, io::ErrorKind::IsADirectory].contains(&source.kind()) {
            Error::Missing { path, source }
        } else {
            Error::Unreadable { path, source }
        }
    })?;
    parse(&bytes, &path, host_name)
}

/// Whether others than root can read or change the file.
#[must_use]
pub fn exposed(found: &Metadata) -> bool {
    found.mode() & 0o077 != 0 || found.uid() != nix::unistd::geteuid().as_raw()
}

/// Makes the file root's alone, if it is not: it holds secrets, and says what root runs. What it says is not judged by who could write it.
pub fn guard(host: &Host, path: &str) {
    let Ok(path) = HostPath::new(path) else { return };
    if host.metadata(&path).is_ok_and(|found| exposed(&found)) {
        let made = host.read(&path).and_then(|bytes| host.write(&path, &bytes, 0o600));
        match made {
            Ok(()) => warn!(%path, "others than root could read or change the configuration: it is root's alone now"),
            Err(error) => warn!(%path, %error, "others than root can read or change the configuration"),
        }
    }
}

/// Reads the bytes of a file that lies, or will lie, at `path`.
///
/// # Errors
/// They are no JSON, have a value of a wrong type, or can't work.
pub fn parse(bytes: &[u8], path: &HostPath, host_name: &str) -> Result<Loaded, Error> {
    let value: Value = serde_json::from_slice(bytes).map_err(|error| Error::NotJson {
        path: path.clone(),
        line: error.line(),
        column: error.column(),
    })?;
    let decoded = decode::decode::<File>(&value);
    let (mut file, unknown) = decoded.map_err(|source| Error::Mistyped {
        path: path.clone(),
        source,
    })?;
    if !file.name_after(host_name) {
        return Err(Error::Nameless { path: path.clone() });
    }
    let settings = Settings::try_from(file).map_err(|source| Error::Mistaken {
        path: path.clone(),
        source,
    })?;
    Ok(Loaded { settings, unknown })
}
