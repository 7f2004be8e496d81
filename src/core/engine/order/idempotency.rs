//! Idempotency: the names of orders, and the fingerprints that recognise repeated requests.

use std::fmt;

use aws_lc_rs::digest::{SHA256, digest};

use crate::market::book::Side;
use crate::money::{Price, Shares};

/// The maximum number of names of an order: one from a header and one from the body, or two derived
/// names for an entry of a named batch.
pub const NAMES_PER_ORDER_MAX: usize = 2;

/// An order as a request describes it.
pub trait RequestedOrder {
    /// Returns the market's condition id.
    fn market_id(&self) -> &str;

    /// Returns the fingerprint of the trading fields as sent, ignoring the case of the outcome. Two
    /// requests with the same fingerprint are for the same order.
    fn fingerprint(&self) -> Fingerprint;
}

/// The hash of a caller's name for an order: 128 bits of SHA-256, so that finding a collision is
/// infeasible. The kind of name is hashed too, so names of different kinds never collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash(u128);

impl NameHash {
    /// Hashes the name of a single order. Names from the header and from the body share one
    /// namespace.
    pub fn of_order(name: &str) -> Self {
        Self::of(b'o', name.as_bytes(), &[])
    }

    /// Names an entry of a named batch by its content. `twin_count` is the number of equal entries
    /// before it.
    pub fn of_batch_order(batch_name: &str, fingerprint: Fingerprint, twin_count: u32) -> Self {
        let mut suffix = [0; 20];
        suffix[..16].copy_from_slice(&fingerprint.to_bytes());
        suffix[16..].copy_from_slice(&twin_count.to_le_bytes());
        Self::of(b'e', batch_name.as_bytes(), &suffix)
    }

    /// Names an entry of a named batch by its index.
    pub fn of_batch_entry(batch_name: &str, index: u32) -> Self {
        Self::of(b'b', batch_name.as_bytes(), &index.to_le_bytes())
    }

    fn of(kind: u8, name: &[u8], suffix: &[u8]) -> Self {
        let mut message = Message::new();
        message.add(&[kind]);
        // The suffix has a fixed length for each kind, so different pairs never give equal bytes.
        message.add(name);
        message.add(suffix);
        Self(message.hash())
    }

    /// Decodes a hash from the journal.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// Encodes the hash for the journal.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Debug for NameHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NameHash({:032x})", self.0)
    }
}

/// The hash of an order's trading fields as sent. It covers neither the order's names nor any data
/// that the server looks up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// Hashes an order with these fields. `others` are further fields, each with its own tag.
    /// Absent fields are left out, so fields added in the future do not change the fingerprints of
    /// existing orders.
    #[inline]
    pub(in crate::engine) fn of_order(
        (market_id, outcome, side): (&str, &str, Side),
        quantity: Option<Shares>,
        (expected_price, max_slippage_bps): (Option<Price>, Option<u16>),
        others: &[(u8, [u8; 8])],
    ) -> Self {
        let mut message = Message::new();
        message.add_field(b'm', market_id.as_bytes());
        if outcome.is_ascii() {
            message.add_field(b'o', outcome.as_bytes()).make_ascii_lowercase();
        } else {
            message.add_field(b'o', outcome.to_lowercase().as_bytes());
        }
        message.add_field(b's', &[u8::from(side == Side::Sell)]);
        if let Some(quantity) = quantity {
            message.add_field(b'q', &quantity.micros().to_le_bytes());
        }
        if let Some(price) = expected_price {
            message.add_field(b'e', &price.micros().to_le_bytes());
        }
        if let Some(bps) = max_slippage_bps {
            message.add_field(b'x', &bps.to_le_bytes());
        }
        for (tag, value) in others {
            message.add_field(*tag, value);
        }
        Self(message.hash())
    }

    /// Decodes a fingerprint from the journal.
    #[inline]
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// Encodes the hash for the journal.
    #[inline]
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fingerprint({:032x})", self.0)
    }
}

/// The bytes to hash, in one buffer. Incremental hashing costs an allocation and takes longer than
/// hashing a short message at once.
struct Message {
    /// The message, while it is at most `SHORT_BYTES_MAX` long.
    short: [u8; Self::SHORT_BYTES_MAX],
    length: usize,
    /// The whole message, once it is longer than `SHORT_BYTES_MAX`.
    long: Vec<u8>,
}

