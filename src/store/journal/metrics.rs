//! Flush metrics of the journal. Reading is lock-free and does not stop the writer, so the values
//! of one reading may be a flush apart.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

use paperbourse_core::histogram::Histogram;

/// Metrics of one journal since it was opened.
#[derive(Default, Debug)]
pub struct JournalMetrics {
    /// Duration of a flush, write and fsync together, in microseconds.
    pub flush_us: Histogram,
    /// Records per flush.
    pub batch_records: Histogram,
    /// Bytes written per flush, padding included.
    pub batch_bytes: Histogram,
    /// Start of the flush in progress.
    flushing_since: Mutex<Option<Instant>>,
}

impl JournalMetrics {
    /// Returns the age of the flush in progress, which on a stalled disk is the length of the
    /// stall. Zero when no flush is in progress.
    pub fn unflushed_age(&self) -> Duration {
        self.flushing_since.lock().map_or(Duration::ZERO, |since| since.elapsed())
    }

    pub(super) fn begin_flush(&self, now: Instant) {
        *self.flushing_since.lock() = Some(now);
    }

    pub(super) fn record_flush(&self, elapsed: Duration, records: u64, bytes: u64) {
        self.flush_us.record_micros(elapsed);
        self.batch_records.record(records);
        self.batch_bytes.record(bytes);
        *self.flushing_since.lock() = None;
    }
}
