//! Where images of a registry are really had: mirrors, certificates and credentials, as containerd's `hosts.toml` says.
//!
//! Everything is read and judged when it is loaded, so that a bad file is known before anything is pulled. Credentials
//! come by file alone, and that file must be closed to others. Errors name the file and the key, never a value.
//! Source: containerd, docs/hosts.md. Refused here: `override_path`, `client`, and headers other than `Authorization`.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::MetadataExt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use hostexec::{Host, HostPath};
use oci_client::secrets::RegistryAuth;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use toml::{Table, Value};

use crate::model::Secret;

/// Where hosts keep the certificates they trust: Debian and ACL; the Fedora family.
const BUNDLES: [HostPath; 2] = [
    HostPath::fixed("/etc/ssl/certs/ca-certificates.crt"),
    HostPath::fixed("/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem"),
];

/// Why the registries' settings can't be used.
#[derive(Debug, thiserror::Error)]
pub enum RegistriesError {
    /// A file can't be read.
    #[error("read the registries' settings")]
    Read(#[source] io::Error),
    /// A file does not say what it should.
    #[error("{file}: {what}")]
    Bad {
        /// The file, as the host names it.
        file: String,
        /// What is wrong; no value of it.
        what: String,
    },
}

/// What is known of registries: where to go for the images of each.
#[derive(Clone, Debug, Default)]
pub struct Registries {
    rules: BTreeMap<String, Rules>,
    trusted: Vec<CertificateDer<'static>>,
}

#[derive(Clone, Debug, Default)]
struct Rules {
    server: Option<Endpoint>,
    mirrors: Vec<Endpoint>,
}

/// One place to ask.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    pub(super) scheme: Scheme,
    /// `host[:port][/path]`.
    pub(super) authority: String,
    pub(super) resolve: Resolve,
    pub(super) verify: Verify,
    pub(super) certificates: Vec<CertificateDer<'static>>,
    pub(super) auth: Secret<RegistryAuth>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scheme {
    Http,
    Https,
}

/// Whether a place may say what a tag names, or only serves what is named by digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolve {
    Trusted,
    DigestsOnly,
}

/// Whether the place's certificate is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verify {
    Yes,
    Skip,
}

/// The certificates that the host trusts, from its bundles; one that TLS can't use is left out.
///
/// # Errors
/// A bundle is there and can't be read.
pub fn host_certificates(host: &Host) -> io::Result<Vec<CertificateDer<'static>>> {
    let mut found = Vec::new();
    for path in &BUNDLES {
        if host.exists(path)? {
            found.extend(certificates(&host.read(path)?));
        }
    }
    found.sort_by(|a, b| a.as_ref().cmp(b.as_ref()));
    found.dedup();
    Ok(found)
}

fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    let usable = |der: &CertificateDer<'static>| rustls::RootCertStore::empty().add(der.clone()).is_ok();
    CertificateDer::pem_slice_iter(pem)
        .filter_map(Result::ok)
        .filter(usable)
        .collect()
}

impl Registries {
    /// Reads `<dir>/<host[:port]>/hosts.toml` of every registry, `_default` for the rest, and the host's certificates.
    ///
    /// # Errors
    /// A file can't be read, or says what can't be done.
    pub fn load(host: &Host, dir: Option<&HostPath>) -> Result<Self, RegistriesError> {
        let mut rules = BTreeMap::new();
        for name in dir
            .map_or(Ok(Vec::new()), |dir| host.list(dir))
            .map_err(RegistriesError::Read)?
        {
            let Some(folder) = dir.and_then(|dir| dir.join(&name).ok()) else {
                continue;
            };
            let Ok(file) = folder.join("hosts.toml") else { continue };
            if host.exists(&file).map_err(RegistriesError::Read)? {
                rules.insert(
                    registry_of(&name),
                    File {
                        host,
                        folder: &folder,
                        file: &file,
                    }
                    .rules()?,
                );
            }
        }
        let trusted = host_certificates(host).map_err(RegistriesError::Read)?;
        Ok(Self { rules, trusted })
    }

