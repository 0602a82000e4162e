//! The built program against bad input: its exit code, its message, and that the message repeats no value.

#![allow(clippy::unwrap_used, reason = "a test, and its helpers")]

use std::{fs, os::unix::fs::PermissionsExt, path::Path, process::Output};

use serde_json::{Value, json};

const NEVER: i32 = 78;

/// Runs the program with nothing of our environment.
fn run(args: &[&str]) -> Output {
    run_in(&[], args)
}

/// Runs the program with this environment alone.
fn run_in(environment: &[(&str, &str)], args: &[&str]) -> Output {
    #[expect(clippy::disallowed_methods, reason = "the program under test is no tool of the host")]
    std::process::Command::new(env!("CARGO_BIN_EXE_aks-flex-node"))
        .args(args)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// The message of a run that ends with this code; it is one line, on stderr.
fn message(args: &[&str], code: i32) -> String {
    message_in(&[], args, code)
}

fn message_in(environment: &[(&str, &str)], args: &[&str], code: i32) -> String {
    let output = run_in(environment, args);
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(code), "{args:?}: {text}");
    assert!(output.stdout.is_empty(), "{args:?}");
    assert!(!text.to_lowercase().contains("canary"), "{args:?}: {text}");
    let line = text.lines().last().unwrap_or_default();
    line.strip_prefix("aks-flex-node: the command failed: ")
        .unwrap_or_else(|| panic!("{args:?}: {text}"))
        .to_owned()
}

fn start(path: &Path, code: i32) -> String {
    message(&["start", "--config", path.to_str().unwrap()], code)
}

