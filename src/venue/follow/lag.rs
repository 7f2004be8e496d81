//! Estimates the venue's clock for one connection, to judge how late each message is and which
//! timestamps are impossible. The two clocks need not agree: the message with the smallest delay on
//! a connection is taken to have none. Pure: callers pass the time in.
//!
//! A clock offset is the time that the venue's clock showed when we started: a timestamp minus the
//! time elapsed since the start. The longer a message was delayed, the smaller its offset, so the
//! largest offset is the best estimate.
//!
//! A single timestamp from the future must not make every later message look late, so one that is
//! more than [`AHEAD_MAX`] ahead of both clocks does not move the estimate. If our clock is slow by
//! that much, every message is ahead; after [`AHEAD_RUN`] of them in a row, they are believed. Each
//! connection starts with no estimate.

use std::time::Duration;

use paperbourse_core::ids::Timestamp;

/// Maximum drift between the clocks: one part in this many.
const DRIFT_ONE_IN: u32 = 5_000;

/// A timestamp further ahead of the venue's clock than this is impossible.
pub(crate) const AHEAD_MAX: Duration = Duration::from_secs(2);

/// After this many consecutive changes with timestamps from the future, the venue's clock is
/// believed to be ahead.
const AHEAD_RUN: u32 = 8;

/// An estimate of the venue's clock from one connection.
#[derive(Default, Debug)]
pub(crate) struct Lag {
    /// The offset of the change with the smallest delay, and the time since the start when that
    /// change arrived.
    best: Option<(Duration, Duration)>,
    /// Number of consecutive changes with timestamps from the future, and the smallest of their
    /// offsets.
    ahead: Option<(u32, Duration)>,
}

/// The result of comparing a timestamp with the estimated clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Skew {
    /// The delay in excess of that of the fastest message.
    Late(Duration),
    /// The timestamp is impossible: this far in the future.
    Ahead(Duration),
}

impl Lag {
    /// Judges a timestamp received at `now`, as time since the start, or at `time` by the wall
    /// clock. Does not update the estimate, since the timestamp may be of any age.
    pub(crate) fn measure(&self, at: Timestamp, now: Duration, time: Timestamp) -> Skew {
        let (offset, ours) = (offset_of(at, now), offset_of(time, now));
        let expected = self.expected(now).unwrap_or(ours);
        // The first messages of a connection may have been late themselves, so our clock counts
        // too.
        let ahead = offset.saturating_sub(expected.max(ours));
        if ahead > AHEAD_MAX {
            Skew::Ahead(ahead)
        } else {
            Skew::Late(expected.saturating_sub(offset))
        }
    }

    /// Judges the timestamp of a change and updates the estimate, since venues send a change as
    /// soon as it happens.
    pub(crate) fn observe(&mut self, at: Timestamp, now: Duration, time: Timestamp) -> Skew {
        let (offset, skew) = (offset_of(at, now), self.measure(at, now, time));
        match skew {
            Skew::Ahead(_) => {
                let (count, smallest) = self.ahead.unwrap_or((0, offset));
                let (count, smallest) = (count + 1, smallest.min(offset));
                self.ahead = Some((count, smallest));
                if count >= AHEAD_RUN {
                    (self.best, self.ahead) = (Some((smallest, now)), None);
                }
            }
            Skew::Late(lag) => {
                self.ahead = None;
                if lag.is_zero() || self.best.is_none() {
                    self.best = Some((offset, now));
                    return Skew::Late(Duration::ZERO);
                }
            }
        }
        skew
    }

    /// Returns the venue's current time minus `lag`. Anything that arrives from now on with an
    /// older timestamp is late by more than `lag`.
    pub(crate) fn time_before(&self, lag: Duration, now: Duration, time: Timestamp) -> Timestamp {
        let offset = self.expected(now).unwrap_or_else(|| offset_of(time, now));
        let venue = (offset + now).saturating_sub(lag);
        Timestamp::from_millis(i64::try_from(venue.as_millis()).unwrap_or(i64::MAX))
    }

