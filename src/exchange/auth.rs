//! Authentication and authorization: keys, identities, permissions.
//!
//! A caller authenticates with an API key, looked up in the [`key_table`], or with an access token,
//! verified by an [`identity`] source. A [`wallet`] gets an API key, and signs each request with
//! the secret that belongs to it. [`policy`] decides what the caller may do. All of this is
//! independent of requests, account state and the journal: callers pass in the credential's text
//! and the time, and get back an identity or the reason for the refusal.

pub mod api_key;
pub mod identity;
pub mod key_table;
pub mod last_key;
pub mod policy;
pub mod presented;
pub mod wallet;
pub mod ws_token;

fn digest_bytes(digest: &impl AsRef<[u8]>) -> [u8; 32] {
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Formats bytes as lowercase hex, two digits each.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(hex_digit).map(char::from).collect()
}

fn hex_digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value)]
}
