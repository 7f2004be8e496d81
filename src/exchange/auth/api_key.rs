//! The text of an API key, and the digest that the server stores instead.
//!
//! ```text
//!  p s _ l i v e _ 0 1 2 3 4 5 6 7 8 9 a b … f
//! |<-- marker 8 -->|<--- 64 lowercase hex --->|
//! |<------ prefix 16 ----->|
//! ```
//!
//! The text appears only in the response that creates the key and in the requests that present it.
//! Everything stored, compared or logged is its [`KeyHash`].

use std::fmt;
use std::hash::{Hash, Hasher};

use aws_lc_rs::digest::{SHA256, digest};

pub use paperbourse_core::engine::key::KEY_MARKER;

/// Number of bytes of a key that are shown: the marker and 32 of its 256 random bits.
pub const KEY_PREFIX_BYTES: usize = 16;

/// Length of a key, in bytes.
pub const KEY_BYTES: usize = KEY_MARKER.len() + 2 * KEY_SECRET_BYTES;

/// Number of random bytes in a key.
pub const KEY_SECRET_BYTES: usize = 32;

const _: () = assert!(KEY_BYTES == 72);

/// Length of the text of a UUID, in bytes.
const UUID_BYTES: usize = 36;

/// The reason why a text cannot be a key of any server. The error never includes the text.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum KeyFlaw {
    /// The text has the form of an access token.
    #[error("this is an access token; send it as `Authorization: Bearer TOKEN`")]
    AccessToken,
    /// The text is too short or too long.
    #[error("a key is `ps_live_` and 64 hexadecimal digits; this has {characters} characters")]
    Length {
        /// Number of characters in the text.
        characters: usize,
    },
    /// The text does not begin with the marker.
    #[error("a key is `ps_live_` and 64 hexadecimal digits; this begins otherwise")]
    Marker,
    /// The marker is followed by something other than lowercase hexadecimal digits.
    #[error(
        "a key is `ps_live_` and 64 hexadecimal digits in lower case; this has other characters"
    )]
    Digits,
}

impl KeyFlaw {
    /// Returns the flaw of a text, or `None` if it has the form of a key.
    pub fn of(text: &[u8]) -> Option<Self> {
        if KeyHash::of_presented(text).is_some() {
            None
        } else if text.starts_with(b"eyJ") && text.split(|&it| it == b'.').count() == 3 {
            Some(Self::AccessToken)
        } else if text.len() != KEY_BYTES {
            let characters = String::from_utf8_lossy(text).chars().count();
            Some(Self::Length { characters })
        } else if !text.starts_with(KEY_MARKER.as_bytes()) {
            Some(Self::Marker)
        } else {
            Some(Self::Digits)
        }
    }
}

/// A key in plain text, as its owner has it.
///
/// It cannot be printed by accident: `Debug` shows only the prefix, and there is no `Display`.
pub struct RawKey([u8; KEY_BYTES]);

impl RawKey {
    /// Builds the key from these random bytes.
    pub fn from_secret(secret: [u8; KEY_SECRET_BYTES]) -> Self {
        let mut text = [0; KEY_BYTES];
        let (marker, digits) = text.split_at_mut(KEY_MARKER.len());
        marker.copy_from_slice(KEY_MARKER.as_bytes());
        for (pair, byte) in digits.chunks_exact_mut(2).zip(secret) {
            pair[0] = super::hex_digit(byte >> 4);
            pair[1] = super::hex_digit(byte & 0xf);
        }
        Self(text)
    }

    /// Generates a key from the operating system's randomness. Fails only if the system provides
    /// none.
    pub fn generate() -> Result<Self, getrandom::Error> {
        let mut secret = [0; KEY_SECRET_BYTES];
        getrandom::fill(&mut secret)?;
        Ok(Self::from_secret(secret))
    }

    /// Returns the secret text, for the one response that reveals it.
    pub fn expose(&self) -> &str {
        std::str::from_utf8(&self.0).expect("a key is made of ASCII only")
    }

    /// Returns the part that is shown in lists.
    pub fn prefix(&self) -> &str {
        &self.expose()[..KEY_PREFIX_BYTES]
    }

    /// Returns the digest that the server stores.
    pub fn hash(&self) -> KeyHash {
        KeyHash::of(&self.0)
    }
}

impl fmt::Debug for RawKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "RawKey({}…)", self.prefix())
    }
}

/// The SHA-256 digest of a key's text.
///
/// Looking up a key by its hash needs no constant-time comparison: timing could only reveal how the
/// digest of a guess relates to a stored digest, and an attacker cannot steer the digest of a
/// guess. A key holds 256 random bits, so a plain digest is as hard to reverse as a slow one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyHash([u8; 32]);

/// Hashes only the first bytes of the digest. They are as good as random, and the table holds only
/// keys that this server generated, so an attacker cannot craft many that collide.
impl Hash for KeyHash {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        let (first, _) = self.0.split_first_chunk().expect("a digest is longer");
        hasher.write_u64(u64::from_le_bytes(*first));
    }
}

