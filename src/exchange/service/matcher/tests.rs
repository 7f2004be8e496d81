//! From a venue's event to the fill of a resting order, and back after a restart.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::shard::Refusal;
use paperbourse_core::engine::command::{
    CancelOrder, Identity, OrderNames, Owner, PlaceOrder, SetHeartbeat,
};
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::order::payload::{NamedTimeInForce, NewOrder};
use paperbourse_core::engine::order::place::Placed;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::engine::{Rules, State};
use paperbourse_core::ids::{Lsn, OrderId, ShardId};
use paperbourse_core::market::book::{Ladder, Level, Side};
use paperbourse_core::market::catalogue::{Fees, MarketInfo, MarketStatus};
use paperbourse_core::money::{Price, Shares};
use paperbourse_store::journal::{Journal, JournalConfig, MemoryJournal, Waiters};
use paperbourse_store::snapshot::Recovered;
use paperbourse_venue::feed::{Feed, MismatchPolicy};
use paperbourse_venue::{BookReplaced, LevelChanged, VenueChange, VenueEvent};

const MARKET: &str = "0xa";
const SHARD: u8 = 3;
const START: Timestamp = Timestamp::from_seconds(1_800_000_000);

struct World {
    memory: MemoryJournal,
    waiters: Arc<Waiters>,
    markets: Arc<Markets>,
    shards: Arc<Shards>,
    feed: Feed,
    matcher: Matcher,
    clock: Clock,
    runtime: Runtime,
}

impl World {
    fn new() -> Self {
        let memory = MemoryJournal::keeping(&JournalConfig::default());
        let clock = Clock::Virtual(Arc::new(AtomicI64::new(START.nanos())));
        Self::continued(Recovered::default(), memory, clock)
    }

    fn continued(recovered: Recovered, memory: MemoryJournal, clock: Clock) -> Self {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let journal = Arc::new(Journal::from(memory.clone()));
        let markets = Arc::new(Markets::new());
        let shards = Arc::new(Shards::new(
            recovered,
            journal.clone(),
            markets.clone(),
            Rules::default(),
            clock.clone(),
            Arc::default(),
            Box::new(|_: &Event, _: &State| {}),
        ));
        let matcher = Matcher::new(markets.clone(), shards.clone(), clock.clone());
        let feed = Feed::new(markets.clone(), MismatchPolicy::Count);
        let waiters = journal.register();
        Self { memory, waiters, markets, shards, feed, matcher, clock, runtime }
    }

    /// Lists the market, with bids at 40 and asks at 45 cents, 100 shares each.
    fn open(&mut self) {
        self.list(MarketInfo::bare_yes_no(MARKET));
        let level = |cents| level(cents, 100);
        let ladder = Ladder::from_levels(vec![level(40)], vec![level(45)]).unwrap();
        self.show(ladder);
    }

    fn list(&mut self, info: MarketInfo) {
        self.apply(VenueChange::Listed(vec![info]));
    }

    fn show(&mut self, ladder: Ladder) {
        let token_id = "t-Yes".into();
        self.apply(VenueChange::Book(BookReplaced::new(token_id, ladder)));
    }

    fn set(&mut self, side: Side, cents: i64, shares: i64) {
        let Level { price, size } = level(cents, shares);
        let token_id = "t-Yes".into();
        let change = LevelChanged { token_id, side, price, size, hash: None, top: None };
        self.apply(VenueChange::Levels(vec![change]));
    }

    fn apply(&mut self, change: VenueChange) {
        self.feed.apply(VenueEvent { at: self.clock.now(), change });
    }

    /// Takes to the shards what the feed has found.
    fn drive(&mut self) {
        while self.markets.crossings_waiting() > 0 {
            let Self { runtime, markets, matcher, .. } = self;
            let crossings = runtime.block_on(async {
                tokio::select! {
                    crossings = markets.crossings() => crossings,
                    () = tokio::task::yield_now() => Vec::new(),
                }
            });
            if crossings.is_empty() {
                return;
            }
            for crossing in crossings {
                matcher.take(&crossing);
            }
        }
    }

