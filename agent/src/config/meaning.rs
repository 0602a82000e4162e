//! From the file as written to the configuration as meant: one pass that tells every mistake.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Access, ImageGc, LogLevel, MachineClient, MachineOperations, Mistake, Mistakes, Mount, Settings, amount,
    auth::{self, Auth, KubeletAuth},
    file::{self, File},
    image, offline, routing,
    settings::Kubelet,
    value::{self, given},
};
use crate::model::NodeName;

impl TryFrom<File> for Settings {
    type Error = Mistakes;

    /// # Errors
    /// Every mistake of the file. One without `agent.nodeName` is one: [`super::parse`] names it after its host first.
    fn try_from(mut file: File) -> Result<Self, Mistakes> {
        super::legacy::adapt(&mut file);
        let mut bad = Mistakes::default();
        let parsed = parse(&file, &mut bad);
        match parsed {
            Some(settings) if bad.is_empty() => Ok(settings),
            _ => Err(bad),
        }
    }
}

/// The host's name as a node's: trimmed and lowercase; none if it is every host's.
/// Source: node-agent specification, 2.6.
#[must_use]
pub fn name_of_its_own(host: &str) -> Option<String> {
    let host = host.trim().to_lowercase();
    (!["", "localhost", "localhost.localdomain", "(none)"].contains(&&*host)).then_some(host)
}

impl File {
    /// Names the node after its host, where the file gives no name. Whether it has one then.
    pub(super) fn name_after(&mut self, host: &str) -> bool {
        if given(&self.agent.node_name).is_some() {
            return true;
        }
        let Some(name) = name_of_its_own(host) else {
            return false;
        };
        self.agent.node_name = name;
        self.named_after_host = true;
        true
    }
}

fn node_name(file: &File) -> Result<NodeName, Mistake> {
    const KEY: &str = "agent.nodeName";
    const WRITE: &str = "write a DNS-1123 subdomain: lowercase letters, digits, `-` and `.`";
    let Some(name) = given(&file.agent.node_name) else {
        return Err(Mistake::new(KEY, "is missing", WRITE));
    };
    name.parse().map_err(|_| {
        let wrong = if file.named_after_host {
            "is missing, and the host's name can't be a node's"
        } else {
            "can't be a node's name"
        };
        Mistake::new(KEY, wrong, WRITE)
    })
}

