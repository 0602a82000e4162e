//! The whole table, as docs/states.md shows it, and what no cut in the driver's work may break.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use proptest::prelude::*;

use super::*;

fn image(digit: char) -> ImageRef {
    let hex = digit.to_string().repeat(64);
    format!("registry.test/agent@sha256:{hex}").parse().unwrap()
}

fn order() -> Order {
    Order {
        name: "up".into(),
        uid: "u-1".into(),
        generation: 0,
        machine: Some("kube1".into()),
        daemon: "d".into(),
        started_at: Timestamp::UNIX_EPOCH,
    }
}

const A: char = 'a';
const B: char = 'b';
const C: char = 'c';

fn states() -> Vec<(&'static str, Upgrade)> {
    let (order, from, to, before) = (order(), image(A), image(B), Worked::default());
    let staging = |attempt| Upgrade::Staging {
        order: order.clone(),
        from: from.clone(),
        to: to.clone(),
        attempt,
    };
    let over = |selected: char, outcome, blamed: Option<char>| Upgrade::Over {
        order: order.clone(),
        selected: image(selected),
        outcome,
        blamed: blamed.map(image),
    };
    let failed = |reason| Outcome::Failed {
        reason,
        why: "a reason".into(),
    };
    let back = |fault| Upgrade::Back {
        order: order.clone(),
        to: from.clone(),
        failed: to.clone(),
        why: "a reason".into(),
        fault,
    };
    vec![
        ("idle", Upgrade::Idle),
        ("staging, first attempt", staging(1)),
        ("staging, last attempt", staging(STAGINGS)),
        (
            "switched",
            Upgrade::Switched {
                order: order.clone(),
                from: from.clone(),
                to: to.clone(),
                before,
            },
        ),
        (
            "judging",
            Upgrade::Judging {
                order: order.clone(),
                from: from.clone(),
                to: to.clone(),
                before,
            },
        ),
        ("back", back(Fault::Candidate)),
        ("back, B never ran", back(Fault::Host)),
        ("over, succeeded", over(B, Outcome::Succeeded, None)),
        ("over, failed", over(A, failed(Reason::DaemonFailed), Some(B))),
        ("over, not switched", over(A, failed(Reason::ExecutionFailed), None)),
    ]
}

fn events() -> Vec<(&'static str, Event)> {
    let why = || String::from("a new reason");
    let asked = |to| Event::Asked {
        order: order(),
        from: image(A),
        to: image(to),
    };
    let started = |running| Event::Started {
        running: image(running),
    };
    vec![
        ("asked for B, A runs", asked(B)),
        ("asked for A, A runs", asked(A)),
        ("dropped", Event::Dropped),
        (
            "staged",
            Event::Staged {
                before: Worked::default(),
            },
        ),
        ("failed", Event::Failed { why: why() }),
        ("started A", started(A)),
        ("started B", started(B)),
        ("started C", started(C)),
        ("crashed", Event::Crashed { why: why() }),
        ("passed", Event::Passed),
        ("published", Event::Published),
    ]
}

fn letter(image: &ImageRef) -> String {
    image.digest.hex()[..1].to_uppercase()
}

fn shown(state: &Upgrade) -> String {
    let plain = |why: &str| match why {
        "a reason" | "a new reason" => why.to_owned(),
        other => {
            let mut text = other.to_owned();
            for digit in [A, B, C] {
                text = text.replace(&image(digit).to_string(), &digit.to_uppercase().to_string());
            }
            text
        }
    };
    match state {
        Upgrade::Idle => "idle".into(),
        Upgrade::Staging { attempt, .. } => format!("staging, attempt {attempt}"),
        Upgrade::Switched { .. } => "switched".into(),
        Upgrade::Judging { .. } => "judging".into(),
        Upgrade::Back { why, fault, .. } => match fault {
            Fault::Candidate => format!("back ({})", plain(why)),
            Fault::Host => format!("back, B never ran ({})", plain(why)),
        },
        Upgrade::Over { selected, outcome, .. } => match outcome {
            Outcome::Succeeded => format!("over with {}, succeeded", letter(selected)),
            Outcome::Failed { reason, why } => format!("over with {}, {reason:?}: {}", letter(selected), plain(why)),
        },
    }
}

fn step_shown(step: &Step) -> String {
    match step {
        Step::Announce => "announce".into(),
        Step::Stage(image) => format!("stage {}", letter(image)),
        Step::Remember(image) => format!("remember {} as last good", letter(image)),
        Step::Select(image) => format!("select {}", letter(image)),
        Step::Blame { image, .. } => format!("blame {}", letter(image)),
        Step::Clear(image) => format!("clear {}", letter(image)),
        Step::Restart => "restart".into(),
        Step::Judge(_) => "judge".into(),
        Step::Publish(_) => "publish".into(),
    }
}

