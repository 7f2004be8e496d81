mod delayed;
mod facts;

use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Runtime};

use super::*;
use paperbourse_core::engine::command::{
    Identity, OpenAccount, OrderNames, Owner, Trade, TradeOrder,
};
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::engine::order::place::Placed;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::{Book, Ladder, Level, Side};
use paperbourse_core::market::catalogue::{MarketInfo, Outcome};
use paperbourse_core::money::{Price, Shares};
use paperbourse_store::disk::Disk;
use paperbourse_store::journal::record;
use paperbourse_store::journal::{
    DataDirectory, Gate, JournalConfig, MemoryJournal, SegmentReader, segment_name,
};

const SHARD: u8 = 9;
const MARKET: &str = "0xabc";

struct World {
    shards: Arc<Shards>,
    journal: Arc<Journal>,
    memory: MemoryJournal,
    gate: Gate,
}

/// Shards over an in-memory journal with an open gate.
fn world() -> World {
    world_at(Clock::System)
}

fn world_at(clock: Clock) -> World {
    let (memory, gate) = MemoryJournal::gated(&JournalConfig::default());
    gate.release();
    let journal = Arc::new(Journal::from(memory.clone()));
    let shards = shards_over(journal.clone(), clock);
    World { shards, journal, memory, gate }
}

/// New shards that write to this journal, with one market that has a book.
fn shards_over(journal: Arc<Journal>, clock: Clock) -> Arc<Shards> {
    shards_from(Recovered::default(), journal, clock)
}

/// Shards that continue from recovered states.
fn shards_from(recovered: Recovered, journal: Arc<Journal>, clock: Clock) -> Arc<Shards> {
    let markets = Arc::new(Markets::new());
    let outcomes =
        ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
    markets.list(vec![MarketInfo::bare(MARKET, outcomes)]).unwrap();
    let level =
        Level { price: Price::from_micros(500_000), size: Shares::from_micros(1_000_000_000) };
    let book = Book::new(Ladder::from_levels(vec![], vec![level]).unwrap(), Timestamp::EPOCH);
    markets.publish(&markets.by_condition(MARKET).unwrap(), OutcomeIndex(0), Arc::new(book));
    let observer = Box::new(|_: &Event, _: &State| {});
    let rules = Rules::default();
    Arc::new(Shards::new(recovered, journal, markets, rules, clock, Arc::default(), observer))
}

fn shard_id() -> ShardId {
    ShardId::new(SHARD).unwrap()
}

/// A purchase of one share by this trader, under this name.
fn buy(trader: u8, name: &str) -> Trade {
    buy_in(SHARD, trader, name)
}

fn buy_in(shard: u8, trader: u8, name: &str) -> Trade {
    let mut digest = [trader; 32];
    digest[0] = shard;
    Trade::new(
        Owner::Identity(Identity { digest, issuer: "test".into(), subject: "x".into() }),
        TradeOrder {
            market_id: MARKET.into(),
            outcome: "Yes".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(1_000_000),
            expected_price: None,
            max_slippage_bps: None,
        },
        OrderNames::new([NameHash::of_order(name)], Some(name.into())),
    )
}

impl World {
    fn shard(&self) -> &Shard {
        &self.shards.shards[shard_id().index()]
    }

    /// Holds the shard's turn while `meanwhile` queues tasks, then runs one turn of them.
    fn while_busy<T>(&self, meanwhile: impl FnOnce() -> T) -> T {
        let turn = self.shard().queue.try_turn().expect("the shard is idle");
        let queued = meanwhile();
        self.shards.serve(shard_id(), turn);
        queued
    }

    fn sequence(&self) -> u64 {
        self.shard().core.lock().state.sequence()
    }

    /// The states that the records fold to.
    fn recovered(&self) -> Recovered {
        let mut recovered = Recovered::default();
        for record in self.memory.records() {
            recovered.replay(0, &record, &|_, _| {}).unwrap();
        }
        recovered
    }

    /// Checks that the records fold to the states in memory.
    #[track_caller]
    fn assert_replays(&self) {
        let recovered = self.recovered();
        for (replayed, live) in recovered.states().zip(&self.shards.shards) {
            let live = &live.core.lock().state;
            assert_eq!(replayed.sequence(), live.sequence());
            assert_eq!(replayed.hash(), live.hash());
            let ledgers = |state: &State| -> Vec<_> {
                state.accounts().map(|account| account.ledger).collect()
            };
            assert_eq!(ledgers(replayed), ledgers(live));
        }
    }
}

