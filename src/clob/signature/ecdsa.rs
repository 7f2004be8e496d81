//! The signer of a signature, recovered from it.

use secp256k1::Message;
#[cfg(any(test, feature = "test-util"))]
use secp256k1::SecretKey;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};

use super::address::Address;
use super::keccak::{Word, keccak256};
use crate::text;

/// Number of bytes of a signature: `r` has 32, `s` 32, and `v` 1.
pub(crate) const SIGNATURE_BYTES: usize = 65;

const S: std::ops::Range<usize> = 32..64;
const V: usize = S.end;

const _: () = assert!(V + 1 == SIGNATURE_BYTES);

/// `v` of a signature whose curve point has an even y; an odd y has the next number.
const V_EVEN: u8 = 27;

/// Half the order of the curve, rounded down: the largest `s` accepted. Anyone can turn a signature
/// with a low `s` into another one of the same text with a high `s`.
const S_MAX: [u8; 32] = {
    const TEXT: &[u8; 66] = b"0x7fffffffffffffffffffffffffffffff5d576e7357a4501ddfe92f46681b20a0";
    text::bytes_from_hex(TEXT).expect("a literal of 32 bytes")
};

/// The reason why a signature has no signer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SignatureError {
    /// The text is not `0x` and 130 hexadecimal digits.
    #[error("a signature is `0x` and 130 hexadecimal digits")]
    Text,
    /// The last byte is neither 27 nor 28.
    #[error("the last byte of a signature is 27 or 28; this one ends in {v}")]
    RecoveryId {
        /// The last byte.
        v: u8,
    },
    /// `s` is greater than half the order of the curve.
    #[error("s is greater than half the order of secp256k1; sign with a low s")]
    HighS,
    /// `r` or `s` is 0 or too large, or `r` belongs to no point of the curve.
    #[error("r and s belong to no signature of secp256k1")]
    NoSigner,
}

/// A signature that may have a signer.
pub(crate) struct Signature(RecoverableSignature);

impl Signature {
    pub(crate) fn parse(text: &[u8]) -> Result<Self, SignatureError> {
        let bytes = text::bytes_from_hex(text).ok_or(SignatureError::Text)?;
        Self::from_bytes(&bytes)
    }

    pub(crate) fn from_bytes(bytes: &[u8; SIGNATURE_BYTES]) -> Result<Self, SignatureError> {
        let id = match bytes[V].checked_sub(V_EVEN) {
            Some(0) => RecoveryId::Zero,
            Some(1) => RecoveryId::One,
            _ => return Err(SignatureError::RecoveryId { v: bytes[V] }),
        };
        if bytes[S] > S_MAX[..] {
            return Err(SignatureError::HighS);
        }
        let signature = RecoverableSignature::from_compact(&bytes[..V], id);
        signature.map(Self).map_err(|_| SignatureError::NoSigner)
    }

    /// Signs a digest, and returns the bytes of the signature.
    #[cfg(any(test, feature = "test-util"))]
    pub(crate) fn sign(key: &SecretKey, digest: Word) -> [u8; SIGNATURE_BYTES] {
        let digest = Message::from_digest(digest);
        let (id, compact) =
            RecoverableSignature::sign_ecdsa_recoverable(digest, key).serialize_compact();
        let mut bytes = [0; SIGNATURE_BYTES];
        bytes[..V].copy_from_slice(&compact);
        bytes[V] = V_EVEN + id.to_u8();
        bytes
    }

    /// Returns the account that has signed this digest. For a digest that was not signed, that is
    /// an account whose key nobody has.
    pub(crate) fn signer(&self, digest: Word) -> Result<Address, SignatureError> {
        let key = self.0.recover_ecdsa(Message::from_digest(digest));
        let key = key.map_err(|_| SignatureError::NoSigner)?.serialize_uncompressed();
        // The first byte says that the key is not compressed.
        Ok(Address::from_hash(&keccak256(&[&key[1..]])))
    }
}
