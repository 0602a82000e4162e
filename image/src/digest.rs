//! A SHA-256 digest as a value: what names an image, a blob, a layer.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

const PREFIX: &str = "sha256:";

/// A SHA-256 digest: `sha256:` and 64 lowercase hex digits. Source: OCI image-spec, descriptor.md, "Digests".
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Digest(Box<str>);

/// Why a text is no digest. The texts are fixed: they never repeat the input, which may hold a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DigestError {
    /// There is no `sha256:` before the digits.
    #[error("a digest starts with `sha256:`; no other algorithm is taken")]
    Algorithm,
    /// There are too few or too many digits.
    #[error("a sha256 digest has exactly 64 hexadecimal digits")]
    Length,
    /// A digit is upper case.
    #[error("a digest's hexadecimal digits are lower case")]
    UpperCase,
    /// A character is no digit.
    #[error("a digest holds hexadecimal digits only")]
    NotHex,
}

impl Digest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        Self::from_hash(Sha256::new_with_prefix(bytes))
    }

    /// Ends a hash that was fed elsewhere, for those who stream.
    #[must_use]
    pub fn from_hash(hash: Sha256) -> Self {
        let mut text = String::with_capacity(PREFIX.len() + 64);
        text.push_str(PREFIX);
        for byte in hash.finalize() {
            for nibble in [byte >> 4, byte & 15] {
                text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
            }
        }
        Self(text.into())
    }

    /// Takes 64 hex digits as a person writes them: either case, an optional `sha256:` before them, space around.
    ///
    /// # Errors
    /// When there are not exactly 64 digits, or something else is among them.
    pub fn parse_hex_lenient(text: &str) -> Result<Self, DigestError> {
        let text = text.trim();
        let hex = match text.get(..PREFIX.len()) {
            Some(head) if head.eq_ignore_ascii_case(PREFIX) => &text[PREFIX.len()..],
            Some(_) | None => text,
        };
        Self::from_hex(&hex.to_ascii_lowercase())
    }

    /// The 64 digits alone.
    #[must_use]
    pub fn hex(&self) -> &str {
        &self.0[PREFIX.len()..]
    }

    /// The whole text, `sha256:…`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    fn from_hex(hex: &str) -> Result<Self, DigestError> {
        if hex.chars().any(|c| !c.is_ascii_hexdigit()) {
            return Err(DigestError::NotHex);
        }
        if hex.len() != 64 {
            return Err(DigestError::Length);
        }
        if hex.bytes().any(|c| c.is_ascii_uppercase()) {
            return Err(DigestError::UpperCase);
        }
        Ok(Self(format!("{PREFIX}{hex}").into()))
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        Self::from_hex(text.strip_prefix(PREFIX).ok_or(DigestError::Algorithm)?)
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;

    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

impl From<Digest> for String {
    fn from(digest: Digest) -> Self {
        digest.0.into()
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    #[test]
    fn the_digest_of_nothing_is_the_known_one() {
        assert_eq!(Digest::of(b"").to_string(), format!("sha256:{HEX}"));
        assert_eq!(Digest::of(b"").hex(), HEX);
    }

    #[test]
    fn fc_c9_only_sha256_and_64_lowercase_digits_are_a_digest() {
        let table = [
            (format!("sha256:{HEX}"), Ok(())),
            (HEX.to_owned(), Err(DigestError::Algorithm)),
            (format!("sha512:{HEX}{HEX}"), Err(DigestError::Algorithm)),
            (format!("SHA256:{HEX}"), Err(DigestError::Algorithm)),
            (format!("sha256:{}", &HEX[1..]), Err(DigestError::Length)),
            (format!("sha256:{HEX}0"), Err(DigestError::Length)),
            ("sha256:".to_owned(), Err(DigestError::Length)),
            (format!("sha256:{}", HEX.to_uppercase()), Err(DigestError::UpperCase)),
            (format!("sha256:g{}", &HEX[1..]), Err(DigestError::NotHex)),
            (format!("sha256: {}", &HEX[1..]), Err(DigestError::NotHex)),
        ];
        for (text, want) in table {
            assert_eq!(text.parse::<Digest>().map(drop), want, "{text}");
        }
    }

    #[test]
    fn digits_of_a_person_are_lowered_and_their_prefix_is_tolerated() {
        let digest = Digest::of(b"");
        for text in [
            HEX.to_owned(),
            HEX.to_uppercase(),
            format!("sha256:{HEX}"),
            format!(" SHA256:{HEX}\n"),
        ] {
            assert_eq!(Digest::parse_hex_lenient(&text), Ok(digest.clone()), "{text}");
        }
        for text in [
            &HEX[1..],
            "",
            &format!("{}z", &HEX[1..]),
            &format!("sha512:{HEX}"),
            &format!("{HEX} {HEX}"),
        ] {
            assert!(Digest::parse_hex_lenient(text).is_err(), "{text}");
        }
    }

    #[test]
    fn json_goes_through_the_same_door() {
        assert_eq!(
            serde_json::to_string(&Digest::of(b"")).unwrap(),
            format!("\"sha256:{HEX}\"")
        );
        assert!(serde_json::from_str::<Digest>("\"sha256:0\"").is_err());
    }
}
