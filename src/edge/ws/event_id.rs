//! The ids of events in a price stream: how far a reader has got, so that it can resume there.
//! Pure.
//!
//! ```text
//! 3f09c1d24be2a677-1c5
//! ```
//!
//! The changes of all markets are published in numbered lists. A reader that has the frames of all
//! lists up to a number lacks only the markets on later lists. So a single number covers any number
//! of markets, but does not say which markets these are. The first half of the id, a hash of the
//! process and of the reader's markets, shows whether the number applies.

use std::fmt;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

/// The maximum length of an event id's text, in bytes.
pub const EVENT_ID_BYTES_MAX: usize = 33;

/// A reader's progress in the stream of its markets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EventId {
    /// A hash of the process's epoch and of the reader's markets.
    pub scope: u64,
    /// The number of the newest list of changes whose frames the reader has all received.
    pub round: u64,
}

impl EventId {
    /// Creates the id of this round for a reader of these markets, which must be sorted, in the
    /// process with this epoch.
    pub fn of(epoch: u128, condition_ids: &[&str], round: u64) -> Self {
        let mut hasher = DefaultHasher::new();
        epoch.hash(&mut hasher);
        condition_ids.hash(&mut hasher);
        Self { scope: hasher.finish(), round }
    }

    /// Parses the output of [`Display`](fmt::Display). `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (scope, round) = text.split_once('-').filter(|_| text.len() <= EVENT_ID_BYTES_MAX)?;
        let hexadecimal = |digits: &str| {
            let is_valid = digits.bytes().all(|byte| byte.is_ascii_hexdigit());
            u64::from_str_radix(digits, 16).ok().filter(|_| is_valid)
        };
        Some(Self { scope: hexadecimal(scope)?, round: hexadecimal(round)? })
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:016x}-{:x}", self.scope, self.round)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_id_is_read_back() {
        for round in [0, 1, u64::MAX] {
            let id = EventId::of(7, &["a", "b"], round);
            let text = id.to_string();
            assert!(text.len() <= EVENT_ID_BYTES_MAX);
            assert_eq!(EventId::parse(&text), Some(id));
        }
    }

    #[test]
    fn an_event_id_applies_to_one_process_and_its_markets() {
        let scope = |epoch, ids: &[&str]| EventId::of(epoch, ids, 1).scope;
        let known = scope(7, &["a", "b"]);
        assert_eq!(scope(7, &["a", "b"]), known);
        for other in [scope(8, &["a", "b"]), scope(7, &["a"]), scope(7, &["ab"]), scope(7, &[])] {
            assert_ne!(other, known);
        }
    }

    #[test]
    fn other_texts_are_no_event_ids() {
        let long = format!("{}-1", "0".repeat(32));
        for text in
            ["", "-", "1-", "-1", "1", "+1-+1", "1--1", "x-1", "1-x", "1- 1", "1-1-1", &long]
        {
            assert_eq!(EventId::parse(text), None, "{text}");
        }
        let too_large = format!("1-1{:016x}", 0);
        assert_eq!(EventId::parse(&too_large), None);
    }
}
