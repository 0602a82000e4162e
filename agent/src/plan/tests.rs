//! The plan as a whole, with every file's bytes, for typical settings.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use units::AgentUnit;

use super::*;
use crate::{
    config::{self, Access, Mount, Routing},
    facts::{Existing, Facts, Gpu, OsRelease, Presence},
    model::{Arch, MachineName, Secret},
    offline::{self, Bundle, Manifest},
    step::{Content, Entry, File, Origin, Place, Plan, Step},
};

/// In every secret of these tests.
const CANARY: &str = "abcdef.0123456789abcdef";

pub(super) fn facts() -> Facts {
    Facts {
        arch: Arch::Amd64,
        host_name: "Edge-1".to_owned(),
        memory_mib: Some(4096),
        cores: 2,
        os: OsRelease::parse("ID=azurelinux\nVARIANT_ID=azurecontainerlinux\n"),
        resolv_conf: Some("nameserver 127.0.0.53\n".to_owned()),
        modules: Some(path("/lib/modules")),
        devices: vec![path("/dev/kvm"), path("/dev/sda")],
        gpu: Gpu::None,
        rootfs: BTreeMap::new(),
        fstab: Some(Existing {
            text: Secret::new("LABEL=OEM /oem btrfs\n/swap none swap sw\n".to_owned()),
            mode: 0o644,
        }),
        fstab_kept: Presence::Absent,
        docker: None,
        units: vec!["docker.service"],
        firewalls: Vec::new(),
    }
}

/// A goal with something in every field.
fn goal() -> Goal {
    let mut goal = Goal::of(&config::tests::sample(), &facts(), MachineName::Kube1).unwrap();
    goal.device_groups = vec!["char-input".to_owned()];
    goal.mounts = vec![
        Mount {
            source: path("/opt/kube"),
            target: path("/opt/kube"),
            access: Access::ReadOnly,
        },
        Mount {
            source: path("/data"),
            target: path("/srv/data"),
            access: Access::ReadWrite,
        },
    ];
    goal.services = vec!["storage.service".parse().unwrap()];
    goal.kubelet.node_ips = vec!["10.88.1.2".parse().unwrap()];
    goal.kubelet.taints = vec!["z=1:NoSchedule".to_owned(), "a:NoExecute".to_owned()];
    goal
}

fn started(goal: &Goal) -> Plan {
    started_from(goal, None)
}

fn started_from(goal: &Goal, bundle: Option<Bundle>) -> Plan {
    let programs = Programs::of(&config::tests::sample(), bundle).unwrap();
    start(goal, &programs, &facts(), &Routing::default(), &AgentUnit::default()).unwrap()
}

/// A bundle in a folder of the host, with an image.
fn bundle(kubernetes: &str) -> Bundle {
    let sample = config::tests::sample();
    let given = |version: Option<&str>, otherwise: &str| version.unwrap_or(otherwise).to_owned();
    let manifest = Manifest {
        kubernetes: kubernetes.to_owned(),
        containerd: given(sample.containerd(), "2.0.1"),
        runc: given(sample.runc(), "1.2.3"),
        cni: given(sample.cni(), "1.6.0"),
        crictl: "1.33.0".to_owned(),
        npd: None,
        images: ["r.example/pause:3.9".to_owned()].into(),
    };
    let files = offline::files(&manifest, Arch::Amd64)
        .into_iter()
        .map(|(file, proved)| {
            let at = path("/opt/bundle").join(&file).unwrap();
            let proof = proved.then(|| path("/opt/bundle").join(&offline::path::checksum(&file)).unwrap());
            (file, Origin::File { path: at, proof })
        });
    Bundle::of(manifest.clone(), Arch::Amd64, files.collect()).unwrap()
}

fn exec_goal() -> Goal {
    let mut goal = goal();
    goal.kubelet.credential = Credential::Exec(Exec {
        args: [
            "token",
            "kubelogin",
            "--server-id",
            "6dae42f8-4368-4678-94ff-3960e28e3630",
        ]
        .map(str::to_owned)
        .into(),
        env: vec![
            ("AAD_LOGIN_METHOD".to_owned(), Secret::new("spn".to_owned())),
            (
                "AAD_SERVICE_PRINCIPAL_CLIENT_SECRET".to_owned(),
                Secret::new(CANARY.to_owned()),
            ),
        ],
        certificate: None,
    });
    goal
}

fn path(text: &'static str) -> HostPath {
    HostPath::fixed(text)
}

