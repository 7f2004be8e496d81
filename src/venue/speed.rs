//! The speed at which a tape is played.

use std::str::FromStr;
use std::time::Duration;

use paperbourse_core::ids::Timestamp;
use paperbourse_core::money::{MICROS_PER_UNIT, Rounding, micros_from_text};

/// A playback speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Speed {
    /// Plays everything at once, before the first reader, so that only the final state is visible.
    Max,
    /// Plays this many times as fast as the events were recorded.
    Times(Ratio),
}

/// A positive factor, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ratio {
    micros: i64,
}

/// The text is not a speed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("expected `max` or a number above 0 of at most 6 decimals, such as 1 or 0.5")]
pub struct SpeedError;

impl Speed {
    /// The speed of the recording.
    pub const REAL_TIME: Self = Self::Times(Ratio { micros: MICROS_PER_UNIT });

    /// Returns how fast the venue's time advances once there are readers, in millionths of real
    /// time; 0 if it does not advance.
    pub fn micros(self) -> u64 {
        match self {
            Self::Max => 0,
            Self::Times(ratio) => ratio.micros(),
        }
    }
}

impl FromStr for Speed {
    type Err = SpeedError;

    fn from_str(text: &str) -> Result<Self, SpeedError> {
        if text == "max" {
            return Ok(Self::Max);
        }
        match micros_from_text(text, Rounding::Exact) {
            Ok(micros) if micros > 0 => Ok(Self::Times(Ratio { micros })),
            _ => Err(SpeedError),
        }
    }
}

impl Ratio {
    /// Returns the factor in millionths, above 0.
    pub fn micros(self) -> u64 {
        self.micros.unsigned_abs()
    }

    /// Returns the time from the start of playback until an event is due; 0 for events before the
    /// start of the recording.
    pub fn delay(self, start: Timestamp, at: Timestamp) -> Duration {
        let recorded = i128::from(at.nanos()) - i128::from(start.nanos());
        let played = recorded.max(0) * i128::from(MICROS_PER_UNIT) / i128::from(self.micros);
        Duration::from_nanos(u64::try_from(played).unwrap_or(u64::MAX))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_speed_is_max_or_a_positive_number() {
        let seconds = |text: &str| match text.parse() {
            Ok(Speed::Times(ratio)) => {
                Some(ratio.delay(Timestamp::from_seconds(10), Timestamp::from_seconds(70)))
            }
            _ => None,
        };
        for (text, expected) in [
            ("1", Some(Duration::from_mins(1))),
            ("2.5", Some(Duration::from_secs(24))),
            ("0.5", Some(Duration::from_mins(2))),
            ("1e3", Some(Duration::from_millis(60))),
            ("0", None),
            ("-1", None),
            ("0.0000001", None),
            ("fast", None),
            ("", None),
            ("max", None),
        ] {
            assert_eq!(seconds(text), expected, "{text}");
        }
        assert_eq!("max".parse(), Ok(Speed::Max));
        assert_eq!("MAX".parse::<Speed>(), Err(SpeedError));
    }

    #[test]
    fn an_event_before_the_start_is_due_at_once() {
        let Ok(Speed::Times(ratio)) = "1".parse() else { panic!("a number is a speed") };
        assert_eq!(ratio.delay(Timestamp::from_seconds(2), Timestamp::EPOCH), Duration::ZERO);
        let (first, last) = (Timestamp::from_nanos(i64::MIN), Timestamp::from_nanos(i64::MAX));
        assert_eq!(ratio.delay(first, last), Duration::from_nanos(u64::MAX));
    }
}
