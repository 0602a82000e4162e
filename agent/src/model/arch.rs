//! The processor architectures the agent knows: release files, OCI platforms.

use std::{fmt, str::FromStr};

/// A processor architecture, named as Go and OCI name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit Arm.
    Arm64,
}

impl Arch {
    /// The architecture this program was built for, and so the host's.
    #[cfg(target_arch = "x86_64")]
    pub const HERE: Self = Self::Amd64;
    /// The architecture this program was built for, and so the host's.
    #[cfg(target_arch = "aarch64")]
    pub const HERE: Self = Self::Arm64;

    /// The name in release files and OCI platforms.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The text names no architecture the agent knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not an architecture the agent runs on: write amd64 or arm64")]
pub struct UnknownArch;

impl FromStr for Arch {
    type Err = UnknownArch;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "amd64" => Ok(Self::Amd64),
            "arm64" => Ok(Self::Arm64),
            _ => Err(UnknownArch),
        }
    }
}
