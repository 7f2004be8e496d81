//! How fast a snapshot is made: in short slices, with pauses between them, so that the threads that
//! serve requests keep the processor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// A slice of work. Shorter than what a thread that waits for the processor would be given anyway.
const SLICE: Duration = Duration::from_millis(2);

/// No pause is longer, so that a machine that stood still does not hold up the next snapshot.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The work was stopped before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// Called often by work in the background; may pause it or stop it.
pub(crate) trait Pace {
    /// Between two short pieces of work.
    fn step(&mut self) -> Result<(), Stopped>;
}

/// Tells the thread in the background to end.
#[derive(Default)]
pub(super) struct Stop {
    is_set: Mutex<bool>,
    changed: Condvar,
}

impl Stop {
    pub(super) fn set(&self) {
        *self.is_set.lock() = true;
        self.changed.notify_all();
    }

    /// Waits for so long, or until it is set. Whether it is set.
    pub(super) fn wait(&self, duration: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, duration);
        }
        *is_set
    }
}

/// Uses a share of one processor.
pub(super) struct SharedProcessor {
    stop: Arc<Stop>,
    /// In percent, 1 to 100.
    percent: u32,
    began: Instant,
}

impl SharedProcessor {
    pub(super) fn new(percent: u32, stop: Arc<Stop>) -> Self {
        assert!((1..=100).contains(&percent), "a share of one processor");
        Self { stop, percent, began: Instant::now() }
    }
}

impl Pace for SharedProcessor {
    fn step(&mut self) -> Result<(), Stopped> {
        let worked = self.began.elapsed();
        if worked < SLICE {
            return Ok(());
        }
        let pause = (worked * (100 - self.percent) / self.percent).min(PAUSE_MAX);
        if self.stop.wait(pause) {
            return Err(Stopped);
        }
        self.began = Instant::now();
        Ok(())
    }
}
