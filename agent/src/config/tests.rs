//! Tables for the whole way from bytes to [`Settings`].

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::*;
use crate::model::{Secret, chain};

/// A configuration that works, for the tests of every room.
pub(crate) fn sample() -> Settings {
    settings(&example())
}

fn example() -> Value {
    let pem = "-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n";
    json!({
        "azure": {
            "targetAgentPoolName": "flexpool",
            "bootstrapToken": {"token": "abcdef.0123456789abcdef"},
            "targetCluster": {
                "resourceId": "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c1",
                "location": "westeurope"
            }
        },
        "node": {
            "labels": {"site": "a", "kubernetes.azure.com/managed": "true"},
            "kubelet": {"clusterFQDN": "c1.example.net:6443", "caCertData": STANDARD.encode(pem)}
        },
        "agent": {"nodeName": "edge-1", "machineClient": {
            "mode": "in-cluster",
            "endpointUrl": "/api/v1/namespaces/kube-system/services/http:aks-flex-controller:80/proxy"
        }},
        "components": {"kubernetes": "1.34.0"}
    })
}

fn load_value(value: &Value) -> Result<Loaded, Error> {
    parse(value.to_string().as_bytes(), &PATH, "Host-1")
}

pub(crate) fn settings(value: &Value) -> Settings {
    load_value(value).unwrap().settings
}

/// The example with some keys set, or taken away by a null.
pub(crate) fn with(changes: &[(&str, Value)]) -> Value {
    let mut value = example();
    for (pointer, new) in changes {
        let mut at = &mut value;
        for key in pointer.split('.') {
            at = &mut at[key];
        }
        *at = new.clone();
    }
    value
}

#[test]
fn the_minimal_example_means_what_the_specification_says() {
    let settings = sample();
    assert_eq!(settings.cluster().name(), "c1");
    assert_eq!(settings.subscription(), "00000000-0000-0000-0000-000000000001");
    assert_eq!(settings.resource_manager(), "https://management.azure.com");
    assert_eq!(settings.pool(), "flexpool");
    assert!(matches!(settings.auth().kubelet(), KubeletAuth::Token(_)));
    assert_eq!(settings.node_name().as_str(), "edge-1");
    assert_eq!(settings.kubernetes(), Some("1.34.0"));
    assert_eq!(settings.runc(), Some("1.1.12"));
    assert_eq!(settings.api_server(), Some("https://c1.example.net:6443"));
    assert!(settings.certificate_authority().unwrap().starts_with(b"-----BEGIN"));
    assert_eq!(settings.labels()["kubernetes.azure.com/managed"], "false");
    assert_eq!((settings.max_pods(), settings.verbosity()), (110, 2));
    assert_eq!(settings.image_gc(), ImageGc { high: 85, low: 80 });
    assert_eq!(settings.dns_service_ip().to_string(), "10.0.0.10");
    assert_eq!(settings.log_dir().as_str(), "/var/log/aks-flex-node");
    assert_eq!(settings.system_reserved().len(), 2);
    assert_eq!(settings.machine_reconcile_interval().as_secs(), 600);
    assert_eq!(settings.machine_operations(), MachineOperations::Auto);
    assert!(!settings.requires_machine_registration());
    assert!(settings.unsupported().is_empty());
    assert_eq!(settings.npd(), None);
}

#[test]
fn the_host_names_a_node_without_a_name() {
    assert_eq!(
        settings(&with(&[("agent.nodeName", Value::Null)])).node_name().as_str(),
        "host-1"
    );
    assert_eq!(
        settings(&with(&[("agent.nodeName", json!(" a.b "))]))
            .node_name()
            .as_str(),
        "a.b"
    );
    let nameless = with(&[("agent.nodeName", json!(" "))]).to_string();
    for host in ["", "localhost", "LOCALHOST\n", "localhost.localdomain", "(none)"] {
        let error = parse(nameless.as_bytes(), &PATH, host).unwrap_err();
        assert!(
            matches!(error, Error::Nameless { .. }) && error.may_pass(),
            "{host}: a host may be named later"
        );
    }
    let error = chain(&parse(nameless.as_bytes(), &PATH, "my_host").unwrap_err());
    assert!(
        error.contains("agent.nodeName is missing, and the host's name can't be a node's"),
        "{error}"
    );
}

