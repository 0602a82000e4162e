//! Where a node's programs come from when not from their publishers. Source: node-agent specification, 2.3 and 5.4.3.

use hostexec::HostPath;
use image::{Digest, Reference};
use url::Url;

use super::error::Mistake;

const KEY: &str = "bootstrap.offlineArtifacts.source";
const SHA256: &str = "bootstrap.offlineArtifacts.sha256";
/// How the names of archives on a host end.
const ARCHIVES: [&str; 3] = [".tar.gz", ".tgz", ".tar.zst"];

/// A bundle of offline artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfflineSource {
    /// A folder of the host.
    Folder(HostPath),
    /// An OCI artifact, had without a credential.
    Registry(Reference),
    /// An archive with the folder in it.
    Archive(OfflineArchive),
}

/// An archive, and what proves it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfflineArchive {
    /// Where it is.
    pub at: At,
    /// Of all its bytes.
    pub digest: Digest,
}

/// Where an archive is.
#[derive(Clone, PartialEq, Eq)]
pub enum At {
    /// On the host.
    Host(HostPath),
    /// On a server of https. Its query may be a secret.
    Url(String),
}

impl std::fmt::Debug for At {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Host(path) => write!(f, "Host({path})"),
            Self::Url(_) => f.write_str("Url(***)"),
        }
    }
}

/// The source that a template names for a version of Kubernetes (without its `v`); none if nothing is given. An archive has a digest, and
/// nothing else has.
pub(super) fn parse(template: &str, sha256: &str, kubernetes: Option<&str>) -> Result<Option<OfflineSource>, Mistake> {
    let (template, sha256) = (template.trim(), sha256.trim());
    let at = match template {
        "" => None,
        template => Some(place(&render(template, kubernetes)?)?),
    };
    const WRITE: &str = "write the SHA-256 of the archive, 64 hex digits, as sha256sum prints it";
    match (at, sha256) {
        (None, "") => Ok(None),
        (Some(Place::Of(source)), "") => Ok(Some(source)),
        (None | Some(Place::Of(_)), _) => Err(Mistake::new(SHA256, "is given for what is no archive", "leave it out")),
        (Some(Place::Archive(_)), "") => Err(Mistake::new(
            SHA256,
            "is missing, and the offline source is an archive",
            WRITE,
        )),
        (Some(Place::Archive(at)), sha256) => {
            let hex = sha256.strip_prefix("sha256:").unwrap_or(sha256).to_ascii_lowercase();
            let digest = format!("sha256:{hex}").parse();
            let digest = digest.map_err(|_| Mistake::new(SHA256, "is no SHA-256", WRITE))?;
            Ok(Some(OfflineSource::Archive(OfflineArchive { at, digest })))
        }
    }
}

/// A source, as far as its own text tells.
enum Place {
    Of(OfflineSource),
    Archive(At),
}

fn place(source: &str) -> Result<Place, Mistake> {
    let wrong = |wrong, write| Mistake::new(KEY, wrong, write);
    if let Some(name) = source.strip_prefix("oci://") {
        let name = name.trim_end_matches('/');
        let named = name.parse().map(|name| Place::Of(OfflineSource::Registry(name)));
        let write = "write oci://<registry>/<repository> with :<tag> or @sha256:<digest>, and nothing else";
        return named.map_err(|_| wrong("names no OCI artifact", write));
    }
    if source.contains("://") && !source.starts_with("file://") {
        let url = Url::parse(source).ok();
        let good = |url: &Url| {
            url.scheme() == "https"
                && url.has_host()
                && url.username().is_empty()
                && url.password().is_none()
                && url.fragment().is_none()
        };
        let write = "write https://<server>/<path> of an archive, without a user, a password and a fragment";
        return url
            .filter(good)
            .map(|url| Place::Archive(At::Url(url.into())))
            .ok_or_else(|| wrong("is no URL that an archive is taken from", write));
    }
    let path = source.strip_prefix("file://").unwrap_or(source);
    // What follows `file://` up to a slash would be a host's name.
    let plain = path.starts_with('/') && !path.contains(char::is_control);
    let path = plain.then(|| path.trim_end_matches('/'));
    let folder = path.and_then(|path| HostPath::new(path).ok());
    let write = "write an absolute path of the host, with file:// before it or without, oci://<registry>/<repository>:<tag>, or an archive's \
                 https:// URL";
    folder
        .map(
            |folder| match ARCHIVES.iter().any(|end| folder.as_str().ends_with(end)) {
                true => Place::Archive(At::Host(folder)),
                false => Place::Of(OfflineSource::Folder(folder)),
            },
        )
        .ok_or_else(|| wrong("is neither a plain path of the host nor an OCI artifact", write))
}

