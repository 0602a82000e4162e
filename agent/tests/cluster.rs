//! The edge to Kubernetes against a real control plane: certificate by request, watches, statuses.
//!
//! Ignored by plain `cargo test`, since it needs one: check `cluster.edge` of the harness brings one up and runs it.

use std::time::Duration;

use agent::cluster::{Client, Credential, Ending, Endpoint, Seen, Standing, enrol, watch_node, watch_operations};
use agent::model::{NodeName, Secret};
use agent::operation::Phase;
use agent::store::credentials::Pair;
use k8s_openapi::api::certificates::v1::CertificateSigningRequest;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::{ApiResource, DynamicObject};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::timeout;

const LIMIT: Duration = Duration::from_secs(30);
const TOKEN: &str = "abcdef.0123456789abcdef";

fn resource(group: &str, version: &str, kind: &str, plural: &str) -> ApiResource {
    ApiResource {
        group: group.into(),
        version: version.into(),
        api_version: if group.is_empty() {
            version.into()
        } else {
            format!("{group}/{version}")
        },
        kind: kind.into(),
        plural: plural.into(),
    }
}

async fn apply(admin: &kube::Client, resource: &ApiResource, namespace: Option<&str>, object: Value) {
    let api: Api<DynamicObject> = match namespace {
        Some(namespace) => Api::namespaced_with(admin.clone(), namespace, resource),
        None => Api::all_with(admin.clone(), resource),
    };
    let name = object["metadata"]["name"].as_str().expect("a name").to_owned();
    let how = PatchParams::apply("test").force();
    api.patch(&name, &how, &Patch::Apply(&object)).await.expect("applied");
}

async fn prepare(admin: &kube::Client) {
    let rbac = |kind, plural| resource("rbac.authorization.k8s.io", "v1", kind, plural);
    let (id, secret) = TOKEN.split_once('.').expect("a token");
    apply(
        admin,
        &resource("", "v1", "Secret", "secrets"),
        Some("kube-system"),
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": format!("bootstrap-token-{id}")},
            "type": "bootstrap.kubernetes.io/token",
            "stringData": {"token-id": id, "token-secret": secret, "usage-bootstrap-authentication": "true",
                "auth-extra-groups": "system:bootstrappers:aks-flex-node"},
        }),
    )
    .await;
    apply(admin, &rbac("ClusterRoleBinding", "clusterrolebindings"), None, json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "flex-bootstrap"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "system:node-bootstrapper"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "system:bootstrappers:aks-flex-node"}],
    })).await;
    apply(admin, &rbac("ClusterRole", "clusterroles"), None, json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "flex-daemons"},
        "rules": [
            {"apiGroups": ["unbounded-cloud.io"], "resources": ["machineoperations", "machines"], "verbs": ["get", "list", "watch", "delete"]},
            {"apiGroups": ["unbounded-cloud.io"], "resources": ["machineoperations/status"], "verbs": ["get", "patch", "update"]},
            {"apiGroups": [""], "resources": ["nodes"], "verbs": ["get", "list", "watch"]},
        ],
    })).await;
    apply(admin, &rbac("ClusterRoleBinding", "clusterrolebindings"), None, json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": "flex-daemons"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "flex-daemons"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "aks-flex-node-daemons"}],
    })).await;
}

async fn define(admin: &kube::Client) {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    apply(admin, &resource("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions"), None, json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": "machineoperations.unbounded-cloud.io"},
        "spec": {
            "group": "unbounded-cloud.io", "scope": "Cluster",
            "names": {"kind": "MachineOperation", "plural": "machineoperations", "singular": "machineoperation", "shortNames": ["mop"]},
            "versions": [{"name": "v1alpha3", "served": true, "storage": true, "subresources": {"status": {}},
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": open, "status": open}}}}],
        },
    })).await;
}

