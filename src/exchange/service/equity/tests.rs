//! An account trades for days; what it was worth is compared with its balance at each hour.

use std::sync::atomic::{AtomicI64, Ordering};

use tokio::runtime::{Builder, Runtime};

use super::*;
use crate::auth::identity::embedded::EmbeddedIssuer;
use crate::auth::presented::Presented;
use crate::service::{Moment, OrdersRequest, Page, Parts, UndoOutcome};
use crate::shard::Refusal;
use paperbourse_core::engine::admin::acts::OperatorCommand;
use paperbourse_core::engine::admin::standing::{Act, DEPOSITS_KEPT_MAX, Operator};
use paperbourse_core::engine::command::{
    DecideSettlement, OrderNames, Owner, Settle, Trade, TradeOrder,
};
use paperbourse_core::engine::fills::undone::{UNDONE_FILLS_MAX, UndoFlaw};
use paperbourse_core::engine::market::payout::Decision;
use paperbourse_core::engine::market::settlement::Payment as Paid;
use paperbourse_core::engine::state::view::{
    Observed, OrderCursor, OrderFilter, ROWS_PER_READ_MAX,
};
use paperbourse_core::engine::{Rules, State};
use paperbourse_core::ids::{Lsn, ShardId};
use paperbourse_core::limits::tier::Tier;
use paperbourse_core::market::book::{Ladder, Level};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse_core::money::{Price, Shares};
use paperbourse_core::sizes;
use paperbourse_store::disk::simulated::random::Random;
use paperbourse_store::journal::Waiters;
use paperbourse_venue::feed::{Feed, MismatchPolicy};
use paperbourse_venue::{BookReplaced, VenueChange, VenueEvent};

/// A full hour.
const START: i64 = 1_800_000_000;
const MARKETS: usize = 4;
const LABELS: [&str; 2] = ["Yes", "No"];

struct World {
    service: Service,
    feed: Feed,
    wall: Arc<AtomicI64>,
    waiters: Arc<Waiters>,
    runtime: Runtime,
    caller: Caller,
    /// How far the venue's clock is ahead of ours, in seconds.
    ahead: i64,
}

/// Time, cash, value of the positions and profit.
type Row = (i64, Usd, Usd, Usd);

impl World {
    fn new(ahead: i64) -> Self {
        sizes::make_small();
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let issuer = EmbeddedIssuer::in_memory().unwrap();
        let token = issuer.mint("someone", None, 3_600, Timestamp::from_seconds(START)).unwrap();
        let wall = Arc::new(AtomicI64::new(START * 1_000_000_000));
        let (parts, journal) = Parts::in_memory(issuer, wall.clone());
        let service = Service::new(parts);
        let waiters = journal.register();
        runtime.spawn({
            let waiters = waiters.clone();
            async move { waiters.run().await }
        });
        let moment = Moment { now: Timestamp::from_seconds(START), monotonic_ns: 0 };
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        let context = RequestContext { moment, address, waiters: &waiters };
        let caller = runtime.block_on(async {
            let presented = Presented::Token(&token);
            let owner = service.identify(&presented, address, moment).await.unwrap();
            let permissions = paperbourse_core::engine::key::Permissions::ALL;
            let request =
                crate::service::NewKeyRequest { name: None, tier: Tier::Free, permissions };
            let new = service.create_key(&owner, request, true, context).await.unwrap();
            let key = Presented::Key(new.raw.expose().as_bytes());
            service.identify(&key, address, moment).await.unwrap()
        });
        let mut feed = Feed::new(service.markets().clone(), MismatchPolicy::Count);
        let at = Timestamp::from_seconds(START + ahead);
        let change = VenueChange::Listed((0..=MARKETS).map(info).collect());
        feed.apply(VenueEvent { at, change });
        let mut world = Self { service, feed, wall, waiters, runtime, caller, ahead };
        for market in 0..MARKETS {
            world.show(market, 0, 40);
        }
        world
    }

    fn now(&self) -> i64 {
        self.wall.load(Ordering::Relaxed) / 1_000_000_000
    }

    fn set(&self, seconds: i64) {
        self.wall.store(seconds * 1_000_000_000, Ordering::Relaxed);
    }

