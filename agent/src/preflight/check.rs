//! The table of checks: their names, which installs they are for, and how heavy it is when a look at one fails.

use std::str::FromStr;

use crate::model::Mode;

/// Which installs a check is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Install {
    Both,
    Container,
    Binary,
}

/// What a check comes to when its look gave no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Weight {
    Warning,
    Error,
}

macro_rules! checks {
    ($($check:ident = $name:literal, $install:ident, $weight:ident;)*) => {
        /// A check, in the order in which a report has them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Check {
            $(#[doc = concat!("`", $name, "`")] $check,)*
        }

        impl Check {
            /// Every check, in order.
            pub const ALL: &'static [Self] = &[$(Self::$check),*];

            /// The name that reports and the command line have for it.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$check => $name),* }
            }

            const fn install(self) -> Install {
                match self { $(Self::$check => Install::$install),* }
            }

            pub(super) const fn weight(self) -> Weight {
                match self { $(Self::$check => Weight::$weight),* }
            }
        }
    };
}

// Source: node-agent specification, 4.2; those that aren't there are ours.
checks! {
    AksMachineGoal = "AKSMachineGoal", Both, Warning;
    AgentConfig = "agent-config", Both, Error;
    ClusterCredentials = "cluster-credentials", Both, Error;
    OfflineArtifacts = "offline-artifacts", Both, Error;
    LocalDns = "local-dns", Both, Error;
    IsPrivilegedUser = "is-privileged-user", Both, Error;
    HostImage = "host-image", Container, Warning;
    HostPackages = "host-packages", Binary, Error;
    HostOsConfiguration = "host-os-configuration", Both, Error;
    HostTargets = "host-targets", Both, Error;
    HostRoot = "host-root", Binary, Error;
    HostTools = "host-tools", Both, Error;
    NspawnRuntime = "nspawn-runtime", Both, Error;
    SystemdVersion = "systemd-version", Both, Warning;
    MountPropagation = "mount-propagation", Container, Error;
    Selinux = "selinux", Both, Warning;
    DockerActive = "docker-active", Both, Warning;
    ContainerdActive = "containerd-active", Binary, Warning;
    KubeletActive = "kubelet-active", Both, Warning;
    ContainerdSync = "containerd-sync", Container, Warning;
    SwapActive = "swap-active", Both, Warning;
    DiskSpace = "disk-space", Both, Error;
    Cgroups = "cgroups", Both, Error;
    KernelSettings = "kernel-settings", Both, Warning;
    Firewall = "firewall", Both, Warning;
    NvidiaDriver = "nvidia-driver", Both, Error;
    ExistingDeployment = "existing-deployment", Both, Error;
    NspawnMachineProvisioning = "nspawn-machine-provisioning", Both, Error;
    KubeletBindAddress = "kubelet-bind-address", Both, Error;
    ContainerdMetricsBindAddress = "containerd-metrics-bind-address", Both, Error;
    Dns = "dns", Both, Error;
    ApiServerReachable = "api-server-reachable", Both, Error;
    Clock = "clock", Both, Warning;
    BootstrapToken = "bootstrap-token", Both, Error;
    AzureIdentity = "azure-identity", Both, Error;
    OciImage = "oci-image", Both, Error;
    KubernetesArtifacts = "kubernetes-artifacts", Both, Error;
    CriArtifacts = "cri-artifacts", Both, Error;
    CniArtifacts = "cni-artifacts", Both, Error;
    NpdArtifact = "npd-artifact", Both, Error;
}

impl Check {
    /// Whether an install has it. The container install has no packages to install, no root of its own to write to, and
    /// runs by the host's containerd.
    #[must_use]
    pub const fn applies(self, mode: Mode) -> bool {
        match (self.install(), mode) {
            (Install::Both, _) | (Install::Container, Mode::Container) | (Install::Binary, Mode::Binary) => true,
            (Install::Container, Mode::Binary) | (Install::Binary, Mode::Container) => false,
        }
    }
}

/// The text names no check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such check")]
pub struct UnknownCheck;

impl FromStr for Check {
    type Err = UnknownCheck;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let text = text.trim();
        let mut all = Self::ALL.iter().copied();
        all.find(|check| check.name().eq_ignore_ascii_case(text))
            .ok_or(UnknownCheck)
    }
}
