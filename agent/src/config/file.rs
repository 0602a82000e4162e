//! The configuration file as written: every key, its type, and its default beside it.
//!
//! An empty string, a zero or a null stands for "not given", as in the file's other readers; what is not a default stays
//! as it was written, also where it is wrong. Judging is [`Settings`](super::Settings)' work.

use std::{collections::BTreeMap, fmt};

use serde::Deserialize;
use serde_json::Value;

use super::duration::GoDuration;
use crate::model::Secret;

/// The whole file.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct File {
    pub(super) azure: Azure,
    pub(super) agent: Agent,
    pub(super) components: Components,
    pub(super) bootstrap: Bootstrap,
    pub(super) networking: Networking,
    pub(super) node: Node,
    pub(super) npd: Npd,
    pub(super) host_routing: HostRouting,
    // Sections of older files; `legacy` moves them to where they belong now.
    pub(super) kubernetes: Versioned,
    pub(super) containerd: Versioned,
    pub(super) runc: Versioned,
    pub(super) cni: Versioned,
    /// Whether `agent.nodeName` is the host's name, and not written.
    #[serde(skip)]
    pub(super) named_after_host: bool,
}

impl fmt::Debug for File {
    /// Shows nothing: any string of the file may hold a secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").finish_non_exhaustive()
    }
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Azure {
    pub(super) subscription_id: String,
    pub(super) tenant_id: String,
    pub(super) cloud: String,
    pub(super) resource_manager_endpoint: String,
    pub(super) target_agent_pool_name: String,
    pub(super) target_cluster: Option<TargetCluster>,
    pub(super) service_principal: Option<ServicePrincipal>,
    pub(super) managed_identity: Option<ManagedIdentity>,
    pub(super) bootstrap_token: Option<BootstrapToken>,
    pub(super) arc: Arc,
}

