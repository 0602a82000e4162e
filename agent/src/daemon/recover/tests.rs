//! The command against a root with stub tools: what it changes, what it calls, and what it leaves alone.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use image::ImageRef;

use super::*;
use crate::upgrade::{Fault, Order, Outcome, Worked};

const CRASHED: &str = "Result=exit-code\nExecMainStatus=7\nActiveState=activating\nSubState=auto-restart\nNRestarts=1\n\
    ExecMainStartTimestampMonotonic=1000000\nExecMainExitTimestampMonotonic=1200000\n";
const LOOPING: &str = "Result=exit-code\nExecMainStatus=7\nActiveState=activating\nSubState=auto-restart\nNRestarts=3\n\
    ExecMainStartTimestampMonotonic=1000000\nExecMainExitTimestampMonotonic=1200000\n";
const STARTED_ANEW: &str = "Result=success\nExecMainStatus=0\nActiveState=active\nSubState=running\nNRestarts=0\n";

fn image(digit: char) -> ImageRef {
    format!("registry.test/agent@sha256:{}", digit.to_string().repeat(64))
        .parse()
        .unwrap()
}

fn order() -> Order {
    Order {
        name: "up".into(),
        uid: "u-1".into(),
        generation: 0,
        machine: None,
        daemon: "d".into(),
        started_at: jiff::Timestamp::UNIX_EPOCH,
    }
}

fn judging() -> Upgrade {
    Upgrade::Judging {
        order: order(),
        from: image('a'),
        to: image('b'),
        before: Worked::default(),
    }
}

struct Fixture {
    root: tempfile::TempDir,
    host: Host,
}

impl Fixture {
    /// A host in the middle of an upgrade from A to B, whose unit is as `show` says.
    fn new(upgrade: &Upgrade, show: &str) -> Self {
        let root = tempfile::tempdir().unwrap();
        let host = Host::rooted(root.path());
        let (calls, root_path) = (root.path().join("calls"), root.path().to_owned());
        let note = format!("echo \"$0 $*\" | sed 's,.*/,,' >> {}", calls.display());
        let fixture = Self { root, host };
        fixture.tool(
            "systemctl",
            &format!(
                "{note}\ncase \"$*\" in *containerd.service*) cat {}/containerd ;; show*) cat <<'E'\n{show}E\n;; esac",
                root_path.display()
            ),
        );
        fixture.containerd("active", 500_000);
        fixture.tool("journalctl", "echo starting; echo 'panicked: token=c4nary'");
        journal::save(&fixture.host, upgrade).unwrap();
        selection::save(&fixture.host, &selection::SELECTED, &image('b')).unwrap();
        selection::save(&fixture.host, &selection::LAST_GOOD, &image('a')).unwrap();
        fixture
    }

    fn tool(&self, name: &str, script: &str) {
        let path = self.root.path().join("bin").join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        self.host
            .write(
                &hostexec::HostPath::new(format!("/bin/{name}")).unwrap(),
                format!("#!/bin/sh\n{script}\n").as_bytes(),
                0o755,
            )
            .unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o755);
    }

    /// What systemd says of containerd's unit: its state, and the microsecond in which it came up.
    fn containerd(&self, state: &str, since: u64) {
        let text = format!("ActiveState={state}\nActiveEnterTimestampMonotonic={since}\n");
        self.host
            .write(&hostexec::HostPath::fixed("/containerd"), text.as_bytes(), 0o644)
            .unwrap();
    }

    fn changes(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.root.path().join("calls")).unwrap_or_default();
        calls
            .lines()
            .filter(|line| !line.contains(" show "))
            .map(str::to_owned)
            .collect()
    }

    fn selected(&self) -> ImageRef {
        selection::load(&self.host, &selection::SELECTED).unwrap().unwrap()
    }
}

const RESTART: &str = "systemctl --no-block restart aks-flex-node-agent.service";

