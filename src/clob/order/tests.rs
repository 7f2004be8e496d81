mod accepted;
mod amounts;
mod forged;
mod naive;
mod refused;
mod vectors;

use secp256k1::ecdsa::RecoverableSignature;
use secp256k1::{Message, PublicKey, SecretKey};
use serde_json::{Value, json};

use self::naive::{contracts, order_hash, separator, wrapped_hash};
use super::*;
use crate::signature::keccak::keccak256;

/// A token with more than 64 bits.
const TOKEN: &str = "83099540427842919414025726245757837748895723112257164540897056637816476545309";

const API_KEY: &str = "d05bcbb9-efbd-47b6-a124-639933a50049";

/// A market with a tick of a cent.
const STANDARD: MarketFacts = MarketFacts { kind: MarketKind::Standard, tick_micros: 10_000 };

const KINDS: [MarketKind; 3] = [MarketKind::Standard, MarketKind::NegRisk, MarketKind::Position];

/// A key that nobody uses.
fn key(number: u8) -> SecretKey {
    SecretKey::from_secret_bytes([number; 32]).unwrap()
}

fn address_of(key: &SecretKey) -> Address {
    let public = PublicKey::from_secret_key(key).serialize_uncompressed();
    Address::from_hash(&keccak256(&[&public[1..]]))
}

fn sign(key: &SecretKey, digest: Word) -> Vec<u8> {
    let digest = Message::from_digest(digest);
    let (id, compact) =
        RecoverableSignature::sign_ecdsa_recoverable(digest, key).serialize_compact();
    [&compact[..], &[27 + id.to_u8()]].concat()
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    format!("0x{}", text::hex(bytes.as_ref()))
}

fn caller(key: &SecretKey) -> Caller<'static> {
    Caller { address: address_of(key), api_key: API_KEY }
}

/// What a test changes of an order before it is signed, and for what it is signed.
#[derive(Clone, Copy)]
struct Draft {
    key: u8,
    version: Version,
    kind: MarketKind,
    chain: Chain,
    /// Which of the contracts that the chain has.
    contract_index: usize,
    signature_type: SignatureType,
    side: Side,
    amounts: [u64; 2],
    order_type: OrderType,
}

/// An order for 20 shares at 45 cents.
const DRAFT: Draft = Draft {
    key: 1,
    version: Version::V2,
    kind: MarketKind::Standard,
    chain: Chain::Polygon,
    contract_index: 0,
    signature_type: SignatureType::Eoa,
    side: Side::Buy,
    amounts: [9_000_000, 20_000_000],
    order_type: OrderType::Gtc,
};

impl Draft {
    /// The maker and the signer.
    fn wallets(&self) -> [Address; 2] {
        let signer = address_of(&key(self.key));
        let wallets = Wallets::of(signer);
        match self.signature_type {
            SignatureType::Eoa => [signer; 2],
            SignatureType::Proxy => [wallets.proxy, signer],
            SignatureType::Safe => [wallets.safe, signer],
            SignatureType::Deposit => [wallets.deposit; 2],
        }
    }

    /// The `order` in a body, without its signature.
    fn unsigned(&self) -> Value {
        let [maker, signer] = self.wallets().map(|wallet| wallet.checksummed());
        let [maker_amount, taker_amount] = self.amounts.map(|amount| amount.to_string());
        let is_gtd = self.order_type == OrderType::Gtd;
        let mut order = json!({
            "salt": 1_052_345_958_974_u64,
            "maker": maker,
            "signer": signer,
            "tokenId": TOKEN,
            "makerAmount": maker_amount,
            "takerAmount": taker_amount,
            "side": if self.side == Side::Buy { "BUY" } else { "SELL" },
            "expiration": if is_gtd { "1800000000" } else { "0" },
            "signatureType": self.signature_type.number(),
        });
        let rest = if self.version == Version::V1 {
            json!({ "taker": hex([0; 20]), "nonce": "7", "feeRateBps": "1000" })
        } else {
            json!({
                "timestamp": "1794846677123",
                "metadata": hex([3; 32]),
                "builder": hex([4; 32]),
            })
        };
        order.as_object_mut().unwrap().extend(rest.as_object().unwrap().clone());
        order
    }

    /// The contract's domain.
    fn separator(&self) -> Word {
        let contracts = contracts(self.version, self.kind);
        let mut of_chain = contracts.iter().filter(|(chain, _)| *chain == self.chain);
        let (chain, contract) = of_chain.nth(self.contract_index).unwrap();
        separator(self.version, *chain, contract)
    }

    /// The digest of an `order`.
    fn digest(&self, order: &Value) -> Word {
        eip712::digest(&self.separator(), &order_hash(order, self.version))
    }

    fn signature(&self, order: &Value) -> Vec<u8> {
        let key = key(self.key);
        if self.signature_type != SignatureType::Deposit {
            return sign(&key, self.digest(order));
        }
        let separator = self.separator();
        let digest = eip712::digest(&separator, &wrapped_hash(order, self.version, self.chain));
        let contents = order_hash(order, self.version);
        let type_text = naive::type_text("Order", &naive::fields(self.version));
        let length = u16::try_from(type_text.len()).unwrap().to_be_bytes();
        [&sign(&key, digest), &separator[..], &contents, type_text.as_bytes(), &length].concat()
    }

    /// The body with this order, changed before it is signed.
    fn body_with(&self, change: impl FnOnce(&mut Value)) -> Value {
        let mut order = self.unsigned();
        change(&mut order);
        order["signature"] = hex(self.signature(&order)).into();
        let order_type = match self.order_type {
            OrderType::Gtc => "GTC",
            OrderType::Gtd => "GTD",
            OrderType::Fok => "FOK",
            OrderType::Fak => "FAK",
        };
        json!({ "order": order, "owner": API_KEY, "orderType": order_type })
    }

    fn body(&self) -> Value {
        self.body_with(|_| ())
    }

    fn market(&self) -> MarketFacts {
        MarketFacts { kind: self.kind, ..STANDARD }
    }

    fn caller(&self) -> Caller<'static> {
        caller(&key(self.key))
    }

    fn verify(&self, body: &Value) -> Result<SignedOrder, OrderError> {
        PostedOrder::parse(body.to_string().as_bytes())?.verify(&self.caller(), &self.market())
    }
}

/// Every order that a wallet can sign for some contract, apart from its side and its type.
fn all_drafts() -> Vec<Draft> {
    let mut drafts = Vec::new();
    let types =
        [SignatureType::Eoa, SignatureType::Proxy, SignatureType::Safe, SignatureType::Deposit];
    for version in [Version::V1, Version::V2, Version::V3] {
        for kind in KINDS {
            let contracts = contracts(version, kind);
            for (index, (chain, _)) in contracts.iter().enumerate() {
                let before = contracts[..index].iter().filter(|(other, _)| other == chain);
                let contract_index = before.count();
                let draft = Draft { version, kind, chain: *chain, contract_index, ..DRAFT };
                let of_type = types.map(|signature_type| Draft { signature_type, ..draft });
                drafts.extend(of_type.into_iter().filter(|draft| match draft.signature_type {
                    SignatureType::Proxy => draft.chain == Chain::Polygon,
                    SignatureType::Deposit => version != Version::V1,
                    _ => true,
                }));
            }
        }
    }
    // Of 5 contracts of V1 and 6 of later versions; 5 of the 11 are on Polygon.
    assert_eq!(drafts.len(), 2 * 11 + 5 + 6);
    drafts
}