fn files(plan: &Plan) -> Vec<&File> {
    plan.tasks()
        .into_iter()
        .filter_map(|task| {
            if let Step::Files(files) = &task.step {
                Some(files)
            } else {
                None
            }
        })
        .flatten()
        .collect()
}

/// The files of a plan as they will stand, secrets and all, but not the host's units and drop-ins: `units` has snapshots of these.
fn shown(plan: &Plan) -> String {
    let units = units::written_by_agent(&AgentUnit::default());
    let of_units = |file: &File| {
        let drop_in = file.place == Place::Host && file.path.as_str().contains(".service.d/");
        drop_in || units.iter().any(|unit| file.path.name() == unit.name)
    };
    let mut text = String::new();
    for file in files(plan) {
        let place = format!("{:?} {}", file.place, file.path);
        text += &match &file.entry {
            Entry::File { .. } if of_units(file) => format!("── {place}\n"),
            Entry::File { mode, content } => {
                format!("── {place} {mode:04o}\n{}", String::from_utf8_lossy(content.bytes()))
            }
            Entry::Link { target } => format!("── {place} -> {target}\n"),
            Entry::Folder { mode } => format!("── {place}/ {mode:04o}\n"),
            Entry::Absent => format!("── {place} absent\n"),
        };
    }
    text
}

#[test]
fn the_files_of_a_first_start_with_a_token() {
    insta::assert_snapshot!(shown(&started(&goal())));
}

#[test]
fn with_an_exec_credential_only_kubeconfig_and_its_arguments_differ() {
    let (token, exec) = (started(&goal()), started(&exec_goal()));
    let token = files(&token);
    let plan = Plan::task(
        "x",
        Step::Files(
            files(&exec)
                .into_iter()
                .filter(|file| !token.contains(file))
                .cloned()
                .collect(),
        ),
    );
    insta::assert_snapshot!(shown(&plan));
}

#[test]
fn a_principals_certificate_lies_in_the_machine_and_not_in_the_kubeconfig() {
    let mut settings = config::tests::settings(&config::tests::with(&[
        ("azure.bootstrapToken", Value::Null),
        ("azure.cloud", "AzureUSGovernment".into()),
        (
            "azure.servicePrincipal",
            json!({"tenantId": "t", "clientId": "c", "clientSecretFile": "/principal.pem"}),
        ),
    ]));
    let dir = tempfile::tempdir().unwrap();
    let host = hostexec::Host::rooted(dir.path());
    let pem = format!("-----BEGIN CERTIFICATE-----\n{CANARY}\n");
    host.write(&path("/principal.pem"), pem.as_bytes(), 0o600).unwrap();
    config::read_credential(&host, &mut settings);
    assert!(settings.unsupported().is_empty());
    let goal = Goal::of(&settings, &facts(), MachineName::Kube1).unwrap();
    let plan = started(&goal);
    let file = |name: &str| {
        files(&plan)
            .into_iter()
            .find(|file| file.path.as_str() == name)
            .unwrap()
    };
    let Entry::File { mode: 0o600, content } = &file("/etc/kubernetes/pki/aks-flex-node-principal.pem").entry else {
        panic!("it is no file of root's own")
    };
    assert_eq!(content.bytes(), pem.as_bytes());
    let Entry::File { content, .. } = &file("/var/lib/kubelet/kubeconfig").entry else {
        panic!("no kubeconfig")
    };
    let text = String::from_utf8_lossy(content.bytes()).into_owned();
    assert!(
        text.contains("--client-certificate-file") && !text.contains(CANARY),
        "{text}"
    );
    assert!(text.contains("https://login.microsoftonline.us"), "{text}");
}

#[test]
fn the_tasks_of_a_first_start_in_order() {
    insta::assert_snapshot!(started(&goal()));
}

#[test]
fn downloads_come_from_the_official_places() {
    let plan = started(&goal());
    let urls: Vec<String> = plan
        .tasks()
        .into_iter()
        .filter_map(|task| {
            if let Step::Download(download) = &task.step {
                Some(download.origin.to_string())
            } else {
                None
            }
        })
        .collect();
    insta::assert_snapshot!(urls.join("\n"));
}