/// A single-threaded runtime, like a worker's, and its group of waiters.
fn worker(world: &World) -> (Runtime, Arc<Waiters>) {
    worker_of(&world.journal)
}

fn worker_of(journal: &Journal) -> (Runtime, Arc<Waiters>) {
    let runtime = Builder::new_current_thread().enable_time().build().unwrap();
    let waiters = journal.register();
    runtime.spawn({
        let waiters = waiters.clone();
        async move { waiters.run().await }
    });
    (runtime, waiters)
}

fn is_pending(future: Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

fn receipt(answer: Result<Placed, Refusal>) -> (OrderReceipt, bool) {
    let Placed { receipt, is_replay } = answer.unwrap();
    (receipt, is_replay)
}

#[test]
fn decision_time_follows_the_clock_and_goes_back_only_after_a_jump() {
    const SECOND: i64 = 1_000_000_000;
    const NOW: i64 = 1_800_000_000 * SECOND;
    const IN_2100: i64 = 4_102_444_800 * SECOND;
    let nanos = Arc::new(AtomicI64::new(0));
    let world = world_at(Clock::Virtual(nanos.clone()));
    let (runtime, waiters) = worker(&world);
    for (shown, expected) in [
        (NOW, NOW),
        (NOW + 2, NOW + 2),
        (NOW + 1, NOW + 2),
        (NOW + 3, NOW + 3),
        (NOW + 60 * SECOND, NOW + 60 * SECOND),
        (NOW, NOW + 60 * SECOND),
        (IN_2100, IN_2100),
        (NOW + 61 * SECOND, NOW + 61 * SECOND),
        (0, 0),
        (NOW + 62 * SECOND, NOW + 62 * SECOND),
    ] {
        nanos.store(shown, Ordering::Relaxed);
        let command = buy(1, &world.sequence().to_string());
        runtime.block_on(world.shards.execute(shard_id(), command, &waiters)).unwrap();
        let (header, events) = record::decode(world.memory.records().last().unwrap()).unwrap();
        assert_eq!(header.at, Timestamp::from_nanos(expected), "at {shown}");
        let Some(Event::OrderFilled(filled)) = events.last() else { panic!("{events:?}") };
        assert_eq!(filled.fill.at, header.at);
    }
    world.assert_replays();
}

/// Decision times stay ordered across a restart, unless they came from a wrong clock.
#[test]
fn a_shard_remembers_its_newest_time_across_a_restart() {
    const SECOND: i64 = 1_000_000_000;
    const NOW: i64 = 1_800_000_000 * SECOND;
    const IN_2100: i64 = 4_102_444_800 * SECOND;
    for (before, shown, expected) in
        [(NOW, NOW - 10 * SECOND, NOW), (NOW, NOW + 1, NOW + 1), (IN_2100, NOW, NOW)]
    {
        let nanos = Arc::new(AtomicI64::new(before));
        let world = world_at(Clock::Virtual(nanos.clone()));
        let (runtime, waiters) = worker(&world);
        let first = buy(1, "before");
        runtime.block_on(world.shards.execute(shard_id(), first, &waiters)).unwrap();

        let (memory, gate) = MemoryJournal::gated(&JournalConfig::default());
        gate.release();
        let journal = Arc::new(Journal::from(memory.clone()));
        nanos.store(shown, Ordering::Relaxed);
        let clock = Clock::Virtual(nanos);
        let shards = shards_from(world.recovered(), journal.clone(), clock);
        let (runtime, waiters) = worker_of(&journal);
        let second = runtime.block_on(shards.execute(shard_id(), buy(1, "after"), &waiters));
        let (header, _) = record::decode(memory.records().last().unwrap()).unwrap();
        assert_eq!(header.at, Timestamp::from_nanos(expected), "{shown} after {before}");
        let (second, _) = receipt(second);
        assert_eq!((header.sequence, second.order.counter()), (2, 2), "both counters continue");
    }
}

/// No decision makes a record that is too long; should a bug make one, only that command fails.
#[test]
fn a_record_that_is_too_long_is_refused_and_changes_nothing() {
    let config = JournalConfig { record_bytes_max: 400, ..JournalConfig::default() };
    let memory = MemoryJournal::keeping(&config);
    let journal = Arc::new(Journal::from(memory.clone()));
    let shards = shards_over(journal.clone(), Clock::System);
    let (runtime, waiters) = worker_of(&journal);
    let identity = |subject: String| {
        let mut digest = [1; 32];
        digest[0] = SHARD;
        OpenAccount(Identity { digest, issuer: "test".into(), subject: subject.into() })
    };
    let execute =
        |subject: String| runtime.block_on(shards.execute(shard_id(), identity(subject), &waiters));
    let refused = execute("x".repeat(400));
    assert!(matches!(refused, Err(Refusal::Rejected(Rejection::Broken { .. }))), "{refused:?}");
    assert_eq!(memory.records().len(), 0);
    assert!(execute("x".into()).is_ok(), "the shard still works");
    assert_eq!(memory.records().len(), 1);
}

/// Snapshots are checked against these hashes; more of them would only fill the journal.
#[test]
fn a_shard_writes_its_hash_once_a_segment() {
    let data = tempfile::TempDir::new().unwrap();
    let config = JournalConfig {
        segment_bytes: 64 << 10,
        ring_bytes: 64 << 10,
        block_bytes_max: 8 << 10,
        record_bytes_max: 3000,
        ..JournalConfig::default()
    };
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let show = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
    let journal = Arc::new(Journal::open(&directory, &config, show).unwrap().0);
    let shards = shards_over(journal.clone(), Clock::System);
    let (runtime, waiters) = worker_of(&journal);
    for number in 0..100 {
        let command = || buy(1, &number.to_string());
        while let Err(refusal) = runtime.block_on(shards.execute(shard_id(), command(), &waiters)) {
            assert_eq!(refusal, Refusal::Busy, "the next segment is being created");
        }
    }
    let last = journal.segment().unwrap();
    assert!(last > 2);
    let mut reader = SegmentReader::after(None);
    for number in 1..last {
        let path = data.path().join("journal").join(segment_name(number));
        let batch = reader.read_closed(&Disk::System, &path, number).unwrap();
        let checks = batch.iter().filter(|(_, bytes)| {
            let (_, events) = record::decode(bytes).unwrap();
            events.iter().any(|event| matches!(event, Event::StateChecked { .. }))
        });
        assert_eq!(checks.count(), 1, "segment {number}");
    }
}

#[test]
fn commands_from_many_threads_are_ordered_and_each_gets_its_own_result() {
    const THREADS: u8 = 4;
    const TASKS: usize = 8;
    const ORDERS: usize = 40;
    let world = world();
    let trade = async |thread: u8, task: usize, waiters: Arc<Waiters>| {
        let mut orders = Vec::new();
        for number in 0..ORDERS {
            let name = format!("{thread}-{task}-{number}");
            // Every account is used from two threads.
            let command = buy(thread / 2, &name);
            let result = world.shards.execute(shard_id(), command.clone(), &waiters).await;
            let (first, is_replay) = receipt(result);
            assert!(!is_replay);
            assert_eq!(first.client_order_id.as_deref(), Some(&*name));
            let again = world.shards.execute(shard_id(), command, &waiters).await;
            assert_eq!(receipt(again), (first.clone(), true));
            orders.push((first.account, first.order, first.fill.balance));
        }
        orders
    };
    let mut orders: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (trade, world) = (&trade, &world);
                scope.spawn(move || {
                    let (runtime, waiters) = worker(world);
                    let all = (0..TASKS).map(|task| Box::pin(trade(thread, task, waiters.clone())));
                    runtime.block_on(join(all.collect()))
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).flatten().collect()
    });
    orders.sort_by_key(|&(account, order, _)| (account, order));
    assert_eq!(orders.len(), usize::from(THREADS) * TASKS * ORDERS);
    for of_account in orders.chunk_by(|a, b| a.0 == b.0) {
        for (before, (_, order, balance)) in of_account.iter().zip(&of_account[1..]) {
            assert!(before.1 < *order, "two orders share an id");
            assert_eq!(before.2.micros() - balance.micros(), 500_000, "each buys one share");
        }
    }
    world.assert_replays();
}

