//! Traces: the choice of requests to trace, and their export to an OpenTelemetry collector (OTLP
//! over HTTP).
//!
//! Requests never wait for the collector. While it is slow or down, traces are dropped and counted.

mod export;
mod otlp;
mod parent;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::Uri;
use parking_lot::Mutex;
use tokio::sync::{mpsc, oneshot};

pub use export::Exporter;
pub use parent::Parent;

use super::{Sample, SpanCounts};
use paperbourse_core::clock::Moment;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::bucket::{BucketRule, TokenBucket};
use paperbourse_exchange::trace::{Parts, Record, Stage, Timer};
use paperbourse_venue::client::Client;

/// The maximum number of traces queued for export. Each has at most
/// [`PARTS_MAX`](paperbourse_exchange::trace::PARTS_MAX) parts.
const QUEUE_MAX: usize = 4_096;

/// The rate limit on requests traced because of something the caller chose: a sampled
/// `traceparent`, or a request id that falls into the sample. Without it, a caller could have every
/// request traced. Requests whose id the server chose are limited by the sample alone.
const CALLERS_RULE: BucketRule = match BucketRule::per_second(100, 100) {
    Ok(rule) => rule,
    Err(_) => panic!("the rate is in range"),
};

/// How long shutdown waits for queued traces to be sent.
const FLUSH_TIME_MAX: Duration = Duration::from_secs(1);

/// Decides which requests to trace, and queues their traces for export.
#[derive(Debug)]
pub struct Traces {
    sample: Sample,
    /// The budget of requests that are traced because of something the caller chose.
    callers: Mutex<TokenBucket>,
    started: Instant,
    queue: mpsc::Sender<Message>,
    counts: Arc<Counts>,
}

/// Number of spans exported and dropped so far.
#[derive(Debug, Default)]
struct Counts {
    exported: AtomicU64,
    dropped: AtomicU64,
    /// The dropped spans that found the queue full and have not been logged yet.
    turned_away: AtomicU64,
}

/// A request being traced. Dropping it ends the trace and queues it for export.
#[derive(Debug)]
pub struct Trace {
    record: Arc<Record>,
    id: [u8; 16],
    span_id: u64,
    parent: Option<Parent>,
    began_at: Timestamp,
    asked: Asked,
    answered: Option<Answered>,
    response: Option<Timer>,
    traces: Arc<Traces>,
}

/// The description of a request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Asked {
    /// The method, or `_OTHER` if it is not a standard one.
    pub method: &'static str,
    /// The path of the operation, such as `/v1/orders/{order_id}`; `None` if no operation matched.
    pub route: Option<&'static str>,
    /// The HTTP version, such as `1.1`.
    pub version: &'static str,
    /// The request's id, as in `X-Request-Id`.
    pub request_id: String,
}

/// The description of an answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Answered {
    /// The HTTP status.
    pub status: u16,
    /// The error code in the response, if it is an error.
    pub error: Option<&'static str>,
    /// The id of the API key presented, if any.
    pub key_id: Option<u64>,
}

/// A completed trace.
#[derive(Debug)]
struct Ended {
    trace_id: [u8; 16],
    /// The id of the request's own span. The ids of its parts follow it.
    span_id: u64,
    parent: Option<Parent>,
    began_at: Timestamp,
    elapsed_ns: u64,
    asked: Asked,
    /// `None` if the connection ended before the request was answered.
    answered: Option<Answered>,
    parts: Parts,
}

#[derive(Debug)]
enum Message {
    Ended(Box<Ended>),
    /// Acknowledged once all traces queued before it have been sent or dropped.
    Flush(oneshot::Sender<()>),
}

impl Traces {
    /// Creates the traces for this collector, and the task that sends them.
    pub fn new(sample: Sample, client: Client, endpoint: Uri) -> (Arc<Self>, Exporter) {
        let (queue, received) = mpsc::channel(QUEUE_MAX);
        let counts = Arc::<Counts>::default();
        let callers = Mutex::new(TokenBucket::new(CALLERS_RULE));
        let exporter = Exporter::new(client, endpoint, received, counts.clone());
        (Arc::new(Self { sample, callers, started: Instant::now(), queue, counts }), exporter)
    }

