use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::vectors;

const ADDRESS: &str = "0x6370eF2f4Db3611D657b90667De398a2Cc2a370C";

/// The master key of these tests: the bytes from 0 to 31.
fn master_key() -> MasterKey {
    MasterKey::new(&std::array::from_fn(|index| u8::try_from(index).unwrap()))
}

fn credentials(nonce: u64, generation: u32) -> Credentials {
    master_key().credentials(Address::parse(ADDRESS).unwrap(), nonce, generation)
}

fn texts(credentials: &Credentials) -> [String; 3] {
    [credentials.api_key(), credentials.secret(), credentials.passphrase()]
}

/// Computed once by Python's `hmac`. Other values would lock out every user.
#[test]
fn the_derivation_never_changes() {
    let rows = [
        (
            credentials(0, 0),
            [
                "d05bcbb9-efbd-47b6-a124-639933a50049",
                "gBkizdp1qGQRgzwwweSs5NdXC8zel3rFN1Fz7MFJw5I=",
                "b2202d8192aacb012d4ff12a3db9c0179132fb8706cb78e3a4654c3006c18149",
            ],
        ),
        (
            credentials(0, 1),
            [
                "656ff1fe-5e64-488e-96d9-460760134576",
                "94wHR4_9j94RHQC5qMBzeuE-SVzUwJBpokBjX7MwhaA=",
                "710fbd779fd6af971066f540386c85076ea64b31de195044245ca7efb83ff168",
            ],
        ),
        (
            credentials(1, 0),
            [
                "4f2cda69-dd81-4217-b9a5-a6ea22423a92",
                "af2HgPOkViXSjNeMWg8qkWgPtos9vFV0e72XcTNa-rg=",
                "9a44a32c3ce440ffa131200671a7e2514334a462c8f247c454c25c78412f7f22",
            ],
        ),
        (
            credentials(u64::MAX, u32::MAX),
            [
                "12d1cb4f-36c1-4ba1-a946-89de1ddf444c",
                "Al-pUmHE1vtN-n1NbsQRARL49jjdQrxc4Lvkf8D1heE=",
                "c66d5a05aefbc19b5217f17809502b64458c5bbac23d3387891066bf6bc579d6",
            ],
        ),
        (
            MasterKey::new(&[0xff; 32]).credentials(
                Address::parse(format!("0x{}", "0".repeat(40))).unwrap(),
                0,
                0,
            ),
            [
                "eb7b2c38-33ad-4a6f-bc79-4dfef4134e42",
                "DSQA_-E4xJTssXTzxcYRWXkmoDgf88bI4slAhv9ROIE=",
                "e93280fe92ce17a8ce5c04ebde8ebeb28c3c2f5baf0117812668092a82763cdc",
            ],
        ),
    ];
    for (credentials, expected) in rows {
        assert_eq!(texts(&credentials), expected);
    }
}

#[test]
fn debug_shows_no_secret() {
    let credentials = credentials(0, 0);
    assert_eq!(format!("{credentials:?}"), "Credentials(d05bcbb9-efbd-47b6-a124-639933a50049)");
    assert_eq!(format!("{:?}", master_key()), "MasterKey(…)");
}

#[test]
fn only_the_whole_passphrase_is_accepted() {
    let credentials = credentials(0, 0);
    let passphrase = credentials.passphrase();
    assert!(credentials.has_passphrase(passphrase.as_bytes()));
    let upper = passphrase.to_ascii_uppercase();
    let longer = format!("{passphrase}0");
    let other = self::credentials(0, 1).passphrase();
    for presented in ["", &passphrase[1..], &upper, &longer, &other] {
        assert!(!credentials.has_passphrase(presented.as_bytes()), "{presented}");
    }
}

