//! Cross-origin access (CORS): which web pages may call the API from a browser. No page may, unless
//! the operator lists its origin.
//!
//! A page that may call the API sends a key or a token itself; cookies and other ambient
//! credentials are never allowed.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use arc_swap::ArcSwap;
use hyper::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD,
    HeaderMap, HeaderValue, ORIGIN, VARY,
};
use hyper::http::request::Parts;
use hyper::{Method, StatusCode, Uri};

use super::operation::Allow;
use super::reply::Reply;

/// The request headers that a page may send.
const REQUEST_HEADERS: &str = "authorization, content-type, idempotency-key, last-event-id, \
                               x-api-key, x-confirm-cancel-all, x-request-id";

/// The same, on a server with the venue's interface: clients of the venue run in pages, too.
const REQUEST_HEADERS_WITH_CLOB: &str = "authorization, content-type, idempotency-key, \
                                         last-event-id, poly_address, poly_api_key, poly_nonce, \
                                         poly_passphrase, poly_signature, poly_timestamp, \
                                         x-api-key, x-confirm-cancel-all, x-request-id";

/// The answer headers that a page may read, besides those that are always readable.
const EXPOSED_HEADERS: &str = "content-disposition, idempotent-replayed, retry-after, \
                               x-paperbourse-owner, x-polysim-code, x-ratelimit-limit, \
                               x-ratelimit-limit-per-second, \
                               x-ratelimit-remaining, x-ratelimit-remaining-per-second, \
                               x-polysim-warnings, x-ratelimit-reset, x-ratelimit-tier, \
                               x-request-id";

/// How long a browser may cache a preflight answer, in seconds: two hours, the maximum that
/// browsers accept.
const MAX_AGE_SECONDS: u16 = 7_200;

/// An origin whose web pages may call the API, such as `https://bots.example.org`, or every origin.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum CorsOrigin {
    /// Every origin.
    Any,
    /// A scheme, a host, and a port unless it is the scheme's default.
    Named(HeaderValue),
}

/// Why text is not a valid origin.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum CorsOriginError {
    /// The text is not a scheme that pages have, followed by a plain host.
    #[error("not an origin: use a scheme and a host, such as https://bots.example.org, or *")]
    Form,
    /// Something follows the host and port. Browsers compare origins character by character.
    #[error("an origin has no path: use {origin}")]
    Path {
        /// The origin without the part that follows.
        origin: String,
    },
    /// The text is not spelled as browsers write origins: in lower case, without the default port.
    #[error("browsers write this origin as {origin}")]
    Spelling {
        /// The origin as browsers write it.
        origin: String,
    },
}

/// The origins of web pages that may call the API. They can change while the server runs.
#[derive(Debug, Default)]
pub struct CorsOrigins {
    /// Whether at least one origin is allowed. If not, requests skip the lookup of their own
    /// origin.
    is_any_set: AtomicBool,
    origins: ArcSwap<Vec<CorsOrigin>>,
}

impl FromStr for CorsOrigin {
    type Err = CorsOriginError;

    fn from_str(text: &str) -> Result<Self, CorsOriginError> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let uri: Uri = text.parse().map_err(|_| CorsOriginError::Form)?;
        let (Some(scheme), Some(authority)) = (uri.scheme_str(), uri.authority()) else {
            return Err(CorsOriginError::Form);
        };
        let own_port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(CorsOriginError::Form),
        };
        if authority.host().is_empty() || authority.as_str().contains(['@', '*']) {
            return Err(CorsOriginError::Form);
        }
        let host = authority.host().to_ascii_lowercase();
        let origin = match authority.port_u16().filter(|port| *port != own_port) {
            Some(port) => format!("{scheme}://{host}:{port}"),
            None => format!("{scheme}://{host}"),
        };
        let has_path = text.len() > scheme.len() + "://".len() + authority.as_str().len();
        if has_path {
            return Err(CorsOriginError::Path { origin });
        }
        if text != origin {
            return Err(CorsOriginError::Spelling { origin });
        }
        Ok(Self::Named(HeaderValue::try_from(origin).map_err(|_| CorsOriginError::Form)?))
    }
}

impl fmt::Display for CorsOrigin {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Any => formatter.write_str("*"),
            Self::Named(origin) => formatter.write_str(origin.to_str().unwrap_or_default()),
        }
    }
}

impl CorsOrigins {
    /// Replaces the origins.
    pub fn set(&self, origins: &[CorsOrigin]) {
        // Stored first, so that a request which sees the flag also sees the origins.
        self.origins.store(Arc::new(origins.to_vec()));
        self.is_any_set.store(!origins.is_empty(), Ordering::Release);
    }

    /// Returns the origin of the page that sent this request, if the page may call the API.
    pub(super) fn of(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        if !self.is_any_set.load(Ordering::Acquire) {
            return None;
        }
        let origins = self.origins.load();
        let sent = headers.get(ORIGIN)?;
        let may_call = origins.iter().any(|origin| match origin {
            CorsOrigin::Any => true,
            CorsOrigin::Named(origin) => origin == sent,
        });
        may_call.then(|| sent.clone())
    }
}

/// Whether this is a preflight request, in which a browser asks what it may send.
pub(super) fn is_preflight(head: &Parts) -> bool {
    head.method == Method::OPTIONS && head.headers.contains_key(ACCESS_CONTROL_REQUEST_METHOD)
}

/// Builds the answer to a preflight request for a path that allows these methods.
pub(super) fn preflight(allow: Allow, has_clob: bool) -> Reply {
    let mut reply = Reply::json(StatusCode::NO_CONTENT, Vec::new());
    let methods = HeaderValue::try_from(allow.to_string()).expect("methods are visible ASCII");
    reply.headers.insert(ACCESS_CONTROL_ALLOW_METHODS, methods);
    let names = if has_clob { REQUEST_HEADERS_WITH_CLOB } else { REQUEST_HEADERS };
    reply.headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(names));
    reply.headers.insert(ACCESS_CONTROL_MAX_AGE, MAX_AGE_SECONDS.into());
    reply
}

/// Adds the headers that let a page of this origin read an answer.
pub(super) fn expose(headers: &mut HeaderMap, origin: HeaderValue) {
    headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED_HEADERS));
    headers.append(VARY, HeaderValue::from_static("origin"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_written_as_browsers_write_it() {
        for text in ["https://bots.example.org", "http://localhost:3000", "http://[::1]:8", "*"] {
            assert_eq!(text.parse().map(|origin: CorsOrigin| origin.to_string()), Ok(text.into()));
        }
        let path = |origin: &str| CorsOriginError::Path { origin: origin.into() };
        let spelling = |origin: &str| CorsOriginError::Spelling { origin: origin.into() };
        for (text, expected) in [
            ("", CorsOriginError::Form),
            ("null", CorsOriginError::Form),
            ("bots.example.org", CorsOriginError::Form),
            ("ftp://bots.example.org", CorsOriginError::Form),
            ("https://", CorsOriginError::Form),
            ("https://user@bots.example.org", CorsOriginError::Form),
            ("https://*.example.org", CorsOriginError::Form),
            ("https://bots.example.org/", path("https://bots.example.org")),
            ("https://bots.example.org/a?b", path("https://bots.example.org")),
            ("https://bots.example.org:443", spelling("https://bots.example.org")),
            ("https://Bots.example.org", spelling("https://bots.example.org")),
        ] {
            assert_eq!(text.parse::<CorsOrigin>(), Err(expected), "{text}");
        }
    }
}
