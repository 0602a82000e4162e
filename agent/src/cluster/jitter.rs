//! Numbers nobody can foresee, so that a fleet does not act in step. Not for secrets.

use std::hash::{BuildHasher as _, RandomState};

/// A number from 0 to 1.
#[must_use]
pub fn fraction() -> f64 {
    (random() >> 11) as f64 / (1_u64 << 53) as f64
}

/// 128 bits in hex: the name of one process among all that ever were.
#[must_use]
pub fn instance() -> String {
    format!("{:016x}{:016x}", random(), random())
}

fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_two_are_alike() {
        let all: std::collections::BTreeSet<_> = (0..100).map(|_| instance()).collect();
        assert_eq!(all.len(), 100);
        assert!(all.iter().all(|name| name.len() == 32));
        assert!((0..100).all(|_| (0.0..1.0).contains(&fraction())));
    }
}
