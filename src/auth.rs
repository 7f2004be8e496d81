//! Who is calling: keys, identities, permissions.
//!
//! A caller is known by an API key, which lives in the [`key_table`], or by an access token, which
//! an [`identity`] source vouches for. What either may do is [`policy`]. Nothing here knows a
//! request, an account's state or the journal: the caller of these modules brings the text that
//! was presented and the time, and is told who it is or why not.

pub mod api_key;
pub mod identity;
pub mod key_table;
pub mod policy;
pub mod presented;
pub mod ws_token;

/// The bytes of a SHA-256 digest or tag.
fn digest_bytes(digest: &impl AsRef<[u8]>) -> [u8; 32] {
    digest.as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// Lowercase hex digits, two for each byte.
fn hex(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(hex_digit).map(char::from).collect()
}

/// The lowercase hex digit of a value below 16.
fn hex_digit(value: u8) -> u8 {
    b"0123456789abcdef"[usize::from(value)]
}
