//! Digests of structures by [EIP-712]: what a wallet signs.
//!
//! ```text
//! digest    = keccak256(0x19 ‖ 0x01 ‖ hash(domain) ‖ hash(structure))
//! hash(x)   = keccak256(keccak256(type of x) ‖ field ‖ field ‖ …), each field a word of 32 bytes
//! ```
//!
//! [EIP-712]: https://eips.ethereum.org/EIPS/eip-712

use super::keccak::{Word, keccak256};

const DOMAIN_TYPE: &str = "EIP712Domain(string name,string version,uint256 chainId)";

/// What a signature is for, besides its text.
pub(super) struct Domain {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) chain_id: u64,
}

impl Domain {
    /// The digest of a structure in this domain.
    pub(super) fn digest(&self, structure_hash: &Word) -> Word {
        let fields =
            [string(self.name.as_bytes()), string(self.version.as_bytes()), uint(self.chain_id)];
        digest(&hash_structure(DOMAIN_TYPE, &fields), structure_hash)
    }
}

/// The digest of a structure in the domain with this hash.
pub(crate) fn digest(domain_hash: &Word, structure_hash: &Word) -> Word {
    keccak256(&[b"\x19\x01", domain_hash, structure_hash])
}

/// The hash of a structure without nested ones.
pub(super) fn hash_structure(type_text: &str, fields: &[Word]) -> Word {
    hash_fields(&string(type_text.as_bytes()), fields)
}

/// The hash of a structure whose type has this hash.
pub(crate) fn hash_fields(type_hash: &Word, fields: &[Word]) -> Word {
    keccak256(&[type_hash, fields.as_flattened()])
}

/// The field of a text.
pub(crate) fn string(text: &[u8]) -> Word {
    keccak256(&[text])
}

/// The field of a number without a sign.
pub(crate) fn uint(number: u64) -> Word {
    let mut word = Word::default();
    *word.last_chunk_mut().expect("a word is longer than a number") = number.to_be_bytes();
    word
}
