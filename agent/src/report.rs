//! From what is known to what the cluster and the log are told. Pure; it sees to it that nothing secret is told.

use image::ImageRef;
use jiff::Timestamp;

use crate::operation::Denial;
use crate::upgrade::{Order, Outcome, Progress, Reason};

/// The most that a status' message holds, in bytes.
const LONGEST: usize = 4096;
/// The most lines of a candidate's log that a message holds. Source: field-cases R8.
const LINES: usize = 20;
/// What stands before them.
const LAST_LINES: &str = "; its last lines:";
/// The longest of these lines, in characters.
const LINE: usize = 200;

/// What an operation's status says once it is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// `Complete` or `Failed`.
    pub phase: &'static str,
    /// The condition's reason.
    pub reason: &'static str,
    /// In a sentence.
    pub message: String,
    /// When the operation was taken, if it was.
    pub started_at: Option<Timestamp>,
    /// The Machine object's generation then.
    pub generation: i64,
}

/// What an AgentUpgrade's status says while it is carried out (na_r14: it is an image, and no program of the host's).
#[must_use]
pub fn in_progress(to: &ImageRef) -> String {
    format!("making agent image {to} ready, then restarting on it")
}

/// How far an AgentUpgrade is.
#[must_use]
pub fn progress(to: &ImageRef, progress: &Progress) -> String {
    match progress {
        Progress::Pulling { done, all } => {
            let percent = done.saturating_mul(100).checked_div(*all).unwrap_or(100);
            format!("pulling agent image {to}: {done} of {all} bytes ({percent} %)")
        }
        Progress::Again { attempt, why } => bounded(&clean(&format!(
            "pulling agent image {to}, attempt {attempt}, after: {why}"
        ))),
        Progress::Checking => format!("checking agent image {to} on this host, then restarting on it"),
    }
}

/// How an AgentUpgrade ended; `attempts` is how often its image has failed here, if it has.
#[must_use]
pub fn end(order: &Order, selected: &ImageRef, outcome: &Outcome, attempts: Option<u32>) -> End {
    let (phase, reason, message) = match outcome {
        Outcome::Succeeded => ("Complete", "Succeeded", format!("agent image {selected} runs")),
        Outcome::Failed { reason, why } => {
            let word = match reason {
                Reason::ExecutionFailed => "ExecutionFailed",
                Reason::DaemonFailed => "DaemonFailed",
            };
            (
                "Failed",
                word,
                format!(
                    "{}\n{}agent image {selected} runs",
                    bounded(&clean(why)),
                    tried(attempts)
                ),
            )
        }
    };
    End {
        phase,
        reason,
        message,
        started_at: Some(order.started_at),
        generation: order.generation,
    }
}

fn tried(attempts: Option<u32>) -> String {
    match attempts {
        None => String::new(),
        Some(1) => "it has failed on this host once; ".into(),
        Some(times) => format!("it has failed on this host {times} times; "),
    }
}

/// How an operation ended that was not carried out.
#[must_use]
pub fn denied(reason: Denial, message: &str) -> End {
    End {
        phase: "Failed",
        reason: match reason {
            Denial::InvalidParameters => "InvalidParameters",
            Denial::UnsupportedOperation => "UnsupportedOperation",
            Denial::DaemonFailed => "DaemonFailed",
            Denial::FailedBefore => "ExecutionFailed",
        },
        message: bounded(message),
        started_at: None,
        generation: 0,
    }
}

/// Why the agent's unit failed: how it ended, in a sentence, and the last lines of its log.
#[must_use]
pub fn crash(how: &str, log: &str) -> String {
    let mut text = how.to_owned();
    let lines: Vec<_> = log.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    if !lines.is_empty() {
        text.push_str(LAST_LINES);
    }
    for line in &lines[lines.len().saturating_sub(LINES)..] {
        text.push('\n');
        text.extend(line.chars().take(LINE));
    }
    bounded(&clean(&text))
}

/// As much of why something failed as fits into a line: the sentence, and the very last line of the log, if there is one.
#[must_use]
pub fn short(why: &str) -> String {
    let mut lines = why.lines();
    let first = lines.next().unwrap_or_default();
    match lines.next_back() {
        Some(last) => format!("{}: {last}", first.trim_end_matches(LAST_LINES)),
        None => first.to_owned(),
    }
}

