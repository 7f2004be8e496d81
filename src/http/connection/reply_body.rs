//! The body of a response: all of it at once, or a stream without an end.

use std::convert::Infallible;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::Activity;

/// The body of a response.
#[derive(Debug)]
pub enum ReplyBody {
    /// All of it.
    Whole(Full<Bytes>),
    /// A stream that lasts as long as its connection. It ends with the client's leaving or
    /// stalling, the end of the server, or the loss of the connection's slot, and never cleanly:
    /// many clients reconnect at once and without limit after a clean end. In HTTP/1.0 every end
    /// looks clean, so such requests must not get one.
    Endless(Box<dyn Endless>),
}

/// The source of an endless body.
pub trait Endless: Send {
    /// The next bytes to send, never none. Only called once the client has taken all earlier ones,
    /// so that a slow one gets what is new by then.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Bytes>;
}

impl fmt::Debug for dyn Endless {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Endless")
    }
}

impl From<Full<Bytes>> for ReplyBody {
    fn from(body: Full<Bytes>) -> Self {
        Self::Whole(body)
    }
}

/// A body that is being sent on a connection.
pub(super) struct Sending {
    body: ReplyBody,
    activity: Arc<Activity>,
}

impl Sending {
    /// Begins to send a response of the connection with this activity.
    pub(super) fn begin(body: ReplyBody, activity: Arc<Activity>) -> Self {
        if matches!(body, ReplyBody::Endless(_)) {
            activity.begin_stream();
        }
        Self { body, activity }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let Self { body, activity } = self.get_mut();
        match body {
            ReplyBody::Whole(body) => Pin::new(body).poll_frame(context),
            // The connection is polled again after the flush.
            ReplyBody::Endless(_) if !activity.wants_more() => Poll::Pending,
            ReplyBody::Endless(source) => {
                let bytes = ready!(source.poll_bytes(context));
                activity.note_unflushed();
                Poll::Ready(Some(Ok(Frame::data(bytes))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            ReplyBody::Whole(body) => body.is_end_stream(),
            ReplyBody::Endless(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            ReplyBody::Whole(body) => body.size_hint(),
            ReplyBody::Endless(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests;