impl Message {
    const SHORT_BYTES_MAX: usize = 256;

    const fn new() -> Self {
        Self { short: [0; Self::SHORT_BYTES_MAX], length: 0, long: Vec::new() }
    }

    /// Appends these bytes and returns the copy, which the caller may modify.
    #[inline]
    fn add(&mut self, bytes: &[u8]) -> &mut [u8] {
        let start = self.length;
        self.length += bytes.len();
        if self.length > Self::SHORT_BYTES_MAX {
            return self.add_to_long(start, bytes);
        }
        let place = &mut self.short[start..self.length];
        place.copy_from_slice(bytes);
        place
    }

    #[cold]
    fn add_to_long(&mut self, start: usize, bytes: &[u8]) -> &mut [u8] {
        if self.long.is_empty() {
            self.long.extend_from_slice(&self.short[..start]);
        }
        self.long.extend_from_slice(bytes);
        &mut self.long[start..]
    }

    /// Appends a field with its tag and its length, and returns the copy of its value.
    #[inline]
    fn add_field(&mut self, tag: u8, value: &[u8]) -> &mut [u8] {
        let length = u32::try_from(value.len()).expect("a field of a bounded body");
        let [a, b, c, d] = length.to_le_bytes();
        self.add(&[tag, a, b, c, d]);
        self.add(value)
    }

    fn hash(&self) -> u128 {
        let bytes = if self.long.is_empty() { &self.short[..self.length] } else { &self.long[..] };
        let digest = digest(&SHA256, bytes);
        let half = digest.as_ref().first_chunk::<16>().expect("SHA-256 has 32 bytes");
        u128::from_le_bytes(*half)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_kinds_never_collide() {
        let plain = NameHash::of_order("a");
        assert_eq!(plain, NameHash::of_order("a"));
        assert_ne!(plain, NameHash::of_order("b"));
        assert_ne!(NameHash::of_batch_entry("a", 0), NameHash::of_batch_entry("a", 1));
        assert_ne!(NameHash::of_batch_entry("a", 0), NameHash::of_order("a\0\0\0\0"));
        assert_eq!(NameHash::from_bytes(plain.to_bytes()), plain);
    }

    #[test]
    fn a_message_of_any_length_is_hashed_whole() {
        for length in [0, 1, 255, 256, 257, 300, 1_000] {
            for first in [0, 1, 200, 256, 257] {
                let bytes = vec![b'x'; length];
                let (first, rest) = bytes.split_at(length.min(first));
                let mut message = Message::new();
                assert_eq!(message.add(first), first);
                assert_eq!(message.add(rest), rest);
                message.add(b"END").make_ascii_lowercase();
                let whole = digest(&SHA256, &[&bytes, &b"end"[..]].concat());
                assert_eq!(whole.as_ref()[..16], message.hash().to_le_bytes(), "{length}");
            }
        }
    }

    /// Journals store both kinds of hash, so the functions must never change.
    #[test]
    fn the_hashes_are_pinned() {
        let long = "x".repeat(300);
        let [short, named] = [NameHash::of_order("a"), NameHash::of_order(&long)];
        assert_eq!(short.0, 0xba23_8817_fccf_1d9a_3b9b_8784_b50f_7b9f);
        assert_eq!(named.0, 0xc58c_4f7c_067c_1907_a381_ab17_07f0_0089);
        let of_batch = NameHash::of_batch_entry("a", 1);
        assert_eq!(of_batch.0, 0x780d_da20_6e52_c5b4_1fdb_8ec3_35f9_397b);
        let of_order = NameHash::of_batch_order("a", Fingerprint(7), 1);
        assert_eq!(of_order.0, 0xabe6_b70a_ddbf_6722_1517_2fd3_f054_c6e0);
        let fingerprint = Fingerprint::of_order(
            (&long, "Yes", Side::Sell),
            Some(Shares::from_micros(5_000_000)),
            (Some(Price::from_micros(530_000)), Some(250)),
            &[(b'k', 1_i64.to_le_bytes())],
        );
        assert_eq!(fingerprint.0, 0x0459_15a1_9974_7e62_be91_14e7_a27b_e245);
    }
}
