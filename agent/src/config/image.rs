//! Names of images as a container runtime takes them.

use hostexec::HostPath;
use image::Select;

use super::error::Mistake;

/// The name without blanks at its ends; none if nothing is given. A user, a query or a fragment could hold a secret, and the name goes
/// into files that others read.
pub(super) fn name(key: &'static str, text: &str) -> Result<Option<String>, Mistake> {
    let text = text.trim();
    let (path, digest) = text
        .split_once('@')
        .map_or((text, None), |(path, digest)| (path, Some(digest)));
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-:/[]".contains(c);
    let digest = digest.is_none_or(|digest| digest.starts_with("sha256:") && digest.chars().all(plain));
    if text.is_empty() {
        Ok(None)
    } else if digest && path.chars().all(plain) {
        Ok(Some(text.to_owned()))
    } else {
        let write = "write <registry>/<repository> with :<tag> or @sha256:<digest>, and nothing else";
        Err(Mistake::new(key, "is no image's name", write))
    }
}

/// As [`name`], or an OCI layout in a folder of the host: `oci-layout:///folder`, with `:<tag>` or `@sha256:<digest>` where it has several images.
pub(super) fn name_or_layout(key: &'static str, text: &str) -> Result<Option<String>, Mistake> {
    let text = text.trim();
    match text.strip_prefix(LAYOUT) {
        None => name(key, text),
        Some(rest) if layout(rest).is_some() => Ok(Some(text.to_owned())),
        Some(_) => {
            let write = "write oci-layout:// and an absolute path of the host, with :<tag> or @sha256:<digest> behind it, and nothing else";
            Err(Mistake::new(key, "names no OCI layout", write))
        }
    }
}

/// Before the path of a layout.
const LAYOUT: &str = "oci-layout://";

/// The folder of the layout that an image's name is about, and which of its images is meant; none if the name is about a registry's.
#[must_use]
pub fn on_host(image: &str) -> Option<(HostPath, Option<Select>)> {
    layout(image.strip_prefix(LAYOUT)?)
}

fn layout(text: &str) -> Option<(HostPath, Option<Select>)> {
    let (path, select) = match text.split_once('@') {
        Some((path, digest)) => (path, Some(Select::Digest(digest.parse().ok()?))),
        None => match text.rsplit_once(':') {
            Some((path, tag)) if !tag.contains('/') => {
                let plain = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
                let good = !tag.is_empty() && tag.len() <= 128 && tag.chars().all(plain);
                (path, Some(Select::Tag(good.then_some(tag)?.into())))
            }
            _ => (text, None),
        },
    };
    let plain = |c: char| c.is_ascii_alphanumeric() || "._-/+".contains(c);
    let path = path.trim_end_matches('/');
    path.chars().all(plain).then_some(())?;
    Some((HostPath::new(path).ok()?, select))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_may_lie_in_a_layout_of_the_host() {
        let folder = HostPath::fixed("/opt/rootfs");
        let digest = format!("sha256:{}", "a".repeat(64));
        for (text, select) in [
            ("oci-layout:///opt/rootfs/".to_owned(), None),
            (
                "oci-layout:///opt/rootfs:v1.2".to_owned(),
                Some(Select::Tag("v1.2".into())),
            ),
            (
                format!("oci-layout:///opt/rootfs@{digest}"),
                Some(Select::Digest(digest.parse().unwrap())),
            ),
        ] {
            assert_eq!(
                name_or_layout("k", &format!(" {text} ")).unwrap().as_deref(),
                Some(text.as_str())
            );
            assert_eq!(on_host(&text), Some((folder.clone(), select)));
        }
        assert_eq!(on_host("r.example/a:v1"), None);
        for text in [
            "oci-layout://opt/rootfs",
            "oci-layout:///opt/../rootfs",
            "oci-layout:///opt/rootfs:",
            "oci-layout:///opt/root fs",
            "oci-layout:///opt/rootfs@sha256:1",
            "oci-layout:///opt/rootfs?canary",
            "oci:///opt/rootfs:v1 x",
        ] {
            let mistake = name_or_layout("k", text).unwrap_err();
            assert!(!mistake.to_string().contains("canary"), "{mistake}");
        }
    }
}
