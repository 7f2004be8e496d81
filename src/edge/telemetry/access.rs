//! The access log: one line for each sampled request, without headers, keys or bodies.
//!
//! A dedicated thread writes the lines. Requests never wait for it: if the log is read too slowly,
//! lines are dropped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{io, thread};

use super::Sample;

/// The maximum number of lines queued to be written.
const LINES_MAX: usize = 8_192;

/// How long shutdown waits for queued lines to be written.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// Accepts lines from all workers.
#[derive(Debug)]
pub struct AccessLog {
    /// The sample, as [`Sample::count`] encodes it.
    sample: AtomicU32,
    lines: SyncSender<Message>,
    dropped: Arc<AtomicU64>,
}

/// A line of the access log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AccessLine {
    /// The operation, such as `GET /v1/orders/{order_id}`; `none` if no operation matched.
    pub operation: String,
    /// The status of the response.
    pub status: u16,
    /// Time from the end of the request's head to the start of the response, in microseconds.
    pub duration_us: u64,
    /// The request's id, as in `X-Request-Id`.
    pub request_id: String,
    /// The id of the API key presented, if any.
    pub key_id: Option<u64>,
    /// The journal position that had to be on disk before the response was sent. For a write, that
    /// is the position of the write's own record. `None` if the response waited for nothing.
    pub position: Option<u64>,
}

enum Message {
    Line(AccessLine),
    /// Acknowledged once all lines queued before it are written.
    Flush(SyncSender<()>),
}

impl AccessLog {
    /// Starts the thread that writes the lines.
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

    /// Changes which requests are logged.
    pub fn set_sample(&self, sample: Sample) {
        self.sample.store(sample.count(), Ordering::Relaxed);
    }

    /// Whether the request with this id is logged.
    pub fn has_line(&self, request_id: &str) -> bool {
        Sample::one_in(self.sample.load(Ordering::Relaxed)).has(request_id.as_bytes())
    }

    /// Queues a line, or drops and counts it if the queue is full.
    pub fn record(&self, line: AccessLine) {
        if self.lines.try_send(Message::Line(line)).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Blocks until the queued lines are written, but at most [`FLUSH_TIME_MAX`].
    pub fn flush(&self) {
        let (done, is_done) = sync_channel(1);
        if self.lines.try_send(Message::Flush(done)).is_ok() {
            // The reader of the log may be stuck. That must not keep the process alive.
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
