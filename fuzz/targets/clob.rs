//! What proves to the venue's order book API who is calling.
//!
//! The first byte says what follows: `w` for the headers that a wallet signed (address, signature,
//! timestamp, nonce), `r` for a request signed with a secret (timestamp, method, path, body,
//! signature), `p` for a passphrase. Parts are separated by a zero byte.

use std::sync::LazyLock;

use aws_lc_rs::hmac;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use paperbourse_clob::credentials::{Credentials, MasterKey, SignedRequest};
use paperbourse_clob::signature::L1Headers;
use paperbourse_clob::signature::address::Address;
use paperbourse_clob::timestamp;

/// The text of a signature: 65 bytes in hexadecimal digits after `0x`.
const SIGNATURE_TEXT_BYTES: usize = 132;

static CREDENTIALS: LazyLock<Credentials> = LazyLock::new(|| {
    let key = MasterKey::new(&std::array::from_fn(|index| u8::try_from(index).unwrap()));
    let address = Address::parse("0x6370eF2f4Db3611D657b90667De398a2Cc2a370C").unwrap();
    key.credentials(address, 0, 0)
});

pub(crate) fn run(input: &[u8]) {
    let Some((kind, rest)) = input.split_first() else { return };
    let parts: Vec<&[u8]> = rest.split(|&byte| byte == 0).collect();
    match (kind, &parts[..]) {
        (b'w', &[address, signature, timestamp, nonce]) => {
            check_wallet(L1Headers { address, signature, timestamp, nonce });
        }
        (b'r', &[timestamp, method, path, body, signature]) => {
            let (Ok(method), Ok(path)) = (str::from_utf8(method), str::from_utf8(path)) else {
                return;
            };
            check_request(&SignedRequest { timestamp, method, path, body }, signature);
        }
        (b'p', &[text]) => {
            let is_it = text == CREDENTIALS.passphrase().as_bytes();
            assert_eq!(CREDENTIALS.has_passphrase(text), is_it);
        }
        _ => {}
    }
}

fn check_wallet(headers: L1Headers<'_>) {
    let proof = match headers.verify() {
        Ok(proof) => proof,
        Err(error) => return assert!(!error.to_string().contains(char::is_control)),
    };
    assert_eq!(proof.address.to_string().as_bytes(), headers.address.to_ascii_lowercase());
    assert_eq!(timestamp::parse(headers.timestamp), Some(proof.timestamp_s));
    assert_eq!(headers.signature.len(), SIGNATURE_TEXT_BYTES);
    // It proves this and nothing else.
    let nonce = (proof.nonce ^ 1).to_string();
    assert!(L1Headers { nonce: nonce.as_bytes(), ..headers }.verify().is_err());
    let timestamp = [headers.timestamp, b"0"].concat();
    assert!(L1Headers { timestamp: &timestamp, ..headers }.verify().is_err());
    let address = [b"0x", &[b'1'; 40][..]].concat();
    assert!(L1Headers { address: &address, ..headers }.verify().is_err());
}

fn check_request(request: &SignedRequest<'_>, signature: &[u8]) {
    let replaced: Vec<u8> =
        request.body.iter().map(|&byte| if byte == b'\'' { b'"' } else { byte }).collect();
    let good = [signature_over(request, request.body), signature_over(request, &replaced)];
    for signature in &good {
        assert!(CREDENTIALS.has_signed(request, signature.as_bytes()));
    }
    let is_good = good.iter().any(|good| good.as_bytes() == signature);
    assert_eq!(CREDENTIALS.has_signed(request, signature), is_good);
}

/// What a client sends for this request with this body.
fn signature_over(request: &SignedRequest<'_>, body: &[u8]) -> String {
    let secret = URL_SAFE.decode(CREDENTIALS.secret()).unwrap();
    let method_and_path = [request.method.as_bytes(), request.path.as_bytes()].concat();
    let text = [request.timestamp, &method_and_path, body].concat();
    URL_SAFE.encode(hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, &secret), &text))
}
