//! Limits the speed of a fold: it works in short slices with pauses between them, so that the
//! threads that serve requests get the processor.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

/// Length of a slice of work: shorter than the scheduler's own time slice.
const SLICE: Duration = Duration::from_millis(2);

/// Longest pause. Without a limit, time during which the machine was suspended would delay the next
/// snapshot.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Error for work that was stopped early.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("stopped")]
pub struct Stopped;

/// Called often by background work; may pause or stop it.
pub trait Pace {
    /// Pauses if necessary. Call this between two short pieces of work.
    fn step(&mut self) -> Result<(), Stopped>;
}

/// Signals the background thread to stop.
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

    /// Waits for `duration`, or until the signal is set. Returns whether it is set.
    pub(super) fn wait(&self, duration: Duration) -> bool {
        let mut is_set = self.is_set.lock();
        if !*is_set {
            self.changed.wait_for(&mut is_set, duration);
        }
        *is_set
    }
}

/// Limits the work to a share of one processor.
pub(super) struct SharedProcessor {
    stop: Arc<Stop>,
    /// Share of the processor in percent, 1 to 100.
    percent: u32,
    began: Instant,
}

impl SharedProcessor {
    pub(super) fn new(percent: u32, stop: Arc<Stop>) -> Self {
        assert!((1..=100).contains(&percent), "the share must be 1 to 100 percent");
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