#[test]
fn na_r18_with_a_bundle_nothing_comes_from_anywhere_else() {
    let version = config::tests::sample().kubernetes().unwrap().to_owned();
    let plan = started_from(&goal(), Some(bundle(&version)));
    let text: String = plan
        .to_string()
        .lines()
        .filter(|line| ["download-", "container-images"].iter().any(|part| line.contains(part)))
        .map(|line| format!("{}\n", line.trim()))
        .collect();
    insta::assert_snapshot!(text);
    let order: Vec<_> = plan.tasks().iter().map(|task| task.name).collect();
    let at = |name| order.iter().position(|task| *task == name).unwrap();
    assert!(
        at("start-containerd") < at("import-container-images") && at("import-container-images") < at("start-kubelet")
    );
}

#[test]
fn settings_that_contradict_a_bundle_are_named_by_their_key() {
    let error = Programs::of(&config::tests::sample(), Some(bundle("1.0.0"))).unwrap_err();
    assert!(error.to_string().starts_with("components.kubernetes"), "{error}");
    assert!(!error.may_pass());
}

#[test]
fn a_printed_plan_shows_bytes_and_modes_but_no_secret() {
    for goal in [goal(), exec_goal()] {
        let plan = started(&goal);
        assert!(!plan.to_string().contains(CANARY));
        let text = serde_json::to_string_pretty(&plan).unwrap();
        assert!(!text.contains(CANARY));
        assert!(text.contains("\"content\": \"***\"") && text.contains("\"mode\": \"0600\""));
        assert!(text.contains("clusterDomain: cluster.local"));
        assert!(!format!("{goal:?}").contains(CANARY));
    }
}

#[test]
fn only_secret_files_hold_secrets_and_only_root_reads_these() {
    for goal in [goal(), exec_goal()] {
        let plan = started(&goal);
        let holders: Vec<_> = files(&plan)
            .into_iter()
            .filter_map(|file| match &file.entry {
                Entry::File { mode, content } => Some((*mode, content)),
                Entry::Link { .. } | Entry::Folder { .. } | Entry::Absent => None,
            })
            .filter(|(_, content)| String::from_utf8_lossy(content.bytes()).contains(CANARY))
            .collect();
        assert!(matches!(holders[..], [(0o600, Content::Secret(_))]), "{holders:?}");
    }
}

#[test]
fn the_same_goal_gives_the_same_plan() {
    assert_eq!(started(&goal()), started(&goal()));
}

#[test]
fn the_kubelet_configuration_is_block_style_with_keys_at_column_0() {
    let plan = started(&goal());
    let config = files(&plan)
        .into_iter()
        .find(|file| file.path.name() == "config.yaml")
        .unwrap();
    let Entry::File { content, .. } = &config.entry else {
        panic!("no file")
    };
    let text = String::from_utf8_lossy(content.bytes()).into_owned();
    let keys = text
        .lines()
        .filter(|line| line.starts_with(|letter: char| letter.is_ascii_alphabetic()));
    assert!(
        keys.clone().all(|line| line.contains(':')) && keys.count() > 25,
        "{text}"
    );
    assert!(!text.contains(['{', '[']), "{text}");
}

#[test]
fn na_r06_no_unit_is_written_before_what_it_names() {
    let plan = started(&goal());
    let order: Vec<&str> = files(&plan).iter().map(|file| file.path.as_str()).collect();
    let at = |name: &str| order.iter().position(|path| path.ends_with(name)).unwrap();
    assert!(at("aks-flex-node-nspawn-pre-start@.service") < at("kube1.service.d/override.conf"));
    assert!(at("aks-flex-node-nspawn-post-start@.service") < at("kube1.service.d/override.conf"));
    assert!(at("aks-flex-node-agent-recovery.service") < at("aks-flex-node-agent.service"));
    assert_eq!(at("aks-flex-node-agent.service"), order.len() - 1);
}

#[test]
fn na_r11_every_start_of_the_daemon_ends_with_a_reload() {
    for upgrade in [Upgrade::None, Upgrade::Pending] {
        for active in [None, Some(MachineName::Kube2)] {
            let plan = converge(&AgentUnit::default(), active, upgrade);
            assert_eq!(plan.tasks().last().unwrap().step, Step::Reload);
        }
    }
}

#[test]
fn na_r12_while_an_upgrade_waits_no_unit_is_written() {
    let names = |upgrade| -> Vec<String> {
        let plan = converge(&AgentUnit::default(), None, upgrade);
        files(&plan).iter().map(|file| file.path.name().to_owned()).collect()
    };
    assert_eq!(names(Upgrade::Pending), [""; 0]);
    assert_eq!(
        names(Upgrade::None),
        [
            units::name::NSPAWN_PRE_START,
            units::name::NSPAWN_POST_START,
            units::name::AGENT_RECOVERY,
            units::name::AGENT
        ]
    );
}
