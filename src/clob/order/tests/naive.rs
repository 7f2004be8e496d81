//! A second implementation of what wallets sign: by the letter of EIP-712, from names and types of
//! fields, over the JSON of an order.

use serde_json::Value;

use super::*;

/// A type and a name.
pub(super) type Field = (&'static str, &'static str);

/// The contracts that settle these orders.
pub(super) fn contracts(version: Version, kind: MarketKind) -> Vec<(Chain, &'static str)> {
    use Chain::{Amoy, Polygon};
    match (version, kind) {
        (Version::V1, MarketKind::Standard) => vec![
            (Polygon, "0x4bfb41d5b3570defd03c39a9a4d8de6bd8b8982e"),
            (Amoy, "0xdfe02eb6733538f8ea35d585af8de5958ad99e40"),
        ],
        (Version::V1, MarketKind::NegRisk) => vec![
            (Polygon, "0xc5d563a36ae78145c45a50134d48a1215220f80a"),
            (Amoy, "0xc5d563a36ae78145c45a50134d48a1215220f80a"),
            (Amoy, "0xd91e80cf2e7be2e162c6513ced06f1dd0da35296"),
        ],
        (Version::V2, MarketKind::Standard) => vec![
            (Polygon, "0xe111180000d2663c0091e4f400237545b87b996b"),
            (Amoy, "0xe111180000d2663c0091e4f400237545b87b996b"),
        ],
        (Version::V2, MarketKind::NegRisk) => vec![
            (Polygon, "0xe2222d279d744050d28e00520010520000310f59"),
            (Amoy, "0xe2222d279d744050d28e00520010520000310f59"),
        ],
        (Version::V3, MarketKind::Position) => vec![
            (Polygon, "0xe3333700ca9d93003f00f0f71f8515005f6c00aa"),
            (Amoy, "0x9fe6e61422adb6f610d8597f9684b16912d50c3d"),
        ],
        _ => vec![],
    }
}

/// The fields of an order.
pub(super) fn fields(version: Version) -> Vec<Field> {
    let text = if version == Version::V1 {
        "uint256 salt address maker address signer address taker uint256 tokenId uint256 \
         makerAmount uint256 takerAmount uint256 expiration uint256 nonce uint256 feeRateBps \
         uint8 side uint8 signatureType"
    } else {
        "uint256 salt address maker address signer uint256 tokenId uint256 makerAmount uint256 \
         takerAmount uint8 side uint8 signatureType uint256 timestamp bytes32 metadata bytes32 \
         builder"
    };
    let words: Vec<&str> = text.split_whitespace().collect();
    words.chunks(2).map(|pair| (pair[0], pair[1])).collect()
}

/// The text of a type, such as `Order(uint256 salt,address maker)`.
pub(super) fn type_text(name: &str, fields: &[Field]) -> String {
    let fields: Vec<String> =
        fields.iter().map(|(kind, field)| format!("{kind} {field}")).collect();
    format!("{name}({})", fields.join(","))
}

/// A number of up to 78 digits as 32 bytes.
fn number(digits: &str) -> Word {
    let mut word = Word::default();
    for digit in digits.chars() {
        let mut carried = digit.to_digit(10).unwrap();
        for byte in word.iter_mut().rev() {
            carried += u32::from(*byte) * 10;
            *byte = u8::try_from(carried % 256).unwrap();
            carried /= 256;
        }
        assert_eq!(carried, 0, "{digits}");
    }
    word
}

/// The value of a field as 32 bytes.
fn word(kind: &str, value: &Value) -> Word {
    match (kind, value) {
        ("uint8", Value::String(side)) => number(if side == "BUY" { "0" } else { "1" }),
        ("uint8" | "uint256", Value::Number(value)) => number(&value.to_string()),
        ("uint256", Value::String(digits)) => number(digits),
        ("address", Value::String(text)) => {
            let digits = format!("0x{}{}", "0".repeat(24), &text[2..]);
            text::bytes_from_hex(digits.as_bytes()).unwrap()
        }
        ("bytes32", Value::String(text)) => text::bytes_from_hex(text.as_bytes()).unwrap(),
        ("string", Value::String(text)) => keccak256(&[text.as_bytes()]),
        _ => panic!("{kind}: {value}"),
    }
}

fn structure_hash(type_text: &str, fields: &[Field], values: &Value) -> Word {
    let mut content = keccak256(&[type_text.as_bytes()]).to_vec();
    for (kind, name) in fields {
        content.extend(word(kind, &values[name]));
    }
    keccak256(&[&content])
}

/// The hash of an `order`.
pub(super) fn order_hash(order: &Value, version: Version) -> Word {
    let fields = fields(version);
    structure_hash(&type_text("Order", &fields), &fields, order)
}

