//! The life of one price socket, from the upgrade to the end of the stream.
//!
//! One task runs three things side by side: reading, writing, and watching the clock. They meet in
//! a small desk: the reader puts replies there, the writer takes them. So a peer that does not read
//! is still heard, and nothing waits for it but its own writer:
//!
//! - prices wait nowhere: the writer asks for the newest when it can write;
//! - replies wait in [`REPLY_BYTES_MAX`] bytes, past which the socket is closed;
//! - a write that makes no progress for [`Times::write_stall_max`] ends the socket.
//!
//! However the socket ends, the peer is told with a close frame behind the last whole frame, as far
//! as it can be told in [`Times::close_max`]. Then the server stops writing and reads on for a
//! while, into nothing: a stream that is closed with bytes unread is reset, and the close frame may
//! be lost with it.

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

/// Replies that the peer has not read take at most this many bytes. Acknowledgements of fifty
/// markets added one by one, sent in one go, take about half of it.
pub const REPLY_BYTES_MAX: usize = 256 * 1024;

/// The writer stops collecting frames for one write at this many bytes.
const WRITE_BYTES_GOAL: usize = 16 * 1024;

/// How long things take on a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Times {
    /// From one ping of the server to the next.
    pub ping_interval: Duration,
    /// A peer that sent no frame for so long is dropped.
    pub silence_max: Duration,
    /// How often the clock is watched: how late a ping can be, and how long a revoked credential
    /// keeps its socket.
    pub watch_interval: Duration,
    /// A write that makes no progress for so long ends the socket.
    pub write_stall_max: Duration,
    /// For the last write and the close frame behind it.
    pub close_max: Duration,
    /// For the peer to end its side after that.
    pub linger_max: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            ping_interval: Duration::from_secs(20),
            silence_max: Duration::from_secs(40),
            // With `close_max`: a revoked credential's socket is over within a second.
            watch_interval: Duration::from_millis(400),
            write_stall_max: Duration::from_secs(10),
            close_max: Duration::from_millis(500),
            linger_max: Duration::from_secs(1),
        }
    }
}

/// Who is at the other end, and what it may do.
pub struct Peer {
    /// Whose socket it is.
    pub account_id: AccountId,
    /// Holds the socket's place among those of the account.
    pub open: OpenSocket,
    /// Whether a frame may come now, in nanoseconds since the socket was opened; asked once for
    /// each.
    pub allow: Box<dyn FnMut(u64) -> bool + Send>,
    /// Whether the credential still holds.
    pub is_valid: Box<dyn Fn() -> bool + Send + Sync>,
}

/// How a socket ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// With a close frame, which the peer may or may not have read.
    Closed(CloseReason),
    /// The stream ended or failed.
    Gone,
    /// The peer sent nothing for [`Times::silence_max`].
    Silent,
    /// The peer took nothing for [`Times::write_stall_max`].
    Stalled,
}

/// Serves prices until the socket ends. `shutdown` turns true, or its sender is dropped, when the
/// server stops.
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
    let (ended, is_told) = {
        let connection = Connection::new(account_id, subscriptions, times);
        let mut writing = pin!(connection.write(&mut write_half));
        let ended = {
            let reading = pin!(connection.read(&mut frames, allow));
            let watching = pin!(connection.watch(&*is_valid, shutdown));
            first_of([writing.as_mut(), watching, reading]).await
        };
        // Before the close frame: a peer that has read it may come back at once.
        drop(open);
        let mut is_told = false;
        if let Ended::Closed(reason) = ended {
            connection.desk.lock().close = Some(reason);
            connection.mailbox.ring();
            let last = timeout(times.close_max, writing).await;
            is_told = matches!(last, Ok(Ended::Closed(_)));
        }
        (ended, is_told)
    };
    if is_told {
        linger(frames.into_stream(), times.linger_max).await;
    }
    ended
}

