//! The life of a socket of either kind, from the upgrade to the end of the stream.
//!
//! One task concurrently reads, writes and fetches the data to send. These parts share a small
//! [`Shared`] state: the reader adds replies to it, and the writer takes them. So the server keeps
//! reading from a peer that does not read, and only that peer's writer waits:
//!
//! - everything that a socket sends besides replies is bounded by its [`Protocol`];
//! - replies are queued up to [`REPLY_BYTES_MAX`] bytes, beyond which the socket is closed;
//! - a write that makes no progress for a while ends the socket, as [`super::watch`] decides;
//! - bytes that a peer has not read are charged to a budget that all sockets share.
//!
//! Whatever ends the socket, the server tries for up to [`CLOSE_MAX`] to send a close frame after
//! the last whole frame. Then it stops writing and keeps reading for a while, discarding
//! everything: closing a stream with unread bytes resets it, which may lose the close frame.

use std::future::{Future, poll_fn};
use std::io;
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::sync::Notify;
use tokio::task::coop;
use tokio::time::{Instant, timeout};

use super::batch::Batch;
use super::bounds::{REPLY_BYTES_MAX, WRITE_BYTES_GOAL};
use super::close::{ClobFlaw, CloseReason};
use super::counts::CountedSocket;
use super::frame::{ClientFrame, FrameLimit, FrameReader, ReadEnd, put_close, put_ping, put_pong};
use super::watch::{Notice, Watch, Watched};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::budget::Share;

/// The messages of one kind of socket.
pub(super) trait Protocol: Send {
    /// Called first. A protocol that sends something at once adds it to the replies.
    fn begin(&mut self, _replies: &mut Vec<u8>) {}

    /// Answers a text frame.
    fn answer(&mut self, text: &[u8], now: Timestamp, replies: &mut Vec<u8>);

    /// Adds the bytes to write next to the batch, including the replies; adds nothing if nothing is
    /// due. Stops adding frames that can be put back once the batch has about `bytes_goal` bytes.
    fn take(&mut self, replies: &mut Vec<u8>, batch: &mut Batch, bytes_goal: usize);

    /// Called when the peer took only this many bytes of the last batch. Removes the frames at the
    /// end of the batch that can wait, and wakes the writer when their turn comes. Returns whether
    /// the rest of the batch can wait until then; if not, it is written now.
    fn put_back(&mut self, _batch: &mut Batch, _taken_bytes: usize) -> bool {
        false
    }

    /// Called when the server is shutting down. Returns whether the socket still has something to
    /// fetch and write; if so, the future that fetches it ends once all of it is taken.
    fn finish(&mut self) -> bool {
        false
    }
}

/// How long a socket may take to send its remaining data when the server shuts down. Together with
/// [`CLOSE_MAX`], this ends every socket within a second.
pub const FINISH_MAX: Duration = Duration::from_millis(500);

/// The timeout for the last write and the close frame.
pub const CLOSE_MAX: Duration = Duration::from_millis(500);

/// How long the peer may take to close its side after the close frame.
pub const LINGER_MAX: Duration = Duration::from_secs(1);

/// The client of a socket, and its limits.
pub struct Peer {
    /// The guard that counts the socket as one of the open sockets of its account or address.
    pub open: CountedSocket,
    /// The socket's share of the budget for bytes that peers have not read.
    pub unsent: Share,
    /// The approximate size of a batch of prices, in bytes:
    /// [`PRICES_BYTES_GOAL`](super::bounds::PRICES_BYTES_GOAL), or [`WRITE_BYTES_GOAL`] if the
    /// stream keeps bytes that the peer does not take.
    pub batch_bytes: usize,
    /// How large the frames of the client may be.
    pub frames: FrameLimit,
    /// Whether a frame may arrive now, given the nanoseconds since the socket was opened. Called
    /// once per frame.
    pub allow: Box<dyn FnMut(u64) -> bool + Send>,
    /// Whether the credential is still valid.
    pub is_valid: Box<dyn Fn() -> bool + Send + Sync>,
}

/// How a socket ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// The server sent or tried to send a close frame, which the peer may not have read.
    Closed(CloseReason),
    /// The stream ended or failed.
    Gone,
    /// The peer sent nothing for [`SILENCE_MAX`](super::watch::SILENCE_MAX).
    Silent,
}

impl Ended {
    /// The names in metrics, in the order of [`index`](Self::index).
    pub const NAMES: [&str; 13] = [
        "gone",
        "silent",
        "returned",
        "going_away",
        "protocol",
        "binary",
        "not_utf8",
        "too_much",
        "too_big",
        "busy",
        "too_slow",
        "bad_credential",
        "too_many_sockets",
    ];

