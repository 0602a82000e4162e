//! What the renderer makes of a folder, judged by Ignition's own validator and by the parser of `ignition-config`.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: folders of inputs, and ignition-validate as the judge"
)]

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use butane::{Error, Inputs, OPERATORS_FILE, Spec};

const IMAGE: &str = "AKS_FLEX_NODE_AGENT_IMAGE=registry.test:5000/agent@sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef\n";

/// A folder of inputs: `files` are written over the least that is needed.
fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let least = [("agent.env", IMAGE), ("bootstrap.env", "AKS_FLEX_NODE_AUTH=msi\n")];
    for (name, text) in least.iter().chain(files) {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
    dir
}

fn full() -> tempfile::TempDir {
    folder(&[
        (
            "agent.env",
            &format!("{IMAGE}AKS_FLEX_NODE_AGENT_HOSTS_DIR=/etc/aks-flex-node-agent-hosts\n"),
        ),
        (
            "bootstrap.env",
            "AKS_FLEX_NODE_BASE_CONFIG_FILE=/etc/aks-flex-node/base-config.json\n",
        ),
        ("base-config.json", "{\"node\":{\"maxPods\":30}}\n"),
        ("secrets/sp-client-secret", "hush\n"),
        (
            "hosts/registry.test:5000/hosts.toml",
            "server = \"https://registry.test:5000\"\n",
        ),
        (
            "extra.bu",
            "variant: flatcar\nversion: 1.1.0\npasswd:\n  users:\n    - name: core\n      ssh_authorized_keys: [ssh-ed25519 AAAA]\nstorage:\n  files:\n    - path: /etc/motd\n      mode: 0644\n      contents: {inline: hello}\nsystemd:\n  units:\n    - name: a.service\n      enabled: true\n      contents: |\n        [Service]\n        ExecStart=/usr/bin/true\n        [Install]\n        WantedBy=multi-user.target\n    - name: containerd.service\n      dropins:\n        - name: 10-x.conf\n          contents: \"[Service]\\nLimitCORE=0\\n\"\n",
        ),
    ])
}

fn rendered(dir: &Path, spec: Spec) -> Result<String, Error> {
    Ok(serde_json::to_string_pretty(&butane::render(&Inputs::load(dir)?, spec)?).unwrap() + "\n")
}

/// Ends the test if Ignition's validator has anything to say.
fn validate(json: &str) {
    let dir = tempfile::tempdir().unwrap();
    let file: PathBuf = dir.path().join("config.ign");
    fs::write(&file, json).unwrap();
    let output = Command::new("ignition-validate").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.trim().is_empty(), "{said}");
}

#[test]
fn a_folder_becomes_the_ignition_that_was_reviewed() {
    let dir = full();
    insta::assert_snapshot!("full-3.3.0", rendered(dir.path(), Spec::V3_3_0).unwrap());
    insta::assert_snapshot!("full-3.4.0", rendered(dir.path(), Spec::V3_4_0).unwrap());
}

#[test]
fn the_same_folder_gives_the_same_bytes() {
    assert_eq!(
        rendered(full().path(), Spec::V3_4_0).unwrap(),
        rendered(full().path(), Spec::V3_4_0).unwrap()
    );
}

#[test]
fn ignitions_validator_has_nothing_to_say_of_3_3_0() {
    validate(&rendered(full().path(), Spec::V3_3_0).unwrap());
    validate(&rendered(folder(&[]).path(), Spec::V3_3_0).unwrap());
    let operators = butane::parse_bu("o.bu", OPERATORS_FILE.as_bytes())
        .unwrap()
        .render("o.bu", Spec::V3_3_0)
        .unwrap();
    validate(&operators.to_string());
}

#[test]
fn the_parser_of_3_4_0_takes_it_without_a_warning() {
    for dir in [full(), folder(&[])] {
        let json = rendered(dir.path(), Spec::V3_4_0).unwrap();
        let (config, warnings) = ignition_config::Config::parse_str(&json).unwrap();
        assert!(warnings.is_empty(), "{warnings:?}");
        assert!(matches!(config, ignition_config::Config::V3_4(_)));
    }
}