fn table() -> String {
    let mut text = String::from("| in | comes | then it is | and does |\n| --- | --- | --- | --- |\n");
    for (name, state) in states() {
        for (event_name, event) in events() {
            let (then, does) = match state.clone().next(event) {
                Ok(next) => (
                    shown(&next),
                    next.steps().iter().map(step_shown).collect::<Vec<_>>().join(", "),
                ),
                Err(_) => ("refused".into(), String::new()),
            };
            writeln!(text, "| {name} | {event_name} | {then} | {does} |").unwrap();
        }
    }
    text
}

#[test]
fn every_state_meets_every_event_as_reviewed() {
    insta::assert_snapshot!(table());
}

#[test]
fn docs_states_is_this_table() {
    let docs = include_str!("../../../docs/states.md");
    assert!(
        docs.contains(&table()),
        "docs/states.md does not hold the table; it is:\n{}",
        table()
    );
}

#[test]
fn na_r12_units_are_held_back_while_a_candidate_is_unjudged() {
    for (name, state) in states() {
        let unjudged = ["switched", "judging", "back", "back, B never ran"].contains(&name);
        assert_eq!(state.standing() == Standing::Unjudged, unjudged, "{name}");
    }
}

#[test]
fn na_r03_a_stage_that_fails_ends_the_operation_and_switches_nothing() {
    let staging = states().remove(1).1;
    let over = staging
        .next(Event::Failed {
            why: "no byte for 60 s".into(),
        })
        .unwrap();
    assert_eq!(
        over.steps(),
        [
            Step::Select(image(A)),
            Step::Publish(Outcome::Failed {
                reason: Reason::ExecutionFailed,
                why: "no byte for 60 s".into()
            })
        ]
    );
}

#[test]
fn fc_r5_what_recovery_goes_back_to_is_never_the_candidate() {
    for (name, state) in states() {
        for (_, event) in events() {
            if let Ok(Upgrade::Back { to, failed, .. }) = state.clone().next(event) {
                assert_ne!(to.digest, failed.digest, "{name}");
            }
        }
    }
}

/// How an image's agent behaves once it is selected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Agent {
    Good,
    /// Its unit fails before the daemon has read its journal.
    Crashes,
    /// It starts and then does not do what worked before.
    Unfit,
    /// It is no agent at all: the check says so.
    Unstageable,
}

/// A host, its disk and the cluster, as far as an upgrade can see them. `budget` effects are done, then the power goes.
struct World {
    candidate: Agent,
    journal: Upgrade,
    selected: ImageRef,
    last_good: Option<ImageRef>,
    /// What the unit runs; a crash or a cut leaves nothing.
    running: Option<ImageRef>,
    announced: bool,
    /// What is on record as bad.
    blamed: BTreeSet<String>,
    /// Terminal statuses, in the order they were written.
    ends: Vec<Outcome>,
    cuts: Vec<usize>,
    effects: usize,
}

/// The process is gone.
struct Cut;

impl World {
    fn new(candidate: Agent, cuts: Vec<usize>) -> Self {
        Self {
            candidate,
            journal: Upgrade::Idle,
            selected: image(A),
            last_good: None,
            running: None,
            announced: false,
            blamed: BTreeSet::new(),
            ends: vec![],
            cuts,
            effects: 0,
        }
    }

    /// One effect has just become true; perhaps it was the last of this process.
    fn effect(&mut self) -> Result<(), Cut> {
        self.effects += 1;
        if self.cuts.first() == Some(&self.effects) {
            self.cuts.remove(0);
            self.effects = 0;
            self.running = None;
            return Err(Cut);
        }
        Ok(())
    }

    fn behaviour(&self, image_run: &ImageRef) -> Agent {
        if *image_run == image(B) {
            self.candidate
        } else {
            Agent::Good
        }
    }

    fn save(&mut self, event: Event) -> Result<(), Cut> {
        self.journal = self
            .journal
            .clone()
            .next(event)
            .expect("the driver asks only what is possible");
        self.effect()
    }

