//! How the agent is installed. Read once, in `main`, and handed down.

use std::fmt;

/// The install the running agent belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Mode {
    /// The agent runs from its image; nothing of it is on the host.
    Container,
    /// The agent is a program of the host.
    Binary,
}

impl Mode {
    /// The variable the agent's image sets, and nothing else does.
    pub const VARIABLE: &'static str = "AKS_FLEX_NODE_CONTAINERIZED";

    /// The install that the value of [`Mode::VARIABLE`] tells of.
    #[must_use]
    pub fn of(value: Option<&str>) -> Self {
        if value == Some("true") {
            Self::Container
        } else {
            Self::Binary
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Container => "container",
            Self::Binary => "binary",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_says_container() {
        assert_eq!(Mode::of(Some("true")), Mode::Container);
        for value in [None, Some(""), Some("TRUE"), Some("1"), Some("false")] {
            assert_eq!(Mode::of(value), Mode::Binary, "{value:?}");
        }
    }
}
