//! Hosts that join with an Azure identity and have no bootstrap token.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};

use super::super::join::{CONFIG, found};
use super::Context;
use crate::cloud::Mark;
use crate::cloud::azure::{How, Page, Principal, Who, object_id};
use crate::command::Command;
use crate::host::Host;
use crate::node::{Joining, READY};
use crate::wait;

const TENANT: &str = "8f1b2c3d-0000-4000-8000-00000000bed0";
/// In the secrets of these checks.
const SECRET: &str = "canary~secret-2vq9";
/// What the bed's Entra ID says besides: whoever repeats a refusal whole repeats it.
const SAID: &str = "canary-trace-5tq1";
const PROGRAM: &str = "/usr/local/bin/aks-flex-node";
/// What every token of the bed begins with: a JWT's header.
const TOKEN: &str = "eyJ";
/// kubelet's kubeconfig, as the host sees it.
const KUBECONFIG: &str = "/var/lib/machines/kube1/var/lib/kubelet/kubeconfig";

/// What makes a host join with that identity alone.
async fn joining(context: &Context, kind: &str, identity: impl FnOnce(&str) -> Value) -> Result<(Joining, String)> {
    let mut joining = context.joining().await?;
    let client = object_id(&format!("application of {}", joining.name));
    let azure = joining.config["azure"]
        .as_object_mut()
        .context("a configuration has azure")?;
    azure.remove("bootstrapToken");
    azure.insert(kind.to_owned(), identity(&client));
    Ok((joining, client))
}

/// The host, booted, with that page.
async fn boot(context: &Context, joining: &Joining, page: &Page) -> Result<Host> {
    let host = context.provision(joining).await?;
    context.cloud().azure.set(&host, page)?;
    host.start().await?;
    host.wait_booted().await?;
    Ok(host)
}

/// kubelet has asked for its certificate as that account, and works with it; the agent has asked for none.
async fn joined_as(context: &Context, host: &Host, client: &str) -> Result<()> {
    let cluster = &context.cloud().cluster;
    let all: Value = serde_json::from_str(
        &cluster
            .kubectl(&["get", "certificatesigningrequests", "--output=json"], "")
            .await?,
    )?;
    let all = all["items"].as_array().context("a list has items")?;
    let own = |request: &&Value| request["spec"]["username"] == object_id(client).as_str();
    let signers: Vec<&str> = all
        .iter()
        .filter(own)
        .filter_map(|request| request["spec"]["signerName"].as_str())
        .collect();
    ensure!(
        !signers.is_empty()
            && signers
                .iter()
                .all(|signer| *signer == "kubernetes.io/kube-apiserver-client-kubelet"),
        "the account has asked for certificates of {signers:?}"
    );
    // A link, which means a file of the machine.
    let pem = host
        .sh("root=/var/lib/machines/kube1; cat $root$(readlink $root/var/lib/kubelet/pki/kubelet-client-current.pem)")
        .await?;
    let subject = Command::line(&["openssl", "x509", "-noout", "-subject"])
        .stdin(pem)
        .read()
        .await?;
    ensure!(
        subject.contains(&format!("system:node:{}", host.name())),
        "kubelet's certificate is of {subject}"
    );
    ensure!(
        !host
            .exists("/etc/aks-flex-node/daemon-credentials/daemon-controller-current.pem")
            .await?,
        "the agent has a certificate, and should show its tokens"
    );
    Ok(())
}

/// The agent sees what is asked of it, and answers.
async fn serves(context: &Context, host: &Host, name: &str) -> Result<()> {
    let cluster = &context.cloud().cluster;
    let name = format!("{name}-{}", host.name());
    cluster
        .machine_operation(
            &name,
            host.name(),
            "AgentUpgrade",
            &[("downloadURL", "oci://registry.test:5000/agent")],
        )
        .await?;
    let operation = cluster.operation_over(&name, Duration::from_secs(60)).await?;
    ensure!(
        (operation.phase(), operation.reason()) == ("Failed", "InvalidParameters"),
        "the operation ended {}",
        operation.text()
    );
    Ok(())
}

