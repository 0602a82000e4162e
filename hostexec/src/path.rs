//! [`HostPath`]: a path of the host, which says nothing yet about where the host is mounted.

use serde::{Deserialize, Serialize};
use std::{borrow::Cow, fmt, str::FromStr};

/// An absolute, plain path of the host: no `.`, no `..`, no empty component, no NUL. Links in it are resolved only when
/// [`Host`](crate::Host) opens it, within the host's root.
///
/// It is no `AsRef<Path>` on purpose: `std::fs` would take it for a path of the container.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct HostPath(Cow<'static, str>);

/// The text is no plain, absolute path.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a path of the host must be absolute and plain (no `.`, `..`, `//`, slash at the end, or NUL)")]
pub struct NotPlain;

impl HostPath {
    /// The host's root.
    pub const ROOT: Self = Self::fixed("/");

    /// Parses a path.
    ///
    /// # Errors
    /// The text is not absolute or not plain.
    pub fn new(text: impl Into<String>) -> Result<Self, NotPlain> {
        let text = text.into();
        if is_plain(text.as_bytes()) {
            Ok(Self(Cow::Owned(text)))
        } else {
            Err(NotPlain)
        }
    }

    /// A path known when the program is written.
    ///
    /// # Panics
    /// On a literal that is no plain, absolute path; in a `const`, already in the build.
    #[must_use]
    pub const fn fixed(text: &'static str) -> Self {
        assert!(
            is_plain(text.as_bytes()),
            "a fixed path of the host must be absolute and plain"
        );
        Self(Cow::Borrowed(text))
    }

    /// The path of something below this one; `below` may have several components.
    ///
    /// # Errors
    /// `below` is absolute or not plain.
    pub fn join(&self, below: &str) -> Result<Self, NotPlain> {
        let base = if self.0 == "/" { "" } else { self.as_str() };
        Self::new(format!("{base}/{below}"))
    }

    /// The folder it is in; none for the root.
    #[must_use]
    pub fn parent(&self) -> Option<Self> {
        match self.0.rsplit_once('/')? {
            (_, "") => None,
            ("", _) => Some(Self::ROOT),
            (parent, _) => Some(Self(Cow::Owned(parent.to_owned()))),
        }
    }

    /// Its last component; empty for the root.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.rsplit_once('/').map_or("", |(_, name)| name)
    }

    /// The path as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is `folder` or below it.
    #[must_use]
    pub fn is_within(&self, folder: &Self) -> bool {
        folder.0 == "/"
            || self
                .0
                .strip_prefix(&*folder.0)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

/// Bytes, not `str`: it also runs while constants are evaluated.
const fn is_plain(text: &[u8]) -> bool {
    if text.is_empty() || text[0] != b'/' {
        return false;
    }
    if text.len() == 1 {
        return true;
    }
    let (mut start, mut i) = (1, 1);
    while i <= text.len() {
        if i == text.len() || text[i] == b'/' {
            let dots = match i - start {
                0 => return false,
                1 => text[start] == b'.',
                2 => text[start] == b'.' && text[start + 1] == b'.',
                _ => false,
            };
            if dots {
                return false;
            }
            start = i + 1;
        } else if text[i] == 0 {
            return false;
        }
        i += 1;
    }
    true
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for HostPath {
    type Err = NotPlain;

    fn from_str(text: &str) -> Result<Self, NotPlain> {
        Self::new(text)
    }
}

impl TryFrom<String> for HostPath {
    type Error = NotPlain;

    fn try_from(text: String) -> Result<Self, NotPlain> {
        Self::new(text)
    }
}

impl From<HostPath> for String {
    fn from(path: HostPath) -> Self {
        path.0.into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_absolute_plain_text_is_a_path() {
        for good in ["/", "/etc", "/etc/x.d/..y", "/a/.b/c..", "/...", "/ü b"] {
            assert_eq!(HostPath::new(good).map(String::from).as_deref(), Ok(good));
        }
        for bad in [
            "", "etc", "./x", "//", "/a//b", "/a/", "/.", "/..", "/a/./b", "/a/../b", "/a/..", "/a\0b",
        ] {
            assert_eq!(HostPath::new(bad), Err(NotPlain), "{bad:?}");
        }
    }

    #[test]
    fn parent_name_and_join_agree() {
        const DEEP: HostPath = HostPath::fixed("/a/b/c");
        let parent = DEEP.parent().unwrap();
        assert_eq!((parent.as_str(), DEEP.name()), ("/a/b", "c"));
        assert_eq!(parent.join("c").unwrap(), DEEP);
        assert_eq!(HostPath::ROOT.join("a/b/c").unwrap(), DEEP);
        assert_eq!(HostPath::fixed("/a").parent(), Some(HostPath::ROOT));
        assert_eq!((HostPath::ROOT.parent(), HostPath::ROOT.name()), (None, ""));
        for bad in ["", "/c", "..", "c/../d", "c/"] {
            assert_eq!(parent.join(bad), Err(NotPlain), "{bad:?}");
        }
    }

    #[test]
    fn a_neighbour_whose_name_begins_alike_is_not_within() {
        let folder = HostPath::fixed("/etc/a");
        assert!(HostPath::fixed("/etc/a/b").is_within(&folder) && folder.is_within(&folder));
        assert!(!HostPath::fixed("/etc/ab").is_within(&folder));
        assert!(folder.is_within(&HostPath::ROOT));
    }
}