#[test]
fn what_holds_secrets_is_0600_on_the_host() {
    let dir = full();
    let config = butane::render(&Inputs::load(dir.path()).unwrap(), Spec::V3_4_0).unwrap();
    for file in config["storage"]["files"].as_array().unwrap() {
        let path = file["path"].as_str().unwrap();
        assert_eq!(file["overwrite"], true, "{path}");
        if path.starts_with("/etc/aks-flex-node") {
            assert_eq!(file["mode"], 0o600, "{path}");
        }
    }
}

#[test]
fn bootstrap_is_enabled_by_preset_and_by_link_and_reset_by_neither() {
    let dir = folder(&[]);
    let config = butane::render(&Inputs::load(dir.path()).unwrap(), Spec::V3_4_0).unwrap();
    let units = config["systemd"]["units"].as_array().unwrap();
    let enabled: Vec<_> = units
        .iter()
        .map(|unit| (unit["name"].as_str().unwrap(), unit["enabled"].as_bool().unwrap()))
        .collect();
    assert_eq!(
        enabled,
        [
            ("aks-flex-node-bootstrap.service", true),
            ("aks-flex-node-reset.service", false)
        ]
    );
    let links = config["storage"]["links"].as_array().unwrap();
    assert_eq!(links.len(), 1);
    assert_eq!(
        links[0]["path"],
        "/etc/systemd/system/multi-user.target.wants/aks-flex-node-bootstrap.service"
    );
}

#[test]
fn the_operators_file_is_made_of_the_units_that_are_rendered() {
    let mut made = include_str!("../files/aks-flex-node-agent-container.bu.in").to_owned();
    for (unit, enabled) in [(units::bootstrap(), true), (units::reset(), false)] {
        made += &format!(
            "    - name: {}\n      enabled: {enabled}\n      contents: |\n",
            unit.name
        );
        for line in unit.text.lines() {
            made += &if line.is_empty() {
                "\n".to_owned()
            } else {
                format!("        {line}\n")
            };
        }
    }
    // INSTA_UPDATE=always, as for the snapshots, writes the file anew.
    if made != OPERATORS_FILE && std::env::var("INSTA_UPDATE").as_deref() == Ok("always") {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("files/aks-flex-node-agent-container.bu");
        fs::write(file, &made).unwrap();
    }
    assert!(
        made == OPERATORS_FILE,
        "the .bu file is not of these units: run this test with INSTA_UPDATE=always"
    );
    let config = butane::parse_bu("o.bu", OPERATORS_FILE.as_bytes())
        .unwrap()
        .render("o.bu", Spec::V3_4_0)
        .unwrap();
    let units = config["systemd"]["units"].as_array().unwrap();
    assert_eq!(units[0]["contents"], units::bootstrap().text);
    assert_eq!(units[1]["contents"], units::reset().text);
}

/// The error of a folder, which must name `expected` and must not repeat a value.
fn refused(files: &[(&str, &str)], expected: &[&str]) {
    let said = rendered(folder(files).path(), Spec::V3_4_0).unwrap_err().to_string();
    for word in expected {
        assert!(said.contains(word), "{said:?} says nothing of {word:?}");
    }
    assert!(!said.contains("canary"), "{said}");
}

