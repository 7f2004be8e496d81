//! A transport that records its progress.

use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

use super::activity::{Activity, Phase};
use super::unsent::limit_unsent;

/// Buffer size for discarding what a client still sends while its connection closes.
const LINGER_CHUNK_BYTES: usize = 4 * 1024;
/// Responses up to this size are copied into one buffer: the kernel handles a single write faster
/// than a list of slices, by more than the copy costs.
const FLAT_BYTES_MAX: usize = 2 * 1024;
/// Maximum number of bytes discarded in total. A body that is too large by mistake is smaller than
/// this.
const LINGER_BYTES_MAX: usize = 4 * 1024 * 1024;

pub(super) struct Timed<Io> {
    io: Io,
    activity: Arc<Activity>,
    is_shut_down: bool,
    is_at_end: bool,
    is_unsent_limited: bool,
    leaving: Leaving,
    lingered_bytes: usize,
    /// Bytes that were read and put back, to be read again.
    unread: Bytes,
}

/// Whether the client of an endless stream can be seen to close its side.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Leaving {
    Visible,
    /// The client sent more bytes after the request. They are not read, because no request follows
    /// a stream, so it may go unnoticed that the client closes its side.
    Hidden,
}

impl<Io> Timed<Io> {
    pub(super) fn into_inner(self) -> Io {
        self.io
    }

    pub(super) const fn new(io: Io, activity: Arc<Activity>) -> Self {
        Self {
            io,
            activity,
            is_shut_down: false,
            is_at_end: false,
            is_unsent_limited: false,
            leaving: Leaving::Visible,
            lingered_bytes: 0,
            unread: Bytes::new(),
        }
    }

    /// Puts back bytes that were read.
    pub(super) fn put_back(&mut self, unread: Bytes) {
        assert!(self.unread.is_empty(), "all that was put back before has been read again");
        self.unread = unread;
    }
}

impl<Io: AsyncRead + Unpin> AsyncRead for Timed<Io> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            // The progress was recorded when these bytes arrived.
            let bytes = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread.split_to(bytes));
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        let had_room = buffer.remaining() > 0;
        ready!(Pin::new(&mut self.io).poll_read(context, buffer))?;
        // A read into a full buffer also returns no bytes, but is not the end.
        if buffer.filled().len() == before {
            self.is_at_end |= had_room;
            return Poll::Ready(Ok(()));
        }
        match self.activity.phase() {
            // The deadline of a head runs from its first byte; later bytes do not extend it.
            Phase::Idle => self.activity.enter(Phase::Head),
            Phase::Body => self.activity.note_body(buffer.filled().len() - before),
            Phase::Head
            | Phase::Handling
            | Phase::Responding
            | Phase::Streaming
            | Phase::Lingering => {}
        }
        Poll::Ready(Ok(()))
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin> Timed<Io> {
    /// Records whether the client accepted some of these bytes. A response may take several writes,
    /// between which the connection looks idle. Fails if the client accepted none and there is no
    /// room to keep them.
    fn note_write(&self, polled: Poll<io::Result<usize>>, bytes: usize) -> Poll<io::Result<usize>> {
        match &polled {
            Poll::Ready(Ok(written)) => self.activity.note_written(*written),
            Poll::Ready(Err(_)) => {}
            Poll::Pending => {
                // A task that has used up its tokio budget also gets `Pending`, and is polled again
                // at once. That says nothing about the client.
                if coop::has_budget_remaining() && !self.activity.hold_refused(bytes) {
                    return Poll::Ready(Err(io::Error::new(
                        io::ErrorKind::OutOfMemory,
                        "there is no room for what the client has not read",
                    )));
                }
            }
        }
        polled
    }

    /// Fails if the client of a stream has closed its side, which hyper does not check. Without
    /// this, a stream would live on until a write fails.
    fn check_presence(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        if self.leaving == Leaving::Hidden {
            return Ok(());
        }
        let mut byte = [0_u8];
        let mut buffer = ReadBuf::new(&mut byte);
        match Pin::new(&mut self.io).poll_read(context, &mut buffer) {
            Poll::Pending => Ok(()),
            Poll::Ready(Ok(())) if buffer.filled().is_empty() => {
                Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the client has left"))
            }
            Poll::Ready(Ok(())) => {
                self.leaving = Leaving::Hidden;
                Ok(())
            }
            Poll::Ready(Err(error)) => Err(error),
        }
    }

    /// Reads and discards what the client still sends. Closing a socket with unread bytes resets
    /// it, and the client might lose the response that says what was wrong.
    fn poll_linger(&mut self, context: &mut Context<'_>) -> Poll<()> {
        let mut chunk = [0_u8; LINGER_CHUNK_BYTES];
        while !self.is_at_end && self.lingered_bytes < LINGER_BYTES_MAX {
            let mut buffer = ReadBuf::new(&mut chunk);
            match ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer)) {
                Ok(()) if !buffer.filled().is_empty() => {
                    self.lingered_bytes += buffer.filled().len();
                }
                Ok(()) | Err(_) => self.is_at_end = true,
            }
        }
        Poll::Ready(())
    }
}

impl<Io: AsyncRead + AsyncWrite + Unpin + 'static> AsyncWrite for Timed<Io> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.io).poll_write(context, bytes);
        self.note_write(polled, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let total_bytes = slices.iter().fold(0_usize, |sum, slice| sum.saturating_add(slice.len()));
        let polled = if total_bytes <= FLAT_BYTES_MAX {
            let mut space = [const { MaybeUninit::uninit() }; FLAT_BYTES_MAX];
            let mut flat = ReadBuf::uninit(&mut space);
            for slice in slices {
                flat.put_slice(slice);
            }
            Pin::new(&mut self.io).poll_write(context, flat.filled())
        } else {
            Pin::new(&mut self.io).poll_write_vectored(context, slices)
        };
        self.note_write(polled, total_bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(Pin::new(&mut self.io).poll_flush(context))?;
        self.activity.note_flushed();
        if self.activity.is_live() && !std::mem::replace(&mut self.is_unsent_limited, true) {
            limit_unsent(&self.io);
        }
        if self.activity.phase() == Phase::Streaming {
            self.check_presence(context)?;
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if !self.is_shut_down {
            ready!(Pin::new(&mut self.io).poll_shutdown(context))?;
            self.is_shut_down = true;
            self.is_at_end |= !self.activity.has_unread();
            self.activity.enter(Phase::Lingering);
        }
        self.poll_linger(context).map(Ok)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;
    use paperbourse_core::limits::budget::ByteBudget;

    #[tokio::test]
    async fn a_task_that_has_used_up_its_turn_is_not_a_slow_client() {
        let activity = Arc::new(Activity::default());
        activity.begin_stream(true, Some(ByteBudget::new(0).share()));
        let (_client, io) = tokio::io::duplex(4);
        let mut timed = Timed::new(io, activity);
        let mut write = |context: &mut Context<'_>| {
            Pin::new(&mut timed).poll_write(context, b"four").map(|written| written.is_ok())
        };
        poll_fn(|context| {
            while let Poll::Ready(turn) = coop::poll_proceed(context) {
                turn.made_progress();
            }
            assert_eq!(write(context), Poll::Pending);
            Poll::Ready(())
        })
        .await;
        assert!(poll_fn(&mut write).await);
        // The client has read nothing, and there is no room.
        assert!(!poll_fn(&mut write).await);
    }
}
