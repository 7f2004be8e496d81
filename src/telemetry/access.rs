//! The access log: a line for each request, or for some of them, with no header, key or body in it.
//!
//! A thread of its own writes the lines. A request never waits for it: while the reader of the log
//! is too slow, lines are dropped and counted.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use std::{io, thread};

/// How many lines may wait to be written.
const LINES_MAX: usize = 8_192;

/// How long the end of the process may wait for lines that are not written yet.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// Which requests have a line.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum AccessSample {
    /// None.
    #[default]
    Off,
    /// Those whose id has a CRC-32C that is a multiple of this: about one in so many, and the same
    /// ones on every server that a request passes.
    OneIn(NonZeroU32),
}

/// Text that is not an [`AccessSample`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("use off, all, or 1/N for about one request in N")]
pub struct AccessSampleError;

/// Takes lines from all workers.
#[derive(Debug)]
pub struct AccessLog {
    one_in: NonZeroU32,
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

impl FromStr for AccessSample {
    type Err = AccessSampleError;

    fn from_str(text: &str) -> Result<Self, AccessSampleError> {
        match text {
            "off" => Ok(Self::Off),
            "all" => Ok(Self::OneIn(NonZeroU32::MIN)),
            _ => {
                let count = text.strip_prefix("1/").and_then(|count| count.parse().ok());
                count.map(Self::OneIn).ok_or(AccessSampleError)
            }
        }
    }
}

/// The format that [`AccessSample::from_str`] reads.
impl fmt::Display for AccessSample {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => formatter.write_str("off"),
            Self::OneIn(NonZeroU32::MIN) => formatter.write_str("all"),
            Self::OneIn(count) => write!(formatter, "1/{count}"),
        }
    }
}

impl AccessLog {
    /// Starts the thread that writes; `None` if there is nothing to write.
    pub fn start(sample: AccessSample) -> io::Result<Option<Self>> {
        let AccessSample::OneIn(one_in) = sample else { return Ok(None) };
        let (lines, received) = sync_channel(LINES_MAX);
        let dropped = Arc::new(AtomicU64::new(0));
        let log = Self { one_in, lines, dropped: dropped.clone() };
        thread::Builder::new()
            .name("access-log".to_owned())
            .spawn(move || write(&received, &dropped))?;
        Ok(Some(log))
    }

    /// Whether the request with this id has a line.
    pub fn has_line(&self, request_id: &str) -> bool {
        crc32c::crc32c(request_id.as_bytes()).is_multiple_of(self.one_in.get())
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
    fn a_sample_is_off_all_or_a_share() {
        let one_in = |count| AccessSample::OneIn(NonZeroU32::new(count).unwrap());
        for (text, expected) in [
            ("off", Ok(AccessSample::Off)),
            ("all", Ok(one_in(1))),
            ("1/1", Ok(one_in(1))),
            ("1/100", Ok(one_in(100))),
            ("1/0", Err(AccessSampleError)),
            ("1/", Err(AccessSampleError)),
            ("2/3", Err(AccessSampleError)),
            ("1/-5", Err(AccessSampleError)),
            ("0.01", Err(AccessSampleError)),
            ("on", Err(AccessSampleError)),
            ("", Err(AccessSampleError)),
        ] {
            assert_eq!(text.parse(), expected, "{text}");
            if let Ok(sample) = expected {
                assert_eq!(sample.to_string().parse(), Ok(sample), "{text}");
            }
        }
    }

    #[test]
    fn a_sample_has_its_share_and_always_the_same_requests() {
        let log = |text: &str| AccessLog::start(text.parse().unwrap()).unwrap();
        assert!(log("off").is_none());
        let (all, some) = (log("all").unwrap(), log("1/10").unwrap());
        let ids = (0..10_000).map(|number| format!("7f3a-{number}"));
        let sampled: Vec<String> = ids.filter(|id| some.has_line(id)).collect();
        assert!((800..1_200).contains(&sampled.len()), "{}", sampled.len());
        let again = log("1/10").unwrap();
        assert!(sampled.iter().all(|id| all.has_line(id) && again.has_line(id)));
    }

    #[test]
    fn a_line_that_finds_no_room_is_dropped_at_once() {
        let (lines, received) = sync_channel(2);
        let log = AccessLog { one_in: NonZeroU32::MIN, lines, dropped: Arc::default() };
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