/// The domain of a contract.
pub(super) fn separator(version: Version, chain: Chain, contract: &str) -> Word {
    let fields = [
        ("string", "name"),
        ("string", "version"),
        ("uint256", "chainId"),
        ("address", "verifyingContract"),
    ];
    let version = match version {
        Version::V1 => "1",
        Version::V2 => "2",
        Version::V3 => "3",
    };
    let domain = json!({
        "name": "Polymarket CTF Exchange",
        "version": version,
        "chainId": chain.id(),
        "verifyingContract": contract,
    });
    structure_hash(&type_text("EIP712Domain", &fields), &fields, &domain)
}

/// The text of what is signed in the name of a deposit wallet.
pub(super) fn wrapped_type_text() -> String {
    let fields = [
        ("Order", "contents"),
        ("string", "name"),
        ("string", "version"),
        ("uint256", "chainId"),
        ("address", "verifyingContract"),
        ("bytes32", "salt"),
    ];
    type_text("TypedDataSign", &fields) + &type_text("Order", &self::fields(Version::V2))
}

/// The hash of what is signed in the name of the deposit wallet that is the signer of an `order`.
pub(super) fn wrapped_hash(order: &Value, version: Version, chain: Chain) -> Word {
    let fields = [
        ("bytes32", "contents"),
        ("string", "name"),
        ("string", "version"),
        ("uint256", "chainId"),
        ("address", "verifyingContract"),
        ("bytes32", "salt"),
    ];
    let values = json!({
        "contents": hex(order_hash(order, version)),
        "name": "DepositWallet",
        "version": "1",
        "chainId": chain.id(),
        "verifyingContract": order["signer"],
        "salt": hex([0; 32]),
    });
    structure_hash(&wrapped_type_text(), &fields, &values)
}

/// The digest of the order in a body, if by the letter of the protocol this account has signed it
/// for a contract of such markets.
pub(super) fn signed_by(body: &Value, account: Address, kind: MarketKind) -> Option<Word> {
    let order = &body["order"];
    let version = match (order["timestamp"].is_null(), kind) {
        (true, _) => Version::V1,
        (false, MarketKind::Position) => Version::V3,
        (false, _) => Version::V2,
    };
    let is_deposit = order["signatureType"] == 3;
    let wallets = Wallets::of(account);
    let named = ["maker", "signer"].map(|name| Address::parse(order[name].as_str()?).ok());
    let is_named = |maker, signer| named == [Some(maker), Some(signer)];
    let has_wallets = match order["signatureType"].as_u64()? {
        0 => is_named(account, account),
        1 => is_named(wallets.proxy, account),
        2 => is_named(wallets.safe, account),
        3 if version != Version::V1 => {
            [wallets.deposit, wallets.deposit_without_beacon].iter().any(|&it| is_named(it, it))
        }
        _ => false,
    };
    let bytes = order["signature"].as_str()?.get(2..)?;
    let signature = Signature::parse(format!("0x{}", bytes.get(..130)?).as_bytes()).ok()?;
    for (chain, contract) in contracts(version, kind) {
        let separator = separator(version, chain, contract);
        let hash = order_hash(order, version);
        let signed = if is_deposit { wrapped_hash(order, version, chain) } else { hash };
        if has_wallets && signature.signer(eip712::digest(&separator, &signed)) == Ok(account) {
            return Some(eip712::digest(&separator, &hash));
        }
    }
    None
}

#[test]
fn constants_are_the_hashes_of_their_texts() {
    let v1 = type_text("Order", &fields(Version::V1));
    let v2 = type_text("Order", &fields(Version::V2));
    assert_eq!(digest::V2_TYPE, v2);
    let rows = [
        (digest::V1_TYPE_HASH, &*v1),
        (digest::V2_TYPE_HASH, &v2),
        (wrapped::TYPED_DATA_SIGN_HASH, &wrapped_type_text()),
        (wrapped::NAME_HASH, "DepositWallet"),
        (wrapped::VERSION_HASH, "1"),
    ];
    for (hash, text) in rows {
        assert_eq!(hex(hash), hex(keccak256(&[text.as_bytes()])), "{text}");
    }
}

#[test]
fn domains_are_those_of_the_contracts() {
    let v1 = digest::Rest::V1 { taker: Address::from_bytes([0; 20]), nonce: 0, fee_rate_bps: 0 };
    let v2 = digest::Rest::V2 { timestamp_ms: 0, metadata: [0; 32], builder: [0; 32] };
    let mut count = 0;
    for kind in KINDS {
        for rest in [v1, v2] {
            let Some((version, exchanges)) = exchanges(&rest, kind) else {
                assert_eq!((rest, kind), (v1, MarketKind::Position));
                continue;
            };
            let found: Vec<_> = exchanges.iter().map(|it| (it.chain, hex(it.separator))).collect();
            let expected = contracts(version, kind).into_iter();
            let expected: Vec<_> = expected
                .map(|(chain, contract)| (chain, hex(separator(version, chain, contract))))
                .collect();
            assert_eq!(found, expected, "{version:?} {kind:?}");
            count += found.len();
        }
    }
    assert_eq!(count, 11);
}