#[tokio::test]
async fn a_candidate_that_fails_gives_way_to_the_last_good_image() {
    let fixture = Fixture::new(&judging(), CRASHED);
    let cause = Cause {
        message: Some("recovery unit"),
        invocation: None,
    };
    run(&fixture.host, cause).await.unwrap();
    assert_eq!(fixture.selected(), image('a'));
    assert_eq!(
        fixture.changes(),
        ["systemctl reset-failed aks-flex-node-agent.service", RESTART]
    );
    let Upgrade::Back {
        to,
        failed,
        why,
        fault: Fault::Candidate,
        ..
    } = journal::load(&fixture.host).unwrap()
    else {
        panic!("not back")
    };
    assert_eq!((to, failed), (image('a'), image('b')));
    assert_eq!(why, "recovery unit; its last lines:\nstarting\npanicked: token=***");
}

/// fc_u18: the daemon died after it had saved that it switches, and before it did.
#[tokio::test]
async fn the_death_of_the_agent_before_the_switch_is_no_fault_of_the_candidate() {
    let Upgrade::Judging {
        order,
        from,
        to,
        before,
    } = judging()
    else {
        panic!("it is judging")
    };
    let switched = Upgrade::Switched {
        order,
        from,
        to,
        before,
    };
    let fixture = Fixture::new(&switched, CRASHED);
    selection::save(&fixture.host, &selection::SELECTED, &image('a')).unwrap();
    run(&fixture.host, Cause::default()).await.unwrap();
    assert_eq!(journal::load(&fixture.host).unwrap(), switched);
    assert_eq!((fixture.selected(), fixture.changes()), (image('a'), vec![]));
    // Once it is selected, it may have been the candidate.
    selection::save(&fixture.host, &selection::SELECTED, &image('b')).unwrap();
    run(&fixture.host, Cause::default()).await.unwrap();
    assert_eq!(journal::load(&fixture.host).unwrap().name(), "back");
}

#[tokio::test]
async fn na_r26_where_no_upgrade_is_at_stake_it_does_nothing() {
    let staging = Upgrade::Staging {
        order: order(),
        from: image('b'),
        to: image('c'),
        attempt: 1,
    };
    let over = Upgrade::Over {
        order: order(),
        selected: image('b'),
        outcome: Outcome::Succeeded,
        blamed: None,
    };
    for quiet in [Upgrade::Idle, staging, over] {
        let fixture = Fixture::new(&quiet, LOOPING);
        run(&fixture.host, Cause::default()).await.unwrap();
        assert_eq!(fixture.selected(), image('b'));
        assert_eq!(fixture.changes(), [""; 0]);
        assert_eq!(journal::load(&fixture.host).unwrap(), quiet);
    }
}

#[tokio::test]
async fn na_r09_a_refused_reset_failed_only_warns() {
    let fixture = Fixture::new(&judging(), CRASHED);
    let calls = fixture.root.path().join("calls");
    let script = format!(
        "echo \"systemctl $*\" >> {}\n[ \"$1\" != reset-failed ]",
        calls.display()
    );
    fixture.tool("systemctl", &script);
    run(&fixture.host, Cause::default()).await.unwrap();
    assert_eq!(fixture.changes().last().unwrap(), RESTART);
}

#[tokio::test]
async fn na_r15_there_is_no_need_of_machined_or_of_the_log() {
    let fixture = Fixture::new(&judging(), CRASHED);
    fixture.tool("journalctl", "exit 1");
    run(&fixture.host, Cause::default()).await.unwrap();
    assert_eq!(fixture.selected(), image('a'));
    assert_eq!(fixture.changes().last().unwrap(), RESTART);
}

#[tokio::test]
async fn na_r09_only_a_failing_restart_is_an_error_and_the_selection_stands() {
    let fixture = Fixture::new(&judging(), CRASHED);
    fs::remove_file(fixture.root.path().join("bin/systemctl")).unwrap();
    let error = run(&fixture.host, Cause::default()).await.unwrap_err();
    assert!(matches!(error, Error::Restart(_)), "{error}");
    assert_eq!(fixture.selected(), image('a'));
}