#[test]
fn settings_that_cannot_work_are_refused_by_key_and_with_what_to_write() {
    let key = "AKS_FLEX_NODE_AGENT_IMAGE in agent.env";
    let write = "@sha256:<64";
    refused(&[("agent.env", "")], &[key, write]);
    refused(
        &[("agent.env", "AKS_FLEX_NODE_AGENT_IMAGE=h.io/canary:1\n")],
        &[key, write],
    );
    let user = IMAGE.replace("=registry", "=user:canary@registry");
    refused(&[("agent.env", &user)], &[key, "credentials are given by file"]);
    let tagged = IMAGE.replace("agent@", "agent:canary@");
    refused(&[("agent.env", &tagged)], &[key, "tag"]);
    refused(
        &[("agent.env", &format!("{IMAGE}AKS_FLEX_NODE_AGENT_PULL=canary\n"))],
        &["AKS_FLEX_NODE_AGENT_PULL in agent.env", "write"],
    );
    refused(
        &[("agent.env", &format!("{IMAGE}AKS_FLEX_NODE_AGENT_ARCHIVE=canary.tar\n"))],
        &["AKS_FLEX_NODE_AGENT_ARCHIVE in agent.env", "absolute"],
    );
    refused(
        &[("hosts/x/hosts.toml", "canary")],
        &["AKS_FLEX_NODE_AGENT_HOSTS_DIR in agent.env", "write"],
    );
    refused(&[("agent.env", &format!("{IMAGE}canary\n"))], &["agent.env: line 2"]);
}

#[test]
fn a_name_that_may_be_a_piece_of_a_secret_is_not_repeated() {
    for file in ["agent.env", "bootstrap.env"] {
        let foreign = "line 3 has a variable that is none of the agent's";
        let text = format!("{IMAGE}# x\nCANARYcanarybase64==\n");
        refused(&[(file, &text)], &[&format!("{file}: {foreign}")]);
    }
    // Of two lines, the second is the value's.
    let two = "AKS_FLEX_NODE_SP_CLIENT_SECRET=\"first\nC4NARYbase64==\"\nAKS_FLEX_NODE_AUTH=msi\n";
    rendered(folder(&[("bootstrap.env", two)]).path(), Spec::V3_4_0).unwrap();
    let object = "AKS_FLEX_NODE_CONFIG_OVERRIDES='{\n  \"node\": {}\n}'\n";
    rendered(folder(&[("bootstrap.env", object)]).path(), Spec::V3_4_0).unwrap();
    refused(
        &[("bootstrap.env", "\nAKS_FLEX_NODE_SP_CLIENT_SECRET=\"canary\ncanary=1\n")],
        &["bootstrap.env: line 2 has a quote that is not closed"],
    );
}

#[test]
fn a_line_that_is_continued_does_not_name_the_image() {
    let text = format!("AKS_FLEX_NODE_AGENT_ARCHIVE=/canary\\\n{IMAGE}");
    refused(&[("agent.env", &text)], &["AKS_FLEX_NODE_AGENT_IMAGE in agent.env"]);
    let quoted = IMAGE.replace("IMAGE=", "IMAGE='").replace('\n', "'\n");
    let text = format!("{quoted}AKS_FLEX_NODE_AGENT_HOSTS_DIR=\n");
    rendered(folder(&[("agent.env", &text)]).path(), Spec::V3_4_0).unwrap();
}

#[test]
fn a_folder_of_the_system_is_none_of_registries() {
    for folder in ["/", "/etc", "/usr/share/x", "/root", "/etc/aks-flex-node"] {
        let text = format!("{IMAGE}AKS_FLEX_NODE_AGENT_HOSTS_DIR={folder}\n");
        for files in [
            &[("agent.env", text.as_str())][..],
            &[("agent.env", &text), ("hosts/x/hosts.toml", "canary")],
        ] {
            let key = "AKS_FLEX_NODE_AGENT_HOSTS_DIR in agent.env";
            refused(files, &[key, "such as /etc/aks-flex-node-agent-hosts"]);
        }
    }
}

