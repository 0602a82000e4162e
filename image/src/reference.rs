//! Names of images: a repository at a registry, and what is picked in it.
//!
//! The registry's host is always written out: no default registry is guessed. Error texts are fixed and never repeat
//! the input, which may hold a token or a password. Source of the grammar: distribution/reference, and the OCI
//! distribution-spec, "Pulling manifests".

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::digest::{Digest, DigestError};

/// Longest repository in bytes, host and all. Source: distribution/reference, `NameTotalLengthMax`.
const LONGEST: usize = 255;

/// Why a text names no image. The texts are fixed: they never repeat the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RefError {
    /// Something like `https://` stands before it.
    #[error("an image is named without a scheme: <registry host>/<repository>")]
    Scheme,
    /// `user@` or `user:password@` stands before the host.
    #[error("an image's name holds no user or password; credentials are given by file")]
    UserInfo,
    /// A `?` or `#` part.
    #[error("an image's name holds no query or fragment")]
    Query,
    /// No first component that is a host.
    #[error("an image's name starts with the registry's host: <registry host>/<repository>")]
    NoHost,
    /// The host is none.
    #[error("the registry's host is no valid host name or address")]
    Host,
    /// The port is no number of 1 to 65535.
    #[error("the registry's port is no number from 1 to 65535")]
    Port,
    /// A capital in the path; capitals in the host are fine.
    #[error("capitals are not allowed in a repository's path")]
    Capitals,
    /// Another fault of the path.
    #[error("the repository's path holds something other than a-z, 0-9 and single separators between them")]
    Path,
    /// Longer than registries take.
    #[error("the repository's name is longer than 255 characters")]
    TooLong,
    /// A tag where the digest alone decides.
    #[error("a tag is not allowed here: the digest alone says which image it is")]
    Tag,
    /// A tag that is none.
    #[error("the tag is not a valid one")]
    BadTag,
    /// A digest where none belongs.
    #[error("a digest is not allowed here: it is given on its own")]
    UnexpectedDigest,
    /// No digest where one is needed.
    #[error("an image is named by digest here: <registry host>/<repository>@sha256:<64 hexadecimal digits>")]
    NoDigest,
    /// The digest is none.
    #[error(transparent)]
    Digest(#[from] DigestError),
}

/// A repository at a registry, `host[:port]/path`. The host is kept in lower case, so equal repositories compare equal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Repository {
    registry: Box<str>,
    path: Box<str>,
}

impl Repository {
    /// Takes `host/path` or `host/path:tag`; the tag is checked and dropped.
    ///
    /// # Errors
    /// When it is no repository, or has a digest.
    pub fn parse_loose(text: &str) -> Result<Self, RefError> {
        if text.contains("@sha256:") || text.contains("@sha512:") {
            return Err(RefError::UnexpectedDigest);
        }
        let (name, tag) = split_tag(text);
        let repository = name.parse()?;
        tag.map(check_tag).transpose()?;
        Ok(repository)
    }

    /// The registry, `host` or `host:port`; an IPv6 address is in brackets.
    #[must_use]
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// The path within the registry.
    #[must_use]
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The image of this digest here.
    #[must_use]
    pub fn at(&self, digest: Digest) -> ImageRef {
        ImageRef {
            repository: self.clone(),
            digest,
        }
    }
}

impl FromStr for Repository {
    type Err = RefError;

    fn from_str(text: &str) -> Result<Self, RefError> {
        if text.contains("://") {
            return Err(RefError::Scheme);
        }
        if text.contains(['?', '#']) {
            return Err(RefError::Query);
        }
        if text.contains('@') {
            return Err(RefError::UserInfo);
        }
        let (registry, path) = text.split_once('/').ok_or(RefError::NoHost)?;
        if !(registry.contains(['.', ':']) || registry.eq_ignore_ascii_case("localhost")) {
            return Err(RefError::NoHost);
        }
        check_registry(registry)?;
        check_path(path)?;
        if text.len() > LONGEST {
            return Err(RefError::TooLong);
        }
        Ok(Self {
            registry: registry.to_ascii_lowercase().into(),
            path: path.into(),
        })
    }
}

