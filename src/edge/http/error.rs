//! Every error that a client can receive, and the shape that all errors share.
//!
//! `{"detail": …, "error": CODE, "message": text}` and the header `X-Polysim-Code: CODE`. `detail`
//! repeats the text, except for a request that fails validation, where it lists the failing fields.
//! Two errors have a different code in the header than in the body; see [`ApiError::header_code`].

mod clob;
pub mod codes;
mod refusals;

use std::borrow::Cow;

use hyper::header::{
    ALLOW, CONNECTION, HeaderName, HeaderValue, RETRY_AFTER, SEC_WEBSOCKET_VERSION, UPGRADE,
    WWW_AUTHENTICATE,
};
use hyper::{Method, StatusCode};

pub(super) use self::clob::{ClobError, ClobRefusal};
use super::body::BodyError;
use super::invalid::{FieldError, Invalid};
use super::json::write::{JsonObject, write_list, write_text};
use super::operation::Allow;
use super::reply::Reply;
use super::route::{RouteError, nearest};
use crate::ws::UpgradeError;
use paperbourse_core::engine::key::Permission;
use paperbourse_core::limits::tier::Tier;
use paperbourse_exchange::auth::api_key::KeyFlaw;
use paperbourse_exchange::auth::identity::TokenFlaw;
use paperbourse_exchange::auth::wallet::WalletError;
use paperbourse_exchange::service::RateRule;

/// The header that carries an error's code.
pub const CODE_HEADER: HeaderName = HeaderName::from_static("x-polysim-code");

/// An error response.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ApiError {
    /// The status of the response.
    pub status: StatusCode,
    /// The error's code, for programs. It is one of [`codes::CODES`].
    pub code: &'static str,
    /// A human-readable sentence: what happened and what to do about it.
    pub message: Cow<'static, str>,
    /// The invalid fields, if the request failed validation.
    pub fields: Vec<FieldError>,
    /// The intervals that the operation supports, if the request asked for another one.
    pub supported_intervals: &'static [&'static str],
    /// Seconds after which a retry makes sense, at least 1.
    pub retry_after_seconds: Option<u64>,
    /// The methods that the path allows, if the method was wrong.
    pub allow: Option<Allow>,
    /// The cause of an internal error, for the log; never sent to the client.
    pub cause: Option<&'static str>,
}

impl ApiError {
    fn new(status: StatusCode, code: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        debug_assert_eq!(codes::status_of(code), Some(status), "{code}");
        Self {
            status,
            code,
            message: message.into(),
            fields: Vec::new(),
            supported_intervals: &[],
            retry_after_seconds: None,
            allow: None,
            cause: None,
        }
    }

