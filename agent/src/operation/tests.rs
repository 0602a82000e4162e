//! The table over what the cluster says and what the host knows.

use image::Digest;

use super::*;

const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

fn operation(kind: Kind, phase: Phase) -> Operation {
    Operation {
        name: "op".into(),
        uid: "u-2".into(),
        created_at: None,
        target: Target::Machine("edge-1".into()),
        kind,
        parameters: [
            ("downloadURL".to_owned(), "oci://registry.test/agent".to_owned()),
            ("sha256".to_owned(), HEX.to_owned()),
        ]
        .into(),
        keep: None,
        phase,
        completed_at: None,
    }
}

fn me() -> Me {
    Me {
        machine: "edge-1".into(),
        labels: None,
    }
}

fn image(digit: char) -> ImageRef {
    format!("registry.test/agent@sha256:{}", digit.to_string().repeat(64))
        .parse()
        .unwrap()
}

/// What becomes of it on a host on which no image ever failed.
fn known(operation: &Operation, me: &Me, upgrade: &Upgrade) -> Admission {
    let (failures, running) = (&Failures::default(), &image('a'));
    admit(
        operation,
        me,
        Known {
            upgrade,
            failures,
            running,
        },
    )
}

fn busy(uid: &str) -> Upgrade {
    Upgrade::Over {
        order: crate::upgrade::Order {
            name: "first".into(),
            uid: uid.into(),
            generation: 0,
            machine: None,
            daemon: "d".into(),
            started_at: Timestamp::UNIX_EPOCH,
        },
        selected: format!("registry.test/agent@sha256:{HEX}").parse().unwrap(),
        outcome: crate::upgrade::Outcome::Succeeded,
        blamed: None,
    }
}

#[test]
fn what_is_not_for_this_machine_is_left_alone() {
    let labels = |pairs: &[(&str, &str)]| {
        Some(
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect::<BTreeMap<_, _>>(),
        )
    };
    let ask = |key: &str, ask: Ask| Target::Labels(vec![Requirement { key: key.into(), ask }]);
    let site_a = || vec!["a".to_owned()];
    let table = [
        (Target::Machine("edge-1".into()), None, true),
        (Target::Machine("edge-2".into()), None, false),
        (Target::None, labels(&[]), false),
        (Target::Labels(vec![]), None, false),
        (Target::Labels(vec![]), labels(&[]), true),
        (ask("site", Ask::In(site_a())), labels(&[("site", "a")]), true),
        (ask("site", Ask::In(site_a())), labels(&[("site", "b")]), false),
        (ask("site", Ask::In(site_a())), labels(&[]), false),
        (ask("site", Ask::NotIn(site_a())), labels(&[]), true),
        (ask("site", Ask::NotIn(site_a())), labels(&[("site", "a")]), false),
        (ask("site", Ask::Exists), labels(&[("site", "")]), true),
        (ask("site", Ask::Absent), labels(&[("site", "")]), false),
        (ask("site", Ask::Absent), labels(&[]), true),
        (ask("site", Ask::Unknown), labels(&[("site", "a")]), false),
    ];
    for (target, labels, want) in table {
        let me = Me {
            machine: "edge-1".into(),
            labels,
        };
        assert_eq!(target.is(&me), want, "{target:?} {me:?}");
        let mut operation = operation(Kind::AgentUpgrade, Phase::New);
        operation.target = target;
        assert_eq!(known(&operation, &me, &Upgrade::Idle) != Admission::Ignore, want);
    }
}

#[test]
fn one_operation_at_a_time_and_the_same_one_is_not_taken_twice() {
    let asked = operation(Kind::AgentUpgrade, Phase::New);
    assert!(matches!(
        known(&asked, &me(), &Upgrade::Idle),
        Admission::Upgrade { .. }
    ));
    assert_eq!(known(&asked, &me(), &busy("u-1")), Admission::Wait);
    assert_eq!(known(&asked, &me(), &busy("u-2")), Admission::Ignore);
}

#[test]
fn bad_arguments_are_denied_even_while_another_is_going_on() {
    let mut asked = operation(Kind::AgentUpgrade, Phase::New);
    asked.parameters.clear();
    for upgrade in [Upgrade::Idle, busy("u-1")] {
        assert!(matches!(
            known(&asked, &me(), &upgrade),
            Admission::Deny {
                reason: Denial::InvalidParameters,
                ..
            }
        ));
    }
}