    /// Returns the index in [`NAMES`](Self::NAMES).
    pub const fn index(self) -> usize {
        let reason = match self {
            Self::Gone => return 0,
            Self::Silent => return 1,
            Self::Closed(reason) => reason,
        };
        match reason {
            CloseReason::Returned(_) => 2,
            CloseReason::GoingAway => 3,
            CloseReason::TooBig | CloseReason::Clob(ClobFlaw::TooBig) => 8,
            CloseReason::BadCredential(_)
            | CloseReason::Clob(ClobFlaw::NoCredential | ClobFlaw::Credential) => 11,
            CloseReason::TooMuch | CloseReason::Clob(ClobFlaw::TooOften) => 7,
            CloseReason::Protocol | CloseReason::Clob(_) => 4,
            CloseReason::Binary => 5,
            CloseReason::NotUtf8 => 6,
            CloseReason::Busy => 9,
            CloseReason::TooSlow => 10,
            CloseReason::TooManySockets => 12,
        }
    }
}

/// Runs a socket until it ends. `received` are the bytes that arrived after the head of the upgrade
/// request. `wake` wakes the writer, and `fetching` fetches what the protocol sends.
pub(super) async fn serve<S, P>(
    (stream, received): (S, Vec<u8>),
    peer: Peer,
    (protocol, wake, fetching): (P, Arc<Notify>, impl Future<Output = Ended> + Send),
    watch: &Watch,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
    P: Protocol,
{
    let (read_half, mut write_half) = tokio::io::split(stream);
    let Peer { open, unsent, batch_bytes, frames, allow, is_valid } = peer;
    let mut frames = FrameReader::new(read_half, received, frames);
    let (ended, is_close_sent) = {
        let connection = Connection::new(protocol, wake, unsent, watch.add(is_valid));
        let mut writing = pin!(connection.write(&mut write_half, batch_bytes));
        let mut fetching = pin!(fetching);
        let mut ended = tokio::select! {
            biased;
            ended = &mut writing => ended,
            ended = connection.watch() => ended,
            ended = connection.read(&mut frames, allow) => ended,
            ended = &mut fetching => ended,
        };
        let is_left = ended == Ended::Closed(CloseReason::GoingAway)
            && connection.shared.lock().protocol.finish();
        if is_left {
            let finishing = async {
                tokio::select! {
                    biased;
                    ended = &mut writing => ended,
                    ended = fetching => ended,
                }
            };
            ended = timeout(FINISH_MAX, finishing).await.unwrap_or(ended);
        }
        let retry_after =
            (ended == Ended::Closed(CloseReason::GoingAway)).then(|| open.call_back());
        // Before the close frame: a peer that has read it may reconnect at once.
        drop(open);
        let mut is_close_sent = false;
        if let Ended::Closed(reason) = ended {
            connection.shared.lock().close = Some((reason, retry_after));
            connection.wake.notify_one();
            let last = timeout(CLOSE_MAX, writing).await;
            is_close_sent = matches!(last, Ok(Ended::Closed(_)));
        }
        (ended, is_close_sent)
    };
    if is_close_sent {
        linger(frames.into_stream()).await;
    }
    ended
}

/// Closes a socket at once, sending only the close frame.
pub async fn refuse<S>(stream: S, reason: CloseReason) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (read_half, mut write_half) = tokio::io::split(stream);
    let mut frame = Vec::new();
    put_close(&mut frame, reason, None);
    let sent = timeout(CLOSE_MAX, async {
        write_half.write_all(&frame).await?;
        write_half.shutdown().await
    });
    if !matches!(sent.await, Ok(Ok(()))) {
        return Ended::Gone;
    }
    linger(read_half).await;
    Ended::Closed(reason)
}

/// Reads and discards until the peer closes its side.
async fn linger<R: AsyncRead + Unpin>(mut stream: R) {
    let drained = poll_fn(|context| {
        // On the stack, since a buffer in the future would take up room in every socket from the
        // start.
        let mut scratch = [const { MaybeUninit::uninit() }; 1024];
        loop {
            let mut chunk = ReadBuf::uninit(&mut scratch);
            let read = ready!(Pin::new(&mut stream).poll_read(context, &mut chunk));
            if read.is_err() || chunk.filled().is_empty() {
                return Poll::Ready(());
            }
        }
    });
    // A peer that keeps its side open is abandoned: it got its close frame.
    let _ = timeout(LINGER_MAX, drained).await;
}

struct Connection<P> {
    shared: Mutex<Shared<P>>,
    wake: Arc<Notify>,
    watched: Arc<Watched>,
    opened_at: Instant,
}

