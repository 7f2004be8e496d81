//! The answer of a handler, sent by hyper as a response or by the lane as bytes.

use std::ops::Deref;

use bytes::Bytes;
use hyper::header::{CONTENT_LENGTH, DATE, HeaderMap, HeaderName, HeaderValue};
use hyper::{Response, StatusCode};

use super::reply_body::ReplyBody;
use paperbourse_core::limits::budget::Share;

/// An answer that either hyper or the lane can send.
pub trait Outgoing: Sized {
    /// Returns the answer as a response for hyper.
    fn into_response(self) -> Response<ReplyBody>;

    /// Appends the status line and the headers to `head`, each with its line end, and returns the
    /// remaining parts. Returns `None` for a stream, which the lane cannot send.
    fn write(self, head: &mut Vec<u8>) -> Option<Written> {
        write_response(self.into_response(), head)
    }
}

impl<Body: Into<ReplyBody>> Outgoing for Response<Body> {
    fn into_response(self) -> Response<ReplyBody> {
        self.map(Into::into)
    }
}

/// The parts of an answer that remain once its status line and headers are written.
pub struct Written {
    /// The status code.
    pub status: StatusCode,
    /// The complete body.
    pub body: PlainBody,
    /// The body's share of the memory for answers, held until the client has taken the answer.
    pub held: Option<Share>,
    /// The headers of the request, for reuse of the map; may be empty.
    pub spare: HeaderMap,
}

/// The bytes of a complete body.
pub enum PlainBody {
    /// Bytes that belong to this answer alone.
    Own(Vec<u8>),
    /// Bytes that other answers may share.
    Shared(Bytes),
}

impl Deref for PlainBody {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }
}

/// Appends the status line and the headers of a response, and returns the remaining parts. Returns
/// `None` for a stream.
pub fn write_response(response: Response<ReplyBody>, head: &mut Vec<u8>) -> Option<Written> {
    let (parts, body) = response.into_parts();
    write_status(head, parts.status);
    // The lane adds these. Only answers of other nodes have them before, and a node has no lane.
    debug_assert!(![CONTENT_LENGTH, DATE].iter().any(|name| parts.headers.contains_key(name)));
    for (name, value) in &parts.headers {
        write_header(head, name, value.as_bytes());
    }
    let (bytes, held) = body.into_whole()?;
    let body = PlainBody::Shared(bytes);
    Some(Written { status: parts.status, body, held, spare: HeaderMap::new() })
}

/// Appends a status line, including its line end.
pub fn write_status(head: &mut Vec<u8>, status: StatusCode) {
    head.extend_from_slice(b"HTTP/1.1 ");
    head.extend_from_slice(status.as_str().as_bytes());
    head.push(b' ');
    head.extend_from_slice(status.canonical_reason().unwrap_or("<none>").as_bytes());
    head.extend_from_slice(b"\r\n");
}

/// Appends a header, including its line end.
pub fn write_header(head: &mut Vec<u8>, name: &HeaderName, value: &[u8]) {
    head.extend_from_slice(name.as_str().as_bytes());
    head.extend_from_slice(b": ");
    head.extend_from_slice(value);
    head.extend_from_slice(b"\r\n");
}

/// Clears the values of headers, which releases their memory, but keeps the names.
pub(super) fn forget_values(headers: &mut HeaderMap) {
    for value in headers.values_mut() {
        *value = HeaderValue::from_static("");
    }
}
