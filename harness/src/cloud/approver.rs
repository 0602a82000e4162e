//! Who approves agents' own certificates: in the world a controller of the cluster, here a process of the harness.
//!
//!     request ─▶ judge (pure: the request, and what the cluster knows of who asks) ─▶ approval, or a denial with its reason
//!
//! kubelets' certificates are none of its business: kube-controller-manager approves those by RBAC. Source of the rules:
//! node-agent.md, appendix B.

use std::time::Duration;

use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;
use tokio::signal::unix::{SignalKind, signal};
use x509_parser::prelude::{FromDer, X509CertificationRequest};

use super::cluster::{BOOTSTRAP_GROUP, Cluster, DAEMON_GROUP, MACHINES};
use crate::command::Command;
use crate::process::Daemon;
use crate::run::Run;

/// The server's name in the run.
pub(crate) const SERVER: &str = "csr-approver";

const SIGNER: &str = "kubernetes.io/kube-apiserver-client";
const NODES: &str = "system:nodes";
const USAGES: [&str; 3] = ["digital signature", "key encipherment", "client auth"];
/// A year.
const LONGEST_SECONDS: i64 = 365 * 24 * 3600;

/// Starts it as a process of its own, which outlives this one.
///
/// # Errors
/// It can't be started.
pub(crate) fn start(run: &Run) -> Result<()> {
    if Daemon::find(run, SERVER).is_some() {
        return Ok(());
    }
    let command = Command::new(std::env::current_exe()?).args([SERVER, "--run", &run.id]);
    Daemon::spawn(run, SERVER, command).map(drop)
}

/// Decides on every request there is and that comes, until it is asked to stop.
///
/// # Errors
/// Signals can't be received.
pub(crate) async fn serve(cluster: &Cluster) -> Result<()> {
    let mut stop = signal(SignalKind::terminate())?;
    loop {
        tokio::select! {
            // Cancelled at any point, it leaves a request undecided at most; nobody waits for it then.
            ended = watch(cluster) => eprintln!("the watch ended: {:?}", ended.err()),
            _ = stop.recv() => return Ok(()),
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
    }
}

/// One watch, which ends with the API server.
async fn watch(cluster: &Cluster) -> Result<()> {
    let command = cluster
        .plane()
        .kubectl()
        .args(["get", "certificatesigningrequests", "--watch", "--output=json"]);
    let mut child = command
        .into_inner()
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::piped())
        .spawn()?;
    let mut stdout = child.stdout.take().context("kubectl has a standard output")?;
    let mut text = Vec::new();
    while stdout.read_buf(&mut text).await? > 0 {
        let mut requests = serde_json::Deserializer::from_slice(&text).into_iter::<Value>();
        let mut found = Vec::new();
        while let Some(Ok(request)) = requests.next() {
            found.push(request);
        }
        let rest = requests.byte_offset();
        text.drain(..rest);
        for request in found {
            if let Err(error) = decide(cluster, request).await {
                eprintln!("{error:#}");
            }
        }
    }
    bail!("kubectl: {}", child.wait().await?)
}

async fn decide(cluster: &Cluster, mut request: Value) -> Result<()> {
    if !is_ours(&request) {
        return Ok(());
    }
    let name = request["metadata"]["name"]
        .as_str()
        .context("a request has a name")?
        .to_owned();
    let known = known(cluster, &request).await?;
    let (kind, reason, message) = match judge(&request, &known) {
        Ok(node) => ("Approved", "AgentCertificate", format!("the agent of {node}")),
        Err(why) => ("Denied", "AgentCertificate", format!("{why:#}")),
    };
    eprintln!("{name}: {kind}: {message}");
    request["status"]["conditions"] = json!([{ "type": kind, "status": "True", "reason": reason, "message": message }]);
    let path = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/approval");
    cluster
        .kubectl(&["replace", "--raw", &path, "-f", "-"], &request.to_string())
        .await
        .map(drop)
}

/// What the cluster knows of who asks and of whom the certificate would be for.
struct Known {
    /// The Secret of the bootstrap token that the requester used.
    token: Option<Value>,
    /// The names of the Machines.
    machines: Vec<String>,
    /// As RFC 3339 has it, in UTC.
    now: String,
}

async fn known(cluster: &Cluster, request: &Value) -> Result<Known> {
    let token = match request["spec"]["username"]
        .as_str()
        .and_then(|user| user.strip_prefix("system:bootstrap:"))
    {
        Some(id) => {
            cluster
                .get_in("kube-system", "secret", &format!("bootstrap-token-{id}"))
                .await?
        }
        None => None,
    };
    let machines = cluster
        .get_in("kube-system", "configmap", MACHINES)
        .await?
        .unwrap_or_default();
    let machines = machines["data"].as_object().into_iter().flatten();
    let machines = machines
        .map(|(name, _)| name.trim_end_matches(".json").to_owned())
        .collect();
    let now = Command::line(&["date", "--utc", "+%Y-%m-%dT%H:%M:%SZ"])
        .read()
        .await?
        .trim()
        .to_owned();
    Ok(Known { token, machines, now })
}

