//! The times of signed requests, in seconds since 1970.

use crate::text;

/// By how many seconds the time of a signed request may lie behind the server's clock.
///
/// The venue publishes no limits. Its users are refused about a minute after they have signed, and
/// with clocks that are a few seconds ahead.
pub const BEHIND_SECONDS_MAX: i64 = 60;

/// By how many seconds the time of a signed request may lie ahead of the server's clock.
pub const AHEAD_SECONDS_MAX: i64 = 30;

/// Parses the `POLY_TIMESTAMP` header: decimal digits alone, up to the largest `i64`.
pub fn parse(text: &[u8]) -> Option<i64> {
    text::decimal(text)
}

/// Whether a request of this time may still be answered at the time `now_s`, in seconds.
pub fn is_current(timestamp_s: i64, now_s: i64) -> bool {
    let age_s = now_s.saturating_sub(timestamp_s);
    (-AHEAD_SECONDS_MAX..=BEHIND_SECONDS_MAX).contains(&age_s)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timestamp_is_digits_alone() {
        let rows: [(&[u8], Option<i64>); 10] = [
            (b"1800000000", Some(1_800_000_000)),
            (b"0", Some(0)),
            (b"9223372036854775807", Some(i64::MAX)),
            (b"9223372036854775808", None),
            (b"", None),
            (b"-1", None),
            (b"+1", None),
            (b" 1", None),
            (b"1.5", None),
            ("\u{0661}".as_bytes(), None),
        ];
        for (text, expected) in rows {
            assert_eq!(parse(text), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn a_request_is_current_for_a_minute_and_half_a_minute_early() {
        let rows = [
            (1_000, 1_000, true),
            (1_000, 1_060, true),
            (1_000, 1_061, false),
            (1_030, 1_000, true),
            (1_031, 1_000, false),
            (i64::MAX, 0, false),
            (i64::MAX, i64::MIN, false),
            (0, i64::MAX, false),
        ];
        for (timestamp_s, now_s, expected) in rows {
            assert_eq!(is_current(timestamp_s, now_s), expected, "{timestamp_s} at {now_s}");
        }
    }
}
