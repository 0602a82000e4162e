//! What a check found: a verdict, and with each that isn't good what to do.

use std::time::Duration;

use super::check::{Check, Weight};
use crate::config::Mistake;

/// What to do, as a sentence. Fixed text: it can't carry what somebody configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Remedy(&'static str);

impl Remedy {
    /// A sentence.
    ///
    /// # Panics
    /// On an empty one; in a `const`, already in the build.
    #[must_use]
    pub const fn new(text: &'static str) -> Self {
        assert!(!text.is_empty(), "a remedy says what to do");
        Self(text)
    }

    /// The sentence.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        self.0
    }
}

/// How a check ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is in the way.
    Ok,
    /// It could not be judged, or there is nothing to judge.
    Skipped,
    /// A node may come of it.
    Warning(Remedy),
    /// No node can come of it.
    Error(Remedy),
}

/// One line of a report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The check.
    pub check: Check,
    /// What of the host or the configuration's keys is meant, where the check's name doesn't say it.
    pub target: Option<String>,
    /// What was found, as a sentence.
    pub message: String,
    /// What was seen, in short.
    pub evidence: Option<String>,
    /// How it ended.
    pub verdict: Verdict,
}

impl Finding {
    /// Names what is meant.
    #[must_use]
    pub fn on(mut self, target: impl Into<String>) -> Self {
        self.target = Some(target.into());
        self
    }

    /// Keeps what was seen.
    #[must_use]
    pub fn seen(mut self, evidence: impl Into<String>) -> Self {
        self.evidence = Some(evidence.into());
        self
    }
}

/// Why a look gave no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unseen {
    /// It took too long.
    #[error("no answer within {} s", .0.as_secs())]
    Late(Duration),
    /// It failed.
    #[error("{0}")]
    Failed(String),
}

/// What a look saw.
pub type Seen<T> = Result<T, Unseen>;

impl Check {
    fn found(self, message: impl Into<String>, verdict: Verdict) -> Finding {
        Finding {
            check: self,
            target: None,
            message: message.into(),
            evidence: None,
            verdict,
        }
    }

    /// Nothing is in the way.
    pub fn ok(self, message: impl Into<String>) -> Finding {
        self.found(message, Verdict::Ok)
    }

    /// It was not judged, and why.
    pub fn skip(self, message: impl Into<String>) -> Finding {
        self.found(message, Verdict::Skipped)
    }

    /// A node may come of it.
    pub fn warn(self, message: impl Into<String>, remedy: Remedy) -> Finding {
        self.found(message, Verdict::Warning(remedy))
    }

    /// No node can come of it.
    pub fn fail(self, message: impl Into<String>, remedy: Remedy) -> Finding {
        self.found(message, Verdict::Error(remedy))
    }

    /// The look gave no answer.
    #[must_use]
    pub fn unseen(self, why: &Unseen) -> Finding {
        const LATE: Remedy = Remedy::new("find out what of the host hangs, or go on without this check by ignoring it");
        const FAILED: Remedy =
            Remedy::new("see that root can read what is named, or go on without this check by ignoring it");
        let remedy = match why {
            Unseen::Late(_) => LATE,
            Unseen::Failed(_) => FAILED,
        };
        let message = format!("it can't be said: {why}");
        match self.weight() {
            Weight::Warning => self.warn(message, remedy),
            Weight::Error => self.fail(message, remedy),
        }
    }

    /// A setting that can't be started with. Its texts are fixed.
    #[must_use]
    pub fn mistaken(self, mistake: &Mistake) -> Finding {
        self.fail(format!("the setting {}", mistake.wrong), Remedy::new(mistake.write))
            .on(mistake.key.clone())
    }
}
