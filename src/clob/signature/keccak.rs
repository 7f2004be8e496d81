//! Keccak-256, the hash of Ethereum: SHA-3 with the padding from before its standard.

use tiny_keccak::{Hasher as _, Keccak};

/// Number of bytes of a hash, and of a word of Ethereum's encoding.
const WORD_BYTES: usize = 32;

/// A hash, or one field of a structure.
pub(crate) type Word = [u8; WORD_BYTES];

/// Hashes these parts, one after the other.
pub(crate) fn keccak256(parts: &[&[u8]]) -> Word {
    let mut keccak = Keccak::v256();
    for part in parts {
        keccak.update(part);
    }
    let mut hash = [0; WORD_BYTES];
    keccak.finalize(&mut hash);
    hash
}
