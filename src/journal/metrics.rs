//! What the journal counts about its flushes. Reading is lock-free and needs no rest of the
//! writer, so the figures of one reading may be a flush apart from each other.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Upper bounds of the buckets are powers of two; the last bucket holds everything above.
pub const BUCKET_COUNT: usize = 32;

/// Counts of a quantity, by powers of two.
#[derive(Default, Debug)]
pub struct Histogram {
    buckets: [AtomicU64; BUCKET_COUNT],
    sum: AtomicU64,
    max: AtomicU64,
}

impl Histogram {
    /// Counts one value.
    pub fn record(&self, value: u64) {
        let bits = (u64::BITS - value.leading_zeros()) as usize;
        self.buckets[bits.min(BUCKET_COUNT - 1)].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
        self.max.fetch_max(value, Ordering::Relaxed);
    }

    /// How many values were counted in each bucket. Bucket `n` holds those below 2 to the power of
    /// `n` that no earlier bucket holds; the last holds all the rest.
    pub fn buckets(&self) -> [u64; BUCKET_COUNT] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets().iter().sum()
    }

    /// The sum of all values.
    pub fn sum(&self) -> u64 {
        self.sum.load(Ordering::Relaxed)
    }

    /// The largest value; 0 when there is none.
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }
}

/// The figures of one journal since it was opened.
#[derive(Default, Debug)]
pub struct JournalMetrics {
    /// How long a flush took, write and sync together, in microseconds.
    pub flush_us: Histogram,
    /// How many records a flush carried.
    pub batch_records: Histogram,
    /// How many bytes a flush wrote, padding included.
    pub batch_bytes: Histogram,
    /// When the flush that is under way began.
    flushing_since: Mutex<Option<Instant>>,
}

impl JournalMetrics {
    /// How long the oldest record that is not on disk has been waiting for the flush that is under
    /// way, which is the time that a disk that stands still has stood still. 0 when there is none.
    pub fn unflushed_age(&self) -> Duration {
        self.flushing_since.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(super) fn begin_flush(&self, now: Instant) {
        *self.flushing_since.lock() = Some(now);
    }

    pub(super) fn record_flush(&self, elapsed: Duration, records: u64, bytes: u64) {
        self.flush_us.record(u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX));
        self.batch_records.record(records);
        self.batch_bytes.record(bytes);
        *self.flushing_since.lock() = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_their_buckets() {
        let histogram = Histogram::default();
        for value in [0, 1, 2, 3, 4, 1023, 1024, 1 << 40] {
            histogram.record(value);
        }
        let buckets = histogram.buckets();
        assert_eq!((&buckets[..4], buckets[10], buckets[11]), (&[1, 1, 2, 1][..], 1, 1));
        assert_eq!(buckets[BUCKET_COUNT - 1], 1);
        assert_eq!((histogram.count(), histogram.max()), (8, 1 << 40));
        assert_eq!(histogram.sum(), 10 + 1023 + 1024 + (1 << 40));
    }
}