/// The signatures are computed by Python's `hmac`.
#[test]
fn a_signature_is_for_one_request() {
    let credentials = credentials(0, 0);
    let check = |line: &str, body: &str, signature: &str| {
        let mut words = line.split(' ');
        let mut word = || words.next().unwrap();
        let (timestamp, method, path) = (word().as_bytes(), word(), word());
        let request = SignedRequest { timestamp, method, path, body: body.as_bytes() };
        credentials.has_signed(&request, signature.as_bytes())
    };
    let body = r#"{"a":1}"#;
    let posted = "Idp2rR-l7xzfDHi8USSVYNcABjhyW0WlLA_VHWXHsO0=";
    let read = "Kk1g5RF6WVx6ifGP4cii9M7ul4xAXkKu_20C2W04tBY=";
    let plain = "T8ObR6NQ4yXgc19kUlvAFqsSuxAvYoJjCvNAtGOXwu4=";
    let replaced = "vOevSvHg_Mu14RbXOL1tShhaImZof6RGjLVwnSoYp-4=";
    let rows = [
        ("1800000000 POST /order", body, posted, true),
        ("1800000000 GET /data/orders", "", read, true),
        // The body of a GET counts too.
        ("1800000000 GET /data/orders", body, read, false),
        ("1800000001 POST /order", body, posted, false),
        ("1800000000 PUT /order", body, posted, false),
        ("1800000000 POST /orders", body, posted, false),
        ("1800000000 POST /order", r#"{"a":2}"#, posted, false),
        ("1800000000 POST /order", "", posted, false),
        ("1800000000 POST /order", body, "", false),
        ("1800000000 POST /order", body, "AAAA", false),
        // As other kinds of base64 would have it.
        ("1800000000 POST /order", body, "Idp2rR+l7xzfDHi8USSVYNcABjhyW0WlLA/VHWXHsO0=", false),
        ("1800000000 POST /order", body, posted.trim_end_matches('='), false),
        // Signed as it is, or with the other quotation mark, and sent as it is.
        ("1800000000 POST /order", r#"{"a":"it's"}"#, plain, true),
        ("1800000000 POST /order", r#"{"a":"it's"}"#, replaced, true),
        ("1800000000 POST /order", r#"{"a":"it"s"}"#, replaced, true),
        ("1800000000 POST /order", r#"{"a":"it"s"}"#, plain, false),
        ("1800000000 POST /order", r#"{"a":"it''s"}"#, replaced, false),
        ("1800000000 POST /order", r#"{'a':"it"s"}"#, replaced, true),
        ("1800000000 POST /order", r"{'a':'it's'}", replaced, true),
    ];
    for (line, body, signature, expected) in rows {
        assert_eq!(check(line, body, signature), expected, "{line} {body} {signature}");
    }
    let other = self::credentials(1, 0);
    let (timestamp, body) = (b"1800000000", body.as_bytes());
    let request = SignedRequest { timestamp, method: "POST", path: "/order", body };
    assert!(!other.has_signed(&request, posted.as_bytes()));
}

/// The credentials of a vector, which are the venue's and derived from nothing.
fn parse(row: &Value) -> Credentials {
    let digits = format!("0x{}", vectors::text(row, "apiKey").replace('-', ""));
    let passphrase = format!("0x{}", vectors::text(row, "passphrase"));
    let credentials = Credentials {
        api_key: text::bytes_from_hex(digits.as_bytes()).unwrap(),
        secret: URL_SAFE.decode(vectors::text(row, "secret")).unwrap().try_into().unwrap(),
        passphrase: text::bytes_from_hex(passphrase.as_bytes()).unwrap(),
    };
    let expected = ["apiKey", "secret", "passphrase"].map(|name| vectors::text(row, name));
    assert_eq!(texts(&credentials), expected);
    credentials
}

/// The wallet and the credentials of each API key.
type Keys<'a> = BTreeMap<&'a str, (Address, Credentials)>;

/// Whether a request proves that it comes from a wallet.
fn is_proved(request: &Value, keys: &Keys<'_>) -> bool {
    let header = |name| vectors::text(&request["headers"], name).as_bytes();
    let api_key = vectors::text(&request["headers"], "POLY_API_KEY");
    let Some((address, credentials)) = keys.get(api_key) else { return false };
    let target = vectors::text(request, "target");
    let signed = SignedRequest {
        timestamp: header("POLY_TIMESTAMP"),
        method: vectors::text(request, "method"),
        path: target.split_once('?').map_or(target, |(path, _)| path),
        body: vectors::text(request, "body").as_bytes(),
    };
    Address::parse(header("POLY_ADDRESS")) == Ok(*address)
        && credentials.has_passphrase(header("POLY_PASSPHRASE"))
        && credentials.has_signed(&signed, header("POLY_SIGNATURE"))
}

#[test]
fn what_clients_signed_is_accepted_and_forgeries_are_not() {
    let Some(file) = vectors::read() else { return };
    let signed = vectors::rows(&file, "vectors").iter().filter(|it| it["kind"] != "l1");
    let signed: Vec<&Value> = signed.collect();
    let keys: Keys<'_> = signed
        .iter()
        .map(|vector| {
            let row = &vector["credentials"];
            let address = vectors::text(&vector["expect"], "address");
            (vectors::text(row, "apiKey"), (Address::parse(address).unwrap(), parse(row)))
        })
        .collect();
    let mut l2_count = 0;
    for vector in &signed {
        assert!(is_proved(vector, &keys), "{vector}");
        l2_count += usize::from(vector["kind"] == "l2");
    }
    let (mut refused, mut order_count) = (0, 0);
    for forgery in vectors::rows(&file, "forgeries") {
        let name = vectors::text(forgery, "name");
        if name.starts_with("L2:") {
            assert!(!is_proved(forgery, &keys), "{forgery}");
            refused += 1;
        } else if !name.starts_with("L1:") {
            // Only the order in its body is forged.
            assert!(is_proved(forgery, &keys), "{forgery}");
            order_count += 1;
        }
    }
    eprintln!(
        "{} accepted, of which {l2_count} without an order; {refused} refused; {order_count} \
         forged orders have a good signature around them",
        signed.len(),
    );
    assert!(l2_count >= 68 && refused >= 22 && order_count > 0);
}

proptest! {
    #[test]
    fn the_text_of_credentials_has_its_form(
        master: [u8; 32],
        address: [u8; 20],
        nonce: u64,
        generation: u32,
    ) {
        let address = Address::parse(format!("0x{}", text::hex(&address))).unwrap();
        let credentials = MasterKey::new(&master).credentials(address, nonce, generation);
        let api_key = credentials.api_key();
        let parts: Vec<&str> = api_key.split('-').collect();
        prop_assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), UUID_PARTS);
        prop_assert!(parts.concat().bytes().all(|it| matches!(it, b'0'..=b'9' | b'a'..=b'f')));
        prop_assert!(parts[2].starts_with('4') && parts[3].starts_with(['8', '9', 'a', 'b']));
        prop_assert_eq!(URL_SAFE.decode(credentials.secret()).unwrap(), credentials.secret);
        prop_assert_eq!(credentials.passphrase().len(), 64);
        prop_assert!(credentials.has_passphrase(credentials.passphrase().as_bytes()));
    }

    #[test]
    fn any_request_is_checked_without_a_panic(
        parts in prop::array::uniform3(prop::collection::vec(any::<u8>(), 0..100)),
        method: String,
        path: String,
    ) {
        let [timestamp, body, signature] = &parts;
        let request = SignedRequest { timestamp, method: &method, path: &path, body };
        prop_assert!(!credentials(0, 0).has_signed(&request, signature));
        prop_assert!(!credentials(0, 0).has_passphrase(signature));
    }
}