/// Runs futures concurrently on one thread.
async fn join<F: Future>(mut futures: Vec<Pin<Box<F>>>) -> Vec<F::Output> {
    let mut outputs: Vec<_> = futures.iter().map(|_| None).collect();
    poll_fn(|context| {
        for (future, output) in futures.iter_mut().zip(&mut outputs) {
            if output.is_none()
                && let Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        let is_done = outputs.iter().all(Option::is_some);
        if is_done { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    outputs.into_iter().flatten().collect()
}

#[test]
fn a_queued_command_runs_although_its_owner_is_gone() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    let entered = runtime.enter();
    world.while_busy(|| {
        let mut wait = Box::pin(world.shards.execute(shard_id(), buy(1, "left"), &waiters));
        assert!(is_pending(wait.as_mut()));
        drop(wait);
        assert_eq!(world.sequence(), 0, "another thread has the turn");
    });
    assert_eq!(world.sequence(), 1);
    drop(entered);
    let again = runtime.block_on(world.shards.execute(shard_id(), buy(1, "left"), &waiters));
    assert!(receipt(again).1, "it was executed");
    world.assert_replays();
}

#[test]
fn a_command_stands_although_its_owner_leaves_before_the_flush() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    world.gate.hold();
    let mut wait = Box::pin(world.shards.execute(shard_id(), buy(1, "left"), &waiters));
    assert!(is_pending(wait.as_mut()), "it waits for the disk");
    drop(wait);
    let mut again = Box::pin(world.shards.execute(shard_id(), buy(1, "left"), &waiters));
    assert!(is_pending(again.as_mut()), "the replay waits for the first one's record");
    world.gate.release();
    assert!(receipt(runtime.block_on(again)).1);
    assert_eq!(world.sequence(), 1);
    world.assert_replays();
}

#[test]
fn a_command_run_by_another_thread_waits_for_the_flush() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    world.gate.hold();
    let entered = runtime.enter();
    let mut queued = pin!(world.shards.execute(shard_id(), buy(1, "queued"), &waiters));
    world.while_busy(|| assert!(is_pending(queued.as_mut())));
    assert_eq!(world.sequence(), 1, "it has run");
    assert!(is_pending(queued.as_mut()), "it is not durable");
    world.gate.release();
    drop(entered);
    assert!(!receipt(runtime.block_on(queued)).1);
}

/// A thread that runs the command of a sleeping thread need not tend the journal for it.
#[test]
fn a_command_run_by_a_thread_that_never_tends_is_flushed() {
    let data = tempfile::TempDir::new().unwrap();
    let directory = DataDirectory::open(Disk::System, data.path()).unwrap();
    let show = |_, _, _: &[u8]| Ok::<_, std::convert::Infallible>(());
    let config = JournalConfig::default();
    let journal = Arc::new(Journal::open(&directory, &config, show).unwrap().0);
    let shards = shards_over(journal.clone(), Clock::System);
    let asleep = journal.register();
    let shard = &shards.shards[shard_id().index()];
    // Repeated, because the journal's thread may be awake for another reason.
    for number in 0..20 {
        let turn = shard.queue.try_turn().expect("the shard is idle");
        let command = buy(1, &number.to_string());
        let mut queued = pin!(shards.execute(shard_id(), command, &asleep));
        assert!(is_pending(queued.as_mut()));
        shards.serve(shard_id(), turn);
        let started = Instant::now();
        while is_pending(queued.as_mut()) {
            assert!(started.elapsed() < Duration::from_secs(30), "never flushed");
            std::thread::yield_now();
        }
    }
}

/// Queues `count` reads, each of which increments `ran` when it runs.
fn queue_reads<'w>(
    world: &'w World,
    waiters: &'w Arc<Waiters>,
    count: usize,
    ran: &Arc<AtomicUsize>,
) -> Vec<Pin<Box<impl Future<Output = Result<(), Refusal>> + use<'w>>>> {
    let one = |_| {
        let ran = ran.clone();
        let mut wait = Box::pin(world.shards.observe(shard_id(), waiters, move |_| {
            ran.fetch_add(1, Ordering::Relaxed);
            Observed { value: (), lsn: Lsn::START }
        }));
        assert!(is_pending(wait.as_mut()));
        wait
    };
    (0..count).map(one).collect()
}

