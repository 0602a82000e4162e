//! The host as it was found: what a plan may depend on besides the settings.

mod remains;

use std::collections::BTreeMap;

use hostexec::HostPath;
use units::host::Family;

use crate::model::{Arch, MachineName, Secret};

pub use remains::{Folder, Remains};

/// What one look at the host saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Facts {
    /// The processor architecture.
    pub arch: Arch,
    /// The host's name, as it is written.
    pub host_name: String,
    /// Memory in MiB, where the kernel says.
    pub memory_mib: Option<u64>,
    /// Processors.
    pub cores: u32,
    /// The operating system.
    pub os: OsRelease,
    /// The resolver's configuration, links followed.
    pub resolv_conf: Option<String>,
    /// The kernel's modules, where it has any.
    pub modules: Option<HostPath>,
    /// Device nodes a machine is given, sorted.
    pub devices: Vec<HostPath>,
    /// Whether the host has NVIDIA devices.
    pub gpu: Gpu,
    /// What stands in each machine's folder.
    pub rootfs: BTreeMap<MachineName, Rootfs>,
    /// What is mounted and swapped to at a boot: `/etc/fstab`, where there is one.
    pub fstab: Option<Existing>,
    /// Whether a copy of an earlier one is there: `/etc/fstab.bak`.
    pub fstab_kept: Presence,
    /// Docker's settings, where there are any: `/etc/docker/daemon.json`.
    pub docker: Option<Existing>,
    /// Of the units that a plan asks about, those that the host has.
    pub units: Vec<&'static str>,
    /// Firewalls of the host that a unit of its own sets and that may be started.
    pub firewalls: Vec<Family>,
}

/// A file of the host's own. What is written in its place is no more open than it was.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Existing {
    /// All of it. It may hold a secret.
    pub text: Secret<String>,
    /// Permissions.
    pub mode: u32,
}

/// Whether something is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// It is.
    There,
    /// It is not.
    Absent,
}

/// Whether the host has a GPU the agent would have to wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gpu {
    /// None seen.
    None,
    /// At least one `/dev/nvidia*`.
    Nvidia,
}

/// The fields of os-release that decide something. Source: os-release(5).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct OsRelease {
    /// `ID`
    pub id: String,
    /// `ID_LIKE`, split
    pub id_like: Vec<String>,
    /// `VARIANT_ID`
    pub variant_id: String,
    /// `VERSION_ID`
    pub version_id: String,
}

impl OsRelease {
    /// Reads the text of an os-release file; what isn't an assignment is passed over, as the format asks.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut found = Self::default();
        for (key, value) in text.lines().filter_map(|line| line.trim().split_once('=')) {
            let value = unquote(value);
            match key {
                "ID" => found.id = value,
                "ID_LIKE" => found.id_like = value.split_whitespace().map(str::to_owned).collect(),
                "VARIANT_ID" => found.variant_id = value,
                "VERSION_ID" => found.version_id = value,
                _ => {}
            }
        }
        found
    }

    /// Whether this is Azure Container Linux; its older form carries the name in `ID`.
    #[must_use]
    pub fn is_acl(&self) -> bool {
        self.variant_id == "azurecontainerlinux" || self.id == "azurecontainerlinux"
    }
}

fn unquote(value: &str) -> String {
    let inner = ['"', '\'']
        .iter()
        .find_map(|quote| value.strip_prefix(*quote)?.strip_suffix(*quote))
        .unwrap_or(value);
    let mut plain = String::with_capacity(inner.len());
    let mut letters = inner.chars();
    while let Some(letter) = letters.next() {
        plain.push(if letter == '\\' {
            letters.next().unwrap_or(letter)
        } else {
            letter
        });
    }
    plain
}

/// What stands in a machine's folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Rootfs {
    /// Nothing, or an empty folder.
    Absent,
    /// The whole of this image, put there by the agent.
    Whole {
        /// As the settings named it.
        image: String,
    },
    /// Something the agent did not put there.
    Foreign,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_forms_of_acl_are_known_quoted_or_not() {
        let new = OsRelease::parse(
            "ID=azurelinux\nID_LIKE=\"flatcar\"\nVARIANT_ID='azurecontainerlinux'\nVERSION_ID=\"3.0\"\n",
        );
        assert!(new.is_acl());
        assert_eq!(
            (new.id_like.as_slice(), new.version_id.as_str()),
            (["flatcar".to_owned()].as_slice(), "3.0")
        );
        assert!(OsRelease::parse("# old\nID=azurecontainerlinux\n").is_acl());
        assert!(!OsRelease::parse("ID=azurelinux\nNONSENSE\nVERSION_ID=3.0\n").is_acl());
    }
}
