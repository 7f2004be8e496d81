//! Orders to sign, for tests.

use secp256k1::SecretKey;
use serde_json::json;

use super::digest::{Contents, Rest, exchanges};
use super::{MarketKind, OrderType, Side, SignatureType, Version};
use crate::signature::Chain;
use crate::signature::address::Address;
use crate::signature::ecdsa::Signature;
use crate::signature::eip712;
use crate::signature::wallets::Wallets;
use crate::text;

/// An order to sign.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DraftOrder<'a> {
    /// The version that is signed; V3 where the market's kind asks for it.
    pub version: Version,
    /// Which wallet of the signer trades; not the deposit wallet, whose signature is another.
    pub wallet: SignatureType,
    /// What tells it from the same order.
    pub salt: u64,
    /// The token of the outcome.
    pub token_id: &'a str,
    /// The kind of the outcome's market.
    pub kind: MarketKind,
    /// Whether it buys or sells.
    pub side: Side,
    /// What the maker gives, in millionths.
    pub maker_amount_micros: u64,
    /// What the maker takes, in millionths.
    pub taker_amount_micros: u64,
    /// How long it may wait.
    pub order_type: OrderType,
    /// In seconds since 1970; 0 if it does not expire.
    pub expiration_s: u64,
    /// Whether it must not take liquidity.
    pub post_only: bool,
}

impl DraftOrder<'_> {
    /// Returns the body of `POST /order`, signed by this key, whose account is `signer`, for the
    /// main chain.
    pub(crate) fn sign(&self, key: &SecretKey, signer: Address, owner: &str) -> String {
        let maker = match self.wallet {
            SignatureType::Eoa => signer,
            SignatureType::Proxy => Wallets::of(signer).proxy,
            SignatureType::Safe => Wallets::of(signer).safe,
            SignatureType::Deposit => panic!("a draft is not signed for a deposit wallet"),
        };
        let zero = Address::from_bytes([0; 20]);
        let rest = match self.version {
            Version::V1 => Rest::V1 { taker: zero, nonce: 0, fee_rate_bps: 0 },
            _ => Rest::V2 { timestamp_ms: 0, metadata: [0; 32], builder: [0; 32] },
        };
        let contents = Contents {
            salt: self.salt,
            maker,
            signer,
            token: text::decimal_word(self.token_id.as_bytes()).expect("a token is a number"),
            maker_amount_micros: self.maker_amount_micros,
            taker_amount_micros: self.taker_amount_micros,
            side: self.side,
            signature_type: self.wallet,
            expiration_s: self.expiration_s,
            rest,
        };
        // A client that signs the first version does not know of other markets.
        let kind = if self.version == Version::V1 { MarketKind::Standard } else { self.kind };
        let (_, exchanges) = exchanges(&rest, kind).expect("each kind takes version 2");
        let exchange = exchanges.iter().find(|exchange| exchange.chain == Chain::Polygon);
        let separator = exchange.expect("each chain has a contract").separator;
        let signature = Signature::sign(key, eip712::digest(&separator, &contents.hash()));
        let mut order = json!({
            "salt": self.salt,
            "maker": maker.checksummed(),
            "signer": signer.checksummed(),
            "tokenId": self.token_id,
            "makerAmount": self.maker_amount_micros.to_string(),
            "takerAmount": self.taker_amount_micros.to_string(),
            "side": if self.side == Side::Buy { "BUY" } else { "SELL" },
            "signatureType": self.wallet.number(),
            "expiration": self.expiration_s.to_string(),
            "signature": format!("0x{}", text::hex(&signature)),
        });
        let zeros = format!("0x{}", "0".repeat(64));
        let others = match rest {
            Rest::V1 { .. } => {
                vec![
                    ("taker", zero.checksummed()),
                    ("nonce", "0".into()),
                    ("feeRateBps", "0".into()),
                ]
            }
            Rest::V2 { .. } => {
                vec![("timestamp", "0".into()), ("metadata", zeros.clone()), ("builder", zeros)]
            }
        };
        for (name, value) in others {
            order[name] = value.into();
        }
        let body = json!({
            "order": order,
            "owner": owner,
            "orderType": match self.order_type {
                OrderType::Gtc => "GTC",
                OrderType::Gtd => "GTD",
                OrderType::Fok => "FOK",
                OrderType::Fak => "FAK",
            },
            "postOnly": self.post_only,
        });
        body.to_string()
    }
}