#[test]
fn a_full_queue_refuses_and_a_long_one_is_continued_in_a_task() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    let entered = runtime.enter();
    let ran = Arc::new(AtomicUsize::new(0));
    let reads = world.while_busy(|| {
        let reads = queue_reads(&world, &waiters, QUEUE_CAPACITY.get(), &ran);
        let one = world.shards.execute(shard_id(), buy(1, "a"), &waiters);
        assert_busy(pin!(one));
        let all = world.shards.execute_all(shard_id(), vec![buy(1, "a"), buy(1, "b")], &waiters);
        assert_busy(pin!(all));
        let nothing = |_: &State| Observed { value: (), lsn: Lsn::START };
        assert_busy(pin!(world.shards.observe(shard_id(), &waiters, nothing)));
        reads
    });
    assert_eq!(ran.load(Ordering::Relaxed), TASKS_PER_TURN_MAX, "one turn is bounded");
    drop(entered);
    let results = runtime.block_on(join(reads));
    assert_eq!(ran.load(Ordering::Relaxed), QUEUE_CAPACITY.get());
    assert!(results.iter().all(Result::is_ok));
    assert_eq!(world.sequence(), 0, "refused commands have no effect");
    assert!(world.shard().queue.try_turn().is_some(), "the turn is over");
}

