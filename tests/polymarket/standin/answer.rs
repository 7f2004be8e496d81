//! What a service answers, and what a fault makes of it on the way out.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use hyper::{Response, StatusCode};

use super::fault::EndpointFault;

/// What a service answers.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    status: u16,
    body: Bytes,
    retry_after_s: Option<u32>,
    is_cut: bool,
}

impl Answer {
    pub(crate) fn json(body: String) -> Self {
        Self { status: 200, body: body.into(), retry_after_s: None, is_cut: false }
    }

    pub(crate) fn status(status: u16, body: &'static str) -> Self {
        let body = Bytes::from_static(body.as_bytes());
        Self { status, body, retry_after_s: None, is_cut: false }
    }

    /// What the client gets instead. Faults that are a matter of time change nothing here.
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
                self = Self { retry_after_s, ..Self::status(status, body) };
            }
            EndpointFault::Truncate => self.body.truncate(half),
            EndpointFault::Cut => {
                self.body.truncate(half);
                self.is_cut = true;
            }
            EndpointFault::Garbage => {
                self = Self::status(200, "<html><body>502 Bad Gateway</body></html>");
            }
            EndpointFault::Slow(_) | EndpointFault::Silent => {}
        }
        self
    }

    /// What a client gets that gets all of it: the status, and the body.
    pub(crate) fn told(&self) -> (u16, Bytes) {
        (self.status, self.body.clone())
    }

    pub(crate) fn into_response(self) -> Response<AnswerBody> {
        let mut response = Response::new(AnswerBody { data: self.body, is_cut: self.is_cut });
        *response.status_mut() = StatusCode::from_u16(self.status).unwrap();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after_s {
            headers.insert(RETRY_AFTER, seconds.into());
        }
        response
    }
}

/// A body that may break off before its length is reached.
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
        let error = || Err(io::Error::other("the body is cut on purpose"));
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