/// State shared by the reader and the writer. Locked only briefly, never across an await.
struct Shared<P> {
    protocol: P,
    /// The rest of a frame that the peer has taken in part, or the next frame if the peer stopped
    /// right before it. Written first.
    begun: Vec<u8>,
    /// Complete frames, ready to be written.
    replies: Vec<u8>,
    /// Number of bytes being written that the peer has not taken.
    unwritten_bytes: usize,
    /// The socket's share of the budget for bytes that peers do not take at once.
    unsent: Share,
    /// Set once; the writer then sends a close frame and ends. The duration, if any, is the time
    /// after which the peer should reconnect, and is part of the close frame.
    close: Option<(CloseReason, Option<Duration>)>,
}

impl<P: Protocol> Connection<P> {
    fn new(mut protocol: P, wake: Arc<Notify>, unsent: Share, watched: Arc<Watched>) -> Self {
        let mut replies = Vec::new();
        protocol.begin(&mut replies);
        let begun = Vec::new();
        let shared = Shared { protocol, begun, replies, unwritten_bytes: 0, unsent, close: None };
        Self { shared: Mutex::new(shared), wake, watched, opened_at: Instant::now() }
    }

    /// Reads frames until the peer violates the protocol or a limit, or is gone.
    async fn read<R: AsyncRead + Unpin + Send>(
        &self,
        frames: &mut FrameReader<R>,
        mut allow: Box<dyn FnMut(u64) -> bool + Send>,
    ) -> Ended {
        loop {
            let frame = match frames.next().await {
                Ok(frame) => frame,
                Err(ReadEnd::Close(reason)) => return Ended::Closed(reason),
                Err(ReadEnd::Gone) => return Ended::Gone,
            };
            let now = Instant::now();
            let since_open_ns = (now - self.opened_at).as_nanos();
            if !allow(u64::try_from(since_open_ns).unwrap_or(u64::MAX)) {
                return Ended::Closed(CloseReason::TooMuch);
            }
            self.watched.note_heard(now);
            let mut shared = self.shared.lock();
            match frame {
                ClientFrame::Text(text) => shared.answer(&text),
                ClientFrame::Ping(payload) => put_pong(&mut shared.replies, &payload),
                ClientFrame::Pong => {}
            }
            if shared.replies.len() > REPLY_BYTES_MAX {
                return Ended::Closed(CloseReason::TooMuch);
            }
            self.note_unsent(&mut shared);
            let has_reply = !shared.replies.is_empty();
            drop(shared);
            if has_reply {
                self.wake.notify_one();
            }
        }
    }

    /// Writes whatever is pending until a close is requested. Each iteration writes one batch.
    async fn write<W: AsyncWrite + Unpin + Send>(
        &self,
        stream: &mut W,
        batch_bytes: usize,
    ) -> Ended {
        let mut bytes_goal = batch_bytes;
        loop {
            let mut batch = Batch::new();
            let close = self.take(&mut batch, bytes_goal);
            if batch.is_empty() {
                drop(batch);
                self.wake.notified().await;
                continue;
            }
            bytes_goal = match self.write_batch(batch, stream).await {
                Ok(None) => (bytes_goal + WRITE_BYTES_GOAL).min(batch_bytes),
                // A larger batch would be assembled only to be put back.
                Ok(Some(taken_bytes)) => taken_bytes.max(WRITE_BYTES_GOAL).min(batch_bytes),
                Err(_) => return Ended::Gone,
            };
            if let Some(reason) = close {
                // The close frame has been sent, so a peer that is gone by now misses nothing.
                let _ = stream.shutdown().await;
                return Ended::Closed(reason);
            }
        }
    }

    /// Assembles the next batch. Everything before it has been written, except for the rest of a
    /// begun frame, which comes first. Returns the reason if the batch ends with a close frame.
    fn take(&self, batch: &mut Batch, bytes_goal: usize) -> Option<CloseReason> {
        let mut shared = self.shared.lock();
        if shared.begun.is_empty() {
            self.note_unwritten(&mut shared, 0);
        }
        shared.take(batch, bytes_goal)
    }

