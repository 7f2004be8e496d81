//! How long to wait before the next try: twice as long after each failure, up to a bound, and a
//! random part of it, so that many who lost the same server do not return together. Pure.

use std::time::Duration;

/// The wait before the next try.
#[derive(Clone, Debug)]
pub(crate) struct Backoff {
    least: Duration,
    most: Duration,
    failure_count: u32,
}

impl Backoff {
    /// Waits between `least` and `most`.
    pub(crate) const fn new(least: Duration, most: Duration) -> Self {
        Self { least, most, failure_count: 0 }
    }

    /// It went well: the next failure is a first one.
    pub(crate) const fn succeeded(&mut self) {
        self.failure_count = 0;
    }

    /// How long to wait after one more failure. `chance` is evenly spread over its whole range: the
    /// wait is between half and all of what the failures make it.
    pub(crate) fn failed(&mut self, chance: u32) -> Duration {
        let doubled = self.least.saturating_mul(1 << self.failure_count.min(16));
        self.failure_count = self.failure_count.saturating_add(1);
        let whole = doubled.min(self.most);
        let half = whole / 2;
        half + half.mul_f64(f64::from(chance) / f64::from(u32::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_to_the_bound_and_start_anew() {
        let seconds = Duration::from_secs;
        let mut backoff = Backoff::new(seconds(1), seconds(30));
        for expected in [1, 2, 4, 8, 16, 30, 30] {
            assert_eq!(backoff.clone().failed(0), seconds(expected) / 2);
            assert_eq!(backoff.failed(u32::MAX), seconds(expected));
        }
        backoff.succeeded();
        assert_eq!(backoff.failed(u32::MAX), seconds(1));
        let mut forgetful = Backoff { failure_count: u32::MAX, ..backoff };
        assert_eq!(forgetful.failed(u32::MAX), seconds(30));
    }
}