#[test]
fn inputs_of_bootstrap_that_cannot_work_are_refused() {
    refused(
        &[("bootstrap.env", "TOKEN=canary\n")],
        &["bootstrap.env: line 1 has a variable", "AKS_FLEX_NODE_"],
    );
    refused(
        &[("base-config.json", "{}")],
        &[
            "AKS_FLEX_NODE_BASE_CONFIG_FILE in bootstrap.env",
            "/etc/aks-flex-node/base-config.json",
        ],
    );
    let named = (
        "bootstrap.env",
        "AKS_FLEX_NODE_BASE_CONFIG_FILE=/etc/aks-flex-node/base-config.json\n",
    );
    refused(&[named], &["AKS_FLEX_NODE_BASE_CONFIG_FILE"]);
    refused(
        &[named, ("base-config.json", "[\"canary\"]")],
        &["base-config.json", "JSON object"],
    );
    refused(&[("notes.txt", "canary")], &["notes.txt", "no input has this name"]);
}

#[test]
fn a_folder_without_its_files_is_refused_by_their_names() {
    let dir = folder(&[]);
    fs::remove_file(dir.path().join("bootstrap.env")).unwrap();
    assert_eq!(
        rendered(dir.path(), Spec::V3_4_0).unwrap_err().to_string(),
        "bootstrap.env cannot be read"
    );
    assert_eq!(
        rendered(Path::new("/nonexistent"), Spec::V3_4_0)
            .unwrap_err()
            .to_string(),
        "the folder /nonexistent cannot be read"
    );
}

#[test]
fn what_may_hold_a_secret_and_others_may_read_is_refused() {
    for file in [
        "secrets/sp-client-secret",
        "bootstrap.env",
        "base-config.json",
        "hosts/registry.test:5000/hosts.toml",
    ] {
        let dir = full();
        fs::set_permissions(dir.path().join(file), fs::Permissions::from_mode(0o640)).unwrap();
        let said = rendered(dir.path(), Spec::V3_4_0).unwrap_err().to_string();
        assert_eq!(said, format!("{file}: others may read it: chmod 600"));
    }
}

/// As [`refused`], for a `.bu` file with `body` after its head.
fn bu_refused(body: &str, expected: &[&str]) {
    refused(
        &[("x.bu", &format!("variant: flatcar\nversion: 1.1.0\n{body}"))],
        expected,
    );
}

#[test]
fn fc_i1_an_enabled_unit_that_would_not_be_there_is_refused() {
    bu_refused(
        "systemd: {units: [{name: gone.service, enabled: true}]}",
        &["gone.service in x.bu", "contents"],
    );
    bu_refused(
        "systemd: {units: [{name: gone.service, enabled: true, contents: '[Service]'}]}",
        &["gone.service in x.bu", "WantedBy=multi-user.target"],
    );
    let known = "variant: flatcar\nversion: 1.1.0\nsystemd: {units: [{name: sshd.socket, enabled: true}]}";
    rendered(folder(&[("x.bu", known)]).path(), Spec::V3_4_0).unwrap();
}

#[test]
fn fc_i2_a_mode_that_is_not_plainly_octal_or_too_wide_for_a_secret_is_refused() {
    for mode in ["600", "384", "0o600", "\"600\"", "06000000", "0800"] {
        bu_refused(
            &format!("storage: {{files: [{{path: /etc/x, mode: {mode}, contents: {{inline: canary}}}}]}}"),
            &["x.bu", "write 0600"],
        );
    }
    bu_refused(
        "storage: {files: [{path: /etc/x, mode: 0+77, contents: {inline: canary}}]}",
        &["x.bu", "write 0600"],
    );
    let settings = format!("{IMAGE}AKS_FLEX_NODE_AGENT_HOSTS_DIR=/etc/registries/mine\n");
    let body = "storage: {files: [{path: /etc/registries/mine/x/hosts.toml, mode: 0640, contents: {inline: canary}}]}";
    refused(
        &[
            ("agent.env", settings.as_str()),
            ("x.bu", &format!("variant: flatcar\nversion: 1.1.0\n{body}")),
        ],
        &["/etc/registries/mine/x/hosts.toml in x.bu", "0600"],
    );
}

