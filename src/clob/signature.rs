//! Proof that a wallet has signed something.
//!
//! A client without credentials signs a `ClobAuth` with its wallet, and sends the signature in four
//! headers; the venue calls this L1. [`L1Headers::verify`] recovers the wallet from them, which
//! takes some 40 microseconds for each chain that is tried. Before that, the caller decides whether
//! the request is recent, with [`timestamp::is_current`].
//!
//! No other module names the crates that recover signers and hash like Ethereum.

pub mod address;
pub(crate) mod ecdsa;
pub(crate) mod eip712;
pub(crate) mod keccak;
#[cfg(test)]
mod tests;
pub mod wallets;

use address::Address;
use ecdsa::Signature;
pub use ecdsa::SignatureError;
use eip712::Domain;
use keccak::Word;

use crate::{text, timestamp};

const CLOB_AUTH_TYPE: &str =
    "ClobAuth(address address,string timestamp,uint256 nonce,string message)";

/// The text that each client signs, whatever it asks for.
const CLOB_AUTH_MESSAGE: &str = "This message attests that I control the given wallet";

/// A chain for which wallets sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Chain {
    /// Polygon, where the venue trades.
    Polygon,
    /// Amoy, its test chain: the default in the examples of the venue's clients.
    Amoy,
}

impl Chain {
    const ALL: [Self; 2] = [Self::Polygon, Self::Amoy];

    /// The number of the chain, as in EIP-155.
    pub fn id(self) -> u64 {
        match self {
            Self::Polygon => 137,
            Self::Amoy => 80_002,
        }
    }
}

/// The L1 headers of a request, each as it was sent.
#[derive(Clone, Copy)]
pub struct L1Headers<'a> {
    /// `POLY_ADDRESS`: the wallet.
    pub address: &'a [u8],
    /// `POLY_SIGNATURE`: 65 bytes in hexadecimal digits after `0x`.
    pub signature: &'a [u8],
    /// `POLY_TIMESTAMP`: seconds since 1970 in decimal digits.
    pub timestamp: &'a [u8],
    /// `POLY_NONCE`: a number in decimal digits. The protocol allows 256 bits; 64 are accepted.
    pub nonce: &'a [u8],
}

/// What a wallet has signed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClobAuth {
    /// The wallet.
    pub address: Address,
    /// The chain for which it has signed.
    pub chain: Chain,
    /// When it signed by its own clock, in seconds since 1970.
    pub timestamp_s: i64,
    /// Which of the wallet's credentials the request is about.
    pub nonce: u64,
}

/// The reason why L1 headers prove nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum L1Error {
    /// `POLY_ADDRESS` is not an address.
    #[error("POLY_ADDRESS: {0}")]
    Address(#[from] address::AddressError),
    /// `POLY_TIMESTAMP` is not a number.
    #[error("POLY_TIMESTAMP: should be whole seconds since 1970, such as 1800000000")]
    Timestamp,
    /// `POLY_NONCE` is not a number, or has more than 64 bits.
    #[error("POLY_NONCE: should be a whole number from 0 to {}", u64::MAX)]
    Nonce,
    /// `POLY_SIGNATURE` is malformed, or no wallet can have made it.
    #[error("POLY_SIGNATURE: {0}")]
    Signature(#[from] SignatureError),
    /// `POLY_SIGNATURE` is not by this wallet, or for another text.
    #[error(
        "POLY_SIGNATURE: not by the wallet in POLY_ADDRESS, or for another timestamp, nonce or \
         chain than in the headers; chains are 137 and 80002"
    )]
    OtherSigner,
}

impl L1Headers<'_> {
    /// Verifies that the wallet has signed these headers, for either [`Chain`].
    pub fn verify(&self) -> Result<ClobAuth, L1Error> {
        let address = Address::parse(self.address)?;
        let timestamp_s = timestamp::parse(self.timestamp).ok_or(L1Error::Timestamp)?;
        let nonce = text::decimal(self.nonce).ok_or(L1Error::Nonce)?;
        let signature = Signature::parse(self.signature)?;
        // The timestamp is signed as it was sent.
        let hash = clob_auth_hash(address, self.timestamp, nonce);
        for chain in Chain::ALL {
            if signature.signer(clob_auth_digest(chain, &hash))? == address {
                return Ok(ClobAuth { address, chain, timestamp_s, nonce });
            }
        }
        Err(L1Error::OtherSigner)
    }
}

fn clob_auth_hash(address: Address, timestamp: &[u8], nonce: u64) -> Word {
    let fields = [
        address.word(),
        eip712::string(timestamp),
        eip712::uint(nonce),
        eip712::string(CLOB_AUTH_MESSAGE.as_bytes()),
    ];
    eip712::hash_structure(CLOB_AUTH_TYPE, &fields)
}

/// Signs what [`L1Headers::verify`] verifies.
#[cfg(any(test, feature = "test-util"))]
pub(crate) fn sign_clob_auth(
    key: &secp256k1::SecretKey,
    chain: Chain,
    address: Address,
    timestamp: &[u8],
    nonce: u64,
) -> [u8; ecdsa::SIGNATURE_BYTES] {
    let hash = clob_auth_hash(address, timestamp, nonce);
    Signature::sign(key, clob_auth_digest(chain, &hash))
}

/// Returns the account of a key.
#[cfg(any(test, feature = "test-util"))]
pub(crate) fn signer_of(key: &secp256k1::SecretKey) -> Address {
    let digest = Word::default();
    let signature = format!("0x{}", text::hex(&Signature::sign(key, digest)));
    let signature = Signature::parse(signature.as_bytes()).expect("made by the key");
    signature.signer(digest).expect("made by the key")
}

fn clob_auth_digest(chain: Chain, structure_hash: &Word) -> Word {
    let domain = Domain { name: "ClobAuthDomain", version: "1", chain_id: chain.id() };
    domain.digest(structure_hash)
}
