//! The arguments of operations, as their authors wrote them.

use std::collections::BTreeMap;

use image::{Digest, ImageRef, Repository};

/// What is wrong with an AgentUpgrade's arguments. The texts are fixed: they never repeat what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadParameters {
    /// No URL.
    #[error("parameter downloadURL is missing: give oci://<registry host>/<repository>")]
    NoUrl,
    /// No digest.
    #[error("parameter sha256 is missing: give the image's digest, 64 hexadecimal digits")]
    NoDigest,
    /// The digest is none.
    #[error("parameter sha256 is malformed: {0}")]
    Digest(image::DigestError),
    /// Space where none can be.
    #[error("parameter downloadURL is malformed: there is space inside it")]
    Space,
    /// What a host with a binary install takes.
    #[error(
        "parameter downloadURL names an archive: this agent runs from an image, give oci://<registry host>/<repository>"
    )]
    Archive,
    /// Neither an image nor an archive.
    #[error("parameter downloadURL is malformed: it starts with oci://")]
    Scheme,
    /// A digest where the repository alone belongs.
    #[error("parameter downloadURL must not hold a digest: it is given as sha256")]
    DigestInUrl,
    /// The repository is none.
    #[error("parameter downloadURL is malformed: {0}")]
    Repository(image::RefError),
    /// Neither yes nor no.
    #[error("parameter force is malformed: give \"true\", or leave it out")]
    Force,
}

/// What an AgentUpgrade asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The image.
    pub to: ImageRef,
    /// Also if it failed on this host before.
    pub force: bool,
}

/// Reads an AgentUpgrade's arguments for the container install. Presence is judged first, then the digest, then the URL
/// (node-agent specification 10.0).
///
/// # Errors
/// With a text that can be shown to anyone.
pub fn parse_upgrade(parameters: &BTreeMap<String, String>) -> Result<Wanted, BadParameters> {
    let given = |key: &str| {
        parameters
            .get(key)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    };
    let url = given("downloadURL").ok_or(BadParameters::NoUrl)?;
    let digest = given("sha256").ok_or(BadParameters::NoDigest)?;
    let digest = Digest::parse_hex_lenient(digest).map_err(BadParameters::Digest)?;
    let (scheme, rest) = url.split_once("://").ok_or(BadParameters::Scheme)?;
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
        return Err(BadParameters::Archive);
    }
    if !scheme.eq_ignore_ascii_case("oci") {
        return Err(BadParameters::Scheme);
    }
    if rest.contains(char::is_whitespace) {
        return Err(BadParameters::Space);
    }
    let repository = match Repository::parse_loose(rest) {
        Ok(repository) => repository,
        Err(image::RefError::UnexpectedDigest) => return Err(BadParameters::DigestInUrl),
        Err(error) => return Err(BadParameters::Repository(error)),
    };
    let force = match given("force") {
        None | Some("false") => false,
        Some("true") => true,
        Some(_) => return Err(BadParameters::Force),
    };
    Ok(Wanted {
        to: repository.at(digest),
        force,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parameters(url: &str, digest: &str) -> BTreeMap<String, String> {
        [("downloadURL", url), ("sha256", digest)]
            .into_iter()
            .filter(|(_, value)| *value != "-")
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn parse(url: &str, digest: &str) -> Result<String, BadParameters> {
        parse_upgrade(&parameters(url, digest)).map(|wanted| wanted.to.to_string())
    }

    #[test]
    fn a_repository_and_a_digest_are_an_image() {
        let whole = format!("registry.test:5000/azure/agent@sha256:{HEX}");
        for url in [
            "oci://registry.test:5000/azure/agent",
            "oci://registry.test:5000/azure/agent:v1.2",
            "  oci://registry.test:5000/azure/agent\n",
            "OCI://Registry.test:5000/azure/agent",
        ] {
            assert_eq!(parse(url, HEX).as_deref(), Ok(whole.as_str()), "{url}");
        }
        for digest in [HEX.to_uppercase(), format!("sha256:{HEX}"), format!(" {HEX} ")] {
            assert_eq!(
                parse("oci://registry.test:5000/azure/agent", &digest).as_deref(),
                Ok(whole.as_str())
            );
        }
    }

    #[test]
    fn na_t10_without_a_digest_nothing_is_pulled() {
        for digest in ["-", "", " \t"] {
            assert_eq!(parse("oci://registry.test/agent", digest), Err(BadParameters::NoDigest));
        }
        for url in ["-", "", "  "] {
            assert_eq!(parse(url, HEX), Err(BadParameters::NoUrl));
            assert_eq!(parse(url, "-"), Err(BadParameters::NoUrl));
        }
    }

    #[test]
    fn na_t11_a_digest_inside_the_url_is_refused() {
        for url in [
            format!("oci://registry.test/agent@sha256:{HEX}"),
            format!("oci://registry.test/agent:v1@sha256:{HEX}"),
            "oci://registry.test/agent@sha256:".into(),
        ] {
            assert_eq!(parse(&url, HEX), Err(BadParameters::DigestInUrl), "{url}");
        }
    }

    #[test]
    fn na_t12_an_archive_is_refused_where_an_image_runs() {
        for url in [
            "https://registry.test/agent.tar.gz",
            "http://h/x?token=c4nary",
            "HTTPS://h/x",
        ] {
            assert_eq!(parse(url, HEX), Err(BadParameters::Archive), "{url}");
        }
    }

    #[test]
    fn na_r20_a_malformed_digest_is_reported_before_a_malformed_url() {
        for url in ["https://h/x", "not a url", "oci://", "oci://user:pw@h/x"] {
            for digest in [
                &HEX[1..],
                "zz",
                &format!("{HEX}0"),
                &format!("{} {}", &HEX[..32], &HEX[32..]),
            ] {
                assert!(
                    matches!(parse(url, digest), Err(BadParameters::Digest(_))),
                    "{url} {digest}"
                );
            }
        }
    }

    #[test]
    fn na_r01_no_message_repeats_what_was_given() {
        let canaries = [
            "oci://user:c4nary@registry.test/agent",
            "oci://c4nary@registry.test/agent",
            "oci://registry.test/agent?token=c4nary",
            "oci://registry.test/agent#c4nary",
            "oci://registry.test/C4NARY",
            "oci://registry.test/c4nary/Agent:c4nary",
            "oci://c4nary",
            "oci://c4nary/agent",
            "oci://registry.test/c4 nary",
            "oci://registry.test:c4nary/agent",
            "oci://registry.test/agent:c4nary:c4nary",
            "ftp://c4nary/agent",
            "c4nary",
            "https://user:c4nary@registry.test/agent?c4nary#c4nary",
        ];
        for url in canaries {
            let error = parse(url, HEX).unwrap_err();
            let shown = format!("{error} {error:?}").to_lowercase();
            assert!(!shown.contains("c4nary"), "{url}: {shown}");
        }
        for digest in ["c4nary", "sha256:c4nary", &format!("c4nary{HEX}")] {
            let error = parse("oci://registry.test/agent", digest).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("c4nary"));
        }
    }
}
