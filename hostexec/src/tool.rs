//! The table of the host's tools. [`Host`](crate::Host), the program `host-exec` and the image's links all read it;
//! what is not in it cannot be run.

use std::time::Duration;

/// How a tool is run when the agent is in its container.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Under the host's root, in the container's mount namespace.
    Root,
    /// In the host's mount namespace: a mount made under a mere chroot would never reach the host.
    Mounts,
}

macro_rules! tools {
    ($($tool:ident = $name:literal, $way:ident, $seconds:literal;)*) => {
        /// A tool of the host that the agent may run.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Tool {
            $(#[doc = concat!("`", $name, "`")] $tool,)*
        }

        impl Tool {
            /// Every tool, in the table's order.
            pub const ALL: &'static [Self] = &[$(Self::$tool),*];

            /// The name of its program.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$tool => $name),* }
            }

            /// How it is run from within the container.
            #[must_use]
            pub const fn way(self) -> Way {
                match self { $(Self::$tool => Way::$way),* }
            }

            /// The longest that one call may take, unless the call says otherwise.
            #[must_use]
            pub const fn limit(self) -> Duration {
                Duration::from_secs(match self { $(Self::$tool => $seconds),* })
            }
        }
    };
}

tools! {
    // systemd and its machines: a stop waits for the unit's own stop time, so the limit lies above the usual 90 s.
    Systemctl = "systemctl", Root, 150;
    Machinectl = "machinectl", Root, 150;
    SystemdRun = "systemd-run", Root, 300;
    SystemdNspawn = "systemd-nspawn", Root, 60;
    SystemdTmpfiles = "systemd-tmpfiles", Root, 60;
    Journalctl = "journalctl", Root, 30;
    Busctl = "busctl", Root, 30;
    Loginctl = "loginctl", Root, 30;
    Resolvectl = "resolvectl", Root, 30;
    Udevadm = "udevadm", Root, 130;
    // containerd: an import or unpack of the agent's image on a slow disk.
    Ctr = "ctr", Root, 600;
    // kernel and network
    Sysctl = "sysctl", Root, 30;
    Modprobe = "modprobe", Root, 60;
    // Reads back what was swapped out.
    Swapoff = "swapoff", Root, 300;
    Ip = "ip", Root, 30;
    Nft = "nft", Root, 30;
    Iptables = "iptables", Root, 30;
    IptablesSave = "iptables-save", Root, 30;
    IptablesRestore = "iptables-restore", Root, 30;
    Ip6tables = "ip6tables", Root, 30;
    Ip6tablesSave = "ip6tables-save", Root, 30;
    Ip6tablesRestore = "ip6tables-restore", Root, 30;
    // mounts
    Mount = "mount", Mounts, 60;
    Umount = "umount", Mounts, 60;
    Mountpoint = "mountpoint", Mounts, 30;
    Findmnt = "findmnt", Mounts, 30;
    // files
    Ldconfig = "ldconfig", Root, 120;
    Restorecon = "restorecon", Root, 300;
    // packages, in the binary install alone: a download and its scripts.
    AptGet = "apt-get", Root, 1200;
    DpkgQuery = "dpkg-query", Root, 30;
    Tdnf = "tdnf", Root, 1200;
    Dnf = "dnf", Root, 1200;
    Rpm = "rpm", Root, 60;
    // asked for by name in preflight
    Curl = "curl", Root, 60;
}

impl Tool {
    /// The tool whose program bears this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|tool| tool.name() == name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn each_tool_is_found_by_its_name_and_no_name_stands_twice() {
        let names: BTreeSet<_> = Tool::ALL.iter().map(|tool| tool.name()).collect();
        assert_eq!(names.len(), Tool::ALL.len());
        for tool in Tool::ALL {
            assert_eq!(Tool::named(tool.name()), Some(*tool));
        }
        assert_eq!(Tool::named("sh"), None);
    }

    #[test]
    fn fc_h1_what_makes_or_ends_a_mount_runs_among_the_hosts_mounts() {
        for tool in [Tool::Mount, Tool::Umount, Tool::Mountpoint] {
            assert_eq!(tool.way(), Way::Mounts, "{}", tool.name());
        }
    }
}
