//! The execution socket: every fill of an account, once and in order.
//!
//! The socket records the number of the last fill that it sent and reads the next ones from the
//! account's shard, one page at a time, each once it is durable. So nothing is queued for a slow
//! reader: its fills are read later, and a `gap` frame names those that are no longer kept by then.

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

/// Counts of frames sent by all execution sockets since the start.
#[derive(Default, Debug)]
pub struct ExecutionCounts {
    fills: AtomicU64,
    gaps: AtomicU64,
}

impl ExecutionCounts {
    /// Returns the number of `fill` frames sent.
    pub fn fills(&self) -> u64 {
        self.fills.load(Ordering::Relaxed)
    }

    /// Returns the number of `gap` frames sent.
    pub fn gaps(&self) -> u64 {
        self.gaps.load(Ordering::Relaxed)
    }
}

/// Streams fills until the socket ends. `received` are the bytes that arrived after the head of the
/// upgrade request.
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

/// Reads fills and adds their frames to the outbox.
struct Feed<'a> {
    follower: FillFollower,
    counts: &'a ExecutionCounts,
    wake_writer: Arc<Notify>,
    outbox: Mutex<Outbox>,
}

/// The frames and requests exchanged between the feed and the connection.
#[derive(Default)]
struct Outbox {
    /// Complete frames ready to be written: at most [`WRITE_BYTES_GOAL`] and a page.
    frames: Vec<u8>,
    /// Whether the `connected` frame has been added. Nothing is written before it.
    has_begun: bool,
    /// The resumes not answered yet, oldest first.
    resumes: VecDeque<u64>,
    /// Whether the server is shutting down.
    is_last: bool,
}

/// The feed's next step.
enum Step {
    /// Answer a resume after this fill number.
    Resume(u64),
    /// Read the next page.
    Read,
    /// Wait until there is something to do.
    Wait,
    /// Everything is written, and the server is shutting down.
    End,
}

impl Feed<'_> {
    /// Runs the feed. Returns once the server is shutting down and the writer has taken everything.
    async fn run(&self) {
        // No fill has such a high number, so this returns no fills, only the newest fill's number.
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
            // The writer wakes the feed when it takes the frames.
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

    /// Adds frames to the outbox and wakes the writer.
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

    /// Adds the fills of the page after the position, preceded by a gap frame if some are no longer
    /// kept.
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

/// The progress of the feed.
struct Position {
    /// The number of the last fill added to the outbox or skipped.
    sent: u64,
    /// The number of the account's newest fill, as of the last read.
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

    /// Takes fills before replies, so that nothing precedes the `connected` frame.
    fn take(&mut self, replies: &mut Vec<u8>, batch: &mut Batch, _: usize) {
        let mut outbox = self.outbox.lock();
        if !outbox.has_begun {
            return;
        }
        batch.take(&mut outbox.frames);
        drop(outbox);
        if !batch.is_empty() {
            // The outbox has room again.
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
