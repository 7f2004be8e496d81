//! What may have changed of a key since it was first seen.

use std::collections::BTreeMap;

use crate::engine::key::{Key, KeyGrant};
use crate::ids::KeyId;

/// Checks that a key has its first known name or one that was requested, and an end if it was
/// rotated. Whether the right one of several names came back shows in the state hashes.
pub(super) fn check_changes(
    first: &Key,
    key: &Key,
    names: &BTreeMap<KeyId, Vec<Option<Box<str>>>>,
    rotations: &BTreeMap<KeyId, bool>,
) -> Result<(), String> {
    let (id, grant) = (key.id, &key.grant);
    let is_asked = names.get(&id).is_some_and(|names| names.contains(&grant.name));
    ensure!(
        is_asked || grant.name == first.grant.name,
        "key {id} was never to be named as in {grant:?}"
    );
    match (key.is_rotated(), rotations.get(&id)) {
        (true, None) => Err(format!("key {id} was rotated without a request")),
        (false, Some(true)) => Err(format!("key {id} lost its end")),
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
