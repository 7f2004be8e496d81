//! The sampling of requests to log or trace.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

/// The share of requests that are logged or traced.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Sample {
    /// No request.
    #[default]
    Off,
    /// About one request in this many: those whose id has a CRC-32C divisible by this number. Every
    /// server that handles the same request makes the same choice.
    OneIn(NonZeroU32),
}

/// The error for text that is not a [`Sample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("use off, all, or 1/N for about one request in N")]
pub struct SampleError;

impl Sample {
    /// Returns the sample of about one request in `count`; [`Self::Off`] if `count` is 0.
    pub(super) fn one_in(count: u32) -> Self {
        NonZeroU32::new(count).map_or(Self::Off, Self::OneIn)
    }

    /// Returns the `count` that [`Self::one_in`] turns back into this sample.
    pub(super) fn count(self) -> u32 {
        match self {
            Self::Off => 0,
            Self::OneIn(count) => count.get(),
        }
    }

    /// Whether the sample includes every request, whatever its id.
    #[cfg(feature = "traces")]
    pub(super) fn is_all(self) -> bool {
        self == Self::OneIn(NonZeroU32::MIN)
    }

    /// Whether the sample includes the request with this id.
    pub fn has(self, request_id: &[u8]) -> bool {
        match self {
            Self::Off => false,
            Self::OneIn(count) => crc32c::crc32c(request_id).is_multiple_of(count.get()),
        }
    }
}

impl FromStr for Sample {
    type Err = SampleError;

    fn from_str(text: &str) -> Result<Self, SampleError> {
        match text {
            "off" => Ok(Self::Off),
            "all" => Ok(Self::OneIn(NonZeroU32::MIN)),
            _ => {
                let count = text.strip_prefix("1/").and_then(|count| count.parse().ok());
                count.map(Self::OneIn).ok_or(SampleError)
            }
        }
    }
}

/// The format that [`Sample::from_str`] reads.
impl fmt::Display for Sample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("off"),
            Self::OneIn(NonZeroU32::MIN) => formatter.write_str("all"),
            Self::OneIn(count) => write!(formatter, "1/{count}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sample_is_off_all_or_a_share() {
        let one_in = |count| Sample::OneIn(NonZeroU32::new(count).unwrap());
        for (text, expected) in [
            ("off", Ok(Sample::Off)),
            ("all", Ok(one_in(1))),
            ("1/1", Ok(one_in(1))),
            ("1/100", Ok(one_in(100))),
            ("1/0", Err(SampleError)),
            ("1/", Err(SampleError)),
            ("2/3", Err(SampleError)),
            ("1/-5", Err(SampleError)),
            ("0.01", Err(SampleError)),
            ("on", Err(SampleError)),
            ("", Err(SampleError)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
            if let Ok(sample) = expected {
                assert_eq!(sample.to_string().parse(), Ok(sample), "{text}");
            }
        }
    }

    #[test]
    fn a_sample_has_its_share_and_always_the_same_requests() {
        let sample = |text: &str| text.parse::<Sample>().unwrap();
        let ids: Vec<String> = (0..10_000).map(|number| format!("7f3a-{number}")).collect();
        let sampled = |of: Sample| ids.iter().filter(move |id| of.has(id.as_bytes()));
        assert_eq!(sampled(sample("off")).count(), 0);
        assert_eq!(sampled(sample("all")).count(), ids.len());
        let share = sampled(sample("1/10")).count();
        assert!((800..1_200).contains(&share), "{share}");
        assert!(sampled(sample("1/10")).eq(sampled(sample("1/10"))));
    }
}