#[tokio::test]
async fn the_last_good_image_is_restarted_once_and_then_left_to_systemd() {
    let fixture = Fixture::new(&judging(), CRASHED);
    for _ in 0..3 {
        run(&fixture.host, Cause::default()).await.unwrap();
    }
    assert_eq!(fixture.changes().iter().filter(|line| *line == RESTART).count(), 1);
}

#[tokio::test]
async fn a_recovery_that_was_cut_short_goes_on() {
    let back = judging()
        .next(Event::Crashed {
            why: "it failed".into(),
        })
        .unwrap();
    let fixture = Fixture::new(&back, CRASHED);
    run(&fixture.host, Cause::default()).await.unwrap();
    assert_eq!(fixture.selected(), image('a'));
    assert_eq!(fixture.changes().last().unwrap(), RESTART);
}

#[tokio::test]
async fn a_candidate_that_is_just_starting_does_not_answer_for_the_agent_before_it() {
    let fixture = Fixture::new(&judging(), STARTED_ANEW);
    run(&fixture.host, Cause::default()).await.unwrap();
    assert_eq!(fixture.selected(), image('b'));
    assert_eq!(fixture.changes(), [""; 0]);
}

#[tokio::test]
async fn a_journal_that_can_not_be_read_rolls_back_no_agent_that_can_stay_up() {
    for (show, selected) in [(STARTED_ANEW, 'b'), (CRASHED, 'b'), ("", 'b'), (LOOPING, 'a')] {
        let fixture = Fixture::new(&judging(), show);
        let torn = b"{\"version\":1,\"phase\":\"judg";
        fixture.host.write(&journal::PATH, torn, 0o600).unwrap();
        run(&fixture.host, Cause::default()).await.unwrap();
        assert_eq!(fixture.selected(), image(selected), "{show}");
        assert_eq!(fixture.changes().is_empty(), selected == 'b', "{show}");
        assert_eq!(
            fixture.host.read(&journal::PATH).unwrap(),
            torn,
            "it is the daemon's to report"
        );
    }
}

#[tokio::test]
async fn fc_r4_the_agent_before_the_switch_does_not_answer_for_the_candidate() {
    let before = "echo '1000000000.5 edge systemd[1]: Starting agent'";
    let after = "echo '99999999999.5 edge systemd[1]: Starting agent'";
    for (journal, selected, show, goes_back) in [
        (before, 'b', CRASHED, false),
        (after, 'b', CRASHED, true),
        ("exit 1", 'b', CRASHED, true),
        (after, 'a', CRASHED, false),
        // A clock that went back must not keep a bad candidate for ever.
        (before, 'b', LOOPING, true),
    ] {
        let fixture = Fixture::new(&judging(), show);
        fixture.tool("journalctl", journal);
        selection::save(&fixture.host, &selection::SELECTED, &image(selected)).unwrap();
        let invocation = "0".repeat(32);
        let cause = Cause {
            message: None,
            invocation: Some(&invocation),
        };
        run(&fixture.host, cause).await.unwrap();
        let went = matches!(journal::load(&fixture.host).unwrap(), Upgrade::Back { .. });
        assert_eq!(went, goes_back, "{journal} {selected} {show}");
    }
}

#[tokio::test]
async fn fc_r15_a_selection_that_can_not_be_read_does_not_keep_recovery_from_the_last_good_image() {
    let fixture = Fixture::new(&judging(), CRASHED);
    selection::save(&fixture.host, &selection::SETTINGS, &image('c')).unwrap();
    fixture.host.write(&selection::SELECTED, b"", 0o600).unwrap();
    run(&fixture.host, Cause::default()).await.unwrap();
    assert_eq!(fixture.selected(), image('a'));
}

