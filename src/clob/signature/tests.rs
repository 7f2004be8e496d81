use proptest::prelude::*;
use secp256k1::SecretKey;
use serde_json::Value;

use super::address::AddressError;
use super::keccak::keccak256;
use super::wallets::Wallets;
use super::*;
use crate::vectors;

/// The private key of these tests: the bytes from 1 to 32.
fn key() -> SecretKey {
    SecretKey::from_secret_bytes(std::array::from_fn(|index| u8::try_from(index + 1).unwrap()))
        .unwrap()
}

/// Its address, as eth-account computes it.
const ADDRESS: &str = "0x6370eF2f4Db3611D657b90667De398a2Cc2a370C";

/// The order of the curve.
const ORDER: [u8; 32] = {
    let text = b"0xfffffffffffffffffffffffffffffffebaaedce6af48a03bbfd25e8cd0364141";
    text::bytes_from_hex(text).unwrap()
};

const OTHER_ADDRESS: &str = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";

/// The signature of a wallet, made here.
fn sign(key: &SecretKey, chain: Chain, address: Address, timestamp: &str, nonce: u64) -> [u8; 65] {
    sign_clob_auth(key, chain, address, timestamp.as_bytes(), nonce)
}

fn signature_text(bytes: &[u8]) -> String {
    format!("0x{}", text::hex(bytes))
}

fn verify(
    address: &str,
    signature: &str,
    timestamp: &str,
    nonce: &str,
) -> Result<ClobAuth, L1Error> {
    let headers = L1Headers {
        address: address.as_bytes(),
        signature: signature.as_bytes(),
        timestamp: timestamp.as_bytes(),
        nonce: nonce.as_bytes(),
    };
    headers.verify()
}