#[test]
fn empty_and_zero_stand_for_the_default() {
    let settings = settings(&with(&[
        ("node.maxPods", json!(0)),
        ("agent.logLevel", json!("")),
        ("agent.machineReconcileInterval", json!("0")),
        ("azure.targetAgentPoolName", json!("  ")),
        ("networking", json!({"dnsServiceIP": ""})),
    ]));
    assert_eq!(settings.max_pods(), 110);
    assert_eq!(settings.log_level(), LogLevel::Info);
    assert_eq!(settings.machine_reconcile_interval().as_secs(), 600);
    assert_eq!(settings.pool(), "aksflexnodes");
    assert_eq!(settings.dns_service_ip().to_string(), "10.0.0.10");
}

#[test]
fn what_is_given_is_what_is_meant() {
    let settings = settings(&with(&[
        ("agent.logLevel", json!(" WARNING ")),
        ("agent.machineReconcileInterval", json!(5_000_000_000_u64)),
        ("agent.machineOperationMode", json!("disable")),
        ("azure.managedIdentity", json!({})),
        ("azure.subscriptionId", json!("sub")),
        (
            "bootstrap",
            json!({
                "additionalHostMounts": [{"source": "/opt/a"}, {"source": "/opt/b", "target": "/b", "readOnly": true}],
                "additionalHostDevices": ["/dev/kvm", "char-input"],
                "additionalRequiredServices": ["iscsid.service"],
            }),
        ),
        ("node.kubelet.nodeIP", json!("10.0.0.4")),
        ("node.kubelet.imageGCLowThreshold", json!(0)),
        ("node.taints", json!(["a=b:NoSchedule"])),
    ]));
    assert_eq!(settings.log_level(), LogLevel::Warning);
    assert_eq!(settings.machine_reconcile_interval().as_secs(), 5);
    assert_eq!(settings.machine_operations(), MachineOperations::Disable);
    assert_eq!(settings.auth().identity(), Some(&Identity::Managed { client_id: None }));
    assert!(
        settings.requires_machine_registration(),
        "an Azure identity asks for it by default"
    );
    assert_eq!(settings.subscription(), "sub");
    assert_eq!(settings.mounts()[0].target, settings.mounts()[0].source);
    assert_eq!(settings.mounts()[1].access, Access::ReadOnly);
    assert_eq!(settings.devices().len(), 2);
    assert_eq!(settings.required_services(), ["iscsid.service"]);
    assert_eq!(settings.node_ips().len(), 1);
    assert_eq!(settings.image_gc().low, 0);
    assert_eq!(settings.taints(), ["a=b:NoSchedule"]);
}

#[test]
fn identities_are_chosen_as_the_table_says() {
    let principal = json!({"tenantId": "t", "clientId": "c", "clientSecret": "s"});
    let token = ("azure.bootstrapToken", Value::Null);
    let by_principal = settings(&with(&[token.clone(), ("azure.servicePrincipal", principal.clone())]));
    assert!(matches!(
        by_principal.auth().kubelet(),
        KubeletAuth::ServicePrincipal(_)
    ));
    let managed = settings(&with(&[
        token.clone(),
        ("azure.managedIdentity", json!({"clientId": "x"})),
    ]));
    assert_eq!(managed.auth().kubelet(), KubeletAuth::Managed { client_id: Some("x") });
    let arc = settings(&with(&[
        token,
        ("azure.arc", json!({"enabled": true, "tags": {"a": "b"}})),
    ]));
    assert_eq!(arc.auth().kubelet(), KubeletAuth::None);
    assert_eq!(arc.unsupported()[0].key, "azure.arc");
    assert!(managed.unsupported().is_empty() && by_principal.unsupported().is_empty());
    let both = settings(&with(&[("azure.servicePrincipal", principal)]));
    assert!(matches!(both.auth().kubelet(), KubeletAuth::Token(_)) && both.auth().identity().is_some());
    assert!(both.unsupported().is_empty());
}