/// How often a host was given a token by that one.
fn given(context: &Context, host: &Host, of: Who, since: Mark) -> Result<usize> {
    let requests = context.cloud().azure.requests(host, since)?;
    Ok(requests
        .iter()
        .filter(|request| request.of == of && request.status == 200)
        .count())
}

/// A host without a bootstrap token joins by its virtual machine's identity: kubelet has a certificate afterwards, and the agent another token
/// before its first one ends.
pub(super) async fn managed_identity(context: &Context) -> Result<()> {
    let (joining, client) = joining(context, "managedIdentity", |client| json!({ "clientId": client })).await?;
    let page = Page::managed(&client).life(24);
    let host = boot(context, &joining, &page).await?;
    context.is_joined(&host).await?;
    joined_as(context, &host, &client).await?;
    serves(context, &host, "first").await?;
    // Two more: the one that it has now is younger than the one that it had.
    let mark = context.cloud().azure.mark();
    wait::until_true("a token after the next", Duration::from_secs(150), async || {
        Ok(given(context, &host, Who::Metadata, mark)? >= 2)
    })
    .await?;
    serves(context, &host, "renewed").await
}

/// A host joins by a service principal's secret, when Entra ID is busy at first; the secret is where it has to be, and nowhere else.
pub(super) async fn service_principal(context: &Context) -> Result<()> {
    let (joining, client) = joining(
        context,
        "servicePrincipal",
        |client| json!({ "tenantId": TENANT, "clientId": client, "clientSecret": SECRET }),
    )
    .await?;
    let page = Page::default()
        .principal(Principal {
            tenant: TENANT.to_owned(),
            client: client.clone(),
            secret: Some(SECRET.to_owned()),
            certificate: None,
        })
        .wrong(Who::Entra, How::Status(503, Some(1)))
        .times(2);
    let host = boot(context, &joining, &page).await?;
    context.is_joined(&host).await?;
    joined_as(context, &host, &client).await?;
    serves(context, &host, "first").await?;
    wait::until_true("the end of the inputs", Duration::from_secs(60), async || {
        Ok(!host.exists(crate::node::INPUTS).await?)
    })
    .await?;
    let found = found(&host, &[SECRET]).await?;
    let may = [CONFIG, KUBECONFIG].map(|path| format!("file 600 {path}"));
    ensure!(
        found.iter().all(|place| may.contains(place)) && found.len() == may.len(),
        "the secret is in {found:#?}, not just in {may:#?}"
    );
    silent(&host).await
}

/// No journal has a token, or more of a refusal than its codes.
async fn silent(host: &Host) -> Result<()> {
    for from in ["--directory=/var/log/journal", "--machine=kube1"] {
        let lines = host
            .exec_ok(&["journalctl", from, "--merge", "--quiet", "--output=cat"])
            .await?;
        for canary in [TOKEN, SECRET, SAID] {
            let line = lines.lines().find(|line| line.contains(canary));
            ensure!(line.is_none(), "the journal of {from} has {line:?}");
        }
    }
    Ok(())
}

/// The plugin in the machine, run by hand.
async fn plugin(host: &Host, environment: &[(&str, &str)], args: &[&str]) -> Result<crate::command::Output> {
    let set: Vec<String> = environment
        .iter()
        .map(|(name, value)| format!("--setenv={name}={value}"))
        .collect();
    let mut line = vec![
        "systemd-run",
        "--machine=kube1",
        "--quiet",
        "--collect",
        "--pipe",
        "--wait",
    ];
    line.extend(set.iter().map(String::as_str));
    line.extend(["--", PROGRAM, "token", "kubelogin"]);
    line.extend(args);
    host.exec(&line).await
}