#[test]
fn fc_u16_what_a_dead_predecessor_left_in_progress_ends() {
    for kind in [Kind::AgentUpgrade, Kind::NodeReboot, Kind::AgentReset] {
        let left = operation(kind, Phase::InProgress);
        assert!(matches!(
            known(&left, &me(), &Upgrade::Idle),
            Admission::Deny {
                reason: Denial::DaemonFailed,
                ..
            }
        ));
        assert_eq!(known(&left, &me(), &busy("u-2")), Admission::Ignore);
    }
    assert_eq!(
        known(&operation(Kind::Others, Phase::InProgress), &me(), &Upgrade::Idle),
        Admission::Ignore
    );
}

#[test]
fn what_another_machine_may_be_at_is_left_to_it() {
    let mut left = operation(Kind::AgentUpgrade, Phase::InProgress);
    left.target = Target::Labels(vec![]);
    let me = Me {
        labels: Some(BTreeMap::new()),
        ..me()
    };
    assert!(left.target.is(&me));
    assert_eq!(known(&left, &me, &Upgrade::Idle), Admission::Ignore);
}

#[test]
fn what_can_not_be_done_yet_is_said_and_not_pretended() {
    assert!(matches!(
        known(&operation(Kind::NodeReboot, Phase::New), &me(), &Upgrade::Idle),
        Admission::Deny {
            reason: Denial::UnsupportedOperation,
            ..
        }
    ));
    assert_eq!(
        known(&operation(Kind::AgentUpgrade, Phase::Unknown), &me(), &Upgrade::Idle),
        Admission::Ignore
    );
}

#[test]
fn a_reset_waits_for_an_upgrade_that_is_going_on() {
    let reset = operation(Kind::AgentReset, Phase::New);
    assert_eq!(known(&reset, &me(), &Upgrade::Idle), Admission::Reset);
    assert_eq!(known(&reset, &me(), &busy("u-1")), Admission::Wait);
}

#[test]
fn an_operation_goes_when_its_time_after_the_end_is_over() {
    let mut over = operation(Kind::AgentUpgrade, Phase::Over);
    assert_eq!(known(&over, &me(), &Upgrade::Idle), Admission::Ignore);
    over.completed_at = Some(Timestamp::UNIX_EPOCH);
    assert_eq!(known(&over, &me(), &Upgrade::Idle), Admission::Ignore);
    over.keep = Some(SignedDuration::from_secs(60));
    let at = Timestamp::from_second(60).unwrap();
    assert_eq!(known(&over, &me(), &Upgrade::Idle), Admission::DeleteAt(at));
}

#[test]
fn the_oldest_is_served_first() {
    let named = |name: &str, second| Operation {
        name: name.into(),
        created_at: Some(Timestamp::from_second(second).unwrap()),
        ..operation(Kind::AgentUpgrade, Phase::New)
    };
    let mut all = [named("c", 2), named("b", 1), named("a", 2)];
    queue(&mut all);
    assert_eq!(all.map(|operation| operation.name), ["b", "a", "c"]);
}

#[test]
fn fc_r11_fc_u18_an_image_that_failed_here_is_tried_again_only_if_forced() {
    let mut asked = operation(Kind::AgentUpgrade, Phase::New);
    let digest: Digest = format!("sha256:{HEX}").parse().unwrap();
    let at = "2026-11-29T10:00:00Z".parse().unwrap();
    let failures =
        Failures::default()
            .with(&digest, "u-8", at, "exit status 1")
            .with(&digest, "u-9", at, "exit status 1");
    let (upgrade, other) = (&Upgrade::Idle, image('a'));
    let admitted = |asked: &Operation, running: &ImageRef| {
        admit(
            asked,
            &me(),
            Known {
                upgrade,
                failures: &failures,
                running,
            },
        )
    };
    let Admission::Deny {
        reason: Denial::FailedBefore,
        message,
    } = admitted(&asked, &other)
    else {
        panic!("it was taken");
    };
    assert_eq!(
        message,
        format!(
            "agent image registry.test/agent@sha256:{HEX} failed on this host 2 times, last at 2026-11-29T10:00:00Z: exit \
             status 1; nothing was done. To try it again give parameter force: \"true\""
        )
    );
    let runs = format!("registry.test/agent@sha256:{HEX}").parse().unwrap();
    assert!(
        matches!(admitted(&asked, &runs), Admission::Upgrade { .. }),
        "what runs needs no trying"
    );
    asked.parameters.insert("force".into(), "true".into());
    assert!(matches!(admitted(&asked, &other), Admission::Upgrade { .. }));
    asked.parameters.insert("force".into(), "yes".into());
    assert!(matches!(
        admitted(&asked, &other),
        Admission::Deny {
            reason: Denial::InvalidParameters,
            ..
        }
    ));
}
