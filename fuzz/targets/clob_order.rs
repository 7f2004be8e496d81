//! Orders that wallets have signed.
//!
//! The first byte says which kind of market an order is for: `s` for a standard one, `n` for a
//! neg-risk one, `p` for one of position ids. The body of `POST /order` follows. The caller is
//! always the same.
//!
//! An order that is accepted was signed by the caller, as EIP-712 and the venue's contracts define
//! it. This is computed once more here, from the fields of the body.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use paperbourse_clob::order::{
    Caller, MarketFacts, MarketKind, OrderSize, OrderType, PostedOrder, Side, SignatureType,
    SignedOrder, Version,
};
use paperbourse_clob::signature::Chain;
use paperbourse_clob::signature::address::Address;
use paperbourse_clob::signature::wallets::Wallets;
use secp256k1::Message;
use secp256k1::ecdsa::{RecoverableSignature, RecoveryId};
use serde::Deserialize;
use serde_json::value::RawValue;
use tiny_keccak::{Hasher as _, Keccak};

const API_KEY: &str = "d05bcbb9-efbd-47b6-a124-639933a50049";
const TICK_MICROS: u64 = 10_000;

/// The account whose private key is 32 times the byte 1.
static ACCOUNT: LazyLock<Address> =
    LazyLock::new(|| Address::parse("0x1a642f0e3c3af545e7acbd38b07251b3990914f1").unwrap());

const FIELDS_OF_V1: &str = "uint256 salt,address maker,address signer,address taker,\
    uint256 tokenId,uint256 makerAmount,uint256 takerAmount,uint256 expiration,uint256 nonce,\
    uint256 feeRateBps,uint8 side,uint8 signatureType";

const FIELDS_OF_V2: &str = "uint256 salt,address maker,address signer,uint256 tokenId,\
    uint256 makerAmount,uint256 takerAmount,uint8 side,uint8 signatureType,uint256 timestamp,\
    bytes32 metadata,bytes32 builder";

const DOMAIN: &str = "EIP712Domain(string name,string version,uint256 chainId,\
    address verifyingContract)";

const WRAPPER: &str = "TypedDataSign(Order contents,string name,string version,uint256 chainId,\
    address verifyingContract,bytes32 salt)";

type Word = [u8; 32];

/// Fields that are not part of an order stay unread: their numbers may be too large for any type.
type Object<'a> = BTreeMap<String, &'a RawValue>;

pub(crate) fn run(input: &[u8]) {
    let Some((kind, body)) = input.split_first() else { return };
    let kind = match kind {
        b's' => MarketKind::Standard,
        b'n' => MarketKind::NegRisk,
        b'p' => MarketKind::Position,
        _ => return,
    };
    let Ok(posted) = PostedOrder::parse(body) else { return };
    let token_id = posted.token_id();
    assert!(!token_id.is_empty() && token_id.bytes().all(|it| it.is_ascii_digit()));
    let market = MarketFacts { kind, tick_micros: TICK_MICROS };
    let caller = Caller { address: *ACCOUNT, api_key: API_KEY };
    match posted.verify(&caller, &market) {
        Ok(order) => {
            check_signed(&order, body, kind);
            check_terms(&order, &market);
        }
        Err(error) => assert!(!error.to_string().contains(char::is_control)),
    }
}

