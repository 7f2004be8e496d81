//! A histogram of the time from reading a frame off its socket to publishing the books that it
//! changes.

use std::time::Duration;

/// The upper bounds of the buckets in nanoseconds: ten per decade, from 10 µs to 10 s.
pub const BOUNDS_NS: [u64; 61] = bounds();

/// The bounds within one decade, in hundredths of the decade's lower end, rounded for readability.
const STEPS: [u64; 10] = [100, 125, 160, 200, 250, 315, 400, 500, 630, 800];

const fn bounds() -> [u64; 61] {
    let mut bounds = [0; 61];
    let (mut index, mut decade) = (0, 100);
    while index < bounds.len() {
        let step = index % STEPS.len();
        bounds[index] = STEPS[step] * decade;
        index += 1;
        if index % STEPS.len() == 0 {
            decade *= 10;
        }
    }
    bounds
}

/// A histogram of delays.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Delays {
    /// Counts per bucket. Each bucket holds the delays above the previous bound, up to and
    /// including its own in [`BOUNDS_NS`]; the last bucket holds the delays above all bounds.
    buckets: [u64; BOUNDS_NS.len() + 1],
    sum: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Self { buckets: [0; BOUNDS_NS.len() + 1], sum: Duration::ZERO }
    }
}

impl Delays {
    pub(crate) fn record(&mut self, delay: Duration) {
        let bucket = BOUNDS_NS.partition_point(|&bound| Duration::from_nanos(bound) < delay);
        self.buckets[bucket] += 1;
        self.sum = self.sum.saturating_add(delay);
    }

    /// Iterates over [`BOUNDS_NS`], each with the number of delays up to and including that bound.
    pub fn cumulative(&self) -> impl Iterator<Item = (u64, u64)> {
        BOUNDS_NS.iter().zip(&self.buckets).scan(0, |total, (&bound, count)| {
            *total += count;
            Some((bound, *total))
        })
    }

    /// Returns the number of delays recorded.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Returns the sum of all delays.
    pub const fn sum(&self) -> Duration {
        self.sum
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bound_is_about_a_quarter_above_the_previous_one() {
        assert_eq!((BOUNDS_NS[0], BOUNDS_NS[10], BOUNDS_NS[60]), (10_000, 100_000, 10_000_000_000));
        for pair in BOUNDS_NS.windows(2) {
            assert!((120..135).contains(&(pair[1] * 100 / pair[0])), "{pair:?}");
        }
    }

    #[test]
    fn a_delay_equal_to_a_bound_counts_below_it() {
        let mut delays = Delays::default();
        for nanos in [0, 10_000, 10_001, 12_000, 10_000_000_000, 10_000_000_001] {
            delays.record(Duration::from_nanos(nanos));
        }
        let counts: Vec<u64> = delays.cumulative().map(|(_, count)| count).collect();
        assert_eq!((&counts[..3], counts[59], counts[60]), (&[2, 4, 4][..], 4, 5));
        assert_eq!((delays.count(), delays.sum().as_nanos()), (6, 20_000_032_002));
    }
}
