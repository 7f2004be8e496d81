//! What the server tells about itself: log lines, and counters for the admin listener.
//!
//! Counters are plain atomics that handlers raise; they are rendered when somebody asks. Each
//! worker has its own, so that workers do not wait for each other's cache lines.

mod log;

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use log::{OneLine, start_logging};
use parking_lot::Mutex;

use crate::journal::{Histogram, JournalMetrics};
use crate::snapshot::SnapshotMetrics;
use crate::venue::polymarket::live::delay::Delays;
use crate::venue::polymarket::live::freshness::Freshness;
use crate::venue::polymarket::live::status::LiveSnapshot;

/// What one worker has counted since the start.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct Metrics {
    /// Answers by the first digit of their status, 1 to 5.
    responses: [Counter; 5],
    /// Orders that filled.
    pub orders_filled: Counter,
    /// Answers that repeated an earlier order's.
    pub orders_replayed: Counter,
    /// Orders that were refused by a business rule.
    pub orders_rejected: Counter,
    /// Comments that were added.
    pub comments_added: Counter,
    /// Requests that were over a limit.
    pub rate_limited: Counter,
    /// Connections that were over the cap.
    pub connections_refused: Counter,
}

/// Lets an event through to the log once in an interval, and counts the others.
#[derive(Debug)]
pub struct Throttle {
    interval: Duration,
    state: Mutex<ThrottleState>,
}

#[derive(Default, Debug)]
struct ThrottleState {
    passed_at: Option<Instant>,
    unlogged: u64,
}

impl Throttle {
    /// Nothing has happened yet.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// Whether the event is to be logged; if so, how many were not since the last that was.
    pub fn pass(&self, now: Instant) -> Option<u64> {
        let mut state = self.state.lock();
        let is_due = state.passed_at.is_none_or(|passed_at| now - passed_at >= self.interval);
        if is_due {
            state.passed_at = Some(now);
            return Some(std::mem::take(&mut state.unlogged));
        }
        state.unlogged += 1;
        None
    }
}

/// A number that only rises.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// One more.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// How many.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, other: &Self) {
        self.0.fetch_add(other.get(), Ordering::Relaxed);
    }
}

/// What is so at the moment of asking.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gauges {
    /// Open connections.
    pub connections: usize,
    /// Open sockets.
    pub sockets: usize,
    /// Known markets.
    pub markets: usize,
    /// Those of them that are resolved and not settled yet.
    pub markets_unsettled: usize,
    /// Known keys.
    pub keys: usize,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// How often the system clock has jumped since the start.
    pub clock_jumps: u64,
    /// Seconds between the system clock and the server's time since a jump, either way.
    pub clock_off_seconds: u64,
}

