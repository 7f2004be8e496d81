//! Addresses of accounts and contracts.

use std::fmt;

use super::keccak::{Word, keccak256};
use crate::text;

/// Number of bytes of an address.
pub const ADDRESS_BYTES: usize = 20;

/// An address of an Ethereum chain.
///
/// `Display` writes `0x` and 40 hexadecimal digits in lower case.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address([u8; ADDRESS_BYTES]);

/// The error for text that is not an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("an address is `0x` and 40 hexadecimal digits")]
pub struct AddressError;

impl Address {
    /// Parses `0x` and 40 hexadecimal digits. Their case is not checked: clients send addresses in
    /// lower case and with a checksum.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Self, AddressError> {
        text::bytes_from_hex(text.as_ref()).map(Self).ok_or(AddressError)
    }

    /// Restores an address from its bytes, most significant first.
    pub const fn from_bytes(bytes: [u8; ADDRESS_BYTES]) -> Self {
        Self(bytes)
    }

    /// An address that is part of the program.
    pub(super) const fn literal(text: &str) -> Self {
        Self(text::bytes_from_hex(text.as_bytes()).expect("a literal is an address"))
    }

    /// The last bytes of a hash.
    pub(crate) fn from_hash(hash: &Word) -> Self {
        Self(*hash.last_chunk().expect("a hash is longer than an address"))
    }

    /// The bytes of the address, most significant first.
    pub const fn bytes(&self) -> &[u8; ADDRESS_BYTES] {
        &self.0
    }

    /// The address as 32 bytes: twelve zeros first.
    pub(crate) fn word(&self) -> Word {
        let mut word = Word::default();
        *word.last_chunk_mut().expect("a word is longer than an address") = self.0;
        word
    }

    /// Formats the address with the checksum of [EIP-55]: a letter is upper-case if the digit in
    /// its place in the hash of the lower-case text is 8 or more.
    ///
    /// [EIP-55]: https://eips.ethereum.org/EIPS/eip-55
    pub fn checksummed(&self) -> String {
        let digits = text::hex(&self.0);
        let hash = text::hex(&keccak256(&[digits.as_bytes()]));
        let cased = digits
            .chars()
            .zip(hash.chars())
            .map(|(digit, hash)| if hash >= '8' { digit.to_ascii_uppercase() } else { digit });
        "0x".chars().chain(cased).collect()
    }
}

impl fmt::Display for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "0x{}", text::hex(&self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}
