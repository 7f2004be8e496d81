//! What the metrics are read from.

use std::time::Duration;

use super::counters::Metrics;
use super::process::Process;
use crate::histogram::Histogram;
use crate::journal::JournalMetrics;
use crate::snapshot::SnapshotMetrics;
use crate::venue::follow::status::LiveSnapshot;

/// What a page is made from.
pub struct Scrape<'a> {
    /// The sum of all workers.
    pub workers: Metrics,
    /// The name of each operation, in the order of the table, and of what matches none.
    pub operations: Vec<String>,
    /// What is read now.
    pub gauges: Gauges,
    /// The same of what serves; `None` during the start, and while the node of a cluster stands by.
    pub serving: Option<ServingGauges>,
    /// The log of the cluster; `None` outside of one.
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
    /// Those that the collector has accepted.
    pub exported: u64,
    /// Those that it did not get, or did not take.
    pub dropped: u64,
}

/// The log of a cluster, as one of its nodes sees it.
#[derive(Clone, Copy, Debug)]
pub struct LogSample<'a> {
    /// Its name.
    pub name: &'a str,
    /// Whether this node owns it.
    pub is_owned: bool,
    /// The epoch of the newest block that this node knows of, once it has read the log.
    pub epoch: Option<u64>,
    /// The position of the newest record that this node knows of, from the same moment on.
    pub position: Option<u64>,
    /// The position of the newest record that this node has on disk, once its folder is open.
    pub copied_position: Option<u64>,
    /// When a broker last answered, in seconds since 1970; 0 before the first answer.
    pub answered_at_seconds: u64,
    /// Whether this node can read it no further: a block is missing or damaged everywhere.
    pub is_halted: bool,
    /// How long blocks took that this node appended, in microseconds.
    pub append_us: &'a Histogram,
}

/// What the process has at the time of the scrape.
#[derive(Clone, Copy, Default, Debug)]
pub struct Gauges {
    /// Open connections.
    pub connections: usize,
    /// Bytes of request bodies that are being received or parsed, beyond the first 4 KiB of each.
    pub body_bytes: usize,
    /// Bytes of large answers that clients have yet to read.
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

/// What a server that serves has at the time of the scrape.
#[derive(Clone, Copy, Default, Debug)]
pub struct ServingGauges {
    /// Bytes of sockets and price streams that clients have yet to read.
    pub unsent_bytes: usize,
    /// Subscriptions of sockets and price streams.
    pub subscriptions: usize,
    /// Open sockets.
    pub sockets: usize,
    /// Those of them that stream executions.
    pub execution_sockets: usize,
    /// Open price streams.
    pub streams: usize,
    /// Exports that are being sent.
    pub exports: usize,
    /// Price frames that replaced others, which a slow reader missed.
    pub conflated_frames: u64,
    /// Price streams cut off because their clients read too slowly.
    pub streams_cut_off: u64,
    /// Fills sent to execution sockets.
    pub fill_frames: u64,
    /// Gaps sent to execution sockets: fills that they asked for are no longer kept.
    pub gap_frames: u64,
    /// Known markets.
    pub markets: usize,
    /// Those of them with a book on which an order can fill.
    pub fresh_markets: usize,
    /// Resolved markets that are not settled yet.
    pub markets_unsettled: usize,
    /// Accounts.
    pub accounts: usize,
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
    /// Whether requests are refused that would need memory.
    pub is_memory_full: bool,
    /// The limit of resident memory, in bytes; `None` if there is none.
    pub memory_limit_bytes: Option<u64>,
}
