//! Where a machine's programs come from. Source: node-agent specification, 5.4.2.

use hostexec::HostPath;

use super::{Goal, Programs, join, problems};
use crate::{
    offline::path,
    step::{Download, Member, Origin, Plan, Proof, Step, Unpack},
};

/// Where a machine's programs lie.
const BIN: &str = "/usr/local/bin";
/// Where CNI plugins lie.
const CNI: &str = "/opt/cni/bin";

/// All downloads of a machine, side by side.
pub(super) fn downloads(goal: &Goal, programs: &Programs) -> Plan {
    let v = &programs.versions;
    let bundle = programs.bundle.as_ref();
    let arch = goal.arch;
    let task = |task, component, version: &str, origin, unpack| {
        let machine = goal.machine;
        Plan::task(
            task,
            Step::Download(Download {
                machine,
                component,
                version: version.to_owned(),
                origin,
                unpack,
            }),
        )
    };
    let mut plans: Vec<Plan> = [
        ("download-kubelet", "kubelet"),
        ("download-kubectl", "kubectl"),
        ("download-kube-proxy", "kube-proxy"),
    ]
    .map(|(name, program)| {
        let version = &v.kubernetes;
        let origin = match bundle {
            Some(bundle) => bundle.origin(&path::kubernetes(version, arch, program)),
            None => proved(format!("https://dl.k8s.io/v{version}/bin/linux/{arch}/{program}")),
        };
        task(name, program, version, origin, own(program))
    })
    .into();
    let of = |path: String, url: String| bundle.map_or_else(|| by_tls(url), |bundle| bundle.origin(&path));
    let github = |path: String| format!("https://github.com/{path}");
    let (crictl, containerd, runc, cni) = (&v.crictl, &v.containerd, &v.runc, &v.cni);
    plans.push(task(
        "download-crictl",
        "crictl",
        crictl,
        of(
            path::crictl(crictl, arch),
            github(format!(
                "kubernetes-sigs/cri-tools/releases/download/v{crictl}/crictl-v{crictl}-linux-{arch}.tar.gz"
            )),
        ),
        members(&[("crictl", "crictl")]),
    ));
    plans.push(task(
        "download-containerd",
        "containerd",
        containerd,
        of(
            path::containerd(containerd, arch),
            github(format!(
                "containerd/containerd/releases/download/v{containerd}/containerd-{containerd}-linux-{arch}.tar.gz"
            )),
        ),
        members(&[
            ("bin/ctr", "ctr"),
            ("bin/containerd", "containerd"),
            ("bin/containerd-shim-runc-v2", "containerd-shim-runc-v2"),
            ("bin/containerd-stress", "containerd-stress"),
        ]),
    ));
    plans.push(task(
        "download-runc",
        "runc",
        runc,
        of(
            path::runc(runc, arch),
            github(format!("opencontainers/runc/releases/download/v{runc}/runc.{arch}")),
        ),
        own("runc"),
    ));
    plans.push(task(
        "download-cni",
        "cni",
        cni,
        of(
            path::cni(cni, arch),
            github(format!(
                "containernetworking/plugins/releases/download/v{cni}/cni-plugins-linux-{arch}-v{cni}.tgz"
            )),
        ),
        Unpack::All {
            into: HostPath::fixed(CNI),
            needed: vec!["bridge", "host-local", "loopback"],
        },
    ));
    if let Some(npd) = &v.npd {
        let member = |name, to, mode| Member { name, to, mode };
        plans.push(task(
            "download-npd",
            problems::COMPONENT,
            npd,
            of(
                path::npd(npd, arch),
                github(format!(
                    "kubernetes/node-problem-detector/releases/download/v{npd}/node-problem-detector-v{npd}-linux_{arch}.tar.gz"
                )),
            ),
            Unpack::Members(vec![
                member("bin/node-problem-detector", problems::PROGRAM, 0o755),
                member("config/kernel-monitor.json", problems::MONITOR, 0o644),
            ]),
        ));
    }
    Plan::Parallel(plans)
}

/// A publisher's file with a checksum file beside it.
fn proved(url: String) -> Origin {
    let proof = Proof::Sha256At(format!("{url}.sha256"));
    Origin::Url { url, proof }
}

/// A publisher's file without one.
fn by_tls(url: String) -> Origin {
    let proof = Proof::Tls;
    Origin::Url { url, proof }
}

/// A file that is the program itself.
fn own(program: &str) -> Unpack {
    Unpack::Program {
        to: join(&HostPath::fixed(BIN), program),
    }
}

fn members(names: &[(&'static str, &str)]) -> Unpack {
    Unpack::Members(
        names
            .iter()
            .map(|(name, to)| Member {
                name,
                to: join(&HostPath::fixed(BIN), to),
                mode: 0o755,
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
