//! An HTTP client that fetches documents from other servers, with limits on size and time.
//!
//! Follows no redirects, keeps no cookies and sends no credentials. Accepts gzip; the size limit
//! applies to the unpacked document.

use std::error::Error;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::time::Duration;

use bytes::Bytes;
use flate2::write::GzDecoder;
use http_body_util::{BodyExt as _, Full, LengthLimitError, Limited};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, DATE, HeaderMap, HeaderName,
    HeaderValue, RETRY_AFTER, USER_AGENT,
};
use hyper::{Method, Request, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use jiff::Timestamp;
use jiff::fmt::rfc2822;
use rustls::ClientConfig;

/// Maximum size of a response head, in bytes.
const HEAD_BYTES_MAX: usize = 32 * 1024;

/// Time after which an idle connection is closed.
const IDLE_TIME_MAX: Duration = Duration::from_secs(30);

/// The `User-Agent` header sent with every request: `paperbourse/` and the version.
pub const AGENT: &str = concat!("paperbourse/", env!("CARGO_PKG_VERSION"));

/// An HTTP/1.1 client with a time limit for each document.
pub struct Client {
    inner: hyper_util::client::legacy::Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    /// Time limit for one document, from the DNS lookup to the last byte.
    patience: Duration,
}

/// An error from fetching a document.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum ClientError {
    /// The response was not complete in time.
    #[error("no complete response within {} ms", patience.as_millis())]
    TimedOut {
        /// The time limit.
        patience: Duration,
    },
    /// The connection, the TLS handshake or the HTTP exchange failed.
    #[error("{reason}")]
    Unreachable {
        /// The error and its causes.
        reason: String,
    },
    /// The server answered with an error status.
    #[error("the server answered with status {}", status.as_u16())]
    Status {
        /// The status of the response.
        status: StatusCode,
        /// The wait that the server requests in `Retry-After`, if any.
        retry_after: Option<Duration>,
    },
    /// The server answered with a redirect.
    #[error("the server answered with a redirect ({}), which is not followed", status.as_u16())]
    Redirect {
        /// The status of the response.
        status: StatusCode,
    },
    /// The response is too long.
    #[error("the response is longer than {bytes_max} bytes")]
    TooLong {
        /// Maximum length, in bytes.
        bytes_max: usize,
    },
    /// The response does not match its `Content-Encoding`, or has an encoding that was not
    /// requested.
    #[error("the response cannot be decoded: {reason}")]
    Packed {
        /// The decoder's error, or the unexpected encoding.
        reason: String,
    },
}

impl Client {
    /// Creates a client that spends at most `patience` on each document and keeps at most
    /// `kept_connections_max` idle connections per server. Pass 0 if requests are so rare that an
    /// idle connection would be closed before the next one.
    pub fn new(tls: ClientConfig, patience: Duration, kept_connections_max: usize) -> Self {
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .build();
        let inner = hyper_util::client::legacy::Client::builder(TokioExecutor::new())
            .pool_max_idle_per_host(kept_connections_max)
            .pool_idle_timeout(IDLE_TIME_MAX)
            .pool_timer(TokioTimer::new())
            .http1_max_buf_size(HEAD_BYTES_MAX)
            .build(connector);
        Self { inner, patience }
    }

    /// Fetches the document at `address`, which may have at most `bytes_max` bytes after
    /// decompression.
    pub async fn get(&self, address: Uri, bytes_max: usize) -> Result<Bytes, ClientError> {
        Ok(self.get_with_headers(address, bytes_max).await?.1)
    }

    /// Like [`Self::get`], but also returns the headers of the response.
    pub async fn get_with_headers(
        &self,
        address: Uri,
        bytes_max: usize,
    ) -> Result<(HeaderMap, Bytes), ClientError> {
        self.ask(request(Method::GET, address, Bytes::new()), bytes_max).await
    }

    /// Posts a document to `address` and returns the body of the response. The `Accept` header asks
    /// for the same media type.
    pub async fn post(
        &self,
        address: Uri,
        media_type: &'static str,
        document: Vec<u8>,
        bytes_max: usize,
    ) -> Result<Bytes, ClientError> {
        Ok(self.post_with_headers(address, media_type, document, bytes_max).await?.1)
    }

    /// Like [`Self::post`], but also returns the headers of the response.
    pub async fn post_with_headers(
        &self,
        address: Uri,
        media_type: &'static str,
        document: Vec<u8>,
        bytes_max: usize,
    ) -> Result<(HeaderMap, Bytes), ClientError> {
        let mut request = request(Method::POST, address, document.into());
        let media_type = HeaderValue::from_static(media_type);
        request.headers_mut().insert(ACCEPT, media_type.clone());
        request.headers_mut().insert(CONTENT_TYPE, media_type);
        self.ask(request, bytes_max).await
    }

