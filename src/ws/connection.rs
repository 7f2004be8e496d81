//! The life of one price socket, from the upgrade to the end of the stream.
//!
//! One task reads, writes and watches the clock concurrently. The three share a small [`Shared`]
//! state: the reader puts replies there, the writer takes them. So a peer that does not read is
//! still heard, and only its own writer waits for it:
//!
//! - prices are never queued: the writer asks for the newest whenever it can write;
//! - replies queue in [`REPLY_BYTES_MAX`] bytes, beyond which the socket is closed;
//! - a write that makes no progress for [`Times::write_stall_max`] ends the socket.
//!
//! Whatever ends the socket, the server tries for up to [`Times::close_max`] to send a close frame
//! after the last whole frame. Then it stops writing and keeps reading for a while, discarding
//! everything: closing a stream with unread bytes resets it, which may lose the close frame.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, timeout};

use super::close::CloseReason;
use super::counts::OpenSocket;
use super::fanout::{Fanout, Mailbox};
use super::frame::{ClientFrame, FrameReader, ReadEnd, put_close, put_ping, put_pong, put_text};
use super::protocol::{Reply, Request, unknown_markets_message};
use super::subscriptions::Subscriptions;
use crate::ids::{AccountId, Timestamp};

/// Size limit of the replies that a peer has not read, in bytes. The acknowledgements of fifty
/// markets added one by one in a single burst take about half of it.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;

/// The writer stops adding frames to a batch at this size, in bytes.
const WRITE_BYTES_GOAL: usize = 16 * 1024;

/// The intervals and timeouts of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// Interval between the server's pings.
    pub ping_interval: Duration,
    /// A peer that sends no frame for this long is dropped.
    pub silence_max: Duration,
    /// How often the clock is checked; bounds how late a ping can be and how long a revoked
    /// credential keeps its socket.
    pub watch_interval: Duration,
    /// A write that makes no progress for this long ends the socket.
    pub write_stall_max: Duration,
    /// Time for the last write and the close frame.
    pub close_max: Duration,
    /// Time for the peer to close its side afterwards.
    pub linger_max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(20),
            silence_max: Duration::from_secs(40),
            // Together with `close_max`, ends a revoked credential's socket within a second.
            watch_interval: Duration::from_millis(400),
            write_stall_max: Duration::from_secs(10),
            close_max: Duration::from_millis(500),
            linger_max: Duration::from_secs(1),
        }
    }
}

/// The client, and what it may do.
pub struct Peer {
    /// The account the socket belongs to.
    pub account_id: AccountId,
    /// Counts the socket as one of the account's.
    pub open: OpenSocket,
    /// Whether a frame may arrive now, given the nanoseconds since the socket was opened. Called
    /// once per frame.
    pub allow: Box<dyn FnMut(u64) -> bool + Send>,
    /// Whether the credential is still valid.
    pub is_valid: Box<dyn Fn() -> bool + Send + Sync>,
}

/// How a socket ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With a close frame, which the peer may not have read.
    Closed(CloseReason),
    /// The stream ended or failed.
    Gone,
    /// The peer sent nothing for [`Times::silence_max`].
    Silent,
    /// A write made no progress for [`Times::write_stall_max`].
    Stalled,
}

