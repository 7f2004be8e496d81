//! The readings that the metrics page is rendered from.

use std::time::Duration;

use super::counters::Metrics;
use super::process::Process;
use paperbourse_core::histogram::Histogram;
use paperbourse_store::journal::JournalMetrics;
use paperbourse_store::snapshot::SnapshotMetrics;
use paperbourse_venue::follow::status::LiveSnapshot;

/// All readings of a scrape.
pub struct Scrape<'a> {
    /// The counters, summed over all workers.
    pub workers: Metrics,
    /// The name of each operation in table order, then the name for requests that match none.
    pub operations: Vec<String>,
    /// Readings of the process.
    pub gauges: Gauges,
    /// Readings of the exchange; `None` until the server is ready, and on a standby.
    pub serving: Option<ServingGauges>,
    /// The cluster's log as this node sees it; `None` on a standalone server.
    pub log: Option<LogSample<'a>>,
    /// Memory in bytes, by part of the server.
    pub memory: Vec<(&'static str, usize)>,
    /// Resources of the process.
    pub process: Process,
    /// The journal's metrics; `None` if data is kept in memory.
    pub journal: Option<&'a JournalMetrics>,
    /// The snapshots' metrics; `None` if data is kept in memory.
    pub snapshots: Option<&'a SnapshotMetrics>,
    /// The state of the venue feed; `None` unless the venue is followed live.
    pub live: Option<LiveSnapshot>,
    /// Counts of spans; `None` if tracing is off.
    pub spans: Option<SpanCounts>,
}

/// Counts of spans of traced requests since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpanCounts {
    /// Spans that the collector accepted.
    pub exported: u64,
    /// Spans that never reached the collector, or that it rejected.
    pub dropped: u64,
}

/// A cluster's log, as one of its nodes sees it.
#[derive(Clone, Copy, Debug)]
pub struct LogSample<'a> {
    /// The name of the log.
    pub name: &'a str,
    /// Whether this node owns the log.
    pub is_owned: bool,
    /// The epoch of the newest block that this node has seen; `None` until it has read to the end.
    pub epoch: Option<u64>,
    /// The position of the newest record that this node has seen; `None` until it has read to the
    /// end.
    pub position: Option<u64>,
    /// The position of the newest record on this node's disk; `None` until its folder is open.
    pub copied_position: Option<u64>,
    /// When a broker last answered, in seconds since the Unix epoch; 0 before the first answer.
    pub answered_at_seconds: u64,
    /// Whether the log is halted: a block is missing or damaged at every broker.
    pub is_halted: bool,
    /// Time to append a block, in microseconds.
    pub append_us: &'a Histogram,
}

/// Readings of the process, available whether or not it serves requests.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gauges {
    /// Number of open connections.
    pub connections: usize,
    /// Bytes of request bodies being received or parsed, beyond the first 4 KiB of each.
    pub body_bytes: usize,
    /// Bytes of large responses that clients have not read yet.
    pub answer_bytes: usize,
    /// The number of the journal segment being written; `None` if data is kept in memory.
    pub journal_segment: Option<u64>,
    /// Whether the disk was full when the journal last needed space.
    pub is_journal_full: bool,
    /// Time since the server started.
    pub uptime: Duration,
    /// Number of jumps of the system clock since the start.
    pub clock_jumps: u64,
    /// The absolute difference between the system clock and the server's time after a jump, in
    /// seconds.
    pub clock_off_seconds: u64,
}

/// Readings of the exchange, available once the server is ready.
#[derive(Clone, Copy, Default, Debug)]
pub struct ServingGauges {
    /// Bytes queued for clients of WebSockets and price streams.
    pub unsent_bytes: usize,
    /// Number of subscriptions of WebSockets and price streams.
    pub subscriptions: usize,
    /// Number of open WebSockets.
    pub sockets: usize,
    /// Number of open WebSockets that stream executions.
    pub execution_sockets: usize,
    /// Number of open price streams.
    pub streams: usize,
    /// Number of exports being sent.
    pub exports: usize,
    /// Number of price frames that replaced an older frame before a slow client had read it.
    pub conflated_frames: u64,
    /// Number of price streams cut off because their clients read too slowly.
    pub streams_cut_off: u64,
    /// Number of fills sent to execution sockets.
    pub fill_frames: u64,
    /// Number of gap frames sent to execution sockets that asked for fills no longer kept.
    pub gap_frames: u64,
    /// Number of markets in the catalogue.
    pub markets: usize,
    /// Number of markets with a book that is fresh enough to fill orders.
    pub fresh_markets: usize,
    /// Number of resolved markets not settled yet.
    pub markets_unsettled: usize,
    /// Number of accounts.
    pub accounts: usize,
    /// Number of open orders.
    pub open_orders: usize,
    /// Number of open orders held for the venue's delay.
    pub delayed_orders: usize,
    /// Number of fills of resting orders since the start.
    pub resting_fills: u64,
    /// Number of books queued for the shards because they may fill open orders.
    pub crossings: usize,
    /// Number of books dropped because that queue was full. Their markets were matched later.
    pub crossings_overflowed: u64,
    /// Number of API keys, including expired and revoked ones that are still kept.
    pub keys: usize,
    /// Whether requests that need memory are being refused.
    pub is_memory_full: bool,
    /// The memory limit, in bytes; `None` if there is none.
    pub memory_limit_bytes: Option<u64>,
}
