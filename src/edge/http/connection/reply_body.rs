//! Response bodies: complete in memory, or a stream produced while it is sent.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::{Body, Frame, SizeHint};

use super::activity::Activity;
use paperbourse_core::limits::budget::Share;

/// The body of a response.
#[derive(Debug)]
pub enum ReplyBody {
    /// A complete body, and its share of the answer budget, which is held until the client has
    /// taken the body.
    Whole(Full<Bytes>, Option<Share>),
    /// A stream, finite or endless. An endless one may have a share of the budget for unread data,
    /// which covers the bytes that its client has not taken.
    Stream(Box<dyn Source>, Option<Share>),
}

impl ReplyBody {
    /// Returns the bytes of a complete body and its share of the memory for answers; `None` for a
    /// stream.
    pub(super) fn into_whole(self) -> Option<(Bytes, Option<Share>)> {
        let Self::Whole(body, held) = self else { return None };
        Some((bytes_of(body), held))
    }
}

/// Returns all bytes of a body.
pub(in crate::http) fn bytes_of(mut body: Full<Bytes>) -> Bytes {
    let mut context = Context::from_waker(Waker::noop());
    match Pin::new(&mut body).poll_frame(&mut context) {
        Poll::Ready(Some(Ok(frame))) => frame.into_data().unwrap_or_default(),
        _ => Bytes::new(),
    }
}

/// A source of the bytes of a stream.
///
/// An endless stream lasts as long as its connection. It ends when the client leaves or stalls, the
/// server shuts down, or the connection loses its slot. It never ends cleanly: after a clean end,
/// many clients reconnect at once and without limit.
///
/// In HTTP/1.0 every end looks clean, so a request in that version must not get a stream.
pub trait Source: Send {
    /// Polls for the next bytes, which are never empty; returns `None` at the end. Called only once
    /// the client has taken all earlier bytes, so a slow client holds up only its own stream.
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>>;

    /// Notes that the client did not take the last bytes at once. The source should then send
    /// little at a time, so that less data grows stale on the way.
    fn note_slow(&mut self) {}

    /// Whether the stream is endless.
    fn is_endless(&self) -> bool;

    /// Returns the last bytes of an endless stream at a server shutdown; may be empty.
    fn farewell(&mut self) -> Bytes {
        Bytes::new()
    }
}

/// The rest of a stream cannot be produced. Its connection is closed without the last chunk, so
/// that the client can tell that the stream is incomplete.
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
    /// Starts sending a response on the connection with this activity.
    pub(super) fn begin(mut body: ReplyBody, activity: Arc<Activity>) -> Self {
        match &mut body {
            ReplyBody::Stream(source, unsent) => {
                activity.begin_stream(source.is_endless(), unsent.take());
            }
            // hyper takes the whole body at once, but the client takes it piece by piece.
            ReplyBody::Whole(_, held) => {
                if let Some(held) = held.take() {
                    activity.hold_until_sent(held);
                }
            }
        }
        Self { body, has_said_farewell: false, activity }
    }
}

impl Sending {
    /// Whether the body is a stream.
    pub(super) const fn is_stream(&self) -> bool {
        matches!(self.body, ReplyBody::Stream(..))
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
                    // hyper drops unwritten bytes when a stream is cut off, so they must be flushed
                    // first.
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
