//! Whether to ask again, and when; pure.

use std::time::Duration;

/// How long answers may take.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// For all tries.
    pub total: Duration,
    /// For one.
    pub one: Duration,
    /// Until its connection stands.
    pub connect: Duration,
    /// Before the second try; doubled before each further one. Source: the metadata service's retry guidance: at least a
    /// second, then exponentially.
    pub pause: Duration,
    /// The longest pause that nobody asked for. Source: MSAL: an updating metadata service is asked every ten seconds.
    pub longest: Duration,
}

impl Default for Limits {
    /// What kubelet can wait for. client-go sets a credential plugin no end, and meanwhile holds every request of kubelet's: 30 s is
    /// less than the 40 s after which a node that says nothing is taken for lost (kube-controller-manager,
    /// `--node-monitor-grace-period`).
    fn default() -> Self {
        Self {
            total: Duration::from_secs(30),
            one: Duration::from_secs(10),
            connect: Duration::from_secs(5),
            pause: Duration::from_secs(1),
            longest: Duration::from_secs(10),
        }
    }
}

/// What is left of it.
#[derive(Debug)]
pub(super) struct Patience {
    left: Duration,
    pause: Duration,
    longest: Duration,
}

impl Patience {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            left: limits.total,
            pause: limits.pause,
            longest: limits.longest,
        }
    }

    /// How long one try may take that begins now.
    pub(super) fn of_one(&self, limits: &Limits) -> Duration {
        limits.one.min(self.left)
    }

    /// The pause before another try, after one that took so long and was `asked` to wait; none: there is no time for another. `fraction` is a
    /// number from 0 to 1.
    pub(super) fn next(&mut self, took: Duration, asked: Option<Duration>, fraction: f64) -> Option<Duration> {
        self.left = self.left.saturating_sub(took);
        let own = self.pause.mul_f64(1.0 + fraction.clamp(0.0, 1.0) / 4.0);
        self.pause = (self.pause * 2).min(self.longest);
        // What was asked for is the least.
        let pause = own.max(asked.unwrap_or_default());
        self.left = self.left.checked_sub(pause).filter(|left| !left.is_zero())?;
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn pauses_grow_and_end_with_the_time_there_is() {
        let mut patience = Patience::new(&Limits::default());
        let pauses: Vec<_> = std::iter::from_fn(|| patience.next(SECOND / 2, None, 0.0)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 10].map(Duration::from_secs));
        assert!(patience.of_one(&Limits::default()) < SECOND * 10);
    }

    #[test]
    fn what_is_asked_for_is_waited_for_or_not_waited_for_at_all() {
        let mut patience = Patience::new(&Limits::default());
        assert_eq!(patience.next(SECOND, Some(SECOND * 20), 1.0), Some(SECOND * 20));
        assert_eq!(patience.next(SECOND, Some(SECOND * 20), 1.0), None);
        let mut patience = Patience::new(&Limits::default());
        assert_eq!(patience.next(SECOND, Some(Duration::ZERO), 0.0), Some(SECOND));
        assert_eq!(patience.next(Duration::MAX, None, 0.0), None);
    }
}
