//! The counters of each worker.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ws::connection::Ended;
use paperbourse_core::histogram::Histogram;
use paperbourse_exchange::service::RateRule;

/// The HTTP statuses that have a separate counter, ascending.
pub const STATUSES: [u16; 19] =
    [101, 200, 201, 204, 304, 400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 426, 429, 500, 503];

/// The label of all other statuses. No operation answers with any of them.
pub const OTHER_STATUS: &str = "other";

/// The index of each status in [`STATUSES`]; the length of that table for all others.
#[expect(clippy::cast_possible_truncation, reason = "there are fewer than 256 statuses")]
const STATUS_INDEX: [u8; 600] = {
    let mut index_of = [STATUSES.len() as u8; 600];
    let mut index = 0;
    while index < STATUSES.len() {
        index_of[STATUSES[index] as usize] = index as u8;
        index += 1;
    }
    index_of
};

/// A count that only rises.
#[derive(Default, Debug)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the current count.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, other: &Self) {
        self.0.fetch_add(other.get(), Ordering::Relaxed);
    }
}

/// The counters of one worker since the start.
#[derive(Debug)]
#[repr(align(128))]
pub struct Metrics {
    /// One entry for each row of the operation table, and a last one for requests that match no
    /// row.
    operations: Box<[OperationMetrics]>,
    /// Requests refused, by rate limit, in the order of [`RateRule::ALL`].
    rate_limited: [Counter; RateRule::ALL.len()],
    /// WebSockets ended, by reason, in the order of [`Ended::NAMES`].
    sockets_ended: [Counter; Ended::NAMES.len()],
    /// Orders filled on placement.
    pub orders_filled: Counter,
    /// Orders that rested on placement.
    pub orders_rested: Counter,
    /// Orders that required an immediate fill and got none.
    pub orders_killed: Counter,
    /// Open orders cancelled by their account.
    pub orders_cancelled: Counter,
    /// Orders sent again and answered with the original result.
    pub orders_replayed: Counter,
    /// Orders rejected by a rule.
    pub orders_rejected: Counter,
    /// Comments added.
    pub comments_added: Counter,
    /// Connections refused by a connection limit.
    pub connections_refused: Counter,
}

/// The counters of one operation.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct OperationMetrics {
    /// Answers by status, in the order of [`STATUSES`]; the last entry is for all other statuses.
    statuses: [Counter; STATUSES.len() + 1],
    /// Time from a request's head to its answer, in microseconds.
    pub duration_us: Histogram,
}

impl OperationMetrics {
    /// Returns each status that was answered, with its count; `None` stands for all other statuses.
    pub fn by_status(&self) -> impl Iterator<Item = (Option<u16>, u64)> {
        let statuses = STATUSES.into_iter().map(Some).chain([None]);
        statuses.zip(self.statuses.iter().map(Counter::get)).filter(|&(_, count)| count > 0)
    }
}

impl Metrics {
    /// Creates counters for a table of this many operations.
    pub fn new(operation_count: usize) -> Self {
        Self {
            operations: (0..=operation_count).map(|_| OperationMetrics::default()).collect(),
            rate_limited: Default::default(),
            sockets_ended: Default::default(),
            orders_filled: Counter::default(),
            orders_rested: Counter::default(),
            orders_killed: Counter::default(),
            orders_cancelled: Counter::default(),
            orders_replayed: Counter::default(),
            orders_rejected: Counter::default(),
            comments_added: Counter::default(),
            connections_refused: Counter::default(),
        }
    }

    /// Counts an answer. `operation` is the row in the operation table, or the number of rows if no
    /// operation matched. `elapsed` is the time from the request's head to its answer.
    pub fn answered(&self, operation: usize, status: u16, elapsed: Duration) {
        let metrics = &self.operations[operation];
        let index = STATUS_INDEX.get(usize::from(status));
        metrics.statuses[index.map_or(STATUSES.len(), |&index| usize::from(index))].increment();
        metrics.duration_us.record_micros(elapsed);
    }

    /// Counts a request refused by this rate limit.
    pub fn rate_limited(&self, rule: RateRule) {
        self.rate_limited[rule.index()].increment();
    }

