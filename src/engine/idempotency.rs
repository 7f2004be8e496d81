//! The names of orders and what makes two requests the same order.

use std::fmt;

use aws_lc_rs::digest::{Context, SHA256};

/// The hash of a name that a caller gave to an order: 128 bits of SHA-256, so that no caller can
/// find two names that collide. Names of different kinds never meet: each is hashed with its kind.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameHash(u128);

impl NameHash {
    /// A name given with one order, in its header or in its body: one namespace.
    pub fn of_order(name: &str) -> Self {
        Self::of(b'o', name.as_bytes(), &[])
    }

    /// The name of the entry at `index` of a batch that has a name.
    pub fn of_batch_entry(batch_name: &str, index: u32) -> Self {
        Self::of(b'b', batch_name.as_bytes(), &index.to_le_bytes())
    }

    fn of(kind: u8, name: &[u8], suffix: &[u8]) -> Self {
        let mut context = Context::new(&SHA256);
        context.update(&[kind]);
        // Fixed-length suffix last: no name and suffix can read as another pair.
        context.update(name);
        context.update(suffix);
        Self(first_half(context))
    }

    /// The hash as the journal stores it.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The journal's form.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Debug for NameHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "NameHash({:032x})", self.0)
    }
}

/// The hash of the trading fields of an order as they were sent, never of its names and never of
/// anything that was looked up.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(u128);

impl Fingerprint {
    /// The fingerprint of an order with these fields, each behind its tag. A field that was not
    /// sent is left out: fields that later kinds of orders add leave the fingerprints of old orders
    /// as they are.
    pub(super) fn of_fields<'a>(fields: impl IntoIterator<Item = (u8, &'a [u8])>) -> Self {
        let mut context = Context::new(&SHA256);
        for (tag, value) in fields {
            let length = u32::try_from(value.len()).expect("a field of a bounded body");
            context.update(&[tag]);
            context.update(&length.to_le_bytes());
            context.update(value);
        }
        Self(first_half(context))
    }

    /// The fingerprint as the journal stores it.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(u128::from_le_bytes(bytes))
    }

    /// The journal's form.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Fingerprint({:032x})", self.0)
    }
}

fn first_half(context: Context) -> u128 {
    let digest = context.finish();
    let half = digest.as_ref().first_chunk::<16>().expect("SHA-256 has 32 bytes");
    u128::from_le_bytes(*half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_different_kinds_never_meet() {
        let plain = NameHash::of_order("a");
        assert_eq!(plain, NameHash::of_order("a"));
        assert_ne!(plain, NameHash::of_order("b"));
        assert_ne!(NameHash::of_batch_entry("a", 0), NameHash::of_batch_entry("a", 1));
        assert_ne!(NameHash::of_batch_entry("a", 0), NameHash::of_order("a\0\0\0\0"));
        assert_eq!(NameHash::from_bytes(plain.to_bytes()), plain);
    }
}