/// Go's template language, as far as it has a use here: the two fields there are, nothing else.
fn render(template: &str, kubernetes: Option<&str>) -> Result<String, Mistake> {
    const WRITE: &str = "write {{ .KubernetesVersion }}, which is like v1.34.0, or {{ .KubernetesVersionNoV }}, and no other expression";
    let wrong = || Mistake::new(KEY, "is no template that can be filled in", WRITE);
    let mut rendered = String::new();
    let mut rest = template;
    while let Some((before, after)) = rest.split_once("{{") {
        let (field, after) = after.split_once("}}").ok_or_else(wrong)?;
        let version = || {
            kubernetes.ok_or_else(|| {
                let write = "write the version of the cluster, such as 1.34.0";
                Mistake::new(
                    "components.kubernetes",
                    "is missing, and the offline source goes by it",
                    write,
                )
            })
        };
        rendered.push_str(before);
        match field.trim() {
            ".KubernetesVersion" => rendered.push_str(&format!("v{}", version()?)),
            ".KubernetesVersionNoV" => rendered.push_str(version()?),
            _ => return Err(wrong()),
        }
        rest = after;
    }
    rendered.push_str(rest);
    match rendered.contains("}}") {
        true => Err(wrong()),
        false => Ok(rendered),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(template: &str) -> Result<Option<OfflineSource>, Mistake> {
        parse(template, "", Some("1.34.0"))
    }

    #[test]
    fn an_archive_has_a_digest_and_nothing_else_has() {
        let hex = "a".repeat(64);
        let archive = |template: &str, sha256: &str| parse(template, sha256, Some("1.34.0"));
        let digest: Digest = format!("sha256:{hex}").parse().unwrap();
        let at = |at| {
            Some(OfflineSource::Archive(OfflineArchive {
                at,
                digest: digest.clone(),
            }))
        };
        for (text, place) in [
            ("/opt/b.tar.gz", At::Host(HostPath::fixed("/opt/b.tar.gz"))),
            (
                "file:///opt/{{ .KubernetesVersion }}.tgz",
                At::Host(HostPath::fixed("/opt/v1.34.0.tgz")),
            ),
            ("/opt/b.tar.zst", At::Host(HostPath::fixed("/opt/b.tar.zst"))),
            ("https://s.example/b?sig=x", At::Url("https://s.example/b?sig=x".into())),
        ] {
            for sha256 in [
                hex.clone(),
                format!("sha256:{hex}"),
                format!(" {} ", hex.to_uppercase()),
            ] {
                assert_eq!(archive(text, &sha256).unwrap(), at(place.clone()), "{text}");
            }
            for bad in ["", "canary", &hex[1..]] {
                let mistake = archive(text, bad).unwrap_err();
                assert_eq!(mistake.key, SHA256, "{text}");
                assert!(!mistake.to_string().contains("canary"), "{mistake}");
            }
        }
        for other in ["", "/opt/folder", "oci://r.example/a:1"] {
            assert_eq!(archive(other, &hex).unwrap_err().key, SHA256, "{other}");
        }
        let shown = format!("{:?}", archive("https://s.example/b?sig=canary", &hex).unwrap());
        assert!(!shown.contains("canary"), "{shown}");
    }

    #[test]
    fn a_source_is_a_folder_or_an_artifact_named_for_the_version() {
        let folder = |path| Some(OfflineSource::Folder(HostPath::fixed(path)));
        assert_eq!(source(" ").unwrap(), None);
        assert_eq!(source("/opt/a b/").unwrap(), folder("/opt/a b"));
        assert_eq!(
            source("file:///opt/{{.KubernetesVersion}}").unwrap(),
            folder("/opt/v1.34.0")
        );
        assert_eq!(
            source("/opt/{{ .KubernetesVersionNoV }}/{{ .KubernetesVersion }}").unwrap(),
            folder("/opt/1.34.0/v1.34.0")
        );
        for (text, name) in [
            (
                "oci://r.example:5000/a/b:k8s-{{ .KubernetesVersion }}",
                "r.example:5000/a/b:k8s-v1.34.0",
            ),
            ("oci://r.example/a/", "r.example/a:latest"),
        ] {
            assert_eq!(
                source(text).unwrap(),
                Some(OfflineSource::Registry(name.parse().unwrap()))
            );
        }
    }

    #[test]
    fn what_is_no_source_is_refused_and_not_repeated() {
        const CANARY: &str = "canary-54321";
        for text in [
            "relative/canary-54321",
            "file://host/canary-54321",
            "/opt/../canary-54321",
            "/opt/canary-54321\nx",
            "https://u:canary-54321@r/a.tgz",
            "https://r/a.tgz#canary-54321",
            "http://r/canary-54321.tgz",
            "s3://canary-54321/a.tgz",
            "oci://u:canary-54321@r.example/a",
            "oci://r.example/a?canary-54321",
            "oci://r.example/a#canary-54321",
            "oci://canary-54321",
            "/opt/{{ .Canary-54321 }}",
            "/opt/{{ printf \"canary-54321\" }}",
            "/opt/{{ .KubernetesVersion",
            "/opt/}}canary-54321",
        ] {
            let mistake = source(text).unwrap_err();
            assert_eq!(mistake.key, KEY, "{text}");
            assert!(!mistake.to_string().to_lowercase().contains(CANARY), "{mistake}");
        }
        assert_eq!(
            parse("/{{ .KubernetesVersion }}", "", None).unwrap_err().key,
            "components.kubernetes"
        );
    }
}
