//! Checks of the changes that a key may undergo after it was first seen.

use std::collections::BTreeMap;

use crate::engine::key::{Key, KeyGrant};
use crate::ids::KeyId;

/// Checks that a key has its original name or a requested one, and an expiry if it was rotated. If
/// several names were requested, the state hashes show which one is right.
pub(super) fn check_changes(
    first: &Key,
    key: &Key,
    names: &BTreeMap<KeyId, Vec<Option<Box<str>>>>,
    rotations: &BTreeMap<KeyId, bool>,
) -> Result<(), String> {
    let (id, grant) = (key.id, &key.grant);
    let is_requested = names.get(&id).is_some_and(|names| names.contains(&grant.name));
    ensure!(
        is_requested || grant.name == first.grant.name,
        "the name of key {id} was never requested: {grant:?}"
    );
    match (key.is_rotated(), rotations.get(&id)) {
        (true, None) => Err(format!("key {id} was rotated without a request")),
        (false, Some(true)) => Err(format!("key {id} lost its expiry")),
        _ => Ok(()),
    }
}

/// Whether these are the same key, regardless of renaming, rotation and revocation.
pub(super) fn is_same_key(one: &Key, other: &Key) -> bool {
    let lasting = |key: &Key| KeyGrant { name: None, expires_at: None, ..key.grant.clone() };
    one.account == other.account
        && lasting(one) == lasting(other)
        && one.created_by == other.created_by
        && one.created_at == other.created_at
}