/// Streams prices until the socket ends. The server is shutting down once `shutdown` is true or its
/// sender is dropped.
pub async fn serve_prices<S>(
    stream: S,
    peer: Peer,
    fanout: &Arc<Fanout>,
    shutdown: watch::Receiver<bool>,
    times: Times,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let Some(subscriptions) = fanout.open() else {
        return refuse(stream, CloseReason::Busy, times).await;
    };
    let (read_half, mut write_half) = tokio::io::split(stream);
    let mut frames = FrameReader::new(read_half);
    let Peer { account_id, open, allow, is_valid } = peer;
    let (ended, is_close_sent) = {
        let connection = Connection::new(account_id, subscriptions, times);
        let mut writing = pin!(connection.write(&mut write_half));
        let ended = {
            let reading = pin!(connection.read(&mut frames, allow));
            let watching = pin!(connection.watch(&*is_valid, shutdown));
            first_of([writing.as_mut(), watching, reading]).await
        };
        // Before the close frame: a peer that has read it may reconnect at once.
        drop(open);
        let mut is_close_sent = false;
        if let Ended::Closed(reason) = ended {
            connection.shared.lock().close = Some(reason);
            connection.mailbox.wake();
            let last = timeout(times.close_max, writing).await;
            is_close_sent = matches!(last, Ok(Ended::Closed(_)));
        }
        (ended, is_close_sent)
    };
    if is_close_sent {
        linger(frames.into_stream(), times.linger_max).await;
    }
    ended
}

/// Closes a socket at once; sends nothing but the close frame.
pub async fn refuse<S>(stream: S, reason: CloseReason, times: Times) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (read_half, mut write_half) = tokio::io::split(stream);
    let mut frame = Vec::new();
    put_close(&mut frame, reason);
    let sent = timeout(times.close_max, async {
        write_half.write_all(&frame).await?;
        write_half.shutdown().await
    });
    if !matches!(sent.await, Ok(Ok(()))) {
        return Ended::Gone;
    }
    linger(read_half, times.linger_max).await;
    Ended::Closed(reason)
}

/// Polls in the given order until one of the futures is ready.
async fn first_of(mut futures: [Pin<&mut (dyn Future<Output = Ended> + Send)>; 3]) -> Ended {
    std::future::poll_fn(|context| {
        for future in &mut futures {
            if let Poll::Ready(ended) = future.as_mut().poll(context) {
                return Poll::Ready(ended);
            }
        }
        Poll::Pending
    })
    .await
}

/// Reads and discards until the peer closes its side.
async fn linger<R: AsyncRead + Unpin>(mut stream: R, linger_max: Duration) {
    let drained = async {
        let mut scratch = [0; 1024];
        while stream.read(&mut scratch).await.is_ok_and(|len| len > 0) {}
    };
    // Give up on a peer that keeps its side open: it got its close frame.
    let _ = timeout(linger_max, drained).await;
}

struct Connection {
    shared: Mutex<Shared>,
    mailbox: Arc<Mailbox>,
    opened_at: Instant,
    times: Times,
}

/// State shared by reader, writer and watcher; locked only briefly, never across an await.
struct Shared {
    subscriptions: Subscriptions,
    /// Complete frames, ready to be written.
    replies: Vec<u8>,
    /// When the last frame from the peer was complete.
    heard_at: Instant,
    /// Set once; the writer then sends a close frame and ends.
    close: Option<CloseReason>,
}

impl Connection {
    fn new(account_id: AccountId, subscriptions: Subscriptions, times: Times) -> Self {
        let opened_at = Instant::now();
        let mailbox = subscriptions.mailbox().clone();
        let mut shared =
            Shared { subscriptions, replies: Vec::new(), heard_at: opened_at, close: None };
        shared.reply(&Reply::connected(account_id));
        Self { shared: Mutex::new(shared), mailbox, opened_at, times }
    }

