//! The contracts that hold the money of a signer.
//!
//! Most users of the venue do not trade from the account that signs, but from a contract that
//! belongs to it. Its address follows from the signer's by [EIP-1014]:
//!
//! ```text
//! contract = the last 20 bytes of keccak256(0xff ‖ factory ‖ salt ‖ keccak256(init code))
//! ```
//!
//! The factories and the init codes are those of `polymarket-client` 0.14.0, the venue's own client
//! for Python.
//!
//! [EIP-1014]: https://eips.ethereum.org/EIPS/eip-1014

use super::address::Address;
use super::keccak::{Word, keccak256};
use crate::text;

const PROXY_FACTORY: Address = Address::literal("0xab45c5a4b0c941a2f231c04c3f49182e1a254052");
const PROXY_INIT_CODE_HASH: Word =
    literal("0xd21df8dc65880a8606f09fe0ce3df9b8869287ab0b058be05aa9e8af6330a00b");

const SAFE_FACTORY: Address = Address::literal("0xaacfeea03eb1561c4e67d661e40682bd20e3541b");
const SAFE_INIT_CODE_HASH: Word =
    literal("0x2bce2127ff07fb632d16c8347c4ebf501f4841168bed00d9e6ef715ddb6fcecf");

const DEPOSIT_FACTORY: Address = Address::literal("0x00000000000fb5c9adea0298d729a0cb3823cc07");

/// Number of bytes that follow the init code of a deposit wallet: its factory and its signer.
const DEPOSIT_ARGUMENT_BYTES: u8 = 64;

/// The init code of a deposit wallet without its arguments: Solady's ERC-1967 proxy of a beacon.
const BEACON_CODE: InitCode<87> = InitCode {
    head: [0x61, 0x00, 0x52 + DEPOSIT_ARGUMENT_BYTES, 0x3d, 0x81, 0x60, 0x23, 0x3d, 0x39, 0x73],
    target: Address::literal("0x7a18edfe055488a3128f01f563e5b479d92ffc3a"),
    tail: literal(
        "0x60195155f3363d3d373d3d363d602036600436635c60da\
         1b60e01b36527fa3f0ad74e5423aebfd80d3ef4346578335a9a72aeaee59ff6c\
         b3582b35133d50545afa5036515af43d6000803e604d573d6000fd5b3d6000f3",
    ),
};

/// The init code of an older deposit wallet without its arguments: Solady's ERC-1967 proxy.
const UUPS_CODE: InitCode<66> = InitCode {
    head: [0x61, 0x00, 0x3d + DEPOSIT_ARGUMENT_BYTES, 0x3d, 0x81, 0x60, 0x23, 0x3d, 0x39, 0x73],
    target: Address::literal("0x58ca52ebe0dadfdf531cde7062e76746de4db1eb"),
    tail: literal(
        "0x6009\
         5155f3363d3d373d3d363d7f360894a13ba1a3210667c828492db98dca3e2076\
         cc3735a920a3ca505d382bbc545af43d6000803e6038573d6000fd5b3d6000f3",
    ),
};

/// A program that writes a proxy of `target`. The third byte of its head is the number of bytes of
/// the proxy and its arguments.
struct InitCode<const TAIL_BYTES: usize> {
    head: [u8; 10],
    target: Address,
    tail: [u8; TAIL_BYTES],
}

/// The contracts of a signer. The same addresses belong to it on each chain that has their factory;
/// the venue's test chain has none for proxy wallets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wallets {
    /// The proxy wallet, for orders of signature type 1.
    pub proxy: Address,
    /// The Gnosis Safe, for orders of signature type 2.
    pub safe: Address,
    /// The deposit wallet, for orders of signature type 3.
    pub deposit: Address,
    /// The deposit wallet of those who had theirs before deposit wallets had a beacon; orders have
    /// signature type 3 too.
    pub deposit_without_beacon: Address,
}

impl Wallets {
    /// The contracts of this signer. Whether they exist, only a chain knows.
    pub fn of(signer: Address) -> Self {
        let proxy_salt = keccak256(&[signer.bytes()]);
        let safe_salt = keccak256(&[&signer.word()]);
        Self {
            proxy: contract(PROXY_FACTORY, &proxy_salt, &PROXY_INIT_CODE_HASH),
            safe: contract(SAFE_FACTORY, &safe_salt, &SAFE_INIT_CODE_HASH),
            deposit: deposit_wallet(signer, &BEACON_CODE),
            deposit_without_beacon: deposit_wallet(signer, &UUPS_CODE),
        }
    }
}

fn deposit_wallet<const TAIL_BYTES: usize>(
    signer: Address,
    code: &InitCode<TAIL_BYTES>,
) -> Address {
    let arguments = [DEPOSIT_FACTORY.word(), signer.word()];
    let arguments = arguments.as_flattened();
    debug_assert_eq!(arguments.len(), usize::from(DEPOSIT_ARGUMENT_BYTES));
    let code_hash = keccak256(&[&code.head, code.target.bytes(), &code.tail, arguments]);
    contract(DEPOSIT_FACTORY, &keccak256(&[arguments]), &code_hash)
}

fn contract(factory: Address, salt: &Word, init_code_hash: &Word) -> Address {
    Address::from_hash(&keccak256(&[&[0xff], factory.bytes(), salt, init_code_hash]))
}

const fn literal<const N: usize>(text: &str) -> [u8; N] {
    text::bytes_from_hex(text.as_bytes()).expect("a literal has the length of its type")
}
