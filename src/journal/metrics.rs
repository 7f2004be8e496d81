//! Flush metrics of the journal. Reading is lock-free and does not stop the writer, so the values
//! of one reading may be a flush apart.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Number of buckets. Their upper bounds are powers of two; the last has none.
pub const BUCKET_COUNT: usize = 32;

/// A histogram with power-of-two buckets.
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

    /// The count of each bucket. Bucket `n` counts values from 2^(n-1) to 2^n - 1, bucket 0 counts
    /// zeros, and the last one everything above.
    pub fn buckets(&self) -> [u64; BUCKET_COUNT] {
        std::array::from_fn(|index| self.buckets[index].load(Ordering::Relaxed))
    }

    /// The number of values counted.
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

/// Metrics of one journal since it was opened.
#[derive(Default, Debug)]
pub struct JournalMetrics {
    /// Time of a flush, write and fsync together, in microseconds.
    pub flush_us: Histogram,
    /// Records per flush.
    pub batch_records: Histogram,
    /// Bytes written per flush, padding included.
    pub batch_bytes: Histogram,
    /// Start of the flush in progress.
    flushing_since: Mutex<Option<Instant>>,
}

impl JournalMetrics {
    /// Age of the flush in progress, and so how long a stalled disk has been stalled. 0 when no
    /// flush is in progress.
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
    fn values_are_counted_in_the_right_bucket() {
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
