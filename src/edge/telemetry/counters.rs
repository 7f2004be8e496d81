//! What each worker counts.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::ws::connection::Ended;
use paperbourse_core::histogram::Histogram;
use paperbourse_exchange::service::RateRule;

/// The statuses of answers, ascending.
pub const STATUSES: [u16; 19] =
    [101, 200, 201, 204, 304, 400, 401, 402, 403, 404, 405, 408, 409, 413, 422, 426, 429, 500, 503];

/// The label of every other status. No operation has one.
pub const OTHER_STATUS: &str = "other";

/// The place of each status in [`STATUSES`].
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

/// The counters of one worker since the start.
#[derive(Debug)]
#[repr(align(128))]
pub struct Metrics {
    /// One for each row of the operation table, and one for requests that match none.
    operations: Box<[OperationMetrics]>,
    /// Requests refused by each rate limit, in the order of [`RateRule::ALL`].
    rate_limited: [Counter; RateRule::ALL.len()],
    /// Sockets by how they ended, in the order of [`Ended::NAMES`].
    sockets_ended: [Counter; Ended::NAMES.len()],
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
    /// Connections refused by a connection limit.
    pub connections_refused: Counter,
}

/// The requests of one operation.
#[derive(Default, Debug)]
#[repr(align(128))]
pub struct OperationMetrics {
    /// Answers by status, in the order of [`STATUSES`]; the last counts all other statuses.
    statuses: [Counter; STATUSES.len() + 1],
    /// Time from the head of the request to its answer, in microseconds.
    pub duration_us: Histogram,
}

impl OperationMetrics {
    /// Each status that was answered, with the number of its answers.
    pub fn by_status(&self) -> impl Iterator<Item = (Option<u16>, u64)> {
        let statuses = STATUSES.into_iter().map(Some).chain([None]);
        statuses.zip(self.statuses.iter().map(Counter::get)).filter(|&(_, count)| count > 0)
    }
}

impl Metrics {
    /// Counters for a table with this many operations.
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

    /// Counts an answer. `operation` is the row in the operation table, or the number of rows if
    /// the request matches none. `elapsed` is the time from the head of the request to its answer.
    pub fn answered(&self, operation: usize, status: u16, elapsed: Duration) {
        let metrics = &self.operations[operation];
        let index = STATUS_INDEX.get(usize::from(status));
        metrics.statuses[index.map_or(STATUSES.len(), |&index| usize::from(index))].increment();
        metrics.duration_us.record_micros(elapsed);
    }

    /// Counts a request that this rate limit refused.
    pub fn rate_limited(&self, rule: RateRule) {
        self.rate_limited[rule.index()].increment();
    }

    /// Counts a closed socket.
    pub fn socket_ended(&self, ended: Ended) {
        self.sockets_ended[ended.index()].increment();
    }

    /// The requests of each operation, in the order of the table; the last are those that match no
    /// operation.
    pub fn operations(&self) -> &[OperationMetrics] {
        &self.operations
    }

    /// The number of requests that each rate limit refused.
    pub fn rate_limited_by_rule(&self) -> impl Iterator<Item = (RateRule, u64)> {
        RateRule::ALL.into_iter().zip(self.rate_limited.iter().map(Counter::get))
    }

    /// The number of sockets by how they ended.
    pub fn sockets_by_end(&self) -> impl Iterator<Item = (&'static str, u64)> {
        Ended::NAMES.into_iter().zip(self.sockets_ended.iter().map(Counter::get))
    }

    /// The sum of several workers' counters.
    pub fn sum<'a>(operation_count: usize, parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let sum = Self::new(operation_count);
        for part in parts {
            sum.add(part);
        }
        sum
    }

    fn add(&self, part: &Self) {
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
