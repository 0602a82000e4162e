//! Which MachineOperation may run now, and as what. Pure: a table over what the cluster says and the journal knows.
//!
//! It does not act, and it does not speak the cluster's types: `cluster` turns those into an [`Operation`].

use std::collections::BTreeMap;

use image::{Digest, ImageRef, Repository};
use jiff::{SignedDuration, Timestamp};

use crate::upgrade::Upgrade;

/// What an operation asks for. Source: node-agent specification, 9.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Another agent.
    AgentUpgrade,
    /// A restart of the active machine.
    NodeReboot,
    /// The end of the node.
    AgentReset,
    /// What other controllers see to, or what this agent has never heard of.
    Others,
}

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Nobody took it yet.
    New,
    /// Somebody took it.
    InProgress,
    /// It ended, well or badly.
    Over,
    /// A word this agent does not know; it keeps its hands off.
    Unknown,
}

/// A MachineOperation, as far as the agent is concerned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// When it was made.
    pub created_at: Option<Timestamp>,
    /// Whom it is for.
    pub target: Target,
    /// What it asks for.
    pub kind: Kind,
    /// Its arguments.
    pub parameters: BTreeMap<String, String>,
    /// How long it stays after its end.
    pub keep: Option<SignedDuration>,
    /// Where it stands.
    pub phase: Phase,
    /// When it ended.
    pub completed_at: Option<Timestamp>,
}

/// Whom an operation is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// The machine of this name.
    Machine(String),
    /// Each machine whose Node has labels that satisfy all of these.
    Labels(Vec<Requirement>),
    /// Nobody.
    None,
}

/// What a label selector asks of one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requirement {
    /// The label's key.
    pub key: String,
    /// What is asked of its value.
    pub ask: Ask,
}

/// What is asked of a label's value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// It is one of these.
    In(Vec<String>),
    /// It is none of these, or the label is not there.
    NotIn(Vec<String>),
    /// The label is there.
    Exists,
    /// The label is not there.
    Absent,
    /// An operator this agent does not know: never satisfied.
    Unknown,
}

/// Who this agent is to the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Me {
    /// The AKS machine's name, which is the node's.
    pub machine: String,
    /// The Node's labels; without a Node, the Machine object's; nothing when there is neither.
    pub labels: Option<BTreeMap<String, String>>,
}

/// What becomes of an operation now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Nothing: it is others', or over, or being carried out.
    Ignore,
    /// It waits for the one that is going on.
    Wait,
    /// The agent is to become this image.
    Upgrade {
        /// Which.
        to: ImageRef,
    },
    /// It ends at once as failed.
    Deny {
        /// In a word.
        reason: Denial,
        /// In a sentence.
        message: String,
    },
    /// Its time after the end is measured; at this moment it goes.
    DeleteAt(Timestamp),
}

/// Why an operation ends without having been carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denial {
    /// Its arguments can't work.
    InvalidParameters,
    /// This agent can't do it.
    UnsupportedOperation,
    /// The daemon that took it is gone, and nothing says how far it came.
    DaemonFailed,
}

/// What is wrong with an AgentUpgrade's arguments. The texts are fixed: they never repeat what was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadParameters {
    /// No URL.
    #[error("parameter downloadURL is missing: give oci://<registry host>/<repository>")]
    NoUrl,
    /// No digest.
    #[error("parameter sha256 is missing: give the image's digest, 64 hexadecimal digits")]
    NoDigest,
    /// The digest is none.
    #[error("parameter sha256 is malformed: {0}")]
    Digest(image::DigestError),
    /// Space where none can be.
    #[error("parameter downloadURL is malformed: there is space inside it")]
    Space,
    /// What a host with a binary install takes.
    #[error(
        "parameter downloadURL names an archive: this agent runs from an image, give oci://<registry host>/<repository>"
    )]
    Archive,
    /// Neither an image nor an archive.
    #[error("parameter downloadURL is malformed: it starts with oci://")]
    Scheme,
    /// A digest where the repository alone belongs.
    #[error("parameter downloadURL must not hold a digest: it is given as sha256")]
    DigestInUrl,
    /// The repository is none.
    #[error("parameter downloadURL is malformed: {0}")]
    Repository(image::RefError),
}