    /// Starts the trace of a request received at `began`, or returns `None` if it is not traced.
    /// `parent` is the caller's `traceparent`, if any; if that is not sampled, neither is the
    /// request. `chosen` says whether the caller chose the request's id.
    pub fn begin(
        self: &Arc<Self>,
        parent: Option<Parent>,
        (request_id, chosen): (&[u8], bool),
        began: Instant,
        asked: impl FnOnce() -> Asked,
    ) -> Option<Box<Trace>> {
        let is_traced = match parent {
            Some(parent) if !parent.is_sampled => false,
            Some(_) if self.has_room_for_callers(began) => true,
            Some(_) => self.sample.has(request_id) && self.is_fair(chosen),
            None => {
                self.sample.has(request_id)
                    && (self.is_fair(chosen) || self.has_room_for_callers(began))
            }
        };
        is_traced.then(|| self.trace(parent, began, asked()))
    }

    #[cold]
    fn trace(self: &Arc<Self>, parent: Option<Parent>, began: Instant, asked: Asked) -> Box<Trace> {
        Box::new(Trace {
            record: Record::new(began),
            id: parent.map_or_else(random, |parent| parent.trace_id),
            // Not 0, which is invalid, and small enough that adding the number of a part cannot
            // overflow.
            span_id: u64::from_ne_bytes(random()) >> 1 | 1 << 62,
            parent,
            began_at: Moment::at(began).now,
            asked,
            answered: None,
            response: None,
            traces: self.clone(),
        })
    }

    /// Whether the caller had no influence on the sample's choice of this request.
    fn is_fair(&self, chosen: bool) -> bool {
        !chosen || self.sample.is_all()
    }

    fn has_room_for_callers(&self, now: Instant) -> bool {
        let elapsed_ns = now.saturating_duration_since(self.started).as_nanos();
        let now_ns = u64::try_from(elapsed_ns).unwrap_or(u64::MAX);
        self.callers.lock().draw(now_ns).is_admitted
    }

    /// Returns the number of spans exported and dropped so far.
    pub fn counts(&self) -> SpanCounts {
        SpanCounts {
            exported: self.counts.exported.load(Ordering::Relaxed),
            dropped: self.counts.dropped.load(Ordering::Relaxed),
        }
    }

    /// Waits until all queued traces are sent, but at most [`FLUSH_TIME_MAX`].
    pub async fn flush(&self) {
        let (done, is_done) = oneshot::channel();
        let flushed = async {
            if self.queue.send(Message::Flush(done)).await.is_ok() {
                // An error means that the exporter has ended, along with its runtime.
                let _ = is_done.await;
            }
        };
        if tokio::time::timeout(FLUSH_TIME_MAX, flushed).await.is_err() {
            tracing::warn!("the trace collector is too slow: the last traces were not sent");
        }
    }

    fn send(&self, ended: Box<Ended>) {
        let span_count = ended.span_count();
        self.counts.dropped.fetch_add(ended.parts.left_out.into(), Ordering::Relaxed);
        if self.queue.try_send(Message::Ended(ended)).is_err() {
            self.counts.dropped.fetch_add(span_count, Ordering::Relaxed);
            self.counts.turned_away.fetch_add(span_count, Ordering::Relaxed);
        }
    }
}

impl Trace {
    /// Returns the record to which the request's parts are added.
    pub fn record(&self) -> &Arc<Record> {
        &self.record
    }

    /// Sets the answer, and starts timing its transmission.
    pub fn answer(&mut self, answered: Answered) {
        self.answered = Some(answered);
        self.response = Some(self.record.start(Stage::Response));
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        drop(self.response.take());
        self.traces.send(Box::new(Ended {
            trace_id: self.id,
            span_id: self.span_id,
            parent: self.parent,
            began_at: self.began_at,
            elapsed_ns: self.record.elapsed_ns(),
            asked: std::mem::take(&mut self.asked),
            answered: self.answered,
            parts: self.record.take(),
        }));
    }
}

impl Ended {
    fn span_count(&self) -> u64 {
        1 + self.parts.parts.len() as u64
    }
}

/// Returns the collector's scheme and host, for the log. Leaves out the path, which may contain a
/// token.
pub fn origin(endpoint: &Uri) -> String {
    let authority = endpoint.authority().map_or("", |it| it.as_str());
    format!("{}://{authority}", endpoint.scheme_str().unwrap_or_default())
}

fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).expect("the system has random numbers");
    bytes
}
