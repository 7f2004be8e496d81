//! Exponential back-off with jitter: the wait doubles after each failure, up to a maximum, and part
//! of it is random, so that clients that lost the same server do not all return at once. Pure.

use std::time::Duration;

/// The wait times of one sequence of retries.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    min: Duration,
    max: Duration,
    failure_count: u32,
}

impl Backoff {
    pub(crate) const fn new(min: Duration, max: Duration) -> Self {
        Self { min, max, failure_count: 0 }
    }

    /// Resets the wait after a success: the next failure counts as the first.
    pub(crate) const fn reset(&mut self) {
        self.failure_count = 0;
    }

    /// Counts a failure and returns the wait before the next try. The upper bound of the wait is
    /// `min`, doubled for each earlier failure, up to `max`; the wait is chosen at random between
    /// half of that bound and all of it. `chance` must be uniform over all of `u32`.
    pub(crate) fn next_wait(&mut self, chance: u32) -> Duration {
        // The cap keeps the shift from overflowing.
        let doubled = self.min.saturating_mul(1 << self.failure_count.min(16));
        self.failure_count = self.failure_count.saturating_add(1);
        let whole = doubled.min(self.max);
        let half = whole / 2;
        half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_maximum_and_start_over_after_a_reset() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(30));
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(backoff.clone().next_wait(0), seconds(expected) / 2);
            assert_eq!(backoff.next_wait(u32::MAX), seconds(expected));
        }
        backoff.reset();
        assert_eq!(backoff.next_wait(u32::MAX), seconds(1));
        let mut saturated = Backoff { failure_count: u32::MAX, ..backoff };
        assert_eq!(saturated.next_wait(u32::MAX), seconds(30));
    }
}