/// Reads an AgentUpgrade's arguments for the container install. Presence is judged first, then the digest, then the URL
/// (node-agent specification 10.0).
///
/// # Errors
/// With a text that can be shown to anyone.
pub fn parse_upgrade(parameters: &BTreeMap<String, String>) -> Result<ImageRef, BadParameters> {
    let given = |key: &str| {
        parameters
            .get(key)
            .map(|value| value.trim())
            .filter(|value| !value.is_empty())
    };
    let url = given("downloadURL").ok_or(BadParameters::NoUrl)?;
    let digest = given("sha256").ok_or(BadParameters::NoDigest)?;
    let digest = Digest::parse_hex_lenient(digest).map_err(BadParameters::Digest)?;
    let (scheme, rest) = url.split_once("://").ok_or(BadParameters::Scheme)?;
    if scheme.eq_ignore_ascii_case("http") || scheme.eq_ignore_ascii_case("https") {
        return Err(BadParameters::Archive);
    }
    if !scheme.eq_ignore_ascii_case("oci") {
        return Err(BadParameters::Scheme);
    }
    if rest.contains(char::is_whitespace) {
        return Err(BadParameters::Space);
    }
    match Repository::parse_loose(rest) {
        Ok(repository) => Ok(repository.at(digest)),
        Err(image::RefError::UnexpectedDigest) => Err(BadParameters::DigestInUrl),
        Err(error) => Err(BadParameters::Repository(error)),
    }
}

impl Requirement {
    fn holds(&self, labels: &BTreeMap<String, String>) -> bool {
        let value = labels.get(&self.key);
        match &self.ask {
            Ask::In(values) => value.is_some_and(|value| values.contains(value)),
            Ask::NotIn(values) => !value.is_some_and(|value| values.contains(value)),
            Ask::Exists => value.is_some(),
            Ask::Absent => value.is_none(),
            Ask::Unknown => false,
        }
    }
}

impl Target {
    /// Whether it can be no more than one machine.
    #[must_use]
    pub fn is_one(&self) -> bool {
        matches!(self, Self::Machine(_))
    }

    /// Whether that is `me` (node-agent specification 9.3).
    #[must_use]
    pub fn is(&self, me: &Me) -> bool {
        match self {
            Self::Machine(name) => *name == me.machine,
            Self::Labels(requirements) => me
                .labels
                .as_ref()
                .is_some_and(|labels| requirements.iter().all(|requirement| requirement.holds(labels))),
            Self::None => false,
        }
    }
}

/// What becomes of `operation` while `upgrade` is what the journal says.
#[must_use]
pub fn admit(operation: &Operation, me: &Me, upgrade: &Upgrade) -> Admission {
    if operation.kind == Kind::Others || !operation.target.is(me) {
        return Admission::Ignore;
    }
    if upgrade.order().is_some_and(|order| order.uid == operation.uid) {
        return Admission::Ignore;
    }
    match operation.phase {
        Phase::Unknown => Admission::Ignore,
        Phase::Over => match (operation.completed_at, operation.keep) {
            (Some(end), Some(keep)) => Admission::DeleteAt(end.saturating_add(keep).unwrap_or(Timestamp::MAX)),
            (None, _) | (_, None) => Admission::Ignore,
        },
        // Of one for many machines, another's daemon may be at it.
        Phase::InProgress if !operation.target.is_one() => Admission::Ignore,
        Phase::InProgress => Admission::Deny {
            reason: Denial::DaemonFailed,
            message: "the daemon that took this operation is gone and left no record of it".into(),
        },
        Phase::New => match operation.kind {
            Kind::AgentUpgrade => match parse_upgrade(&operation.parameters) {
                Err(error) => Admission::Deny {
                    reason: Denial::InvalidParameters,
                    message: error.to_string(),
                },
                Ok(_) if *upgrade != Upgrade::Idle => Admission::Wait,
                Ok(to) => Admission::Upgrade { to },
            },
            Kind::NodeReboot | Kind::AgentReset => Admission::Deny {
                reason: Denial::UnsupportedOperation,
                message: "this version of the agent can't carry out this kind of operation yet; nothing was done"
                    .into(),
            },
            Kind::Others => Admission::Ignore,
        },
    }
}

