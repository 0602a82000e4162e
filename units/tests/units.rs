//! The rendered units, as reviewed and as systemd reads them.
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    reason = "tests: scratch files, and systemd-analyze as the judge"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use units::{AgentUnit, Unit, name};

fn all() -> Vec<Unit> {
    let mut all = vec![units::bootstrap(), units::reset()];
    all.extend(units::written_by_agent(&AgentUnit::default()));
    all
}

/// The values of `key` in a unit, line by line.
fn values<'a>(unit: &'a Unit, key: &str) -> Vec<&'a str> {
    let pairs = unit
        .text
        .lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| line.split_once('='));
    pairs.filter(|(name, _)| *name == key).map(|(_, value)| value).collect()
}

/// Every command line of a unit, in the order systemd runs them.
fn commands(unit: &Unit) -> Vec<(&str, &str)> {
    let pairs = unit.text.lines().filter_map(|line| line.split_once('='));
    pairs.filter(|(key, _)| key.starts_with("Exec")).collect()
}

#[test]
fn the_units_are_as_reviewed() {
    for unit in all() {
        insta::assert_snapshot!(unit.name, unit.text);
    }
}

#[test]
fn an_agents_unit_comes_after_what_it_is_told() {
    let values_ = AgentUnit {
        also_after: vec!["himdsd.service".parse().unwrap()],
        ..AgentUnit::default()
    };
    let unit = units::agent(&values_);
    assert!(values(&unit, "After")[0].ends_with(" himdsd.service"), "{}", unit.text);
    assert!(values(&unit, "Wants")[0].ends_with(" himdsd.service"), "{}", unit.text);
}

/// Directives that a systemd older than 254 ignores, with what is lost there. All others are older than any host.
const YOUNG: [(&str, u32); 3] = [
    ("DelegateSubgroup", 254),
    ("RestartSteps", 254),
    ("RestartMaxDelaySec", 254),
];

/// Directives and the version of systemd that brought each (systemd.directives(7) and its "Added in version" notes).
const KNOWN: &[(&str, u32)] = &[
    ("After", 1),
    ("Before", 1),
    ("ConditionPathExists", 1),
    ("Delegate", 205),
    ("DelegateSubgroup", 254),
    ("Description", 1),
    ("EnvironmentFile", 1),
    ("ExecStart", 1),
    ("ExecStartPost", 1),
    ("ExecStartPre", 1),
    ("ExecStopPost", 1),
    ("KillMode", 1),
    ("LimitCORE", 1),
    ("NotifyAccess", 1),
    ("OnFailure", 1),
    ("Restart", 1),
    ("RestartMaxDelaySec", 254),
    ("RestartPreventExitStatus", 189),
    ("RestartSec", 1),
    ("RestartSteps", 254),
    ("RuntimeDirectory", 211),
    ("RuntimeDirectoryMode", 211),
    ("Slice", 205),
    ("StartLimitIntervalSec", 229),
    ("SyslogIdentifier", 1),
    ("TimeoutAbortSec", 243),
    ("TimeoutStartSec", 188),
    ("TimeoutStopFailureMode", 246),
    ("TimeoutStopSec", 188),
    ("Type", 1),
    ("WantedBy", 1),
    ("Wants", 1),
    ("WatchdogSec", 188),
    ("WatchdogSignal", 240),
];

#[test]
fn no_directive_is_younger_than_systemd_255() {
    for unit in all() {
        for line in unit
            .text
            .lines()
            .filter(|line| !line.starts_with(['#', '[']) && !line.is_empty())
        {
            let (key, _) = line.split_once('=').unwrap();
            let known = KNOWN.iter().find(|(known, _)| *known == key);
            let (_, version) =
                known.unwrap_or_else(|| panic!("{}: {key}= is in no list: since when is it?", unit.name));
            assert!(*version <= 255, "{}: {key}= needs systemd {version}", unit.name);
        }
    }
}

