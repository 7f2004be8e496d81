//! Errors as clients of the venue expect them: `{"error": text}`, in the venue's words where it has
//! words for them.

use std::borrow::Cow;

use hyper::StatusCode;
use hyper::header::{HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE};

use super::ApiError;
use crate::http::json::write::JsonObject;
use crate::http::reply::Reply;

/// An error of the venue's interface.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::http) struct ClobError {
    status: StatusCode,
    text: Cow<'static, str>,
    /// Seconds after which a retry makes sense, at least 1.
    retry_after_seconds: Option<u64>,
}

impl ClobError {
    const fn new(status: StatusCode, text: &'static str) -> Self {
        Self { status, text: Cow::Borrowed(text), retry_after_seconds: None }
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

    /// The token has no book.
    pub(in crate::http) const NO_BOOK: Self =
        Self::new(StatusCode::NOT_FOUND, "No orderbook exists for the requested token id");

    /// No market has this condition id or token.
    pub(in crate::http) const NO_MARKET: Self =
        Self::new(StatusCode::NOT_FOUND, "market not found");

    /// The fee rate of the token's market is unknown.
    pub(in crate::http) const NO_FEE_RATE: Self =
        Self::new(StatusCode::NOT_FOUND, "fee rate not found for market");

    /// Converts the error to a response.
    pub(in crate::http) fn into_reply(self) -> Reply {
        let mut out = Vec::with_capacity(48 + self.text.len());
        let mut body = JsonObject::new(&mut out);
        body.text("error", &self.text);
        if let Some(seconds) = self.retry_after_seconds {
            body.integer("retry_after_seconds", seconds);
        }
        body.end();
        let mut reply = Reply::json(self.status, out);
        if let Some(seconds) = self.retry_after_seconds {
            reply.headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            reply.headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        reply
    }
}

/// Converts an error from the checks that all operations share.
impl From<ApiError> for ClobError {
    fn from(error: ApiError) -> Self {
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
        Self { status, text, retry_after_seconds }
    }
}
