//! Begins the trace of a request, and decides what the trace records. Of the data sent by the
//! caller, only the method, the ids in `traceparent` and the request id are recorded: no path, no
//! other header, no key and no body.
//!
//! A caller can pick an `X-Request-Id` that is always sampled. Sampled requests with an id chosen
//! by the caller therefore share the limit of those with a sampled `traceparent`.

use std::io::Write as _;
use std::time::Instant;

use hyper::header::HeaderName;
use hyper::http::request::Parts;
use hyper::{Method, Version};

use super::app::Server;
use super::operation::Operation;
use super::reply::{REQUEST_ID_BYTES_MAX, RequestId};
use crate::telemetry::{Asked, Parent, Trace};

static TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// Begins the trace of a request, if it is to be traced.
pub(super) fn begin(
    server: &Server,
    head: &Parts,
    operation: Option<&Operation>,
    request_id: &RequestId,
    began: Instant,
) -> Option<Box<Trace>> {
    let traces = server.traces.as_ref()?;
    let mut headers = head.headers.get_all(&TRACEPARENT).iter();
    let parent = match (headers.next(), headers.next()) {
        (Some(header), None) => Parent::from_header(header.as_bytes()),
        _ => None,
    };
    let mut id = [0; REQUEST_ID_BYTES_MAX];
    let mut rest = &mut id[..];
    write!(rest, "{request_id}").expect("there is room for any request id");
    let length = REQUEST_ID_BYTES_MAX - rest.len();
    let chosen = matches!(request_id, RequestId::Callers(_));
    traces.begin(parent, (&id[..length], chosen), began, || Asked {
        method: method(&head.method),
        route: operation.map(|operation| operation.path.as_str()),
        version: version(head.version),
        request_id: request_id.to_string(),
    })
}

/// Returns the method, or `_OTHER` for one that is not standard, as the conventions require.
fn method(method: &Method) -> &'static str {
    const KNOWN: [&str; 9] =
        ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "CONNECT"];
    KNOWN.into_iter().find(|known| method == known).unwrap_or("_OTHER")
}

fn version(version: Version) -> &'static str {
    if version == Version::HTTP_10 { "1.0" } else { "1.1" }
}