/// Reads every section, so that one pass tells every mistake.
fn parse(file: &File, bad: &mut Mistakes) -> Option<Settings> {
    let File {
        azure,
        agent,
        components,
        bootstrap,
        networking,
        node,
        npd,
        host_routing,
        ..
    } = file;
    let target = azure.target_cluster.as_ref().map_or("", |target| &target.resource_id);
    let cluster = bad.take(value::cluster_id(target));
    let resource_manager = value::resource_manager(&azure.resource_manager_endpoint, &azure.cloud);
    let resource_manager = resource_manager.map_err(|mistakes| bad.extend(mistakes)).ok();
    let auth = auth::parse(azure, bad);
    let log_level = bad.take(log_level(&agent.log_level));
    let log_dir = bad.take(value::path("agent.logDir", &agent.log_dir));
    let node_name = bad.take(node_name(file));
    let machine_client = bad.take(machine_client(&agent.machine_client));
    let machine_operations = bad.take(machine_operations(&agent.machine_operation_mode));
    let host_prefix = bad.take(value::host_prefix(&agent.host_prefix));
    let kubernetes = bad.take(value::version("components.kubernetes", &components.kubernetes));
    let containerd = bad.take(value::version("components.containerd", &components.containerd));
    let runc = bad.take(value::version("components.runc", &components.runc));
    let sandbox_image = bad.take(image::name("components.sandboxImage", &components.sandbox_image));
    let oci_image = bad.take(image::name_or_layout("bootstrap.ociImage", &bootstrap.oci_image));
    let devices = all(bad, &bootstrap.additional_host_devices, |index, text| {
        value::device(index, text)
    });
    let mounts = all(bad, &bootstrap.additional_host_mounts, mount);
    let required_services = all(bad, &bootstrap.additional_required_services, |index, text| {
        value::service(index, text)
    });
    let dns_service_ip = bad.take(value::address("networking.dnsServiceIP", &networking.dns_service_ip));
    let cni = bad.take(value::version("networking.cniVersion", &networking.cni_version));
    let npd = bad.take(value::version("npd.version", &npd.version));
    let max_pods = bad.take(max_pods(node.max_pods));
    let labels = node
        .labels
        .iter()
        .filter_map(|(key, value)| bad.take(value::label(key, value)))
        .collect();
    let taints = all(bad, &node.taints, |index, text| value::taint(index, text));
    let kubelet = kubelet(&node.kubelet, azure.bootstrap_token.is_some(), bad);
    if agent.kubeconfig_data.reveal().is_empty() != node.kubelet.kubeconfig_data.reveal().is_empty() {
        bad.push(Mistake::new(
            "agent.kubeconfigData",
            "and node.kubelet.kubeconfigData are not given together",
            "write both or neither",
        ));
    }
    let (cluster, auth) = (cluster?, auth?);
    let offline = offline::parse(
        &bootstrap.offline_artifacts.source,
        &bootstrap.offline_artifacts.sha256,
        kubernetes.as_ref().and_then(Option::as_deref),
    );
    let offline_artifacts = bad.take(offline);
    let given = !bootstrap.offline_artifacts.source.trim().is_empty();
    let runc = runc?.or_else(|| (!given).then(|| file::Components::RUNC.to_owned()));
    let (routing, unfit_routes) = routing::parse(host_routing);
    Some(Settings {
        unsupported: unsupported(file, &auth).into_iter().chain(unfit_routes).collect(),
        subscription: text(&azure.subscription_id).unwrap_or_else(|| cluster.subscription().to_owned()),
        tenant: text(&azure.tenant_id),
        resource_manager: resource_manager?,
        pool: text(&azure.target_agent_pool_name).unwrap_or_else(|| file::Azure::TARGET_AGENT_POOL_NAME.to_owned()),
        log_level: log_level?,
        log_dir: log_dir?.unwrap_or(file::Agent::LOG_DIR),
        node_name: node_name?,
        machine_client: machine_client?,
        machine_reconcile_interval: match agent.machine_reconcile_interval.0 {
            Duration::ZERO => file::Agent::MACHINE_RECONCILE_INTERVAL,
            interval => interval,
        },
        require_machine_registration: agent.require_machine_registration.unwrap_or(auth.identity().is_some()),
        machine_operations: machine_operations?,
        host_prefix: host_prefix?,
        kubernetes: kubernetes?,
        containerd: containerd?,
        runc,
        sandbox_image: sandbox_image?,
        oci_image: oci_image?,
        offline_artifacts: offline_artifacts?,
        devices,
        mounts,
        required_services,
        dns_service_ip: dns_service_ip?.unwrap_or(file::Networking::DNS_SERVICE_IP),
        cni: cni?,
        npd: npd?,
        max_pods: max_pods?,
        labels: managed_label(labels),
        taints,
        kubelet: kubelet?,
        routing,
        cluster,
        auth,
    })
}

fn text(text: &str) -> Option<String> {
    given(text).map(str::to_owned)
}

fn all<T, U>(bad: &mut Mistakes, items: &[T], parse: impl Fn(usize, &T) -> Result<U, Mistake>) -> Vec<U> {
    items
        .iter()
        .enumerate()
        .filter_map(|(index, item)| bad.take(parse(index, item)))
        .collect()
}

/// AKS tells its own nodes from ours by this label.
fn managed_label(mut labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    labels.insert("kubernetes.azure.com/managed".to_owned(), "false".to_owned());
    labels
}

