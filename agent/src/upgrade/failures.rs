//! Which images failed on this host by their own fault: such a one is not tried again unless somebody insists. Pure.
//!
//! Only what an agent did itself is on record: a registry that was away or a disk that was full says nothing of an image
//! (field cases U18, R11).

use image::Digest;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// As many images are remembered, the latest ones.
const MOST: usize = 16;

/// An image's record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Failure {
    /// Which image.
    pub digest: Digest,
    /// When it failed last.
    pub failed_at: Timestamp,
    /// How many operations it has failed.
    pub attempts: u32,
    /// The last of them.
    #[serde(rename = "operationUID")]
    operation_uid: String,
    /// What was wrong, in a line.
    pub why: String,
}

/// All records, latest last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Failures(Vec<Failure>);

impl Failures {
    /// The image's record, if it has one.
    #[must_use]
    pub fn of(&self, digest: &Digest) -> Option<&Failure> {
        self.0.iter().find(|failure| failure.digest == *digest)
    }

    /// Puts a failure on record. The same operation counts once, however often it says so.
    #[must_use]
    pub fn with(mut self, digest: &Digest, operation_uid: &str, failed_at: Timestamp, why: &str) -> Self {
        let before = self.of(digest).cloned();
        if before
            .as_ref()
            .is_some_and(|failure| failure.operation_uid == operation_uid)
        {
            return self;
        }
        self = self.without(digest);
        self.0.push(Failure {
            digest: digest.clone(),
            failed_at,
            attempts: before.map_or(0, |failure| failure.attempts).saturating_add(1),
            operation_uid: operation_uid.to_owned(),
            why: why.to_owned(),
        });
        let over = self.0.len().saturating_sub(MOST);
        self.0.drain(..over);
        self
    }

    /// Takes the image off the record.
    #[must_use]
    pub fn without(mut self, digest: &Digest) -> Self {
        self.0.retain(|failure| failure.digest != *digest);
        self
    }

    /// Whether nothing is on record.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest(number: usize) -> Digest {
        Digest::of(number.to_string().as_bytes())
    }

    #[test]
    fn fc_r9_each_operation_counts_once_and_a_success_ends_the_record() {
        let at = |second| Timestamp::from_second(second).unwrap();
        let mut failures = Failures::default();
        for (second, uid) in [(1, "u-1"), (2, "u-1"), (3, "u-2"), (4, "u-3"), (5, "u-3")] {
            failures = failures.with(&digest(0), uid, at(second), "status 1");
        }
        let failure = failures.of(&digest(0)).unwrap();
        assert_eq!((failure.attempts, failure.failed_at), (3, at(4)));
        assert_eq!(failure.why, "status 1");
        assert!(failures.of(&digest(1)).is_none());
        assert!(failures.without(&digest(0)).is_empty());
    }

    #[test]
    fn the_record_is_bounded_and_keeps_the_latest() {
        let mut failures = Failures::default();
        for number in 0..MOST + 3 {
            failures = failures.with(&digest(number), &number.to_string(), Timestamp::UNIX_EPOCH, "w");
        }
        assert_eq!(failures.0.len(), MOST);
        assert!(failures.of(&digest(2)).is_none() && failures.of(&digest(3)).is_some());
    }
}
