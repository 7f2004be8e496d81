//! How late a connection's words are, and which of its times cannot be. The venue's clock and ours
//! need not agree: the smallest difference that a connection has shown stands for none. Pure: time
//! comes in, as the time since the start and as the time of day.
//!
//! One time from the future must not make everything after it look late, so a word that is ahead of
//! both clocks by more than [`AHEAD_MAX`] moves nothing. Where ours is slow by that much all words
//! are ahead, and [`AHEAD_RUN`] of them in a row are believed. Each connection begins anew.

use std::time::Duration;

use crate::ids::Timestamp;

/// Two clocks drift apart by no more than one part in so many.
const DRIFT_ONE_IN: u32 = 5_000;

/// A time that is ahead of the venue's clock by more than this cannot be.
pub(crate) const AHEAD_MAX: Duration = Duration::from_secs(2);

/// So many changes in a row that are ahead show that the clock is.
const AHEAD_RUN: u32 = 8;

/// What one connection has shown of the venue's clock.
#[derive(Default, Debug)]
pub(crate) struct Lag {
    /// What the start was by the venue's clock, by the word that was told soonest after it was so,
    /// and when that was told.
    soonest: Option<(Duration, Duration)>,
    /// How many changes in a row were ahead, and the earliest start that they tell.
    ahead: Option<(u32, Duration)>,
}

/// When a word was so, by the venue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Heard {
    /// So long before the soonest word would have been told now.
    Late(Duration),
    /// It cannot be: it is ahead by this.
    Ahead(Duration),
}

impl Lag {
    /// When this was so, which is told now. Changes nothing: it may be as old as it likes.
    pub(crate) fn of(&self, at: Timestamp, now: Duration, time: Timestamp) -> Heard {
        let (start, ours) = (start_of(at, now), start_of(time, now));
        let expected = self.expected(now).unwrap_or(ours);
        // The first words of a connection may have been late themselves.
        let ahead = start.saturating_sub(expected.max(ours));
        if ahead > AHEAD_MAX {
            Heard::Ahead(ahead)
        } else {
            Heard::Late(expected.saturating_sub(start))
        }
    }

    /// The same of a change, which is told as soon as it is so: it moves the estimate.
    pub(crate) fn of_change(&mut self, at: Timestamp, now: Duration, time: Timestamp) -> Heard {
        let (start, told) = (start_of(at, now), self.of(at, now, time));
        match told {
            Heard::Ahead(_) => {
                let (count, earliest) = self.ahead.unwrap_or((0, start));
                let (count, earliest) = (count + 1, earliest.min(start));
                self.ahead = Some((count, earliest));
                if count >= AHEAD_RUN {
                    (self.soonest, self.ahead) = (Some((earliest, now)), None);
                }
            }
            Heard::Late(lag) => {
                self.ahead = None;
                if lag.is_zero() || self.soonest.is_none() {
                    self.soonest = Some((start, now));
                    return Heard::Late(Duration::ZERO);
                }
            }
        }
        told
    }

    /// The venue's time now, less this: nothing that is told later is older, unless it is late.
    pub(crate) fn time_before(&self, lag: Duration, now: Duration, time: Timestamp) -> Timestamp {
        let start = self.expected(now).unwrap_or_else(|| start_of(time, now));
        let venue = (start + now).saturating_sub(lag);
        Timestamp::from_millis(i64::try_from(venue.as_millis()).unwrap_or(i64::MAX))
    }

    /// What the start was by the venue's clock, if a change has told.
    fn expected(&self, now: Duration) -> Option<Duration> {
        let (soonest, told_at) = self.soonest?;
        Some(soonest.saturating_sub(now.saturating_sub(told_at) / DRIFT_ONE_IN))
    }
}

