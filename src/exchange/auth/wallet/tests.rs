use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;

use super::*;

const NOW_S: i64 = 1_800_000_000;
const PATH: &str = "/order";

fn wallet() -> GrantedWallet {
    let grant = WalletGrant { address: [0xab; 20], nonce: 5 };
    GrantedWallet { grant, generation: 9 }
}

fn master() -> MasterKey {
    MasterKey::new(&[7; 32])
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Signs as a client does.
fn sign(
    credentials: &Credentials,
    timestamp: &str,
    method: &str,
    path: &str,
    body: &str,
) -> String {
    let secret = URL_SAFE.decode(credentials.secret()).unwrap();
    let key = hmac::Key::new(hmac::HMAC_SHA256, &secret);
    let signed = [timestamp, method, path, body].concat();
    URL_SAFE.encode(hmac::sign(&key, signed.as_bytes()))
}

/// Checks a request for which `change` has changed the headers.
#[track_caller]
fn check(change: impl FnOnce(&mut [String; 5]), expected: Result<(), WalletError>) {
    let credentials = wallet().credentials(&master());
    let time = NOW_S.to_string();
    let signature = sign(&credentials, &time, "POST", PATH, "{}");
    let address = Address::from_bytes([0xab; 20]).checksummed();
    let mut sent = [address, credentials.api_key(), credentials.passphrase(), time, signature];
    change(&mut sent);
    let [address, api_key, passphrase, timestamp, signature] =
        sent.each_ref().map(String::as_bytes);
    let headers = L2Headers { address, api_key, passphrase, timestamp, signature };
    let now = Timestamp::from_seconds(NOW_S);
    assert_eq!(headers.check(&wallet(), &master(), now), expected, "{}", text(timestamp));
    let expected = URL_SAFE.decode(signature).is_ok() && text(timestamp) == NOW_S.to_string();
    assert_eq!(headers.is_signed(&wallet(), &master(), ("POST", PATH, b"{}")), expected);
    for other in [("GET", PATH, &b"{}"[..]), ("POST", "/orders", b"{}"), ("POST", PATH, b"{ }")] {
        assert!(!headers.is_signed(&wallet(), &master(), other), "{other:?}");
    }
}

#[test]
fn the_head_of_a_request_is_checked() {
    let not_current = Err(WalletError::NotCurrent { now_s: NOW_S });
    check(|_| {}, Ok(()));
    check(|sent| sent[0].make_ascii_lowercase(), Ok(()));
    check(|sent| sent[0].truncate(41), Err(WalletError::Address(AddressError)));
    check(|sent| sent[0].clear(), Err(WalletError::Address(AddressError)));
    check(|sent| sent[0] = format!("0x{}", "ac".repeat(20)), Err(WalletError::OtherWallet));
    check(|sent| sent[2].clear(), Err(WalletError::Passphrase));
    check(|sent| sent[2].make_ascii_uppercase(), Err(WalletError::Passphrase));
    check(|sent| sent[2] = "0".repeat(64), Err(WalletError::Passphrase));
    check(|sent| sent[3].clear(), Err(WalletError::Timestamp));
    check(|sent| sent[3] = "soon".into(), Err(WalletError::Timestamp));
    check(|sent| sent[3] = (NOW_S - 60).to_string(), Ok(()));
    check(|sent| sent[3] = (NOW_S - 61).to_string(), not_current);
    check(|sent| sent[3] = (NOW_S + 30).to_string(), Ok(()));
    check(|sent| sent[3] = (NOW_S + 31).to_string(), not_current);
    // The signature is left to the second step.
    check(|sent| sent[4] = "*".into(), Ok(()));
}

#[test]
fn the_first_message_of_a_socket_needs_secret_and_passphrase() {
    let credentials = wallet().credentials(&master());
    let others = GrantedWallet { generation: 10, ..wallet() }.credentials(&master());
    let [own, other] = [&credentials, &others].map(|it| (it.secret(), it.passphrase()));
    for (secret, passphrase, expected) in [
        (&own.0, &own.1, Ok(())),
        (&own.0, &other.1, Err(WalletError::Passphrase)),
        (&other.0, &own.1, Err(WalletError::Secret)),
        (&own.1, &own.1, Err(WalletError::Secret)),
    ] {
        let (secret, passphrase) = (secret.as_bytes(), passphrase.as_bytes());
        let presented = SocketCredentials { api_key: b"", secret, passphrase };
        assert_eq!(presented.check(&wallet(), &master()), expected);
        assert_eq!(format!("{presented:?}"), "SocketCredentials(…)");
    }
}

#[test]
fn the_identity_of_a_wallet_is_its_address_in_lower_case() {
    let lower = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";
    let checksummed = "0xf39Fd6e51aad88F6F4ce6aB8827279cffFb92266";
    let [identity, same] =
        [lower, checksummed].map(|it| wallet_identity(Address::parse(it).unwrap()));
    assert_eq!((&*identity.issuer, &*identity.subject), ("wallet", lower));
    assert_eq!(identity, same);
    assert_eq!(identity.digest, identity_digest("wallet", lower));
    let name = wallet_key_name(Address::parse(lower).unwrap(), u64::MAX);
    assert_eq!(&*name, "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266, nonce 18446744073709551615");
}

#[test]
fn only_the_hash_and_a_part_of_the_api_key_are_stored() {
    let credentials = wallet().credentials(&master());
    let stored = stored_text(&credentials);
    let api_key = credentials.api_key();
    assert_eq!(Some(KeyHash::from_bytes(stored.hash)), KeyHash::of_uuid(api_key.as_bytes()));
    assert_eq!(*stored.prefix, api_key[..8]);
}