/// The order is what the body says, and the caller has signed it for a contract of such markets.
fn check_signed(order: &SignedOrder, body: &[u8], kind: MarketKind) {
    let body: Object<'_> = serde_json::from_slice(body).expect("an order is an object");
    let fields: Object<'_> = parsed(body["order"]);
    assert_eq!(parsed::<String>(body["owner"]), API_KEY);
    assert_eq!(order.signer, *ACCOUNT);
    let wallets = Wallets::of(*ACCOUNT);
    let makers = match order.signature_type {
        SignatureType::Eoa => vec![*ACCOUNT],
        SignatureType::Proxy => vec![wallets.proxy],
        SignatureType::Safe => vec![wallets.safe],
        SignatureType::Deposit => vec![wallets.deposit, wallets.deposit_without_beacon],
    };
    assert!(makers.contains(&order.maker));
    let is_deposit = order.signature_type == SignatureType::Deposit;
    let signer = if is_deposit { order.maker } else { *ACCOUNT };
    assert_eq!(order.maker.to_string(), text(&fields, "maker").to_ascii_lowercase());
    assert_eq!(signer.to_string(), text(&fields, "signer").to_ascii_lowercase());

    let type_fields = if order.version == Version::V1 { FIELDS_OF_V1 } else { FIELDS_OF_V2 };
    let order_type = format!("Order({type_fields})");
    let words: Vec<Word> = type_fields.split(',').map(|field| word(field, &fields)).collect();
    let order_hash = structure_hash(&order_type, &words);
    let signature = bytes(&text(&fields, "signature"));
    let is_signed = contracts(order.version, kind, order.chain).iter().any(|contract| {
        let domain = domain(order.version, order.chain, contract);
        let signed = if is_deposit {
            assert_eq!(signature.len(), 317);
            wrapper_hash(&(WRAPPER.to_owned() + &order_type), order, order_hash)
        } else {
            assert_eq!(signature.len(), 65);
            order_hash
        };
        *order.id.bytes() == digest(domain, order_hash)
            && recovered(&signature, digest(domain, signed)) == Some(*ACCOUNT)
    });
    assert!(is_signed, "{}", order.id);
}

/// What the order asks for follows from its amounts.
fn check_terms(order: &SignedOrder, market: &MarketFacts) {
    let _any = order.check_decimals(market);
    let terms = match order.terms(market) {
        Ok(terms) => terms,
        Err(error) => return assert!(!error.to_string().contains(char::is_control)),
    };
    let [given, taken] = [order.maker_amount_micros, order.taker_amount_micros];
    let [dollars, shares] = if order.side == Side::Buy { [given, taken] } else { [taken, given] };
    let is_limit = matches!(order.order_type, OrderType::Gtc | OrderType::Gtd);
    let size = match (order.side, is_limit) {
        (Side::Buy, false) => OrderSize::Budget(dollars),
        _ => OrderSize::Shares(shares),
    };
    assert_eq!(terms.size, size);
    assert!(terms.price_micros.is_multiple_of(TICK_MICROS));
    assert!((TICK_MICROS..=1_000_000 - TICK_MICROS).contains(&terms.price_micros));
    let off = (u128::from(dollars) * 1_000_000)
        .abs_diff(u128::from(shares) * u128::from(terms.price_micros));
    let off_max = if is_limit { 0 } else { u128::from(shares) * u128::from(TICK_MICROS) };
    assert!(2 * off <= off_max);
    assert!(!order.post_only || is_limit);
    assert_eq!(order.ends_at_s().is_some(), order.order_type == OrderType::Gtd);
}

fn contracts(version: Version, kind: MarketKind, chain: Chain) -> &'static [&'static str] {
    let is_amoy = chain == Chain::Amoy;
    match (version, kind) {
        (Version::V1, MarketKind::Standard) if is_amoy => {
            &["0xdfe02eb6733538f8ea35d585af8de5958ad99e40"]
        }
        (Version::V1, MarketKind::Standard) => &["0x4bfb41d5b3570defd03c39a9a4d8de6bd8b8982e"],
        (Version::V1, MarketKind::NegRisk) if is_amoy => &[
            "0xc5d563a36ae78145c45a50134d48a1215220f80a",
            "0xd91e80cf2e7be2e162c6513ced06f1dd0da35296",
        ],
        (Version::V1, MarketKind::NegRisk) => &["0xc5d563a36ae78145c45a50134d48a1215220f80a"],
        (Version::V2, MarketKind::Standard) => &["0xe111180000d2663c0091e4f400237545b87b996b"],
        (Version::V2, MarketKind::NegRisk) => &["0xe2222d279d744050d28e00520010520000310f59"],
        (Version::V3, MarketKind::Position) if is_amoy => {
            &["0x9fe6e61422adb6f610d8597f9684b16912d50c3d"]
        }
        (Version::V3, MarketKind::Position) => &["0xe3333700ca9d93003f00f0f71f8515005f6c00aa"],
        _ => &[],
    }
}

