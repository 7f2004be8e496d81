//! The body of a response: all of it at once, or a stream, made while it is sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::Activity;
use paperbourse_core::limits::budget::Share;

/// The body of a response.
#[derive(Debug)]
pub enum ReplyBody {
    /// All of it, and what it holds of the memory for answers until the client has taken it.
    Whole(Full<Bytes>, Option<Share>),
    /// A stream, with or without an end. One without an end may have a share of the memory for what
    /// clients have not read: it holds what its client refuses.
    Stream(Box<dyn Source>, Option<Share>),
}

/// What a stream consists of.
///
/// A stream without an end lasts as long as its connection. It ends with the client's leaving or
/// stalling, the end of the server, or the loss of the connection's slot, and never cleanly: many
/// clients reconnect at once and without limit after a clean end.
///
/// In HTTP/1.0 every end looks clean, so such requests must not get a stream.
pub trait Source: Send {
    /// The next bytes, never an empty piece; `None` at the end. Only called once the client has
    /// taken all earlier bytes, so a slow client holds up only its own stream.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>>;

    /// The client did not take the last bytes at once: send it little next, so that less of it
    /// grows old on the way.
    fn note_slow(&mut self) {}

    /// Whether it has no end.
    fn is_endless(&self) -> bool;

    /// What a stream without an end says last, when the server shuts down; may be empty.
    fn farewell(&mut self) -> Bytes {
        Bytes::new()
    }
}

/// A stream cannot go on. Its connection is closed without the last chunk, so the client can tell.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the rest of the stream cannot be made")]
pub struct CutOff;

impl fmt::Debug for dyn Source {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("Source")
    }
}

impl From<Full<Bytes>> for ReplyBody {
    fn from(body: Full<Bytes>) -> Self {
        Self::Whole(body, None)
    }
}

/// A body that is being sent on a connection.
pub(super) struct Sending {
    body: ReplyBody,
    has_said_farewell: bool,
    activity: Arc<Activity>,
}

impl Sending {
    /// Begins to send a response of the connection with this activity.
    pub(super) fn begin(mut body: ReplyBody, activity: Arc<Activity>) -> Self {
        match &mut body {
            ReplyBody::Stream(source, unsent) => {
                activity.begin_stream(source.is_endless(), unsent.take());
            }
            // hyper takes all of it at once, and the client piece by piece.
            ReplyBody::Whole(_, held) => {
                if let Some(held) = held.take() {
                    activity.hold_until_sent(held);
                }
            }
        }
        Self { body, has_said_farewell: false, activity }
    }
}

impl Body for Sending {
    type Data = Bytes;
    type Error = CutOff;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, CutOff>>> {
        let Self { body, has_said_farewell, activity } = self.get_mut();
        match body {
            ReplyBody::Whole(body, _) => {
                Pin::new(body).poll_frame(context).map_err(|never| match never {})
            }
            // The connection is polled again after the flush.
            ReplyBody::Stream(..) if !activity.wants_more() => Poll::Pending,
            ReplyBody::Stream(source, _) => {
                let bytes = if activity.is_ending() && source.is_endless() {
                    // Of a stream that is cut off, hyper drops what it has not written.
                    if !activity.is_flushed() {
                        return Poll::Pending;
                    }
                    let is_over = std::mem::replace(has_said_farewell, true);
                    let last = if is_over { Bytes::new() } else { source.farewell() };
                    Some(if last.is_empty() { Err(CutOff) } else { Ok(last) })
                } else {
                    if activity.takes_refusal() {
                        source.note_slow();
                    }
                    ready!(source.poll_bytes(context))
                };
                debug_assert!(bytes.is_some() || !source.is_endless(), "it has no end");
                activity.note_unflushed();
                Poll::Ready(bytes.map(|bytes| bytes.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.body {
            ReplyBody::Whole(body, _) => body.is_end_stream(),
            ReplyBody::Stream(..) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.body {
            ReplyBody::Whole(body, _) => body.size_hint(),
            ReplyBody::Stream(..) => SizeHint::default(),
        }
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        if let ReplyBody::Stream(source, _) = &self.body
            && !source.is_endless()
        {
            self.activity.drop_stream();
        }
    }
}

#[cfg(test)]
mod tests;