#[test]
fn what_this_release_cannot_do_is_named() {
    for (key, value, named) in [
        (
            "networking",
            json!({"localDNS": {"mode": "Required"}}),
            "networking.localDNS",
        ),
        ("networking", json!({"localDNS": {}}), "networking.localDNS"),
        (
            "node.kubelet.imageCredentialProvider",
            json!({"configPath": "/a"}),
            "node.kubelet.imageCredentialProvider",
        ),
        (
            "hostRouting",
            json!({"staticRoutes": {"routes": [{"destination": "10.0.0.0/8"}]}}),
            "hostRouting.staticRoutes.enabled",
        ),
        (
            "hostRouting",
            json!({"routeOverlap": {"mode": "SOMETIMES"}}),
            "hostRouting.routeOverlap.mode",
        ),
        (
            "agent.requireMachineRegistration",
            json!(true),
            "agent.requireMachineRegistration",
        ),
    ] {
        let settings = settings(&with(&[(key, value)]));
        let keys = settings
            .unsupported()
            .iter()
            .map(|mistake| &*mistake.key)
            .collect::<Vec<_>>();
        assert_eq!(keys, [named]);
    }
    let pair = settings(&with(&[
        ("agent.kubeconfigData", json!("a")),
        ("node.kubelet.kubeconfigData", json!("b")),
        ("networking", json!({"localDNS": {"mode": "Disabled"}})),
    ]));
    assert_eq!(pair.unsupported().len(), 2);
}

#[test]
fn start_needs_a_version_and_nothing_unsupported() {
    assert_eq!(sample().startable(), Ok(()));
    let settings = settings(&with(&[
        ("components", Value::Null),
        ("networking", json!({"localDNS": {}})),
    ]));
    assert_eq!(
        chain(&settings.startable().unwrap_err()),
        "components.kubernetes is missing: write the version, such as 1.34.0; \
         networking.localDNS asks for what is not part of this release yet: write mode Disabled, or leave it out"
    );
}

#[test]
fn fc_u6_keys_of_a_newer_release_are_no_error() {
    let value = with(&[
        ("future", json!({"a": 1})),
        ("node.kubelet.newer", json!(["x"])),
        ("agent.hope", json!(null)),
    ]);
    let loaded = load_value(&value).unwrap();
    assert_eq!(loaded.unknown, ["node.kubelet.newer", "future"]);
    assert_eq!(loaded.settings, sample());
}

