//! When somebody dies: the points of an upgrade that can be seen from outside, who can die at each, and which pairs the short depth takes.

use super::victim::Victim;

/// What the journal says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// There is none.
    Idle,
    Staging,
    Switched,
    Judging,
    Back,
    Over,
}

impl Phase {
    /// What stands in a journal as its phase.
    pub(super) fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "staging" => Self::Staging,
            "switched" => Self::Switched,
            "judging" => Self::Judging,
            "back" => Self::Back,
            "over" => Self::Over,
            _ => return None,
        })
    }
}

/// A file that an upgrade replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum File {
    Journal,
    LastGood,
    Selection,
}

/// How a point is seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sight {
    /// The new file has appeared under its temporary name, while the journal says that.
    Replacing(File, Phase),
    /// The file was replaced; the journal says that, now.
    Replaced(File, Phase),
    /// The journal was removed.
    Removed,
    /// So many hundredths of the candidate's ballast are there.
    Pulled(u8),
    /// The container that checks the candidate is there.
    Checking,
    /// The timer that restarts the agent is there.
    Restarting,
    /// The candidate's process has come up.
    Starting,
    /// The recovery unit's command runs, and has changed nothing yet.
    Recovering,
}

/// What the candidate is like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Road {
    /// It does.
    Good,
    /// Its daemon exits at once.
    Bad,
}

/// Who is at work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Actor {
    /// The agent from before, or from before again.
    Old,
    Candidate,
    /// The recovery unit; the agent's own is between two starts.
    Recovery,
}

/// A point of an upgrade.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) name: &'static str,
    pub(super) road: Road,
    pub(super) sight: Sight,
    actor: Actor,
}

const fn good(name: &'static str, sight: Sight, actor: Actor) -> Point {
    Point {
        name,
        road: Road::Good,
        sight,
        actor,
    }
}

const fn bad(name: &'static str, sight: Sight, actor: Actor) -> Point {
    Point {
        name,
        road: Road::Bad,
        sight,
        actor,
    }
}

use {Actor as A, File as F, Phase as P, Sight as S};

/// Every point, in the order in which an upgrade meets them.
pub(super) const POINTS: [Point; 27] = [
    good("before the journal", S::Replacing(F::Journal, P::Idle), A::Old),
    good("staging", S::Replaced(F::Journal, P::Staging), A::Old),
    good("pull at 10 %", S::Pulled(10), A::Old),
    good("pull at 50 %", S::Pulled(50), A::Old),
    good("pull at 90 %", S::Pulled(90), A::Old),
    good("check", S::Checking, A::Old),
    good("before switched", S::Replacing(F::Journal, P::Staging), A::Old),
    good("switched", S::Replaced(F::Journal, P::Switched), A::Old),
    good("before last good", S::Replacing(F::LastGood, P::Switched), A::Old),
    good("after last good", S::Replaced(F::LastGood, P::Switched), A::Old),
    good("before selection", S::Replacing(F::Selection, P::Switched), A::Old),
    good("after selection", S::Replaced(F::Selection, P::Switched), A::Old),
    good("between selection and restart", S::Restarting, A::Old),
    good("first second of the candidate", S::Starting, A::Candidate),
    good("before judging", S::Replacing(F::Journal, P::Switched), A::Candidate),
    good("judging", S::Replaced(F::Journal, P::Judging), A::Candidate),
    good("before over", S::Replacing(F::Journal, P::Judging), A::Candidate),
    good("over", S::Replaced(F::Journal, P::Over), A::Candidate),
    good("journal removed", S::Removed, A::Candidate),
    bad("recovery runs", S::Recovering, A::Recovery),
    bad("before back", S::Replacing(F::Journal, P::Switched), A::Recovery),
    bad("back", S::Replaced(F::Journal, P::Back), A::Recovery),
    bad(
        "back, before selection",
        S::Replacing(F::Selection, P::Back),
        A::Recovery,
    ),
    bad("back, after selection", S::Replaced(F::Selection, P::Back), A::Recovery),
    bad("back, before over", S::Replacing(F::Journal, P::Back), A::Old),
    bad("back, over", S::Replaced(F::Journal, P::Over), A::Old),
    bad("back, journal removed", S::Removed, A::Old),
];