    fn place(&self, side: Side, cents: i64, shares: i64) -> Placed {
        self.place_with(side, cents, shares, None).unwrap()
    }

    fn place_with(
        &self,
        side: Side,
        cents: i64,
        shares: i64,
        expiration: Option<Timestamp>,
    ) -> Result<Placed, Refusal> {
        let Level { price, size } = level(cents, shares);
        let order = NewOrder {
            time_in_force: expiration.map(|_| NamedTimeInForce::Gtd),
            expiration,
            ..NewOrder::limit(MARKET, "Yes", side, size, price)
        };
        let command = PlaceOrder::new(owner(), order, OrderNames::default());
        self.runtime.block_on(self.shards.execute(shard(), command, &self.waiters))
    }

    fn read<T: Send + 'static>(&self, read: impl FnOnce(&State) -> T + Send + 'static) -> T {
        let read = self.shards.observe(shard(), &self.waiters, |state| Observed {
            value: read(state),
            lsn: Lsn::START,
        });
        self.runtime.block_on(read).unwrap()
    }

    /// The status of an order, and the shares that have filled.
    fn order(&self, order: OrderId) -> (&'static str, i64) {
        self.read(move |state| {
            let row = state.order_row(order).unwrap();
            let order_state = row.order_state.unwrap();
            (order_state.status().as_str(), order_state.progress.filled.micros() / 1_000_000)
        })
    }

    fn pass(&self, seconds: i64) {
        let Clock::Virtual(nanos) = &self.clock else { unreachable!() };
        nanos.fetch_add(seconds * 1_000_000_000, Ordering::Relaxed);
    }

    /// A new process that has replayed the journal.
    fn restart(self) -> Self {
        let mut recovered = Recovered::default();
        for record in self.memory.records() {
            recovered.replay(0, &record, &|_, _| {}).unwrap();
        }
        Self::continued(recovered, self.memory, self.clock)
    }
}

fn level(cents: i64, shares: i64) -> Level {
    Level {
        price: Price::from_micros(cents * 10_000),
        size: Shares::from_micros(shares * 1_000_000),
    }
}

fn shard() -> ShardId {
    ShardId::new(SHARD).unwrap()
}

fn owner() -> Owner {
    let digest = [SHARD; 32];
    Owner::Identity(Identity { digest, issuer: "test".into(), subject: "trader".into() })
}

#[test]
fn a_resting_order_fills_when_the_book_crosses_it() {
    let mut world = World::new();
    world.open();
    let order = world.place(Side::Buy, 43, 150).receipt.order;
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 0));
    world.set(Side::Sell, 44, 100);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 0), "an ask above the limit does not reach it");
    world.set(Side::Sell, 43, 100);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 100));
    // What is displayed is used once. Only what is added counts.
    world.set(Side::Sell, 43, 60);
    world.set(Side::Sell, 43, 70);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 110));
    world.set(Side::Sell, 42, 500);
    world.drive();
    assert_eq!(world.order(order), ("FILLED", 150));
    let page = world.read(|state| state.accounts().next().unwrap().ledger);
    assert_eq!((page.purchases, page.fees, page.reserved), (usd(64_500), usd(0), usd(0)));
}

#[test]
fn what_a_crossing_order_takes_does_not_fill_its_rest() {
    let mut world = World::new();
    world.open();
    let placed = world.place(Side::Buy, 45, 150);
    assert_eq!(placed.receipt.fill.quantity, level(45, 100).size);
    let order = placed.receipt.order;
    world.set(Side::Buy, 41, 7);
    world.set(Side::Sell, 45, 90);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 100));
    world.set(Side::Sell, 45, 120);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 130));
}

