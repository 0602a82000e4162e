//! Names of images as a container runtime takes them.

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
