//! The state of a log as its node sees it, for the metrics.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use paperbourse_core::histogram::Histogram;
use paperbourse_core::ids::Timestamp;

/// The state of a log as its node sees it, and how long its appends take.
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
    /// Metrics of the log with this name, before anything is known of it.
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

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The position of the newest record and the newest epoch; `None` until the log was read to its
    /// end.
    pub fn end(&self) -> Option<(u64, u64)> {
        let epoch = self.epoch.load(Ordering::Relaxed);
        (epoch > 0).then(|| (self.position.load(Ordering::Relaxed), epoch))
    }

    /// When a broker last answered, in seconds since 1970; 0 before the first answer.
    pub fn answered_at_seconds(&self) -> u64 {
        self.answered_at_seconds.load(Ordering::Relaxed)
    }

    /// Whether no broker has the next block intact.
    pub fn is_halted(&self) -> bool {
        self.is_halted.load(Ordering::Relaxed)
    }

    /// Time to append a block, in microseconds.
    pub const fn append_us(&self) -> &Histogram {
        &self.append_us
    }

    /// This record was read.
    pub fn copied(&self, position: u64) {
        self.position.fetch_max(position, Ordering::Relaxed);
        self.answered();
        self.is_halted.store(false, Ordering::Relaxed);
    }

    /// The log was read to its end, which is here.
    pub fn read(&self, position: u64, epoch: u64) {
        self.copied(position);
        self.epoch.fetch_max(epoch, Ordering::Relaxed);
    }

    fn answered(&self) {
        let now = Timestamp::now().seconds().unsigned_abs();
        self.answered_at_seconds.store(now, Ordering::Relaxed);
    }

    /// A block of this node is in the log, after this time.
    pub(super) fn appended(&self, position: u64, epoch: u64, elapsed: Duration) {
        self.append_us.record_micros(elapsed);
        self.read(position, epoch);
    }

    /// No broker has the next block intact.
    pub fn halted(&self) {
        self.answered();
        self.is_halted.store(true, Ordering::Relaxed);
    }
}
