//! What an account is given: a bearer's token with its end.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

use crate::model::Secret;

/// A bearer's token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    value: Secret<String>,
    from: Timestamp,
    until: Timestamp,
}

/// How long before its end a token is given up, at most: a request needs its time, and clocks differ. Source: MSAL and
/// the Azure SDKs give theirs up five minutes early; here a token that is given up costs kubelet a process, and the metadata
/// service hands out the same one until its end.
const MARGIN: SignedDuration = SignedDuration::from_mins(1);

impl Token {
    /// What was asked for at `from` and is good for `life`.
    pub(super) fn new(value: String, from: Timestamp, life: Duration) -> Self {
        let until = SignedDuration::try_from(life)
            .ok()
            .and_then(|life| from.checked_add(life).ok());
        Self {
            value: Secret::new(value),
            from,
            until: until.unwrap_or(from),
        }
    }

    /// The token itself.
    #[must_use]
    pub const fn value(&self) -> &Secret<String> {
        &self.value
    }

    /// Until when it is to be used: a minute before its end, or a tenth of its life where that is less.
    #[must_use]
    pub fn usable_until(&self) -> Timestamp {
        let life = self.until.duration_since(self.from);
        self.until - MARGIN.min(life / 10)
    }

    /// When another is to be asked for, with a number from 0 to 1 that spreads a fleet's requests: after half to three quarters of its life.
    #[must_use]
    pub fn renew_at(&self, fraction: f64) -> Timestamp {
        let life = self.until.duration_since(self.from);
        self.from + life.mul_f64(0.5 + fraction.clamp(0.0, 1.0) / 4.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token(seconds: u64) -> Token {
        Token::new("t".into(), Timestamp::UNIX_EPOCH, Duration::from_secs(seconds))
    }

    #[test]
    fn a_token_is_given_up_before_its_end_and_never_before_it_was_had() {
        for (life, usable) in [(3600, 3540), (600, 540), (100, 90), (0, 0)] {
            assert_eq!(token(life).usable_until().as_second(), usable, "{life}");
        }
    }

    #[test]
    fn another_is_asked_for_in_the_second_half_of_its_life() {
        assert_eq!(token(3600).renew_at(0.0).as_second(), 1800);
        assert_eq!(token(3600).renew_at(1.0).as_second(), 2700);
    }

    #[test]
    fn a_life_that_no_clock_has_is_none() {
        assert_eq!(token(u64::MAX).usable_until(), Timestamp::UNIX_EPOCH);
    }
}
