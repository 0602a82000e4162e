//! The configuration as meant: once made, nothing in it can be wrong.

use std::{collections::BTreeMap, fmt, net::IpAddr, time::Duration};

use hostexec::HostPath;

use super::{Auth, Mistake, Mistakes, OfflineSource, Routing};
use crate::model::NodeName;

/// The configuration as meant. `Debug` shows nothing of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Settings {
    pub(super) cluster: ClusterId,
    pub(super) subscription: String,
    pub(super) tenant: Option<String>,
    pub(super) resource_manager: String,
    pub(super) pool: String,
    pub(super) auth: Auth,
    pub(super) log_level: LogLevel,
    pub(super) log_dir: HostPath,
    pub(super) node_name: NodeName,
    pub(super) machine_client: MachineClient,
    pub(super) machine_reconcile_interval: Duration,
    pub(super) require_machine_registration: bool,
    pub(super) machine_operations: MachineOperations,
    pub(super) host_prefix: Option<HostPath>,
    pub(super) kubernetes: Option<String>,
    pub(super) containerd: Option<String>,
    pub(super) runc: Option<String>,
    pub(super) sandbox_image: Option<String>,
    pub(super) oci_image: Option<String>,
    pub(super) offline_artifacts: Option<OfflineSource>,
    pub(super) devices: Vec<Device>,
    pub(super) mounts: Vec<Mount>,
    pub(super) required_services: Vec<String>,
    pub(super) dns_service_ip: IpAddr,
    pub(super) cni: Option<String>,
    pub(super) npd: Option<String>,
    pub(super) max_pods: u32,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<String>,
    pub(super) kubelet: Kubelet,
    pub(super) routing: Routing,
    pub(super) unsupported: Vec<Mistake>,
}

/// What kubelet is given.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Kubelet {
    pub(super) verbosity: u32,
    pub(super) image_gc: ImageGc,
    pub(super) api_server: Option<String>,
    pub(super) certificate_authority: Option<Vec<u8>>,
    pub(super) node_ips: Vec<IpAddr>,
    pub(super) system_reserved: BTreeMap<String, String>,
    pub(super) kube_reserved: Option<BTreeMap<String, String>>,
}

/// The resource ID of a managed cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterId {
    pub(super) text: Box<str>,
    pub(super) subscription: Box<str>,
    pub(super) resource_group: Box<str>,
    pub(super) name: Box<str>,
}

impl ClusterId {
    /// The ID as it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The subscription's UUID.
    #[must_use]
    pub fn subscription(&self) -> &str {
        &self.subscription
    }

    /// The resource group.
    #[must_use]
    pub fn resource_group(&self) -> &str {
        &self.resource_group
    }

    /// The cluster's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }
}

/// How much is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LogLevel {
    /// Commands too.
    Debug,
    /// Changes of state.
    #[default]
    Info,
    /// What was coped with.
    Warning,
    /// What a person must act on.
    Error,
}

/// How the agent reaches the AKS machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineClient {
    /// Through Azure Resource Manager, or a stand-in for it.
    Arm {
        /// The stand-in's URL.
        endpoint: Option<String>,
    },
    /// Through a path of the API server.
    InCluster {
        /// The path, query and all.
        path: String,
    },
}

/// Whether the daemon obeys MachineOperations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineOperations {
    /// Where the cluster has them.
    Auto,
    /// Never.
    Disable,
}

/// A device of the host that the machine is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// A node below `/dev`.
    Node(HostPath),
    /// A group, as `DeviceAllow=` names it.
    Group(String),
}

/// A path that stands in a mount: without blanks and `:`.
pub type MountPoint = HostPath;

/// A folder or file of the host that the machine is to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// On the host.
    pub source: MountPoint,
    /// In the machine.
    pub target: MountPoint,
    /// Whether the machine may write to it.
    pub access: Access,
}

