//! From the start of a host to its node, and which part of it is the agent's own.

use std::time::Instant;

use anyhow::{Context as _, Result, ensure};
use image::ImageRef;

use super::{Figure, monotonic, seconds};
use crate::agent::UNIT;
use crate::cloud::Cloud;
use crate::cloud::downloads::{CNI, CONTAINERD, CRICTL, NPD, RUNC};
use crate::cloud::kubernetes::VERSION as KUBERNETES;
use crate::host::Host;
use crate::node::READY;

/// How the names of those steps begin that wait for others: systemd (`configure-nftables` has it read a unit), the machine, the kubelet.
const WAITS: [&str; 7] = [
    "start-",
    "wait-",
    "watch-",
    "reload-",
    "enable-",
    "stop-",
    "configure-nftables",
];
/// Whom a host trusts.
const ROOTS: &str = "/etc/pki/tls/certs/ca-bundle.crt";
/// The agent's program in the machine.
const AGENT: &str = "/var/lib/machines/kube1/usr/local/bin/aks-flex-node";

/// Boots a host that is to join.
///
/// # Errors
/// It does not join in time, or its journal has no steps.
pub(super) async fn measure(host: &Host, cloud: &Cloud) -> Result<Vec<Figure>> {
    let start = Instant::now();
    host.start().await?;
    host.wait_booted().await?;
    let booted = start.elapsed();
    cloud.cluster.node_ready(host.name(), READY).await?;
    let ready = start.elapsed();
    host.wait_active(&[UNIT], READY).await?;
    let journal = host
        .journal(&["SYSLOG_IDENTIFIER=aks-flex-node", "--output=short-monotonic"])
        .await?;
    let steps: Vec<Step> = journal.lines().filter_map(Step::of).collect();
    ensure!(!steps.is_empty(), "no step in the journal");
    let rootfs = steps.iter().find(|step| step.name == "provision-rootfs");
    let rootfs = rootfs.context("no machine in the journal")?;
    let rootfs = rootfs.to - rootfs.from;
    let bare = pulled(host, &cloud.images.machine).await?;
    let tools = bare + made(host).await?;
    // From there on the daemon's steps are among them.
    let agent = steps.iter().find(|step| step.name == "start-agent");
    let end = agent.context("no agent in the journal")?.from;
    let own: Vec<&Step> = steps
        .iter()
        .filter(|step| step.from < end)
        .filter(|step| !WAITS.iter().any(|wait| step.name.starts_with(wait)))
        .collect();
    let (all, own) = (covered(steps.iter()), covered(own.into_iter()));
    Ok(vec![
        Figure {
            what: "host start → booted",
            value: seconds(booted.as_secs_f64()),
            bound: "",
            beside: String::new(),
        },
        Figure {
            what: "host start → node Ready",
            value: seconds(ready.as_secs_f64()),
            bound: "",
            beside: format!(
                "steps of the join {}, of them the agent's own work, downloads included, {}: {:.0} %; the rest waits for systemd, machine and kubelet",
                seconds(all),
                seconds(own),
                100.0 * own / ready.as_secs_f64()
            ),
        },
        Figure {
            what: "the machine's image, from its registry → its folder, on disk",
            value: seconds(rootfs),
            bound: "",
            beside: format!(
                "`ctr images pull` and `sync` of the same {}: {:.2} ×",
                seconds(bare),
                rootfs / bare
            ),
        },
        Figure {
            what: "the agent's own steps of the join",
            value: seconds(own),
            bound: "1.2 × the tools",
            beside: format!(
                "that pull, and curl, sha256sum, tar, sysctl, cp and sync for the same files {}: {:.2} ×",
                seconds(tools),
                own / tools
            ),
        },
    ])
}

/// The time in which containerd gets and unpacks the machine's image, from the same registry, in seconds. Nothing is left of it.
async fn pulled(host: &Host, image: &ImageRef) -> Result<f64> {
    let ctr = "ctr --namespace bench";
    let script = format!(
        "s=$EPOCHREALTIME; {ctr} images pull --local --snapshotter overlayfs {image} > /dev/null; sync --file-system /var/lib/containerd; \
         echo $s $EPOCHREALTIME; {ctr} images rm --sync {image} > /dev/null"
    );
    let said = host.sh(&script).await?;
    let (start, end) = said.trim().split_once(' ').context("two times")?;
    Ok(end.parse::<f64>()? - start.parse::<f64>()?)
}

