//! What a test says to the cluster and asks of it: tokens, nodes, pods, operations. All of it through kubectl, as a person would.

use std::time::Duration;

use anyhow::{Context, Result};
use image::ImageRef;
use serde_json::{Value, json};

use super::control_plane::ControlPlane;
use crate::command::Output;
use crate::wait;

/// The group that bootstrap tokens of hosts put their bearer in.
pub(crate) const BOOTSTRAP_GROUP: &str = "system:bootstrappers:aks-flex-node";
/// The group that an agent's own certificate puts it in.
pub(crate) const DAEMON_GROUP: &str = "aks-flex-node-daemons";
/// Where the Machines that the cluster knows are kept.
pub(crate) const MACHINES: &str = "aks-flex-machines";

/// A bootstrap token, `id.secret`.
#[derive(Clone)]
pub(crate) struct Token {
    id: String,
    secret: String,
}

impl Token {
    /// The whole token, as a host presents it.
    pub(crate) fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

/// Whoever debugs a bed shall not print it by accident.
impl std::fmt::Debug for Token {
    fn fmt(&self, to: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(to, "Token({}.***)", self.id)
    }
}

/// The cluster of a run.
#[derive(Clone, Debug)]
pub(crate) struct Cluster {
    plane: ControlPlane,
}

impl Cluster {
    /// The cluster behind a control plane.
    pub(crate) fn of(plane: ControlPlane) -> Self {
        Self { plane }
    }

    /// Its servers.
    pub(crate) fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Gives an empty cluster what hosts and agents need: rights, and the kind MachineOperation.
    ///
    /// # Errors
    /// kubectl's, or the kind is not served in time.
    pub(crate) async fn prepare(&self) -> Result<()> {
        self.apply(include_str!("files/rbac.yaml")).await?;
        self.apply(include_str!("files/machineoperations.yaml")).await?;
        self.kubectl(
            &[
                "wait",
                "--for=condition=Established",
                "crd/machineoperations.unbounded-cloud.io",
                "--timeout=60s",
            ],
            "",
        )
        .await
        .map(drop)
    }

    /// kubectl as an administrator; any exit code but 0 is an error.
    ///
    /// # Errors
    /// kubectl's.
    pub(crate) async fn kubectl(&self, args: &[&str], stdin: &str) -> Result<String> {
        self.plane.kubectl().args(args).stdin(stdin).read().await
    }

    /// As `kubectl`, whatever the exit code.
    ///
    /// # Errors
    /// It can't be run, or does not end.
    pub(crate) async fn try_kubectl(&self, args: &[&str], stdin: &str) -> Result<Output> {
        self.plane.kubectl().args(args).stdin(stdin).output().await
    }

    /// Applies objects.
    ///
    /// # Errors
    /// kubectl's.
    pub(crate) async fn apply(&self, objects: &str) -> Result<()> {
        self.kubectl(&["apply", "-f", "-"], objects).await.map(drop)
    }

    /// An object, if it is there.
    ///
    /// # Errors
    /// kubectl's.
    pub(crate) async fn get(&self, kind: &str, name: &str) -> Result<Option<Value>> {
        self.get_in("default", kind, name).await
    }

    /// An object of a namespace, if it is there.
    ///
    /// # Errors
    /// kubectl's.
    pub(crate) async fn get_in(&self, namespace: &str, kind: &str, name: &str) -> Result<Option<Value>> {
        let args = [
            "--namespace",
            namespace,
            "get",
            kind,
            name,
            "--ignore-not-found",
            "--output=json",
        ];
        let text = self.kubectl(&args, "").await?;
        if text.trim().is_empty() {
            Ok(None)
        } else {
            Ok(Some(serde_json::from_str(&text)?))
        }
    }