/// Whether a mount can be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// It can.
    ReadWrite,
    /// It can't.
    ReadOnly,
}

/// When kubelet removes images, in percent of the disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ImageGc {
    /// Above it, images are removed.
    pub high: u8,
    /// Down to it.
    pub low: u8,
}

impl fmt::Debug for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Settings").finish_non_exhaustive()
    }
}

/// What the rest of the agent asks for.
impl Settings {
    /// The cluster to join.
    #[must_use]
    pub fn cluster(&self) -> &ClusterId {
        &self.cluster
    }

    /// The subscription of the agent pool.
    #[must_use]
    pub fn subscription(&self) -> &str {
        &self.subscription
    }

    /// The tenant, where it is given.
    #[must_use]
    pub fn tenant(&self) -> Option<&str> {
        self.tenant.as_deref()
    }

    /// Azure Resource Manager's URL, without a slash at its end.
    #[must_use]
    pub fn resource_manager(&self) -> &str {
        &self.resource_manager
    }

    /// The agent pool of the AKS machine.
    #[must_use]
    pub fn pool(&self) -> &str {
        &self.pool
    }

    /// The credentials.
    #[must_use]
    pub fn auth(&self) -> &Auth {
        &self.auth
    }

    /// How much is logged.
    #[must_use]
    pub fn log_level(&self) -> LogLevel {
        self.log_level
    }

    /// The folder of the log file.
    #[must_use]
    pub fn log_dir(&self) -> &HostPath {
        &self.log_dir
    }

    /// The node's name.
    #[must_use]
    pub fn node_name(&self) -> &NodeName {
        &self.node_name
    }

    /// How the AKS machine is reached.
    #[must_use]
    pub fn machine_client(&self) -> &MachineClient {
        &self.machine_client
    }

    /// How often the AKS machine is looked at.
    #[must_use]
    pub fn machine_reconcile_interval(&self) -> Duration {
        self.machine_reconcile_interval
    }

    /// Whether a node without an AKS machine is refused.
    #[must_use]
    pub fn requires_machine_registration(&self) -> bool {
        self.require_machine_registration
    }

    /// Whether MachineOperations are obeyed.
    #[must_use]
    pub fn machine_operations(&self) -> MachineOperations {
        self.machine_operations
    }

    /// The binary install's root, where one is declared.
    #[must_use]
    pub fn host_prefix(&self) -> Option<&HostPath> {
        self.host_prefix.as_ref()
    }

    /// Kubernetes' version, without a `v`. `start` needs it.
    #[must_use]
    pub fn kubernetes(&self) -> Option<&str> {
        self.kubernetes.as_deref()
    }

    /// The machine's containerd's version, where one is given.
    #[must_use]
    pub fn containerd(&self) -> Option<&str> {
        self.containerd.as_deref()
    }

    /// runc's version; none where offline artifacts name it.
    #[must_use]
    pub fn runc(&self) -> Option<&str> {
        self.runc.as_deref()
    }

    /// The image of pods' sandboxes, where one is given.
    #[must_use]
    pub fn sandbox_image(&self) -> Option<&str> {
        self.sandbox_image.as_deref()
    }

    /// The machine's rootfs image, where one is given.
    #[must_use]
    pub fn oci_image(&self) -> Option<&str> {
        self.oci_image.as_deref()
    }

    /// Where the machine's programs come from when not from their publishers.
    #[must_use]
    pub const fn offline_artifacts(&self) -> Option<&OfflineSource> {
        self.offline_artifacts.as_ref()
    }

    /// Devices the machine is to have besides the usual ones.
    #[must_use]
    pub fn devices(&self) -> &[Device] {
        &self.devices
    }

    /// Mounts the machine is to have besides the usual ones.
    #[must_use]
    pub fn mounts(&self) -> &[Mount] {
        &self.mounts
    }

    /// Services of the host that the machine starts after and requires.
    #[must_use]
    pub fn required_services(&self) -> &[String] {
        &self.required_services
    }