    /// Writes a batch. Returns `None` if the peer took all of it at once, as nearly all do, and
    /// otherwise the number of bytes it took at first.
    async fn write_batch<W: AsyncWrite + Unpin + Send>(
        &self,
        batch: Batch,
        stream: &mut W,
    ) -> io::Result<Option<usize>> {
        let now = poll_fn(|context| {
            let stream = &mut *stream;
            let taken_bytes = match Pin::new(&mut *stream).poll_write(context, &batch) {
                Poll::Pending => 0,
                Poll::Ready(Ok(0)) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(taken) => taken?,
            };
            let is_done =
                taken_bytes == batch.len() && Pin::new(stream).poll_flush(context)?.is_ready();
            Poll::Ready(io::Result::Ok((taken_bytes, is_done)))
        });
        let (taken_bytes, is_done) = now.await?;
        if is_done {
            return Ok(None);
        }
        match self.put_back(batch, taken_bytes) {
            None => self.wake.notified().await,
            // Boxed, since few sockets ever need the room for this future.
            Some(rest) => Box::pin(self.write_rest(&rest, stream)).await?,
        }
        Ok(Some(taken_bytes))
    }

    /// Puts back the frames of a batch that can wait, given the number of bytes the peer took.
    /// Returns the rest that must be written now, or `None` if the next batch can start with it. If
    /// many sockets are queued for their turn, the peer has room for more by then.
    fn put_back(&self, mut batch: Batch, taken_bytes: usize) -> Option<Vec<u8>> {
        let mut shared = self.shared.lock();
        let can_wait = shared.protocol.put_back(&mut batch, taken_bytes);
        // For a socket forwarded by another node, the rest may be empty, and only has to be
        // flushed.
        let rest = batch[taken_bytes..].to_vec();
        // A peer that took nothing may have stalled, which only a pending write detects.
        if !can_wait || taken_bytes == 0 {
            return Some(rest);
        }
        let rest_bytes = rest.len();
        shared.begun = rest;
        self.note_unwritten(&mut shared, rest_bytes);
        None
    }

    /// Writes and flushes the bytes that a peer has not taken at once. Records how many are left,
    /// and when the peer last took some.
    async fn write_rest<W: AsyncWrite + Unpin + Send>(
        &self,
        mut rest: &[u8],
        stream: &mut W,
    ) -> io::Result<()> {
        let mut is_slow = false;
        while !rest.is_empty() {
            let writing = poll_fn(|context| {
                let polled = Pin::new(&mut *stream).poll_write(context, rest);
                // A task that has exhausted its cooperative budget also gets `Pending` and is
                // polled again at once. That is not the peer's fault.
                if polled.is_pending() && coop::has_budget_remaining() {
                    if !is_slow {
                        self.watched.note_taken(Instant::now());
                    }
                    is_slow = true;
                    self.note_unwritten(&mut self.shared.lock(), rest.len());
                }
                polled
            });
            match writing.await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                len => rest = &rest[len..],
            }
            if is_slow {
                self.watched.note_taken(Instant::now());
            }
        }
        stream.flush().await
    }

    /// Records the number of bytes being written that the peer has not taken.
    fn note_unwritten(&self, shared: &mut Shared<P>, bytes: usize) {
        let were_left = std::mem::replace(&mut shared.unwritten_bytes, bytes) > 0;
        if were_left || bytes > 0 {
            self.note_unsent(shared);
        }
        if were_left && bytes == 0 {
            // Last: by now the peer has taken the bytes that the budget had no room for.
            self.watched.note_all_taken();
        }
    }

    /// Charges the bytes that a slow peer has not read to the budget.
    fn note_unsent(&self, shared: &mut Shared<P>) {
        let is_slow = shared.unwritten_bytes > 0;
        let bytes = if is_slow { shared.unwritten_bytes + shared.replies.len() } else { 0 };
        // While a begun frame waits for the next batch, the peer may well have room for it. It is
        // not at fault if others have used up the budget.
        if !shared.unsent.hold(bytes) && shared.begun.is_empty() {
            self.watched.note_lack_of_room();
        }
    }

    /// Pings the peer when a ping is due. Returns when the socket must end.
    async fn watch(&self) -> Ended {
        loop {
            match self.watched.noticed().await {
                Notice::Ping => {
                    put_ping(&mut self.shared.lock().replies);
                    self.wake.notify_one();
                }
                Notice::End(ended) => return ended,
            }
        }
    }
}

impl<P: Protocol> Shared<P> {
    fn take(&mut self, batch: &mut Batch, bytes_goal: usize) -> Option<CloseReason> {
        batch.take(&mut self.begun);
        let Some((reason, retry_after)) = self.close else {
            self.protocol.take(&mut self.replies, batch, bytes_goal);
            return None;
        };
        batch.take(&mut self.replies);
        put_close(batch, reason, retry_after);
        Some(reason)
    }

    fn answer(&mut self, text: &[u8]) {
        self.protocol.answer(text, Timestamp::now(), &mut self.replies);
    }
}

#[cfg(test)]
mod tests;
