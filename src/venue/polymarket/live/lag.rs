//! How late the venue's words are. Its clock and ours need not agree: the smallest difference that
//! was seen stands for none. Pure: time comes in, as the time since the start.

use std::time::Duration;

use crate::ids::Timestamp;

/// Two clocks drift apart by no more than one part in so many.
const DRIFT_ONE_IN: u32 = 5_000;

/// The smallest difference so far.
#[derive(Default, Debug)]
pub(super) struct Lag {
    /// What the start was by the venue's clock, by the word that was told soonest after it was so,
    /// and when that was told.
    soonest: Option<(Duration, Duration)>,
}

impl Lag {
    /// How much later than the soonest this was told, which was so at `at` by the venue's clock.
    pub(super) fn of(&mut self, at: Timestamp, now: Duration) -> Duration {
        let millis = u64::try_from(at.millis()).unwrap_or(0);
        // The later a word is told, the earlier the start seems to have been.
        let start = Duration::from_millis(millis).saturating_sub(now);
        let Some((soonest, told_at)) = self.soonest else {
            self.soonest = Some((start, now));
            return Duration::ZERO;
        };
        let drift = now.saturating_sub(told_at) / DRIFT_ONE_IN;
        let expected = soonest.saturating_sub(drift);
        if start >= expected {
            self.soonest = Some((start, now));
        }
        expected.saturating_sub(start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What the venue's clock said and ours, in milliseconds, one after the other, and the lags.
    #[test]
    fn words_are_late_by_the_soonest_one() {
        for (told, lags) in [
            (&[(1_000_000, 0), (1_000_500, 500)][..], &[0, 0][..]),
            (&[(1_000_000, 0), (1_000_500, 2_500)], &[0, 1_999]),
            // The first was late itself: from the second on that is known.
            (&[(1_000_000, 3_000), (1_003_000, 3_000), (1_001_000, 4_000)], &[0, 0, 2_999]),
            // A clock that is behind by hours, all the time, tells no lag.
            (&[(1_000, 0), (5_000, 4_000)], &[0, 0]),
            // Clocks that drift by 100 parts in a million for a day are not a lag.
            (&[(0, 0), (86_391_360, 86_400_000)], &[0, 0]),
            (&[(0, 0), (86_300_000, 86_400_000)], &[0, 82_720]),
        ] {
            let mut lag = Lag::default();
            let base = 1_800_000_000_000;
            let found: Vec<u128> = told
                .iter()
                .map(|&(venue, ours)| {
                    let at = Timestamp::from_millis(base + venue);
                    lag.of(at, Duration::from_millis(ours)).as_millis()
                })
                .collect();
            assert_eq!(found, lags, "{told:?}");
        }
    }
}
