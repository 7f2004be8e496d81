//! A service's answer, and how a fault changes it on the way out.

use std::io::{self, Read as _};
use std::pin::Pin;
use std::sync::LazyLock;
use std::task::{Context, Poll};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzEncoder;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_ENCODING, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::fault::{BOMB_BYTES, Edit, EndpointFault};

/// A body that unpacks to [`BOMB_BYTES`], a thousand times its size.
static BOMB: LazyLock<Bytes> =
    LazyLock::new(|| gzip(io::repeat(b' ').take(BOMB_BYTES), Compression::best()));

/// A service's answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    body: Bytes,
    retry_after: Option<String>,
    headers: Vec<(&'static str, &'static str)>,
    is_gzip: bool,
    is_cut: bool,
}

impl Answer {
    pub(crate) fn json(body: String) -> Self {
        Self::new(200, body.into())
    }

    pub(crate) fn status(status: u16, body: &'static str) -> Self {
        Self::new(status, Bytes::from_static(body.as_bytes()))
    }

    fn new(status: u16, body: Bytes) -> Self {
        let headers = Vec::new();
        Self { status, body, retry_after: None, headers, is_gzip: false, is_cut: false }
    }

    /// Adds a header.
    pub(crate) fn and(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }

    /// Compresses the body, for a client that accepts gzip.
    pub(crate) fn compressed(mut self) -> Self {
        if !self.is_gzip {
            self.body = gzip(&*self.body, Compression::fast());
            self.is_gzip = true;
        }
        self
    }

    /// Applies a fault. Faults of timing change nothing here.
    pub(crate) fn with(mut self, fault: EndpointFault) -> Self {
        let half = self.body.len() / 2;
        match fault {
            EndpointFault::Refuse { status, retry_after_s } => {
                let body = match status {
                    403 => "error code: 1010",
                    425 => r#"{"error":"The matching engine is restarting"}"#,
                    429 => "error code: 1015",
                    _ => r#"{"error":"Internal server error"}"#,
                };
                let retry_after = retry_after_s.map(|seconds| seconds.to_string());
                self = Self { retry_after, ..Self::status(status, body) };
            }
            EndpointFault::RefuseUntil { seconds } => {
                let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds.into());
                let retry_after = Some(at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string());
                self = Self { retry_after, ..Self::status(429, "error code: 1015") };
            }
            EndpointFault::Bomb => {
                self = Self { is_gzip: true, ..Self::new(200, BOMB.clone()) };
            }
            EndpointFault::NotGzip => self.is_gzip = true,
            EndpointFault::Truncate => self.body.truncate(half),
            EndpointFault::Cut => {
                self.body.truncate(half);
                self.is_cut = true;
            }
            EndpointFault::Edit(Edit { from, to }) => {
                if let Ok(text) = std::str::from_utf8(&self.body) {
                    self.body = text.replace(from, to).into();
                }
            }
            EndpointFault::Header(name, value) => self = self.and(name, value),
            EndpointFault::Garbage => {
                self = Self::status(200, "<html><body>502 Bad Gateway</body></html>");
            }
            EndpointFault::Slow(_) | EndpointFault::Silent => {}
        }
        self
    }

    /// The status and the whole body.
    pub(crate) fn parts(&self) -> (u16, Bytes) {
        (self.status, self.body.clone())
    }

    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let mut response = Response::new(AnswerBody { data: self.body, is_cut: self.is_cut });
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(retry_after) = self.retry_after {
            headers.insert(RETRY_AFTER, retry_after.parse().unwrap());
        }
        if self.is_gzip {
            headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        }
        for (name, value) in self.headers {
            headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        response
    }
}

fn gzip(plain: impl io::Read, level: Compression) -> Bytes {
    let mut packed = Vec::new();
    GzEncoder::new(plain, level).read_to_end(&mut packed).unwrap();
    packed.into()
}

/// A body that may end before its announced length.
#[derive(Default)]
pub(crate) struct AnswerBody {
    data: Bytes,
    is_cut: bool,
}

impl Body for AnswerBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if !self.data.is_empty() {
            return Poll::Ready(Some(Ok(Frame::data(std::mem::take(&mut self.data)))));
        }
        let error = || Err(io::Error::other("the body is cut off on purpose"));
        Poll::Ready(self.is_cut.then(error))
    }

    fn is_end_stream(&self) -> bool {
        self.data.is_empty() && !self.is_cut
    }

    fn size_hint(&self) -> SizeHint {
        let missing = u64::from(self.is_cut);
        SizeHint::with_exact(self.data.len() as u64 + missing)
    }
}
