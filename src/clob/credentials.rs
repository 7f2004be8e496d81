//! API credentials of a wallet, and the requests that are signed with them.
//!
//! The server has to know the secret of each caller, since a request is signed with an HMAC. It
//! derives secrets from a master key instead of storing them:
//!
//! ```text
//! HMAC-SHA256(master key, label ‖ address 20 ‖ nonce 8 ‖ generation 4), numbers big-endian
//!
//!   label                            gives
//!   paperbourse clob api key v1      the key: its first 16 bytes as a UUID of version 4
//!   paperbourse clob secret v1       the secret: URL-safe base64, padded
//!   paperbourse clob passphrase v1   the passphrase: 64 hexadecimal digits in lower case
//! ```
//!
//! Any change here invalidates the credentials of all users, and so does another master key.
//!
//! A client signs each request with the decoded secret; the venue calls this L2:
//!
//! ```text
//! HMAC-SHA256(secret, timestamp ‖ METHOD ‖ path ‖ body), as padded URL-safe base64
//! ```

#[cfg(test)]
mod tests;

use std::fmt;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac::{self, Context, HMAC_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE;

use crate::signature::address::Address;
use crate::text;

/// Number of bytes of a master key.
pub const MASTER_KEY_BYTES: usize = 32;

const API_KEY_LABEL: &[u8] = b"paperbourse clob api key v1";
const SECRET_LABEL: &[u8] = b"paperbourse clob secret v1";
const PASSPHRASE_LABEL: &[u8] = b"paperbourse clob passphrase v1";

const HASH_BYTES: usize = 32;
const UUID_BYTES: usize = 16;

/// The number of digits in each part of the text of a UUID.
const UUID_PARTS: [usize; 5] = [8, 4, 4, 4, 12];

/// The key from which the credentials of all wallets are derived.
///
/// `Debug` does not show it.
pub struct MasterKey(hmac::Key);

impl MasterKey {
    /// Takes these bytes as the key. They must be random, and stay the same for as long as
    /// credentials are in use.
    pub fn new(bytes: &[u8; MASTER_KEY_BYTES]) -> Self {
        Self(hmac::Key::new(HMAC_SHA256, bytes))
    }

    /// Derives the credentials of a wallet.
    ///
    /// A wallet has different ones for each nonce, which it chooses, and for each generation, which
    /// the server counts: the next generation replaces credentials that were deleted.
    pub fn credentials(&self, address: Address, nonce: u64, generation: u32) -> Credentials {
        let derive = |label| {
            let mut context = Context::with_key(&self.0);
            context.update(label);
            context.update(address.bytes());
            context.update(&nonce.to_be_bytes());
            context.update(&generation.to_be_bytes());
            hash_bytes(context)
        };
        Credentials {
            api_key: uuid(&derive(API_KEY_LABEL)),
            secret: derive(SECRET_LABEL),
            passphrase: derive(PASSPHRASE_LABEL),
        }
    }
}

impl fmt::Debug for MasterKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("MasterKey(…)")
    }
}

/// The credentials with which a client signs requests in the name of a wallet.
///
/// `Debug` shows the API key alone, which is no secret.
pub struct Credentials {
    api_key: [u8; UUID_BYTES],
    secret: [u8; HASH_BYTES],
    passphrase: [u8; HASH_BYTES],
}

/// The parts of a request that a client signs, each as it was sent.
#[derive(Clone, Copy, Debug)]
pub struct SignedRequest<'a> {
    /// `POLY_TIMESTAMP`.
    pub timestamp: &'a [u8],
    /// The method, in upper case.
    pub method: &'a str,
    /// The path, without the query.
    pub path: &'a str,
    /// The body; empty if the request has none.
    pub body: &'a [u8],
}

impl Credentials {
    /// Returns the API key, which names the credentials: the lower-case text of a UUID.
    pub fn api_key(&self) -> String {
        let digits = text::hex(&self.api_key);
        let mut rest = digits.as_str();
        let parts = UUID_PARTS.map(|digit_count| {
            let part;
            (part, rest) = rest.split_at(digit_count);
            part
        });
        parts.join("-")
    }

    /// Returns the secret: 32 bytes as padded URL-safe base64.
    pub fn secret(&self) -> String {
        URL_SAFE.encode(self.secret)
    }

    /// Returns the passphrase: 64 hexadecimal digits in lower case.
    pub fn passphrase(&self) -> String {
        text::hex(&self.passphrase)
    }

    /// Whether this is the passphrase, the text of `POLY_PASSPHRASE`. Takes the same time for all
    /// texts of its length.
    pub fn has_passphrase(&self, presented: &[u8]) -> bool {
        verify_slices_are_equal(self.passphrase().as_bytes(), presented).is_ok()
    }

    /// Whether this is the secret, as text. Takes the same time for all texts of its length.
    ///
    /// Requests are signed with the secret instead; only the first message on a socket brings it.
    pub fn has_secret(&self, presented: &[u8]) -> bool {
        verify_slices_are_equal(self.secret().as_bytes(), presented).is_ok()
    }

    /// Whether `signature`, the text of `POLY_SIGNATURE`, signs this request with the secret. Takes
    /// the same time for all signatures of the right length.
    ///
    /// Some clients sign the body with each `'` replaced by `"`, and send it as it is: a signature
    /// of that text is accepted too.
    pub fn has_signed(&self, request: &SignedRequest<'_>, signature: &[u8]) -> bool {
        let signs = |body| {
            let expected = self.signature(&SignedRequest { body, ..*request });
            verify_slices_are_equal(expected.as_bytes(), signature).is_ok()
        };
        let has_quote = request.body.contains(&b'\'');
        signs(request.body) || has_quote && signs(&with_double_quotes(request.body))
    }

    /// The signature of a request, as text.
    fn signature(&self, request: &SignedRequest<'_>) -> String {
        let mut context = Context::with_key(&hmac::Key::new(HMAC_SHA256, &self.secret));
        context.update(request.timestamp);
        context.update(request.method.as_bytes());
        context.update(request.path.as_bytes());
        context.update(request.body);
        URL_SAFE.encode(hash_bytes(context))
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({})", self.api_key())
    }
}

fn with_double_quotes(body: &[u8]) -> Vec<u8> {
    body.iter().map(|&byte| if byte == b'\'' { b'"' } else { byte }).collect()
}

fn hash_bytes(context: Context) -> [u8; HASH_BYTES] {
    context.sign().as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// A UUID of version 4 in the variant of RFC 9562, as the venue's keys are.
fn uuid(random: &[u8; HASH_BYTES]) -> [u8; UUID_BYTES] {
    let mut uuid: [u8; UUID_BYTES] = *random.first_chunk().expect("a hash is longer than a UUID");
    uuid[6] = uuid[6] & 0x0f | 0x40;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}
