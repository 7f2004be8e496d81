//! What a wallet signs of an order, and for which contract.

use super::{MarketKind, Side, SignatureType, Version};
use crate::signature::Chain;
use crate::signature::address::Address;
use crate::signature::eip712;
use crate::signature::keccak::Word;
use crate::text;

/// The type of a V2 and V3 order. The signature of a deposit wallet contains it.
pub(super) const V2_TYPE: &str = "Order(uint256 salt,address maker,address signer,\
    uint256 tokenId,uint256 makerAmount,uint256 takerAmount,uint8 side,uint8 signatureType,\
    uint256 timestamp,bytes32 metadata,bytes32 builder)";

/// The hash of `Order(uint256 salt,address maker,address signer,address taker,uint256
/// tokenId,uint256 makerAmount,uint256 takerAmount,uint256 expiration,uint256 nonce,uint256
/// feeRateBps,uint8 side,uint8 signatureType)`.
pub(super) const V1_TYPE_HASH: Word =
    literal("0xa852566c4e14d00869b6db0220888a9090a13eccdaea03713ff0a3d27bf9767c");

/// The hash of [`V2_TYPE`].
pub(super) const V2_TYPE_HASH: Word =
    literal("0xbb86318a2138f5fa8ae32fbe8e659f8fcf13cc6ae4014a707893055433818589");

/// The fields of an order that say what it asks for. Its wallet signs all of them, but for the
/// expiration of an order that is not V1.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Contents {
    pub(super) salt: u64,
    pub(super) maker: Address,
    pub(super) signer: Address,
    pub(super) token: Word,
    pub(super) maker_amount_micros: u64,
    pub(super) taker_amount_micros: u64,
    pub(super) side: Side,
    pub(super) signature_type: SignatureType,
    /// Seconds since 1970; 0 if never.
    pub(super) expiration_s: u64,
    pub(super) rest: Rest,
}

/// The fields in which versions differ.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Rest {
    V1 {
        taker: Address,
        nonce: u64,
        fee_rate_bps: u64,
    },
    /// V3 has the same fields.
    V2 {
        timestamp_ms: u64,
        metadata: Word,
        builder: Word,
    },
}

impl Contents {
    /// The hash of the order, the same for each contract.
    pub(super) fn hash(&self) -> Word {
        let [salt, maker_amount, taker_amount] =
            [self.salt, self.maker_amount_micros, self.taker_amount_micros].map(eip712::uint);
        let [maker, signer] = [self.maker, self.signer].map(|address| address.word());
        let side = eip712::uint(match self.side {
            Side::Buy => 0,
            Side::Sell => 1,
        });
        let signature_type = eip712::uint(self.signature_type.number().into());
        match self.rest {
            Rest::V1 { taker, nonce, fee_rate_bps } => {
                let [expiration, nonce, fee_rate] =
                    [self.expiration_s, nonce, fee_rate_bps].map(eip712::uint);
                let fields = [
                    salt,
                    maker,
                    signer,
                    taker.word(),
                    self.token,
                    maker_amount,
                    taker_amount,
                    expiration,
                    nonce,
                    fee_rate,
                    side,
                    signature_type,
                ];
                eip712::hash_fields(&V1_TYPE_HASH, &fields)
            }
            Rest::V2 { timestamp_ms, metadata, builder } => {
                let fields = [
                    salt,
                    maker,
                    signer,
                    self.token,
                    maker_amount,
                    taker_amount,
                    side,
                    signature_type,
                    eip712::uint(timestamp_ms),
                    metadata,
                    builder,
                ];
                eip712::hash_fields(&V2_TYPE_HASH, &fields)
            }
        }
    }
}

/// A contract that settles orders on a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Exchange {
    pub(super) chain: Chain,
    /// The hash of its domain: name, version, chain and address.
    pub(super) separator: Word,
}

// The tests compute these hashes from the addresses of the contracts.

const V1_STANDARD: [Exchange; 2] = [
    polygon("0x1a573e3617c78403b5b4b892827992f027b03d4eaf570048b8ee8cdd84d151be"),
    amoy("0x44b180a7e548e2d916b5410176db13a07744966f9b6c93c4bccdabebbcdfca93"),
];

const V1_NEG_RISK: [Exchange; 3] = [
    polygon("0x82cb6aa85babb812f4b521a12b10f0cbc68d2b44be7bc02c047004f544adb49f"),
    amoy("0x9fa10822e4b86fd1eed68ea1c2628e0ee9a6c523cb2570592768432cfdb09bf1"),
    // Only the oldest client, py-clob-client, signs for this contract.
    amoy("0x99482d105ff5a1b784f0ecde2173e4bacb02bed0a14e76c5c484649367f8528f"),
];

const V2_STANDARD: [Exchange; 2] = [
    polygon("0x3264e159346253e26a64e00b69032db0e7d32f94628de3e6eecb50304d7af3d2"),
    amoy("0xa440cbd865bc0c6243d7a8df9a8bf48a8827b0a4abbb61c30e96d305423af148"),
];

const V2_NEG_RISK: [Exchange; 2] = [
    polygon("0x9b858f53327b0bd13af8ec14cfb35234fb9eb7b0504d1a4e61f433840d30e81a"),
    amoy("0x1468e39841f0a0e05d3762b235cb7acecabf8cd7b6d3a672965a5d415bf9378e"),
];

const V3: [Exchange; 2] = [
    polygon("0x466c63910185bbd55e8679264200c4e0abdcbb0c6264eb3d41d13326022e095b"),
    amoy("0xdf8b5fd204134b8d562677d7fc9346884e8f02ef2fd43358239393723e8833e6"),
];

const fn polygon(separator: &str) -> Exchange {
    Exchange { chain: Chain::Polygon, separator: literal(separator) }
}

const fn amoy(separator: &str) -> Exchange {
    Exchange { chain: Chain::Amoy, separator: literal(separator) }
}

/// The version of an order with these fields in a market of this kind, and the contracts that
/// settle it; `None` if there are none.
pub(super) fn exchanges(rest: &Rest, kind: MarketKind) -> Option<(Version, &'static [Exchange])> {
    match (rest, kind) {
        (Rest::V1 { .. }, MarketKind::Standard) => Some((Version::V1, &V1_STANDARD)),
        (Rest::V1 { .. }, MarketKind::NegRisk) => Some((Version::V1, &V1_NEG_RISK)),
        (Rest::V1 { .. }, MarketKind::Position) => None,
        (Rest::V2 { .. }, MarketKind::Standard) => Some((Version::V2, &V2_STANDARD)),
        (Rest::V2 { .. }, MarketKind::NegRisk) => Some((Version::V2, &V2_NEG_RISK)),
        (Rest::V2 { .. }, MarketKind::Position) => Some((Version::V3, &V3)),
    }
}

pub(super) const fn literal(text: &str) -> Word {
    text::bytes_from_hex(text.as_bytes()).expect("a literal has 32 bytes")
}
