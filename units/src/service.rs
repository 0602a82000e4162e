//! [`ServiceName`]: a unit of the host that ours come after.

use std::str::FromStr;

/// The name of a `.service` unit of the host, plain enough for any unit file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ServiceName(Box<str>);

/// The text is no service's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not the name of a service: write a unit's name that ends in .service, such as himdsd.service")]
pub struct NotAService;

impl ServiceName {
    /// The name as written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name as a line of a unit file holds it.
    pub(crate) fn escaped(&self) -> String {
        self.0.replace('\\', "\\\\")
    }
}

impl FromStr for ServiceName {
    type Err = NotAService;

    /// Source: systemd.unit(5), "valid unit names": the letters, and at most 255 of them. A template is no service.
    fn from_str(text: &str) -> Result<Self, NotAService> {
        let stem = text.strip_suffix(".service").ok_or(NotAService)?;
        let plain = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        let fits = !stem.is_empty() && text.len() <= 255 && stem.chars().all(plain);
        let whole = !stem.starts_with('@') && !stem.ends_with('@');
        if fits && whole {
            Ok(Self(text.into()))
        } else {
            Err(NotAService)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_taken() {
        for good in ["himdsd.service", "a@b.service", "dev-x\\x2dy.service"] {
            assert_eq!(good.parse::<ServiceName>().unwrap().as_str(), good);
        }
    }

    #[test]
    fn what_is_no_service_is_refused() {
        for bad in [
            "",
            ".service",
            "a",
            "a.socket",
            "a b.service",
            "a%i.service",
            "a@.service",
            "a\nb.service",
            "é.service",
        ] {
            assert_eq!(bad.parse::<ServiceName>(), Err(NotAService), "{bad:?}");
        }
        assert!(format!("{}.service", "a".repeat(255)).parse::<ServiceName>().is_err());
    }
}