#[test]
fn a_sale_fills_when_a_bid_reaches_it() {
    let mut world = World::new();
    world.open();
    world.place(Side::Buy, 45, 50);
    let order = world.place(Side::Sell, 44, 50).receipt.order;
    world.set(Side::Buy, 44, 20);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 20));
    world.set(Side::Buy, 46, 20);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 40), "at its own limit, not at the better bid");
    let ledger = world.read(|state| state.accounts().next().unwrap().ledger);
    assert_eq!(ledger.sales, usd(17_600));
}

#[test]
fn an_order_that_ended_does_not_fill() {
    let mut world = World::new();
    world.open();
    let order = world.place(Side::Buy, 43, 50).receipt.order;
    let account = world.read(|state| state.accounts().next().unwrap().id);
    let cancel = world.shards.execute(shard(), CancelOrder { account, order }, &world.waiters);
    world.runtime.block_on(cancel).unwrap();
    let at = START.nanos() + 60_000_000_000;
    let until = Some(Timestamp::from_nanos(at));
    let expiring = world.place_with(Side::Buy, 43, 50, until).unwrap().receipt.order;
    world.pass(60);
    world.set(Side::Sell, 43, 500);
    world.drive();
    assert_eq!(world.order(order), ("CANCELLED", 0));
    assert_eq!(world.order(expiring), ("PENDING", 0), "it has expired before its end is recorded");
    world.matcher.tick();
    assert_eq!(world.order(expiring), ("CANCELLED", 0));
    assert_eq!(world.shards.open_orders().count(), 0);
}

#[test]
fn open_orders_survive_a_restart_and_meet_the_books_of_the_new_process() {
    let mut world = World::new();
    world.open();
    let order = world.place(Side::Buy, 43, 150).receipt.order;
    world.set(Side::Sell, 43, 100);
    world.drive();
    let mut world = world.restart();
    assert_eq!(world.order(order), ("PENDING", 100));
    assert_eq!(world.shards.open_orders().count(), 1);
    world.open();
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 100), "this book does not reach it");
    world.set(Side::Sell, 43, 30);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 130));
}

#[test]
fn an_order_placed_on_a_stale_book_meets_the_first_fresh_one_as_a_new_order() {
    let mut world = World::new();
    world.open();
    world.apply(VenueChange::Stale { token_id: "t-Yes".into() });
    let order = world.place(Side::Buy, 46, 50).receipt.order;
    let far = world.place(Side::Buy, 20, 50).receipt.order;
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 0));
    let ladder = Ladder::from_levels(vec![level(40, 100)], vec![level(45, 30)]).unwrap();
    world.show(ladder);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 30));
    let ledger = world.read(|state| state.accounts().next().unwrap().ledger);
    assert_eq!(ledger.purchases, usd(13_500), "at the book's price");
    for order in [order, far] {
        let awaits = world
            .read(move |state| state.order_row(order).unwrap().order_state.unwrap().awaits_book);
        assert!(!awaits);
    }
}

#[test]
fn an_order_placed_while_the_feed_stood_still_is_judged_once_it_goes_on() {
    let mut world = World::new();
    world.open();
    let resting = world.place(Side::Buy, 43, 150).receipt.order;
    world.drive();
    // The lease runs out, and nothing changes at the venue.
    for _ in 0..2 {
        world.markets.renew_lease(Duration::ZERO);
        let [reached, far] = [46, 20].map(|cents| world.place(Side::Buy, cents, 50).receipt.order);
        world.drive();
        assert_eq!(world.order(reached), ("PENDING", 0), "nobody vouches for the book");
        world.markets.renew_lease(Duration::MAX);
        world.drive();
        assert_eq!(world.order(reached), ("FILLED", 50));
        for order in [reached, far] {
            let order_state =
                world.read(move |state| state.order_row(order).unwrap().order_state.unwrap());
            assert!(!order_state.awaits_book);
        }
        assert_eq!(world.order(resting), ("PENDING", 0));
    }
    // A lease that has not run out changes nothing, and wakes nobody.
    world.markets.renew_lease(Duration::MAX);
    assert_eq!(world.markets.crossings_waiting(), 0);
}