/// Closes a socket at once, without a word but the reason.
pub async fn refuse<S>(stream: S, reason: CloseReason, times: Times) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let (read_half, mut write_half) = tokio::io::split(stream);
    let mut frame = Vec::new();
    put_close(&mut frame, reason);
    let told = timeout(times.close_max, async {
        write_half.write_all(&frame).await?;
        write_half.shutdown().await
    });
    if !matches!(told.await, Ok(Ok(()))) {
        return Ended::Gone;
    }
    linger(read_half, times.linger_max).await;
    Ended::Closed(reason)
}

/// Polls in the order given until one of them has ended.
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

/// Reads into nothing until the peer ends its side.
async fn linger<R: AsyncRead + Unpin>(mut stream: R, linger_max: Duration) {
    let drained = async {
        let mut scratch = [0; 1024];
        while stream.read(&mut scratch).await.is_ok_and(|len| len > 0) {}
    };
    // A peer that keeps its side open is left: it was told.
    let _ = timeout(linger_max, drained).await;
}

struct Connection {
    desk: Mutex<Desk>,
    mailbox: Arc<Mailbox>,
    opened_at: Instant,
    times: Times,
}

/// What reader, writer and watcher share; locked for a moment, never across a wait.
struct Desk {
    subscriptions: Subscriptions,
    /// Whole frames, ready to be written.
    replies: Vec<u8>,
    /// When the peer's last frame was complete.
    heard_at: Instant,
    /// Set once: the writer ends with this.
    close: Option<CloseReason>,
}

impl Connection {
    fn new(account_id: AccountId, subscriptions: Subscriptions, times: Times) -> Self {
        let opened_at = Instant::now();
        let mailbox = subscriptions.mailbox().clone();
        let mut desk =
            Desk { subscriptions, replies: Vec::new(), heard_at: opened_at, close: None };
        desk.reply(&Reply::connected(account_id));
        Self { desk: Mutex::new(desk), mailbox, opened_at, times }
    }

    /// Hears the peer out until it breaks a rule or is gone.
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
            let mut desk = self.desk.lock();
            desk.heard_at = now;
            match frame {
                ClientFrame::Text(text) => desk.answer(&text, Timestamp::now()),
                ClientFrame::Ping(payload) => put_pong(&mut desk.replies, &payload),
                ClientFrame::Pong => {}
            }
            if desk.replies.len() > REPLY_BYTES_MAX {
                return Ended::Closed(CloseReason::TooMuch);
            }
            let has_reply = !desk.replies.is_empty();
            drop(desk);
            if has_reply {
                self.mailbox.ring();
            }
        }
    }

    /// Writes what there is until the desk says close. One turn is one write: replies first, then
    /// the newest frame of each market that is due.
    async fn write<W: AsyncWrite + Unpin + Send>(&self, stream: &mut W) -> Ended {
        loop {
            let (batch, close) = self.desk.lock().collect();
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
                // The close frame is out; a peer that is gone by now has missed nothing.
                let _ = stream.shutdown().await;
                return Ended::Closed(reason);
            }
        }
    }

    /// Pings the peer and ends the socket when it is silent, its credential revoked, or the server
    /// on its way down.
    async fn watch(
        &self,
        is_valid: &(dyn Fn() -> bool + Send + Sync),
        mut shutdown: watch::Receiver<bool>,
    ) -> Ended {
        let mut pinged_at = self.opened_at;
        loop {
            let stopping = shutdown.wait_for(|&is_down| is_down);
            // An error is a sender that was dropped: a server on its way down as well.
            if timeout(self.times.watch_interval, stopping).await.is_ok() {
                return Ended::Closed(CloseReason::GoingAway);
            }
            if !is_valid() {
                return Ended::Closed(CloseReason::BadCredential);
            }
            let now = Instant::now();
            let mut desk = self.desk.lock();
            if now - desk.heard_at >= self.times.silence_max {
                return Ended::Silent;
            }
            if now - pinged_at >= self.times.ping_interval {
                pinged_at = now;
                put_ping(&mut desk.replies);
                drop(desk);
                self.mailbox.ring();
            }
        }
    }
}

impl Desk {
    /// Everything for the next write, and whether it ends in a close frame.
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

    /// Does what a text frame asks for.
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
