//! Model checks of every interleaving in which a shard lets an order rest while the feed publishes
//! a book that fills it. Run by `.ci/models`.

use loom::model::Builder;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicUsize, Ordering, fence};
use loom::thread;

use super::*;

const OUTCOME: OutcomeIndex = OutcomeIndex(0);

/// The best ask of each of the outcome's books, by sequence number.
const ASKS: [Price; 3] =
    [Price::from_micros(600_000), Price::from_micros(500_000), Price::from_micros(450_000)];

/// The resting limits of one outcome, and the sequence number of the newest book.
struct Shared {
    resting_limits: RestingLimits,
    newest: AtomicUsize,
}

impl Shared {
    /// Publishes the next book and returns the shards whose orders it may fill.
    fn publish(&self, sequence: usize) -> ShardSet {
        self.newest.store(sequence, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.resting_limits.reached_by(OUTCOME, Side::Buy, ASKS[sequence])
    }

    /// Lets orders with this best limit rest, and returns the sequence number of the book that the
    /// shard checks them against.
    fn rest(&self, shard: ShardId, limit: Price) -> usize {
        self.resting_limits.set_best(OUTCOME, Side::Buy, shard, Some(limit));
        fence(Ordering::SeqCst);
        self.newest.load(Ordering::Relaxed)
    }
}

/// Lets each shard set its limits in turn while the feed publishes books. Checks that the shard
/// either sees a book that reaches its last limit, or is woken by it.
fn check(limits: &'static [&[i64]], book_count: usize) {
    let mut model = Builder::new();
    model.preemption_bound = model.preemption_bound.or(Some(3));
    model.check(move || {
        let shared =
            Arc::new(Shared { resting_limits: RestingLimits::new(1), newest: AtomicUsize::new(0) });
        let threads: Vec<_> = ShardId::all()
            .zip(limits)
            .map(|(shard, limits)| {
                let shared = Arc::clone(&shared);
                let judge = move || {
                    let limits = limits.iter().map(|&micros| Price::from_micros(micros));
                    let judged = limits.map(|limit| (limit, shared.rest(shard, limit)));
                    (shard, judged.last().expect("some order rests"))
                };
                thread::spawn(judge)
            })
            .collect();
        let woken: Vec<ShardSet> = (1..=book_count).map(|it| shared.publish(it)).collect();
        for thread in threads {
            let (shard, (limit, judged)) = thread.join().expect("the shard has not panicked");
            for (sequence, woken) in (1..).zip(&woken) {
                let is_reached = ASKS[sequence] <= limit;
                let is_missed = sequence > judged && !woken.contains(shard);
                assert!(!(is_reached && is_missed), "{shard:?} misses book {sequence}");
            }
        }
    });
}

#[test]
fn an_order_that_comes_to_rest_misses_no_book() {
    check(&[&[500_000]], 1);
    check(&[&[500_000]], 2);
}

#[test]
fn a_limit_that_rises_misses_no_book() {
    check(&[&[400_000, 450_000]], 2);
}

#[test]
fn two_shards_miss_no_book() {
    check(&[&[500_000], &[450_000]], 2);
}