#[tokio::test]
async fn fc_c3_a_containerd_that_went_down_is_no_fault_of_the_candidate() {
    for (state, since, show, selected) in [
        ("active", 500_000, CRASHED, 'a'),
        ("active", 1_100_000, CRASHED, 'b'),
        ("activating", 500_000, CRASHED, 'b'),
        ("failed", 500_000, CRASHED, 'b'),
        // Again and again: whoever brings it down, the candidate is not to stay.
        ("active", 1_100_000, LOOPING, 'a'),
    ] {
        let fixture = Fixture::new(&judging(), show);
        fixture.containerd(state, since);
        run(&fixture.host, Cause::default()).await.unwrap();
        assert_eq!(fixture.selected(), image(selected), "{state} {since}");
        assert_eq!(fixture.changes().is_empty(), selected == 'b', "{state} {since}");
    }
}

/// fc_c3: a recovery that comes late meets a unit that starts anew, and no longer hears from it when that which failed began.
#[tokio::test]
async fn a_unit_that_starts_anew_says_nothing_of_the_start_that_failed() {
    let anew = CRASHED
        .replace("auto-restart", "start-pre")
        .replace("=1000000", "=0")
        .replace("=1200000", "=0");
    let clocks = "case \"$*\" in *short-monotonic*) echo '[    1.000000] h systemd[1]: Starting' ;; \
        *) echo '99999999999.5 h systemd[1]: Starting' ;; esac";
    for (since, invocation, selected) in [
        (500_000, "0".repeat(32), 'a'),
        (1_100_000, "0".repeat(32), 'b'),
        (500_000, String::new(), 'a'),
    ] {
        let fixture = Fixture::new(&judging(), &anew);
        fixture.containerd("active", since);
        fixture.tool("journalctl", clocks);
        let cause = Cause {
            message: None,
            invocation: Some(&invocation),
        };
        run(&fixture.host, cause).await.unwrap();
        assert_eq!(fixture.selected(), image(selected), "{since} {invocation}");
    }
}

/// fc_r8: the next start may run before recovery does; it is nothing to tell of.
#[tokio::test]
async fn what_is_told_of_a_later_start_is_not_taken_for_the_failure() {
    let anew = CRASHED.replace("exit-code", "success").replace("=7", "=0");
    let failed = "f".repeat(32);
    let lines = format!(
        "case \"$*\" in MESSAGE_ID=*) echo {failed} ;; _SYSTEMD_INVOCATION_ID={failed}*) echo 'the start that failed' ;; \
         *--output=cat*) echo 'a later one' ;; *) echo '99999999999.5 h systemd[1]: Starting' ;; esac"
    );
    let invocation = "0".repeat(32);
    for (told, expected) in [
        (
            "success  ",
            "the agent's unit failed; its last lines:\nthe start that failed",
        ),
        (
            "exit-code exited 7",
            "the agent's unit failed: exit-code exited 7; its last lines:\na later one",
        ),
    ] {
        let fixture = Fixture::new(&judging(), &anew);
        fixture.tool("journalctl", &lines);
        let message = format!("the agent's unit failed: {told}");
        let cause = Cause {
            message: Some(&message),
            invocation: Some(&invocation),
        };
        run(&fixture.host, cause).await.unwrap();
        let Upgrade::Back { why, .. } = journal::load(&fixture.host).unwrap() else {
            panic!("{told}: it did not go back")
        };
        assert_eq!(why, expected);
    }
}

#[test]
fn what_systemd_says_is_read_as_it_is_meant() {
    let crashed = Unit::parse(CRASHED);
    assert_eq!(crashed.lived, Some(Duration::from_millis(200)));
    assert!(!crashed.is_another_start() && !crashed.is_in_a_loop());
    assert!(Unit::parse(LOOPING).is_in_a_loop());
    assert!(Unit::parse(STARTED_ANEW).is_another_start());
    assert!(!Unit::parse("").is_another_start() && !Unit::parse("").is_in_a_loop());
    let long = LOOPING.replace("=1200000", "=900000000");
    assert!(!Unit::parse(&long).is_in_a_loop(), "it lived for long");
}
