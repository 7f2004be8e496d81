//! A request that has passed the common checks, as its operation receives it.

use std::borrow::Cow;
use std::sync::Arc;

use hyper::Version;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::request::Parts;
use parking_lot::Mutex;
use tokio::sync::RwLockReadGuard;

use super::app::AppState;
use super::body::WholeBody;
use super::error::ApiError;
use super::invalid::{FieldError, Location};
use super::operation::Operation;
use super::query::{Query, read_wallet};
use super::reply::Reply;
use super::request_headers::RequestHeaders;
use super::route::decode;
use crate::telemetry::Metrics;
use crate::ws::turns::Turns;
use paperbourse_exchange::service::{Caller, RequestContext, Service, Wallet};

/// The result of an operation.
pub(super) type Answer = Result<Reply, ApiError>;

/// A request whose caller is identified and admitted.
pub(super) struct Call<'a> {
    pub(super) metrics: &'a Metrics,
    /// The turns of the readers on this worker.
    pub(super) turns: &'a Arc<Turns>,
    pub(super) app: &'a Arc<AppState>,
    pub(super) operation: &'static Operation,
    pub(super) context: RequestContext<'a>,
    pub(super) caller: Caller,
    pub(super) head: &'a Parts,
    pub(super) headers: &'a RequestHeaders<'a>,
    /// The unparsed body, until [`Self::take_body`] takes it.
    pub(super) body: Mutex<WholeBody>,
}

impl<'a> Call<'a> {
    pub(super) fn service(&self) -> &'a Service {
        &self.app.service
    }

    /// Takes the body, leaving an empty one. A request may wait for seconds, so its body should be
    /// freed as soon as it has been parsed.
    pub(super) fn take_body(&self) -> WholeBody {
        std::mem::take(&mut *self.body.lock())
    }

    /// Holds back trouble on demand from undoing fills until the result is dropped, so that several
    /// reads of an account agree.
    pub(super) async fn hold_still(&self) -> Option<RwLockReadGuard<'a, ()>> {
        match &self.app.trouble {
            Some(trouble) => Some(trouble.hold_still().await),
            None => None,
        }
    }

    pub(super) fn query(&self) -> Query<'a> {
        Query::new(self.operation, self.head.uri.query())
    }

    /// Returns the value of a header, if it was sent. A repeated header means a list, so its values
    /// are joined with commas.
    pub(super) fn header(&self, name: &HeaderName) -> Option<Cow<'a, [u8]>> {
        let mut values = self.head.headers.get_all(name).iter().map(HeaderValue::as_bytes);
        let first = values.next()?;
        Some(
            values.fold(Cow::Borrowed(first), |list, value| [&list, value].join(&b", "[..]).into()),
        )
    }

    /// Returns the path's parameter, percent-decoded.
    pub(super) fn parameter(&self) -> Cow<'a, str> {
        let segment = self.operation.path.segment(self.head.uri.path());
        segment.and_then(decode).expect("the path matched the operation's pattern")
    }

    /// Fails for HTTP/1.0, which cannot carry a stream: a stream that was cut off would look
    /// complete.
    pub(super) fn require_streams(&self) -> Result<(), ApiError> {
        if self.head.version < Version::HTTP_11 {
            return Err(ApiError::http_version_too_old());
        }
        Ok(())
    }

    /// Returns the path's parameter as a wallet.
    pub(super) fn wallet(&self) -> Result<Wallet, FieldError> {
        let location = Location::of("path").field(self.operation.path.parameter());
        read_wallet(location, &self.parameter())
    }

    /// Returns the path's parameter as an id, converted by `from_number`; `None` if it cannot be an
    /// id.
    pub(super) fn id<T>(
        &self,
        from_number: impl FnOnce(u64) -> Option<T>,
    ) -> Result<Option<T>, FieldError> {
        let location = Location::of("path").field(self.operation.path.parameter());
        read_id(location, &self.parameter(), from_number)
    }
}

/// Reads an id. Text that is not an integer is an error. An integer that cannot be an id gives
/// `None`, which the operation reports as not found.
pub(super) fn read_id<T>(
    location: Location,
    text: &str,
    from_number: impl FnOnce(u64) -> Option<T>,
) -> Result<Option<T>, FieldError> {
    let digits = text.strip_prefix(['+', '-']).unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(FieldError {
            location,
            kind: "int_parsing",
            message: "should be an integer".into(),
        });
    }
    if text.starts_with('-') {
        return Ok(None);
    }
    Ok(digits.parse().ok().and_then(from_number))
}

#[cfg(test)]
mod tests {
    use super::*;
    use paperbourse_core::ids::OrderId;

    #[test]
    fn an_integer_that_cannot_be_an_id_is_none() {
        let location = || Location::of("path").field("order_id");
        let read = |text| read_id(location(), text, OrderId::from_raw);
        let id = |number| Ok(OrderId::from_raw(number));
        for (text, expected) in [
            ("64", id(64)),
            ("0064", id(64)),
            ("+64", id(64)),
            ("9007199254740991", id(9_007_199_254_740_991)),
            ("0", Ok(None)),
            ("63", Ok(None)),
            ("-64", Ok(None)),
            ("9007199254740992", Ok(None)),
            ("99999999999999999999999999", Ok(None)),
        ] {
            assert_eq!(read(text), expected, "{text}");
        }
        for text in ["", "-", "+-1", "6 4", " 64", "64.0", "1e3", "0x40", "x", "٦٤"] {
            let error = read(text).unwrap_err();
            assert_eq!(error.location.to_string(), "path.order_id", "{text}");
            assert_eq!(error.kind, "int_parsing");
        }
    }
}