    /// Makes a bootstrap token for a host, and the Machine without which the approver knows no such node.
    ///
    /// # Errors
    /// kubectl's.
    pub(crate) async fn token(&self, host: &str) -> Result<Token> {
        let token = Token {
            id: random(6)?,
            secret: random(16)?,
        };
        let object = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": secret_name(&token), "namespace": "kube-system" },
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {
                "description": format!("host {host}"),
                "token-id": token.id,
                "token-secret": token.secret,
                // Far away: the machine's clock may be stepped.
                "expiration": "2099-01-01T00:00:00Z",
                "usage-bootstrap-authentication": "true",
                "usage-bootstrap-signing": "true",
                "auth-extra-groups": BOOTSTRAP_GROUP,
            },
        });
        self.kubectl(&["create", "-f", "-"], &object.to_string()).await?;
        self.register(host).await?;
        Ok(token)
    }

    async fn register(&self, host: &str) -> Result<()> {
        let machine = json!({ "name": host, "properties": {
            "eTag": "1",
            "provisioningState": "Succeeded",
            "kubernetes": { "orchestratorVersion": super::kubernetes::VERSION },
        } });
        let patch = json!({ "data": { format!("{host}.json"): machine.to_string() } }).to_string();
        let args = [
            "-n",
            "kube-system",
            "patch",
            "configmap",
            MACHINES,
            "--type=merge",
            "-p",
            &patch,
        ];
        self.kubectl(&args, "").await.map(drop)
    }

    /// Whether a node is there and Ready.
    ///
    /// # Errors
    /// kubectl's.
    pub(crate) async fn is_ready(&self, node: &str) -> Result<bool> {
        Ok(self.get("node", node).await?.is_some_and(|node| holds(&node, "Ready")))
    }

    /// Waits until a node is Ready.
    ///
    /// # Errors
    /// It is not within the limit.
    pub(crate) async fn node_ready(&self, node: &str, limit: Duration) -> Result<()> {
        wait::until_true(&format!("node {node} is Ready"), limit, async || {
            self.is_ready(node).await
        })
        .await
    }

    /// Waits until a node is Ready by a word of its kubelet that is younger than a moment (`2026-01-31T23:59:59Z`): for most of a minute
    /// the API server goes on to say it of a node that is off.
    ///
    /// # Errors
    /// It is not within the limit.
    pub(crate) async fn node_ready_since(&self, node: &str, since: &str, limit: Duration) -> Result<()> {
        wait::until_true(
            &format!("node {node} is Ready, by what it says since {since}"),
            limit,
            async || {
                let node = self.get("node", node).await?.unwrap_or_default();
                let conditions = node["status"]["conditions"].as_array();
                Ok(conditions.into_iter().flatten().any(|condition| {
                    let heard = condition["lastHeartbeatTime"].as_str().unwrap_or_default();
                    condition["type"] == "Ready" && condition["status"] == "True" && heard > since
                }))
            },
        )
        .await
    }

    /// Creates a pod that serves a page and logs a line, on a node.
    ///
    /// # Errors
    /// kubectl's: there is one of that name.
    pub(crate) async fn pod(&self, name: &str, node: &str, image: &str) -> Result<()> {
        let script =
            format!("echo hello from {name} > /tmp/index.html; cat /tmp/index.html; exec httpd -f -p 8080 -h /tmp");
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name },
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": 1,
                "containers": [{
                    "name": "main",
                    "image": image,
                    "command": ["sh", "-c", script],
                    "resources": { "limits": { "memory": "64Mi" }, "requests": { "memory": "32Mi", "cpu": "10m" } },
                    "readinessProbe": { "httpGet": { "path": "/index.html", "port": 8080 }, "periodSeconds": 1 },
                }],
            },
        });
        self.kubectl(&["create", "-f", "-"], &pod.to_string()).await.map(drop)
    }

    /// Waits until a pod runs and is Ready.
    ///
    /// # Errors
    /// It is not within the limit.
    pub(crate) async fn pod_running(&self, name: &str, limit: Duration) -> Result<()> {
        wait::until_true(&format!("pod {name} runs"), limit, async || {
            Ok(self
                .get("pod", name)
                .await?
                .is_some_and(|pod| pod["status"]["phase"] == "Running" && holds(&pod, "Ready")))
        })
        .await
    }

    /// What a pod has logged, through the API server and the node's kubelet.
    ///
    /// # Errors
    /// kubectl's.
    pub(crate) async fn logs(&self, pod: &str) -> Result<String> {
        self.kubectl(&["logs", pod], "").await
    }

    /// Asks the agent of a machine for an operation.
    ///
    /// # Errors
    /// kubectl's: the API server refuses it.
    pub(crate) async fn machine_operation(
        &self,
        name: &str,
        machine: &str,
        kind: &str,
        parameters: &[(&str, impl AsRef<str>)],
    ) -> Result<()> {
        let operation = machine_operation(name, machine, kind, parameters);
        self.kubectl(&["create", "-f", "-"], &operation.to_string())
            .await
            .map(drop)
    }

    /// An operation as it is now.
    ///
    /// # Errors
    /// kubectl's, or there is none.
    pub(crate) async fn operation(&self, name: &str) -> Result<Operation> {
        let object = self
            .get("machineoperation", name)
            .await?
            .with_context(|| format!("no operation {name}"))?;
        Ok(Operation(object))
    }

    /// Waits until an operation is over.
    ///
    /// # Errors
    /// It is not within the limit.
    pub(crate) async fn operation_over(&self, name: &str, limit: Duration) -> Result<Operation> {
        wait::until(&format!("operation {name} is over"), limit, async || {
            let operation = self.operation(name).await?;
            Ok(matches!(operation.phase(), "Complete" | "Failed").then_some(operation))
        })
        .await
    }
}

