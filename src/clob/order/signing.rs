//! Orders to sign, for tests.

use secp256k1::SecretKey;
use serde_json::json;

use super::digest::{Contents, Rest, exchanges};
use super::{MarketKind, OrderType, Side, SignatureType};
use crate::signature::Chain;
use crate::signature::address::Address;
use crate::signature::ecdsa::Signature;
use crate::signature::eip712;
use crate::text;

/// An order of version 2, by a wallet that is its own signer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DraftOrder<'a> {
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
    /// Returns the body of `POST /order`, signed by this key for the test chain.
    pub(crate) fn sign(&self, key: &SecretKey, wallet: Address, owner: &str) -> String {
        let rest = Rest::V2 { timestamp_ms: 0, metadata: [0; 32], builder: [0; 32] };
        let contents = Contents {
            salt: self.salt,
            maker: wallet,
            signer: wallet,
            token: text::decimal_word(self.token_id.as_bytes()).expect("a token is a number"),
            maker_amount_micros: self.maker_amount_micros,
            taker_amount_micros: self.taker_amount_micros,
            side: self.side,
            signature_type: SignatureType::Eoa,
            expiration_s: self.expiration_s,
            rest,
        };
        let (_, exchanges) = exchanges(&rest, self.kind).expect("each kind takes version 2");
        let exchange = exchanges.iter().find(|exchange| exchange.chain == Chain::Amoy);
        let separator = exchange.expect("each chain has a contract").separator;
        let signature = Signature::sign(key, eip712::digest(&separator, &contents.hash()));
        let zeros = format!("0x{}", "0".repeat(64));
        let body = json!({
            "order": {
                "salt": self.salt,
                "maker": wallet.checksummed(),
                "signer": wallet.checksummed(),
                "tokenId": self.token_id,
                "makerAmount": self.maker_amount_micros.to_string(),
                "takerAmount": self.taker_amount_micros.to_string(),
                "side": if self.side == Side::Buy { "BUY" } else { "SELL" },
                "signatureType": 0,
                "timestamp": "0",
                "expiration": self.expiration_s.to_string(),
                "metadata": zeros,
                "builder": zeros,
                "signature": format!("0x{}", text::hex(&signature)),
            },
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