    /// The cluster's DNS service.
    #[must_use]
    pub fn dns_service_ip(&self) -> IpAddr {
        self.dns_service_ip
    }

    /// The CNI plugins' version, where one is given.
    #[must_use]
    pub fn cni(&self) -> Option<&str> {
        self.cni.as_deref()
    }

    /// The node problem detector's version, without a `v`, where one is given.
    #[must_use]
    pub fn npd(&self) -> Option<&str> {
        self.npd.as_deref()
    }

    /// The most pods of the node.
    #[must_use]
    pub fn max_pods(&self) -> u32 {
        self.max_pods
    }

    /// The node's labels, the forced one included.
    #[must_use]
    pub fn labels(&self) -> &BTreeMap<String, String> {
        &self.labels
    }

    /// The node's taints, `key=value:Effect` or `key:Effect`.
    #[must_use]
    pub fn taints(&self) -> &[String] {
        &self.taints
    }

    /// kubelet's log verbosity.
    #[must_use]
    pub fn verbosity(&self) -> u32 {
        self.kubelet.verbosity
    }

    /// When kubelet removes images.
    #[must_use]
    pub fn image_gc(&self) -> ImageGc {
        self.kubelet.image_gc
    }

    /// The API server's URL: always there with a bootstrap token.
    #[must_use]
    pub fn api_server(&self) -> Option<&str> {
        self.kubelet.api_server.as_deref()
    }

    /// The cluster's CA certificates, as PEM: always there with a bootstrap token.
    #[must_use]
    pub fn certificate_authority(&self) -> Option<&[u8]> {
        self.kubelet.certificate_authority.as_deref()
    }

    /// The node's addresses, where they are given.
    #[must_use]
    pub fn node_ips(&self) -> &[IpAddr] {
        &self.kubelet.node_ips
    }

    /// What is reserved for the system.
    #[must_use]
    pub fn system_reserved(&self) -> &BTreeMap<String, String> {
        &self.kubelet.system_reserved
    }

    /// What is reserved for Kubernetes; none: computed from the host.
    #[must_use]
    pub fn kube_reserved(&self) -> Option<&BTreeMap<String, String>> {
        self.kubelet.kube_reserved.as_ref()
    }

    /// The host's routes.
    #[must_use]
    pub fn routing(&self) -> &Routing {
        &self.routing
    }

    /// Settings that ask for what this release can't do. `start` refuses them; a daemon that meets them, after an
    /// upgrade back for one, warns and serves the node as it is.
    #[must_use]
    pub fn unsupported(&self) -> &[Mistake] {
        &self.unsupported
    }

    /// Who gives out tokens for that resource manager: the public cloud's authority, unless it is another cloud's own. Source: node-agent
    /// specification, 2.4.
    #[must_use]
    pub fn authority_host(&self) -> &'static str {
        super::authority_of(&self.resource_manager)
    }

    /// Whether a node can be made of these settings by this release.
    ///
    /// # Errors
    /// Every setting that asks for what it can't do, and every one that only `start` needs.
    pub fn startable(&self) -> Result<(), Mistakes> {
        let mut bad = Mistakes::default();
        if self.kubernetes.is_none() {
            bad.push(Mistake::new(
                "components.kubernetes",
                "is missing",
                "write the version, such as 1.34.0",
            ));
        }
        for (key, is_missing, write) in [
            (
                "node.kubelet.clusterFQDN",
                self.api_server().is_none(),
                "write the name of the cluster's API server",
            ),
            (
                "node.kubelet.caCertData",
                self.certificate_authority().is_none(),
                "write the cluster's CA, PEM in base64",
            ),
        ] {
            if is_missing {
                bad.push(Mistake::new(key, "is missing", write));
            }
        }
        bad.extend(self.unsupported.iter().cloned());
        if bad.is_empty() { Ok(()) } else { Err(bad) }
    }
}
