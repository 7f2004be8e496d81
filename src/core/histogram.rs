//! Power-of-two histograms that many threads can record into without a lock.
//!
//! The buckets are fixed, so recording costs the same for every value, and the histograms of
//! several threads add up exactly.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Number of buckets. Their upper bounds are powers of two; the last bucket is unbounded.
pub const BUCKET_COUNT: usize = 32;

/// A histogram with power-of-two buckets.
#[derive(Default, Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum: AtomicU64,
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, value: u64) {
        let below = value.saturating_sub(1);
        let bits = (u64::BITS - below.leading_zeros()) as usize;
        self.buckets[bits.min(BUCKET_COUNT - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Counts a duration in microseconds, rounded up.
    pub fn record_micros(&self, duration: Duration) {
        let nanos = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        self.record(nanos.div_ceil(1_000));
    }

    /// Returns the count of each bucket. Bucket `n` counts values above 2^(n-1), up to and
    /// including 2^n; bucket 0 counts 0 and 1, and the last one counts everything above the others.
    pub fn buckets(&self) -> [u64; BUCKET_COUNT] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    /// Returns the number of values recorded.
    pub fn count(&self) -> u64 {
        self.buckets().iter().sum()
    }

    /// Returns the sum of all values recorded.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// Adds all values of another histogram.
    pub fn add(&self, other: &Self) {
        for (bucket, count) in self.buckets.iter().zip(other.buckets()) {
            bucket.fetch_add(count, Ordering::Relaxed);
        }
        self.sum.fetch_add(other.sum(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_power_of_two_is_the_last_value_of_its_bucket() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 5, 1024, 1025, 1 << 30, (1 << 30) + 1, u64::MAX] {
            histogram.record(value);
        }
        let buckets = histogram.buckets();
        assert_eq!((&buckets[..4], buckets[10], buckets[11]), (&[2, 1, 2, 1][..], 1, 1));
        assert_eq!((buckets[30], buckets[BUCKET_COUNT - 1], histogram.count()), (1, 2, 11));
    }

    #[test]
    fn durations_are_rounded_up_to_microseconds() {
        let histogram = Histogram::default();
        for (nanos, sum) in [(0, 0), (1, 1), (1_000, 2), (1_001, 4), (16_000, 20)] {
            histogram.record_micros(Duration::from_nanos(nanos));
            assert_eq!(histogram.sum(), sum, "{nanos} ns");
        }
        assert_eq!(histogram.buckets()[..5], [3, 1, 0, 0, 1]);
        histogram.record_micros(Duration::MAX);
        assert_eq!(histogram.buckets()[BUCKET_COUNT - 1], 1);
    }

    #[test]
    fn histograms_add_up() {
        let (sum, part) = (Histogram::default(), Histogram::default());
        sum.record(3);
        part.record(4);
        part.record(100);
        sum.add(&part);
        assert_eq!((sum.count(), sum.sum(), &sum.buckets()[..3]), (3, 107, &[0, 0, 2][..]));
    }
}
