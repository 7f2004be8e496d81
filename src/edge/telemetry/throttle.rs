//! Limits the rate at which an event is logged.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Lets at most one event per interval through to the log, and counts the others.
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    state: Mutex<ThrottleState>,
}

#[derive(Default, Debug)]
struct ThrottleState {
    passed_at: Option<Instant>,
    unlogged: u64,
}

impl Throttle {
    /// Creates a throttle that lets the first event through.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// Returns `None` to suppress the event, or the number of events suppressed since the last one
    /// that was logged.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let is_due = state.passed_at.is_none_or(|passed_at| now - passed_at >= self.interval);
        if is_due {
            state.passed_at = Some(now);
            return Some(std::mem::take(&mut state.unlogged));
        }
        state.unlogged += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_reports_how_many_events_it_suppressed() {
        let throttle = Throttle::new(Duration::from_secs(1));
        let start = Instant::now();
        let pass = |ms| throttle.pass(start + Duration::from_millis(ms));
        let passed = [0, 1, 999, 1_000, 1_500, 3_000].map(pass);
        assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
    }
}