#[test]
fn keccak_is_the_hash_of_ethereum() {
    let rows: [(&[&[u8]], &str); 3] = [
        (&[], "c5d2460186f7233c927e7db2dcc703c0e500b653ca82273b7bfad8045d85a470"),
        (&[b"abc"], "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
        (&[b"a", b"", b"bc"], "4e03657aea45a94fc7d47ba826c8d667c0d1e6e33a64a036ec44f58fa12d6c45"),
    ];
    for (parts, expected) in rows {
        assert_eq!(text::hex(&keccak256(parts)), expected);
    }
}

/// The examples of EIP-55.
#[test]
fn addresses_have_the_checksum_of_eip_55() {
    for checksummed in [
        "0x52908400098527886E0F7030069857D2E4169EE7",
        "0x8617E340B3D01FA5F11F306F4090FD50E238070D",
        "0xde709f2102306220921060314715629080e2fb77",
        "0x27b1fdb04752bbc536007a920d24acb045561c26",
        "0x5aAeb6053F3E94C9b9A09f33669435E7Ef1BeAed",
        "0xfB6916095ca1df60bB79Ce92cE3Ea74c37c5d359",
        "0xdbF03B407c01E7cD3CBea99509d93f8DDDC8C6FB",
        "0xD1220A0cf47c7B9Be7A2E6BA89F429762e7b9aDb",
    ] {
        let address = Address::parse(checksummed).unwrap();
        assert_eq!(address.checksummed(), checksummed);
        let lower = checksummed.to_ascii_lowercase();
        assert_eq!(address.to_string(), lower);
        assert_eq!(format!("{address:?}"), lower);
        let upper = format!("0x{}", checksummed[2..].to_ascii_uppercase());
        assert_eq!([Address::parse(lower), Address::parse(upper)], [Ok(address); 2]);
    }
}

#[test]
fn an_address_is_0x_and_40_digits() {
    for text in [
        "",
        "0x",
        "6370eF2f4Db3611D657b90667De398a2Cc2a370C",
        "0X6370eF2f4Db3611D657b90667De398a2Cc2a370C",
        "0x6370eF2f4Db3611D657b90667De398a2Cc2a370",
        "0x6370eF2f4Db3611D657b90667De398a2Cc2a370C0",
        "0x6370eF2f4Db3611D657b90667De398a2Cc2a370g",
        " 0x6370eF2f4Db3611D657b90667De398a2Cc2a370C",
        "0x+370eF2f4Db3611D657b90667De398a2Cc2a370C",
        "0x6370eF2f4Db3611D657b90667De398a2Cc2a37\u{e9}",
    ] {
        assert_eq!(Address::parse(text), Err(AddressError), "{text}");
    }
}

/// The signatures are those of eth-account 0.13.7.
#[test]
fn a_wallet_proves_itself_on_either_chain() {
    let rows = [
        (
            Chain::Polygon,
            "1800000000",
            "0",
            "0xd51e80b371cb391639fa05f895910ee7418f683c35432e5c6aca8fcf046373ff\
             6cf2b07a3ffa72842772a7a7c033af94f39728ac7198204800485605e7493c6c1c",
        ),
        (
            Chain::Amoy,
            "1800000000",
            "0",
            "0x15b64a5d56da46d323cceb921a284bddf5e46d8ab6d768b5bfad2d82d88561d3\
             6099668bebeb3dae92fee526c3df46bbd76267ffd7b4fe6381c69f67eee97eb71b",
        ),
        (
            Chain::Polygon,
            "1800000001",
            "18446744073709551615",
            "0xcccc3322d87063c61f9f676c0c85e59700b671716bfe6e05d2dc48612563745c\
             1f6a3d84c1720ee2b8f181038d69d72fad4c450bf1b709218ac44b0295120f421b",
        ),
        (
            Chain::Amoy,
            "1",
            "7",
            "0x58f25b5760b21a9722abcf148f97862c8b4bc8cf01aae6dc70cda45f2545330d\
             1ced87843f3aaccc6282295cd1e849e03303961feff6965c75c0fb1573a2c6911b",
        ),
    ];
    let address = Address::parse(ADDRESS).unwrap();
    assert_eq!(address.checksummed(), ADDRESS);
    for (chain, timestamp, nonce, signature) in rows {
        let proof = ClobAuth {
            address,
            chain,
            timestamp_s: timestamp.parse().unwrap(),
            nonce: nonce.parse().unwrap(),
        };
        let made_here = sign(&key(), chain, address, timestamp, proof.nonce);
        assert_eq!(signature_text(&made_here), signature);
        for address in [ADDRESS, &ADDRESS.to_ascii_lowercase()] {
            assert_eq!(verify(address, signature, timestamp, nonce), Ok(proof));
        }
        let upper = format!("0x{}", signature[2..].to_ascii_uppercase());
        assert_eq!(verify(ADDRESS, &upper, timestamp, nonce), Ok(proof));
    }
}

#[test]
fn a_flaw_in_one_header_is_named() {
    let address = Address::parse(ADDRESS).unwrap();
    let good = signature_text(&sign(&key(), Chain::Polygon, address, "1800000000", 5));
    let other = Err(L1Error::OtherSigner);
    let no_text = Err(L1Error::Signature(SignatureError::Text));
    #[rustfmt::skip]
    let rows = [
        (ADDRESS, &*good, "1800000000", "5", Ok(Chain::Polygon)),
        (ADDRESS, &good, "1800000000", "6", other),
        (ADDRESS, &good, "1800000001", "5", other),
        (ADDRESS, &good, "01800000000", "5", other),
        (OTHER_ADDRESS, &good, "1800000000", "5", other),
        ("", &good, "1800000000", "5", Err(L1Error::Address(AddressError))),
        (&ADDRESS[..41], &good, "1800000000", "5", Err(L1Error::Address(AddressError))),
        (ADDRESS, &good, "", "5", Err(L1Error::Timestamp)),
        (ADDRESS, &good, "-1800000000", "5", Err(L1Error::Timestamp)),
        (ADDRESS, &good, "9223372036854775808", "5", Err(L1Error::Timestamp)),
        (ADDRESS, &good, "1800000000", "", Err(L1Error::Nonce)),
        (ADDRESS, &good, "1800000000", "-1", Err(L1Error::Nonce)),
        (ADDRESS, &good, "1800000000", "+5", Err(L1Error::Nonce)),
        (ADDRESS, &good, "1800000000", "0x5", Err(L1Error::Nonce)),
        (ADDRESS, &good, "1800000000", "18446744073709551616", Err(L1Error::Nonce)),
        (ADDRESS, "", "1800000000", "5", no_text),
        (ADDRESS, "0x", "1800000000", "5", no_text),
        (ADDRESS, &good[2..], "1800000000", "5", no_text),
        (ADDRESS, &good[..good.len() - 2], "1800000000", "5", no_text),
        (ADDRESS, &good[..good.len() - 1], "1800000000", "5", no_text),
        (ADDRESS, &format!("{good}00"), "1800000000", "5", no_text),
        (ADDRESS, &good.replace('0', "z"), "1800000000", "5", no_text),
    ];
    for (address, signature, timestamp, nonce, expected) in rows {
        let chain = verify(address, signature, timestamp, nonce).map(|proof| proof.chain);
        assert_eq!(chain, expected, "{address} {signature} {timestamp} {nonce}");
    }
}

#[test]
fn a_signature_by_another_key_or_for_another_chain_proves_nothing() {
    let address = Address::parse(ADDRESS).unwrap();
    let stranger = SecretKey::from_secret_bytes([7; 32]).unwrap();
    let by_stranger = sign(&stranger, Chain::Polygon, address, "1800000000", 0);
    let result = verify(ADDRESS, &signature_text(&by_stranger), "1800000000", "0");
    assert_eq!(result, Err(L1Error::OtherSigner));

    let hash = clob_auth_hash(address, b"1800000000", 0);
    let mainnet = Domain { name: "ClobAuthDomain", version: "1", chain_id: 1 };
    let bytes = Signature::sign(&key(), mainnet.digest(&hash));
    let result = verify(ADDRESS, &signature_text(&bytes), "1800000000", "0");
    assert_eq!(result, Err(L1Error::OtherSigner));
}

/// The difference of two numbers of 32 bytes, of which the first is the greater.
fn difference(from: &[u8; 32], subtracted: &[u8]) -> [u8; 32] {
    let mut result = *from;
    let mut borrow = 0;
    for (byte, subtracted) in result.iter_mut().zip(subtracted).rev() {
        let value = 256 + i32::from(*byte) - i32::from(*subtracted) - borrow;
        borrow = i32::from(value < 256);
        *byte = u8::try_from(value % 256).unwrap();
    }
    result
}

#[test]
fn a_malleable_or_impossible_signature_is_refused() {
    #[track_caller]
    fn check(change: impl Fn(&mut [u8; 65]), expected: Result<(), L1Error>) {
        let address = Address::parse(ADDRESS).unwrap();
        let mut bytes = sign(&key(), Chain::Polygon, address, "1800000000", 0);
        change(&mut bytes);
        let result = verify(ADDRESS, &signature_text(&bytes), "1800000000", "0");
        assert_eq!(result.map(drop), expected, "{}", signature_text(&bytes));
    }
    let no_signer = Err(L1Error::Signature(SignatureError::NoSigner));
    let high = Err(L1Error::Signature(SignatureError::HighS));
    check(|_| (), Ok(()));
    check(|bytes| bytes[64] = 55 - bytes[64], Err(L1Error::OtherSigner));
    for v in [0, 1, 26, 29, 30, 31, 255] {
        let expected = Err(L1Error::Signature(SignatureError::RecoveryId { v }));
        check(|bytes| bytes[64] = v, expected);
    }
    // The same signature with a high s, which libsecp256k1 recovers.
    let malleated = |bytes: &mut [u8; 65]| {
        let s = difference(&ORDER, &bytes[32..64]);
        bytes[32..64].copy_from_slice(&s);
        bytes[64] = 55 - bytes[64];
    };
    check(malleated, high);
    check(|bytes| bytes[..32].fill(0), no_signer);
    check(|bytes| bytes[32..64].fill(0), no_signer);
    check(|bytes| bytes[..32].copy_from_slice(&ORDER), no_signer);
    check(|bytes| bytes[32..64].copy_from_slice(&ORDER), high);
    check(|bytes| bytes[..64].fill(0xff), high);
    // Half the order, rounded down and up.
    let mut half = [0; 32];
    for (at, byte) in half.iter_mut().enumerate() {
        let carried = if at == 0 { 0 } else { ORDER[at - 1] & 1 };
        *byte = carried << 7 | ORDER[at] >> 1;
    }
    check(|bytes| bytes[32..64].copy_from_slice(&half), Err(L1Error::OtherSigner));
    half[31] += 1;
    check(|bytes| bytes[32..64].copy_from_slice(&half), high);
    // No point of the curve has 5 as its x.
    check(|bytes| (bytes[..31].fill(0), bytes[31] = 5).0, no_signer);
}

/// The addresses are those of polymarket-client 0.14.0.
#[test]
fn the_contracts_of_a_signer_follow_from_its_address() {
    let rows = [
        (
            OTHER_ADDRESS,
            [
                "0x365f0CA36Ae1f641E02fE3B7743673da42A13A70",
                "0xd93B25cb943D14d0d34FBaF01Fc93a0f8b5F6E47",
                "0xBc0fF067b7740Eff76C1ca93c875Ba6B890d6B50",
                "0xdf8b9E8f9AB23f261F6e1B171B7454ae6E46Ba76",
            ],
        ),
        (
            "0x0000000000000000000000000000000000000001",
            [
                "0x7754536ecd85c00b2E0CF9c1aA679340D8550756",
                "0x766b6851A199BF91Ae3fa13B1cfaC5187355118f",
                "0x94bF330955A0b957662fEaF878dE77bf25f76cD9",
                "0x57ffBc34De23124fAeb8387fcd689d314E57aCcD",
            ],
        ),
    ];
    for (signer, expected) in rows {
        let wallets = Wallets::of(Address::parse(signer).unwrap());
        let found = [wallets.proxy, wallets.safe, wallets.deposit, wallets.deposit_without_beacon];
        assert_eq!(found.map(|wallet| wallet.checksummed()), expected, "of {signer}");
    }
}

/// Verifies the L1 headers of a vector.
fn verify_vector(vector: &Value) -> Result<ClobAuth, L1Error> {
    let header = |name| vectors::text(&vector["headers"], name);
    let timestamp = header("POLY_TIMESTAMP");
    verify(header("POLY_ADDRESS"), header("POLY_SIGNATURE"), timestamp, header("POLY_NONCE"))
}

#[test]
fn what_clients_sent_proves_their_wallet_and_forgeries_do_not() {
    let Some(file) = vectors::read() else { return };
    let mut accepted = 0;
    for vector in vectors::rows(&file, "vectors").iter().filter(|it| it["kind"] == "l1") {
        let proof = verify_vector(vector).unwrap_or_else(|error| panic!("{error}: {vector}"));
        let expected = &vector["expect"];
        assert_eq!(proof.address.checksummed(), vectors::text(expected, "address"));
        assert_eq!(proof.chain.id(), vector["chain_id"], "{vector}");
        let timestamp = vectors::text(&vector["headers"], "POLY_TIMESTAMP");
        let hash = clob_auth_hash(proof.address, timestamp.as_bytes(), proof.nonce);
        let digest = signature_text(&clob_auth_digest(proof.chain, &hash));
        assert_eq!(digest, vectors::text(expected, "digest"));
        accepted += 1;
    }
    let mut refused = 0;
    let is_l1 = |forgery: &&Value| vectors::text(forgery, "name").starts_with("L1:");
    for forgery in vectors::rows(&file, "forgeries").iter().filter(is_l1) {
        assert!(verify_vector(forgery).is_err(), "{forgery}");
        refused += 1;
    }
    let mut wallet_count = 0;
    for row in vectors::rows(&file, "wallets") {
        let wallets = Wallets::of(Address::parse(vectors::text(row, "address")).unwrap());
        let named = [
            (wallets.proxy, "proxy"),
            (wallets.safe, "safe"),
            (wallets.deposit, "deposit"),
            (wallets.deposit_without_beacon, "deposit_uups"),
        ];
        for (wallet, name) in named {
            assert_eq!(wallet.checksummed(), vectors::text(row, name), "{name}");
        }
        wallet_count += 1;
    }
    eprintln!("{accepted} accepted, {refused} refused, the contracts of {wallet_count} signers");
    assert!(accepted >= 24 && refused >= 64 && wallet_count >= 3);
}

proptest! {
    #[test]
    fn any_headers_are_verified_without_a_panic(
        headers in prop::array::uniform4(prop::collection::vec(any::<u8>(), 0..200)),
    ) {
        let [address, signature, timestamp, nonce] = &headers;
        let headers = L1Headers { address, signature, timestamp, nonce };
        prop_assert!(headers.verify().is_err());
    }

    #[test]
    fn well_formed_headers_are_verified_without_a_panic(
        address: [u8; 20],
        compact: [[u8; 32]; 2],
        v in 27_u8..=28,
        timestamp: u32,
        nonce: u64,
    ) {
        let signature = [compact.as_flattened(), &[v]].concat();
        let address = signature_text(&address);
        let (timestamp, nonce) = (timestamp.to_string(), nonce.to_string());
        prop_assert!(verify(&address, &signature_text(&signature), &timestamp, &nonce).is_err());
    }

    #[test]
    fn a_signature_with_another_bit_proves_nothing(
        secret: [u8; 32],
        timestamp: u32,
        nonce: u64,
        flipped in 0..65 * 8_usize,
    ) {
        let Ok(key) = SecretKey::from_secret_bytes(secret) else { return Ok(()) };
        let public = secp256k1::PublicKey::from_secret_key(&key).serialize_uncompressed();
        let address = Address::from_hash(&keccak256(&[&public[1..]]));
        let (text, timestamp, nonce_text) =
            (address.to_string(), timestamp.to_string(), nonce.to_string());
        let mut bytes = sign(&key, Chain::Amoy, address, &timestamp, nonce);
        let proof = verify(&text, &signature_text(&bytes), &timestamp, &nonce_text);
        prop_assert_eq!(proof.unwrap().address, address);
        bytes[flipped / 8] ^= 1 << (flipped % 8);
        prop_assert!(verify(&text, &signature_text(&bytes), &timestamp, &nonce_text).is_err());
    }
}
