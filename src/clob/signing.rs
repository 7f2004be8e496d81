//! A client of the venue, for tests: a wallet that signs, and requests that are signed with its
//! credentials.

use aws_lc_rs::hmac::{self, HMAC_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;
use secp256k1::SecretKey;

use crate::order::signing::DraftOrder;
use crate::signature::address::Address;
use crate::signature::{Chain, sign_clob_auth, signer_of};
use crate::text;

/// A wallet whose key is known.
#[derive(Clone, Debug)]
pub struct Signer {
    key: SecretKey,
    address: Address,
}

/// Credentials as a client has them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiCredentials {
    /// The text of a UUID.
    pub api_key: String,
    /// Padded URL-safe base64.
    pub secret: String,
    /// Hexadecimal digits.
    pub passphrase: String,
}

impl Signer {
    /// Returns the wallet with this number, which is not 0.
    pub fn new(number: u64) -> Self {
        let mut bytes = [0; 32];
        bytes[24..].copy_from_slice(&number.to_be_bytes());
        let key = SecretKey::from_secret_bytes(bytes).expect("a number other than 0 is a key");
        Self { key, address: signer_of(&key) }
    }

    /// Returns its address.
    pub const fn address(&self) -> Address {
        self.address
    }

    /// Returns the body of `POST /order` with this order, for the owner of an API key.
    pub fn order(&self, order: &DraftOrder<'_>, api_key: &str) -> String {
        order.sign(&self.key, self.address, api_key)
    }

    /// Returns the L1 headers that it signs.
    pub fn l1_headers(
        &self,
        chain: Chain,
        timestamp_s: i64,
        nonce: u64,
    ) -> [(&'static str, String); 4] {
        let timestamp = timestamp_s.to_string();
        let signature = sign_clob_auth(&self.key, chain, self.address, timestamp.as_bytes(), nonce);
        [
            ("POLY_ADDRESS", self.address.checksummed()),
            ("POLY_SIGNATURE", format!("0x{}", text::hex(&signature))),
            ("POLY_TIMESTAMP", timestamp),
            ("POLY_NONCE", nonce.to_string()),
        ]
    }
}

impl ApiCredentials {
    /// Returns the L2 headers of a request by this wallet. `method` is in upper case, and `path`
    /// has no query.
    ///
    /// Panics if the secret is not in base64.
    pub fn l2_headers(
        &self,
        wallet: Address,
        timestamp_s: i64,
        (method, path, body): (&str, &str, &[u8]),
    ) -> [(&'static str, String); 5] {
        let secret = URL_SAFE.decode(&self.secret).expect("a secret is in base64");
        let mut signature = hmac::Context::with_key(&hmac::Key::new(HMAC_SHA256, &secret));
        signature.update(format!("{timestamp_s}{method}{path}").as_bytes());
        signature.update(body);
        [
            ("POLY_ADDRESS", wallet.checksummed()),
            ("POLY_SIGNATURE", URL_SAFE.encode(signature.sign())),
            ("POLY_TIMESTAMP", timestamp_s.to_string()),
            ("POLY_API_KEY", self.api_key.clone()),
            ("POLY_PASSPHRASE", self.passphrase.clone()),
        ]
    }
}
