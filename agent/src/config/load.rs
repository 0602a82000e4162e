//! Reads the configuration from the host.

use std::{fs::Metadata, io, os::unix::fs::MetadataExt};

use hostexec::{Host, HostPath};
use serde_json::Value;
use tracing::warn;

use super::{Credential, Error, File, Mistake, Settings, decode};
use crate::model::Secret;

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
    let mut loaded = parse(&bytes, &path, host_name)?;
    read_credential(host, &mut loaded.settings);
    Ok(loaded)
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

/// The longest file that is read for a service principal's credential.
const LONGEST: u64 = 256 << 10;
const CREDENTIAL_FILE: &str = "azure.servicePrincipal.clientSecretFile";

/// Reads the file with a service principal's credential, if there is one. What is wrong with it keeps a node from being made, and nothing
/// else: what runs goes on without.
pub fn read_credential(host: &Host, settings: &mut Settings) {
    let Some(credential) = settings.auth.file() else { return };
    let Credential::File(path) = &*credential else { return };
    match credential_at(host, path) {
        Ok(read) => *credential = read,
        Err(mistake) => settings.unsupported.push(mistake),
    }
}

/// Reads a file with a service principal's secret, or its certificate and key.
///
/// # Errors
/// It is none, or not root's alone. The mistake is of `azure.servicePrincipal.clientSecretFile`.
pub fn credential_at(host: &Host, path: &HostPath) -> Result<Credential, Mistake> {
    let bad = |wrong, write| Err(Mistake::new(CREDENTIAL_FILE, wrong, write));
    match host.metadata(path) {
        Ok(found) if !found.is_file() || found.len() > LONGEST => {
            return bad("names no file with a credential", "write another path");
        }
        Ok(found) if exposed(&found) => {
            return bad(
                "names a file that others than root can read or change",
                "make it root's own, with mode 0600",
            );
        }
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return bad(
                "names a file that the host does not have",
                "write the file, or another path",
            );
        }
        Err(_) => return bad("names a file that can't be read", "look at the host's disk"),
    }
    let Ok(bytes) = host.read(path) else {
        return bad("names a file that can't be read", "look at the host's disk");
    };
    if matches!(bytes[..], [0x30, 0x80..=0x84, ..]) {
        return bad(
            "names a PKCS#12 file, which is not part of this release yet",
            "make it PEM with `openssl pkcs12 -in FILE.pfx -out FILE.pem -nodes`",
        );
    }
    match String::from_utf8(bytes) {
        Ok(text) if text.contains("-----BEGIN ") => Ok(Credential::Certificate(Secret::new(text))),
        Ok(text) if !text.trim().is_empty() => Ok(Credential::Secret(Secret::new(text.trim().to_owned()))),
        Ok(_) => bad("names an empty file", "write the secret into it"),
        Err(_) => bad(
            "names a file that is neither text nor PEM",
            "write a secret or a PEM into it",
        ),
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