/// What a run printed, which is a credential of that version that is good for a while.
fn credential(ran: &crate::command::Output, version: &str) -> Result<()> {
    ensure!(ran.ok(), "the plugin ended with {:?}: {}", ran.code, ran.stderr);
    let said: Value = serde_json::from_str(&ran.stdout).context("the plugin prints no JSON")?;
    ensure!(
        said["kind"] == "ExecCredential"
            && said["apiVersion"] == format!("client.authentication.k8s.io/{version}").as_str(),
        "the plugin prints a {} of {}",
        said["kind"],
        said["apiVersion"]
    );
    ensure!(
        said["status"]["token"]
            .as_str()
            .is_some_and(|token| token.starts_with(TOKEN)),
        "the plugin prints no token"
    );
    let until = said["status"]["expirationTimestamp"].as_str().unwrap_or_default();
    ensure!(until.ends_with('Z') && until.len() == 20, "the token ends at {until:?}");
    Ok(())
}

/// na_r08, fc_h12: an identity that the virtual machine does not have is told in kubelet's journal, with what to do; once it is assigned, and
/// the metadata service no longer too busy, the host joins by itself. By hand, too, the program prints credentials, and never by a proxy.
pub(super) async fn na_r08_fc_h12_credential_plugin(context: &Context) -> Result<()> {
    let (joining, client) = joining(context, "managedIdentity", |client| json!({ "clientId": client })).await?;
    let host = boot(context, &joining, &Page::default()).await?;
    let remedy = "this virtual machine has no such identity: assign it";
    let journal = [
        "journalctl",
        "--machine=kube1",
        "--unit=kubelet.service",
        "--output=cat",
    ];
    wait::until_true("the remedy in kubelet's journal", READY, async || {
        let said = host.exec(&journal).await?.stdout;
        ensure!(
            said.contains(remedy),
            "kubelet says {}",
            said.lines().last().unwrap_or_default()
        );
        Ok(true)
    })
    .await?;
    let certificate = certificate().await?;
    let assigned = Page::managed(&client).principal(Principal {
        tenant: TENANT.to_owned(),
        client: client.clone(),
        secret: None,
        certificate: Some(certificate.clone()),
    });
    let azure = &context.cloud().azure;
    azure.set(
        &host,
        &assigned
            .clone()
            .wrong(Who::Metadata, How::Status(429, Some(2)))
            .times(3),
    )?;
    let mark = azure.mark();
    context.is_joined(&host).await?;
    let throttled = azure.requests(&host, mark)?;
    let throttled = throttled.iter().filter(|request| request.status == 429).count();
    ensure!(throttled == 3, "the metadata service was too busy {throttled} times");
    joined_as(context, &host, &client).await?;
    by_hand(context, &host, &client, &certificate).await?;
    silent(&host).await
}

/// Runs of the plugin that end well, and one that can't.
async fn by_hand(context: &Context, host: &Host, client: &str, certificate: &str) -> Result<()> {
    let azure = &context.cloud().azure;
    // Nobody is there: who asks the metadata service by it gets nothing.
    let dead = format!("http://{}:9", context.bed.net.gateway());
    let managed = [
        ("AAD_LOGIN_METHOD", "msi"),
        ("AZURE_CLIENT_ID", client),
        ("HTTP_PROXY", &dead),
        ("http_proxy", &dead),
    ];
    credential(&plugin(host, &managed, &[]).await?, "v1").context("of a managed identity")?;
    let older = r#"{"apiVersion":"client.authentication.k8s.io/v1beta1","kind":"ExecCredential","spec":{}}"#;
    let older = [managed.as_slice(), &[("KUBERNETES_EXEC_INFO", older)]].concat();
    credential(&plugin(host, &older, &[]).await?, "v1beta1").context("for an older kubelet")?;
    // As kubelet calls it for a principal with a certificate.
    let path = "/var/lib/machines/kube1/root/principal.pem";
    host.write_file(path, certificate, 0o600).await?;
    let principal = [
        ("AAD_LOGIN_METHOD", "spn"),
        ("AAD_SERVICE_PRINCIPAL_CLIENT_ID", client),
        ("AZURE_TENANT_ID", TENANT),
    ];
    let by_certificate = ["--client-certificate-file", "/root/principal.pem"];
    credential(&plugin(host, &principal, &by_certificate).await?, "v1").context("of a certificate")?;

    bootstrap_data(context, host, client).await?;
    let known = Principal {
        tenant: TENANT.to_owned(),
        client: client.to_owned(),
        secret: Some("another".to_owned()),
        certificate: None,
    };
    azure.set(host, &Page::default().principal(known))?;
    let wrong = [principal.as_slice(), &[("AAD_SERVICE_PRINCIPAL_CLIENT_SECRET", SECRET)]].concat();
    let refused = plugin(host, &wrong, &[]).await?;
    let said = &refused.stderr;
    ensure!(
        refused.code == Some(78) && refused.stdout.is_empty() && said.contains("invalid_client, AADSTS7000215"),
        "a wrong secret ends with {:?}: {said}",
        refused.code
    );
    ensure!(
        !said.contains(SECRET) && !said.contains(SAID),
        "the message repeats too much: {said}"
    );
    Ok(())
}

