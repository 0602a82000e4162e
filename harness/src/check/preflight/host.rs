//! `preflight.host`: one thing after the other is wrong with a host, and just that is told.

use anyhow::{Result, ensure};
use serde_json::json;

use super::{Context, Fresh, bad, said, wanted};

/// What is done to a host, the lines that must be bad, and how it is taken back.
const ROWS: [(&str, &[&str], &str); 14] = [
    (
        "printf 'Filename Type Size Used Priority\\n/swapfile file 1 0 -2\\n' > /run/swaps; mount --bind /run/swaps /proc/swaps",
        &["warning swap-active swap-active"],
        "umount /proc/swaps; rm /run/swaps",
    ),
    (
        "systemd-run --quiet --unit=squatter --socket-property=ListenStream=10250 /bin/true",
        &["error kubelet-bind-address TCP port 10250"],
        "systemctl stop squatter.socket; systemctl reset-failed 'squatter*' || true",
    ),
    (
        "systemd-run --quiet --unit=squatter --socket-property=ListenStream=127.0.0.1:10257 /bin/true",
        &["error containerd-metrics-bind-address TCP port 10257"],
        "systemctl stop squatter.socket; systemctl reset-failed 'squatter*' || true",
    ),
    (
        "mkdir /run/small; mount -t tmpfs -o size=64m,nr_inodes=500 small /run/small; mkdir /run/small/containerd /run/small/machines
         mount --bind /var/lib/containerd /run/small/containerd; mount --rbind /run/small /var/lib",
        &["error disk-space /var/lib"],
        "umount --recursive /var/lib; umount --recursive /run/small; rmdir /run/small",
    ),
    (
        "mkdir -p /etc/sysctl.d; mount --bind /etc/sysctl.d /etc/sysctl.d; mount -o remount,bind,ro /etc/sysctl.d",
        &["error host-os-configuration /etc/sysctl.d"],
        "umount /etc/sysctl.d",
    ),
    (
        "mkdir /var/lib/unbounded; mount --bind /var/lib/unbounded /var/lib/unbounded; mount -o remount,bind,ro /var/lib/unbounded",
        &["error host-targets /var/lib/unbounded/container-images"],
        "umount /var/lib/unbounded; rmdir /var/lib/unbounded",
    ),
    (
        "mkdir -p /var/lib/machines; touch /var/lib/machines/kube1",
        &[
            "error existing-deployment /var/lib/machines/kube1",
            "error nspawn-machine-provisioning /var/lib/machines/kube1",
        ],
        "rm /var/lib/machines/kube1",
    ),
    (
        "touch /etc/systemd/system/aks-flex-node-agent.service",
        &["error existing-deployment /etc/systemd/system/aks-flex-node-agent.service"],
        "rm /etc/systemd/system/aks-flex-node-agent.service",
    ),
    // As on an image of Azure Container Linux without systemd-container.
    (
        "mount --bind /dev/null /usr/bin/systemd-nspawn; mount --bind /dev/null /usr/bin/machinectl",
        &["error nspawn-runtime machinectl", "error nspawn-runtime systemd-nspawn"],
        "umount /usr/bin/systemd-nspawn /usr/bin/machinectl",
    ),
    (
        "mount --bind /dev/null $(command -v sysctl)",
        &["error host-tools sysctl"],
        "umount $(findmnt --noheadings --raw --output TARGET | grep '/sysctl$')",
    ),
    (
        "for name in docker kubelet; do systemd-run --quiet --unit=$name.service sleep infinity; done",
        &["warning docker-active docker.service", "warning kubelet-active kubelet.service"],
        "systemctl stop docker kubelet",
    ),
    (
        "nft 'table inet probe { chain forward { type filter hook forward priority 0; policy drop; }; }'",
        &["warning firewall policy of forward"],
        "nft delete table inet probe",
    ),
    (
        "touch /dev/nvidia0",
        &["error nvidia-driver nvidia-driver"],
        "rm /dev/nvidia0",
    ),
    (
        "printf 'ID=debian\\nVERSION_ID=13\\n' > /run/os-release; mount --bind /run/os-release $(realpath /etc/os-release)",
        &["warning host-image os-release"],
        "umount $(realpath /etc/os-release); rm /run/os-release",
    ),
];

/// fc_h2, fc_h6, na_r18, and a row for each failure class of a host.
pub(super) async fn host(context: &Context) -> Result<()> {
    let fresh = Fresh::new(context).await?;
    wanted("nothing is wrong", &fresh.bad().await?, &[])?;
    for (make, expected, undo) in ROWS {
        fresh.row(make, expected, undo).await?;
    }
    wanted("everything was taken back", &fresh.bad().await?, &[])?;

    // The host's root, mounted as a careless unit would.
    let report = fresh
        .report(("options=rbind:rslave:rw", "options=rbind:rprivate:rw"), &[])
        .await?;
    wanted("a private mount", &bad(&report), &["error mount-propagation /host"])?;
    ensure!(
        said(&report, "mount-propagation")?.1.contains("rslave"),
        "no way out: {report:#}"
    );

    // Settings that ask for what is not there yet, each by its key.
    for (path, value, line) in [
        (
            "/bootstrap/offlineArtifacts",
            json!({"source": "/opt/artifacts"}),
            "error offline-artifacts bootstrap.offlineArtifacts.source",
        ),
        (
            "/networking/localDNS",
            json!({"mode": "Required"}),
            "error local-dns networking.localDNS",
        ),
    ] {
        let mut config = fresh.config.clone();
        let (at, key) = path.rsplit_once('/').unwrap_or_default();
        if let Some(object) = config.pointer_mut(at).and_then(|section| section.as_object_mut()) {
            object.insert(key.to_owned(), value);
        }
        fresh.configure(&config).await?;
        wanted(path, &fresh.bad().await?, &[line])?;
    }
    fresh.configure(&fresh.config).await?;

    // An error that is ignored is a warning, and warnings can be made to fail.
    fresh.host.sh("touch /dev/nvidia0").await?;
    let ignored = fresh
        .report(("", ""), &["--ignore-preflight-errors", "swap-active, NVIDIA-driver"])
        .await?;
    wanted("ignored", &bad(&ignored), &["warning nvidia-driver nvidia-driver"])?;
    ensure!(ignored["status"] == "ok", "{ignored:#}");
    let strict = fresh
        .report(("", ""), &["--ignore-preflight-errors=all", "--fail-on-warnings"])
        .await?;
    ensure!(strict["status"] == "failed", "{strict:#}");
    Ok(())
}