    fn context(&self) -> RequestContext<'_> {
        let moment = Moment { now: Timestamp::from_seconds(self.now()), monotonic_ns: 0 };
        let address = std::net::Ipv4Addr::LOCALHOST.into();
        RequestContext { moment, address, waiters: &self.waiters }
    }

    fn apply(&mut self, change: VenueChange) {
        let at = Timestamp::from_seconds(self.now() + self.ahead);
        self.feed.apply(VenueEvent { at, change });
    }

    /// Shows a book with a bid at this price and an ask above it.
    fn show(&mut self, market: usize, outcome: usize, cents: i64) {
        let level = |cents: i64| Level {
            price: Price::from_micros(cents * 10_000),
            size: Shares::from_micros(1 << 40),
        };
        let ladder = Ladder::from_levels(vec![level(cents)], vec![level(cents + 3)]).unwrap();
        let token_id = token(market, outcome);
        self.apply(VenueChange::Book(BookReplaced::new(token_id, ladder)));
    }

    /// Returns whether the order filled.
    fn trade(&self, market: usize, outcome: usize, side: Side, micros: i64) -> bool {
        let order = TradeOrder {
            market_id: id(market).into(),
            outcome: LABELS[outcome].into(),
            side,
            quantity: Shares::from_micros(micros),
            expected_price: None,
            max_slippage_bps: None,
        };
        let account = self.caller.account().unwrap();
        let owner = Owner::Account(account);
        let command = Trade::new(owner, order, OrderNames::default());
        let shards = &self.service.shards;
        let placed = self.runtime.block_on(shards.execute(account.shard(), command, &self.waiters));
        match placed {
            Ok(_) => true,
            Err(Refusal::Rejected(_)) => false,
            Err(other) => panic!("{other:?}"),
        }
    }

    /// Undoes the newest fill, if there is one and nothing speaks against it.
    fn undo(&self) -> bool {
        let account = self.caller.account().unwrap();
        let newest = move |state: &State| {
            let count = state.account(account).unwrap().fill_count_ever();
            let rows = state.observe_fills(account, count.saturating_sub(1), 1).value.unwrap().rows;
            Observed { value: rows.into_iter().next(), lsn: Lsn::START }
        };
        self.runtime.block_on(async {
            let shards = &self.service.shards;
            let row = shards.observe(account.shard(), &self.waiters, newest).await.unwrap();
            let Some(FillRow { order, part, .. }) = row else { return false };
            let undone = self.service.undo_fill(account, order, part, &self.waiters).await.unwrap();
            let again = self.service.undo_fill(account, order, part, &self.waiters).await.unwrap();
            if undone == UndoOutcome::Undone {
                assert_eq!(again, UndoOutcome::Stays(UndoFlaw::UndoneBefore));
            }
            undone == UndoOutcome::Undone
        })
    }

    /// The venue says what the market pays.
    fn resolve(&mut self, market: usize) {
        let (status, payouts) = (MarketStatus::Resolved, vec![Price::ONE, Price::ZERO]);
        let evidence = Some("the test".into());
        let info = MarketInfo { status, payouts, evidence, ..info(market) };
        self.apply(VenueChange::Listed(vec![info]));
    }

    /// Pays it.
    fn settle(&self, market: usize) {
        let tokens = [token(market, 0), token(market, 1)];
        let payouts = tokens.into_iter().zip([Price::ONE, Price::ZERO]).collect();
        let condition_id = id(market).into();
        let decision = Arc::new(Decision { condition_id, payouts, evidence: "the test".into() });
        let shards = &self.service.shards;
        self.runtime.block_on(async {
            let home = Decision::home(&decision.condition_id);
            let decide = DecideSettlement(decision.clone());
            shards.execute(home, decide, &self.waiters).await.unwrap();
            for shard in ShardId::all() {
                let pay = || shards.execute(shard, Settle(decision.clone()), &self.waiters);
                while pay().await.unwrap() == Paid::Part {}
            }
        });
    }

    /// Returns whether there was anything to reset.
    fn reset(&self) -> bool {
        let count = || self.runtime.block_on(self.service.profile(&self.caller, self.context()));
        let before = count().unwrap().reset_count;
        self.runtime.block_on(self.service.reset(&self.caller, self.context())).unwrap();
        count().unwrap().reset_count > before
    }

    /// An operator deposits this many dollars.
    fn deposit(&self, dollars: usize, number: usize) {
        let amount = Usd::from_micros(i64::try_from(dollars).unwrap() * 1_000_000);
        let token = u128::try_from(number).unwrap().to_be_bytes();
        let command = OperatorCommand {
            account: self.caller.account().unwrap(),
            act: Act::Deposit { amount, token },
            by: Operator { uid: 0, user: None },
            reason: "the test".into(),
        };
        let acted = self.runtime.block_on(self.service.act(command, &self.waiters)).unwrap();
        assert!(acted.is_new);
    }

    /// What the account is worth now.
    fn row(&self) -> Row {
        let balance = self.service.balance(&self.caller, self.context());
        let balance = self.runtime.block_on(balance).unwrap();
        (self.now(), balance.ledger.cash(), balance.position_value, balance.profit())
    }

    fn equity(&self, hours: u32) -> Vec<Row> {
        let history = self.service.equity(&self.caller, hours, self.context());
        let history = self.runtime.block_on(history).unwrap();
        let row = |point: &EquityPoint| {
            (point.at.seconds(), point.cash, point.position_value, history.profit(point))
        };
        history.equity.points().iter().map(row).collect()
    }
}