/// Whether a request is for us and still open.
fn is_ours(request: &Value) -> bool {
    let decided = request["status"]["conditions"]
        .as_array()
        .is_some_and(|conditions| !conditions.is_empty());
    request["spec"]["signerName"] == SIGNER && !decided
}

/// The node whose agent may have the certificate.
///
/// # Errors
/// Why nobody may have it.
fn judge(request: &Value, known: &Known) -> Result<String> {
    let spec = &request["spec"];
    let node = subject(spec["request"].as_str().unwrap_or_default())?;
    let usages = strings(&spec["usages"]);
    if !usages.contains(&"client auth") || usages.iter().any(|usage| !USAGES.contains(usage)) {
        bail!("the usages are not those of a client");
    }
    if spec["expirationSeconds"]
        .as_i64()
        .is_some_and(|seconds| seconds > LONGEST_SECONDS)
    {
        bail!("it would be valid for more than a year");
    }
    let groups = strings(&spec["groups"]);
    if let Some(group) = groups.iter().find(|group| is_mighty(group)) {
        bail!("the requester is in {group}");
    }
    let user = spec["username"].as_str().unwrap_or_default();
    if let Some(id) = user.strip_prefix("system:bootstrap:") {
        if !groups.contains(&BOOTSTRAP_GROUP) {
            bail!("the requester's token is not of {BOOTSTRAP_GROUP}");
        }
        check_token(id, known)?;
    } else if let Some(own) = user.strip_prefix("system:node:") {
        if own != node {
            bail!("a node asks for another node");
        }
        if !groups.contains(&NODES) || !groups.contains(&DAEMON_GROUP) {
            bail!("the requester is not in both {NODES} and {DAEMON_GROUP}");
        }
    } else {
        bail!("the requester is neither a bootstrap token nor a node");
    }
    if !known.machines.contains(&node) {
        bail!("there is no Machine {node}");
    }
    Ok(node)
}

