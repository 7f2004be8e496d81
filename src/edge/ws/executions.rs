//! The execution socket: every fill of an account, once and in order.
//!
//! The socket remembers the number of the last fill that it sent and reads the next ones from the
//! account's shard, a page at a time, each page when it is durable. So nothing is queued for a slow
//! reader: it only reads later, and learns from a `gap` frame what is no longer kept by then.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Notify;

use super::batch::Batch;
use super::bounds::{RESUMES_WAITING_MAX, WRITE_BYTES_GOAL};
use super::close::CloseReason;
use super::connection::{Ended, Peer, Protocol, serve};
use super::execution_frame::{ExecutionReply, ExecutionRequest, Fill};
use super::protocol::{Reply, put_message};
use super::watch::Watch;
use paperbourse_core::engine::fills::FillPage;
use paperbourse_core::ids::Timestamp;
use paperbourse_exchange::shard::FillFollower;

/// What all execution sockets have sent since the start.
#[derive(Default, Debug)]
pub struct ExecutionCounts {
    fills: AtomicU64,
    gaps: AtomicU64,
}

impl ExecutionCounts {
    /// The number of `fill` frames.
    pub fn fills(&self) -> u64 {
        self.fills.load(Ordering::Relaxed)
    }

    /// The number of `gap` frames.
    pub fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }
}

/// Streams fills until the socket ends. `received` are the bytes that arrived with the upgrade
/// request, after its head.
pub async fn serve_executions<S>(
    (stream, received): (S, Vec<u8>),
    peer: Peer,
    (follower, counts): (FillFollower, &ExecutionCounts),
    watch: &Watch,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send,
{
    let feed = Feed { follower, counts, wake_writer: Arc::default(), outbox: Mutex::default() };
    let fetching = async {
        feed.run().await;
        Ended::Closed(CloseReason::GoingAway)
    };
    let protocol = (&feed, feed.wake_writer.clone(), fetching);
    serve((stream, received), peer, protocol, watch).await
}

/// Reads fills and puts their frames into the outbox.
struct Feed<'a> {
    follower: FillFollower,
    counts: &'a ExecutionCounts,
    wake_writer: Arc<Notify>,
    outbox: Mutex<Outbox>,
}

/// What passes between the feed and the connection.
#[derive(Default)]
struct Outbox {
    /// Complete frames, ready to be written: at most [`WRITE_BYTES_GOAL`] and a page.
    frames: Vec<u8>,
    /// Whether the first frame has been put there. Nothing is written before it.
    has_begun: bool,
    /// The resumes that have not been answered, oldest first.
    resumes: VecDeque<u64>,
    /// Whether the server is shutting down.
    is_last: bool,
}

/// What the feed does next.
enum Step {
    /// Answer a resume after this number.
    Resume(u64),
    /// Read on.
    Read,
    /// Wait until there is something to do.
    Wait,
    /// Everything is written, and the server is shutting down.
    End,
}

impl Feed<'_> {
    /// Ends when the server is shutting down and everything was taken.
    async fn run(&self) {
        // No fill has so high a number: this reads only which one is the newest.
        let newest = self.follower.page(u64::MAX).await.newest;
        let mut position = Position { sent: newest, newest };
        self.put(|outbox| {
            outbox.has_begun = true;
            let hello = ExecutionReply::connected(self.follower.account(), newest);
            put_message(&mut outbox.frames, &hello);
        });
        loop {
            match self.next_step(&position) {
                Step::Resume(after) => {
                    let page = self.follower.page(after).await;
                    self.put(|outbox| self.resume(&mut position, after, &page, outbox));
                }
                Step::Read => {
                    let page = self.follower.page(position.sent).await;
                    self.put(|outbox| self.go_on(&mut position, &page, outbox));
                }
                Step::Wait => self.follower.signal().woken().await,
                Step::End => return,
            }
        }
    }

    fn next_step(&self, position: &Position) -> Step {
        let mut outbox = self.outbox.lock();
        if outbox.frames.len() >= WRITE_BYTES_GOAL {
            // The writer wakes the feed.
            return Step::Wait;
        }
        if let Some(after) = outbox.resumes.pop_front() {
            return Step::Resume(after);
        }
        if self.follower.signal().take() || position.sent < position.newest {
            return Step::Read;
        }
        if outbox.is_last && outbox.frames.is_empty() { Step::End } else { Step::Wait }
    }

    /// Puts frames into the outbox and wakes the writer.
    fn put(&self, write: impl FnOnce(&mut Outbox)) {
        write(&mut self.outbox.lock());
        self.wake_writer.notify_one();
    }

    fn resume(&self, position: &mut Position, after: u64, page: &FillPage, outbox: &mut Outbox) {
        if after > page.newest {
            let newest = page.newest;
            let message = format!("after is {after}, and the newest fill has the seq {newest}");
            put_message(&mut outbox.frames, &Reply::Error { message: &message });
            return;
        }
        put_message(&mut outbox.frames, &ExecutionReply::Resumed { after });
        position.sent = after;
        self.go_on(position, page, outbox);
    }

    /// Adds the fills of a page that begins at the position.
    fn go_on(&self, position: &mut Position, page: &FillPage, outbox: &mut Outbox) {
        let next = position.sent + 1;
        if page.oldest > next {
            position.sent = page.oldest - 1;
            let gap = ExecutionReply::Gap { from: next, to: position.sent };
            put_message(&mut outbox.frames, &gap);
            self.counts.gaps.fetch_add(1, Ordering::Relaxed);
        }
        for row in &page.rows {
            put_message(&mut outbox.frames, &Fill::of(row));
            position.sent = row.number;
        }
        position.newest = page.newest;
        self.counts.fills.fetch_add(page.rows.len() as u64, Ordering::Relaxed);
    }
}

/// How far the feed is.
struct Position {
    /// The number of the last fill put into the outbox, or skipped.
    sent: u64,
    /// The number of the newest fill at the last read.
    newest: u64,
}

impl Protocol for &Feed<'_> {
    fn answer(&mut self, text: &[u8], now: Timestamp, replies: &mut Vec<u8>) {
        match ExecutionRequest::parse(text) {
            Ok(ExecutionRequest::Resume { after }) => {
                let mut outbox = self.outbox.lock();
                if outbox.resumes.len() >= RESUMES_WAITING_MAX {
                    let message = "too many resumes: wait until they are answered";
                    return put_message(replies, &Reply::Error { message });
                }
                outbox.resumes.push_back(after);
                drop(outbox);
                self.follower.signal().wake();
            }
            Ok(ExecutionRequest::Subscribe) => put_message(replies, &ExecutionReply::Subscribed),
            Ok(ExecutionRequest::Ping) => put_message(replies, &Reply::pong(now)),
            Err(error) => put_message(replies, &Reply::Error { message: &error.to_string() }),
        }
    }

    /// Fills first, then replies, so that nothing precedes the `connected` frame.
    fn take(&mut self, replies: &mut Vec<u8>, batch: &mut Batch, _: usize) {
        let mut outbox = self.outbox.lock();
        if !outbox.has_begun {
            return;
        }
        batch.take(&mut outbox.frames);
        drop(outbox);
        if !batch.is_empty() {
            // There is room again.
            self.follower.signal().wake();
        }
        batch.take(replies);
    }

    fn finish(&mut self) -> bool {
        self.outbox.lock().is_last = true;
        self.follower.signal().wake();
        true
    }
}

#[cfg(test)]
mod tests;
