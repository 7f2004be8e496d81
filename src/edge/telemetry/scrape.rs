//! The readings from which a page of metrics is rendered.

use std::time::Duration;

use super::counters::Metrics;
use super::process::Process;
use paperbourse_core::histogram::Histogram;
use paperbourse_store::journal::JournalMetrics;
use paperbourse_store::snapshot::SnapshotMetrics;
use paperbourse_venue::follow::status::LiveSnapshot;

/// All readings of one page.
pub struct Scrape<'a> {
    /// The sum of all workers.
    pub workers: Metrics,
    /// The name of each operation, in the order of the table, and of what matches none.
    pub operations: Vec<String>,
    /// Readings of the process.
    pub gauges: Gauges,
    /// Readings of the exchange; `None` until the server is ready, so on a standby too.
    pub serving: Option<ServingGauges>,
    /// The log of the cluster; `None` on a single server.
    pub log: Option<LogSample<'a>>,
    /// Bytes of memory by part.
    pub memory: Vec<(&'static str, usize)>,
    /// The process.
    pub process: Process,
    /// The journal; `None` in memory.
    pub journal: Option<&'a JournalMetrics>,
    /// The snapshots; `None` if data is kept in memory.
    pub snapshots: Option<&'a SnapshotMetrics>,
    /// The venue; `None` unless it is followed live.
    pub live: Option<LiveSnapshot>,
    /// What became of the spans; `None` if nothing is traced.
    pub spans: Option<SpanCounts>,
}

/// What became of the spans of traced requests since the start.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct SpanCounts {
    /// Spans that the collector accepted.
    pub exported: u64,
    /// Spans that never reached the collector, or that it rejected.
    pub dropped: u64,
}

/// The log of a cluster, as one of its nodes sees it.
#[derive(Clone, Copy, Debug)]
pub struct LogSample<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether this node owns it.
    pub is_owned: bool,
    /// The epoch of the newest block that this node has seen; `None` until it has read the log.
    pub epoch: Option<u64>,
    /// The position of the newest record that this node has seen; `None` until then too.
    pub position: Option<u64>,
    /// The position of the newest record on this node's disk; `None` until its folder is open.
    pub copied_position: Option<u64>,
    /// When a broker last answered, in seconds since 1970; 0 before the first answer.
    pub answered_at_seconds: u64,
    /// Whether reading has halted: a block is missing or damaged at every broker.
    pub is_halted: bool,
    /// Time to append a block, in microseconds.
    pub append_us: &'a Histogram,
}

/// Readings of the process, whether it serves or not.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gauges {
    /// Open connections.
    pub connections: usize,
    /// Bytes of request bodies that are being received or parsed, beyond the first 4 KiB of each.
    pub body_bytes: usize,
    /// Bytes of large answers that clients have not read yet.
    pub answer_bytes: usize,
    /// The segment of the journal that is being written; `None` in memory.
    pub journal_segment: Option<u64>,
    /// Whether the disk was full when the journal last needed space.
    pub is_journal_full: bool,
    /// Time since the start.
    pub uptime: Duration,
    /// Jumps of the system clock since the start.
    pub clock_jumps: u64,
    /// How far the system clock is from the server's time after a jump, in seconds, in either
    /// direction.
    pub clock_off_seconds: u64,
}

/// Readings of the exchange.
#[derive(Clone, Copy, Default, Debug)]
pub struct ServingGauges {
    /// Bytes queued for clients of sockets and price streams.
    pub unsent_bytes: usize,
    /// Subscriptions of sockets and price streams.
    pub subscriptions: usize,
    /// Open sockets.
    pub sockets: usize,
    /// Open sockets that stream executions.
    pub execution_sockets: usize,
    /// Open price streams.
    pub streams: usize,
    /// Exports that are being sent.
    pub exports: usize,
    /// Price frames that replaced an older one which a slow reader had not read.
    pub conflated_frames: u64,
    /// Price streams cut off because their clients read too slowly.
    pub streams_cut_off: u64,
    /// Fills sent to execution sockets.
    pub fill_frames: u64,
    /// Gap frames sent to execution sockets that asked for fills which are no longer kept.
    pub gap_frames: u64,
    /// Markets in the catalogue.
    pub markets: usize,
    /// Markets with a book that can fill an order.
    pub fresh_markets: usize,
    /// Resolved markets that are not settled yet.
    pub markets_unsettled: usize,
    /// Accounts.
    pub accounts: usize,
    /// Open orders.
    pub open_orders: usize,
    /// Open orders held for the venue's delay.
    pub held_orders: usize,
    /// Fills of open orders since the start.
    pub resting_fills: u64,
    /// Books that may fill open orders, queued for the shards.
    pub crossings: usize,
    /// Books dropped because that queue was full; their markets were matched later.
    pub crossings_overflowed: u64,
    /// API keys, including expired and revoked ones that are still kept.
    pub keys: usize,
    /// Whether requests that need memory are refused.
    pub is_memory_full: bool,
    /// The memory limit, in bytes; `None` if there is none.
    pub memory_limit_bytes: Option<u64>,
}
