//! Creating, listing, renaming, rotating and revoking API keys. A raw key is shown once, when it is
//! created.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::fields::{Fields, Range};
use crate::http::invalid::{Invalid, Location, unless_invalid};
use crate::http::json::read::{self as json, Object, RawText};
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::engine::key::{
    Key, OVERLAP_SECONDS_DEFAULT, OVERLAP_SECONDS_MAX, Permission, Permissions,
};
use paperbourse_core::ids::{KeyId, Timestamp};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::money::MICROS_PER_UNIT;
use paperbourse_core::wire::Time;
use paperbourse_exchange::service::{KeyListing, NewKey, NewKeyRequest};

/// Maximum length of a key's name, in characters.
pub(in crate::http) const KEY_NAME_CHARACTERS_MAX: usize = 100;
/// Maximum number of permissions in a request, counting repetitions.
pub(in crate::http) const PERMISSIONS_LISTED_MAX: usize = 32;

pub(in crate::http) async fn create(call: &Call<'_>, is_bootstrap: bool) -> Answer {
    call.service().require_unrotated(&call.caller)?;
    let request = read_new_key(&call.take_body())?;
    let new = call.service().create_key(&call.caller, request, is_bootstrap, call.context).await?;
    Ok(Reply::created(&NewKeyAnswer::of(&new)))
}

pub(in crate::http) async fn list(call: &Call<'_>) -> Answer {
    let keys = call.service().list_keys(&call.caller, call.context).await?;
    let now = call.context.moment.now;
    Ok(Reply::ok(&keys.iter().map(|listing| KeyRow::of(listing, now)).collect::<Vec<_>>()))
}

pub(in crate::http) async fn rename(call: &Call<'_>) -> Answer {
    call.service().require_unrotated(&call.caller)?;
    let (key, name) = both(call, read_name(&call.take_body()))?;
    let renamed = call.service().rename_key(&call.caller, key, name, call.context).await?;
    Ok(Reply::ok(&KeyRow::of(&renamed, call.context.moment.now)))
}

pub(in crate::http) async fn rotate(call: &Call<'_>) -> Answer {
    call.service().require_unrotated(&call.caller)?;
    let (key, overlap_seconds) = both(call, read_overlap(&call.take_body()))?;
    let new = call.service().rotate_key(&call.caller, key, overlap_seconds, call.context).await?;
    Ok(Reply::ok(&NewKeyAnswer::of(&new)))
}

pub(in crate::http) const REVOKE_QUERY: [Parameter; 1] =
    [Parameter::flag("descendants", "whether to revoke the keys it created, too")];

pub(in crate::http) async fn revoke(call: &Call<'_>) -> Answer {
    let key = call.id(KeyId::from_raw)?;
    let descendants = read_descendants(call.query())?;
    call.service().revoke_key(&call.caller, key, descendants, call.context).await?;
    Ok(Reply::message(if descendants {
        "The key is revoked, and with it every key that was made with it."
    } else {
        "The key is revoked."
    }))
}

pub(in crate::http) fn list_tiers(call: &Call<'_>) -> Reply {
    let tiers = call.service().tiers().all();
    let tiers = tiers.iter().map(|(tier, limits)| TierRow {
        tier: tier.as_str(),
        requests_per_second: limits.requests_per_second.shown(),
        requests_per_minute: limits.requests_per_minute.shown(),
        max_ws_connections: limits.sockets_max,
        max_ws_markets: limits.socket_markets_max.count(),
        max_batch_size: limits.batch_max,
    });
    Reply::ok(&tiers.collect::<Vec<_>>())
}

/// Combines the id in the path with the result of reading the body; errors of both are reported
/// together.
fn both<T>(call: &Call<'_>, body: Result<T, Invalid>) -> Result<(Option<KeyId>, T), ApiError> {
    ApiError::both(call.id(KeyId::from_raw).map_err(Invalid::from), body)
}

/// Reads the properties of a new key. The defaults, which also apply to an empty body, are no name,
/// the tier `free`, and the permissions to read and trade.
pub fn read_new_key(body: &[u8]) -> Result<NewKeyRequest, Invalid> {
    let mut errors = Vec::new();
    let body = or_empty_object(body);
    let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
    let name = fields.optional("name").and_then(|value| read_name_field(&mut fields, value));
    let tier = match fields.optional("tier") {
        None => Some(Tier::Free),
        Some(value) => read_tier(&mut fields, value),
    };
    let permissions = match fields.optional("permissions") {
        None => Some(Permissions::DEFAULT),
        Some(value) => read_permissions(&mut fields, value),
    };
    let request = tier.zip(permissions);
    let request = request.map(|(tier, permissions)| NewKeyRequest { name, tier, permissions });
    unless_invalid(errors, request)
}

/// Reads a new name, which is required; null removes the name.
fn read_name(body: &[u8]) -> Result<Option<Box<str>>, Invalid> {
    let mut errors = Vec::new();
    let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
    let name = fields.nullable("name").and_then(|value| read_name_field(&mut fields, value));
    unless_invalid(errors, Some(name))
}