#[test]
fn fc_i3_a_file_that_would_end_the_boot_where_it_exists_is_refused() {
    bu_refused(
        "storage: {files: [{path: /etc/x, overwrite: false, contents: {inline: canary}}]}",
        &["/etc/x in x.bu", "overwrite: true"],
    );
    bu_refused(
        "storage: {files: [{path: /etc/aks-flex-node-agent.env, mode: 0600, contents: {inline: canary}}]}",
        &["/etc/aks-flex-node-agent.env in x.bu"],
    );
    bu_refused(
        "storage: {files: [{path: /usr/local/x, contents: {inline: canary}}]}",
        &["/usr/local/x in x.bu", "read-only"],
    );
    bu_refused(
        "storage: {files: [{path: /etc/../x, contents: {inline: canary}}]}",
        &["path in x.bu"],
    );
    bu_refused(
        "storage: {links: [{path: /etc/x, target: /canary, overwrite: false}]}",
        &["/etc/x in x.bu", "overwrite: true"],
    );
}

#[test]
fn what_is_the_systems_or_the_agents_is_left_alone() {
    let (system, ours) = ("leave it out", "it is the agent's own");
    for (path, why) in [
        ("/usr", "read-only"),
        ("/", system),
        ("/etc", system),
        ("/var", system),
        ("/root", system),
        ("/run/x", "anew"),
        ("/etc/aks-flex-node", ours),
        ("/etc/aks-flex-node/x", ours),
        ("/etc/aks-flex-node-agent.env", ours),
        ("/etc/systemd/system/aks-flex-node-agent.service", ours),
        ("/etc/systemd/system/aks-flex-node-agent.service.d/x.conf", ours),
        (
            "/etc/systemd/system/multi-user.target.wants/aks-flex-node-agent.service",
            ours,
        ),
    ] {
        for body in [
            format!("directories: [{{path: {path}, mode: 0700}}]"),
            format!("files: [{{path: {path}, mode: 0600, contents: {{inline: canary}}}}]"),
            format!("links: [{{path: {path}, target: /canary}}]"),
        ] {
            bu_refused(&format!("storage: {{{body}}}"), &[&format!("{path} in x.bu"), why]);
        }
    }
    for unit in [
        "{name: aks-flex-node-bootstrap.service, mask: true}",
        "{name: aks-flex-node-agent.service, contents: canary}",
        "{name: aks-flex-node-reset.service, enabled: false}",
        "{name: aks-flex-node-agent-recovery.service, dropins: [{name: x.conf, contents: canary}]}",
        "{name: system-aksflex.slice, mask: true}",
    ] {
        bu_refused(&format!("systemd: {{units: [{unit}]}}"), &[" in x.bu", ours]);
    }
    bu_refused(
        "systemd: {units: [{name: containerd.service, mask: true}]}",
        &["containerd.service in x.bu", "take mask: out"],
    );
    bu_refused(
        "systemd: {units: [{name: systemd-machined.service, mask: true}]}",
        &["systemd-machined.service in x.bu", "take mask: out"],
    );
    bu_refused(
        "storage: {links: [{path: /etc/systemd/system/containerd.service, target: /dev/null}]}",
        &["/etc/systemd/system/containerd.service in x.bu", "no link"],
    );
}

#[test]
fn a_path_is_either_a_file_or_the_parent_of_others() {
    let (parent, below) = (
        "{path: /etc/a, contents: {inline: canary}}",
        "{path: /etc/a/b, contents: {inline: canary}}",
    );
    bu_refused(
        &format!("storage: {{files: [{parent}, {below}]}}"),
        &["/etc/a/b in x.bu", "above"],
    );
    bu_refused(
        &format!("storage: {{files: [{below}, {parent}]}}"),
        &["/etc/a in x.bu", "below"],
    );
    bu_refused(
        &format!("storage: {{links: [{{path: /etc/a, target: /opt}}], files: [{below}]}}"),
        &["/etc/a in x.bu", "below"],
    );
    bu_refused(
        "storage: {links: [{path: /etc/systemd/system/a.service.d, target: /opt}]}\nsystemd: {units: [{name: a.service, dropins: [{name: x.conf, contents: canary}]}]}",
        &["a path above it"],
    );
    let folder_too =
        format!("variant: flatcar\nversion: 1.1.0\nstorage: {{directories: [{{path: /etc/a}}], files: [{below}]}}");
    rendered(folder(&[("x.bu", &folder_too)]).path(), Spec::V3_4_0).unwrap();
}