/// One wrong value a row: every rule of the file, with a canary in every text that may hold one.
#[test]
fn each_mistake_names_its_key_and_never_repeats_the_value() {
    let rows: &[&[(&str, Value)]] = &[
        &[("azure.targetCluster", Value::Null)],
        &[("azure.targetCluster.resourceId", json!("/canary"))],
        &[(
            "azure.resourceManagerEndpoint",
            json!("http://canary:canary@canary:1/canary?canary#canary"),
        )],
        &[("azure.bootstrapToken", Value::Null)],
        &[("azure.bootstrapToken.token", json!("CANARY.canary"))],
        &[(
            "azure.servicePrincipal",
            json!({"clientSecret": "canary", "clientSecretFile": "/canary"}),
        )],
        &[("azure.servicePrincipal", json!({"tenantId": "t", "clientId": "c"}))],
        &[(
            "azure.servicePrincipal",
            json!({"tenantId": "t", "clientId": "c", "clientSecretFile": "canary"}),
        )],
        &[
            ("azure.managedIdentity", json!({"clientId": "canary"})),
            ("azure.arc", json!({"enabled": true})),
        ],
        &[("agent.logLevel", json!("canary"))],
        &[("agent.logDir", json!("canary"))],
        &[("agent.nodeName", json!("Canary_"))],
        &[("agent.machineClient.mode", json!("canary"))],
        &[("agent.machineClient.endpointUrl", json!(""))],
        &[("agent.machineClient.endpointUrl", json!("https://canary/canary"))],
        &[("agent.machineClient", json!({"endpointUrl": "ftp://canary"}))],
        &[("agent.machineOperationMode", json!("canary"))],
        &[("agent.machineReconcileInterval", json!("-1canary"))],
        &[("agent.machineReconcileInterval", json!(-1))],
        &[("agent.hostPrefix", json!("/canary canary"))],
        &[("agent.kubeconfigData", json!("canary"))],
        &[("components.kubernetes", json!("../canary"))],
        &[("components.containerd", json!("canary"))],
        &[("components.runc", json!("canary"))],
        &[("networking", json!({"cniVersion": "canary", "dnsServiceIP": "canary"}))],
        &[("bootstrap", json!({"additionalHostDevices": ["/dev/kvm", "canary"]}))],
        &[(
            "bootstrap",
            json!({"additionalHostMounts": [{"source": "/a", "target": "canary"}, {}]}),
        )],
        &[("bootstrap", json!({"additionalRequiredServices": ["canary"]}))],
        &[("node.maxPods", json!(-1))],
        &[("node.maxPods", json!("canary"))],
        &[("node.maxPods", json!(2_147_483_648_i64))],
        &[("node.labels.a", json!("canary canary"))],
        &[("node.labels.a", json!(1))],
        &[("node.taints", json!(["canary"]))],
        &[("node.kubelet.verbosity", json!(-1))],
        &[("node.kubelet.imageGCHighThreshold", json!(101))],
        &[("node.kubelet.imageGCHighThreshold", json!(80))],
        &[("node.kubelet.imageGCLowThreshold", json!(-1))],
        &[("node.kubelet.clusterFQDN", json!(""))],
        &[("node.kubelet.clusterFQDN", json!("http://canary@canary"))],
        &[("node.kubelet.clusterFQDN", json!("canary\n:6443"))],
        &[("node.kubelet.clusterFQDN", json!("canary:6443\\"))],
        &[("node.kubelet.clusterFQDN", json!("canar\u{443}:6443"))],
        &[("node.kubelet.clusterFQDN", json!("@canary:6443"))],
        &[("node.kubelet.clusterFQDN", json!("canary:6443/.."))],
        &[("node.kubelet.clusterFQDN", json!("canary:"))],
        &[("node.kubelet.clusterFQDN", json!("canary:0"))],
        &[("node.kubelet.systemReserved", json!({"cpu": "canary"}))],
        &[("node.kubelet.kubeReserved", json!({"canary": "1"}))],
        &[("components.sandboxImage", json!("u:canary@r.test/x:1?sig=canary"))],
        &[("bootstrap", json!({"ociImage": "r.test/x:1\ncanary"}))],
        &[("node.kubelet.caCertData", json!("canary*"))],
        &[("node.kubelet.caCertData", Value::Null)],
        &[("node.kubelet.nodeIP", json!("canary"))],
        &[("node.kubelet.nodeIP", json!(["canary"]))],
        &[("azure", json!("canary"))],
        &[("azure.arc", json!({"enabled": "canary"}))],
    ];
    let texts = rows
        .iter()
        .map(|row| {
            let error = load_value(&with(row)).unwrap_err();
            assert!(!error.may_pass());
            assert!(!format!("{error:?}").to_lowercase().contains("canary"), "{row:?}");
            chain(&error)
        })
        .collect::<Vec<_>>();
    let texts = texts.join("\n");
    assert!(!texts.to_lowercase().contains("canary"), "{texts}");
    insta::assert_snapshot!(texts);
}

#[test]
fn neither_file_nor_settings_show_a_value() {
    let value = with(&[
        ("azure.bootstrapToken.token", json!("canary.canarycanarycana")),
        (
            "azure.servicePrincipal",
            json!({"tenantId": "t", "clientId": "c", "clientSecret": "canary"}),
        ),
        ("bootstrap", json!({"ociImage": "canary"})),
    ]);
    let loaded = load_value(&value).unwrap();
    let (file, _) = decode::decode::<File>(&value).unwrap();
    let shown = format!("{loaded:?} {:?} {file:?}", loaded.settings.auth());
    assert!(!shown.contains("canary"), "{shown}");
}

#[test]
fn a_file_that_is_no_json_is_told_by_line_and_column_alone() {
    for (bytes, place) in [
        (&b"{\n  \"canary\": canary\n}"[..], "line 2, column 13"),
        (b"", "line 1, column 0"),
        (b"{\"a\": \"\xff\"}", "line 1, column 8"),
        (b"{} canary", "line 1, column 4"),
    ] {
        let error = chain(&parse(bytes, &PATH, "h").unwrap_err());
        assert_eq!(
            error,
            format!("/etc/aks-flex-node/config.json is not JSON at {place}: write one JSON object")
        );
    }
}

