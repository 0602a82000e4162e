//! What a machine is to become: settings and facts, put together once.

use std::{collections::BTreeMap, net::IpAddr};

use hostexec::HostPath;
use units::{ServiceName, machine::MachineError};

use crate::{
    config::{self, Device, ImageGc, KubeletAuth, Mistake, Mount, Settings},
    facts::{Facts, OsRelease},
    model::{Arch, MachineName, NodeName, Secret},
};

/// A setting without which there is no node.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// A setting.
    #[error("{0}")]
    Setting(Mistake),
    /// What a machine is given of its host.
    #[error("bootstrap.additionalHostDevices or bootstrap.additionalHostMounts: {0}")]
    Machine(#[from] MachineError),
    /// The host has what a machine can't be given from the agent's image.
    #[error(
        "the host has a GPU of NVIDIA: use a host without, for the install by image does not wire one into its machine"
    )]
    Gpu,
    /// A file of the host's own, which is not ours to throw away.
    #[error("{path} of the host {wrong}: {write}")]
    Existing {
        /// The file.
        path: HostPath,
        /// What is wrong with it.
        wrong: &'static str,
        /// What to do.
        write: &'static str,
    },
}

impl Unfit {
    /// Whether a later start may find it mended without another configuration.
    #[must_use]
    pub const fn may_pass(&self) -> bool {
        match self {
            Self::Setting(_) | Self::Machine(_) | Self::Gpu => false,
            Self::Existing { .. } => true,
        }
    }
}

/// Everything the files and programs of a machine follow from.
#[derive(Clone, Debug)]
pub struct Goal {
    /// The machine.
    pub machine: MachineName,
    /// The node it is.
    pub node: NodeName,
    /// The host's architecture.
    pub arch: Arch,
    /// The host's name.
    pub host_name: String,
    /// The resolver's configuration.
    pub resolv_conf: Option<String>,
    /// The image of the machine's file system.
    pub image: String,
    /// The image that holds a pod's namespaces.
    pub sandbox_image: String,
    /// The kernel's modules on the host.
    pub modules: Option<HostPath>,
    /// Device nodes the machine is given.
    pub devices: Vec<HostPath>,
    /// Devices by systemd's group names.
    pub device_groups: Vec<String>,
    /// Folders of the host the machine is given.
    pub mounts: Vec<Mount>,
    /// Host services the machine needs.
    pub services: Vec<ServiceName>,
    /// kubelet's part.
    pub kubelet: Kubelet,
}

impl Goal {
    /// What `machine` is to become on a host with these facts.
    ///
    /// # Errors
    /// A setting is missing that only a node's start needs.
    pub fn of(settings: &Settings, facts: &Facts, machine: MachineName) -> Result<Self, Unfit> {
        Self::assemble(settings, facts, machine).map_err(Unfit::Setting)
    }

    fn assemble(settings: &Settings, facts: &Facts, machine: MachineName) -> Result<Self, Mistake> {
        let mut devices = facts.devices.clone();
        let mut device_groups = Vec::new();
        for device in settings.devices() {
            match device {
                Device::Node(path) => devices.push(path.clone()),
                Device::Group(name) => device_groups.push(name.clone()),
            }
        }
        devices.sort();
        devices.dedup();
        let services: Result<_, _> = settings.required_services().iter().map(|name| name.parse()).collect();
        let services = services.map_err(|_| {
            let key = "bootstrap.additionalRequiredServices";
            Mistake::new(
                key,
                "has a name that is no service's",
                "write names that end in .service",
            )
        })?;
        Ok(Self {
            machine,
            node: settings.node_name().clone(),
            arch: facts.arch,
            host_name: facts.host_name.clone(),
            resolv_conf: facts.resolv_conf.clone(),
            image: settings
                .oci_image()
                .unwrap_or_else(|| default_image(&facts.os))
                .to_owned(),
            sandbox_image: settings.sandbox_image().unwrap_or(SANDBOX_IMAGE).to_owned(),
            modules: facts.modules.clone(),
            devices,
            device_groups,
            mounts: settings.mounts().to_vec(),
            services,
            kubelet: Kubelet::of(settings, facts)?,
        })
    }
}

/// The image that holds a pod's namespaces, unless the settings name another.
const SANDBOX_IMAGE: &str = "mcr.microsoft.com/oss/kubernetes/pause:3.9";