    /// Returns the estimated offset, less the maximum drift since it was measured; `None` before
    /// the first change.
    fn expected(&self, now: Duration) -> Option<Duration> {
        let (offset, measured_at) = self.best?;
        Some(offset.saturating_sub(now.saturating_sub(measured_at) / DRIFT_ONE_IN))
    }
}

/// Returns the offset of a clock that shows `at` at `now`.
fn offset_of(at: Timestamp, now: Duration) -> Duration {
    let millis = u64::try_from(at.millis()).unwrap_or(0);
    Duration::from_millis(millis).saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: i64 = 1_800_000_000_000;
    const DAY: i64 = 86_400_000;

    /// Returns how late a change is, in milliseconds; negative if it is ahead.
    fn observe(lag: &mut Lag, (venue, ours): (i64, u64), our_offset: i64) -> i128 {
        let (at, now) = (Timestamp::from_millis(BASE + venue), Duration::from_millis(ours));
        let time = Timestamp::from_millis(BASE + our_offset + i64::try_from(ours).unwrap());
        match lag.observe(at, now, time) {
            Skew::Late(lag) => i128::try_from(lag.as_millis()).unwrap(),
            Skew::Ahead(ahead) => -i128::try_from(ahead.as_millis()).unwrap(),
        }
    }

    /// Timestamps by the venue's clock and ours, in milliseconds, and the resulting lags; a
    /// negative lag is ahead.
    #[test]
    fn lag_is_relative_to_the_message_with_the_smallest_delay() {
        for (messages, lags) in [
            (&[(0, 0), (500, 500)][..], &[0, 0][..]),
            (&[(0, 0), (500, 2_500)], &[0, 1_999]),
            // The second message shows that the first was late.
            (&[(0, 3_000), (3_000, 3_000), (1_000, 4_000)], &[0, 0, 2_999]),
            // A clock that is always hours behind does not count as lag.
            (&[(-9_000_000, 0), (-8_996_000, 4_000)], &[0, 0]),
            // A drift of 100 parts per million over a day does not count as lag.
            (&[(0, 0), (86_391_360, 86_400_000)], &[0, 0]),
            (&[(0, 0), (86_300_000, 86_400_000)], &[0, 82_720]),
            // A timestamp from the future makes no other message late, whether it arrives first or
            // later.
            (&[(0, 0), (DAY, 100), (200, 200), (300, 2_300)], &[0, -86_399_900, 0, 1_999]),
            (&[(DAY, 0), (100, 100), (300, 2_300)], &[-DAY, 0, 1_999]),
            (&[(0, 0), (1_999, 0), (3_000, 3_000)], &[0, 0, 1_999 - 1]),
        ] {
            let mut lag = Lag::default();
            let found: Vec<i128> =
                messages.iter().map(|&message| observe(&mut lag, message, 0)).collect();
            assert_eq!(
                found,
                lags.iter().map(|&lag| i128::from(lag)).collect::<Vec<_>>(),
                "{messages:?}"
            );
        }
    }

    /// Our clock is an hour slow.
    #[test]
    fn a_clock_that_stays_ahead_is_believed() {
        const HOUR: i64 = 3_600_000;
        let mut lag = Lag::default();
        for number in 0..i64::from(AHEAD_RUN) {
            let message = (number * 100, u64::try_from(number * 100).unwrap());
            assert_eq!(observe(&mut lag, message, -HOUR), i128::from(-HOUR), "{number}");
        }
        assert_eq!(observe(&mut lag, (1_000, 1_000), -HOUR), 0);
        assert_eq!(observe(&mut lag, (1_000, 4_000), -HOUR), 3_000 - 1);
        assert_eq!(observe(&mut lag, (DAY, 4_000), -HOUR), i128::from(4_000 - DAY));
    }

    #[test]
    fn a_message_on_time_ends_a_run_of_messages_ahead() {
        let mut lag = Lag::default();
        observe(&mut lag, (0, 0), 0);
        for number in 1..i64::from(3 * AHEAD_RUN) {
            let is_ahead = number % i64::from(AHEAD_RUN) != 0;
            let venue = number + if is_ahead { DAY } else { 0 };
            let found = observe(&mut lag, (venue, u64::try_from(number).unwrap()), 0);
            assert_eq!(found < 0, is_ahead, "{number}");
        }
    }
}
