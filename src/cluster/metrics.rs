//! The state of a log as its node sees it, for the metrics endpoint.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use paperbourse_core::histogram::Histogram;
use paperbourse_core::ids::Timestamp;

/// The state of a log as its node sees it, and its append latency.
#[derive(Debug)]
pub struct LogMetrics {
    name: String,
    epoch: AtomicU64,
    position: AtomicU64,
    answered_at_seconds: AtomicU64,
    is_halted: AtomicBool,
    append_us: Histogram,
}

impl LogMetrics {
    /// Creates the metrics of the log with this name, before the node has read any of it.
    pub fn new(name: String) -> Self {
        Self {
            name,
            epoch: AtomicU64::new(0),
            position: AtomicU64::new(0),
            answered_at_seconds: AtomicU64::new(0),
            is_halted: AtomicBool::new(false),
            append_us: Histogram::default(),
        }
    }

    /// Returns the log's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the position of the newest record and the newest epoch; `None` until the log has
    /// been read to its end.
    pub fn end(&self) -> Option<(u64, u64)> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        (epoch > 0).then(|| (self.position.load(Ordering::Relaxed), epoch))
    }

    /// Returns when a broker last answered, in seconds since the Unix epoch; 0 before the first
    /// answer.
    pub fn answered_at_seconds(&self) -> u64 {
        self.answered_at_seconds.load(Ordering::Relaxed)
    }

    /// Whether the log is halted: no broker has the next block intact.
    pub fn is_halted(&self) -> bool {
        self.is_halted.load(Ordering::Relaxed)
    }

    /// Returns the histogram of append times, in microseconds.
    pub const fn append_us(&self) -> &Histogram {
        &self.append_us
    }

    /// Records that the log was read up to this record.
    pub fn copied(&self, position: u64) {
        self.position.fetch_max(position, Ordering::Relaxed);
        self.answered();
        self.is_halted.store(false, Ordering::Relaxed);
    }

    /// Records that the log was read to its end, which is at this position and epoch.
    pub fn read(&self, position: u64, epoch: u64) {
        self.copied(position);
        self.epoch.fetch_max(epoch, Ordering::Relaxed);
    }

    fn answered(&self) {
        let now = Timestamp::now().seconds().unsigned_abs();
        self.answered_at_seconds.store(now, Ordering::Relaxed);
    }

    /// Records that a block of this node was appended, and how long that took.
    pub(super) fn appended(&self, position: u64, epoch: u64, elapsed: Duration) {
        self.append_us.record_micros(elapsed);
        self.read(position, epoch);
    }

    /// Records that the log is halted: no broker has the next block intact.
    pub fn halted(&self) {
        self.answered();
        self.is_halted.store(true, Ordering::Relaxed);
    }
}