fn log_level(text: &str) -> Result<LogLevel, Mistake> {
    match &*text.trim().to_ascii_lowercase() {
        "" | "info" => Ok(LogLevel::Info),
        "debug" => Ok(LogLevel::Debug),
        "warning" => Ok(LogLevel::Warning),
        "error" => Ok(LogLevel::Error),
        _ => Err(Mistake::new(
            "agent.logLevel",
            "is no level",
            "write debug, info, warning or error",
        )),
    }
}

fn machine_operations(text: &str) -> Result<MachineOperations, Mistake> {
    match text.trim() {
        "" | "auto" => Ok(MachineOperations::Auto),
        "disable" => Ok(MachineOperations::Disable),
        _ => Err(Mistake::new(
            "agent.machineOperationMode",
            "is no mode",
            "write auto or disable",
        )),
    }
}

fn machine_client(written: &file::MachineClient) -> Result<MachineClient, Mistake> {
    const ENDPOINT: &str = "agent.machineClient.endpointUrl";
    let endpoint = given(&written.endpoint_url);
    match written.mode.trim() {
        "" | "arm" => match endpoint.map(|text| (text, url::Url::parse(text))) {
            None => Ok(MachineClient::Arm { endpoint: None }),
            Some((text, Ok(url))) if ["http", "https"].contains(&url.scheme()) && url.has_host() => {
                Ok(MachineClient::Arm {
                    endpoint: Some(text.to_owned()),
                })
            }
            Some(_) => Err(Mistake::new(
                ENDPOINT,
                "is not an absolute URL",
                "write one with http or https",
            )),
        },
        "in-cluster" => match endpoint {
            None => Err(Mistake::new(
                ENDPOINT,
                "is missing",
                "write the path of the API server to the controller",
            )),
            Some(path) if path.starts_with('/') && !path.starts_with("//") && !path.contains('#') => {
                Ok(MachineClient::InCluster { path: path.to_owned() })
            }
            Some(_) => Err(Mistake::new(
                ENDPOINT,
                "is not a path of the API server",
                "write one that begins with `/`, without scheme, host and fragment",
            )),
        },
        _ => Err(Mistake::new(
            "agent.machineClient.mode",
            "is no mode",
            "write arm or in-cluster",
        )),
    }
}

fn mount(index: usize, written: &file::Mount) -> Result<Mount, Mistake> {
    let key = |end| format!("bootstrap.additionalHostMounts[{index}].{end}");
    let source = value::mount_path(key("source"), &written.source)?;
    let target = match given(&written.target) {
        None => source.clone(),
        Some(target) => value::mount_path(key("target"), target)?,
    };
    let access = if written.read_only {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    };
    Ok(Mount { source, target, access })
}

fn max_pods(written: i64) -> Result<u32, Mistake> {
    match written {
        0 => Ok(file::Node::MAX_PODS),
        1..=2_147_483_647 => Ok(written.unsigned_abs().try_into().unwrap_or(u32::MAX)),
        _ => Err(Mistake::new("node.maxPods", "is out of range", "write 1 to 2147483647")),
    }
}