fn id(market: usize) -> String {
    format!("market {market}")
}

fn token(market: usize, outcome: usize) -> Arc<str> {
    format!("{} of {market}", LABELS[outcome]).into()
}

fn info(market: usize) -> MarketInfo {
    let outcome =
        |index: usize| Outcome { label: LABELS[index].into(), token_id: token(market, index) };
    MarketInfo::bare(&id(market), [outcome(0), outcome(1)])
}

/// Trades at random for `hours`, and compares at random times.
fn walk(seed: u64, ahead: i64, hours: i64) {
    let mut world = World::new(ahead);
    let mut random = Random::new(seed);
    let mut expected: Vec<Row> = Vec::new();
    let mut fills: Vec<i64> = Vec::new();
    let mut is_resolved = [false; MARKETS];
    // No more than an account remembers.
    let (mut deposit_count, mut undone_count) = (0, 0);
    let mut compared_count = 0;
    for hour in 0..hours {
        let start = START + hour * HOUR_SECONDS;
        world.set(start);
        expected.push(world.row());
        for minute in 1..=i64::try_from(random.below(12)).unwrap() {
            world.set(start + minute * 60);
            let (market, outcome) = (random.below(MARKETS), random.below(2));
            match random.below(60) {
                0 if world.reset() => (expected, fills) = (Vec::new(), Vec::new()),
                // The last market stays open.
                1 if market + 1 < MARKETS && !is_resolved[market] => {
                    world.resolve(market);
                    is_resolved[market] = true;
                }
                2..10 => world.show(market, outcome, 1 + i64::try_from(random.below(90)).unwrap()),
                10..30 => {
                    let side = if random.one_in(2) { Side::Buy } else { Side::Sell };
                    let micros = 5_000_000 + i64::try_from(random.below(9)).unwrap() * 333_333;
                    if world.trade(market, outcome, side, micros) {
                        fills.push(world.now());
                    }
                }
                35..40 if undone_count < UNDONE_FILLS_MAX.get() => {
                    undone_count += usize::from(world.undo());
                }
                30..33 if is_resolved[market] => world.settle(market),
                33..35 if deposit_count < DEPOSITS_KEPT_MAX => {
                    world.deposit(1 + random.below(900), deposit_count);
                    deposit_count += 1;
                }
                _ => {}
            }
        }
        if random.one_in(4) {
            world.set(start + 3_599);
            // A tape sends something all the time. Nobody trades in this market.
            world.show(MARKETS, 0, 50);
            let hours = 1 + u32::try_from(random.below(60)).unwrap();
            check(&world, hours, &expected, &fills);
            compared_count += 1;
        }
    }
    assert!(compared_count > 0);
}

/// Compares with what the balance was at each hour; `fills` are the times of those since the
/// account began.
#[track_caller]
fn check(world: &World, hours: u32, expected: &[Row], fills: &[i64]) {
    let hours_before = i64::from(hours) - 1;
    let oldest = world.now() - hours_before * HOUR_SECONDS;
    let read_from = fills.len().checked_sub(FILLS_MAX).map_or(0, |index| fills[index]);
    let within = |row: &&Row| row.0 >= oldest && row.0 >= read_from;
    let mut expected: Vec<Row> = expected.iter().filter(within).copied().collect();
    expected.push(world.row());
    let found = world.equity(hours);
    // All outcomes can have been held.
    assert!(found.len() >= expected.len().min(PRICES_MAX / (2 * MARKETS)), "{found:?}");
    assert_eq!(found, expected[expected.len() - found.len()..]);
}

#[test]
fn equity_at_each_hour_is_the_balance_of_that_hour() {
    for seed in 0..12 {
        walk(seed, 0, 120);
    }
}

/// The venue's clock differs by whole hours, as on a tape in real time.
#[test]
fn prices_of_a_tape_are_those_of_its_own_hours() {
    walk(100, -1_000 * HOUR_SECONDS, 60);
}