#[test]
fn a_full_queue_delays_the_count_of_memory() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    let entered = runtime.enter();
    let mut count = pin!(world.shards.footprint(&waiters));
    let ran = Arc::default();
    let reads = world.while_busy(|| {
        let reads = queue_reads(&world, &waiters, QUEUE_CAPACITY.get(), &ran);
        // Other shards are counted first, one each time.
        for _ in 0..=SHARD {
            assert!(is_pending(count.as_mut()));
        }
        reads
    });
    drop(entered);
    assert!(runtime.block_on(join(reads)).iter().all(Result::is_ok));
    assert!(runtime.block_on(count).is_ok());
}

#[track_caller]
fn assert_busy<T: PartialEq + std::fmt::Debug>(
    future: Pin<&mut impl Future<Output = Result<T, Refusal>>>,
) {
    let polled = future.poll(&mut Context::from_waker(Waker::noop()));
    assert_eq!(polled, Poll::Ready(Err(Refusal::Busy)));
}

#[test]
fn a_turn_survives_the_shutdown_of_its_runtime() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    let ran = Arc::new(AtomicUsize::new(0));
    let count = 3 * TASKS_PER_TURN_MAX;
    let entered = runtime.enter();
    let reads = world.while_busy(|| queue_reads(&world, &waiters, count, &ran));
    drop(entered);
    assert_eq!(ran.load(Ordering::Relaxed), TASKS_PER_TURN_MAX);
    drop(runtime);
    assert_eq!(ran.load(Ordering::Relaxed), count);
    let (other, _) = worker(&world);
    assert!(other.block_on(join(reads)).iter().all(Result::is_ok));
    assert!(world.shard().queue.try_turn().is_some(), "the shard is idle");
}

#[cfg(feature = "traces")]
#[test]
fn a_trace_shows_the_wait_for_a_busy_shard() {
    use crate::trace::Record;
    let world = world();
    let (runtime, waiters) = worker(&world);
    let record = Record::new(Instant::now());
    let entered = record.enter();
    let answer = world.while_busy(|| {
        let answer = world.shards.execute(shard_id(), buy(1, "a"), &waiters);
        assert!(record.take().parts.is_empty(), "it still waits for the shard");
        answer
    });
    drop(entered);
    // Another request of this worker, which has no trace.
    drop(runtime.block_on(world.shards.execute(shard_id(), buy(2, "b"), &waiters)));
    let entered = record.enter();
    receipt(runtime.block_on(answer));
    drop(entered);
    let parts = record.take().parts;
    let found: Vec<_> = parts.iter().map(|part| (part.stage, part.position)).collect();
    let expected = [(Stage::Queue, None), (Stage::Decision, None), (Stage::Journal, Some(1))];
    assert_eq!(found, expected);
    assert!(parts.iter().all(|part| part.ended_ns.is_some()), "{parts:?}");
}

/// Others may fill the queue again as fast as the shard works on it.
#[test]
fn a_shard_with_a_full_queue_is_known_to_make_progress_if_it_does() {
    let runtime = Builder::new_current_thread().build().unwrap();
    let entered = runtime.enter();
    let world = world();
    let fill = || while world.shards.post(shard_id(), |_, _| {}) {};
    let is_known_to_progress = || {
        let is_known = Arc::new(AtomicUsize::new(0));
        let task = {
            let is_known = is_known.clone();
            move || is_known.store(1, Ordering::Relaxed)
        };
        world.shards.when_it_progresses(shard_id(), task);
        is_known.load(Ordering::Relaxed) == 1
    };
    let turn = world.shard().queue.try_turn().expect("the shard is idle");
    fill();
    assert!(!is_known_to_progress(), "nothing runs");
    // Some run, and the rest waits for this thread's runtime.
    world.shards.serve(shard_id(), turn);
    fill();
    assert!(is_known_to_progress());
    assert!(!is_known_to_progress(), "nothing has run since");
    // A runtime that ends runs what is left.
    drop(entered);
    drop(runtime);
    let turn = world.shard().queue.try_turn().expect("the shard is idle");
    fill();
    assert!(is_known_to_progress());
    assert!(!is_known_to_progress(), "nothing has run since");
    assert_eq!(drained(turn), QUEUE_CAPACITY.get());
    assert!(is_known_to_progress(), "the shard is idle");
}

/// Takes the queued tasks off a turn, which ends. How many there were.
fn drained(mut turn: Turn<'_, Task>) -> usize {
    std::iter::from_fn(|| turn.next()).count()
}