/// The image of a machine's file system, unless the settings name one. Source: node-agent specification, 5.3.
fn default_image(os: &OsRelease) -> &'static str {
    const RPM: [&str; 10] = [
        "almalinux",
        "amzn",
        "azurelinux",
        "azlinux",
        "centos",
        "fedora",
        "ol",
        "rhel",
        "rocky",
        "sles",
    ];
    let rpm = RPM.contains(&os.id.as_str()) || os.id_like.iter().any(|id| RPM.contains(&id.as_str()));
    match (os.id.as_str(), os.version_id.as_str()) {
        _ if rpm || os.is_acl() => "ghcr.io/azure/agent-azlinux3:v20260626",
        ("ubuntu", "26.04") => "ghcr.io/azure/agent-ubuntu2604:v20260626",
        _ => "ghcr.io/azure/agent-ubuntu2404:v20260626",
    }
}

/// What kubelet's files follow from.
#[derive(Clone, Debug)]
pub struct Kubelet {
    /// The API server's URL.
    pub server: String,
    /// The cluster's CA, PEM.
    pub ca: String,
    /// How kubelet proves who it is.
    pub credential: Credential,
    /// Cluster DNS.
    pub dns_service_ip: IpAddr,
    /// Addresses the node reports, where they are given.
    pub node_ips: Vec<IpAddr>,
    /// Labels the node registers with.
    pub labels: BTreeMap<String, String>,
    /// Taints the node registers with, as written.
    pub taints: Vec<String>,
    /// Pods at most.
    pub max_pods: u32,
    /// kubelet's log level.
    pub verbosity: u32,
    /// When images are removed.
    pub image_gc: ImageGc,
    /// Kept for the system.
    pub system_reserved: BTreeMap<String, String>,
    /// Kept for kubelet and containerd.
    pub kube_reserved: BTreeMap<String, String>,
}

impl Kubelet {
    fn of(settings: &Settings, facts: &Facts) -> Result<Self, Mistake> {
        let server = settings.api_server().ok_or_else(|| {
            Mistake::new(
                "node.kubelet.clusterFQDN",
                "is missing",
                "write the name of the cluster's API server",
            )
        })?;
        let ca = settings
            .certificate_authority()
            .and_then(|pem| std::str::from_utf8(pem).ok())
            .ok_or_else(|| {
                Mistake::new(
                    "node.kubelet.caCertData",
                    "is missing",
                    "write the cluster's CA, PEM in base64",
                )
            })?;
        let computed = || kube_reserved(facts.cores, facts.memory_mib, settings.max_pods());
        Ok(Self {
            server: server.to_owned(),
            ca: ca.to_owned(),
            credential: Credential::of(settings)?,
            dns_service_ip: settings.dns_service_ip(),
            node_ips: settings.node_ips().to_vec(),
            labels: settings.labels().clone(),
            taints: settings.taints().to_vec(),
            max_pods: settings.max_pods(),
            verbosity: settings.verbosity(),
            image_gc: settings.image_gc(),
            system_reserved: settings.system_reserved().clone(),
            kube_reserved: settings.kube_reserved().cloned().unwrap_or_else(computed),
        })
    }
}

/// How kubelet proves who it is.
#[derive(Clone, Debug)]
pub enum Credential {
    /// With a bootstrap token, until it has a certificate.
    Token(Secret<String>),
    /// With what a program prints.
    Exec(Exec),
    /// It can't: what would prove it was not to be read. No node is made so; what a machine is given of its host follows all the same.
    Missing,
}

impl Credential {
    /// Source: node-agent specification, 2.7.
    fn of(settings: &Settings) -> Result<Self, Mistake> {
        match settings.auth().kubelet() {
            KubeletAuth::Token(token) => Ok(Self::Token(Secret::new(token.reveal().to_owned()))),
            KubeletAuth::ServicePrincipal(principal) => Ok(Self::principal(principal, settings.authority_host())),
            KubeletAuth::Managed { client_id } => {
                let client = client_id.map(|id| ("AZURE_CLIENT_ID", id));
                let env = [("AAD_LOGIN_METHOD", "msi")].into_iter().chain(client);
                Ok(Self::Exec(Exec::kubelogin(env, None)))
            }
            KubeletAuth::None => Err(Mistake::new(
                "azure",
                "has no credential that Kubernetes takes",
                "write bootstrapToken, servicePrincipal or managedIdentity",
            )),
        }
    }