    /// Places to ask for images of `registry`, in order; the registry itself, or what stands in for it, is last.
    pub(super) fn endpoints(&self, registry: &str) -> Vec<Endpoint> {
        let rules = self.rules.get(registry).or_else(|| self.rules.get("_default"));
        let mut all = rules.map_or(Vec::new(), |rules| rules.mirrors.clone());
        let itself = || {
            Endpoint::of(
                if is_local(registry) {
                    Scheme::Http
                } else {
                    Scheme::Https
                },
                registry,
            )
        };
        all.push(rules.and_then(|rules| rules.server.clone()).unwrap_or_else(itself));
        for endpoint in &mut all {
            endpoint.certificates.extend(self.trusted.iter().cloned());
        }
        all
    }
}

impl Endpoint {
    fn of(scheme: Scheme, authority: &str) -> Self {
        Self {
            scheme,
            authority: authority.to_owned(),
            resolve: Resolve::Trusted,
            verify: Verify::Yes,
            certificates: Vec::new(),
            auth: Secret::new(RegistryAuth::Anonymous),
        }
    }
}

/// A port is written `host:5000` or `host_5000_`.
fn registry_of(folder: &str) -> String {
    let port = |name: &str| name.bytes().all(|c| c.is_ascii_digit()) && !name.is_empty();
    match folder.strip_suffix('_').and_then(|name| name.rsplit_once('_')) {
        Some((host, number)) if port(number) => format!("{host}:{number}"),
        Some(_) | None => folder.to_owned(),
    }
    .to_ascii_lowercase()
}

/// This very machine: plain HTTP is spoken to it, as containerd does.
fn is_local(authority: &str) -> bool {
    let host = match authority.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((address, _)) => address,
        None => authority.split([':', '/']).next().unwrap_or(authority),
    };
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// One `hosts.toml`.
struct File<'a> {
    host: &'a Host,
    folder: &'a HostPath,
    file: &'a HostPath,
}

