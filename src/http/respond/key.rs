//! Keys, as their owner sees them. A raw key is shown once, when it is made.

use crate::engine::key::{Key, Permissions};
use crate::http::json::write::{JsonObject, write_list, write_text};
use crate::ids::Timestamp;

/// The answer to making a key and to rotating one.
pub fn write_new_key(out: &mut Vec<u8>, key: &Key, raw_key: &str) {
    let mut body = JsonObject::new(out);
    body.integer("id", key.id.get());
    body.text("raw_key", raw_key);
    body.text("key_prefix", &key.grant.prefix);
    body.word("rate_limit_tier", key.grant.tier.as_str());
    write_permissions(body.value("permissions"), key.grant.permissions);
    body.time("created_at", key.created_at);
    body.text_or_null("name", key.grant.name.as_deref());
    body.end();
}

/// The answer to `GET /v1/keys`. Each key comes with the time of its last use, as far as known.
pub fn write_keys<'a>(
    out: &mut Vec<u8>,
    keys: impl IntoIterator<Item = (&'a Key, Option<Timestamp>)>,
    now: Timestamp,
) {
    write_list(out, keys, |out, (key, last_used_at)| write_key(out, key, last_used_at, now));
}

/// A row of the list, and the answer to a new name.
pub fn write_key(out: &mut Vec<u8>, key: &Key, last_used_at: Option<Timestamp>, now: Timestamp) {
    let mut row = JsonObject::new(out);
    row.integer("id", key.id.get());
    row.text("key_prefix", &key.grant.prefix);
    row.text_or_null("name", key.grant.name.as_deref());
    row.word("rate_limit_tier", key.grant.tier.as_str());
    write_permissions(row.value("permissions"), key.grant.permissions);
    row.flag("is_active", key.is_active(now));
    row.time("created_at", key.created_at);
    row.time_or_null("last_used_at", last_used_at);
    row.time_or_null("expires_at", key.grant.expires_at);
    match key.created_by {
        Some(maker) => row.integer("created_by", maker.get()),
        None => row.null("created_by"),
    }
    row.end();
}

/// The answer to `POST /v1/keys/ws-token`.
pub fn write_socket_token(out: &mut Vec<u8>, token: &str, expires_in_seconds: u64) {
    let mut body = JsonObject::new(out);
    body.text("token", token);
    body.integer("expires_in", expires_in_seconds);
    body.end();
}

/// An answer that says what was done.
pub fn write_message(out: &mut Vec<u8>, message: &str) {
    let mut body = JsonObject::new(out);
    body.text("message", message);
    body.end();
}

fn write_permissions(out: &mut Vec<u8>, permissions: Permissions) {
    write_list(out, permissions.iter(), |out, permission| write_text(out, permission.as_str()));
}

#[cfg(test)]
mod tests {
    use super::super::fixture::written;
    use super::*;
    use crate::engine::key::{KeyGrant, Permission};
    use crate::ids::{AccountId, KeyId};
    use crate::limits::tier::Tier;

    fn key() -> Key {
        Key {
            id: KeyId::from_raw(70).unwrap(),
            account: AccountId::from_raw(64).unwrap(),
            grant: KeyGrant {
                hash: [7; 32],
                prefix: "ps_live_0123abcd".into(),
                name: Some("my \"bot\"".into()),
                tier: Tier::Pro,
                permissions: Permissions::of([Permission::Admin, Permission::Read]).unwrap(),
                expires_at: Some(Timestamp::from_seconds(1_800_000_000)),
            },
            created_by: KeyId::from_raw(64),
            kept_maker: None,
            created_at: Timestamp::from_seconds(1_700_000_000),
            revoked_at: None,
        }
    }

    #[test]
    fn a_raw_key_is_shown_when_it_is_made() {
        insta::assert_snapshot!(written(|out| write_new_key(out, &key(), "ps_live_0123abcd9")));
    }

    #[test]
    fn a_list_never_shows_a_raw_key() {
        let mut plain = key();
        plain.grant.name = None;
        plain.grant.expires_at = None;
        plain.created_by = None;
        plain.revoked_at = Some(Timestamp::EPOCH);
        let rows = [(&key(), Some(Timestamp::from_seconds(1_700_000_060))), (&plain, None)];
        let now = Timestamp::from_seconds(1_799_000_000);
        insta::assert_snapshot!(written(|out| write_keys(out, rows, now)));
        assert_eq!(written(|out| write_keys(out, [], now)), "[]");
    }

    #[test]
    fn tokens_and_messages() {
        let token = written(|out| write_socket_token(out, "x.y", 60));
        assert_eq!(token, r#"{"token":"x.y","expires_in":60}"#);
        assert_eq!(written(|out| write_message(out, "Done.")), r#"{"message":"Done."}"#);
    }
}
