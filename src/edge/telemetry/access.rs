//! The access log: a line for each request, or for some of them, with no header, key or body in it.
//!
//! A thread of its own writes the lines. A request never waits for it: while the reader of the log
//! is too slow, lines are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{io, thread};

use super::Sample;

/// How many lines may wait to be written.
const LINES_MAX: usize = 8_192;

/// How long the end of the process may wait for lines that are not written yet.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// Takes lines from all workers.
#[derive(Debug)]
pub struct AccessLog {
    /// [`Sample::count`].
    sample: AtomicU32,
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// One request and what became of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessLine {
    /// Its operation, such as `GET /v1/orders/{order_id}`; `none` if it matched none.
    pub operation: String,
    /// The status of the response.
    pub status: u16,
    /// From the end of the head to the start of the response, in microseconds.
    pub duration_us: u64,
    /// The id in `X-Request-Id`.
    pub request_id: String,
    /// The id of the key that was presented, if one was.
    pub key_id: Option<u64>,
    /// The position in the journal that had to be on disk before the response could be sent: of a
    /// write, that of its own record. `None` if nothing had to be.
    pub position: Option<u64>,
}

enum Message {
    Line(AccessLine),
    /// Answered when all lines before it are written.
    Flush(SyncSender<()>),
}

impl AccessLog {
    /// Starts the thread that writes.
    pub fn start(sample: Sample) -> io::Result<Self> {
        let (lines, received) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let sample = AtomicU32::new(sample.count());
        let log = Self { sample, lines, dropped: dropped.clone() };
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(&received, &dropped))?;
        Ok(log)
    }

    /// Changes which requests have a line.
    pub fn set_sample(&self, sample: Sample) {
        self.sample.store(sample.count(), Ordering::Relaxed);
    }

    /// Whether the request with this id has a line.
    pub fn has_line(&self, request_id: &str) -> bool {
        Sample::one_in(self.sample.load(Ordering::Relaxed)).has(request_id.as_bytes())
    }

    /// Hands over a line to be written, or drops it if too many are waiting.
    pub fn record(&self, line: AccessLine) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits a little for all lines to be written. Blocks.
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            // The reader of the log may be stuck, which must not keep the process alive.
            let _ = is_done.recv_timeout(FLUSH_TIME_MAX);
        }
    }
}

fn write(received: &Receiver<Message>, dropped: &AtomicU64) {
    while let Ok(message) = received.recv() {
        match message {
            Message::Line(line) => {
                let AccessLine { operation, status, duration_us, request_id, key_id, position } =
                    line;
                tracing::info!(
                    target: "paperbourse::access",
                    operation,
                    status,
                    duration_us,
                    request_id,
                    key_id,
                    position,
                    "request"
                );
            }
            Message::Flush(done) => drop(done.send(())),
        }
        let dropped = dropped.swap(0, Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(
                target: "paperbourse::access",
                dropped,
                "the log is read too slowly: lines about requests were dropped"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_that_finds_no_room_is_dropped_at_once() {
        let (lines, received) = sync_channel(2);
        let log = AccessLog { sample: AtomicU32::new(1), lines, dropped: Arc::default() };
        let line = AccessLine {
            operation: "GET /v1/health".into(),
            status: 200,
            duration_us: 1,
            request_id: "1".into(),
            key_id: None,
            position: None,
        };
        (0..5).for_each(|_| log.record(line.clone()));
        assert_eq!(log.dropped.load(Ordering::Relaxed), 3);
        assert_eq!(received.try_iter().count(), 2);
    }
}
