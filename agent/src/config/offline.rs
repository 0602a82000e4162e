//! Where a node's programs come from when not from their publishers. Source: node-agent specification, 2.3 and 5.4.3.

use hostexec::HostPath;
use image::Reference;

use super::error::Mistake;

const KEY: &str = "bootstrap.offlineArtifacts.source";

/// A bundle of offline artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum OfflineSource {
    /// A folder of the host.
    Folder(HostPath),
    /// An OCI artifact, had without a credential.
    Registry(Reference),
}

/// The source that a template names for a version of Kubernetes (without its `v`); none if nothing is given.
pub(super) fn parse(template: &str, kubernetes: Option<&str>) -> Result<Option<OfflineSource>, Mistake> {
    let template = template.trim();
    if template.is_empty() {
        return Ok(None);
    }
    let source = render(template, kubernetes)?;
    let wrong = |wrong, write| Mistake::new(KEY, wrong, write);
    if let Some(name) = source.strip_prefix("oci://") {
        let name = name.trim_end_matches('/');
        let named = name.parse().map(OfflineSource::Registry);
        let write = "write oci://<registry>/<repository> with :<tag> or @sha256:<digest>, and nothing else";
        return named.map(Some).map_err(|_| wrong("names no OCI artifact", write));
    }
    let path = source.strip_prefix("file://").unwrap_or(&source);
    // What follows `file://` up to a slash would be a host's name.
    let plain = path.starts_with('/') && !path.contains(char::is_control);
    let path = plain.then(|| path.trim_end_matches('/'));
    let folder = path.and_then(|path| HostPath::new(path).ok());
    let write =
        "write an absolute path of the host, with file:// before it or without, or oci://<registry>/<repository>:<tag>";
    folder
        .map(|folder| Some(OfflineSource::Folder(folder)))
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
        parse(template, Some("1.34.0"))
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
            parse("/{{ .KubernetesVersion }}", None).unwrap_err().key,
            "components.kubernetes"
        );
    }
}
