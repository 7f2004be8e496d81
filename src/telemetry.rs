//! Log lines, and metrics for the admin listener.
//!
//! Counters are plain atomics, rendered on request. Each worker has its own set, so that workers do
//! not contend for cache lines.

mod log;

use std::fmt::{Display, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub use log::{OneLine, start_logging};
use parking_lot::Mutex;

use crate::histogram::Histogram;
use crate::journal::JournalMetrics;
use crate::snapshot::SnapshotMetrics;
use crate::venue::follow::delay::Delays;
use crate::venue::follow::freshness::Freshness;
use crate::venue::follow::status::LiveSnapshot;

/// The prefix of every metric's name.
const PREFIX: &str = "paperbourse_";

/// The counters of one worker since the start.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct Metrics {
    /// Responses by the first digit of their status, 1 to 5.
    responses: [Counter; 5],
    /// Orders filled when they were placed.
    pub orders_filled: Counter,
    /// Orders that rested when they were placed.
    pub orders_rested: Counter,
    /// Orders that had to fill at once and filled nothing.
    pub orders_killed: Counter,
    /// Open orders cancelled by their accounts.
    pub orders_cancelled: Counter,
    /// Orders sent again and answered with their first result.
    pub orders_replayed: Counter,
    /// Orders rejected by a rule.
    pub orders_rejected: Counter,
    /// Comments added.
    pub comments_added: Counter,
    /// Requests rejected by a rate limit.
    pub rate_limited: Counter,
    /// Connections refused by a connection limit.
    pub connections_refused: Counter,
}

/// Lets one event per interval through to the log, and counts the others.
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
    /// A throttle that has seen no event.
    pub fn new(interval: Duration) -> Self {
        Self { interval, state: Mutex::default() }
    }

    /// Whether to log the event; if so, returns how many were suppressed since the last one.
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
    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// The current count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, other: &Self) {
        self.0.fetch_add(other.get(), Ordering::Relaxed);
    }
}

/// Values read at the time of the scrape.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gauges {
    /// Open connections.
    pub connections: usize,
    /// Bytes of request bodies that are being received or parsed, beyond the first 4 KiB of each.
    pub body_bytes: usize,
    /// Open sockets.
    pub sockets: usize,
    /// Those of them that stream executions.
    pub execution_sockets: usize,
    /// Open price streams.
    pub streams: usize,
    /// Fills sent to execution sockets.
    pub fill_frames: u64,
    /// Gaps sent to execution sockets: fills that they asked for are no longer kept.
    pub gap_frames: u64,
    /// Known markets.
    pub markets: usize,
    /// Resolved markets that are not settled yet.
    pub markets_unsettled: usize,
    /// Open orders.
    pub open_orders: usize,
    /// Those of them that wait for the venue's delay.
    pub held_orders: usize,
    /// Fills of open orders since the start.
    pub resting_fills: u64,
    /// Books that may fill open orders and wait for the shards.
    pub crossings: usize,
    /// Books that found no room among those; their markets were looked at later.
    pub crossings_overflowed: u64,
    /// API keys, including ended ones that are kept.
    pub keys: usize,
    /// Seconds since the start.
    pub uptime_seconds: u64,
    /// Jumps of the system clock since the start.
    pub clock_jumps: u64,
    /// How far the system clock is from the server's time after a jump, in seconds, in either
    /// direction.
    pub clock_off_seconds: u64,
}

impl Metrics {
    /// Counts a response.
    pub fn responded(&self, status: u16) {
        if let Some(class) = self.responses.get(usize::from(status / 100).wrapping_sub(1)) {
            class.increment();
        }
    }

