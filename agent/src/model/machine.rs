//! The two nspawn machines of a host: one is active, a repave builds the other.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The name of an nspawn machine. Source: node-agent specification, appendix D.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MachineName {
    /// The machine of a first install.
    Kube1,
    /// The machine a first repave builds.
    Kube2,
}

impl MachineName {
    /// The machine of a first install.
    pub const FIRST: Self = Self::Kube1;
    /// Every machine there can be.
    pub const ALL: [Self; 2] = [Self::Kube1, Self::Kube2];

    /// The name as machined knows it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Kube1 => "kube1",
            Self::Kube2 => "kube2",
        }
    }

    /// The other machine.
    #[must_use]
    pub fn alternate(self) -> Self {
        match self {
            Self::Kube1 => Self::Kube2,
            Self::Kube2 => Self::Kube1,
        }
    }
}

impl fmt::Display for MachineName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names none of the two machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a machine of this agent: write kube1 or kube2")]
pub struct UnknownMachine;

impl FromStr for MachineName {
    type Err = UnknownMachine;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or(UnknownMachine)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_machine_is_the_alternate_of_the_other_and_reads_back_from_its_name() {
        for name in MachineName::ALL {
            assert_ne!(name, name.alternate());
            assert_eq!(name, name.alternate().alternate());
            assert_eq!(name.to_string().parse(), Ok(name));
            assert_eq!(serde_json::to_string(&name).unwrap(), format!("\"{name}\""));
        }
    }

    #[test]
    fn other_names_are_refused() {
        for text in ["", "kube3", "KUBE1", "kube1 ", "../kube1"] {
            assert_eq!(text.parse::<MachineName>(), Err(UnknownMachine), "{text:?}");
        }
    }
}