impl KeyHash {
    /// Restores a hash from its stored bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the bytes to store.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns the hash of a presented text, or `None` if no key can have that text.
    ///
    /// Accepts any bytes. No digest is computed for malformed text.
    pub fn of_presented(text: &[u8]) -> Option<Self> {
        let digits = text.strip_prefix(KEY_MARKER.as_bytes())?;
        if text.len() != KEY_BYTES {
            return None;
        }
        // Checking every digit is faster than stopping at the first bad one, since most keys are
        // well formed.
        let is_digit = |byte: &u8| byte.is_ascii_digit() | (b'a'..=b'f').contains(byte);
        let is_key = digits.iter().fold(true, |is_key, byte| is_key & is_digit(byte));
        is_key.then(|| Self::of(text))
    }

    /// Returns the hash of the API key of a wallet, the text of a UUID in lower case; `None` for
    /// any other text.
    ///
    /// Such a key is no secret. It is no key in the sense of [`Self::of_presented`], so alone it
    /// grants nothing.
    pub fn of_uuid(text: &[u8]) -> Option<Self> {
        let is_digit = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte);
        let is_dash_at = |at: usize| matches!(at, 8 | 13 | 18 | 23);
        let fits =
            |(at, &byte): (usize, &u8)| if is_dash_at(at) { byte == b'-' } else { is_digit(byte) };
        (text.len() == UUID_BYTES && text.iter().enumerate().all(fits)).then(|| Self::of(text))
    }

    fn of(text: &[u8]) -> Self {
        Self(super::digest_bytes(&digest(&SHA256, text)))
    }
}

/// Shows only enough of the hash to tell two keys apart.
impl fmt::Debug for KeyHash {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(formatter, "KeyHash({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn counting_key() -> RawKey {
        RawKey::from_secret(std::array::from_fn(|index| u8::try_from(index * 8 + 1).unwrap()))
    }

    #[test]
    fn a_key_matches_the_diagram() {
        let key = counting_key();
        assert_eq!(
            key.expose(),
            "ps_live_0109111921293139414951596169717981899199a1a9b1b9c1c9d1d9e1e9f1f9"
        );
        assert_eq!(key.prefix(), "ps_live_01091119");
    }

    #[test]
    fn debug_output_reveals_no_secret() {
        let key = counting_key();
        assert_eq!(format!("{key:?}"), "RawKey(ps_live_01091119…)");
        assert_eq!(format!("{:?}", KeyHash::from_bytes([0xab; 32])), "KeyHash(abababab…)");
    }

    #[test]
    fn the_hash_is_sha_256_of_the_text() {
        // printf ps_live_0109…f1f9 | sha256sum
        let expected = "b319bbd735038e77dd2b54071737c68c9c05b69d2b54157dc956af77e5ea8bb8";
        let hash = counting_key().hash();
        let hex = crate::auth::hex(hash.as_bytes());
        assert_eq!(hex, expected);
    }

    #[test]
    fn generated_keys_differ() {
        let [left, right] = [RawKey::generate().unwrap(), RawKey::generate().unwrap()];
        assert_ne!(left.expose(), right.expose());
        assert_eq!(KeyHash::of_presented(left.expose().as_bytes()), Some(left.hash()));
    }

    #[test]
    fn only_the_exact_form_is_a_key() {
        let text = counting_key().expose().to_owned();
        let cut = &text[..KEY_BYTES - 1];
        let test = text.replacen("live", "test", 1);
        for wrong in [
            "",
            "ps_live_",
            cut,
            &format!("{text}0"),
            &format!("{text} "),
            &format!(" {text}"),
            &text.to_uppercase(),
            &test,
            &format!("{cut}g"),
            &format!("{cut}\0"),
            &"0".repeat(KEY_BYTES),
        ] {
            assert_eq!(KeyHash::of_presented(wrong.as_bytes()), None, "{wrong:?}");
        }
    }

    #[test]
    fn the_api_key_of_a_wallet_is_a_uuid_in_lower_case() {
        let uuid = "0b8a2f6e-1c3d-4e5f-8a9b-0123456789ab";
        assert_eq!(KeyHash::of_uuid(uuid.as_bytes()), Some(KeyHash::of(uuid.as_bytes())));
        assert_eq!(KeyHash::of_presented(uuid.as_bytes()), None);
        for wrong in [
            "",
            &uuid[1..],
            &format!("{uuid}0"),
            &uuid.to_uppercase(),
            &uuid.replace('-', "0"),
            &uuid.replacen('0', "-", 1),
            &uuid.replacen('b', "g", 1),
            counting_key().expose(),
        ] {
            assert_eq!(KeyHash::of_uuid(wrong.as_bytes()), None, "{wrong}");
        }
    }

    proptest! {
        #[test]
        fn every_generated_key_is_recognised(secret: [u8; KEY_SECRET_BYTES]) {
            let key = RawKey::from_secret(secret);
            prop_assert_eq!(KeyHash::of_presented(key.expose().as_bytes()), Some(key.hash()));
        }

        #[test]
        fn arbitrary_bytes_are_rejected(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            prop_assert_eq!(KeyHash::of_presented(&bytes), None);
            let marked = [KEY_MARKER.as_bytes(), &bytes].concat();
            prop_assert_eq!(KeyHash::of_presented(&marked), None);
        }
    }
}