#[test]
fn systemd_finds_nothing_to_say_of_any_unit() {
    let dir = tempfile::tempdir().unwrap();
    for unit in all() {
        // A template is judged by an instance of it.
        let file = dir.path().join(unit.name.replace('@', "@kube1"));
        std::fs::write(&file, &unit.text).unwrap();
    }
    for unit in all() {
        let file = dir.path().join(unit.name.replace('@', "@kube1"));
        let output = Command::new("systemd-analyze")
            .args(["verify", "--man=no"])
            .arg(&file)
            .env("SYSTEMD_UNIT_PATH", format!("{}:", dir.path().display()))
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
        let unknown: Vec<&str> = said.lines().filter(|line| !excused(line, dir.path())).collect();
        assert!(
            unknown.is_empty() && output.status.success(),
            "{}: {unknown:#?}",
            unit.name
        );
    }
}

/// What a judge older than the host, or without containerd, says of a unit that is right.
fn excused(line: &str, dir: &Path) -> bool {
    let young = YOUNG.iter().any(|(key, since)| {
        analyze_version() < *since
            && line.starts_with(&format!("{}/", dir.display()))
            && line.ends_with(&format!(": Unknown key '{key}' in section [Service], ignoring."))
    });
    let ctr = Path::new("/usr/bin/ctr").exists() || !line.contains("Command /usr/bin/ctr is not executable");
    young || !ctr
}