/// Plays the approver: the first request of ours that nobody decided on.
async fn approve(admin: &kube::Client) {
    let api: Api<CertificateSigningRequest> = Api::all(admin.clone());
    loop {
        let all = api.list(&kube::api::ListParams::default()).await.expect("a list");
        let open = all.items.into_iter().find(|request| {
            let ours = request
                .metadata
                .name
                .as_ref()
                .is_some_and(|name| name.starts_with("aks-flex-node-daemon-"));
            let decided = request
                .status
                .as_ref()
                .is_some_and(|status| status.conditions.is_some());
            ours && !decided
        });
        if let Some(request) = open {
            let name = request.metadata.name.expect("a name");
            let condition = json!({"status": {"conditions": [
                {"type": "Approved", "status": "True", "reason": "Test", "message": "", "lastUpdateTime": "2026-01-01T00:00:00Z"}]}});
            let how = PatchParams::default();
            api.patch_approval(&name, &how, &Patch::Merge(condition))
                .await
                .expect("approved");
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test]
#[ignore = "needs a control plane"]
async fn na_t23_from_a_token_to_a_certificate_to_an_operation_that_ends() {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let kubeconfig = Kubeconfig::read_from(std::env::var("KUBECONFIG").expect("KUBECONFIG")).expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default())
        .await
        .expect("usable");
    let blocks = config.root_cert.clone().expect("a CA");
    let authorities: String = blocks.iter().map(|der| pem(der)).collect();
    let endpoint = Endpoint {
        server: config.cluster_url.to_string(),
        authorities: authorities.into_bytes(),
    };
    let admin = kube::Client::try_from(config).expect("a client");
    prepare(&admin).await;

    Client::new(&endpoint, &Credential::None)
        .expect("a client")
        .answers(LIMIT)
        .await
        .expect("it answers");
    let elsewhere = Endpoint {
        server: "https://127.0.0.1:1".into(),
        ..endpoint.clone()
    };
    let nobody = Client::new(&elsewhere, &Credential::None).expect("a client");
    nobody
        .answers(Duration::from_secs(2))
        .await
        .expect_err("nobody is there");

    let node: NodeName = "edge-1".parse().expect("a name");
    let by_token = Client::new(&endpoint, &Credential::Token(Secret::new(TOKEN.into()))).expect("a client");
    let enrolled = async { tokio::join!(enrol(&by_token, &node), approve(&admin)).0 };
    let (certificate, key) = timeout(LIMIT, enrolled).await.expect("in time").expect("a certificate");
    let pair = Pair::new(
        certificate.clone(),
        key.clone(),
        &node,
        k8s_openapi::jiff::Timestamp::now(),
    )
    .expect("fit");
    assert!(pair.not_after > pair.not_before);
    let leaf = x509_parser::pem::Pem::iter_from_buffer(certificate.as_bytes())
        .next()
        .expect("one")
        .expect("PEM");
    let subject = leaf.parse_x509().expect("X.509").subject().to_string();
    assert_eq!(
        subject, "O=system:nodes + O=aks-flex-node-daemons, CN=system:node:edge-1",
        "as issued"
    );

    let client = Client::new(&endpoint, &Credential::Certificate { certificate, key }).expect("a client");
    // Renewal: the certificate asks for its successor.
    let renewed = async { tokio::join!(enrol(&client, &node), approve(&admin)).0 };
    timeout(LIMIT, renewed)
        .await
        .expect("in time")
        .expect("a renewed certificate");

    let (sender, mut seen) = watch::channel(Seen::default());
    let watching = async {
        tokio::join!(watch_operations(&client, &sender), watch_node(&client, &node, &sender));
    };
    let acting = async {
        // The kind comes while the watch already waits for it.
        tokio::time::sleep(Duration::from_secs(1)).await;
        define(&admin).await;
        timeout(LIMIT, seen.wait_for(|seen| seen.whole))
            .await
            .expect("in time")
            .expect("seen");
        let api: Api<DynamicObject> = Api::all_with(
            admin.clone(),
            &resource(
                "unbounded-cloud.io",
                "v1alpha3",
                "MachineOperation",
                "machineoperations",
            ),
        );
        let _ = api.delete("up", &kube::api::DeleteParams::default()).await;
        let object = json!({"apiVersion": "unbounded-cloud.io/v1alpha3", "kind": "MachineOperation", "metadata": {"name": "up"},
            "spec": {"machineRef": "edge-1", "operationKind": "AgentUpgrade", "parameters": {"sha256": "x"}}});
        let made: DynamicObject = serde_json::from_value(object).expect("an object");
        let made = api.create(&PostParams::default(), &made).await.expect("made");
        let uid = made.metadata.uid.expect("a UID");
        timeout(
            LIMIT,
            seen.wait_for(|seen| seen.operations.get("up").is_some_and(|op| op.uid == uid)),
        )
        .await
        .expect("in time")
        .expect("seen");

        let at = "2026-11-29T10:00:00.5Z".parse().expect("a time");
        assert_eq!(client.machine_generation("edge-1").await.expect("none is fine"), 0);
        assert_eq!(
            client.begin("up", "another", "m", at, 0).await.expect("answered"),
            Standing::NotCurrent
        );
        assert_eq!(
            client.begin("up", &uid, "making ready", at, 0).await.expect("written"),
            Standing::Current
        );
        let end = Ending {
            phase: "Complete",
            reason: "Succeeded",
            message: "it runs".into(),
            started_at: None,
            completed_at: "2026-11-29T10:00:05Z".parse().expect("a time"),
            generation: 0,
        };
        assert_eq!(
            client.finish("up", &uid, &end).await.expect("written"),
            Standing::Current
        );
        assert_eq!(
            client
                .finish("up", &uid, &Ending { phase: "Failed", ..end })
                .await
                .expect("answered"),
            Standing::NotCurrent
        );
        let status = api.get("up").await.expect("there").data["status"].clone();
        assert_eq!(status["phase"], "Complete");
        assert_eq!(status["startedAt"], "2026-11-29T10:00:00Z");
        assert_eq!(status["completedAt"], "2026-11-29T10:00:05Z");
        assert_eq!(status["conditions"][0]["reason"], "Succeeded");
        timeout(LIMIT, seen.wait_for(|seen| seen.operations["up"].phase == Phase::Over))
            .await
            .expect("in time")
            .expect("seen");
        client
            .remove("up", "another")
            .await
            .expect("another UID is not ours to remove");
        assert!(api.get_opt("up").await.expect("answered").is_some());
        client.remove("up", &uid).await.expect("removed");
        timeout(LIMIT, seen.wait_for(|seen| seen.operations.is_empty()))
            .await
            .expect("in time")
            .expect("seen");
    };
    tokio::select! {
        () = watching => panic!("a watch ended"),
        () = acting => {}
    }
}

fn pem(der: &[u8]) -> String {
    use base64::Engine as _;
    let body = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n")
}