fn kubelet(written: &file::Kubelet, by_token: bool, bad: &mut Mistakes) -> Option<Kubelet> {
    let api_server = bad.take(value::api_server(&written.cluster_fqdn));
    let certificate_authority = bad.take(value::certificate_authority(&written.ca_cert_data));
    for (key, missing) in [
        ("node.kubelet.clusterFQDN", matches!(api_server, Some(None))),
        ("node.kubelet.caCertData", matches!(certificate_authority, Some(None))),
    ] {
        if by_token && missing {
            bad.push(Mistake::new(key, "is missing", "write it: a bootstrap token needs it"));
        }
    }
    let node_ips = bad.take(value::node_ips(&written.node_ip));
    let verbosity = u32::try_from(written.verbosity.unwrap_or(file::Kubelet::VERBOSITY))
        .map_err(|_| Mistake::new("node.kubelet.verbosity", "is out of range", "write 0 or more"));
    let verbosity = bad.take(verbosity);
    let image_gc = bad.take(image_gc(written));
    let reserved = [
        ("node.kubelet.systemReserved", &written.system_reserved),
        ("node.kubelet.kubeReserved", &written.kube_reserved),
    ];
    for (key, amounts) in reserved {
        bad.take(
            amounts
                .as_ref()
                .map_or(Ok(()), |amounts| amount::reserved(key, amounts)),
        );
    }
    Some(Kubelet {
        verbosity: verbosity?,
        image_gc: image_gc?,
        api_server: api_server?,
        certificate_authority: certificate_authority?,
        node_ips: node_ips?,
        system_reserved: written.system_reserved.clone().unwrap_or_else(|| {
            file::Kubelet::SYSTEM_RESERVED
                .iter()
                .map(|(key, value)| ((*key).to_owned(), (*value).to_owned()))
                .collect()
        }),
        kube_reserved: written.kube_reserved.clone(),
    })
}

fn image_gc(written: &file::Kubelet) -> Result<ImageGc, Mistake> {
    const HIGH: &str = "node.kubelet.imageGCHighThreshold";
    let high = written
        .image_gc_high_threshold
        .unwrap_or(file::Kubelet::IMAGE_GC_HIGH_THRESHOLD);
    let low = written
        .image_gc_low_threshold
        .unwrap_or(file::Kubelet::IMAGE_GC_LOW_THRESHOLD);
    let percent = |value, least| {
        u8::try_from(value)
            .ok()
            .filter(|percent| (least..=100).contains(percent))
    };
    let high = percent(high, 1).ok_or_else(|| Mistake::new(HIGH, "is out of range", "write 1 to 100"))?;
    let low = percent(low, 0)
        .ok_or_else(|| Mistake::new("node.kubelet.imageGCLowThreshold", "is out of range", "write 0 to 100"))?;
    if low < high {
        Ok(ImageGc { high, low })
    } else {
        Err(Mistake::new(
            HIGH,
            "is not above node.kubelet.imageGCLowThreshold",
            "write a higher one",
        ))
    }
}

/// What is rightly written and asks for what this release can't do.
fn unsupported(file: &File, auth: &Auth) -> Vec<Mistake> {
    let provider = file.node.kubelet.image_credential_provider.as_ref();
    let provider = provider.is_some_and(|provider| !provider.config_path.is_empty() || !provider.bin_dir.is_empty());
    let local_dns = file.networking.local_dns.as_ref();
    let local_dns =
        local_dns.is_some_and(|profile| profile.get("mode").and_then(|mode| mode.as_str()) != Some("Disabled"));
    [
        (
            auth.kubelet() == KubeletAuth::None,
            "azure.arc",
            "write bootstrapToken, servicePrincipal or managedIdentity: Kubernetes takes none of Azure Arc",
        ),
        (
            file.agent.require_machine_registration == Some(true),
            "agent.requireMachineRegistration",
            "write false",
        ),
        (
            !file.agent.kubeconfig_data.reveal().is_empty(),
            "agent.kubeconfigData",
            LEAVE_OUT,
        ),
        (
            !file.node.kubelet.kubeconfig_data.reveal().is_empty(),
            "node.kubelet.kubeconfigData",
            LEAVE_OUT,
        ),
        (local_dns, "networking.localDNS", "write mode Disabled, or leave it out"),
        (provider, "node.kubelet.imageCredentialProvider", LEAVE_OUT),
    ]
    .into_iter()
    .filter(|(asked, ..)| *asked)
    .map(|(_, key, write)| Mistake::new(key, "asks for what is not part of this release yet", write))
    .collect()
}

const LEAVE_OUT: &str = "leave it out";