fn analyze_version() -> u32 {
    let output = Command::new("systemd-analyze").arg("--version").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    text.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
fn na_r04_what_an_earlier_container_left_is_gone_before_the_next_and_after_the_last() {
    for unit in all() {
        let lines = commands(&unit);
        let run = lines
            .iter()
            .position(|(_, line)| line.contains("/usr/bin/ctr --namespace aks-flex-node run "))
            .unwrap();
        let clean = |at: usize| {
            let (_, line) = lines[at];
            let task = line.find("tasks rm --force").expect(line);
            let container = line.find("containers rm").expect(line);
            let snapshot = line.find("snapshots --snapshotter overlayfs rm").expect(line);
            // `tasks rm --force` kills and waits; the other two would fail beside a task that is still ending.
            assert!(task < container && container < snapshot, "{line}");
            assert!(line.contains("info"), "looks whether it is gone: {line}");
        };
        // The preparation; a bootstrap's pull, which makes no container, comes between.
        let before = lines[..run]
            .iter()
            .rposition(|(_, line)| line.contains("tasks rm --force"));
        clean(before.unwrap());
        let after = lines[run + 1..]
            .iter()
            .position(|(key, _)| *key == "ExecStopPost")
            .unwrap();
        clean(run + 1 + after);
        assert_eq!(values(&unit, "KillMode"), ["mixed"], "{}", unit.name);
    }
}

#[test]
fn na_r05_bootstrap_is_retried_with_growing_pauses_and_never_after_78() {
    let unit = units::bootstrap();
    assert_eq!(values(&unit, "Restart"), ["on-failure"]);
    assert_eq!(values(&unit, "RestartPreventExitStatus"), ["78"]);
    assert_eq!(values(&unit, "StartLimitIntervalSec"), ["0"]);
    let growing = ["RestartSec", "RestartSteps", "RestartMaxDelaySec"].map(|key| values(&unit, key).concat());
    assert_eq!(growing, ["5s", "10", "300s"]);
    // The status counts for a main command alone, so the judge of the setting must be one.
    let judge = commands(&unit)
        .into_iter()
        .find(|(_, line)| line.contains("exit 78"))
        .unwrap();
    assert_eq!(judge.0, "ExecStart");
    assert!(values(&unit, "RemainAfterExit").is_empty());
    for other in all().iter().filter(|other| other.name != name::BOOTSTRAP) {
        assert!(values(other, "RestartPreventExitStatus").is_empty(), "{}", other.name);
    }
}

#[test]
fn na_r06_no_unit_names_one_that_is_written_after_it_and_the_agents_is_last() {
    let order = units::written_by_agent(&AgentUnit::default());
    assert_eq!(order[3].name, name::AGENT);
    let ordering = ["Wants", "Requires", "OnFailure", "BindsTo"];
    for (at, unit) in order.iter().enumerate() {
        for later in &order[at + 1..] {
            let named = ordering
                .iter()
                .any(|key| values(unit, key).iter().any(|value| value.contains(later.name)));
            assert!(!named, "{} names {}", unit.name, later.name);
        }
    }
}

#[test]
fn na_r07_a_container_lives_in_its_units_group_in_the_slice() {
    for unit in all() {
        assert_eq!(values(&unit, "Slice"), [name::SLICE], "{}", unit.name);
        assert_eq!(values(&unit, "Delegate"), ["yes"], "{}", unit.name);
        assert_eq!(
            values(&unit, "DelegateSubgroup"),
            [name::SUPERVISOR_GROUP],
            "{}",
            unit.name
        );
        let group = format!("--cgroup {}/%n/{} ", name::SLICE_CGROUP, name::PAYLOAD_GROUP);
        assert!(unit.text.contains(&group), "{}", unit.name);
    }
}

#[test]
fn na_r25_bootstraps_inputs_never_pass_through_its_unit() {
    let unit = units::bootstrap();
    assert!(
        !values(&unit, "EnvironmentFile")
            .iter()
            .any(|file| file.contains("bootstrap.env"))
    );
    let run = commands(&unit)
        .into_iter()
        .map(|(_, line)| line)
        .find(|line| line.contains(" run --rm "))
        .unwrap();
    let passed: Vec<&str> = run
        .split("--env ")
        .skip(1)
        .map(|rest| rest.split('=').next().unwrap())
        .collect();
    assert_eq!(passed, ["NOTIFY_SOCKET"]);
    assert!(!run.contains("--env-file"));
}

#[test]
fn na_r26_recovery_does_nothing_without_a_last_good_image() {
    let unit = units::agent_recovery();
    assert!(values(&unit, "ConditionPathExists").contains(&name::AGENT_IMAGE_LAST_GOOD_ENV));
    let files = values(&unit, "EnvironmentFile");
    assert_eq!(
        files,
        [
            format!("-{}", name::AGENT_IMAGE_LAST_GOOD_ENV).as_str(),
            "-/run/%N/settings.env"
        ]
    );
}

#[test]
fn na_r09_recovery_leaves_an_agents_unit_that_starts_whatever_becomes_of_its_own_container() {
    let unit = units::agent_recovery();
    let last = commands(&unit).pop().unwrap();
    assert_eq!(last.0, "ExecStopPost");
    assert!(
        last.1.contains("--no-block start aks-flex-node-agent.service"),
        "{}",
        last.1
    );
}

#[test]
fn fc_s1_fc_s2_no_unit_of_ours_can_meet_a_start_limit() {
    for unit in all() {
        assert_eq!(values(&unit, "StartLimitIntervalSec"), ["0"], "{}", unit.name);
    }
}

/// What goes down with a unit is not up again by itself when that unit is.
#[test]
fn fc_r14_no_unit_of_ours_goes_down_with_the_agents() {
    for unit in all().iter().filter(|unit| unit.name != name::AGENT) {
        for key in ["Requires", "Requisite", "BindsTo", "PartOf"] {
            let needs = values(unit, key).join(" ");
            assert!(!needs.contains(name::AGENT), "{}: {key}={needs}", unit.name);
        }
    }
}

#[test]
fn the_agents_unit_never_gives_up() {
    let unit = units::agent(&AgentUnit::default());
    assert_eq!(values(&unit, "Restart"), ["always"]);
    assert!(
        values(&unit, "TimeoutStartSec")[0]
            .trim_end_matches('s')
            .parse::<u32>()
            .unwrap()
            < 60
    );
    assert_eq!(values(&unit, "OnFailure"), [name::AGENT_RECOVERY]);
    assert!(
        values(&unit, "Requires").is_empty(),
        "a required containerd that is not loaded yet fails without a line"
    );
}

#[test]
fn every_stop_is_over_before_acls_limit_even_where_a_missed_one_is_an_abort() {
    for unit in all() {
        let seconds = |key| values(&unit, key)[0].trim_end_matches('s').parse::<u32>().unwrap();
        assert!(
            seconds("TimeoutStopSec") + seconds("TimeoutAbortSec") < 45,
            "{}",
            unit.name
        );
        assert_eq!(
            values(&unit, "WatchdogSignal"),
            ["SIGTERM"],
            "an abort leaves a core: {}",
            unit.name
        );
        assert_eq!(values(&unit, "LimitCORE"), ["0"], "{}", unit.name);
    }
}

#[test]
fn units_that_start_by_themselves_are_bootstrap_and_agent_alone() {
    let installed: Vec<&str> = all()
        .into_iter()
        .filter(|u| !values(u, "WantedBy").is_empty())
        .map(|u| u.name)
        .collect();
    assert_eq!(installed, [name::BOOTSTRAP, name::AGENT]);
}

#[test]
fn ids_are_the_units_names_and_containerd_takes_them() {
    let ids: BTreeMap<&str, String> = all()
        .iter()
        .map(|unit| {
            let run = commands(unit)
                .into_iter()
                .map(|(_, line)| line)
                .find(|line| line.contains(" run --rm "))
                .unwrap();
            let id = run
                .split_whitespace()
                .skip_while(|word| *word != "${AKS_FLEX_NODE_AGENT_IMAGE}")
                .nth(1)
                .unwrap();
            (unit.name, id.replace("%i", "kube1"))
        })
        .collect();
    for (unit, id) in ids {
        assert_eq!(id, unit.replace("@.service", "-kube1").replace(".service", ""));
    }
}

#[test]
fn every_file_and_id_in_the_templates_is_a_name_of_the_list() {
    let known = [
        name::SETTINGS_ENV,
        name::AGENT_IMAGE_ENV,
        name::AGENT_IMAGE_LAST_GOOD_ENV,
        name::BOOTSTRAP_ENV,
        name::CONFIG,
        name::AGENT_WANTED,
    ];
    for unit in all() {
        let mut rest = unit.text.as_str();
        while let Some(at) = rest.find("/etc/aks-flex-node") {
            rest = &rest[at..];
            let end = rest
                .find(|c: char| !(c.is_ascii_alphanumeric() || "/-._".contains(c)))
                .unwrap_or(rest.len());
            let path = &rest[..end];
            assert!(known.contains(&path), "{}: {path}", unit.name);
            rest = &rest[end..];
        }
    }
}

/// Runs the first words of a unit's line, which judge the setting, as systemd would.
fn judge(image: &str) -> (Option<i32>, String) {
    let unit = units::bootstrap();
    let line = commands(&unit)
        .into_iter()
        .map(|(_, line)| line)
        .find(|line| line.contains("exit 78"))
        .unwrap();
    let shell = line.strip_prefix("/bin/sh -c '").unwrap();
    let (shell, _) = shell.split_once("; read -r").expect("then containerd is waited for");
    let shell = shell.replace("$$", "$").replace("%%", "%");
    let output = Command::new("/bin/sh")
        .arg("-c")
        .arg(shell)
        .env(name::IMAGE_KEY, image)
        .output()
        .unwrap();
    (output.status.code(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn fc_c9_a_setting_that_names_no_image_by_digest_ends_with_78_and_is_not_repeated() {
    let hex = "0123456789abcdef".repeat(4);
    for good in ["h.example/r", "h:5000/a/b", "[::1]:5000/r", "MyReg.azurecr.io/x_y/z.w"] {
        assert_eq!(judge(&format!("{good}@sha256:{hex}")).0, Some(0), "{good}");
    }
    let bad = [
        String::new(),
        "h/r:latest".into(),
        format!("h/r:1@sha256:{hex}"),
        format!("h/r@sha256:{}", &hex[1..]),
        format!("h/r@sha256:{hex}0"),
        format!("h/r@sha256:{}", hex.to_uppercase()),
        format!("h/r@sha512:{hex}{hex}"),
        format!("user:canary@h/r@sha256:{hex}"),
        format!("h/r?token=canary@sha256:{hex}"),
        format!("h/Canary@sha256:{hex}"),
        format!("r@sha256:{hex}"),
        format!("h/r@sha256:{hex}\ncanary"),
        format!("h/r@sha256:{hex} canary"),
        format!("oci://h/r@sha256:{hex}"),
        "$(touch canary)".into(),
    ];
    for bad in bad {
        let (code, said) = judge(&bad);
        assert_eq!(code, Some(78), "{bad:?}");
        assert!(
            said.contains(name::IMAGE_KEY) && said.contains(name::SETTINGS_ENV),
            "{said}"
        );
        assert!(said.contains("@sha256:<64 lowercase hex digits>"), "{said}");
        assert!(
            !said.to_lowercase().contains("canary") && !said.contains(&hex),
            "{said}"
        );
    }
}
