//! The key that a connection presented last.
//!
//! Most connections present the same key again and again, and hashing it takes longer than looking
//! it up. So a connection keeps the key's hash, and recognises the key's text by a shorter hash
//! with a random seed. No client can search for another text with the same short hash, because each
//! guess takes a request on the same connection. The text itself is not kept.
//!
//! The state of the key is not cached: it is looked up for each request, so a revoked key is
//! refused at once.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::LazyLock;

use parking_lot::Mutex;

use super::api_key::{KEY_BYTES, KeyHash};

static RECOGNITION: LazyLock<RandomState> = LazyLock::new(RandomState::new);

/// The key that a connection presented last, if it has presented one.
#[derive(Default)]
pub struct LastKey(Mutex<Option<(u64, KeyHash)>>);

impl LastKey {
    /// Returns the hash of a presented text, as [`KeyHash::of_presented`] does.
    pub fn hash_of(&self, presented: &[u8]) -> Option<KeyHash> {
        if presented.len() != KEY_BYTES {
            return None;
        }
        let mut hasher = RECOGNITION.build_hasher();
        hasher.write(presented);
        let recognised_by = hasher.finish();
        let mut last = self.0.lock();
        match *last {
            Some((known, hash)) if known == recognised_by => Some(hash),
            _ => {
                let hash = KeyHash::of_presented(presented)?;
                *last = Some((recognised_by, hash));
                Some(hash)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::api_key::{KEY_SECRET_BYTES, RawKey};

    #[test]
    fn every_text_has_its_own_hash_whatever_came_before() {
        let [first, second] = [1, 2].map(|byte| RawKey::from_secret([byte; KEY_SECRET_BYTES]));
        let upper = first.expose().to_uppercase();
        let texts = [first.expose(), second.expose(), &upper, "", &first.expose()[1..]];
        let last = LastKey::default();
        for before in texts {
            for text in texts {
                last.hash_of(before.as_bytes());
                for _ in 0..2 {
                    let hash = KeyHash::of_presented(text.as_bytes());
                    assert_eq!(last.hash_of(text.as_bytes()), hash, "{text} after {before}");
                }
            }
        }
    }

    #[test]
    fn a_known_text_is_recognised() {
        let key = RawKey::from_secret([1; KEY_SECRET_BYTES]);
        let last = LastKey::default();
        last.hash_of(key.expose().as_bytes());
        let other = RawKey::from_secret([2; KEY_SECRET_BYTES]).hash();
        last.0.lock().as_mut().unwrap().1 = other;
        assert_eq!(last.hash_of(key.expose().as_bytes()), Some(other), "it was computed again");
    }
}