#[test]
fn the_classes_of_load_errors_are_told_apart() {
    let dir = tempfile::tempdir().unwrap();
    let host = hostexec::Host::rooted(dir.path());
    assert!(matches!(load(&host, "", "h"), Err(Error::NoPath)));
    assert!(matches!(load(&host, "config.json", "h"), Err(Error::BadPath(_))));
    let Err(Error::Missing { source, .. }) = load(&host, PATH.as_str(), "h") else {
        panic!("not missing")
    };
    assert_eq!(source.kind(), std::io::ErrorKind::NotFound);
    host.create_dir(&PATH, 0o755).unwrap();
    let error = load(&host, PATH.as_str(), "h").unwrap_err();
    assert!(matches!(error, Error::Missing { .. }) && !error.may_pass());
    host.remove_tree(&PATH).unwrap();
    host.write(&PATH, example().to_string().as_bytes(), 0o600).unwrap();
    assert_eq!(load(&host, PATH.as_str(), "h").unwrap().settings, sample());
}

#[test]
fn a_configuration_that_others_may_read_becomes_roots_alone() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = tempfile::tempdir().unwrap();
    let host = hostexec::Host::rooted(dir.path());
    for (mode, becomes) in [(0o666, 0o600), (0o640, 0o600), (0o400, 0o400)] {
        host.write(&PATH, b"{}", mode).unwrap();
        guard(&host, PATH.as_str());
        let found = host.metadata(&PATH).unwrap();
        assert_eq!(found.permissions().mode() & 0o777, becomes);
        assert_eq!(host.read(&PATH).unwrap(), b"{}");
    }
}

#[test]
fn a_credential_that_cannot_be_read_keeps_start_away_and_nothing_else() {
    use std::{fs, os::unix::fs::PermissionsExt as _};
    let dir = tempfile::tempdir().unwrap();
    let host = hostexec::Host::rooted(dir.path());
    let read = || {
        let principal = json!({"tenantId": "t", "clientId": "c", "clientSecretFile": "/p"});
        let mut settings = settings(&with(&[("azure.servicePrincipal", principal)]));
        read_credential(&host, &mut settings);
        settings
    };
    let path = HostPath::fixed("/p");
    let named = || {
        let settings = read();
        assert!(settings.startable().is_err());
        settings.unsupported()[0].to_string()
    };
    assert!(named().contains("does not have"));
    for (bytes, words) in [
        (&b" \n"[..], "empty"),
        (b"\xff\xfe", "neither text nor PEM"),
        (b"\x30\x82\x01\x00", "openssl pkcs12"),
    ] {
        host.write(&path, bytes, 0o600).unwrap();
        assert!(named().contains(words), "{words}");
    }
    host.write(&path, b"canary\n", 0o600).unwrap();
    let settings = read();
    let Some(Identity::ServicePrincipal(principal)) = settings.auth().identity() else {
        panic!("another identity")
    };
    assert_eq!(
        principal.credential,
        Credential::Secret(Secret::new("canary".to_owned()))
    );
    fs::set_permissions(dir.path().join("p"), fs::Permissions::from_mode(0o640)).unwrap();
    assert!(named().contains("0600") && !named().contains("canary"));
}

#[test]
fn start_names_every_setting_at_once_that_it_cannot_work_with() {
    let settings = settings(&with(&[
        ("azure.bootstrapToken", Value::Null),
        ("azure.arc", json!({"enabled": true})),
        ("agent.requireMachineRegistration", json!(true)),
        ("agent.kubeconfigData", json!("canary")),
        ("node.kubelet.kubeconfigData", json!("canary")),
        ("node.kubelet.clusterFQDN", Value::Null),
        ("node.kubelet.caCertData", Value::Null),
        ("node.kubelet.imageCredentialProvider", json!({"configPath": "/canary"})),
        ("networking.localDNS", json!({"mode": "Required"})),
        ("components.kubernetes", Value::Null),
    ]));
    let mistakes = settings.startable().unwrap_err();
    let mut keys: Vec<&str> = mistakes.iter().map(|mistake| &*mistake.key).collect();
    keys.sort_unstable();
    assert_eq!(
        keys,
        [
            "agent.kubeconfigData",
            "agent.requireMachineRegistration",
            "azure.arc",
            "components.kubernetes",
            "networking.localDNS",
            "node.kubelet.caCertData",
            "node.kubelet.clusterFQDN",
            "node.kubelet.imageCredentialProvider",
            "node.kubelet.kubeconfigData",
        ]
    );
    assert!(!mistakes.to_string().contains("canary"));
}
