//! Every text of a configuration, replaced by what could mean something to whoever reads the files that it ends in.

use serde_json::{Value, json};
use units::AgentUnit;

use super::*;
use crate::{
    config::{self, Loaded, PATH},
    facts::Facts,
    model::MachineName,
    step::{Entry, Step},
};

/// A configuration with every text that ends in a file of the host or the machine.
fn full() -> Value {
    config::tests::with(&[
        ("azure.tenantId", json!("00000000-0000-0000-0000-000000000002")),
        ("azure.subscriptionId", json!("00000000-0000-0000-0000-000000000001")),
        ("agent.logDir", json!("/var/log/flex")),
        ("agent.logLevel", json!("info")),
        ("components.containerd", json!("2.0.0")),
        ("components.runc", json!("1.2.0")),
        ("components.sandboxImage", json!("r.example/pause:3.9")),
        ("bootstrap.ociImage", json!("r.example/os:1")),
        ("bootstrap.additionalHostDevices", json!(["/dev/kvm", "char-input"])),
        (
            "bootstrap.additionalHostMounts",
            json!([{"source": "/srv/a", "target": "/srv/b"}]),
        ),
        ("bootstrap.additionalRequiredServices", json!(["storage.service"])),
        ("networking.dnsServiceIP", json!("10.0.0.11")),
        ("networking.cniVersion", json!("1.5.1")),
        ("npd.version", json!("v1.35.1")),
        ("node.taints", json!(["a=b:NoSchedule"])),
        ("node.kubelet.nodeIP", json!("10.1.2.3")),
        ("node.kubelet.systemReserved", json!({"cpu": "100m"})),
        ("node.kubelet.kubeReserved", json!({"memory": "1Gi"})),
        (
            "hostRouting",
            json!({
                "staticRoutes": {"enabled": true, "routes": [{"destination": "10.9.0.0/16", "gateway": "10.1.0.1", "dev": "eth0"}]},
                "routeOverlap": {"expectedCidrs": ["10.224.0.0/12"], "mode": "WARN"},
            }),
        ),
    ])
}

const HOSTILE: [&str; 22] = [
    "a\nb",
    "a\r\nExecStart=/canary",
    "\n[Service]\nExecStart=/canary",
    "%n",
    "%%",
    "a b",
    "a\"b",
    "a'b",
    "a\\b",
    "a\\",
    "$(canary)",
    "${canary}",
    "`canary`",
    "ü",
    "\u{1}",
    "\u{7f}",
    "\u{85}",
    "\u{2028}",
    "a;b",
    "[Service]",
    "=",
    "#a",
];

/// The pointers to all texts below a value.
fn texts(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::String(_) => found.push(at.to_owned()),
        Value::Array(all) => all
            .iter()
            .enumerate()
            .for_each(|(index, value)| texts(value, &format!("{at}/{index}"), found)),
        Value::Object(all) => all
            .iter()
            .for_each(|(key, value)| texts(value, &format!("{at}/{}", key.replace('/', "~1")), found)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Each file of the plan: its path, its lines up to what a value could be, and how many there are.
fn skeleton(loaded: &Loaded, facts: &Facts) -> Option<Vec<(String, Vec<String>)>> {
    let settings = &loaded.settings;
    settings.startable().ok()?;
    let goal = Goal::of(settings, facts, MachineName::FIRST).ok()?;
    let programs = Programs::of(settings, None).ok()?;
    let plan = start(&goal, &programs, facts, settings.routing(), &AgentUnit::default()).ok()?;
    let mut all = Vec::new();
    for task in plan.tasks() {
        let (Step::Files(files) | Step::UnitFiles(files)) = &task.step else {
            continue;
        };
        for file in files {
            let Entry::File { content, .. } = &file.entry else {
                continue;
            };
            let text = String::from_utf8(content.bytes().to_vec()).unwrap();
            let head = |line: &str| line.split(['=', ':']).next().unwrap_or_default().to_owned();
            // What systemd and shells take for the end of a line, and what else an editor shows as one.
            let lines = text
                .split(['\n', '\r', '\u{b}', '\u{c}', '\u{85}', '\u{2028}', '\u{2029}'])
                .map(head)
                .collect();
            all.push((file.path.to_string(), lines));
        }
    }
    Some(all)
}

#[test]
fn no_value_adds_a_line_or_a_directive_to_a_file() {
    let facts = super::tests::facts();
    let load = |value: &Value| config::parse(value.to_string().as_bytes(), &PATH, "host");
    let full = full();
    let good = skeleton(&load(&full).unwrap(), &facts).unwrap();
    let mut pointers = Vec::new();
    texts(&full, "", &mut pointers);
    assert!(pointers.len() > 25, "{pointers:?}");
    let mut compared = 0;
    for pointer in pointers {
        for hostile in HOSTILE {
            let mut value = full.clone();
            *value.pointer_mut(&pointer).unwrap() = hostile.into();
            let loaded = match load(&value) {
                Ok(loaded) => loaded,
                Err(error) => {
                    let said = crate::model::chain(&error);
                    assert!(!said.contains("canary"), "{pointer} is repeated: {said}");
                    let key = pointer.split('/').nth(1).unwrap();
                    assert!(said.contains(key), "{pointer} is not named: {said}");
                    continue;
                }
            };
            let Some(made) = skeleton(&loaded, &facts) else {
                continue;
            };
            compared += 1;
            let lines = |all: &[(String, Vec<String>)]| {
                let count = |(path, lines): &(String, Vec<String>)| (path.clone(), lines.len());
                all.iter().map(count).collect::<Vec<_>>()
            };
            assert_eq!(lines(&made), lines(&good), "{pointer} as {hostile:?}");
            let canary = made
                .iter()
                .flat_map(|(_, lines)| lines)
                .find(|line| line.trim_start().starts_with("ExecStart") && line.contains("canary"));
            assert_eq!(canary, None, "{pointer} as {hostile:?}");
        }
    }
    assert!(compared > 20, "only {compared} of them were taken");
}