fn config() -> Value {
    json!({
        "azure": {
            "bootstrapToken": {"token": "abcdef.0123456789abcdef"},
            "targetCluster": {"resourceId": "/subscriptions/00000000-0000-0000-0000-000000000001/resourceGroups/rg/providers/Microsoft.ContainerService/managedClusters/c1"}
        },
        "node": {"kubelet": {"clusterFQDN": "c1", "caCertData": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCg=="}},
        "agent": {"nodeName": "edge-1"},
        "components": {"kubernetes": "1.34.0"}
    })
}

#[test]
fn version_is_five_lines() {
    let output = run(&["version"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let names = text
        .lines()
        .map(|line| line.split(':').next().unwrap())
        .collect::<Vec<_>>();
    assert_eq!(
        names,
        [
            "AKS Flex Node Agent",
            "Version",
            "Git Commit",
            "Build Time",
            "Upgrade Self-Check"
        ]
    );
    assert!(output.status.success() && output.stderr.is_empty());
}

#[test]
fn a_credential_plugin_that_cannot_work_says_why_and_is_final() {
    let file = |mode| {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        std::io::Write::write_all(&mut file, b"canary").unwrap();
        fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        file
    };
    let (open, bad) = (file(0o640), file(0o600));
    let principal = [
        ("AAD_LOGIN_METHOD", "spn"),
        ("AZURE_TENANT_ID", "canary"),
        ("AAD_SERVICE_PRINCIPAL_CLIENT_ID", "canary"),
    ];
    let (open, bad) = (open.path().to_str().unwrap(), bad.path().to_str().unwrap());
    for (environment, args, named) in [
        (&[][..], &[][..], "AAD_LOGIN_METHOD"),
        (&[("AAD_LOGIN_METHOD", "canary")], &[], "write spn or msi"),
        (&principal, &[], "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET is missing"),
        (
            &[("AAD_LOGIN_METHOD", "msi"), ("KUBERNETES_EXEC_INFO", "{canary")],
            &[],
            "KUBERNETES_EXEC_INFO",
        ),
        (&principal, &["--pop-enabled"], "proof-of-possession"),
        (&principal, &["--pop-claims", "u=canary"], "proof-of-possession"),
        (&principal, &["--client-certificate-file", "canary"], "absolute"),
        (&principal, &["--client-certificate-file", "/canary"], "is not there"),
        (&principal, &["--client-certificate-file", open], "0600"),
        (&principal, &["--client-certificate-file", bad], "holds no certificate"),
    ] {
        let line = [&["token", "kubelogin"], args].concat();
        let text = message_in(environment, &line, NEVER);
        assert!(
            text.starts_with("no token can be had: ") && text.contains(named),
            "{args:?}: {text}"
        );
    }
}

#[test]
fn a_command_line_that_cannot_work_is_final() {
    for (line, named) in [
        (
            &["start", "--conifg=canary"][..],
            "unexpected argument found (--conifg)",
        ),
        (&["start", "--config"], "(--config)"),
        (&["canary"], "there is no such verb"),
        (&["bootstrap", "canary"], "unexpected argument found"),
        (&["nspawn-lifecycle", "pre-start", "canary"], "value"),
        (&[], ""),
    ] {
        let message = message(line, NEVER);
        assert!(
            message.starts_with("the command line can't work: ") && message.contains(named),
            "{message}"
        );
    }
    assert!(run(&["--help"]).status.success());
}

#[test]
fn preflight_prints_json_alone_and_refuses_what_it_does_not_know_before_any_look() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    #[expect(clippy::disallowed_methods, reason = "a test's input")]
    fs::write(&path, config().to_string()).unwrap();
    let mode = fs::metadata(&path).unwrap().permissions().mode();
    let line = ["preflight", "--config", path.to_str().unwrap()];
    for (more, named) in [
        (
            ["--output", "canary"],
            "a value can't be taken (--output): write one of text, json",
        ),
        (
            ["--ignore-preflight-errors", "dns,canary"],
            "there are all, AKSMachineGoal, ",
        ),
        (
            ["--check", "canary"],
            "--check names no check: there are AKSMachineGoal, ",
        ),
    ] {
        let message = message(&[&line[..], &more].concat(), NEVER);
        assert!(message.contains(named), "{message}");
    }
    let output = run(&[
        &line[..],
        &["--check", "Agent-Config", "--check=local-dns", "--output=json"],
    ]
    .concat());
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        report["summary"],
        json!({"ok": 2, "warnings": 0, "errors": 0, "skipped": 0})
    );
    let text = run(&[&line[..], &["--check", "agent-config", "--output="]].concat());
    let text = String::from_utf8(text.stdout).unwrap();
    assert!(
        text.starts_with("[preflight] ") && text.contains("\t[OK agent-config]: "),
        "{text}"
    );
    // Nothing is changed, the file's mode neither.
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode(), mode);
}

#[test]
fn a_configuration_that_is_not_there_is_final() {
    let dir = tempfile::tempdir().unwrap();
    assert!(message(&["start"], NEVER).starts_with("no configuration file was named: write --config"));
    assert!(message(&["start", "--config", "config.json"], NEVER).starts_with("--config names no file of the host"));
    let path = dir.path().join("config.json");
    assert!(start(&path, NEVER).starts_with("there is no configuration file /"));
    fs::create_dir(&path).unwrap();
    assert!(start(&path, NEVER).starts_with("there is no configuration file /"));
}

#[test]
fn a_configuration_that_cannot_work_is_final_and_tells_the_key() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("config.json");
    let write = |bytes: &[u8]| {
        #[expect(clippy::disallowed_methods, reason = "a test's input")]
        fs::write(&path, bytes).unwrap();
    };
    write(b"{\n  canary\n}");
    assert!(start(&path, NEVER).contains("is not JSON at line 2, column 3"));
    for (pointer, value, text) in [
        (
            "/node/kubelet/clusterFQDN",
            json!(["canary"]),
            "node.kubelet.clusterFQDN: expected a string, found a list",
        ),
        (
            "/azure/bootstrapToken",
            json!({"token": "canary"}),
            "azure.bootstrapToken.token is not a bootstrap token",
        ),
        ("/azure/bootstrapToken", json!(null), "azure has no credential"),
        (
            "/agent/nodeName",
            json!("Canary_"),
            "agent.nodeName can't be a node's name",
        ),
        (
            "/node/kubelet/clusterFQDN",
            json!("http://canary"),
            "node.kubelet.clusterFQDN makes a URL that is not https",
        ),
        ("/components/kubernetes", json!(""), "components.kubernetes is missing"),
        (
            "/agent",
            json!({"nodeName": "a", "kubeconfigData": "canary"}),
            "agent.kubeconfigData and node.kubelet.kubeconfigData are not given together",
        ),
    ] {
        let mut config = config();
        *config.pointer_mut(pointer).unwrap() = value;
        write(config.to_string().as_bytes());
        let message = start(&path, NEVER);
        assert!(message.contains(text), "{message}");
    }
    let mut two = config();
    two["azure"]["managedIdentity"] = json!({"clientId": "canary"});
    two["azure"]["servicePrincipal"] = json!({"tenantId": "t", "clientId": "c", "clientSecret": "canary"});
    write(two.to_string().as_bytes());
    assert!(start(&path, NEVER).contains("azure has more than one Azure identity"));
}