/// A MachineOperation.
#[derive(Clone, Debug)]
pub(crate) struct Operation(Value);

impl Operation {
    /// `status.phase`, empty when there is none.
    pub(crate) fn phase(&self) -> &str {
        self.0["status"]["phase"].as_str().unwrap_or_default()
    }

    /// `status.message`.
    pub(crate) fn message(&self) -> &str {
        self.0["status"]["message"].as_str().unwrap_or_default()
    }

    /// The reason of the condition `Completed`.
    pub(crate) fn reason(&self) -> &str {
        let conditions = self.0["status"]["conditions"]
            .as_array()
            .map(Vec::as_slice)
            .unwrap_or_default();
        let completed = conditions.iter().find(|condition| condition["type"] == "Completed");
        completed
            .and_then(|condition| condition["reason"].as_str())
            .unwrap_or_default()
    }

    /// The whole object, for canaries and messages.
    pub(crate) fn text(&self) -> String {
        self.0.to_string()
    }
}

/// The object that asks for an operation.
pub(crate) fn machine_operation(
    name: &str,
    machine: &str,
    kind: &str,
    parameters: &[(&str, impl AsRef<str>)],
) -> Value {
    let parameters: serde_json::Map<String, Value> = parameters
        .iter()
        .map(|(key, value)| ((*key).to_owned(), json!(value.as_ref())))
        .collect();
    json!({
        "apiVersion": "unbounded-cloud.io/v1alpha3",
        "kind": "MachineOperation",
        "metadata": { "name": name },
        "spec": { "machineRef": machine, "operationKind": kind, "parameters": parameters },
    })
}

/// The parameters of an operation that asks for an upgrade to that image.
pub(crate) fn upgrade_to(image: &ImageRef) -> [(&'static str, String); 2] {
    let url = format!("oci://{}", image.repository);
    [("downloadURL", url), ("sha256", image.digest.hex().to_owned())]
}

fn secret_name(token: &Token) -> String {
    format!("bootstrap-token-{}", token.id)
}

/// Whether a condition of an object is True.
fn holds(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    conditions
        .iter()
        .any(|condition| condition["type"] == kind && condition["status"] == "True")
}

/// Random letters and digits, as bootstrap tokens are made of.
fn random(length: usize) -> Result<String> {
    const LETTERS: &[u8; 32] = b"abcdefghijklmnopqrstuvwxyz234567";
    let mut bytes = vec![0; length];
    std::io::Read::read_exact(&mut std::fs::File::open("/dev/urandom")?, &mut bytes)?;
    Ok(bytes
        .iter()
        .map(|byte| char::from(LETTERS[usize::from(byte % 32)]))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_has_the_form_that_kubernetes_takes_and_is_not_printed() {
        let token = Token {
            id: random(6).unwrap(),
            secret: random(16).unwrap(),
        };
        assert_eq!(token.reveal().len(), 23);
        assert!(
            token
                .reveal()
                .chars()
                .all(|c| c == '.' || c.is_ascii_lowercase() || c.is_ascii_digit())
        );
        assert!(!format!("{token:?}").contains(&token.secret));
    }

    #[test]
    fn only_a_true_condition_holds() {
        let node = json!({ "status": { "conditions": [{ "type": "Ready", "status": "Unknown" }] } });
        assert!(!holds(&node, "Ready"));
        assert!(!holds(&json!({}), "Ready"));
    }
}