#[test]
fn a_position_is_priced_at_each_hour() {
    let mut world = World::new(0);
    let mut expected = vec![world.row()];
    world.set(world.now() + HOUR_SECONDS);
    assert!(world.trade(0, 0, Side::Buy, 10_000_000));
    expected.push(world.row());
    for cents in [50, 60, 20] {
        world.set(world.now() + 1);
        world.show(0, 0, cents);
        world.set(world.now() + HOUR_SECONDS - 1);
        expected.push(world.row());
    }
    assert_eq!(world.equity(9), expected);
    assert_eq!(world.equity(2), expected[3..]);
    assert_eq!(world.equity(1), expected[4..]);
    let values: Vec<_> = expected.iter().map(|row| row.2.micros()).collect();
    assert_eq!(values, [0, 4_150_000, 5_150_000, 6_150_000, 2_150_000]);
}

/// Every position costs a look-up at each hour, so many positions shorten the answer.
#[test]
fn many_positions_shorten_an_answer() {
    let world = World::new(0);
    for market in 0..MARKETS {
        assert!(world.trade(market, 0, Side::Buy, 5_000_000));
    }
    world.set(START + 200 * HOUR_SECONDS);
    assert_eq!(world.equity(60).len(), 60);
    assert_eq!(world.equity(200).len(), PRICES_MAX / MARKETS);
}

/// With more fills than are read, the answer begins at the oldest of them.
#[test]
fn many_fills_shorten_an_answer() {
    let world = World::new(0);
    let mut expected = Vec::new();
    for minute in 0..4 * i64::try_from(FILLS_MAX).unwrap() {
        world.set(START + minute * 60 + 30);
        if minute % 2 == 0 {
            assert!(world.trade(0, 0, Side::Buy, 5_000_000));
        }
        if minute % 60 == 59 {
            world.set(START + (minute + 1) * 60);
            expected.push(world.row());
        }
    }
    // The 40 fills of the last 80 minutes.
    expected.push(world.row());
    assert_eq!(world.equity(90), expected[expected.len() - 2..]);
}

/// An account that does not trade has the same at every hour since it was opened or reset.
#[test]
fn hours_before_the_account_are_left_out() {
    let world = World::new(0);
    let hour = |number: i64| START + number * HOUR_SECONDS;
    world.set(hour(3) + 1);
    let starting = Rules::default().starting_balance;
    let row = |seconds| (seconds, starting, Usd::ZERO, Usd::ZERO);
    let all: Vec<Row> = [hour(0), hour(1), hour(2), hour(3), hour(3) + 1].map(row).into();
    assert_eq!(world.equity(48), all);
    assert_eq!(world.equity(2), all[3..]);
    assert!(world.trade(0, 0, Side::Buy, 5_000_000));
    assert!(world.reset());
    assert_eq!(world.equity(48), [row(hour(3) + 1)]);
    world.set(hour(5));
    assert_eq!(world.equity(48), [row(hour(4)), row(hour(5))]);
}

/// A request that reads much without waiting for the disk still lets others run.
#[test]
fn between_the_reads_of_a_request_its_worker_serves_others() {
    fn pending_count<T>(world: &World, request: impl Future<Output = T>) -> (usize, T) {
        let mut request = std::pin::pin!(request);
        let mut count = 0;
        let value = world.runtime.block_on(std::future::poll_fn(|context| {
            let poll = request.as_mut().poll(context);
            count += usize::from(poll.is_pending());
            poll
        }));
        (count, value)
    }

    let world = World::new(0);
    for _ in 0..=ROWS_PER_READ_MAX {
        assert!(world.trade(0, 0, Side::Buy, 5_000_000));
    }
    let (service, caller) = (&world.service, &world.caller);
    let fills = |filter, limit| {
        service.fill_history(caller, filter, FillCursor::newest(0), limit, world.context())
    };
    // Five fills are examined in a read.
    let (count, list) = pending_count(&world, fills(FillFilter::default(), 11));
    assert_eq!((count, list.unwrap().fills.len()), (2, 11));
    let sales = FillFilter { side: Some(Side::Sell), ..FillFilter::default() };
    let (count, list) = pending_count(&world, fills(sales, 1));
    assert_eq!((count, list.unwrap().fills.len()), (ROWS_PER_READ_MAX / 5, 0));
    let request = |limit| OrdersRequest {
        only: None,
        filter: OrderFilter::default(),
        from: OrderCursor::START,
        page: Page { limit, offset: 0 },
    };
    for (limit, expected) in [(ROWS_PER_READ_MAX, 0), (ROWS_PER_READ_MAX + 1, 1)] {
        let orders = service.orders(caller, request(limit), world.context());
        let (count, list) = pending_count(&world, orders);
        assert_eq!((count, list.unwrap().orders.len()), (expected, limit));
    }
}
