//! Sends traces to the collector, in batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use hyper::Uri;
use prost::Message as _;
use tokio::sync::mpsc;

use super::otlp::{self, ExportResponse};
use super::{Counts, Ended, Message, origin};
use crate::telemetry::Throttle;
use paperbourse_venue::client::Client;

/// The maximum number of traces in an export request.
const BATCH_MAX: usize = 256;

/// How long a trace waits for others to fill the batch.
const BATCH_TIME: Duration = Duration::from_millis(500);

/// The maximum size of a response, in bytes. It holds at most an error message.
const RESPONSE_BYTES_MAX: usize = 64 * 1024;

/// The minimum time between two log lines of the same kind.
const LINE_INTERVAL: Duration = Duration::from_mins(1);

/// The media type of export requests and responses.
const PROTOBUF: &str = "application/x-protobuf";

/// The task that sends traces, one request at a time. It never retries: holding traces until a
/// collector is back would cost more memory than the traces are worth.
pub struct Exporter {
    client: Client,
    endpoint: Uri,
    queue: mpsc::Receiver<Message>,
    counts: Arc<Counts>,
    failures: Throttle,
    overflows: Throttle,
}

impl Exporter {
    pub(super) fn new(
        client: Client,
        endpoint: Uri,
        queue: mpsc::Receiver<Message>,
        counts: Arc<Counts>,
    ) -> Self {
        let [failures, overflows] = [(); 2].map(|()| Throttle::new(LINE_INTERVAL));
        Self { client, endpoint, queue, counts, failures, overflows }
    }

    /// Sends traces as they end. Returns once all [`Traces`](super::Traces) are gone.
    pub async fn run(mut self) {
        while let Some(first) = self.queue.recv().await {
            let mut batch = Vec::new();
            let mut flushed = None;
            let mut next = Some(first);
            let deadline = tokio::time::Instant::now() + BATCH_TIME;
            while let Some(message) = next.take() {
                match message {
                    Message::Ended(ended) => batch.push(*ended),
                    Message::Flush(done) => flushed = Some(done),
                }
                if flushed.is_none() && batch.len() < BATCH_MAX {
                    let received = tokio::time::timeout_at(deadline, self.queue.recv());
                    next = received.await.ok().flatten();
                }
            }
            if !batch.is_empty() {
                self.export(batch).await;
            }
            self.log_overflow();
            if let Some(done) = flushed {
                // An error means that the caller has stopped waiting.
                let _ = done.send(());
            }
        }
    }

    async fn export(&self, batch: Vec<Ended>) {
        let span_count = batch.iter().map(Ended::span_count).sum();
        // Encoding thousands of spans takes milliseconds of processor time, and this thread also
        // follows the venue.
        let encoded = tokio::task::spawn_blocking(move || otlp::request(&batch).encode_to_vec());
        let bytes = encoded.await.expect("encoding does not panic");
        let address = self.endpoint.clone();
        let response = self.client.post(address, PROTOBUF, bytes, RESPONSE_BYTES_MAX).await;
        let (rejected, reason) = match response {
            Err(error) => (span_count, error.to_string()),
            // A successful response accepts the spans, even if its body cannot be decoded.
            Ok(bytes) => ExportResponse::decode(bytes).unwrap_or_default().rejected(span_count),
        };
        self.counts.exported.fetch_add(span_count - rejected, Ordering::Relaxed);
        if rejected == 0 {
            return;
        }
        let dropped = self.counts.dropped.fetch_add(rejected, Ordering::Relaxed) + rejected;
        if let Some(unlogged) = self.failures.pass(Instant::now()) {
            tracing::warn!(
                endpoint = origin(&self.endpoint),
                reason,
                dropped,
                unlogged,
                "the trace collector does not take all traces: their spans are dropped"
            );
        }
    }
    /// Logs that traces found the queue full. Logged here because the threads that end traces are
    /// busy answering requests.
    fn log_overflow(&self) {
        let turned_away = &self.counts.turned_away;
        if turned_away.load(Ordering::Relaxed) > 0 && self.overflows.pass(Instant::now()).is_some()
        {
            tracing::warn!(
                endpoint = origin(&self.endpoint),
                spans = turned_away.swap(0, Ordering::Relaxed),
                "traces end faster than the trace collector takes them: their spans are dropped"
            );
        }
    }
}
