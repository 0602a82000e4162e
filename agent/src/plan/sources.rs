//! Where a machine's programs come from. Source: node-agent specification, 5.4.2.

use hostexec::HostPath;

use super::{Goal, join};
use crate::step::{Download, Member, Plan, Proof, Step, Unpack};

/// Where a machine's programs lie.
const BIN: &str = "/usr/local/bin";
/// Where CNI plugins lie.
const CNI: &str = "/opt/cni/bin";

/// All downloads of a machine, side by side.
pub(super) fn downloads(goal: &Goal) -> Plan {
    let arch = goal.arch;
    let versions = &goal.versions;
    let mut plans: Vec<Plan> = [
        ("download-kubelet", "kubelet"),
        ("download-kubectl", "kubectl"),
        ("download-kube-proxy", "kube-proxy"),
    ]
    .map(|(task, name)| {
        let version = versions.kubernetes.to_string();
        let url = format!("https://dl.k8s.io/v{version}/bin/linux/{arch}/{name}");
        let proof = Proof::Sha256At(format!("{url}.sha256"));
        let unpack = Unpack::Program {
            to: join(&HostPath::fixed(BIN), name),
        };
        Plan::task(
            task,
            Step::Download(Download {
                machine: goal.machine,
                component: name,
                version,
                url,
                proof,
                unpack,
            }),
        )
    })
    .into();
    let tls = |task, component, version: String, url, unpack| {
        let proof = Proof::Tls;
        Plan::task(
            task,
            Step::Download(Download {
                machine: goal.machine,
                component,
                version,
                url,
                proof,
                unpack,
            }),
        )
    };
    let v = &versions.crictl;
    plans.push(tls(
        "download-crictl",
        "crictl",
        v.to_string(),
        format!("https://github.com/kubernetes-sigs/cri-tools/releases/download/v{v}/crictl-v{v}-linux-{arch}.tar.gz"),
        members(&[("crictl", "crictl")]),
    ));
    let v = &versions.containerd;
    plans.push(tls(
        "download-containerd",
        "containerd",
        v.to_string(),
        format!("https://github.com/containerd/containerd/releases/download/v{v}/containerd-{v}-linux-{arch}.tar.gz"),
        members(&[
            ("bin/ctr", "ctr"),
            ("bin/containerd", "containerd"),
            ("bin/containerd-shim-runc-v2", "containerd-shim-runc-v2"),
            ("bin/containerd-stress", "containerd-stress"),
        ]),
    ));
    let v = &versions.runc;
    plans.push(tls(
        "download-runc",
        "runc",
        v.to_string(),
        format!("https://github.com/opencontainers/runc/releases/download/v{v}/runc.{arch}"),
        Unpack::Program {
            to: join(&HostPath::fixed(BIN), "runc"),
        },
    ));
    let v = &versions.cni;
    plans.push(tls(
        "download-cni",
        "cni",
        v.to_string(),
        format!(
            "https://github.com/containernetworking/plugins/releases/download/v{v}/cni-plugins-linux-{arch}-v{v}.tgz"
        ),
        Unpack::All {
            into: HostPath::fixed(CNI),
            needed: vec!["bridge", "host-local", "loopback"],
        },
    ));
    Plan::Parallel(plans)
}

fn members(names: &[(&'static str, &str)]) -> Unpack {
    Unpack::Members(
        names
            .iter()
            .map(|(name, to)| Member {
                name,
                to: join(&HostPath::fixed(BIN), to),
            })
            .collect(),
    )
}

/// Where a component's record lies in its machine.
#[must_use]
pub fn record(component: &str) -> HostPath {
    join(
        &HostPath::fixed("/usr/local/share/aks-flex-node/installed"),
        &format!("{component}.json"),
    )
}