/// Sorts operations into the order they are served in: oldest first.
pub fn queue(operations: &mut [Operation]) {
    operations.sort_by(|a, b| (a.created_at, &a.name).cmp(&(b.created_at, &b.name)));
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEX: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";

    fn parameters(url: &str, digest: &str) -> BTreeMap<String, String> {
        [("downloadURL", url), ("sha256", digest)]
            .into_iter()
            .filter(|(_, value)| *value != "-")
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .collect()
    }

    fn parse(url: &str, digest: &str) -> Result<String, BadParameters> {
        parse_upgrade(&parameters(url, digest)).map(|image| image.to_string())
    }

    fn operation(kind: Kind, phase: Phase) -> Operation {
        Operation {
            name: "op".into(),
            uid: "u-2".into(),
            created_at: None,
            target: Target::Machine("edge-1".into()),
            kind,
            parameters: parameters("oci://registry.test/agent", HEX),
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
        }
    }

    #[test]
    fn a_repository_and_a_digest_are_an_image() {
        let whole = format!("registry.test:5000/azure/agent@sha256:{HEX}");
        for url in [
            "oci://registry.test:5000/azure/agent",
            "oci://registry.test:5000/azure/agent:v1.2",
            "  oci://registry.test:5000/azure/agent\n",
            "OCI://Registry.test:5000/azure/agent",
        ] {
            assert_eq!(parse(url, HEX).as_deref(), Ok(whole.as_str()), "{url}");
        }
        for digest in [HEX.to_uppercase(), format!("sha256:{HEX}"), format!(" {HEX} ")] {
            assert_eq!(
                parse("oci://registry.test:5000/azure/agent", &digest).as_deref(),
                Ok(whole.as_str())
            );
        }
    }

    #[test]
    fn na_t10_without_a_digest_nothing_is_pulled() {
        for digest in ["-", "", " \t"] {
            assert_eq!(parse("oci://registry.test/agent", digest), Err(BadParameters::NoDigest));
        }
        for url in ["-", "", "  "] {
            assert_eq!(parse(url, HEX), Err(BadParameters::NoUrl));
            assert_eq!(parse(url, "-"), Err(BadParameters::NoUrl));
        }
    }

    #[test]
    fn na_t11_a_digest_inside_the_url_is_refused() {
        for url in [
            format!("oci://registry.test/agent@sha256:{HEX}"),
            format!("oci://registry.test/agent:v1@sha256:{HEX}"),
            "oci://registry.test/agent@sha256:".into(),
        ] {
            assert_eq!(parse(&url, HEX), Err(BadParameters::DigestInUrl), "{url}");
        }
    }

    #[test]
    fn na_t12_an_archive_is_refused_where_an_image_runs() {
        for url in [
            "https://registry.test/agent.tar.gz",
            "http://h/x?token=c4nary",
            "HTTPS://h/x",
        ] {
            assert_eq!(parse(url, HEX), Err(BadParameters::Archive), "{url}");
        }
    }

    #[test]
    fn na_r20_a_malformed_digest_is_reported_before_a_malformed_url() {
        for url in ["https://h/x", "not a url", "oci://", "oci://user:pw@h/x"] {
            for digest in [
                &HEX[1..],
                "zz",
                &format!("{HEX}0"),
                &format!("{} {}", &HEX[..32], &HEX[32..]),
            ] {
                assert!(
                    matches!(parse(url, digest), Err(BadParameters::Digest(_))),
                    "{url} {digest}"
                );
            }
        }
    }

    #[test]
    fn na_r01_no_message_repeats_what_was_given() {
        let canaries = [
            "oci://user:c4nary@registry.test/agent",
            "oci://c4nary@registry.test/agent",
            "oci://registry.test/agent?token=c4nary",
            "oci://registry.test/agent#c4nary",
            "oci://registry.test/C4NARY",
            "oci://registry.test/c4nary/Agent:c4nary",
            "oci://c4nary",
            "oci://c4nary/agent",
            "oci://registry.test/c4 nary",
            "oci://registry.test:c4nary/agent",
            "oci://registry.test/agent:c4nary:c4nary",
            "ftp://c4nary/agent",
            "c4nary",
            "https://user:c4nary@registry.test/agent?c4nary#c4nary",
        ];
        for url in canaries {
            let error = parse(url, HEX).unwrap_err();
            let shown = format!("{error} {error:?}").to_lowercase();
            assert!(!shown.contains("c4nary"), "{url}: {shown}");
        }
        for digest in ["c4nary", "sha256:c4nary", &format!("c4nary{HEX}")] {
            let error = parse("oci://registry.test/agent", digest).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("c4nary"));
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
            assert_eq!(admit(&operation, &me, &Upgrade::Idle) != Admission::Ignore, want);
        }
    }

    #[test]
    fn one_operation_at_a_time_and_the_same_one_is_not_taken_twice() {
        let asked = operation(Kind::AgentUpgrade, Phase::New);
        assert!(matches!(
            admit(&asked, &me(), &Upgrade::Idle),
            Admission::Upgrade { .. }
        ));
        assert_eq!(admit(&asked, &me(), &busy("u-1")), Admission::Wait);
        assert_eq!(admit(&asked, &me(), &busy("u-2")), Admission::Ignore);
    }

    #[test]
    fn bad_arguments_are_denied_even_while_another_is_going_on() {
        let mut asked = operation(Kind::AgentUpgrade, Phase::New);
        asked.parameters.clear();
        for upgrade in [Upgrade::Idle, busy("u-1")] {
            assert!(matches!(
                admit(&asked, &me(), &upgrade),
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
                admit(&left, &me(), &Upgrade::Idle),
                Admission::Deny {
                    reason: Denial::DaemonFailed,
                    ..
                }
            ));
            assert_eq!(admit(&left, &me(), &busy("u-2")), Admission::Ignore);
        }
        assert_eq!(
            admit(&operation(Kind::Others, Phase::InProgress), &me(), &Upgrade::Idle),
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
        assert_eq!(admit(&left, &me, &Upgrade::Idle), Admission::Ignore);
    }

    #[test]
    fn what_can_not_be_done_yet_is_said_and_not_pretended() {
        for kind in [Kind::NodeReboot, Kind::AgentReset] {
            assert!(matches!(
                admit(&operation(kind, Phase::New), &me(), &Upgrade::Idle),
                Admission::Deny {
                    reason: Denial::UnsupportedOperation,
                    ..
                }
            ));
        }
        assert_eq!(
            admit(&operation(Kind::AgentUpgrade, Phase::Unknown), &me(), &Upgrade::Idle),
            Admission::Ignore
        );
    }

    #[test]
    fn an_operation_goes_when_its_time_after_the_end_is_over() {
        let mut over = operation(Kind::AgentUpgrade, Phase::Over);
        assert_eq!(admit(&over, &me(), &Upgrade::Idle), Admission::Ignore);
        over.completed_at = Some(Timestamp::UNIX_EPOCH);
        assert_eq!(admit(&over, &me(), &Upgrade::Idle), Admission::Ignore);
        over.keep = Some(SignedDuration::from_secs(60));
        let at = Timestamp::from_second(60).unwrap();
        assert_eq!(admit(&over, &me(), &Upgrade::Idle), Admission::DeleteAt(at));
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
}