    /// systemd starts the unit: the daemon, or after a failure the recovery unit.
    fn boot(&mut self) -> Result<(), Cut> {
        let running = self.selected.clone();
        if self.behaviour(&running) == Agent::Crashes {
            return self.recover();
        }
        self.running = Some(running.clone());
        self.save(Event::Started {
            running: running.clone(),
        })?;
        if self.journal == Upgrade::Idle && self.ends.is_empty() {
            self.save(Event::Asked {
                order: order(),
                from: running,
                to: image(B),
            })?;
        }
        self.drive()
    }

    fn recover(&mut self) -> Result<(), Cut> {
        if self.last_good.is_none() {
            return Ok(());
        }
        let crashed = Event::Crashed {
            why: "exit status 1".into(),
        };
        match self.journal.clone().next(crashed.clone()) {
            Ok(next) if next == self.journal && next.standing() == Standing::Settled => Ok(()),
            Ok(_) => {
                self.save(crashed)?;
                for step in self.journal.steps() {
                    self.apply(step)?;
                }
                Ok(())
            }
            Err(_) => Ok(()),
        }
    }

    fn drive(&mut self) -> Result<(), Cut> {
        while self.journal != Upgrade::Idle {
            let state = self.journal.clone();
            for step in state.steps() {
                self.apply(step)?;
                if self.running.is_none() {
                    return Ok(());
                }
            }
            if self.journal == state {
                return Ok(());
            }
        }
        Ok(())
    }

    fn apply(&mut self, step: Step) -> Result<(), Cut> {
        match step {
            Step::Announce => self.announced = true,
            Step::Stage(_) if self.candidate == Agent::Unstageable => {
                return self.save(Event::Failed { why: "no agent".into() });
            }
            Step::Stage(_) => {
                self.effect()?;
                return self.save(Event::Staged {
                    before: Worked::default(),
                });
            }
            Step::Remember(what) => self.last_good = Some(what),
            Step::Select(what) => self.selected = what,
            Step::Blame { image, .. } => {
                self.blamed.insert(image.to_string());
            }
            Step::Clear(image) => {
                self.blamed.remove(&image.to_string());
            }
            Step::Restart => self.running = None,
            Step::Judge(_) if self.candidate == Agent::Unfit => {
                return self.save(Event::Failed { why: "unfit".into() });
            }
            Step::Judge(_) => return self.save(Event::Passed),
            Step::Publish(outcome) => {
                // A status that is terminal is not moved back; writing it again changes nothing.
                if self.ends.last() != Some(&outcome) {
                    self.ends.push(outcome);
                }
                self.effect()?;
                return self.save(Event::Published);
            }
        }
        self.effect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn fc_u14_killed_after_any_effect_it_ends_with_one_agent_and_one_true_status(
        candidate in prop_oneof![
            Just(Agent::Good), Just(Agent::Crashes), Just(Agent::Unfit), Just(Agent::Unstageable)
        ],
        cuts in prop::collection::vec(1_usize..14, 0..8),
    ) {
        let mut world = World::new(candidate, cuts);
        for _ in 0..40 {
            let _ = world.boot();
        }
        world.cuts.clear();
        for _ in 0..4 {
            let _ = world.boot();
        }
        let running = world.running.clone().expect("an agent runs");
        prop_assert_eq!(&running, &world.selected, "what is selected runs");
        prop_assert_eq!(&world.journal, &Upgrade::Idle);
        prop_assert_eq!(world.ends.len(), 1, "one end: {:?}", &world.ends);
        match &world.ends[0] {
            Outcome::Succeeded => {
                prop_assert_eq!(&running, &image(B));
                prop_assert_eq!(candidate, Agent::Good);
            }
            Outcome::Failed { .. } => {
                prop_assert_eq!(&running, &image(A));
            }
        }
        let bad = [Agent::Crashes, Agent::Unfit].contains(&candidate) && matches!(&world.ends[0], Outcome::Failed { reason: Reason::DaemonFailed, .. });
        prop_assert!(!world.blamed.contains(&image(A).to_string()));
        prop_assert!(bad || world.blamed.is_empty(), "a good candidate is blamed");
        if let Some(last_good) = &world.last_good {
            prop_assert_eq!(last_good, &image(A));
        }
    }

    #[test]
    fn uncut_the_end_is_what_the_candidate_deserves(
        candidate in prop_oneof![
            Just(Agent::Good), Just(Agent::Crashes), Just(Agent::Unfit), Just(Agent::Unstageable)
        ],
    ) {
        let mut world = World::new(candidate, vec![]);
        for _ in 0..10 {
            let _ = world.boot();
        }
        prop_assert!(world.announced);
        prop_assert_eq!(world.ends == [Outcome::Succeeded], candidate == Agent::Good);
    }
}