/// The text without control characters, and without what looks like a secret.
#[must_use]
pub fn clean(text: &str) -> String {
    let lines = text.lines().map(|line| {
        let (mut secret_next, mut named) = (false, false);
        let words = line.split(' ').map(|word| {
            let word: String = word.chars().filter(|c| !c.is_control()).collect();
            let scheme = word.eq_ignore_ascii_case("bearer") || word.eq_ignore_ascii_case("basic");
            let masked = if secret_next && !scheme && !ADVICE.contains(&word.as_str()) {
                "***".into()
            } else {
                masked(&word)
            };
            // `key: value` and `key = value` too.
            named = names_secret(&word) || named && word.len() == 1;
            secret_next = scheme || named && word.ends_with([':', '=']);
            masked
        });
        words.collect::<Vec<_>>().join(" ")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// What our own messages go on with behind a key's name and a colon.
const ADVICE: [&str; 2] = ["write", "expected"];
const WORDS: [&str; 6] = ["token", "password", "passwd", "secret", "authorization", "credential"];

fn names_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    WORDS.iter().any(|secret| key.contains(secret))
}

fn masked(word: &str) -> String {
    if word.contains("://") {
        return url_masked(word);
    }
    if let Some((key, value)) = word.split_once(['=', ':'])
        && !value.is_empty()
        && names_secret(key)
    {
        return format!("{key}=***");
    }
    let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    if is_token(bare) || bare.starts_with("eyJ") {
        return word.replace(bare, "***");
    }
    word.to_owned()
}

/// A URL without user, query and fragment.
fn url_masked(word: &str) -> String {
    let (scheme, rest) = word.split_once("://").unwrap_or(("", word));
    let rest = match rest.find(['?', '#']) {
        Some(at) => format!("{}?***", &rest[..at]),
        None => rest.to_owned(),
    };
    let authority = rest.find('/').unwrap_or(rest.len());
    match rest[..authority].rfind('@') {
        Some(at) => format!("{scheme}://***@{}", &rest[at + 1..]),
        None => format!("{scheme}://{rest}"),
    }
}

/// Source: node-agent specification 2.3.1, `azure.bootstrapToken.token`.
fn is_token(word: &str) -> bool {
    let part =
        |text: &str, length| text.len() == length && text.bytes().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit());
    word.split_once('.')
        .is_some_and(|(id, secret)| part(id, 6) && part(secret, 16))
}

/// The text, its middle left out where it is longer than a status takes.
#[must_use]
pub fn bounded(text: &str) -> String {
    if text.len() <= LONGEST {
        return text.to_owned();
    }
    let half = LONGEST / 2 - 8;
    let head = text.floor_char_boundary(half);
    let tail = text.ceil_char_boundary(text.len() - half);
    format!("{}\n[…]\n{}", &text[..head], &text[tail..])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image() -> ImageRef {
        format!("registry.test/agent@sha256:{}", "a".repeat(64))
            .parse()
            .unwrap()
    }

    #[test]
    fn na_r14_the_message_speaks_of_an_image() {
        let text = in_progress(&image());
        assert!(text.contains("agent image registry.test/agent@sha256:aaa"));
        assert!(!text.contains("binary"));
    }

    #[test]
    fn fc_r8_a_crash_says_how_it_ended_and_its_last_twenty_lines() {
        let log: String = (1..=30).map(|n| format!("line {n}\n")).collect();
        let text = crash("it failed", &log);
        assert!(text.starts_with("it failed; its last lines:\nline 11\n"), "{text}");
        assert!(text.ends_with("line 30"));
        assert_eq!(short(&text), "it failed: line 30");
        let text = crash("it failed", "\n");
        assert_eq!((text.as_str(), short(&text).as_str()), ("it failed", "it failed"));
        let flood = crash("it failed", &"x".repeat(1 << 20));
        assert!(flood.len() < 400);
        let wide = crash("it failed", &format!("{}\n", "ä".repeat(LINE)).repeat(40));
        assert!(wide.len() <= LONGEST, "{}", wide.len());
    }

    #[test]
    fn fc_v4_what_looks_like_a_secret_is_not_told() {
        let table = [
            ("joined with abcdef.0123456789abcdef, fine", "joined with ***, fine"),
            ("Authorization: Bearer c4nary", "Authorization: Bearer ***"),
            ("authorization=c4nary", "authorization=***"),
            ("bootstrap-token=c4nary x", "bootstrap-token=*** x"),
            (
                "GET https://user:c4nary@h.io/p?sig=c4nary#c4nary failed",
                "GET https://***@h.io/p?*** failed",
            ),
            ("GET https://h.io/a@b failed", "GET https://h.io/a@b failed"),
            ("jwt eyJhbGciOiJub25lIn0.c4nary.", "jwt ***."),
            ("bell\u{7} and\u{1b}[31m colour", "bell and[31m colour"),
            ("exit status 1: no such file", "exit status 1: no such file"),
            ("registry.test/agent@sha256:aaaa", "registry.test/agent@sha256:aaaa"),
        ];
        for (text, want) in table {
            assert_eq!(clean(text), want);
        }
    }

    #[test]
    fn an_end_says_what_runs_now() {
        let order = Order {
            name: "up".into(),
            uid: "u".into(),
            generation: 7,
            machine: None,
            daemon: "d".into(),
            started_at: Timestamp::UNIX_EPOCH,
        };
        let good = end(&order, &image(), &Outcome::Succeeded, None);
        assert_eq!((good.phase, good.reason, good.generation), ("Complete", "Succeeded", 7));
        let why = String::from("exit status 1");
        let bad = end(
            &order,
            &image(),
            &Outcome::Failed {
                reason: Reason::DaemonFailed,
                why,
            },
            Some(2),
        );
        assert_eq!((bad.phase, bad.reason), ("Failed", "DaemonFailed"));
        assert_eq!(
            bad.message,
            format!(
                "exit status 1\nit has failed on this host 2 times; agent image {} runs",
                image()
            )
        );
    }

    #[test]
    fn a_secret_behind_its_name_and_a_blank_is_masked() {
        for line in [
            "password: sesame",
            "\"token\": \"sesame\",",
            "Authorization: Bearer sesame",
            "client_secret = sesame",
        ] {
            assert!(!clean(line).contains("sesame"), "{line}");
        }
        for line in [
            "why: it ended",
            "azure has no credential: write bootstrapToken, or another",
            "azure.bootstrapToken: expected an object, found a string",
        ] {
            assert_eq!(clean(line), line);
        }
    }
}