#[test]
fn a_command_line_that_cannot_work_is_told_what_to_write() {
    for (line, says) in [
        (
            &[] as &[&str],
            "no verb is given: write one of bootstrap, start, plan, daemon, preflight, reset, ignition, token, fetch-bootstrap-data, version",
        ),
        (&["canary"], "there is no such verb: write one of bootstrap, start,"),
        (&["ignition"], "<DIR> is missing"),
        (
            &["ignition", "canary", "--spec", "canary"],
            "(--spec): write one of 3.3.0, 3.4.0",
        ),
        (&["ignition", "/nonexistent"], "the folder /nonexistent cannot be read"),
        (&["start", "--conifg=canary"], "unexpected argument found (--conifg)"),
    ] {
        let text = message(line, NEVER);
        assert!(text.contains(says), "{line:?}: {text}");
    }
}

#[test]
fn a_plan_of_a_reset_changes_nothing_and_can_be_read_by_a_program() {
    let output = run(&["plan", "reset", "--json"]);
    assert_eq!(output.status.code(), Some(0));
    let plan: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(plan.as_array().is_some_and(|plan| !plan.is_empty()), "{plan}");
}

#[test]
fn inputs_of_no_ignition_config_are_told_without_their_values() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().to_str().unwrap();
    assert!(message(&["ignition", path], NEVER).starts_with("no Ignition config can be made of the inputs"));
    #[expect(clippy::disallowed_methods, reason = "a test's input")]
    let write = |name: &str, text: &str| {
        fs::write(dir.path().join(name), text).unwrap();
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    };
    write("agent.env", "AKS_FLEX_NODE_AGENT_IMAGE=registry.test/canary:latest\n");
    write("bootstrap.env", "AKS_FLEX_NODE_CONFIG_OVERRIDES='{}'\n");
    let text = message(&["ignition", path], NEVER);
    assert!(text.contains("AKS_FLEX_NODE_AGENT_IMAGE in agent.env"), "{text}");
    // What the bootstrap would refuse on each of the hosts.
    let image = format!("AKS_FLEX_NODE_AGENT_IMAGE=registry.test/agent@sha256:{:064}\n", 7);
    write("agent.env", &image);
    for (bootstrap, says) in [
        (
            "AKS_FLEX_NODE_AUHT=canary\n",
            "AKS_FLEX_NODE_AUHT is no variable of the agent",
        ),
        (
            "AKS_FLEX_NODE_CONFIG_OVERRIDES={\"azure\":{\"bootstrapToken\":{\"token\":\"canary\"}}}\n",
            "azure.bootstrapToken.token is not a bootstrap token",
        ),
        ("AKS_FLEX_NODE_CONFIG_OVERRIDES='{}'\n", "azure has no credential"),
    ] {
        write("bootstrap.env", bootstrap);
        let text = message(&["ignition", path], NEVER);
        assert!(text.contains(says), "{text}");
    }
}
