//! Signatures of deposit wallets.
//!
//! A deposit wallet is a contract and has no key. The account to which it belongs signs in its
//! name, by [ERC-7739] in the form of Solady: the wallet's name and address are signed together
//! with the order, so that the signature counts for no other wallet of the account.
//!
//! ```text
//! signature   65  of keccak256(0x19 ‖ 0x01 ‖ separator ‖ hash(TypedDataSign))
//! separator   32  the domain of the contract that settles the order
//! contents    32  the hash of the order
//! type       186  the text of the order's type
//! length       2  the number of bytes of the type, big-endian
//! ```
//!
//! Some wallets let others sign for them with session keys, whose signatures are wrapped once more.
//! Those are refused.
//!
//! [ERC-7739]: https://eips.ethereum.org/EIPS/eip-7739

use super::digest::{Exchange, Rest, V2_TYPE, literal};
use super::{OrderError, PostedOrder};
use crate::signature::Chain;
use crate::signature::address::Address;
use crate::signature::ecdsa::{SIGNATURE_BYTES, Signature};
use crate::signature::eip712;
use crate::signature::keccak::Word;
use crate::text;

const LENGTH_BYTES: usize = 2;

/// Number of bytes of a wrapped signature.
pub(super) const WRAPPED_BYTES: usize =
    SIGNATURE_BYTES + size_of::<[Word; 2]>() + V2_TYPE.len() + LENGTH_BYTES;

const _: () = assert!(WRAPPED_BYTES == 317);

/// The hash of `TypedDataSign(Order contents,string name,string version,uint256 chainId,address
/// verifyingContract,bytes32 salt)`, followed by [`V2_TYPE`].
pub(super) const TYPED_DATA_SIGN_HASH: Word =
    literal("0x6ba028565cb324c2aa02bb714b9816d0bddd557a2f33bb36cf13272a4256bd42");

/// The hash of the wallets' name, `DepositWallet`.
pub(super) const NAME_HASH: Word =
    literal("0xd682b529a17cda19aa275f3a050608f9e9401fadd1b0d233d81519972295828b");

/// The hash of the wallets' version, `1`.
pub(super) const VERSION_HASH: Word =
    literal("0xc89efdaa54c0f20c7adf612882df0950f5a951637e0307cdcb4c672f298b8bc6");

impl PostedOrder {
    /// Verifies that `account` has signed the order in the name of its deposit wallet, the signer
    /// of the order, for one of these contracts. Returns the digest of the order alone and the
    /// contract's chain.
    pub(super) fn verify_wrapped(
        &self,
        account: Address,
        exchanges: &[Exchange],
    ) -> Result<(Word, Chain), OrderError> {
        self.unwrap_signature(account, exchanges).ok_or(OrderError::Signature)
    }

    fn unwrap_signature(&self, account: Address, exchanges: &[Exchange]) -> Option<(Word, Chain)> {
        // The type in the signature is that of later versions.
        if matches!(self.contents.rest, Rest::V1 { .. }) {
            return None;
        }
        let bytes: [u8; WRAPPED_BYTES] = text::bytes_from_hex(self.signature.as_bytes())?;
        let (signature, rest) = bytes.split_first_chunk()?;
        let signature = Signature::from_bytes(signature).ok()?;
        let (separator, rest) = rest.split_first_chunk()?;
        let exchange = exchanges.iter().find(|exchange| exchange.separator == *separator)?;
        let (contents, rest) = rest.split_first_chunk()?;
        let hash = self.contents.hash();
        let (type_text, length) = rest.split_last_chunk::<LENGTH_BYTES>()?;
        let is_of_order = *contents == hash
            && type_text == V2_TYPE.as_bytes()
            && usize::from(u16::from_be_bytes(*length)) == V2_TYPE.len();
        if !is_of_order {
            return None;
        }
        let fields = [
            hash,
            NAME_HASH,
            VERSION_HASH,
            eip712::uint(exchange.chain.id()),
            self.contents.signer.word(),
            // The salt of the wallet's domain, which has none.
            Word::default(),
        ];
        let wrapped = eip712::hash_fields(&TYPED_DATA_SIGN_HASH, &fields);
        let signer = signature.signer(eip712::digest(&exchange.separator, &wrapped)).ok()?;
        (signer == account).then(|| (eip712::digest(&exchange.separator, &hash), exchange.chain))
    }
}