impl Azure {
    pub(super) const TARGET_AGENT_POOL_NAME: &'static str = "aksflexnodes";
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct TargetCluster {
    pub(super) resource_id: String,
    pub(super) location: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ServicePrincipal {
    pub(super) tenant_id: String,
    pub(super) client_id: String,
    pub(super) client_secret: Secret<String>,
    pub(super) client_secret_file: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ManagedIdentity {
    pub(super) client_id: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct BootstrapToken {
    pub(super) token: Secret<String>,
}

/// `machineName`, `resourceGroup`, `location` and `tags` are taken and unused: Arc is managed by others.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Arc {
    pub(super) enabled: bool,
    #[serde(rename = "machineName")]
    _machine_name: String,
    #[serde(rename = "resourceGroup")]
    _resource_group: String,
    #[serde(rename = "location")]
    _location: String,
    #[serde(rename = "tags")]
    _tags: BTreeMap<String, String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Agent {
    pub(super) log_level: String,
    pub(super) log_dir: String,
    pub(super) node_name: String,
    pub(super) machine_client: MachineClient,
    pub(super) machine_reconcile_interval: GoDuration,
    pub(super) require_machine_registration: Option<bool>,
    pub(super) machine_operation_mode: String,
    pub(super) host_prefix: String,
    pub(super) kubeconfig_data: Secret<String>,
}

impl Agent {
    pub(super) const LOG_DIR: hostexec::HostPath = hostexec::HostPath::fixed("/var/log/aks-flex-node");
    pub(super) const MACHINE_RECONCILE_INTERVAL: std::time::Duration = std::time::Duration::from_secs(600);
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct MachineClient {
    pub(super) mode: String,
    pub(super) endpoint_url: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Components {
    pub(super) kubernetes: String,
    pub(super) containerd: String,
    pub(super) runc: String,
    pub(super) sandbox_image: String,
    pub(super) gantry: Gantry,
}

impl Components {
    /// Not with offline artifacts: their manifest names the version.
    pub(super) const RUNC: &'static str = "1.1.12";
}

/// A registry mirror which this agent doesn't set up: `disabled` asks for what is so anyway.
#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Gantry {
    #[serde(rename = "disabled")]
    _disabled: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Bootstrap {
    pub(super) oci_image: String,
    pub(super) offline_artifacts: OfflineArtifacts,
    pub(super) additional_host_devices: Vec<String>,
    pub(super) additional_host_mounts: Vec<Mount>,
    pub(super) additional_required_services: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct OfflineArtifacts {
    pub(super) source: String,
    /// Of an archive, and of nothing else. Not a key of the reference, which takes archives at their word.
    pub(super) sha256: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Mount {
    pub(super) source: String,
    pub(super) target: String,
    pub(super) read_only: bool,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Networking {
    #[serde(rename = "dnsServiceIP")]
    pub(super) dns_service_ip: String,
    pub(super) cni_version: String,
    #[serde(rename = "localDNS")]
    pub(super) local_dns: Option<Value>,
}

impl Networking {
    pub(super) const DNS_SERVICE_IP: std::net::IpAddr = std::net::IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 10));
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Node {
    pub(super) max_pods: i64,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) taints: Vec<String>,
    pub(super) kubelet: Kubelet,
}

impl Node {
    pub(super) const MAX_PODS: u32 = 110;
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Kubelet {
    pub(super) verbosity: Option<i64>,
    #[serde(rename = "imageGCHighThreshold")]
    pub(super) image_gc_high_threshold: Option<i64>,
    #[serde(rename = "imageGCLowThreshold")]
    pub(super) image_gc_low_threshold: Option<i64>,
    #[serde(rename = "clusterFQDN")]
    pub(super) cluster_fqdn: String,
    pub(super) ca_cert_data: String,
    #[serde(rename = "nodeIP")]
    pub(super) node_ip: String,
    pub(super) system_reserved: Option<BTreeMap<String, String>>,
    pub(super) kube_reserved: Option<BTreeMap<String, String>>,
    pub(super) image_credential_provider: Option<ImageCredentialProvider>,
    pub(super) kubeconfig_data: Secret<String>,
    // Of older files.
    #[serde(rename = "dnsServiceIP")]
    pub(super) dns_service_ip: String,
    #[serde(rename = "serverURL")]
    pub(super) server_url: String,
}

impl Kubelet {
    pub(super) const VERBOSITY: i64 = 2;
    pub(super) const IMAGE_GC_HIGH_THRESHOLD: i64 = 85;
    pub(super) const IMAGE_GC_LOW_THRESHOLD: i64 = 80;
    /// The reserves of the system when none are given.
    pub(super) const SYSTEM_RESERVED: [(&'static str, &'static str); 2] = [("cpu", "0"), ("memory", "0")];
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct ImageCredentialProvider {
    pub(super) config_path: String,
    pub(super) bin_dir: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Npd {
    pub(super) version: String,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Versioned {
    pub(super) version: String,
}

/// Routes of the host, as written.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct HostRouting {
    /// Routes to be set before the machine starts.
    pub(super) static_routes: StaticRoutes,
    /// Networks that the host's routes must not hide.
    pub(super) route_overlap: RouteOverlap,
}

/// `hostRouting.staticRoutes`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct StaticRoutes {
    /// Whether the routes are wanted.
    pub(super) enabled: bool,
    /// The routes.
    pub(super) routes: Vec<Route>,
}

/// One route of `hostRouting.staticRoutes.routes`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Route {
    /// An IPv4 network.
    pub(super) destination: String,
    /// An IPv4 address; empty: the device's default gateway.
    pub(super) gateway: String,
    /// A device; empty: that of the default route.
    pub(super) dev: String,
    /// 0: the kernel's default.
    pub(super) metric: u32,
}

/// `hostRouting.routeOverlap`.
#[derive(Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct RouteOverlap {
    /// IPv4 networks.
    pub(super) expected_cidrs: Vec<String>,
    /// `WARN` or `STRICT`; empty: `WARN`.
    pub(super) mode: String,
}