/// The node that the request's subject names; it must say nothing else.
fn subject(encoded: &str) -> Result<String> {
    let pem = BASE64_STANDARD.decode(encoded).context("the request is not base64")?;
    let (_, pem) = x509_parser::pem::parse_x509_pem(&pem).map_err(|_| anyhow::anyhow!("the request is not PEM"))?;
    let parsed = X509CertificationRequest::from_der(&pem.contents)
        .map_err(|_| anyhow::anyhow!("the request is none"))?
        .1;
    if parsed
        .requested_extensions()
        .is_some_and(|mut extensions| extensions.next().is_some())
    {
        bail!("it asks for names or extensions");
    }
    let subject = &parsed.certification_request_info.subject;
    let values = |attributes: Vec<_>| -> Vec<String> {
        attributes
            .iter()
            .filter_map(|value: &&x509_parser::x509::AttributeTypeAndValue<'_>| value.as_str().ok())
            .map(str::to_owned)
            .collect()
    };
    let names = values(subject.iter_common_name().collect());
    let mut organizations = values(subject.iter_organization().collect());
    organizations.sort();
    let mut wanted = [NODES, DAEMON_GROUP];
    wanted.sort_unstable();
    if organizations != wanted {
        bail!("the organizations are not exactly {} and {}", wanted[0], wanted[1]);
    }
    let [name] = names.as_slice() else {
        bail!("there is not one common name")
    };
    if subject.iter_attributes().count() != 3 {
        bail!("the subject has more than a common name and organizations");
    }
    let node = name.strip_prefix("system:node:").filter(|node| !node.is_empty());
    Ok(node.context("the common name is not system:node:NAME")?.to_owned())
}

fn check_token(id: &str, known: &Known) -> Result<()> {
    let token = known.token.as_ref().context("the requester's token is gone")?;
    let field = |name: &str| -> Option<String> {
        String::from_utf8(BASE64_STANDARD.decode(token["data"][name].as_str()?).ok()?).ok()
    };
    let groups = field("auth-extra-groups").unwrap_or_default();
    let valid = token["type"] == "bootstrap.kubernetes.io/token"
        && field("token-id").as_deref() == Some(id)
        && field("token-secret").is_some_and(|secret| !secret.is_empty())
        && field("usage-bootstrap-authentication").as_deref() == Some("true")
        && groups.split(',').any(|group| group == BOOTSTRAP_GROUP)
        && field("expiration").is_none_or(|end| end > known.now);
    if !valid {
        bail!("the requester's token is not valid");
    }
    Ok(())
}

/// Groups whose members shall get no certificate this way.
fn is_mighty(group: &str) -> bool {
    matches!(
        group,
        "system:masters" | "admin" | "admins" | "cluster-admin" | "cluster-admins" | "masters" | "root"
    )
}

fn strings(list: &Value) -> Vec<&str> {
    list.as_array()
        .into_iter()
        .flatten()
        .filter_map(Value::as_str)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{CertificateParams, DnType, KeyPair};

    fn pem(name: &str, organizations: &[&str], alternative: &[&str]) -> String {
        let names: Vec<String> = alternative.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).unwrap();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        // rcgen holds one value a type: the second organization goes in under its own number.
        for (at, organization) in organizations.iter().enumerate() {
            let kind = if at == 0 {
                DnType::OrganizationName
            } else {
                DnType::CustomDnType(vec![2, 5, 4, 10])
            };
            params.distinguished_name.push(kind, *organization);
        }
        let request = params.serialize_request(&KeyPair::generate().unwrap()).unwrap();
        BASE64_STANDARD.encode(request.pem().unwrap())
    }

    fn request(pem: &str, user: &str, groups: &[&str]) -> Value {
        json!({ "spec": { "signerName": SIGNER, "request": pem, "username": user, "groups": groups,
            "usages": ["digital signature", "client auth"] } })
    }

    fn known() -> Known {
        let data = |value: &str| BASE64_STANDARD.encode(value);
        let token = json!({ "type": "bootstrap.kubernetes.io/token", "data": {
            "token-id": data("abcdef"), "token-secret": data("s"), "usage-bootstrap-authentication": data("true"),
            "auth-extra-groups": data(BOOTSTRAP_GROUP), "expiration": data("2099-01-01T00:00:00Z"),
        } });
        Known {
            token: Some(token),
            machines: vec!["n1".into()],
            now: "2026-01-01T00:00:00Z".into(),
        }
    }

    fn why(request: &Value, known: &Known) -> String {
        format!("{:#}", judge(request, known).unwrap_err())
    }

    #[test]
    fn a_token_of_the_group_gets_its_nodes_certificate_and_a_node_renews_its_own() {
        let pem = pem("system:node:n1", &[NODES, DAEMON_GROUP], &[]);
        let first = request(&pem, "system:bootstrap:abcdef", &[BOOTSTRAP_GROUP]);
        assert_eq!(judge(&first, &known()).unwrap(), "n1");
        let renewal = request(&pem, "system:node:n1", &[NODES, DAEMON_GROUP]);
        assert_eq!(judge(&renewal, &known()).unwrap(), "n1");
        let other = request(&pem, "system:node:n2", &[NODES, DAEMON_GROUP]);
        assert_eq!(why(&other, &known()), "a node asks for another node");
        let kubelet = request(&pem, "system:node:n1", &[NODES]);
        assert!(why(&kubelet, &known()).starts_with("the requester is not in both"));
    }

    #[test]
    fn a_subject_that_says_more_or_else_is_denied() {
        let ask = |pem: &str| why(&request(pem, "system:bootstrap:abcdef", &[BOOTSTRAP_GROUP]), &known());
        assert!(ask(&pem("system:node:n1", &[NODES], &[])).starts_with("the organizations"));
        assert!(ask(&pem("n1", &[NODES, DAEMON_GROUP], &[])).starts_with("the common name"));
        assert_eq!(
            ask(&pem("system:node:n1", &[NODES, DAEMON_GROUP], &["n1.test"])),
            "it asks for names or extensions"
        );
        assert_eq!(
            ask(&pem("system:node:n9", &[NODES, DAEMON_GROUP], &[])),
            "there is no Machine n9"
        );
        assert_eq!(ask("bm90aGluZw=="), "the request is not PEM");
    }

    #[test]
    fn who_asks_must_hold_a_token_that_is_there_valid_and_of_the_group() {
        let pem = pem("system:node:n1", &[NODES, DAEMON_GROUP], &[]);
        let ask = |groups: &[&str], known: &Known| why(&request(&pem, "system:bootstrap:abcdef", groups), known);
        assert!(ask(&["system:bootstrappers"], &known()).starts_with("the requester's token is not of"));
        assert_eq!(
            ask(&[BOOTSTRAP_GROUP, "system:masters"], &known()),
            "the requester is in system:masters"
        );
        assert_eq!(
            ask(&[BOOTSTRAP_GROUP], &Known { token: None, ..known() }),
            "the requester's token is gone"
        );
        let late = Known {
            now: "2099-06-01T00:00:00Z".into(),
            ..known()
        };
        assert_eq!(ask(&[BOOTSTRAP_GROUP], &late), "the requester's token is not valid");
        assert!(why(&request(&pem, "alice", &[]), &known()).starts_with("the requester is neither"));
    }

    #[test]
    fn usages_and_lifetime_have_limits_and_other_signers_are_none_of_ours() {
        let pem = pem("system:node:n1", &[NODES, DAEMON_GROUP], &[]);
        let mut asked = request(&pem, "system:bootstrap:abcdef", &[BOOTSTRAP_GROUP]);
        asked["spec"]["expirationSeconds"] = json!(LONGEST_SECONDS + 1);
        assert_eq!(why(&asked, &known()), "it would be valid for more than a year");
        asked["spec"]["usages"] = json!(["server auth", "client auth"]);
        assert_eq!(why(&asked, &known()), "the usages are not those of a client");
        assert!(is_ours(&asked));
        asked["status"]["conditions"] = json!([{ "type": "Denied" }]);
        assert!(!is_ours(&asked));
        asked["spec"]["signerName"] = json!("kubernetes.io/kube-apiserver-client-kubelet");
        assert!(!is_ours(&asked));
    }
}