    fn unauthorized(code: &'static str, message: &'static str) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, code, message)
    }

    fn unavailable(code: &'static str, message: &'static str) -> Self {
        let retry_after_seconds = Some(1);
        Self { retry_after_seconds, ..Self::new(StatusCode::SERVICE_UNAVAILABLE, code, message) }
    }

    /// The request has no `Host` header, or several.
    pub fn invalid_host() -> Self {
        let message = "A request needs exactly one Host header.";
        Self::new(StatusCode::BAD_REQUEST, "INVALID_HOST", message)
    }

    /// `Transfer-Encoding` is not just `chunked`, so a proxy in front of the server could disagree
    /// about where the body ends.
    pub fn invalid_transfer_encoding() -> Self {
        let message = "Transfer-Encoding, if sent, must be `chunked` and nothing else.";
        Self::new(StatusCode::BAD_REQUEST, "INVALID_TRANSFER_ENCODING", message)
    }

    /// The body is longer than the operation accepts.
    pub fn body_too_large(bytes_max: usize) -> Self {
        let message = format!("The body exceeds the {bytes_max} bytes that this path accepts.");
        Self::new(StatusCode::PAYLOAD_TOO_LARGE, "BODY_TOO_LARGE", message)
    }

    /// No operation has this path. The message suggests an operation that was perhaps meant.
    #[cold]
    pub fn no_route(error: RouteError, method: &Method, path: &str) -> Self {
        let unknown = Self::from(error);
        match nearest(method, path).filter(|_| error == RouteError::NotFound) {
            Some(meant) => {
                Self { message: format!("No such path; did you mean {meant}?").into(), ..unknown }
            }
            None => unknown,
        }
    }

    /// A credential is required, but none was sent.
    pub fn missing_auth() -> Self {
        Self::unauthorized(
            "MISSING_AUTH",
            "A credential is required: send `X-API-Key: KEY` or `Authorization: Bearer KEY`.",
        )
    }

    /// The text has the form of an API key, but no key matches it.
    pub fn invalid_key() -> Self {
        Self::unauthorized(
            "INVALID_KEY",
            "The API key is unknown to this server; POST /v1/keys makes one, with an access token.",
        )
    }

    /// The text sent as an API key does not have the form of one.
    pub fn not_a_key(flaw: KeyFlaw) -> Self {
        let message = format!("Not an API key: {flaw}.");
        Self::new(StatusCode::UNAUTHORIZED, "INVALID_KEY", message)
    }

    /// The credentials of a wallet do not prove that it calls.
    pub fn invalid_wallet(error: WalletError) -> Self {
        Self::new(StatusCode::UNAUTHORIZED, "INVALID_KEY", error.to_string())
    }

    /// The key was revoked.
    pub fn key_deactivated() -> Self {
        Self::unauthorized("KEY_DEACTIVATED", "The API key was revoked.")
    }

    /// The key was rotated, and its overlap has ended.
    pub fn key_expired() -> Self {
        Self::unauthorized("KEY_EXPIRED", "The API key has expired.")
    }

    /// The access token does not verify.
    pub fn invalid_token(flaw: &TokenFlaw) -> Self {
        let message = format!("The access token {flaw}.");
        Self::new(StatusCode::UNAUTHORIZED, "INVALID_TOKEN", message)
    }

    /// The access token has expired.
    pub fn token_expired() -> Self {
        Self::unauthorized("TOKEN_EXPIRED", "The access token has expired; sign in again.")
    }

    /// The issuer's keys could not be fetched.
    pub fn identity_unavailable(retry_after_seconds: u64) -> Self {
        let message = "The identity provider does not respond, so the access token cannot be \
                       checked; API keys still work. Retry.";
        Self {
            retry_after_seconds: Some(retry_after_seconds.max(1)),
            ..Self::unavailable("IDENTITY_UNAVAILABLE", message)
        }
    }

    /// The operation accepts only keys, but an access token was sent.
    pub fn token_not_accepted() -> Self {
        Self::unauthorized(
            "INVALID_TOKEN",
            "This path requires an API key, not an access token: POST /v1/keys/bootstrap makes the \
             first key, and POST /v1/keys makes more.",
        )
    }

    /// The key lacks a permission.
    pub fn insufficient_permission(permission: Permission) -> Self {
        let name = permission.as_str();
        let message = format!(
            "The API key lacks the permission {name:?}: use a key that has it, or create one \
             with POST /v1/keys."
        );
        Self::new(StatusCode::FORBIDDEN, "INSUFFICIENT_PERMISSION", message)
    }

    /// The caller tried to create, read or end a key beyond its own permissions.
    pub fn escalation() -> Self {
        let message =
            "A key without \"admin\" can manage only itself and grant only permissions it has.";
        Self::new(StatusCode::FORBIDDEN, "INSUFFICIENT_PERMISSION", message)
    }

    /// The tier is above the highest that the caller may grant, which is `highest` if known.
    pub fn tier_not_authorized(highest: Option<Tier>) -> Self {
        let message = match highest {
            Some(highest) => format!(
                "The tier is above the caller's own: ask for {}.",
                Tier::ALL.map(Tier::as_str)[..=highest as usize].join(" or ")
            ),
            None => "The tier is above the caller's own.".to_owned(),
        };
        Self::new(StatusCode::FORBIDDEN, "TIER_NOT_AUTHORIZED", message)
    }

    /// A rate limit was reached. A request sent `retry_after_seconds` from now is certain to be
    /// admitted.
    ///
    /// `allowed` is the number of requests that the tier allows, if the limit belongs to a tier.
    pub fn rate_limited(rule: RateRule, retry_after_seconds: u64, allowed: Option<u32>) -> Self {
        let seconds = retry_after_seconds.max(1);
        let message = match rule.subject() {
            None => {
                let tier = rule.tier().map_or("", Tier::as_str);
                let allowed = allowed.map_or_else(String::new, |allowed| format!(" {allowed}"));
                let window = rule.as_str();
                format!(
                    "Rate limit exceeded. Retry after {seconds}s. The tier {tier} allows{allowed} \
                     requests in a {window}."
                )
            }
            Some(subject) => {
                format!("Rate limit exceeded: {subject}. Retry after {seconds}s.")
            }
        };
        Self {
            retry_after_seconds: Some(seconds),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "RATE_LIMIT_EXCEEDED", message)
        }
    }

    /// A batch is longer than the caller's tier allows.
    pub fn batch_limit_exceeded(count: usize, count_max: usize, tier: Tier) -> Self {
        let tier = tier.as_str();
        let message =
            format!("The batch has {count} entries; the tier {tier} allows {count_max}: split it.");
        Self::new(StatusCode::BAD_REQUEST, "BATCH_LIMIT_EXCEEDED", message)
    }

    /// The cancellation of all orders was not confirmed.
    pub fn confirmation_required() -> Self {
        let message = "This cancels all open orders: send the header X-Confirm-Cancel-All: true, \
                       or ?confirm=true.";
        Self::new(StatusCode::BAD_REQUEST, "CONFIRMATION_REQUIRED", message)
    }

    /// No outcome has this token.
    pub fn token_not_found() -> Self {
        let message = "No outcome has this token; GET /v1/markets lists them.";
        Self::new(StatusCode::NOT_FOUND, "TOKEN_NOT_FOUND", message)
    }

    /// No market has this slug.
    pub fn slug_not_found(slug: &str) -> Self {
        let message = format!("No market has the slug {slug}; GET /v1/markets lists them.");
        Self::new(StatusCode::NOT_FOUND, "MARKET_NOT_FOUND", message)
    }

    /// The wallet is not the caller's.
    pub fn wallet_not_found() -> Self {
        let message = "No such wallet. An account has one; its id is the user_id of GET /v1/me.";
        Self::new(StatusCode::NOT_FOUND, "WALLET_NOT_FOUND", message)
    }

    /// The `before` or `after` of a list is not a whole number of seconds.
    pub fn invalid_time_filter() -> Self {
        let message = "Invalid time filter: before and after are whole seconds since 1970.";
        Self::new(StatusCode::BAD_REQUEST, "INVALID_TIME_FILTER", message)
    }

    /// The token id is not a decimal number.
    pub fn invalid_token_id() -> Self {
        let message = "Invalid token id: a token id is a decimal number.";
        Self::new(StatusCode::BAD_REQUEST, "INVALID_TOKEN_ID", message)
    }

    /// The request names no token.
    pub fn missing_token_id() -> Self {
        let message = "A token is required: the market parameter is the token of an outcome.";
        Self::new(StatusCode::BAD_REQUEST, "INVALID_TOKEN_ID", message)
    }

    /// The server cannot compute the fee of the token's market.
    pub fn fee_rate_not_found() -> Self {
        let message = "This server does not support the fee schedule of this market.";
        Self::new(StatusCode::NOT_FOUND, "FEE_RATE_NOT_FOUND", message)
    }

    /// The venue has not sent a book for this outcome.
    pub fn book_unavailable() -> Self {
        let message = "No order book is known for this outcome.";
        Self::new(StatusCode::NOT_FOUND, "BOOK_UNAVAILABLE", message)
    }

    /// The interval is not supported.
    pub fn invalid_interval(supported: &'static [&'static str]) -> Self {
        let message = format!("Unsupported interval: use one of {}.", supported.join(", "));
        let error = Self::new(StatusCode::BAD_REQUEST, "INVALID_INTERVAL", message);
        Self { supported_intervals: supported, ..error }
    }

    /// The path is a WebSocket, but the request is not a valid upgrade.
    pub fn upgrade_required(error: UpgradeError) -> Self {
        let code = match error {
            UpgradeError::HttpTooOld => "HTTP_VERSION_TOO_OLD",
            UpgradeError::NotAnUpgrade
            | UpgradeError::MissingKey
            | UpgradeError::InvalidKey
            | UpgradeError::UnsupportedVersion => "UPGRADE_REQUIRED",
        };
        let message = format!("This path is a WebSocket: {error}.");
        Self::new(StatusCode::UPGRADE_REQUIRED, code, message)
    }

    /// The answer would be a stream, which HTTP/1.0 cannot carry: every end of a stream would look
    /// clean.
    pub fn http_version_too_old() -> Self {
        let message = "This path is a stream and needs HTTP/1.1; in nginx, set proxy_http_version \
                       1.1.";
        Self::new(StatusCode::UPGRADE_REQUIRED, "HTTP_VERSION_TOO_OLD", message)
    }

    /// The address has reached its limit of open price streams.
    pub fn stream_limit_exceeded(count_max: u32) -> Self {
        let message =
            format!("An address may have at most {count_max} price streams open; close one first.");
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "STREAM_LIMIT_EXCEEDED", message)
        }
    }

    /// The account has reached its limit of concurrent exports.
    pub fn export_limit_exceeded(count_max: u32) -> Self {
        let message = format!(
            "An account may run at most {count_max} exports at once; wait for one to finish."
        );
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "EXPORT_LIMIT_EXCEEDED", message)
        }
    }

    /// The server is overloaded; nothing has changed.
    pub fn server_busy() -> Self {
        Self::unavailable("SERVER_BUSY", "The server is busy; nothing was done. Retry.")
    }

    /// No storage space is left; nothing has changed.
    pub fn journal_full() -> Self {
        let message = "The server has no disk space or file descriptors left for its journal; \
                       nothing was done. Retry later; if it lasts, tell the operator.";
        Self::unavailable("JOURNAL_FULL", message)
    }

    /// The server is starting or stopping.
    pub fn not_ready() -> Self {
        Self::unavailable(
            "NOT_READY",
            "The server is starting or stopping; nothing was done. Retry.",
        )
    }

    /// This node cannot read the cluster's log, so it cannot tell which node serves.
    pub fn log_halted() -> Self {
        Self::unavailable(
            "LOG_HALTED",
            "The cluster's log is damaged, and this node can read no further. Try another node. If \
             none answers, the cluster's operator must repair the log.",
        )
    }

    /// A write was in progress at a node that is gone or has given up the log, so it is unknown
    /// whether the write was carried out.
    pub fn outcome_unknown() -> Self {
        let message = "It is not known whether the request was carried out. Send it again with the \
                       same client_order_id or Idempotency-Key.";
        Self {
            retry_after_seconds: Some(1),
            ..Self::new(StatusCode::GATEWAY_TIMEOUT, "OUTCOME_UNKNOWN", message)
        }
    }

    /// A bug. The cause is logged, not sent to the client.
    pub fn internal(cause: &'static str) -> Self {
        let message = "Internal error; the server's log has the details under this X-Request-Id.";
        let status = StatusCode::INTERNAL_SERVER_ERROR;
        Self { cause: Some(cause), ..Self::new(status, "INTERNAL_ERROR", message) }
    }

    /// The server has reached its limit of accounts, keys or memory.
    pub fn server_full() -> Self {
        Self::unavailable(
            "SERVER_FULL",
            "The server is at capacity; nothing was done. Retry later.",
        )
    }

    /// Combines two validation results, reporting the errors of both.
    pub fn both<A, B>(
        first: Result<A, Invalid>,
        second: Result<B, Invalid>,
    ) -> Result<(A, B), Self> {
        match (first, second) {
            (Ok(first), Ok(second)) => Ok((first, second)),
            (Err(mut first), Err(second)) => {
                first.errors.extend(second.errors);
                Err(first.into())
            }
            (Err(invalid), Ok(_)) | (Ok(_), Err(invalid)) => Err(invalid.into()),
        }
    }

    /// Returns the JSON body.
    pub fn body(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(96 + 2 * self.message.len() + 96 * self.fields.len());
        let mut body = JsonObject::new(&mut out);
        if self.fields.is_empty() {
            body.text("detail", &self.message);
        } else {
            write_list(body.value("detail"), &self.fields, |out, field| {
                let mut object = JsonObject::new(out);
                write_list(object.value("loc"), field.location.steps(), |out, step| {
                    write_text(out, &step);
                });
                object.text("msg", &field.message);
                object.text("type", field.kind);
                object.end();
            });
        }
        body.text("error", self.code);
        body.text("message", &self.message);
        if !self.supported_intervals.is_empty() {
            write_list(body.value("supported_intervals"), self.supported_intervals, |out, name| {
                write_text(out, name);
            });
        }
        body.end();
        out
    }

    /// Returns the code for the header. Two errors have a different code here than in the body,
    /// because clients that read the header know them by other names.
    pub fn header_code(&self) -> &'static str {
        match self.code {
            "INVALID_POST_ONLY_ORDER" => "POST_ONLY_WOULD_CROSS",
            "INVALID_ORDER_MIN_SIZE" => "ORDER_BELOW_MIN_SIZE",
            code => code,
        }
    }

    /// Converts the error to a response.
    pub fn into_reply(self) -> Reply {
        let mut reply = Reply::json(self.status, self.body());
        let headers = &mut reply.headers;
        headers.insert(CODE_HEADER, HeaderValue::from_static(self.header_code()));
        if let Some(seconds) = self.retry_after_seconds {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(allow) = self.allow {
            let allow = HeaderValue::try_from(allow.to_string());
            headers.insert(ALLOW, allow.expect("methods are visible ASCII"));
        }
        if self.status == StatusCode::UPGRADE_REQUIRED {
            let is_socket = self.code == "UPGRADE_REQUIRED";
            let protocol = if is_socket { "websocket" } else { "HTTP/1.1" };
            headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
            headers.insert(UPGRADE, HeaderValue::from_static(protocol));
            if is_socket {
                headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
            }
        }
        if self.status == StatusCode::UNAUTHORIZED {
            headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        reply
    }
}

impl From<BodyError> for ApiError {
    fn from(error: BodyError) -> Self {
        match error {
            BodyError::TooLarge { bytes_max } => Self::body_too_large(bytes_max),
            BodyError::OverBudget => Self::server_busy(),
            // The connection is gone: nothing will read this.
            BodyError::Broken(_) => {
                Self::new(StatusCode::BAD_REQUEST, "BODY_INCOMPLETE", "The body could not be read.")
            }
        }
    }
}

impl From<RouteError> for ApiError {
    fn from(error: RouteError) -> Self {
        match error {
            RouteError::NotFound => {
                let message = "No such path; GET /openapi.json lists all.";
                Self::new(StatusCode::NOT_FOUND, "NOT_FOUND", message)
            }
            RouteError::NotOffered { reason } => {
                Self::new(StatusCode::NOT_FOUND, "NOT_OFFERED", reason)
            }
            RouteError::MethodNotAllowed { allow } => {
                let message = format!("This path allows only {allow}.");
                let status = StatusCode::METHOD_NOT_ALLOWED;
                Self { allow: Some(allow), ..Self::new(status, "METHOD_NOT_ALLOWED", message) }
            }
        }
    }
}

impl From<Invalid> for ApiError {
    fn from(invalid: Invalid) -> Self {
        let fields = invalid.errors;
        let message = match fields.as_slice() {
            [one] => {
                let end = if one.message.ends_with('?') { "" } else { "." };
                format!("{}: {}{end}", one.location, one.message)
            }
            [first, rest @ ..] => {
                let count = rest.len();
                format!("{}: {} (and {count} more in detail).", first.location, first.message)
            }
            [] => unreachable!("an invalid request has at least one error"),
        };
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        Self { fields, ..Self::new(status, "VALIDATION_FAILED", message) }
    }
}

impl From<FieldError> for ApiError {
    fn from(error: FieldError) -> Self {
        Self::from(Invalid::from(error))
    }
}

#[cfg(test)]
mod tests;
