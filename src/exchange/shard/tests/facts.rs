//! The stream of facts, over a journal with a gate.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::task::Wake;

use super::*;
use crate::shard::facts::{Behind, FactStream, Facts, SUBSCRIBERS_MAX, SubscribeError};

const OTHER_SHARD: u8 = 10;

fn subscribe(
    world: &World,
    runtime: &Runtime,
    waiters: &Arc<Waiters>,
    waiting_max: usize,
) -> Result<FactStream, SubscribeError> {
    let waiting_max = NonZeroUsize::new(waiting_max).unwrap();
    runtime.block_on(world.shards.subscribe(waiting_max, waiters))
}

/// Buys a share in this shard without waiting for the answer.
fn buy_unawaited(world: &World, waiters: &Arc<Waiters>, shard: u8, name: &str) {
    let command = buy_in(shard, 1, name);
    drop(world.shards.execute(ShardId::new(shard).unwrap(), command, waiters));
}

/// The record that the journal has at a position.
fn journaled(records: &[Vec<u8>], position: usize) -> Facts {
    let (header, events) = record::decode(&records[position - 1]).unwrap();
    Facts {
        shard: header.shard,
        sequence: header.sequence,
        lsn: Lsn::new(0, position as u64),
        events,
    }
}

/// The next item of the stream, if there is one now.
fn ready(stream: &mut FactStream, runtime: &Runtime) -> Option<Result<Facts, Behind>> {
    runtime.block_on(async {
        // A task of the worker wakes its waiters.
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
        let mut next = pin!(stream.next());
        match next.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(next) => Some(next),
            Poll::Pending => None,
        }
    })
}

#[test]
fn facts_come_in_order_and_none_before_it_is_durable() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    let before = world.shards.execute(shard_id(), buy(1, "before"), &waiters);
    runtime.block_on(before).unwrap();
    let mut stream = subscribe(&world, &runtime, &waiters, 16).unwrap();
    assert_eq!(stream.begins_after(shard_id()), 1);
    assert_eq!(stream.begins_after(ShardId::new(OTHER_SHARD).unwrap()), 0);
    world.gate.hold();
    for (number, shard) in [SHARD, OTHER_SHARD, SHARD, OTHER_SHARD].into_iter().enumerate() {
        buy_unawaited(&world, &waiters, shard, &number.to_string());
    }
    assert!(ready(&mut stream, &runtime).is_none(), "no record is durable");
    let records = world.memory.records();
    for position in 2..=5 {
        world.gate.release_to(Lsn::new(0, position as u64));
        let facts = ready(&mut stream, &runtime).expect("it is durable").unwrap();
        assert_eq!(facts, journaled(&records, position));
        assert!(ready(&mut stream, &runtime).is_none(), "the next is not durable");
    }
}

/// Counts its wake-ups.
#[derive(Default)]
struct WakeCount(AtomicUsize);

