//! Errors as clients of the venue expect them: `{"error": text}`, in the venue's words where it has
//! words for them.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::header::{HeaderName, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

use super::ApiError;
use crate::http::json::write::JsonObject;
use crate::http::operation::Access;
use crate::http::reply::Reply;
use paperbourse_clob::order::OrderError;
use paperbourse_exchange::service::{Denied, ServiceError};

/// The header that says what is wrong where the venue's text does not.
const REASON: HeaderName = HeaderName::from_static("x-paperbourse-reason");

/// The reason if a request that needs L2 headers has no `POLY_API_KEY`.
const L2_MISSING: &str = "send POLY_ADDRESS, POLY_SIGNATURE, POLY_TIMESTAMP, POLY_API_KEY and \
                          POLY_PASSPHRASE; a proxy may have dropped them (in nginx, \
                          underscores_in_headers on)";

/// An error of the venue's interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct ClobError {
    status: StatusCode,
    text: Cow<'static, str>,
    /// Gamma's name for errors of this kind; `None` for errors of the order book's interface.
    kind: Option<&'static str>,
    /// Seconds after which a retry makes sense, at least 1.
    retry_after_seconds: Option<u64>,
    /// What is wrong with the credentials, for [`REASON`].
    reason: Option<Cow<'static, str>>,
    /// The id that a heartbeat should have named.
    heartbeat_id: Option<Box<str>>,
    /// The venue's code, which few errors have.
    code: Option<&'static str>,
}

/// Why an operation of the venue's interface was refused.
pub(in crate::http) enum ClobRefusal {
    /// An error specific to this interface.
    Venue(ClobError),
    /// An error shared with other operations.
    Common(ApiError),
}

impl ClobError {
    const fn new(status: StatusCode, text: &'static str) -> Self {
        Self::of_kind(None, status, text)
    }

    const fn of_kind(kind: Option<&'static str>, status: StatusCode, text: &'static str) -> Self {
        Self {
            status,
            text: Cow::Borrowed(text),
            kind,
            retry_after_seconds: None,
            reason: None,
            heartbeat_id: None,
            code: None,
        }
    }

    /// The token is missing or malformed.
    pub(in crate::http) const INVALID_TOKEN: Self =
        Self::new(StatusCode::BAD_REQUEST, "Invalid token id");

    /// The side is neither `BUY` nor `SELL`.
    pub(in crate::http) const INVALID_SIDE: Self =
        Self::new(StatusCode::BAD_REQUEST, "Invalid side");

    /// The body is not what the operation reads, or a parameter has no meaning.
    pub(in crate::http) const INVALID_PAYLOAD: Self =
        Self::new(StatusCode::BAD_REQUEST, "Invalid payload");

    /// The request is too large, or its answer would be.
    pub(in crate::http) const TOO_LARGE: Self =
        Self::new(StatusCode::BAD_REQUEST, "Payload exceeds the limit");

    /// The market whose prices are asked for is missing.
    pub(in crate::http) const INVALID_MARKET: Self =
        Self::new(StatusCode::BAD_REQUEST, "Invalid market");

    /// The parameter `user` is missing or not an address.
    pub(in crate::http) const NO_USER: Self =
        Self::new(StatusCode::BAD_REQUEST, "required query param 'user' not provided");

    /// The token has no book.
    pub(in crate::http) const NO_BOOK: Self =
        Self::new(StatusCode::NOT_FOUND, "No orderbook exists for the requested token id");

    /// No market has this condition id or token.
    pub(in crate::http) const NO_MARKET: Self =
        Self::new(StatusCode::NOT_FOUND, "market not found");

    /// No market or event has this id.
    pub(in crate::http) const NO_ID: Self = Self::absent("id not found");

    /// No market or event has this slug.
    pub(in crate::http) const NO_SLUG: Self = Self::absent("slug not found");

    /// No wallet has a public profile.
    pub(in crate::http) const NO_PROFILE: Self = Self::absent("profile not found");

    const fn absent(text: &'static str) -> Self {
        Self::of_kind(Some("not found error"), StatusCode::NOT_FOUND, text)
    }

    /// A parameter of a request to Gamma is invalid.
    pub(in crate::http) fn invalid_field(name: &str) -> Self {
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let text = format!("{name} is invalid").into();
        Self { text, ..Self::of_kind(Some("validation error"), status, "") }
    }

    /// The account has no order with this id.
    pub(in crate::http) const NO_ORDER: Self = Self::new(StatusCode::NOT_FOUND, "order not found");

    /// The fee rate of the token's market is unknown.
    pub(in crate::http) const NO_FEE_RATE: Self =
        Self::new(StatusCode::NOT_FOUND, "fee rate not found for market");

    /// The wallet has no credentials for the nonce.
    pub(in crate::http) const NO_CREDENTIALS: Self =
        Self::new(StatusCode::BAD_REQUEST, "Could not derive api key!");

    /// Keys that only read, or that belong to builders.
    pub(in crate::http) const NO_SUCH_KEYS: Self =
        Self::new(StatusCode::NOT_FOUND, "not found: this server has no keys of this kind");

    /// The kind of asset is neither `COLLATERAL` nor `CONDITIONAL`.
    pub(in crate::http) const INVALID_ASSET_TYPE: Self =
        Self::new(StatusCode::BAD_REQUEST, "Invalid asset type");

    /// No wallets have this type.
    pub(in crate::http) const INVALID_SIGNATURE_TYPE: Self =
        Self::new(StatusCode::BAD_REQUEST, "Invalid signature_type");