    /// The sum of several workers' counters.
    pub fn sum<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let sum = Self::default();
        for Self {
            responses,
            orders_filled,
            orders_rested,
            orders_killed,
            orders_cancelled,
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
            sum.orders_rested.add(orders_rested);
            sum.orders_killed.add(orders_killed);
            sum.orders_cancelled.add(orders_cancelled);
            sum.orders_replayed.add(orders_replayed);
            sum.orders_rejected.add(orders_rejected);
            sum.comments_added.add(comments_added);
            sum.rate_limited.add(rate_limited);
            sum.connections_refused.add(connections_refused);
        }
        sum
    }

    /// All metrics in the Prometheus text format.
    pub fn render(
        &self,
        gauges: Gauges,
        journal: Option<&JournalMetrics>,
        snapshots: Option<&SnapshotMetrics>,
        live: Option<&LiveSnapshot>,
    ) -> String {
        let mut out = Page(String::with_capacity(8192));
        out.head("http_responses_total", "counter", "HTTP responses by status class.");
        for (class, count) in (1..).zip(&self.responses) {
            out.sample("http_responses_total", &format!("{{class=\"{class}xx\"}}"), count.get());
        }
        for (name, help, counter) in [
            ("orders_filled_total", "Orders filled when they were placed.", &self.orders_filled),
            (
                "orders_rested_total",
                "Orders that rested when they were placed.",
                &self.orders_rested,
            ),
            (
                "orders_killed_total",
                "Orders that had to fill at once and filled nothing.",
                &self.orders_killed,
            ),
            (
                "orders_cancelled_total",
                "Open orders cancelled by their accounts.",
                &self.orders_cancelled,
            ),
            (
                "orders_replayed_total",
                "Orders sent again and answered with their first result.",
                &self.orders_replayed,
            ),
            ("orders_rejected_total", "Orders rejected by a rule.", &self.orders_rejected),
            ("comments_added_total", "Comments added to orders.", &self.comments_added),
            (
                "rate_limited_requests_total",
                "Requests rejected by a rate limit.",
                &self.rate_limited,
            ),
            (
                "connections_refused_total",
                "Connections refused by a connection limit.",
                &self.connections_refused,
            ),
        ] {
            out.value(name, "counter", help, counter.get());
        }
        out.gauges(&gauges);
        if let Some(journal) = journal {
            for (name, help, histogram, unit) in [
                (
                    "journal_flush_seconds",
                    "Duration of a journal flush: write and sync.",
                    &journal.flush_us,
                    1e6,
                ),
                (
                    "journal_flush_records",
                    "Records per journal flush.",
                    &journal.batch_records,
                    1.0,
                ),
                ("journal_flush_bytes", "Bytes per journal flush.", &journal.batch_bytes, 1.0),
            ] {
                out.histogram(name, help, histogram, unit);
            }
            out.head("journal_unflushed_seconds", "gauge", "Age of the oldest unflushed record.");
            let age = journal.unflushed_age().as_secs_f64();
            out.sample("journal_unflushed_seconds", "", age);
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

/// A page in the Prometheus text format. Names are given without their common prefix.
struct Page(String);

impl Page {
    fn gauges(&mut self, gauges: &Gauges) {
        for (name, help, value) in [
            ("execution_fills_total", "Fills sent to execution sockets.", gauges.fill_frames),
            (
                "execution_gaps_total",
                "Times that an execution socket had missed fills that are no longer kept.",
                gauges.gap_frames,
            ),
            ("system_clock_jumps_total", "Jumps of the system clock.", gauges.clock_jumps),
            ("resting_fills_total", "Fills of open orders.", gauges.resting_fills),
            (
                "crossings_overflowed_total",
                "Books that may fill open orders and found the queue full.",
                gauges.crossings_overflowed,
            ),
        ] {
            self.value(name, "counter", help, value);
        }
        for (name, help, value) in [
            ("connections", "Open client connections.", gauges.connections as u64),
            (
                "body_bytes",
                "Memory for request bodies in progress, without the first 4 KiB of each.",
                gauges.body_bytes as u64,
            ),
            ("websocket_connections", "Open client WebSockets.", gauges.sockets as u64),
            (
                "execution_websocket_connections",
                "Open client WebSockets that stream executions.",
                gauges.execution_sockets as u64,
            ),
            ("price_streams", "Open streams of server-sent prices.", gauges.streams as u64),
            ("markets", "Markets in the catalogue.", gauges.markets as u64),
            (
                "unsettled_markets",
                "Resolved markets with positions left to pay.",
                gauges.markets_unsettled as u64,
            ),
            ("open_orders", "Open orders.", gauges.open_orders as u64),
            (
                "held_orders",
                "Open orders that wait as long as the venue delays them.",
                gauges.held_orders as u64,
            ),
            (
                "crossings_waiting",
                "Books that may fill open orders and have not reached the shards.",
                gauges.crossings as u64,
            ),
            ("api_keys", "API keys, ended ones that are kept included.", gauges.keys as u64),
            ("uptime_seconds", "Time since the server started.", gauges.uptime_seconds),
            (
                "system_clock_offset_seconds",
                "Difference between the system clock and the server's time after a clock jump.",
                gauges.clock_off_seconds,
            ),
        ] {
            self.value(name, "gauge", help, value);
        }
    }

    fn head(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP {PREFIX}{name} {help}\n# TYPE {PREFIX}{name} {kind}");
    }

    /// Writes one sample; `labels` includes the braces, or is empty.
    fn sample(&mut self, name: &str, labels: &str, value: impl Display) {
        let _ = writeln!(self.0, "{PREFIX}{name}{labels} {value}");
    }

    fn value(&mut self, name: &str, kind: &str, help: &str, value: impl Display) {
        self.head(name, kind, help);
        self.sample(name, "", value);
    }

    #[expect(clippy::cast_precision_loss, reason = "only the displayed value is rounded")]
    fn snapshots(&mut self, snapshots: &SnapshotMetrics) {
        let SnapshotMetrics { made, failed, covered_segment, made_at_seconds, elapsed_ms, bytes } =
            snapshots;
        let get = |value: &AtomicU64| value.load(Ordering::Relaxed);
        let made_at = made_at_seconds.load(Ordering::Relaxed).unsigned_abs();
        for (name, kind, help, value) in [
            ("snapshots_total", "counter", "Snapshots taken.", get(made)),
            ("snapshot_failures_total", "counter", "Snapshots that failed.", get(failed)),
            (
                "snapshot_segment",
                "gauge",
                "Last journal segment that the newest snapshot covers.",
                get(covered_segment),
            ),
            (
                "snapshot_timestamp_seconds",
                "gauge",
                "Unix time of the newest snapshot; 0 if there was none since the start.",
                made_at,
            ),
            ("snapshot_size_bytes", "gauge", "Bytes written for the newest snapshot.", get(bytes)),
        ] {
            self.value(name, kind, help, value);
        }
        let help = "Time that the newest snapshot took.";
        self.value("snapshot_duration_seconds", "gauge", help, get(elapsed_ms) as f64 / 1e3);
    }

    fn venue(&mut self, live: &LiveSnapshot) {
        for (name, help, counts) in [
            ("venue_tokens", "Followed tokens by freshness of their books.", live.tokens),
            ("venue_sockets", "Sockets to the venue by freshness.", live.sockets),
        ] {
            self.head(name, "gauge", help);
            for (state, count) in Freshness::ALL.iter().zip(counts) {
                self.sample(name, &format!("{{state=\"{}\"}}", state.as_str()), count);
            }
        }
        let received_at = live.frame_received_at.map_or(0, |at| at.seconds().unsigned_abs());
        let help = "Unix time of the venue's newest frame; 0 before the first.";
        self.value("venue_last_frame_timestamp_seconds", "gauge", help, received_at);
        let feed = &live.feed;
        for (name, help, value) in [
            ("venue_frames_total", "Frames received from the venue.", live.frames),
            (
                "venue_unknown_messages_total",
                "Venue messages of an unknown kind, which were skipped.",
                live.unknown_messages,
            ),
            (
                "venue_late_messages_total",
                "Venue messages that arrived too late.",
                live.late_messages,
            ),
            (
                "venue_future_messages_total",
                "Venue messages with a timestamp in the future.",
                live.ahead_messages,
            ),
            (
                "venue_connections_lost_total",
                "Connections to the venue that were lost or refused.",
                live.connections_lost,
            ),
            (
                "venue_books_requested_total",
                "Books requested from the venue's REST API.",
                live.books_requested,
            ),
            (
                "venue_books_diverged_total",
                "Requested books that differed from the one kept here.",
                live.books_diverged,
            ),
            (
                "venue_book_hashes_matched_total",
                "Book hashes of the venue that matched the book kept here.",
                feed.hashes_verified,
            ),
            (
                "venue_book_hashes_mismatched_total",
                "Book hashes of the venue that did not match the book kept here.",
                feed.hashes_mismatched,
            ),
        ] {
            self.value(name, "counter", help, value);
        }
        let help = "Time from reading a frame of the venue to publishing its books.";
        self.delays("venue_frame_delay_seconds", help, &live.delays);
    }

    #[expect(clippy::cast_precision_loss, reason = "only the displayed value is rounded")]
    fn delays(&mut self, name: &str, help: &str, delays: &Delays) {
        let buckets = delays.cumulative().map(|(bound_ns, count)| (bound_ns as f64 / 1e9, count));
        self.buckets(name, help, buckets, delays.sum().as_secs_f64(), delays.count());
    }

    /// A bucket of the journal's histograms holds the values up to a power of two; the last one is
    /// unbounded.
    #[expect(clippy::cast_precision_loss, reason = "only the displayed value is rounded")]
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

    /// Writes a histogram; each bucket gives the number of values up to its bound.
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
            let _ = writeln!(self.0, "{PREFIX}{name}_bucket{{le=\"{bound}\"}} {total}");
        }
        let _ = writeln!(self.0, "{PREFIX}{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(self.0, "{PREFIX}{name}_sum {sum}\n{PREFIX}{name}_count {count}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_throttle_reports_how_many_events_it_suppressed() {
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
            "paperbourse_http_responses_total{class=\"2xx\"} 3",
            "paperbourse_http_responses_total{class=\"4xx\"} 1",
            "paperbourse_orders_filled_total 2",
            "paperbourse_websocket_connections 3",
            "paperbourse_system_clock_jumps_total 2",
            "paperbourse_system_clock_offset_seconds 3600",
            "paperbourse_journal_flush_seconds_bucket{le=\"0.000064\"} 0",
            "paperbourse_journal_flush_seconds_bucket{le=\"0.000128\"} 1",
            "paperbourse_journal_flush_seconds_bucket{le=\"+Inf\"} 1",
            "paperbourse_journal_flush_seconds_sum 0.0001",
            "paperbourse_journal_flush_seconds_count 1",
            "paperbourse_journal_unflushed_seconds 0",
            "paperbourse_snapshot_segment 7",
            "paperbourse_snapshot_failures_total 0",
            "paperbourse_venue_tokens{state=\"live\"} 4",
            "paperbourse_venue_sockets{state=\"stale\"} 0",
            "paperbourse_venue_frames_total 9",
            "paperbourse_venue_last_frame_timestamp_seconds 0",
            "paperbourse_venue_frame_delay_seconds_bucket{le=\"0.0000125\"} 0",
            "paperbourse_venue_frame_delay_seconds_bucket{le=\"+Inf\"} 0",
            "paperbourse_venue_frame_delay_seconds_sum 0",
        ] {
            assert!(page.lines().any(|other| other == line), "no {line:?} in\n{page}");
        }
        for declared in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
            let (name, kind) = declared.split_once(' ').unwrap();
            assert!(name.starts_with(PREFIX), "{name}");
            assert_eq!(name.ends_with("_total"), kind == "counter", "{name} is a {kind}");
        }
    }
}
