//! The name of the Kubernetes node, which is also the certificate's and the AKS machine's.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A DNS-1123 subdomain: labels of `[a-z0-9-]` that begin and end with a letter or digit, joined by dots, 253 bytes at
/// most. Source: Kubernetes apimachinery, `validation.IsDNS1123Subdomain`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct NodeName(Box<str>);

impl NodeName {
    /// The name itself.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The text is no DNS-1123 subdomain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a DNS-1123 subdomain: write lowercase letters, digits, `-` and `.`, each label beginning and ending with a letter or digit, 253 characters at most"
)]
pub struct BadNodeName;

impl FromStr for NodeName {
    type Err = BadNodeName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let alnum = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let label = |label: &str| {
            let bytes = label.as_bytes();
            bytes.first().copied().is_some_and(alnum)
                && bytes.last().copied().is_some_and(alnum)
                && bytes.iter().all(|&byte| alnum(byte) || byte == b'-')
        };
        if text.len() <= 253 && text.split('.').all(label) {
            Ok(Self(text.into()))
        } else {
            Err(BadNodeName)
        }
    }
}

impl TryFrom<String> for NodeName {
    type Error = BadNodeName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn subdomains_are_taken_as_they_are() {
        for text in ["a", "edge-1", "a.b", "1", "0.example.net", &"a".repeat(253)] {
            assert_eq!(text.parse::<NodeName>().unwrap().as_str(), text);
        }
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "-a",
            "a-",
            "a..b",
            ".a",
            "a.",
            "A",
            "a_b",
            "a b",
            "a\n",
            "é",
            &"a".repeat(254),
        ] {
            assert_eq!(text.parse::<NodeName>(), Err(BadNodeName), "{text:?}");
        }
    }
}