    /// The heartbeat names another one than `expected`, the newest of the account.
    pub(in crate::http) fn invalid_heartbeat(expected: impl Into<Box<str>>) -> Self {
        let heartbeat_id = Some(expected.into());
        Self { heartbeat_id, ..Self::new(StatusCode::BAD_REQUEST, "Invalid Heartbeat ID") }
    }

    /// The body is neither an order nor an order id.
    pub(in crate::http) const INVALID_ORDER: Self =
        Self::new(StatusCode::BAD_REQUEST, "Invalid order payload");

    /// Wallets of this type, whose orders the venue no longer takes, are refused in strict mode.
    pub(in crate::http) const MAKER_NOT_ALLOWED: Self = Self::new(
        StatusCode::BAD_REQUEST,
        "maker address not allowed, please use the deposit wallet flow",
    );

    /// The venue's matching engine is restarting.
    pub(in crate::http) const RESTARTING: Self =
        Self::new(StatusCode::TOO_EARLY, "service not ready");

    /// The venue has failed to carry out the request.
    pub(in crate::http) const NOT_RUN: Self =
        Self::new(StatusCode::INTERNAL_SERVER_ERROR, "could not run the execution");

    /// The venue takes cancellations alone.
    pub(in crate::http) const CANCEL_ONLY: Self = Self::new(
        StatusCode::SERVICE_UNAVAILABLE,
        "Trading is currently cancel-only. New orders are not accepted, but cancels are allowed.",
    );

    /// The venue takes no orders that may match.
    pub(in crate::http) fn post_only() -> Self {
        let text = "post-only mode: only post-only orders and cancels are allowed";
        Self { code: Some("post_only_mode"), ..Self::new(StatusCode::SERVICE_UNAVAILABLE, text) }
    }

    /// The signer has used up its requests for so many seconds, at least 1.
    pub(in crate::http) fn too_many(retry_after_seconds: u64) -> Self {
        let retry_after_seconds = Some(retry_after_seconds);
        Self {
            retry_after_seconds,
            ..Self::new(StatusCode::TOO_MANY_REQUESTS, "Too Many Requests")
        }
    }

    /// Refuses an order, or a request about orders, in the venue's words.
    pub(in crate::http) fn refused(text: String) -> Self {
        Self { text: text.into(), ..Self::INVALID_ORDER }
    }

    /// Returns the text of the error.
    pub(in crate::http) fn text(&self) -> &str {
        &self.text
    }

    /// Converts an error from the checks that all operations share, for an operation with this
    /// access.
    pub(in crate::http) fn of(error: ApiError, access: Access) -> Self {
        let text = match (error.status, access) {
            (StatusCode::UNAUTHORIZED, Access::Wallet) => "Invalid L1 Request headers",
            (StatusCode::UNAUTHORIZED, Access::WalletKey(_)) => "Unauthorized/Invalid api key",
            _ => return Self::plain(error),
        };
        let reason = match error.code {
            "MISSING_AUTH" => L2_MISSING.into(),
            _ => error.message,
        };
        Self { reason: Some(reason), ..Self::new(StatusCode::UNAUTHORIZED, text) }
    }

    /// Converts the error to a response.
    pub(in crate::http) fn into_reply(self) -> Reply {
        let mut out = Vec::with_capacity(48 + self.text.len());
        let mut body = JsonObject::new(&mut out);
        if let Some(kind) = self.kind {
            body.text("type", kind);
        }
        match &self.heartbeat_id {
            // Clients look for this key to tell the error from others, and go on with the id.
            Some(id) => {
                body.text("error_msg", &self.text);
                body.text("heartbeat_id", id);
            }
            None => body.text("error", &self.text),
        }
        if let Some(code) = self.code {
            body.text("code", code);
        }
        if let Some(seconds) = self.retry_after_seconds {
            body.integer("retry_after_seconds", seconds);
        }
        body.end();
        let mut reply = Reply::json(self.status, out);
        if let Some(seconds) = self.retry_after_seconds {
            reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if let Some(reason) = self.reason {
            let value = HeaderValue::try_from(&*reason).expect("texts of errors are ASCII");
            reply.headers.insert(REASON, value);
        } else if self.status == StatusCode::UNAUTHORIZED {
            reply.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        reply
    }
}

impl ClobError {
    fn plain(error: ApiError) -> Self {
        match error.code {
            "BODY_TOO_LARGE" => return Self::TOO_LARGE,
            "VALIDATION_FAILED" | "INVALID_INTERVAL" => return Self::INVALID_PAYLOAD,
            _ => {}
        }
        let text = match error.code {
            "RATE_LIMIT_EXCEEDED" => "Too Many Requests".into(),
            _ => error.message,
        };
        let ApiError { status, retry_after_seconds, .. } = error;
        let plain = Self::new(status, "");
        Self { text, retry_after_seconds, ..plain }
    }
}

impl From<ClobError> for ClobRefusal {
    fn from(error: ClobError) -> Self {
        Self::Venue(error)
    }
}

/// Converts a flaw of an order, for which the venue's status is always the same.
impl From<OrderError> for ClobError {
    fn from(error: OrderError) -> Self {
        Self::refused(error.to_string())
    }
}

impl ClobRefusal {
    /// Returns the error that clients of an operation with this access expect.
    pub(in crate::http) fn into_error(self, access: Access) -> ClobError {
        match self {
            Self::Venue(error) => error,
            Self::Common(error) => ClobError::of(error, access),
        }
    }
}

impl From<ApiError> for ClobRefusal {
    fn from(error: ApiError) -> Self {
        Self::Common(error)
    }
}

impl From<ServiceError> for ClobRefusal {
    fn from(error: ServiceError) -> Self {
        Self::Common(error.into())
    }
}

impl From<Denied> for ClobRefusal {
    fn from(denied: Denied) -> Self {
        Self::Common(denied.into())
    }
}