/// The time in which tools do what the agent's own steps do but for the machine's image: kernel settings, a look for swap (none is there), the same downloads side by side,
/// proved and unpacked, the agent's program and the machine's files copied; in seconds. Nothing is left of it.
async fn made(host: &Host) -> Result<f64> {
    let github = |project: &str, version: &str, file: &str| {
        format!("https://github.com/{project}/releases/download/v{version}/{file}")
    };
    let packed = [
        github(
            "kubernetes-sigs/cri-tools",
            CRICTL,
            &format!("crictl-v{CRICTL}-linux-amd64.tar.gz"),
        ),
        github(
            "containerd/containerd",
            CONTAINERD,
            &format!("containerd-{CONTAINERD}-linux-amd64.tar.gz"),
        ),
        github(
            "containernetworking/plugins",
            CNI,
            &format!("cni-plugins-linux-amd64-v{CNI}.tgz"),
        ),
        github(
            "kubernetes/node-problem-detector",
            NPD,
            &format!("node-problem-detector-v{NPD}-linux_amd64.tar.gz"),
        ),
    ];
    let packed: String = packed
        .iter()
        .enumerate()
        .map(|(number, url)| format!("(mkdir $d/{number}; $get {url} | tar -xz -C $d/{number}) &\n"))
        .collect();
    let runc = github("opencontainers/runc", RUNC, "runc.amd64");
    let files = "/var/lib/machines/kube1/etc/kubernetes /var/lib/machines/kube1/var/lib/kubelet/config.yaml \
                 /var/lib/machines/kube1/etc/systemd/system /etc/systemd/nspawn /etc/sysctl.d/99-kubernetes.conf";
    let script = format!(
        "set -e; d=$(mktemp --directory /var/lib/machines/.bench-XXXXXX); get='curl --silent --fail --location --cacert {ROOTS}'; s=$EPOCHREALTIME
         sysctl --quiet --load /etc/sysctl.d/99-kubernetes.conf
         systemctl list-units --type=swap --all --no-legend --plain > /dev/null; cat /proc/swaps > /dev/null
         for p in kubelet kubectl kube-proxy; do
             ($get https://dl.k8s.io/v{KUBERNETES}/bin/linux/amd64/$p > $d/$p
              [ \"$($get https://dl.k8s.io/v{KUBERNETES}/bin/linux/amd64/$p.sha256)\" = \"$(sha256sum < $d/$p | cut --characters=-64)\" ]) &
         done
         {packed}$get {runc} > $d/runc &
         cp {AGENT} $d/agent &
         for p in $(jobs -p); do wait $p; done
         cp --recursive --parents {files} $d; find $d -type f -exec sync {{}} +; sync --file-system $d
         echo $s $EPOCHREALTIME; rm --recursive $d"
    );
    let said = host.sh(&script).await?;
    let (start, end) = said.trim().split_once(' ').context("two times")?;
    Ok(end.parse::<f64>()? - start.parse::<f64>()?)
}

/// A step of the join, as the journal tells it: when it began and ended, in seconds.
#[derive(Debug, PartialEq)]
struct Step {
    name: String,
    from: f64,
    to: f64,
}

impl Step {
    fn of(line: &str) -> Option<Self> {
        let to = monotonic(line)?;
        let field = |name: &str| line.split_once(name)?.1.split_whitespace().next();
        let milliseconds: f64 = field("milliseconds=")?.parse().ok()?;
        Some(Self {
            name: field("task=")?.to_owned(),
            from: to - milliseconds / 1e3,
            to,
        })
    }
}

/// How long at least one of them ran: side by side, they count once.
fn covered<'a>(steps: impl Iterator<Item = &'a Step>) -> f64 {
    let mut steps: Vec<&Step> = steps.collect();
    steps.sort_by(|one, other| one.from.total_cmp(&other.from));
    let mut until = f64::NEG_INFINITY;
    let mut sum = 0.0;
    for step in steps {
        sum += (step.to - step.from.max(until)).max(0.0);
        until = until.max(step.to);
    }
    sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_side_by_side_count_once() {
        let steps = [
            "[  10.500000] h1 aks-flex-node[304]: level=INFO msg=completed task=a milliseconds=500",
            "[  10.750000] h1 aks-flex-node[304]: level=INFO msg=completed task=b milliseconds=500",
            "[  12.000000] h1 aks-flex-node[304]: level=INFO msg=completed task=c milliseconds=250",
        ];
        let steps: Vec<Step> = steps.into_iter().filter_map(Step::of).collect();
        assert_eq!(
            steps[0],
            Step {
                name: "a".into(),
                from: 10.0,
                to: 10.5
            }
        );
        assert!((covered(steps.iter()) - 1.0).abs() < 1e-9);
        assert_eq!(
            Step::of("[  12.0] h1 aks-flex-node[304]: level=INFO msg=started task=c"),
            None
        );
    }
}