    /// Counts a WebSocket that has ended.
    pub fn socket_ended(&self, ended: Ended) {
        self.sockets_ended[ended.index()].increment();
    }

    /// Returns the counters of each operation in table order, followed by the counters of requests
    /// that match no operation.
    pub fn operations(&self) -> &[OperationMetrics] {
        &self.operations
    }

    /// Returns the number of requests refused, by rate limit.
    pub fn rate_limited_by_rule(&self) -> impl Iterator<Item = (RateRule, u64)> {
        RateRule::ALL.into_iter().zip(self.rate_limited.iter().map(Counter::get))
    }

    /// Returns the number of WebSockets ended, by reason.
    pub fn sockets_by_end(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Ended::NAMES.into_iter().zip(self.sockets_ended.iter().map(Counter::get))
    }

    /// Returns the sum of several workers' counters.
    pub fn sum<'a>(operation_count: usize, parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let sum = Self::new(operation_count);
        for part in parts {
            sum.add(part);
        }
        sum
    }

    fn add(&self, part: &Self) {
        // Destructured, so that no counter is left out of the sum.
        let Self {
            operations,
            rate_limited,
            sockets_ended,
            orders_filled,
            orders_rested,
            orders_killed,
            orders_cancelled,
            orders_replayed,
            orders_rejected,
            comments_added,
            connections_refused,
        } = part;
        for (sum, part) in self.operations.iter().zip(operations) {
            add_all(&sum.statuses, &part.statuses);
            sum.duration_us.add(&part.duration_us);
        }
        add_all(&self.rate_limited, rate_limited);
        add_all(&self.sockets_ended, sockets_ended);
        self.orders_filled.add(orders_filled);
        self.orders_rested.add(orders_rested);
        self.orders_killed.add(orders_killed);
        self.orders_cancelled.add(orders_cancelled);
        self.orders_replayed.add(orders_replayed);
        self.orders_rejected.add(orders_rejected);
        self.comments_added.add(comments_added);
        self.connections_refused.add(connections_refused);
    }
}

fn add_all(sums: &[Counter], parts: &[Counter]) {
    for (sum, part) in sums.iter().zip(parts) {
        sum.add(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_counts_for_its_operation_and_status() {
        let metrics = Metrics::new(2);
        for (operation, status) in
            [(0, 200), (0, 200), (0, 503), (1, 101), (2, 404), (2, 418), (2, 0), (2, u16::MAX)]
        {
            metrics.answered(operation, status, Duration::from_millis(1));
        }
        let counts = metrics.operations().iter().map(|it| it.by_status().collect::<Vec<_>>());
        let expected: [&[_]; 3] =
            [&[(Some(200), 2), (Some(503), 1)], &[(Some(101), 1)], &[(Some(404), 1), (None, 3)]];
        assert_eq!(counts.collect::<Vec<_>>(), expected);
        assert_eq!(metrics.operations()[0].duration_us.sum(), 3_000);
    }

    #[test]
    fn workers_add_up() {
        let parts = [Metrics::new(1), Metrics::new(1)];
        for part in &parts {
            part.answered(0, 200, Duration::from_micros(5));
            part.rate_limited(RateRule::Keys);
            part.socket_ended(Ended::Silent);
            part.orders_filled.increment();
            part.connections_refused.increment();
        }
        let sum = Metrics::sum(1, &parts);
        assert_eq!(sum.operations()[0].by_status().collect::<Vec<_>>(), [(Some(200), 2)]);
        assert_eq!(sum.operations()[0].duration_us.sum(), 10);
        let refused = sum.rate_limited_by_rule().filter(|&(_, count)| count > 0);
        assert_eq!(refused.collect::<Vec<_>>(), [(RateRule::Keys, 2)]);
        let ended = sum.sockets_by_end().filter(|&(_, count)| count > 0);
        assert_eq!(ended.collect::<Vec<_>>(), [("silent", 2)]);
        assert_eq!((sum.orders_filled.get(), sum.connections_refused.get()), (2, 2));
    }
}