impl File<'_> {
    fn bad(&self, what: impl Into<String>) -> RegistriesError {
        RegistriesError::Bad {
            file: self.file.to_string(),
            what: what.into(),
        }
    }

    fn rules(&self) -> Result<Rules, RegistriesError> {
        let text = self.host.read_text(self.file).map_err(RegistriesError::Read)?;
        let table: Table = text.parse().map_err(|error: toml::de::Error| {
            let line = error
                .span()
                .map_or(0, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
            self.bad(format!("not TOML at line {line}")) // the parser's own text repeats the line
        })?;
        let server = match table.get("server") {
            Some(Value::String(url)) => Some(self.endpoint("server", url, &Table::new())?),
            Some(_) => return Err(self.bad("`server` is no text")),
            None => None,
        };
        let mut mirrors = Vec::new();
        match table.get("host") {
            None => {}
            Some(Value::Table(hosts)) => {
                for (url, settings) in hosts {
                    let Value::Table(settings) = settings else {
                        return Err(self.bad("a `host` is no table"));
                    };
                    mirrors.extend(self.mirror(url, settings)?);
                }
            }
            Some(_) => return Err(self.bad("`host` is no table")),
        }
        // The server's own settings may stand at the top of the file.
        let server = match server {
            Some(server) => Some(self.settle("server", server, &table)?),
            None => None,
        };
        Ok(Rules { server, mirrors })
    }

    /// A mirror, if one may pull from it.
    fn mirror(&self, url: &str, settings: &Table) -> Result<Option<Endpoint>, RegistriesError> {
        let endpoint = self.endpoint("host", url, settings)?;
        let endpoint = self.settle("host", endpoint, settings)?;
        let Some(capabilities) = settings.get("capabilities") else {
            return Ok(Some(endpoint));
        };
        let can = self.texts("capabilities", capabilities)?;
        let resolve = if can.contains(&"resolve") {
            Resolve::Trusted
        } else {
            Resolve::DigestsOnly
        };
        Ok(can.contains(&"pull").then_some(Endpoint { resolve, ..endpoint }))
    }

    fn endpoint(&self, key: &str, url: &str, settings: &Table) -> Result<Endpoint, RegistriesError> {
        if settings
            .get("override_path")
            .is_some_and(|value| value.as_bool() != Some(false))
        {
            return Err(self.bad("`override_path` is not supported"));
        }
        let (scheme, rest) = match url.split_once("://") {
            Some(("http", rest)) => (Scheme::Http, rest),
            Some(("https", rest)) => (Scheme::Https, rest),
            Some(_) => return Err(self.bad(format!("`{key}` has a scheme other than http and https"))),
            None if is_local(url) => (Scheme::Http, url),
            None => (Scheme::Https, url),
        };
        let rest = rest.trim_end_matches('/');
        let rest = rest.strip_suffix("/v2").unwrap_or(rest);
        if rest.contains('@') {
            return Err(self.bad(format!(
                "`{key}` holds a user: credentials belong in the `Authorization` header"
            )));
        }
        if rest.is_empty() || rest.contains(['?', '#', ' ']) || reqwest::Url::parse(&format!("https://{rest}")).is_err()
        {
            return Err(self.bad(format!("`{key}` is no address of a registry")));
        }
        Ok(Endpoint::of(scheme, rest))
    }

    fn settle(&self, key: &str, mut endpoint: Endpoint, settings: &Table) -> Result<Endpoint, RegistriesError> {
        if settings.contains_key("client") {
            return Err(self.bad("client certificates (`client`) are not supported"));
        }
        if let Some(skip) = settings.get("skip_verify") {
            let skip = skip
                .as_bool()
                .ok_or_else(|| self.bad("`skip_verify` is neither true nor false"))?;
            endpoint.verify = if skip { Verify::Skip } else { Verify::Yes };
        }
        if let Some(files) = settings.get("ca") {
            for name in self.texts("ca", files)? {
                let path = if name.starts_with('/') {
                    HostPath::new(name)
                } else {
                    self.folder.join(name)
                };
                let path = path.map_err(|_| self.bad("`ca` names no plain path of the host"))?;
                let found = certificates(&self.host.read(&path).map_err(RegistriesError::Read)?);
                if found.is_empty() {
                    return Err(self.bad(format!("`ca`: {path} holds no certificate")));
                }
                endpoint.certificates.extend(found);
            }
        }
        match settings.get("header") {
            None => {}
            Some(Value::Table(headers)) => endpoint.auth = Secret::new(self.authorization(headers)?),
            Some(_) => return Err(self.bad("`header` is no table")),
        }
        for unknown in settings.keys().filter(|name| !KNOWN.contains(&name.as_str())) {
            tracing::warn!(file = %self.file, key = %unknown, of = key, "setting of a registry is not known and has no effect");
        }
        Ok(endpoint)
    }

    fn authorization(&self, headers: &Table) -> Result<RegistryAuth, RegistriesError> {
        let mode = self.host.metadata(self.file).map_err(RegistriesError::Read)?.mode();
        if mode & 0o077 != 0 {
            return Err(self.bad(format!(
                "holds credentials and is open to others (mode {:04o}): make it 0600",
                mode & 0o7777
            )));
        }
        if let Some(other) = headers.keys().find(|name| !name.eq_ignore_ascii_case("authorization")) {
            return Err(self.bad(format!(
                "the header `{other}` is not supported: only `Authorization` is"
            )));
        }
        let Some(value) = headers.values().next() else {
            return Ok(RegistryAuth::Anonymous);
        };
        let values = self.texts("Authorization", value)?;
        let [value] = values.as_slice() else {
            return Err(self.bad("`Authorization` has not one value"));
        };
        let (kind, rest) = value.trim().split_once(' ').unwrap_or((value, ""));
        if kind.eq_ignore_ascii_case("bearer") && !rest.is_empty() {
            return Ok(RegistryAuth::Bearer(rest.trim().to_owned()));
        }
        let basic = kind
            .eq_ignore_ascii_case("basic")
            .then(|| BASE64.decode(rest.trim()).ok())
            .flatten();
        let pair = basic.and_then(|bytes| String::from_utf8(bytes).ok());
        match pair.as_deref().and_then(|pair| pair.split_once(':')) {
            Some((user, password)) => Ok(RegistryAuth::Basic(user.to_owned(), password.to_owned())),
            None => Err(self.bad("`Authorization` is neither `Basic <base64 of user:password>` nor `Bearer <token>`")),
        }
    }

    /// One text or several.
    fn texts<'v>(&self, key: &str, value: &'v Value) -> Result<Vec<&'v str>, RegistriesError> {
        let texts = match value {
            Value::String(text) => Some(vec![text.as_str()]),
            Value::Array(texts) => texts.iter().map(Value::as_str).collect(),
            Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => None,
        };
        texts.ok_or_else(|| self.bad(format!("`{key}` is neither a text nor a list of texts")))
    }
}

/// Keys that are understood, or that mean nothing to one who only pulls.
const KNOWN: [&str; 8] = [
    "server",
    "host",
    "capabilities",
    "ca",
    "skip_verify",
    "header",
    "override_path",
    "dial_timeout",
];

#[cfg(test)]
mod tests;