fn domain(version: Version, chain: Chain, contract: &str) -> Word {
    let version: &[u8] = match version {
        Version::V1 => b"1",
        Version::V2 => b"2",
        Version::V3 => b"3",
    };
    let name = keccak(&[b"Polymarket CTF Exchange"]);
    let chain = decimal(&chain.id().to_string());
    structure_hash(DOMAIN, &[name, keccak(&[version]), chain, right_aligned(&bytes(contract))])
}

fn wrapper_hash(type_text: &str, order: &SignedOrder, contents: Word) -> Word {
    let fields = [
        contents,
        keccak(&[b"DepositWallet"]),
        keccak(&[b"1"]),
        decimal(&order.chain.id().to_string()),
        right_aligned(order.maker.bytes()),
        Word::default(),
    ];
    structure_hash(type_text, &fields)
}

/// A field, given as its type and name, as 32 bytes.
fn word(field: &str, values: &Object<'_>) -> Word {
    let (kind, name) = field.split_once(' ').unwrap();
    match (kind, name) {
        (_, "side") => decimal(if text(values, name) == "BUY" { "0" } else { "1" }),
        (_, "salt" | "signatureType") => decimal(&parsed::<u64>(values[name]).to_string()),
        ("uint256", _) => decimal(&text(values, name)),
        _ => right_aligned(&bytes(&text(values, name))),
    }
}

fn text(values: &Object<'_>, name: &str) -> String {
    parsed(values[name])
}

fn parsed<'a, T: Deserialize<'a>>(value: &'a RawValue) -> T {
    serde_json::from_str(value.get()).expect("the field of an accepted order has its type")
}

/// The bytes of hexadecimal digits after `0x`.
fn bytes(text: &str) -> Vec<u8> {
    let digits = text.strip_prefix("0x").unwrap().as_bytes();
    let pairs = digits.chunks_exact(2).map(|pair| str::from_utf8(pair).unwrap());
    pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect()
}

fn right_aligned(bytes: &[u8]) -> Word {
    let mut word = Word::default();
    word[32 - bytes.len()..].copy_from_slice(bytes);
    word
}

fn decimal(digits: &str) -> Word {
    let mut word = Word::default();
    for digit in digits.bytes() {
        let mut carried = u32::from(digit - b'0');
        for byte in word.iter_mut().rev() {
            carried += u32::from(*byte) * 10;
            *byte = u8::try_from(carried % 256).unwrap();
            carried /= 256;
        }
        assert_eq!(carried, 0);
    }
    word
}

fn structure_hash(type_text: &str, words: &[Word]) -> Word {
    keccak(&[&keccak(&[type_text.as_bytes()]), words.as_flattened()])
}

fn digest(domain: Word, structure: Word) -> Word {
    keccak(&[&[0x19, 0x01], &domain, &structure])
}

fn keccak(parts: &[&[u8]]) -> Word {
    let mut keccak = Keccak::v256();
    for part in parts {
        keccak.update(part);
    }
    let mut hash = Word::default();
    keccak.finalize(&mut hash);
    hash
}

fn recovered(signature: &[u8], digest: Word) -> Option<Address> {
    let id = RecoveryId::try_from(i32::from(signature[64]) - 27).ok()?;
    let compact = signature[..64].try_into().unwrap();
    let signature = RecoverableSignature::from_compact(compact, id).ok()?;
    let key = signature.recover_ecdsa(Message::from_digest(digest)).ok()?;
    let hash = keccak(&[&key.serialize_uncompressed()[1..]]);
    Some(Address::from_bytes(*hash.last_chunk().unwrap()))
}