/// What the start was by a clock that shows this now. The later a word is told, the earlier the
/// start seems to have been.
fn start_of(at: Timestamp, now: Duration) -> Duration {
    let millis = u64::try_from(at.millis()).unwrap_or(0);
    Duration::from_millis(millis).saturating_sub(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    const BASE: i64 = 1_800_000_000_000;
    const DAY: i64 = 86_400_000;

    /// What a change told, in milliseconds: how late it is, or how much ahead.
    fn told(lag: &mut Lag, (venue, ours): (i64, u64), our_offset: i64) -> i128 {
        let (at, now) = (Timestamp::from_millis(BASE + venue), Duration::from_millis(ours));
        let time = Timestamp::from_millis(BASE + our_offset + i64::try_from(ours).unwrap());
        match lag.of_change(at, now, time) {
            Heard::Late(lag) => i128::try_from(lag.as_millis()).unwrap(),
            Heard::Ahead(ahead) => -i128::try_from(ahead.as_millis()).unwrap(),
        }
    }

    /// What the venue's clock said and ours, in milliseconds, one after the other; how late each
    /// was, or how much ahead, below 0.
    #[test]
    fn words_are_late_by_the_soonest_one() {
        for (words, lags) in [
            (&[(0, 0), (500, 500)][..], &[0, 0][..]),
            (&[(0, 0), (500, 2_500)], &[0, 1_999]),
            // The first was late itself: from the second on that is known.
            (&[(0, 3_000), (3_000, 3_000), (1_000, 4_000)], &[0, 0, 2_999]),
            // A clock that is behind by hours, all the time, tells no lag.
            (&[(-9_000_000, 0), (-8_996_000, 4_000)], &[0, 0]),
            // Clocks that drift by 100 parts in a million for a day are not a lag.
            (&[(0, 0), (86_391_360, 86_400_000)], &[0, 0]),
            (&[(0, 0), (86_300_000, 86_400_000)], &[0, 82_720]),
            // One from the future makes nothing late, wherever it comes.
            (&[(0, 0), (DAY, 100), (200, 200), (300, 2_300)], &[0, -86_399_900, 0, 1_999]),
            (&[(DAY, 0), (100, 100), (300, 2_300)], &[-DAY, 0, 1_999]),
            (&[(0, 0), (1_999, 0), (3_000, 3_000)], &[0, 0, 1_999 - 1]),
        ] {
            let mut lag = Lag::default();
            let found: Vec<i128> = words.iter().map(|&word| told(&mut lag, word, 0)).collect();
            assert_eq!(
                found,
                lags.iter().map(|&it| i128::from(it)).collect::<Vec<_>>(),
                "{words:?}"
            );
        }
    }

    /// The clock of this machine is an hour slow: after some changes the venue's is known.
    #[test]
    fn a_clock_that_is_ahead_all_the_time_is_believed() {
        const HOUR: i64 = 3_600_000;
        let mut lag = Lag::default();
        for number in 0..i64::from(AHEAD_RUN) {
            let word = (number * 100, u64::try_from(number * 100).unwrap());
            assert_eq!(told(&mut lag, word, -HOUR), i128::from(-HOUR), "{number}");
        }
        assert_eq!(told(&mut lag, (1_000, 1_000), -HOUR), 0);
        assert_eq!(told(&mut lag, (1_000, 4_000), -HOUR), 3_000 - 1);
        assert_eq!(told(&mut lag, (DAY, 4_000), -HOUR), i128::from(4_000 - DAY));
    }

    #[test]
    fn a_few_that_are_ahead_are_forgotten_with_the_next_that_is_not() {
        let mut lag = Lag::default();
        told(&mut lag, (0, 0), 0);
        for number in 1..i64::from(3 * AHEAD_RUN) {
            let is_ahead = number % i64::from(AHEAD_RUN) != 0;
            let venue = number + if is_ahead { DAY } else { 0 };
            let found = told(&mut lag, (venue, u64::try_from(number).unwrap()), 0);
            assert_eq!(found < 0, is_ahead, "{number}");
        }
    }
}
