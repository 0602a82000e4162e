//! What a host is given to join the cluster: its configuration, and the folder of inputs from which its Ignition config is rendered.

use std::fs;
use std::path::Path;

use anyhow::Result;
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use image::ImageRef;
use serde_json::{Value, json};

use super::cluster::Token;
use super::{Cloud, control_plane, downloads, kubernetes};
use crate::run::secret;

/// Where the real Kubernetes programs are, in a host and in its machine.
pub(crate) const KUBE: &str = "/opt/kube";

/// Where a host finds its configuration before the agent has written its own.
const BASE_CONFIG: &str = "/etc/aks-flex-node/base-config.json";

/// An AKS cluster that is none: no Azure is near.
pub(crate) const CLUSTER_ID: &str = "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/bed/providers/Microsoft.ContainerService/managedClusters/bed";

/// The configuration of a host that joins with a bootstrap token.
///
/// # Errors
/// The cluster isn't prepared.
pub(crate) fn config(cloud: &Cloud, token: &Token) -> Result<Value> {
    Ok(json!({
        "azure": {
            "bootstrapToken": { "token": token.reveal() },
            "targetCluster": { "resourceId": CLUSTER_ID, "location": "bed" },
        },
        "agent": {
            "machineClient": {
                "mode": "in-cluster",
                "endpointUrl": "/api/v1/namespaces/kube-system/services/http:aks-flex-controller:80/proxy",
            },
        },
        "components": {
            "kubernetes": kubernetes::VERSION,
            "containerd": downloads::CONTAINERD,
            "runc": downloads::RUNC,
            "sandboxImage": cloud.images.pause.to_string(),
        },
        "bootstrap": {
            "ociImage": cloud.images.machine.to_string(),
            "additionalHostMounts": [{ "source": KUBE, "readOnly": true }],
        },
        "networking": { "cniVersion": downloads::CNI },
        "node": {
            "labels": { "bed": "yes" },
            "kubelet": {
                "clusterFQDN": format!("{}:{}", control_plane::NAME, control_plane::PORT),
                "caCertData": BASE64_STANDARD.encode(cloud.cluster.plane().certificate()?),
            },
        },
    }))
}

/// Writes the inputs of `aks-flex-node ignition` for a host into a folder: which agent runs, and with which configuration.
///
/// # Errors
/// A file can't be written, or is there already.
pub(crate) fn write_inputs(folder: &Path, agent: &ImageRef, config: &Value) -> Result<()> {
    fs::create_dir_all(folder)?;
    secret(
        &folder.join("agent.env"),
        format!("AKS_FLEX_NODE_AGENT_IMAGE={agent}\n").as_bytes(),
    )?;
    secret(
        &folder.join("bootstrap.env"),
        format!("AKS_FLEX_NODE_BASE_CONFIG_FILE={BASE_CONFIG}\n").as_bytes(),
    )?;
    secret(
        &folder.join("base-config.json"),
        serde_json::to_string_pretty(config)?.as_bytes(),
    )
}
