//! The length of the venue's delay on marketable orders, where the venue does not state it.
//!
//! The venue has changed this length several times. Orders are held for the length in effect at the
//! time of the event that is played: the current time on a live venue, or the time at which a
//! recording was made.

use paperbourse_core::ids::Timestamp;

/// Start of each period in seconds since 1970, and the delay in milliseconds. The guide has the
/// same table.
const LENGTHS: [(i64, u32); 5] = [
    (i64::MIN, 500),
    // 2026-02-18
    (1_771_372_800, 0),
    // 2026-06-05
    (1_780_617_600, 250),
    // 2026-08-17, 11:00 UTC
    (1_786_964_400, 50),
    // 2026-09-04, 14:00 UTC
    (1_788_530_400, 150),
];

/// Returns the delay in effect at a time, in milliseconds.
pub fn ms_at(time: Timestamp) -> u32 {
    let seconds = time.nanos().div_euclid(1_000_000_000);
    let newest = LENGTHS.iter().rev().find(|&&(since, _)| since <= seconds);
    newest.expect("the first length has no beginning").1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_length_is_that_of_its_time() {
        for (time, expected_ms) in [
            ("2025-11-14T00:00:00Z", 500),
            ("2026-02-17T23:59:59.999Z", 500),
            ("2026-02-18T00:00:00Z", 0),
            ("2026-06-04T23:59:59Z", 0),
            ("2026-06-05T00:00:00Z", 250),
            ("2026-08-17T10:59:59Z", 250),
            ("2026-08-17T11:00:00Z", 50),
            ("2026-09-04T13:59:59Z", 50),
            ("2026-09-04T14:00:00Z", 150),
            ("2100-01-01T00:00:00Z", 150),
        ] {
            let parsed: jiff::Timestamp = time.parse().unwrap();
            let nanos = i64::try_from(parsed.as_nanosecond()).unwrap();
            assert_eq!(ms_at(Timestamp::from_nanos(nanos)), expected_ms, "{time}");
        }
    }
}