impl Point {
    /// Why nobody of that kind can die here, where it is so.
    pub(super) fn excludes(&self, victim: Victim) -> Option<&'static str> {
        use Victim as V;
        match (victim, self.actor) {
            (V::Containerd | V::Power, _)
            | (V::Ctr | V::Container, A::Old | A::Candidate)
            | (V::Daemon, A::Old)
            | (V::Candidate, A::Candidate)
            | (V::Recovery, A::Recovery) => None,
            (V::Ctr | V::Container | V::Daemon, A::Recovery) => Some("the agent's unit is between two starts"),
            (V::Daemon, A::Candidate) => Some("the daemon is the candidate"),
            (V::Candidate, A::Old) => Some("the candidate does not run"),
            (V::Candidate, A::Recovery) => Some("the candidate has ended by itself"),
            (V::Recovery, A::Old | A::Candidate) => Some("recovery does not run"),
        }
    }
}

impl Point {
    /// Whether whoever dies here does so before the candidate is selected: then it can't have run, and can't be to blame.
    pub(super) fn precedes_selection(&self) -> bool {
        self.road == Road::Good
            && match self.sight {
                S::Replacing(_, phase) => self.actor == A::Old && matches!(phase, P::Idle | P::Staging | P::Switched),
                S::Replaced(file, phase) => matches!(
                    (file, phase),
                    (F::Journal, P::Staging | P::Switched) | (F::LastGood, P::Switched)
                ),
                S::Pulled(_) | S::Checking => true,
                S::Removed | S::Restarting | S::Starting | S::Recovering => false,
            }
    }
}

/// Who dies when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    pub(super) victim: Victim,
    pub(super) point: Point,
}

/// Every pair that there is.
pub(super) fn all() -> Vec<Fault> {
    let pairs = POINTS
        .iter()
        .flat_map(|point| Victim::ALL.map(|victim| Fault { victim, point: *point }));
    pairs
        .filter(|fault| fault.point.excludes(fault.victim).is_none())
        .collect()
}

/// Pairs that have each point once, and the victims as evenly as that allows.
pub(super) fn covering() -> Vec<Fault> {
    let mut taken = [0_u32; Victim::ALL.len()];
    let mut chosen: Vec<Option<Fault>> = vec![None; POINTS.len()];
    let mut order: Vec<usize> = (0..POINTS.len()).collect();
    // Where few can die they do: others have points enough.
    let open = |place: &usize| {
        Victim::ALL
            .iter()
            .filter(|victim| POINTS[*place].excludes(**victim).is_none())
            .count()
    };
    order.sort_by_key(open);
    for place in order {
        let point = POINTS[place];
        let possible = (0..Victim::ALL.len()).filter(|at| point.excludes(Victim::ALL[*at]).is_none());
        if let Some(least) = possible.min_by_key(|at| taken[*at]) {
            taken[least] += 1;
            chosen[place] = Some(Fault {
                victim: Victim::ALL[least],
                point,
            });
        }
    }
    chosen.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_short_depth_has_each_point_once_and_each_victim() {
        let chosen = covering();
        assert_eq!(chosen.len(), POINTS.len());
        for (fault, point) in chosen.iter().zip(POINTS) {
            assert_eq!(fault.point, point);
            assert_eq!(point.excludes(fault.victim), None, "{fault:?}");
        }
        for victim in Victim::ALL {
            let times = chosen.iter().filter(|fault| fault.victim == victim).count();
            assert!((2..=6).contains(&times), "{victim} {times} times");
        }
    }

    #[test]
    fn what_precedes_the_selection_is_what_stands_before_it() {
        let (before, after): (Vec<Point>, Vec<Point>) = POINTS.into_iter().partition(Point::precedes_selection);
        assert_eq!((before.len(), before.last().unwrap().name), (11, "before selection"));
        assert_eq!(after[0].name, "after selection");
    }

    #[test]
    fn the_full_depth_has_every_pair_that_can_be() {
        let all = all();
        let left_out = POINTS.len() * Victim::ALL.len() - all.len();
        assert_eq!((all.len(), left_out), (125, 64));
        assert!(covering().iter().all(|fault| all.contains(fault)));
    }
}
