//! Delayed orders whose time has come while the server has no room, or whose client asks late.

use super::*;
use paperbourse_core::engine::rejection::Rejection;

const DELAY: Duration = Duration::from_secs(2);

/// Longer than an outcome is kept.
const LONG: Duration = Duration::from_secs(20);

/// A runtime whose clock jumps to the next timer, over shards whose market delays its orders. It
/// decides them when they are due.
fn delayed_world() -> (World, Runtime, Arc<Waiters>) {
    let world = world();
    let markets = &world.shards.environment.markets;
    let market = markets.by_condition(MARKET).unwrap();
    let info = MarketInfo {
        taker_delay_ms: u32::try_from(DELAY.as_millis()).unwrap(),
        ..MarketInfo::clone(&market.info())
    };
    markets.list(vec![info]).unwrap();
    let runtime = Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
    let waiters = world.journal.register();
    runtime.spawn({
        let waiters = waiters.clone();
        async move { waiters.run().await }
    });
    runtime.spawn(world.shards.clone().decide_delayed_orders(world.journal.register()));
    (world, runtime, waiters)
}

impl World {
    /// Places an order, which is delayed.
    async fn delay(&self, waiters: &Arc<Waiters>, name: &str) -> OrderReceipt {
        let placed = self.shards.execute(shard_id(), buy(1, name), waiters).await;
        let (receipt, _) = receipt(placed);
        assert!(receipt.is_delayed());
        receipt
    }

    fn publish_asks(&self, asks: Vec<Level>) {
        let markets = &self.shards.environment.markets;
        let book = Book::new(Ladder::from_levels(vec![], asks).unwrap(), Timestamp::EPOCH);
        markets.publish(&markets.by_condition(MARKET).unwrap(), OutcomeIndex(0), Arc::new(book));
    }
}

/// A refusal would mean that nothing will come of the order.
#[test]
fn a_client_waits_until_there_is_room_to_decide_its_order() {
    let (world, runtime, waiters) = delayed_world();
    runtime.block_on(async {
        let delayed = world.delay(&waiters, "a").await;
        let turn = world.shard().queue.try_turn().expect("the shard is idle");
        let ran = Arc::new(AtomicUsize::new(0));
        let reads = queue_reads(&world, &waiters, QUEUE_CAPACITY.get(), &ran);
        let mut outcome = pin!(world.shards.delayed_outcome(&delayed, &waiters));
        assert!(tokio::time::timeout(LONG, &mut outcome).await.is_err());
        assert_eq!(world.shards.delayed_orders().count(), 1);
        world.shards.serve(shard_id(), turn);
        let filled = outcome.await.unwrap();
        assert_eq!((filled.order, filled.fill.quantity.micros()), (delayed.order, 1_000_000));
        assert_eq!(world.shards.delayed_orders().count(), 0);
        assert!(join(reads).await.iter().all(Result::is_ok));
    });
    world.assert_replays();
}

/// The order was accepted when there was memory, and takes no more of it.
#[test]
fn a_delayed_order_is_decided_without_memory() {
    let (world, runtime, waiters) = delayed_world();
    runtime.block_on(async {
        let delayed = world.delay(&waiters, "a").await;
        world.shards.environment.room.set_full(true);
        let filled = world.shards.delayed_outcome(&delayed, &waiters).await.unwrap();
        assert_eq!(filled.fill.quantity.micros(), 1_000_000);
    });
    world.assert_replays();
}

/// The entries of a batch are answered together, when the last one is decided.
#[test]
fn an_outcome_is_known_however_late_it_is_read() {
    let (world, runtime, waiters) = delayed_world();
    runtime.block_on(async {
        let filled = world.delay(&waiters, "filled").await;
        let filled = world.shards.delayed_outcome(&filled, &waiters);
        tokio::time::sleep(2 * DELAY).await;
        let refused = world.delay(&waiters, "refused").await;
        let refused = world.shards.delayed_outcome(&refused, &waiters);
        world.publish_asks(Vec::new());
        tokio::time::sleep(LONG).await;
        assert_eq!(filled.await.unwrap().fill.quantity.micros(), 1_000_000);
        let refused = refused.await.unwrap_err();
        let Refusal::Rejected(rejection) = refused else { panic!("{refused:?}") };
        assert!(matches!(rejection, Rejection::InsufficientLiquidity { .. }), "{rejection:?}");
    });
    world.assert_replays();
}

#[test]
fn an_order_is_decided_though_nobody_waits_for_it() {
    let (world, runtime, waiters) = delayed_world();
    runtime.block_on(async {
        world.delay(&waiters, "a").await;
        assert_eq!(world.shards.delayed_orders().count(), 1);
        tokio::time::sleep(LONG).await;
        assert_eq!(world.shards.delayed_orders().count(), 0);
        let again = world.shards.execute(shard_id(), buy(1, "a"), &waiters).await;
        let (again, is_replay) = receipt(again);
        assert_eq!((is_replay, again.fill.quantity.micros()), (true, 1_000_000));
    });
    world.assert_replays();
}