impl Metrics {
    /// Counts an answer.
    pub fn responded(&self, status: u16) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(1)) {
            class.increment();
        }
    }

    /// What all of them have counted together.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let sum = Self::default();
        for Self {
            responses,
            orders_filled,
            orders_replayed,
            orders_rejected,
            comments_added,
            rate_limited,
            connections_refused,
        } in parts
        {
            for (sum, part) in sum.responses.iter().zip(responses) {
                sum.add(part);
            }
            sum.orders_filled.add(orders_filled);
            sum.orders_replayed.add(orders_replayed);
            sum.orders_rejected.add(orders_rejected);
            sum.comments_added.add(comments_added);
            sum.rate_limited.add(rate_limited);
            sum.connections_refused.add(connections_refused);
        }
        sum
    }

    /// Everything in the text format of Prometheus.
    pub fn render(
        &self,
        gauges: Gauges,
        journal: Option<&JournalMetrics>,
        snapshots: Option<&SnapshotMetrics>,
        live: Option<&LiveSnapshot>,
    ) -> String {
        let mut out = Page(String::with_capacity(4096));
        out.head("http_responses_total", "counter", "Answers by class of status.");
        for (class, count) in (1..).zip(&self.responses) {
            let count = count.get();
            let _ = writeln!(out.0, "http_responses_total{{class=\"{class}xx\"}} {count}");
        }
        for (name, help, counter) in [
            ("orders_filled_total", "Orders that filled.", &self.orders_filled),
            ("orders_replayed_total", "Answers that repeated one.", &self.orders_replayed),
            ("orders_rejected_total", "Orders that a rule refused.", &self.orders_rejected),
            ("comments_added_total", "Comments that were added.", &self.comments_added),
            ("rate_limited_total", "Requests over a limit.", &self.rate_limited),
            ("connections_refused_total", "Connections over the cap.", &self.connections_refused),
        ] {
            out.value(name, "counter", help, counter.get());
        }
        let help = "How often the system clock has jumped.";
        out.value("system_clock_jumps_total", "counter", help, gauges.clock_jumps);
        for (name, help, value) in [
            ("http_connections", "Open connections.", gauges.connections as u64),
            ("active_websocket_connections", "Open sockets.", gauges.sockets as u64),
            ("markets", "Known markets.", gauges.markets as u64),
            (
                "markets_unsettled",
                "Resolved markets in which something may be left to pay.",
                gauges.markets_unsettled as u64,
            ),
            ("api_keys", "Known keys.", gauges.keys as u64),
            ("uptime_seconds", "Seconds since the start.", gauges.uptime_seconds),
            (
                "system_clock_off_seconds",
                "Seconds between the system clock and the server's time since a jump, either way.",
                gauges.clock_off_seconds,
            ),
        ] {
            out.value(name, "gauge", help, value);
        }
        if let Some(journal) = journal {
            out.histogram(
                "journal_flush_seconds",
                "A flush, write and sync.",
                &journal.flush_us,
                1e6,
            );
            out.histogram("journal_batch_records", "Records a flush.", &journal.batch_records, 1.0);
            out.histogram("journal_batch_bytes", "Bytes a flush.", &journal.batch_bytes, 1.0);
            let age = journal.unflushed_age().as_secs_f64();
            out.head("journal_unflushed_seconds", "gauge", "Age of the oldest unflushed record.");
            let _ = writeln!(out.0, "journal_unflushed_seconds {age}");
        }
        if let Some(snapshots) = snapshots {
            out.snapshots(snapshots);
        }
        if let Some(live) = live {
            out.venue(live);
        }
        out.0
    }
}

struct Page(String);

