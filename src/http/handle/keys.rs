//! Keys, tiers and the tokens for sockets.

use hyper::StatusCode;

use super::{Answer, Call};
use crate::auth::ws_token::WS_TOKEN_SECONDS;
use crate::http::error::ApiError;
use crate::http::invalid::Invalid;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::request::key::{KeyRequest, RenameRequest, RotateRequest};
use crate::http::request::path::read_id;
use crate::http::request::query::read_descendants;
use crate::http::respond::Reply;
use crate::http::respond::key::{
    write_key, write_keys, write_message, write_new_key, write_socket_token,
};
use crate::ids::KeyId;
use crate::service::NewKeyRequest;

pub(super) async fn create(call: &Call<'_>, is_bootstrap: bool) -> Answer {
    call.caller.require_unrotated()?;
    let KeyRequest { name, tier, permissions } = KeyRequest::read(&call.body)?;
    let request = NewKeyRequest { name, tier, permissions };
    let new =
        call.exchange.service.create_key(&call.caller, request, is_bootstrap, call.visit).await?;
    let mut body = Vec::with_capacity(320);
    write_new_key(&mut body, &new.key, new.raw.expose());
    Ok(Reply::json(StatusCode::CREATED, body))
}

pub(super) async fn list(call: &Call<'_>) -> Answer {
    let keys = call.exchange.service.list_keys(&call.caller, call.visit).await?;
    let mut body = Vec::with_capacity(64 + 256 * keys.len());
    let rows = keys.iter().map(|listing| (&listing.key, listing.last_used_at));
    write_keys(&mut body, rows, call.visit.moment.now);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn rename(call: &Call<'_>, key_id: &str) -> Answer {
    call.caller.require_unrotated()?;
    let (key, request) = read_both(key_id, RenameRequest::read(&call.body))?;
    let service = &call.exchange.service;
    let renamed = service.rename_key(&call.caller, key, request.name, call.visit).await?;
    let mut body = Vec::with_capacity(256);
    write_key(&mut body, &renamed.key, renamed.last_used_at, call.visit.moment.now);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) async fn rotate(call: &Call<'_>, key_id: &str) -> Answer {
    call.caller.require_unrotated()?;
    let (key, request) = read_both(key_id, RotateRequest::read(&call.body))?;
    let service = &call.exchange.service;
    let new = service.rotate_key(&call.caller, key, request.overlap_seconds, call.visit).await?;
    let mut body = Vec::with_capacity(320);
    write_new_key(&mut body, &new.key, new.raw.expose());
    Ok(Reply::json(StatusCode::OK, body))
}

/// What is wrong with the path and with the body is told together.
fn read_both<T>(key_id: &str, request: Result<T, Invalid>) -> Result<(Option<KeyId>, T), ApiError> {
    ApiError::both(read_id(key_id).map_err(Invalid::from), request)
}

pub(super) async fn revoke(call: &Call<'_>, key_id: &str) -> Answer {
    let key = read_id(key_id)?;
    let descendants = read_descendants(call.query())?;
    call.exchange.service.revoke_key(&call.caller, key, descendants, call.visit).await?;
    let mut body = Vec::with_capacity(64);
    let message = if descendants {
        "The key is revoked, and with it every key that was made with it."
    } else {
        "The key is revoked."
    };
    write_message(&mut body, message);
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) fn list_tiers(call: &Call<'_>) -> Reply {
    let mut body = Vec::with_capacity(512);
    write_list(&mut body, call.exchange.service.tiers().iter(), |out, (tier, limits)| {
        let mut row = JsonObject::new(out);
        row.text("tier", tier.as_str());
        row.integer("requests_per_second", limits.requests_per_second.shown().into());
        row.integer("requests_per_minute", limits.requests_per_minute.shown().into());
        row.integer("max_ws_connections", limits.sockets_max.into());
        row.integer("max_batch_size", limits.batch_max.into());
        row.end();
    });
    Reply::json(StatusCode::OK, body)
}

pub(super) fn create_socket_token(call: &Call<'_>) -> Answer {
    let token = call.exchange.service.mint_ws_token(&call.caller, call.visit.moment)?;
    let mut body = Vec::with_capacity(192);
    write_socket_token(&mut body, &token, WS_TOKEN_SECONDS.into());
    Ok(Reply::json(StatusCode::OK, body))
}
