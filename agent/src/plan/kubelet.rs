//! kubelet in the machine: configuration, credential, unit and drop-ins.

use hostexec::HostPath;
use serde_json::{Value, json};

use super::{
    Goal,
    goal::{Credential, Exec, Kubelet},
};
use crate::step::{File, Place};

/// The unit's name in the machine.
pub(super) const UNIT: &str = "kubelet.service";

const CA: &str = "/etc/kubernetes/pki/apiserver-client-ca.crt";
const CONFIG: &str = "/var/lib/kubelet/config.yaml";
const BOOTSTRAP: &str = "/var/lib/kubelet/bootstrap-kubeconfig";
pub(super) const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// kubelet's client certificate. Its kubeconfig says nothing of it: that is written as soon as kubelet starts to ask for one.
/// Source: kubelet's `--cert-dir` and `rotateCertificates`; seen with 1.20.
///
/// An exec credential too is what kubelet asks for this one with: `rotateCertificates` has it work with nothing else. Source: kubelet's
/// `buildKubeletClientConfig`.
pub(super) const CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const MANIFESTS: &str = "/etc/kubernetes/manifests";

/// The agent's program in the machine.
pub(crate) const AGENT: &str = "/usr/local/bin/aks-flex-node";

/// kubelet's cipher suites. Source: node-agent specification, 5.8.2.
const CIPHERS: [&str; 8] = [
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
];

/// kubelet's files.
pub(super) fn files(goal: &Goal) -> Vec<File> {
    let place = Place::Machine(goal.machine);
    let kubelet = &goal.kubelet;
    let open = |path, text: String| File::open(place, HostPath::fixed(path), 0o644, text);
    let secret = |path, text| File::secret(place, path, text);
    let credential = match &kubelet.credential {
        Credential::Token(token) => {
            let user = json!({ "token": token.reveal() });
            vec![secret(HostPath::fixed(BOOTSTRAP), kubeconfig(&kubelet.server, user))]
        }
        Credential::Exec(exec) => {
            let certificate = exec.certificate.iter();
            let certificate = certificate.map(|pem| secret(Exec::CERTIFICATE, pem.reveal().clone()));
            let text = kubeconfig(&kubelet.server, exec_user(exec));
            certificate.chain([secret(HostPath::fixed(KUBECONFIG), text)]).collect()
        }
        Credential::Missing => Vec::new(),
    };
    let mut files = vec![
        File::folder(place, HostPath::fixed(MANIFESTS), 0o700),
        open(CA, kubelet.ca.clone()),
        open(CONFIG, config(kubelet)),
        open(
            "/etc/systemd/system/kubelet.service",
            include_str!("../../files/kubelet.service").to_owned(),
        ),
        open(
            "/etc/systemd/system/kubelet.service.d/10-kubeconfig.conf",
            variable("KUBELET_KUBECONFIG_ARGS", &kubeconfig_args(&kubelet.credential)),
        ),
        open(
            "/etc/systemd/system/kubelet.service.d/20-node-config.conf",
            variable("KUBELET_NODE_CONFIG_ARGS", &node_args(goal)),
        ),
        open(
            "/etc/systemd/system/kubelet.service.d/50-env-file.conf",
            "[Service]\nEnvironmentFile=-/etc/default/kubelet\n".to_owned(),
        ),
    ];
    files.extend(credential);
    files
}

fn kubeconfig_args(credential: &Credential) -> Vec<String> {
    let own = format!("--kubeconfig={KUBECONFIG}");
    match credential {
        Credential::Token(_) => vec![format!("--bootstrap-kubeconfig={BOOTSTRAP}"), own],
        Credential::Exec(_) | Credential::Missing => vec![own],
    }
}

fn node_args(goal: &Goal) -> Vec<String> {
    let kubelet = &goal.kubelet;
    let mut args = vec![format!("--hostname-override={}", goal.node.as_str())];
    if !kubelet.node_ips.is_empty() {
        let ips: Vec<String> = kubelet.node_ips.iter().map(ToString::to_string).collect();
        args.push(format!("--node-ip={}", ips.join(",")));
    }
    let labels: Vec<String> = kubelet
        .labels
        .iter()
        .map(|(key, value)| format!("{key}={value}"))
        .collect();
    args.push(format!("--node-labels={}", labels.join(",")));
    if !kubelet.taints.is_empty() {
        let mut taints = kubelet.taints.clone();
        taints.sort();
        args.push(format!("--register-with-taints={}", taints.join(",")));
    }
    args
}

/// A drop-in that sets one variable. Source: systemd.exec(5), "Environment="; systemd.syntax(7), "Quoting".
fn variable(name: &str, args: &[String]) -> String {
    let value: String = args
        .join(" ")
        .chars()
        .map(|letter| match letter {
            '"' | '\\' => format!("\\{letter}"),
            '%' => "%%".to_owned(),
            _ => letter.to_string(),
        })
        .collect();
    format!("[Service]\nEnvironment=\"{name}={value}\"\n")
}

fn kubeconfig(server: &str, user: Value) -> String {
    yaml(&json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "cluster", "cluster": { "certificate-authority": CA, "server": server } }],
        "users": [{ "name": "kubelet", "user": user }],
        "contexts": [{ "name": "default", "context": { "cluster": "cluster", "user": "kubelet" } }],
        "current-context": "default",
    }))
}

fn exec_user(exec: &Exec) -> Value {
    let env: Vec<Value> = exec
        .env
        .iter()
        .map(|(name, value)| json!({ "name": name, "value": value.reveal() }))
        .collect();
    json!({ "exec": {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": AGENT,
        "args": exec.args,
        "env": env,
        "interactiveMode": "Never",
        "provideClusterInfo": false,
    } })
}

/// Block style, every top-level key at column 0.
fn config(kubelet: &Kubelet) -> String {
    yaml(&json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "0.0.0.0",
        "authentication": {
            "anonymous": { "enabled": false },
            "webhook": { "enabled": true },
            "x509": { "clientCAFile": CA },
        },
        "authorization": { "mode": "Webhook" },
        "cgroupDriver": "systemd",
        "cgroupsPerQOS": true,
        "clusterDNS": [kubelet.dns_service_ip],
        "clusterDomain": "cluster.local",
        "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
        "enableServer": true,
        "enforceNodeAllocatable": ["pods"],
        "eventRecordQPS": 0,
        "imageGCHighThresholdPercent": kubelet.image_gc.high,
        "imageGCLowThresholdPercent": kubelet.image_gc.low,
        "kubeReserved": kubelet.kube_reserved,
        "logging": { "verbosity": kubelet.verbosity },
        "maxPods": kubelet.max_pods,
        "nodeStatusUpdateFrequency": "10s",
        "podPidsLimit": -1,
        "protectKernelDefaults": true,
        "readOnlyPort": 0,
        "resolvConf": "/etc/resolv.conf",
        "rotateCertificates": true,
        "runtimeRequestTimeout": "15m",
        "staticPodPath": MANIFESTS,
        "streamingConnectionIdleTimeout": "4h",
        "systemReserved": kubelet.system_reserved,
        "tlsCipherSuites": CIPHERS,
        "volumePluginDir": "/etc/kubernetes/volumeplugins",
    }))
}

fn yaml(value: &Value) -> String {
    serde_yaml_ng::to_string(value).expect("JSON values have a YAML form")
}