impl Page {
    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {name} {help}\n# TYPE {name} {kind}");
    }

    fn value(&mut self, name: &str, kind: &str, help: &str, value: u64) {
        self.head(name, kind, help);
        let _ = writeln!(self.0, "{name} {value}");
    }

    fn snapshots(&mut self, snapshots: &SnapshotMetrics) {
        let SnapshotMetrics { made, failed, covered_segment, made_at_seconds, elapsed_ms, bytes } =
            snapshots;
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let made_at = made_at_seconds.load(Ordering::Relaxed).unsigned_abs();
        for (name, kind, help, value) in [
            ("snapshots_total", "counter", "Snapshots that were made.", get(made)),
            ("snapshots_failed_total", "counter", "Snapshots that came to nothing.", get(failed)),
            ("snapshot_segment", "gauge", "The last segment it covers.", get(covered_segment)),
            ("snapshot_time_seconds", "gauge", "When it was made; 0 before this start.", made_at),
            ("snapshot_elapsed_ms", "gauge", "How long it took.", get(elapsed_ms)),
            ("snapshot_bytes", "gauge", "What was written for it.", get(bytes)),
        ] {
            self.value(name, kind, help, value);
        }
    }

    fn venue(&mut self, live: &LiveSnapshot) {
        for (name, help, counts) in [
            ("venue_tokens", "Followed tokens by how far their books can be trusted.", live.tokens),
            ("venue_sockets", "Sockets to the venue by how far they can be trusted.", live.sockets),
        ] {
            self.head(name, "gauge", help);
            for (state, count) in Freshness::ALL.iter().zip(counts) {
                let _ = writeln!(self.0, "{name}{{state=\"{}\"}} {count}", state.as_str());
            }
        }
        let received_at = live.frame_received_at.map_or(0, |at| at.seconds().unsigned_abs());
        let feed = &live.feed;
        for (name, kind, help, value) in [
            ("venue_frames_total", "counter", "Frames of the venue.", live.frames),
            (
                "venue_frame_time_seconds",
                "gauge",
                "When the newest came; 0 for never.",
                received_at,
            ),
            ("venue_messages_unknown_total", "counter", "Left out.", live.unknown_messages),
            ("venue_messages_late_total", "counter", "Told too late.", live.late_messages),
            ("venue_messages_ahead_total", "counter", "Of a time to come.", live.ahead_messages),
            ("venue_connections_lost_total", "counter", "Lost or refused.", live.connections_lost),
            ("venue_books_asked_total", "counter", "Books that were asked for.", live.books_asked),
            ("venue_books_diverged_total", "counter", "That differed.", live.books_diverged),
            ("venue_hashes_verified_total", "counter", "Equal to ours.", feed.hashes_verified),
            ("venue_hashes_mismatched_total", "counter", "Unlike ours.", feed.hashes_mismatched),
        ] {
            self.value(name, kind, help, value);
        }
        self.delays("venue_frame_delay_seconds", "From a read frame to books.", &live.delays);
    }

    #[expect(clippy::cast_precision_loss, reason = "what is shown is rounded, what is kept is not")]
    fn delays(&mut self, name: &str, help: &str, delays: &Delays) {
        let buckets = delays.up_to().map(|(bound_ns, count)| (bound_ns as f64 / 1e9, count));
        self.buckets(name, help, buckets, delays.sum().as_secs_f64(), delays.count());
    }

    /// A bucket of the journal's histograms holds what is below a power of two; the last one has no
    /// bound.
    #[expect(clippy::cast_precision_loss, reason = "what is shown is rounded, what is kept is not")]
    fn histogram(&mut self, name: &str, help: &str, histogram: &Histogram, unit: f64) {
        let [bounded @ .., last] = histogram.buckets();
        let mut total = 0;
        let buckets = bounded.iter().enumerate().map(|(exponent, count)| {
            total += count;
            ((1_u64 << exponent) as f64 / unit, total)
        });
        let count = bounded.iter().sum::<u64>() + last;
        self.buckets(name, help, buckets, histogram.sum() as f64 / unit, count);
    }

    /// A histogram: for each bound, how much there was up to it.
    fn buckets(
        &mut self,
        name: &str,
        help: &str,
        buckets: impl Iterator<Item = (f64, u64)>,
        sum: f64,
        count: u64,
    ) {
        self.head(name, "histogram", help);
        for (bound, total) in buckets {
            let _ = writeln!(self.0, "{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(self.0, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(self.0, "{name}_sum {sum}\n{name}_count {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_tells_what_it_held_back() {
        let throttle = Throttle::new(Duration::from_secs(1));
        let start = Instant::now();
        let pass = |ms| throttle.pass(start + Duration::from_millis(ms));
        let passed = [0, 1, 999, 1_000, 1_500, 3_000].map(pass);
        assert_eq!(passed, [Some(0), None, None, Some(2), None, Some(1)]);
    }

    #[test]
    fn the_page_is_prometheus_text() {
        let metrics = Metrics::default();
        metrics.responded(200);
        metrics.responded(201);
        metrics.responded(404);
        metrics.responded(999);
        metrics.orders_filled.increment();
        let other = Metrics::default();
        other.responded(200);
        other.orders_filled.increment();
        let metrics = Metrics::sum([&metrics, &other]);
        let journal = JournalMetrics::default();
        journal.flush_us.record(100);
        let snapshots = SnapshotMetrics::default();
        snapshots.covered_segment.store(7, Ordering::Relaxed);
        let live = LiveSnapshot { tokens: [1, 4, 0, 0, 0], frames: 9, ..LiveSnapshot::default() };
        let gauges =
            Gauges { sockets: 3, clock_jumps: 2, clock_off_seconds: 3_600, ..Gauges::default() };
        let page = metrics.render(gauges, Some(&journal), Some(&snapshots), Some(&live));
        for line in [
            "http_responses_total{class=\"2xx\"} 3",
            "http_responses_total{class=\"4xx\"} 1",
            "orders_filled_total 2",
            "active_websocket_connections 3",
            "system_clock_jumps_total 2",
            "system_clock_off_seconds 3600",
            "journal_flush_seconds_bucket{le=\"0.000064\"} 0",
            "journal_flush_seconds_bucket{le=\"0.000128\"} 1",
            "journal_flush_seconds_bucket{le=\"+Inf\"} 1",
            "journal_flush_seconds_sum 0.0001",
            "journal_flush_seconds_count 1",
            "journal_unflushed_seconds 0",
            "snapshot_segment 7",
            "snapshots_failed_total 0",
            "venue_tokens{state=\"live\"} 4",
            "venue_sockets{state=\"stale\"} 0",
            "venue_frames_total 9",
            "venue_frame_time_seconds 0",
            "venue_frame_delay_seconds_bucket{le=\"0.0000125\"} 0",
            "venue_frame_delay_seconds_bucket{le=\"+Inf\"} 0",
            "venue_frame_delay_seconds_sum 0",
        ] {
            assert!(page.lines().any(|other| other == line), "no {line:?} in\n{page}");
        }
    }
}