    /// Reads frames until the peer breaks a rule or is gone.
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
            let mut shared = self.shared.lock();
            shared.heard_at = now;
            match frame {
                ClientFrame::Text(text) => shared.answer(&text, Timestamp::now()),
                ClientFrame::Ping(payload) => put_pong(&mut shared.replies, &payload),
                ClientFrame::Pong => {}
            }
            if shared.replies.len() > REPLY_BYTES_MAX {
                return Ended::Closed(CloseReason::TooMuch);
            }
            let has_reply = !shared.replies.is_empty();
            drop(shared);
            if has_reply {
                self.mailbox.wake();
            }
        }
    }

    /// Writes whatever is pending until a close is requested. Each iteration is one batch: replies
    /// first, then the newest frame of each market that is due.
    async fn write<W: AsyncWrite + Unpin + Send>(&self, stream: &mut W) -> Ended {
        loop {
            let (batch, close) = self.shared.lock().collect();
            if batch.is_empty() {
                self.mailbox.woken().await;
                continue;
            }
            let mut rest = &batch[..];
            while !rest.is_empty() {
                match timeout(self.times.write_stall_max, stream.write(rest)).await {
                    Ok(Ok(0) | Err(_)) => return Ended::Gone,
                    Ok(Ok(len)) => rest = &rest[len..],
                    Err(_) => return Ended::Stalled,
                }
            }
            let flushed = timeout(self.times.write_stall_max, stream.flush()).await;
            match flushed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => return Ended::Gone,
                Err(_) => return Ended::Stalled,
            }
            if let Some(reason) = close {
                // The close frame is out; a peer that has gone by now misses nothing.
                let _ = stream.shutdown().await;
                return Ended::Closed(reason);
            }
        }
    }

    /// Pings the peer, and ends the socket if the peer is silent, its credential is no longer
    /// valid, or the server is shutting down.
    async fn watch(
        &self,
        is_valid: &(dyn Fn() -> bool + Send + Sync),
        mut shutdown: watch::Receiver<bool>,
    ) -> Ended {
        let mut pinged_at = self.opened_at;
        loop {
            let stopping = shutdown.wait_for(|&is_down| is_down);
            // An error means that the sender was dropped, so the server is shutting down, too.
            if timeout(self.times.watch_interval, stopping).await.is_ok() {
                return Ended::Closed(CloseReason::GoingAway);
            }
            if !is_valid() {
                return Ended::Closed(CloseReason::BadCredential);
            }
            let now = Instant::now();
            let mut shared = self.shared.lock();
            if now - shared.heard_at >= self.times.silence_max {
                return Ended::Silent;
            }
            if now - pinged_at >= self.times.ping_interval {
                pinged_at = now;
                put_ping(&mut shared.replies);
                drop(shared);
                self.mailbox.wake();
            }
        }
    }
}

impl Shared {
    /// Everything for the next write, and the reason if it ends in a close frame.
    fn collect(&mut self) -> (Vec<u8>, Option<CloseReason>) {
        let mut batch = std::mem::take(&mut self.replies);
        if let Some(reason) = self.close {
            put_close(&mut batch, reason);
            return (batch, Some(reason));
        }
        while batch.len() < WRITE_BYTES_GOAL
            && let Some(next) = self.subscriptions.next_frame()
        {
            put_text(&mut batch, &next.frame.json(next.conflated));
        }
        (batch, None)
    }

    /// Handles a text frame.
    fn answer(&mut self, text: &[u8], now: Timestamp) {
        match Request::parse(text) {
            Ok(Request::Subscribe(condition_ids)) => self.subscribe(&condition_ids, now),
            Ok(Request::Unsubscribe(condition_ids)) => {
                self.subscriptions.unsubscribe(&condition_ids);
                self.acknowledge();
            }
            Ok(Request::Ping) => self.reply(&Reply::pong(now)),
            Err(error) => self.reply(&Reply::Error { message: &error.to_string() }),
        }
    }

    fn subscribe(&mut self, condition_ids: &[String], now: Timestamp) {
        match self.subscriptions.subscribe(condition_ids, now) {
            Ok(unknown) => {
                if !unknown.is_empty() {
                    let message = unknown_markets_message(&unknown);
                    self.reply(&Reply::Error { message: &message });
                }
                self.acknowledge();
            }
            Err(error) => self.reply(&Reply::Error { message: &error.to_string() }),
        }
    }

    fn acknowledge(&mut self) {
        let markets = self.subscriptions.condition_ids().collect();
        let json = Reply::Subscribed { markets }.to_json();
        put_text(&mut self.replies, &[&json]);
    }

    fn reply(&mut self, reply: &Reply<'_>) {
        put_text(&mut self.replies, &[&reply.to_json()]);
    }
}

#[cfg(test)]
mod tests;