fn check_registry(text: &str) -> Result<(), RefError> {
    let (host, port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (address, rest) = rest.split_once(']').ok_or(RefError::Host)?;
            address.parse::<Ipv6Addr>().map_err(|_| RefError::Host)?;
            match rest.strip_prefix(':') {
                None if rest.is_empty() => (None, None),
                None => return Err(RefError::Host),
                port @ Some(_) => (None, port),
            }
        }
        None => match text.split_once(':') {
            Some((host, port)) => (Some(host), Some(port)),
            None => (Some(text), None),
        },
    };
    let label = |label: &str| {
        let inner = |c: u8| c.is_ascii_alphanumeric() || c == b'-';
        !label.is_empty() && label.bytes().all(inner) && !label.starts_with('-') && !label.ends_with('-')
    };
    if !host.is_none_or(|host| host.split('.').all(label)) {
        return Err(RefError::Host);
    }
    match port {
        None => Ok(()),
        Some(port) if port.bytes().all(|c| c.is_ascii_digit()) => match port.parse::<u16>() {
            Ok(1..) => Ok(()),
            Ok(0) | Err(_) => Err(RefError::Port),
        },
        Some(_) => Err(RefError::Port),
    }
}

fn check_path(path: &str) -> Result<(), RefError> {
    if path.rsplit('/').next().is_some_and(|last| last.contains(':')) {
        return Err(RefError::Tag);
    }
    if path.bytes().any(|c| c.is_ascii_uppercase()) {
        return Err(RefError::Capitals);
    }
    if path.split('/').all(is_component) {
        Ok(())
    } else {
        Err(RefError::Path)
    }
}

/// Runs of `a-z0-9` with one separator between them: `.`, `_`, `__` or any number of `-`.
fn is_component(text: &str) -> bool {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separators = text.split(word).filter(|between| !between.is_empty());
    text.starts_with(word)
        && text.ends_with(word)
        && separators
            .into_iter()
            .all(|s| matches!(s, "." | "_" | "__") || s.bytes().all(|c| c == b'-'))
}

/// Cuts a tag off: what stands behind a colon in the last component.
fn split_tag(text: &str) -> (&str, Option<&str>) {
    let last = text.rfind('/').map_or(text.len(), |slash| slash + 1);
    match text[last..].find(':') {
        Some(colon) => (&text[..last + colon], Some(&text[last + colon + 1..])),
        None => (text, None),
    }
}

/// Source: distribution-spec, "Pulling manifests": `[a-zA-Z0-9_][a-zA-Z0-9._-]{0,127}`.
fn check_tag(tag: &str) -> Result<&str, RefError> {
    let inner = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'_' | b'.' | b'-');
    if (1..=128).contains(&tag.len()) && tag.bytes().all(inner) && !tag.starts_with(['.', '-']) {
        Ok(tag)
    } else {
        Err(RefError::BadTag)
    }
}

impl fmt::Display for Repository {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.path)
    }
}

/// An image named by digest, `<repository>@sha256:<hex>`; nothing else can stand in for it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ImageRef {
    /// Where it is to be had.
    pub repository: Repository,
    /// What it is.
    pub digest: Digest,
}

impl FromStr for ImageRef {
    type Err = RefError;

    fn from_str(text: &str) -> Result<Self, RefError> {
        let (repository, digest) = text.rsplit_once('@').ok_or(RefError::NoDigest)?;
        if !digest.contains(':') {
            return Err(RefError::NoDigest);
        }
        let repository = repository.parse()?;
        Ok(Self {
            repository,
            digest: digest.parse()?,
        })
    }
}

impl fmt::Display for ImageRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.repository, self.digest)
    }
}

/// A name that a tag may pick: the machine's OS image. Whoever runs an agent takes an [`ImageRef`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reference {
    /// Where it is to be had.
    pub repository: Repository,
    /// What is picked there.
    pub select: Select,
}

/// What a [`Reference`] picks in its repository.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Select {
    /// What the tag names today.
    Tag(Box<str>),
    /// One image for ever.
    Digest(Digest),
}

impl FromStr for Reference {
    type Err = RefError;

    /// The digest behind `@`, else the tag behind the last colon, else `latest`; a tag beside a digest is dropped.
    fn from_str(text: &str) -> Result<Self, RefError> {
        if let Some((name, digest)) = text.rsplit_once('@')
            && digest.contains(':')
            && !digest.contains('/')
        {
            let repository = Repository::parse_loose(name)?;
            return Ok(Self {
                repository,
                select: Select::Digest(digest.parse()?),
            });
        }
        let (name, tag) = split_tag(text);
        let repository = name.parse()?;
        let tag = tag.map_or(Ok("latest"), check_tag)?;
        Ok(Self {
            repository,
            select: Select::Tag(tag.into()),
        })
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.select {
            Select::Tag(tag) => write!(f, "{}:{tag}", self.repository),
            Select::Digest(digest) => write!(f, "{}@{digest}", self.repository),
        }
    }
}