#[test]
fn orders_wait_while_the_fees_are_unsupported() {
    let mut world = World::new();
    world.open();
    let order = world.place(Side::Buy, 43, 50).receipt.order;
    world.list(MarketInfo { fees: Fees::Unsupported, ..MarketInfo::bare_yes_no(MARKET) });
    world.set(Side::Sell, 43, 500);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 0));
    world.list(MarketInfo::bare_yes_no(MARKET));
    world.drive();
    assert_eq!(world.order(order), ("FILLED", 50));
}

#[test]
fn a_book_from_before_an_order_does_not_fill_it() {
    let mut world = World::new();
    world.open();
    let older = world.place(Side::Buy, 43, 50).receipt.order;
    world.set(Side::Sell, 43, 500);
    world.set(Side::Sell, 43, 0);
    let newer = world.place(Side::Buy, 43, 50).receipt.order;
    world.drive();
    assert_eq!(world.order(older), ("FILLED", 50));
    assert_eq!(world.order(newer), ("PENDING", 0));
}

#[test]
fn orders_wait_while_the_market_takes_none() {
    let mut world = World::new();
    world.open();
    let order = world.place(Side::Buy, 43, 50).receipt.order;
    let paused = MarketInfo { status: MarketStatus::Paused, ..MarketInfo::bare_yes_no(MARKET) };
    world.list(paused);
    world.set(Side::Sell, 43, 500);
    world.drive();
    assert_eq!(world.order(order), ("PENDING", 0));
    world.list(MarketInfo::bare_yes_no(MARKET));
    world.drive();
    assert_eq!(world.order(order), ("FILLED", 50));
}

#[test]
fn the_venue_clears_its_books_at_the_start_of_a_game() {
    let mut world = World::new();
    world.open();
    let order = world.place(Side::Buy, 43, 50).receipt.order;
    let at = Timestamp::from_nanos(START.nanos() + 60_000_000_000);
    world.list(MarketInfo { books_cleared_at: Some(at), ..MarketInfo::bare_yes_no(MARKET) });
    let check = |world: &mut World| (0..TICKS_PER_CHECK).for_each(|_| world.matcher.tick());
    check(&mut world);
    assert_eq!(world.order(order), ("PENDING", 0));
    world.pass(60);
    let later = world.place(Side::Buy, 43, 50).receipt.order;
    check(&mut world);
    assert_eq!(world.order(order), ("CANCELLED", 0));
    assert_eq!(world.order(later), ("PENDING", 0), "it was placed after the start");
}

#[test]
fn orders_are_cancelled_once_the_heartbeat_stops() {
    let mut world = World::new();
    world.open();
    let order = world.place(Side::Buy, 43, 50).receipt.order;
    let account = world.read(|state| state.accounts().next().unwrap().id);
    let beat = |world: &World| {
        let command = SetHeartbeat { account, interval_ms: 4_000 };
        let beat = world.shards.execute(shard(), command, &world.waiters);
        world.runtime.block_on(beat).unwrap()
    };
    let silent_at = beat(&world);
    assert_eq!(silent_at.nanos() - START.nanos(), 5_000_000_000);
    world.pass(4);
    world.matcher.tick();
    beat(&world);
    world.pass(4);
    world.matcher.tick();
    assert_eq!(world.order(order), ("PENDING", 0), "it was heard again");
    let mut world = world.restart();
    world.pass(60);
    world.matcher.tick();
    assert_eq!(world.order(order), ("PENDING", 0), "a new process allows a whole interval");
    world.pass(5);
    world.matcher.tick();
    assert_eq!(world.order(order), ("CANCELLED", 0));
    assert_eq!(world.read(State::next_deadline), None, "the heartbeat has ended");
}

const fn usd(thousandths: i64) -> paperbourse_core::money::Usd {
    paperbourse_core::money::Usd::from_micros(thousandths * 1_000)
}
