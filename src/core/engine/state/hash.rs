//! A hash of a shard's whole state, updated incrementally.
//!
//! The hash is the wrapping sum of one term for each item in the state. A change subtracts the old
//! term and adds the new one. The hash therefore depends only on the state and not on its history:
//! a state restored from a snapshot must have the same hash.

use std::ops::{AddAssign, SubAssign};

/// The hash of a state, or one term of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Hash)]
pub struct StateHash(u64);

impl StateHash {
    /// Decodes a hash from the journal.
    pub const fn from_u64(value: u64) -> Self {
        Self(value)
    }

    /// Encodes the hash for the journal.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl AddAssign for StateHash {
    #[inline]
    fn add_assign(&mut self, term: Self) {
        self.0 = self.0.wrapping_add(term.0);
    }
}

impl SubAssign for StateHash {
    #[inline]
    fn sub_assign(&mut self, term: Self) {
        self.0 = self.0.wrapping_sub(term.0);
    }
}

/// The kind of item that a term covers. Items of different kinds with equal fields have different
/// terms.
#[derive(Clone, Copy, Debug)]
pub enum TermKind {
    /// An account's money.
    Account = 1,
    /// One position.
    Position = 2,
    /// One order and its names.
    Order = 3,
    /// One key.
    Key = 4,
    /// One market that the shard has used.
    Market = 5,
    /// One comment.
    Comment = 6,
    /// The identity of an account's owner.
    Identity = 7,
    /// The resolution of a market.
    Decision = 13,
    /// The settlement of a position.
    Settlement = 14,
    /// A market that the shard is settling or has settled.
    SettledMarket = 15,
    /// The life of an order: its terms, progress and end.
    OrderState = 16,
    /// An account's number of fills, if it differs from its number of finished orders.
    Fills = 17,
    /// An account's heartbeat.
    Heartbeat = 18,
    /// The start of an account's fill log.
    FillLog = 19,
    /// A fill in an account's log.
    LoggedFill = 20,
    /// The delay of an order.
    Delay = 21,
    /// The resets of an account.
    Resets = 22,
    /// A position that a reset closed.
    ResetPosition = 23,
    /// The suspension of an account.
    Suspension = 24,
    /// The sum of an account's deposits since it was opened or last reset.
    Deposited = 25,
    /// A deposit that an account keeps.
    Deposit = 26,
    /// The tier of an account as set by an operator.
    AccountTier = 27,
    /// An account that was erased.
    Erased = 28,
    /// The wallet to which a key was granted.
    WalletGrant = 29,
    /// A fill that was undone.
    UndoneFill = 30,
}

/// Folds the fields of one item into a term. The function is part of the journal's format.
///
/// Each pair of numbers is multiplied separately, with keys that depend on its position, so that a
/// processor can work on several pairs at a time. The term is the sum of the products, mixed once
/// at the end.
#[derive(Clone, Copy, Debug)]
pub struct Term {
    sum: u64,
    key: u64,
}

/// The fractional part of the golden ratio: an odd number without a pattern in its bits.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

impl Term {
    /// Starts a term.
    #[inline]
    pub const fn new(kind: TermKind) -> Self {
        Self { sum: (kind as u64).wrapping_mul(0xa076_1d64_78bd_642f), key: STEP }
    }

    /// Adds two numbers. Folds both halves of their 128-bit product, so that a small change to
    /// either number affects the whole term.
    #[inline]
    #[must_use]
    pub fn pair(self, one: u64, other: u64) -> Self {
        let left = u128::from(one ^ self.key);
        let right = u128::from(other ^ self.key.rotate_left(29) ^ 0xd6e8_feb8_6659_fd93);
        let [low, high] = split(left * right);
        Self { sum: self.sum.wrapping_add(low ^ high), key: self.key.wrapping_add(STEP) }
    }

    /// Adds a number.
    #[inline]
    #[must_use]
    pub fn number(self, value: u64) -> Self {
        self.pair(value, 0)
    }

    /// Adds two signed numbers.
    #[inline]
    #[must_use]
    pub fn signed_pair(self, one: i64, other: i64) -> Self {
        self.pair(one.cast_unsigned(), other.cast_unsigned())
    }

    /// Adds a signed number.
    #[inline]
    #[must_use]
    pub fn signed(self, value: i64) -> Self {
        self.number(value.cast_unsigned())
    }

    /// Adds a number that may be absent.
    #[inline]
    #[must_use]
    pub fn optional(self, value: Option<i64>) -> Self {
        self.pair(value.is_some().into(), value.unwrap_or(0).cast_unsigned())
    }

    /// Adds a text that may be absent.
    #[must_use]
    pub fn optional_text(self, text: Option<&str>) -> Self {
        match text {
            None => self.number(u64::MAX),
            Some(text) => self.bytes(text.as_bytes()),
        }
    }

    /// Adds bytes of any length.
    #[must_use]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let (whole, rest) = bytes.as_chunks();
        // The length distinguishes texts that differ only in trailing zeros, which pad the last
        // chunk.
        let term = whole.iter().fold(self.number(bytes.len() as u64), Term::sixteen);
        if rest.is_empty() {
            return term;
        }
        let mut words = [0; 16];
        words[..rest.len()].copy_from_slice(rest);
        term.sixteen(&words)
    }

    /// Adds 16 bytes.
    #[inline]
    #[must_use]
    pub fn sixteen(self, bytes: &[u8; 16]) -> Self {
        let [one, other] = split(u128::from_le_bytes(*bytes));
        self.pair(one, other)
    }

    /// Mixes the sum and returns the finished term.
    #[inline]
    pub const fn finish(self) -> StateHash {
        let mixed = (self.sum ^ (self.sum >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
        StateHash(mixed ^ (mixed >> 29))
    }
}

#[inline]
const fn split(product: u128) -> [u64; 2] {
    let bytes = product.to_le_bytes();
    let (low, high) = bytes.split_at(8);
    let (Some(low), Some(high)) = (low.first_chunk::<8>(), high.first_chunk::<8>()) else {
        unreachable!()
    };
    [u64::from_le_bytes(*low), u64::from_le_bytes(*high)]
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn position(id: u64, shares: i64, cost: i64) -> StateHash {
        Term::new(TermKind::Position).number(id).signed(shares).signed(cost).finish()
    }

    #[test]
    fn small_changes_give_distinct_terms() {
        let mut seen = HashSet::new();
        for id in 0..20 {
            for shares in -5..20 {
                for cost in -5..20 {
                    assert!(seen.insert(position(id, shares, cost)), "{id} {shares} {cost}");
                }
            }
        }
    }

    #[test]
    fn the_order_of_changes_does_not_matter() {
        let mut one = StateHash::default();
        one += position(1, 2, 3);
        one += position(2, 2, 3);
        one -= position(1, 2, 3);
        let mut other = StateHash::default();
        other += position(2, 2, 3);
        assert_eq!(one, other);
    }

    /// The function is part of the journal's format, so these numbers must never change.
    #[test]
    fn the_function_is_pinned() {
        assert_eq!(position(1, 2, 3).get(), 16_044_455_732_117_323_091);
        let text = Term::new(TermKind::Comment).bytes(b"hello, world").finish();
        assert_eq!(text.get(), 12_990_090_571_772_465_121);
    }
}