/// Reads how long the old key keeps working, in seconds. The body may be empty.
fn read_overlap(body: &[u8]) -> Result<u32, Invalid> {
    const RANGE: Range =
        Range { above: None, min: 0, max: OVERLAP_SECONDS_MAX as i64 * MICROS_PER_UNIT };
    let mut errors = Vec::new();
    let body = or_empty_object(body);
    let mut fields = Fields::new(Object::of_body(body)?, Location::body(), &mut errors);
    let seconds = match fields.optional("overlap_seconds") {
        None => Some(OVERLAP_SECONDS_DEFAULT),
        Some(value) => {
            let seconds = fields.integer("overlap_seconds", value, &RANGE);
            seconds.map(|seconds| u32::try_from(seconds).expect("it is in range"))
        }
    };
    unless_invalid(errors, seconds)
}

fn or_empty_object(body: &[u8]) -> &[u8] {
    if body.trim_ascii().is_empty() { b"{}" } else { body }
}

fn read_name_field<'a>(fields: &mut Fields<'a, '_>, value: RawText<'a>) -> Option<Box<str>> {
    let name = fields.bounded_text("name", value, 0, KEY_NAME_CHARACTERS_MAX)?;
    fields.check_control_characters("name", &name, false).then(|| name.into())
}

fn read_tier(fields: &mut Fields<'_, '_>, value: RawText<'_>) -> Option<Tier> {
    let tier = json::text(value).as_deref().and_then(Tier::parse);
    if tier.is_none() {
        fields.note("tier", "enum", "should be free, pro or enterprise");
    }
    tier
}

fn read_permissions<'a>(fields: &mut Fields<'a, '_>, value: RawText<'a>) -> Option<Permissions> {
    let listed = fields.list("permissions", value, 1, PERMISSIONS_LISTED_MAX)?;
    let mut permissions = Vec::with_capacity(listed.len());
    for (index, element) in listed.into_iter().enumerate() {
        let permission = json::text(element).as_deref().and_then(Permission::from_name);
        if permission.is_none() {
            let mistake = ("enum", "should be read, trade or admin".into());
            fields.note_element("permissions", index, mistake);
        }
        permissions.extend(permission);
    }
    Permissions::of(permissions)
}

/// Reads whether to also revoke the keys that the key created.
fn read_descendants(mut query: Query<'_>) -> Result<bool, Invalid> {
    let descendants = query.flag("descendants");
    query.finish(descendants)
}

/// The answer to creating or rotating a key.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "NewKey")]
pub(in crate::http) struct NewKeyAnswer<'a> {
    /// The key's id.
    id: u64,
    /// The key: send it as `X-API-Key`.
    raw_key: &'a str,
    /// The beginning of the key, to tell it from others.
    key_prefix: &'a str,
    #[schemars(extend("enum" = ["free", "pro", "enterprise"]))]
    rate_limit_tier: &'static str,
    /// Some of `read`, `trade` and `admin`.
    permissions: Vec<&'static str>,
    created_at: Time,
    name: Option<&'a str>,
}

/// A row of the list, and the answer to renaming a key.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Key")]
pub(in crate::http) struct KeyRow<'a> {
    /// The key's id.
    id: u64,
    /// The beginning of the key, to tell it from others.
    key_prefix: &'a str,
    name: Option<&'a str>,
    #[schemars(extend("enum" = ["free", "pro", "enterprise"]))]
    rate_limit_tier: &'static str,
    /// Some of `read`, `trade` and `admin`.
    permissions: Vec<&'static str>,
    /// Whether the key works.
    is_active: bool,
    created_at: Time,
    /// Since the server started.
    last_used_at: Option<Time>,
    /// When a rotated key ends.
    expires_at: Option<Time>,
    /// The key that created this one.
    created_by: Option<u64>,
}

/// The limits of a tier. 2147483647 means unlimited.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Tier")]
pub(in crate::http) struct TierRow {
    #[schemars(extend("enum" = ["free", "pro", "enterprise"]))]
    tier: &'static str,
    requests_per_second: u32,
    requests_per_minute: u32,
    /// Open sockets per account.
    max_ws_connections: u32,
    /// Markets per price socket; null if it may have all.
    max_ws_markets: Option<u32>,
    /// Orders or markets in a batch.
    max_batch_size: u32,
}

impl<'a> NewKeyAnswer<'a> {
    fn of(new: &'a NewKey) -> Self {
        let NewKey { raw, key } = new;
        Self {
            id: key.id.get(),
            raw_key: raw.expose(),
            key_prefix: &key.grant.prefix,
            rate_limit_tier: key.grant.tier.as_str(),
            permissions: names(key),
            created_at: Time(key.created_at),
            name: key.grant.name.as_deref(),
        }
    }
}

impl<'a> KeyRow<'a> {
    fn of(listing: &'a KeyListing, now: Timestamp) -> Self {
        let KeyListing { key, last_used_at } = listing;
        Self {
            id: key.id.get(),
            key_prefix: &key.grant.prefix,
            name: key.grant.name.as_deref(),
            rate_limit_tier: key.grant.tier.as_str(),
            permissions: names(key),
            is_active: key.is_active(now),
            created_at: Time(key.created_at),
            last_used_at: last_used_at.map(Time),
            expires_at: key.grant.expires_at.map(Time),
            created_by: key.created_by.map(KeyId::get),
        }
    }
}

fn names(key: &Key) -> Vec<&'static str> {
    key.grant.permissions.iter().map(Permission::as_str).collect()
}

#[cfg(test)]
mod tests;