    async fn ask(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<(HeaderMap, Bytes), ClientError> {
        let document = tokio::time::timeout(self.patience, self.ask_slowly(request, bytes_max));
        document.await.unwrap_or(Err(ClientError::TimedOut { patience: self.patience }))
    }

    async fn ask_slowly(
        &self,
        request: Request<Full<Bytes>>,
        bytes_max: usize,
    ) -> Result<(HeaderMap, Bytes), ClientError> {
        let response = self.inner.request(request).await.map_err(|error| unreachable(&error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(ClientError::Redirect { status });
        }
        if status != StatusCode::OK {
            let retry_after = retry_after(response.headers());
            return Err(ClientError::Status { status, retry_after });
        }
        let (head, body) = response.into_parts();
        let document = document(&head.headers, body, bytes_max).await?;
        Ok((head.headers, document))
    }
}

/// Reads the body and decompresses it if it is gzip.
async fn document(
    headers: &HeaderMap,
    body: Incoming,
    bytes_max: usize,
) -> Result<Bytes, ClientError> {
    let is_packed = is_packed(headers)?;
    // This limits the bytes on the wire; `Bounded` limits the decompressed bytes.
    let mut body = Limited::new(body, bytes_max);
    if !is_packed {
        let body = body.collect().await.map_err(|error| body_error(&*error, bytes_max))?;
        return Ok(body.to_bytes());
    }
    // Decode frame by frame, so that a large document does not block the thread for long.
    let mut unpacker = GzDecoder::new(Bounded { bytes: Vec::new(), bytes_max });
    let packed = |error: io::Error| match error.kind() {
        io::ErrorKind::FileTooLarge => ClientError::TooLong { bytes_max },
        _ => ClientError::Packed { reason: error.to_string() },
    };
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| body_error(&*error, bytes_max))?;
        if let Some(data) = frame.data_ref() {
            unpacker.write_all(data).map_err(packed)?;
        }
    }
    Ok(unpacker.finish().map_err(packed)?.bytes.into())
}

fn body_error(error: &(dyn Error + 'static), bytes_max: usize) -> ClientError {
    if error.is::<LengthLimitError>() {
        ClientError::TooLong { bytes_max }
    } else {
        unreachable(error)
    }
}

/// Returns whether the body is gzip. Any other encoding is an error, since only gzip was requested.
fn is_packed(headers: &HeaderMap) -> Result<bool, ClientError> {
    match headers.get(CONTENT_ENCODING).map(HeaderValue::as_bytes) {
        None | Some(b"identity") => Ok(false),
        Some(b"gzip") => Ok(true),
        Some(other) => {
            let other = String::from_utf8_lossy(other);
            let reason = format!("its encoding is {other:?}, but gzip was requested");
            Err(ClientError::Packed { reason })
        }
    }
}

/// A buffer with a maximum size, which stops decompression bombs.
struct Bounded {
    bytes: Vec<u8>,
    bytes_max: usize,
}

impl io::Write for Bounded {
    fn write(&mut self, more: &[u8]) -> io::Result<usize> {
        if more.len() > self.bytes_max - self.bytes.len() {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.bytes.extend_from_slice(more);
        Ok(more.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn request(method: Method, address: Uri, body: Bytes) -> Request<Full<Bytes>> {
    let mut request = Request::new(Full::new(body));
    *request.method_mut() = method;
    *request.uri_mut() = address;
    let headers = request.headers_mut();
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("gzip"));
    request
}

/// Parses `Retry-After`, which is either whole seconds or an HTTP date.
fn retry_after(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: HeaderName| headers.get(name)?.to_str().ok().map(str::trim);
    let after = text(RETRY_AFTER)?;
    if let Ok(seconds) = after.parse() {
        return Some(Duration::from_secs(seconds));
    }
    // Compare with the server's own `Date`, so that it does not matter if our clock is wrong.
    let now = date(headers).unwrap_or_else(Timestamp::now);
    time(after)?.duration_since(now).try_into().ok()
}

/// Parses the `Date` header of a response: the time by the server's clock, in whole seconds.
pub fn date(headers: &HeaderMap) -> Option<Timestamp> {
    time(headers.get(DATE)?.to_str().ok()?.trim())
}

fn time(text: &str) -> Option<Timestamp> {
    rfc2822::DateTimeParser::new().parse_timestamp(text).ok()
}

fn unreachable(error: &(dyn Error + 'static)) -> ClientError {
    ClientError::Unreachable { reason: with_causes(error) }
}

/// Formats an error with its chain of causes, since the outermost message alone is too vague.
pub fn with_causes(error: &(dyn Error + 'static)) -> String {
    let mut reason = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let text = inner.to_string();
        if !reason.ends_with(&text) {
            let _ = write!(reason, ": {text}");
        }
        cause = inner.source();
    }
    reason
}

#[cfg(test)]
mod tests;