macro_rules! text_form {
    ($($type:ty),*) => {$(
        impl TryFrom<String> for $type {
            type Error = RefError;

            fn try_from(text: String) -> Result<Self, RefError> {
                text.parse()
            }
        }

        impl From<$type> for String {
            fn from(value: $type) -> Self {
                value.to_string()
            }
        }
    )*};
}
text_form!(Repository, ImageRef);

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn image(text: &str) -> Result<String, RefError> {
        text.replace('…', HEX)
            .parse::<ImageRef>()
            .map(|image| image.to_string().replace(HEX, "…"))
    }

    #[test]
    fn fc_c9_what_is_image_and_what_is_not() {
        use RefError as E;
        let table: &[(&str, Result<&str, RefError>)] = &[
            ("h:5000/r@sha256:…", Ok("h:5000/r@sha256:…")),
            ("localhost/r@sha256:…", Ok("localhost/r@sha256:…")),
            (
                "ghcr.io/azure/aks-flex-node-agent@sha256:…",
                Ok("ghcr.io/azure/aks-flex-node-agent@sha256:…"),
            ),
            ("[::1]:5000/r@sha256:…", Ok("[::1]:5000/r@sha256:…")),
            ("[::1]/r@sha256:…", Ok("[::1]/r@sha256:…")),
            (
                "127.0.0.1:1/a/b--c/d__e@sha256:…",
                Ok("127.0.0.1:1/a/b--c/d__e@sha256:…"),
            ),
            ("h:5000/r:1@sha256:…", Err(E::Tag)),
            ("h:5000/r:nope@sha256:…", Err(E::Tag)),
            ("r:1@sha256:…", Err(E::NoHost)),
            ("h.io/r:sha256:…", Err(E::NoDigest)),
            ("r:sha256:…", Err(E::NoDigest)),
            ("h.io/r:1", Err(E::NoDigest)),
            ("h.io/r", Err(E::NoDigest)),
            ("", Err(E::NoDigest)),
            ("h:0/r@sha256:…", Err(E::Port)),
            ("h:70000/r@sha256:…", Err(E::Port)),
            ("h:+5/r@sha256:…", Err(E::Port)),
            ("h:/r@sha256:…", Err(E::Port)),
            ("[::1]x/r@sha256:…", Err(E::Host)),
            ("[::1/r@sha256:…", Err(E::Host)),
            ("[::g]:1/r@sha256:…", Err(E::Host)),
            ("-h.io/r@sha256:…", Err(E::Host)),
            ("h..io/r@sha256:…", Err(E::Host)),
            ("h_x.io/r@sha256:…", Err(E::Host)),
            ("library/busybox@sha256:…", Err(E::NoHost)),
            ("busybox@sha256:…", Err(E::NoHost)),
            ("/r@sha256:…", Err(E::NoHost)),
            ("h.io/@sha256:…", Err(E::Path)),
            ("h.io/a//b@sha256:…", Err(E::Path)),
            ("h.io/a/../b@sha256:…", Err(E::Path)),
            ("h.io/a b@sha256:…", Err(E::Path)),
            ("h.io/a\nb@sha256:…", Err(E::Path)),
            ("h.io/-a@sha256:…", Err(E::Path)),
            ("h.io/a._b@sha256:…", Err(E::Path)),
            ("h.io/r@sha512:…", Err(E::Digest(DigestError::Algorithm))),
            ("h.io/r@sha256:…0", Err(E::Digest(DigestError::Length))),
            ("h.io/r@sha256:0", Err(E::Digest(DigestError::Length))),
            ("h.io/r@sha256:…@sha256:…", Err(E::UserInfo)),
            ("https://h.io/r@sha256:…", Err(E::Scheme)),
            ("user:secret@h.io/r@sha256:…", Err(E::UserInfo)),
            ("h.io/r?token=secret@sha256:…", Err(E::Query)),
            ("h.io/r#secret@sha256:…", Err(E::Query)),
        ];
        for (text, want) in table {
            assert_eq!(image(text), want.map(str::to_owned), "{text}");
        }
        let upper = format!("h.io/r@sha256:{}", HEX.to_uppercase());
        assert_eq!(upper.parse::<ImageRef>(), Err(E::Digest(DigestError::UpperCase)));
    }

    #[test]
    fn fc_c10_capitals_are_fine_in_the_host_and_refused_in_the_path() {
        assert_eq!(
            image("MyReg.azurecr.io/x@sha256:…").unwrap(),
            "myreg.azurecr.io/x@sha256:…"
        );
        assert_eq!(image("myreg.azurecr.io/X@sha256:…"), Err(RefError::Capitals));
        assert!(RefError::Capitals.to_string().contains("capitals"));
        let (a, b): (Repository, Repository) = ("A.io/x".parse().unwrap(), "a.IO/x".parse().unwrap());
        assert_eq!(a, b);
    }

    #[test]
    fn na_r01_no_error_repeats_the_input() {
        for text in [
            "user:s3cret@h.io/r@sha256:…",
            "h.io/s3cret?token=s3cret@sha256:…",
            "https://s3cret/r",
            "h.io/S3CRET:s3cret@sha256:…",
            "s3cret.io:s3cret/r@sha256:…",
            "h.io/r@sha256:s3cret",
            "h.io/r@s3cret:…",
        ] {
            let text = text.replace('…', HEX);
            let errors = [
                text.parse::<ImageRef>().unwrap_err().to_string(),
                text.parse::<Repository>().unwrap_err().to_string(),
                Repository::parse_loose(&text).unwrap_err().to_string(),
                text.parse::<Reference>()
                    .err()
                    .map(|e| e.to_string())
                    .unwrap_or_default(),
            ];
            for error in errors {
                assert!(!error.to_lowercase().contains("s3cret"), "{text}: {error}");
            }
        }
    }

    #[test]
    fn a_loose_repository_drops_its_tag_and_takes_no_digest() {
        let loose = |text: &str| Repository::parse_loose(text).map(|r| r.to_string());
        assert_eq!(loose("h:5000/a/b").unwrap(), "h:5000/a/b");
        assert_eq!(loose("h:5000/a/b:v1.2-rc_3").unwrap(), "h:5000/a/b");
        assert_eq!(loose("[::1]:5000/b:1").unwrap(), "[::1]:5000/b");
        assert_eq!(loose("h.io/b:"), Err(RefError::BadTag));
        assert_eq!(loose("h.io/b:a b"), Err(RefError::BadTag));
        assert_eq!(loose(&format!("h.io/b:{}", "x".repeat(129))), Err(RefError::BadTag));
        assert_eq!(loose(&format!("h.io/b@sha256:{HEX}")), Err(RefError::UnexpectedDigest));
        assert_eq!(
            loose(&format!("h.io/b:1@sha256:{HEX}")),
            Err(RefError::UnexpectedDigest)
        );
        assert_eq!(loose("b:1"), Err(RefError::NoHost));
        assert_eq!(loose(&format!("h.io/{}", "x".repeat(260))), Err(RefError::TooLong));
    }

    #[test]
    fn a_reference_prefers_its_digest_then_its_tag_then_latest() {
        let shown = |text: &str| {
            text.replace('…', HEX)
                .parse::<Reference>()
                .map(|r| r.to_string().replace(HEX, "…"))
        };
        assert_eq!(shown("h.io/r").unwrap(), "h.io/r:latest");
        assert_eq!(shown("h:5000/r:v1").unwrap(), "h:5000/r:v1");
        assert_eq!(shown("h:5000/r:v1@sha256:…").unwrap(), "h:5000/r@sha256:…");
        assert_eq!(shown("h:5000/r@sha256:…").unwrap(), "h:5000/r@sha256:…");
        assert_eq!(shown("r:v1"), Err(RefError::NoHost));
        assert_eq!(shown("user:pw@h.io/r"), Err(RefError::UserInfo));
        assert_eq!(shown("h.io/r@sha512:…"), Err(RefError::Digest(DigestError::Algorithm)));
    }

    #[test]
    fn json_goes_through_the_same_door() {
        let text = format!("\"h.io/r@sha256:{HEX}\"");
        let image: ImageRef = serde_json::from_str(&text).unwrap();
        assert_eq!(serde_json::to_string(&image).unwrap(), text);
        assert!(serde_json::from_str::<ImageRef>("\"h.io/r:1\"").is_err());
    }
}