/// A pool's data goes into a file of root's own, if the identity may list it; else the message says what it needs.
async fn bootstrap_data(context: &Context, host: &Host, client: &str) -> Result<()> {
    let line = format!(
        "systemd-run --machine=kube1 --quiet --collect --pipe --wait -- {PROGRAM} fetch-bootstrap-data --auth msi --msi-client-id {client} \
         --cluster-resource-id {} --agent-pool-name flexnodes --output /root/data.json",
        crate::cloud::join::CLUSTER_ID
    );
    let line: Vec<&str> = line.split_whitespace().collect();
    let azure = &context.cloud().azure;
    let refused = host.exec(&line).await?;
    ensure!(
        refused.code == Some(1)
            && refused
                .stderr
                .contains("AuthorizationFailed): this identity may not list"),
        "without a role it ends with {:?}: {}",
        refused.code,
        refused.stderr
    );
    ensure!(
        !refused.stderr.contains("canary"),
        "the message repeats too much: {}",
        refused.stderr
    );
    let data = json!({ "azure": { "bootstrapToken": { "token": "abcdef.0123456789abcdef" } } });
    azure.set(host, &Page::managed(client).pool(data.clone()))?;
    host.exec_ok(&line).await?;
    let path = "/var/lib/machines/kube1/root/data.json";
    let written: Value = serde_json::from_str(&host.read_file(path).await?)?;
    ensure!(written == data, "{path} holds something else");
    let mode = host.sh(&format!("stat --format='%a %U' {path}")).await?;
    ensure!(mode.trim() == "600 root", "{path} is {mode}");
    Ok(())
}

/// A new certificate with its key, PEM.
async fn certificate() -> Result<String> {
    let line = [
        "openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "3650", "-subj", "/CN=bed", "-keyout",
        "-", "-out", "-",
    ];
    let said = Command::line(&line).read().await?;
    // The certificate first.
    let at = said
        .find("-----BEGIN CERTIFICATE")
        .context("openssl makes a certificate")?;
    let (key, certificate) = said.split_at(at);
    Ok(format!("{certificate}{key}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;

    #[test]
    fn what_is_no_credential_is_told_from_one() {
        let ran = |stdout: Value| crate::command::Output {
            code: Some(0),
            stdout: stdout.to_string(),
            stderr: String::new(),
        };
        let header = BASE64_STANDARD.encode(r#"{"typ":"JWT"}"#);
        let good = json!({ "kind": "ExecCredential", "apiVersion": "client.authentication.k8s.io/v1",
            "status": { "token": header, "expirationTimestamp": "2026-01-01T00:00:00Z" } });
        assert!(credential(&ran(good.clone()), "v1").is_ok());
        assert!(credential(&ran(good.clone()), "v1beta1").is_err());
        let mut bad = good;
        bad["status"]["token"] = json!("");
        assert!(credential(&ran(bad), "v1").is_err());
    }
}