impl Wake for WakeCount {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn a_subscriber_is_woken_by_a_queue_that_is_half_full_and_not_by_each_record() {
    const WAITING_MAX: usize = 16;
    let world = world();
    let (runtime, waiters) = worker(&world);
    let mut stream = subscribe(&world, &runtime, &waiters, WAITING_MAX).unwrap();
    let count = Arc::new(WakeCount::default());
    let waker = Waker::from(count.clone());
    let _runtime = runtime.enter();
    let mut next = pin!(stream.next());
    assert!(next.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    for number in 1..=WAITING_MAX / 2 {
        assert_eq!(count.0.load(Ordering::Relaxed), 0, "record {number}");
        buy_unawaited(&world, &waiters, SHARD, &number.to_string());
    }
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

#[test]
fn a_single_record_arrives_without_a_wake_up() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    let mut stream = subscribe(&world, &runtime, &waiters, 16).unwrap();
    let facts = runtime.block_on(async {
        let mut next = pin!(stream.next());
        assert!(poll_fn(|context| Poll::Ready(next.as_mut().poll(context).is_pending())).await);
        buy_unawaited(&world, &waiters, SHARD, "a name");
        next.await.unwrap()
    });
    assert_eq!(facts.sequence, 1);
}

#[test]
fn a_slow_subscriber_is_cut_and_catches_up_from_the_journal() {
    const WAITING_MAX: usize = 4;
    let world = world();
    let (runtime, waiters) = worker(&world);
    let mut stream = subscribe(&world, &runtime, &waiters, WAITING_MAX).unwrap();
    for number in 0..10 {
        let shard = if number % 3 == 0 { OTHER_SHARD } else { SHARD };
        buy_unawaited(&world, &waiters, shard, &number.to_string());
    }
    for shard in [SHARD, OTHER_SHARD] {
        let core = world.shards.shards[usize::from(shard)].core.lock();
        assert!(core.subscribers.is_empty(), "a shard drops a subscriber that is cut");
    }
    let records = world.memory.records();
    for position in 1..=WAITING_MAX {
        let facts = ready(&mut stream, &runtime).unwrap().unwrap();
        assert_eq!(facts, journaled(&records, position), "a record that still fit");
    }
    let from = Lsn::new(0, WAITING_MAX as u64 + 1);
    assert_eq!(ready(&mut stream, &runtime), Some(Err(Behind { from })));
    assert_eq!(ready(&mut stream, &runtime), Some(Err(Behind { from })), "it stays cut");

    let mut stream = subscribe(&world, &runtime, &waiters, WAITING_MAX).unwrap();
    assert_eq!(stream.begins_after(ShardId::new(OTHER_SHARD).unwrap()), 4);
    assert_eq!(stream.begins_after(shard_id()), 6);
    buy_unawaited(&world, &waiters, SHARD, "behind it");
    let facts = ready(&mut stream, &runtime).unwrap().unwrap();
    assert_eq!((facts.sequence, facts.lsn), (7, Lsn::new(0, 11)));
}

/// The first missing LSN is certain only when everything before it is durable.
#[test]
fn a_cut_is_reported_when_the_missing_lsn_is_durable() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    let mut stream = subscribe(&world, &runtime, &waiters, 1).unwrap();
    world.gate.hold();
    for name in ["first", "second"] {
        buy_unawaited(&world, &waiters, SHARD, name);
    }
    world.gate.release_to(Lsn::new(0, 1));
    assert_eq!(ready(&mut stream, &runtime).unwrap().unwrap().sequence, 1);
    assert!(ready(&mut stream, &runtime).is_none(), "the second is not durable");
    world.gate.release();
    let from = Lsn::new(0, 2);
    assert_eq!(ready(&mut stream, &runtime), Some(Err(Behind { from })));
}

#[test]
fn subscribers_come_and_go_and_are_bounded() {
    let world = world();
    let (runtime, waiters) = worker(&world);
    for _ in 0..2 * SUBSCRIBERS_MAX {
        drop(subscribe(&world, &runtime, &waiters, 1).unwrap());
    }
    let kept: Vec<_> =
        (0..SUBSCRIBERS_MAX).map(|_| subscribe(&world, &runtime, &waiters, 1).unwrap()).collect();
    let refused = subscribe(&world, &runtime, &waiters, 1).err();
    assert_eq!(refused, Some(SubscribeError::TooMany));
    drop(kept);
    subscribe(&world, &runtime, &waiters, 1).unwrap();
}

#[test]
fn every_subscriber_gets_every_record_whoever_else_is_cut() {
    const RECORDS: usize = 4;
    for rooms in [[1, RECORDS, RECORDS], [RECORDS, 2, RECORDS], [RECORDS, RECORDS, 3]] {
        let world = world();
        let (runtime, waiters) = worker(&world);
        let streams = rooms.map(|room| subscribe(&world, &runtime, &waiters, room).unwrap());
        (0..RECORDS).for_each(|number| buy_unawaited(&world, &waiters, SHARD, &number.to_string()));
        let records = world.memory.records();
        for (mut stream, room) in streams.into_iter().zip(rooms) {
            for position in 1..=room {
                let facts = ready(&mut stream, &runtime).unwrap().unwrap();
                assert_eq!(facts, journaled(&records, position), "{rooms:?}");
            }
            let from = Lsn::new(0, room as u64 + 1);
            let behind = (room < RECORDS).then_some(Err(Behind { from }));
            assert_eq!(ready(&mut stream, &runtime), behind, "{rooms:?}");
        }
    }
}

/// Notes a record, which must be the next of its shard or one seen before.
fn note(seen: &mut BTreeMap<ShardId, u64>, facts: &Facts) {
    let newest = seen.entry(facts.shard).or_default();
    assert!(facts.sequence <= *newest + 1, "{} follows {newest}", facts.sequence);
    *newest = facts.sequence.max(*newest);
}

/// A subscriber that catches up whenever it is cut sees every record of each shard, in order.
#[test]
fn nothing_is_missed_while_writers_race_with_a_slow_subscriber() {
    const WRITERS: u8 = 3;
    const RECORDS: u64 = 300;
    let world = world();
    let (runtime, waiters) = worker(&world);
    let subscribe = || subscribe(&world, &runtime, &waiters, 2).unwrap();
    let mut stream = subscribe();
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let world = &world;
            scope.spawn(move || {
                let (runtime, waiters) = worker(world);
                let shard = ShardId::new(SHARD + writer % 2).unwrap();
                for number in 0..RECORDS {
                    let command = buy_in(shard.get(), writer + 1, &number.to_string());
                    // A long turn leaves its rest to a task of this runtime.
                    let executed = async { world.shards.execute(shard, command, &waiters).await };
                    runtime.block_on(executed).unwrap();
                }
            });
        }
        // Many more than it has room for, so that it is cut however slow the writers are.
        while world.memory.records().len() < 20 {
            std::thread::yield_now();
        }
        let total = u64::from(WRITERS) * RECORDS;
        let mut seen = BTreeMap::new();
        let (mut from, mut cut_count) = (1, 0);
        loop {
            let records = world.memory.records();
            let caught_up = (from..=records.len()).map(|position| journaled(&records, position));
            let caught_up = caught_up.filter(|it| it.sequence <= stream.begins_after(it.shard));
            caught_up.for_each(|facts| note(&mut seen, &facts));
            while seen.values().sum::<u64>() < total {
                match runtime.block_on(stream.next()) {
                    Ok(facts) => note(&mut seen, &facts),
                    Err(behind) => {
                        from = usize::try_from(behind.from.position).unwrap();
                        cut_count += 1;
                        break;
                    }
                }
            }
            if seen.values().sum::<u64>() == total {
                break;
            }
            stream = subscribe();
        }
        assert!(cut_count > 0, "the subscriber was never cut");
    });
}