#[test]
fn units_and_users_that_systemd_or_useradd_would_not_take_are_refused() {
    for name in [".service", "'a b%n.service'", "canary", "a/b.service"] {
        bu_refused(
            &format!("systemd: {{units: [{{name: {name}, contents: canary}}]}}"),
            &["name of a unit in x.bu", ".service"],
        );
    }
    for (unit, why) in [
        ("enabled: true, mask: true", "take mask: out"),
        ("mask: true, contents: canary", "take mask: out"),
        (
            "enabled: true, contents: \"[Install]\\nWantedBy=../canary\"",
            "WantedBy=multi-user.target",
        ),
        ("dropins: [{name: 'canary x.conf', contents: x}]", ".conf"),
    ] {
        bu_refused(
            &format!("systemd: {{units: [{{name: a.service, {unit}}}]}}"),
            &["a.service in x.bu", why],
        );
    }
    bu_refused(
        "systemd: {units: [{name: a@.service, enabled: true, contents: canary}]}",
        &["a@.service in x.bu", "instance"],
    );
    for user in [
        "{name: 'canary x'}",
        "{name: core, groups: ['canary x']}",
        "{name: core}, {name: core}",
    ] {
        bu_refused(&format!("passwd: {{users: [{user}]}}"), &["passwd.users in x.bu"]);
    }
    let spaced = "variant: flatcar\nversion: 1.1.0\nsystemd: {units: [{name: a.service, enabled: true, contents: \"[Install]\\nWantedBy = a.target\"}]}";
    rendered(folder(&[("x.bu", spaced)]).path(), Spec::V3_4_0).unwrap();
}

#[test]
fn what_is_no_file_is_refused_by_its_name_and_for_good() {
    for name in [
        "agent.env",
        "bootstrap.env",
        "x.bu",
        "base-config.json",
        "secrets/x",
        "hosts/y",
    ] {
        let dir = full();
        let path = dir.path().join(name);
        let _ = fs::remove_file(&path);
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        let error = rendered(dir.path(), Spec::V3_4_0).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{name}: it is a pipe, socket or device: put a regular file there")
        );
        assert!(!error.may_pass());
    }
    let dir = full();
    std::os::unix::fs::symlink("..", dir.path().join("hosts/registry.test:5000/back")).unwrap();
    let said = rendered(dir.path(), Spec::V3_4_0).unwrap_err().to_string();
    assert!(said.contains("it lies too deep"), "{said}");
    let file = dir.path().join("agent.env");
    let error = rendered(&file, Spec::V3_4_0).unwrap_err();
    assert!(
        error.to_string().contains("it is no folder") && !error.may_pass(),
        "{error}"
    );
}

#[test]
fn butane_that_is_not_understood_is_refused_by_the_key() {
    bu_refused(
        "kernel_arguments: {should_exist: [canary]}",
        &["x.bu", "kernel_arguments"],
    );
    bu_refused("storage: {disks: [canary]}", &["x.bu", "disks"]);
    bu_refused(
        "storage: {files: [{path: /etc/x, contents: {source: 'http://canary'}}]}",
        &["x.bu", "source"],
    );
    bu_refused(
        "storage: {files: canary}",
        &["x.bu", "not the Butane that is understood"],
    );
    refused(
        &[("x.bu", "variant: fcos\nversion: 1.1.0\n")],
        &["variant in x.bu", "flatcar"],
    );
    refused(
        &[("x.bu", "variant: flatcar\nversion: 9.9.9\n")],
        &["version in x.bu", "1.1.0"],
    );
}
