//! A value that never prints itself.

use std::fmt;

use serde::{Deserialize, Deserializer};

/// A value whose `Debug` is `***`. It has no `Display` and no `Serialize`; whoever needs it says [`Secret::reveal`].
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Secret<T>(T);

impl<T> Secret<T> {
    /// Keeps `value` from being printed.
    pub const fn new(value: T) -> Self {
        Self(value)
    }

    /// The value, for the one place that must use it.
    pub const fn reveal(&self) -> &T {
        &self.0
    }
}

impl<T> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Secret<T> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        T::deserialize(from).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_nothing_of_the_value() {
        let secret = Secret::new("canary");
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
        assert_eq!(*secret.reveal(), "canary");
    }
}