    fn principal(principal: &config::ServicePrincipal, authority: &str) -> Self {
        let mut env = vec![
            ("AAD_LOGIN_METHOD", "spn"),
            ("AAD_SERVICE_PRINCIPAL_CLIENT_ID", &principal.client_id),
        ];
        let certificate = match &principal.credential {
            config::Credential::Secret(secret) => {
                env.push(("AAD_SERVICE_PRINCIPAL_CLIENT_SECRET", secret.reveal()));
                None
            }
            config::Credential::Certificate(pem) => Some(pem.clone()),
            config::Credential::File(_) => return Self::Missing,
        };
        env.push(("AZURE_TENANT_ID", &principal.tenant_id));
        // Of the public cloud the program knows it.
        if authority != config::PUBLIC_AUTHORITY {
            env.push(("AZURE_AUTHORITY_HOST", authority));
        }
        Self::Exec(Exec::kubelogin(env, certificate))
    }
}

/// kubelet's credential plugin: the agent's own program in the machine.
#[derive(Clone, Debug)]
pub struct Exec {
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment.
    pub env: Vec<(String, Secret<String>)>,
    /// What its arguments name as its certificate.
    pub certificate: Option<Secret<String>>,
}

impl Exec {
    /// The AKS server application. Source: node-agent specification, 2.4.
    const SERVER: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";
    /// A service principal's certificate and key, in the machine.
    pub(super) const CERTIFICATE: HostPath = HostPath::fixed("/etc/kubernetes/pki/aks-flex-node-principal.pem");

    fn kubelogin<'a>(env: impl IntoIterator<Item = (&'a str, &'a str)>, certificate: Option<Secret<String>>) -> Self {
        let mut args = ["token", "kubelogin", "--server-id", Self::SERVER]
            .map(str::to_owned)
            .to_vec();
        if certificate.is_some() {
            args.extend(["--client-certificate-file", Self::CERTIFICATE.as_str()].map(str::to_owned));
        }
        Self {
            args,
            env: env
                .into_iter()
                .map(|(name, value)| (name.to_owned(), Secret::new(value.to_owned())))
                .collect(),
            certificate,
        }
    }
}

/// What is kept for kubelet and containerd when nothing else is asked for: milli-CPUs by core, memory by pods, at most a
/// quarter of what there is. Source: node-agent specification, 5.8.4.
fn kube_reserved(cores: u32, memory_mib: Option<u64>, max_pods: u32) -> BTreeMap<String, String> {
    let cpu: u32 = (1..=cores)
        .map(|core| match core {
            1 => 60,
            2 => 40,
            3 | 4 => 20,
            _ => 10,
        })
        .sum();
    let wanted = 20 * u64::from(max_pods) + 50;
    let memory = memory_mib.map_or(wanted, |there| wanted.min(there / 4));
    BTreeMap::from([
        ("cpu".to_owned(), format!("{cpu}m")),
        ("memory".to_owned(), format!("{memory}Mi")),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_image_follows_the_hosts_family() {
        let image = |id: &str, like: &str, version: &str| {
            let os = OsRelease::parse(&format!("ID={id}\nID_LIKE=\"{like}\"\nVERSION_ID={version}\n"));
            default_image(&os).split([':', '/']).nth(2).map(str::to_owned).unwrap()
        };
        assert_eq!(image("azurelinux", "flatcar", "3.0.20260809"), "agent-azlinux3");
        assert_eq!(image("azurecontainerlinux", "", ""), "agent-azlinux3");
        assert_eq!(image("other", "rhel fedora", "9"), "agent-azlinux3");
        assert_eq!(image("ubuntu", "debian", "26.04"), "agent-ubuntu2604");
        assert_eq!(image("ubuntu", "debian", "24.04"), "agent-ubuntu2404");
        assert_eq!(image("debian", "", "13"), "agent-ubuntu2404");
    }

    #[test]
    fn kube_reserved_follows_cores_pods_and_memory() {
        for (cores, memory, pods, cpu, mib) in [
            (1, Some(100_000), 110, "60m", "2250Mi"),
            (2, Some(4096), 110, "100m", "1024Mi"),
            (4, None, 30, "140m", "650Mi"),
            (8, Some(16_384), 250, "180m", "4096Mi"),
        ] {
            let reserved = kube_reserved(cores, memory, pods);
            assert_eq!((reserved["cpu"].as_str(), reserved["memory"].as_str()), (cpu, mib));
        }
    }
}
