use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};

use tokio::runtime::Builder;

use super::*;
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::Rules;
use paperbourse_core::engine::command::{Identity, OrderNames, Owner, Trade, TradeOrder};
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::order::place::Placed;
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::ids::{AccountId, OutcomeIndex, Timestamp};
use paperbourse_core::market::book::{Book, Ladder, Level, Side};
use paperbourse_core::market::catalogue::Outcome as MarketOutcome;
use paperbourse_core::money::{Price, Shares, Usd};
use paperbourse_store::disk::simulated::random::Random;
use paperbourse_store::journal::{JournalConfig, MemoryJournal};
use paperbourse_store::snapshot::Recovered;

const START: Usd = Usd::from_micros(1_000_000_000_000);
const MARKET_COUNT: usize = 40;

struct World {
    memory: MemoryJournal,
    journal: Arc<Journal>,
    markets: Arc<Markets>,
    shards: Arc<Shards>,
}

/// Shards that continue from the recovered states, and markets that are open unless decided before.
fn world(recovered: Recovered, memory: MemoryJournal) -> (World, Settler) {
    let Decisions { made, unpaid, .. } = Decisions::of(recovered.states());
    let made = made.values().map(|it| (it.condition_id.clone(), it.payouts.clone()));
    let markets = Arc::new(Markets::remembering(made));
    let journal = Arc::new(Journal::from(memory.clone()));
    let shards = Shards::new(
        recovered,
        journal.clone(),
        markets.clone(),
        Rules { starting_balance: START, ..Rules::default() },
        Clock::System,
        Arc::default(),
        Box::new(|_: &Event, _: &State| {}),
    );
    let shards = Arc::new(shards);
    let settler = Settler::new(markets.clone(), shards.clone(), &journal, unpaid);
    let world = World { memory, journal, markets, shards };
    for market in 0..MARKET_COUNT {
        world.open(market);
    }
    (world, settler)
}

fn new_world() -> (World, Settler) {
    world(Recovered::default(), MemoryJournal::keeping(&JournalConfig::default()))
}

fn id(market: usize) -> String {
    format!("market {market}")
}

fn info(market: usize) -> MarketInfo {
    let outcomes = ["Yes", "No"].map(|label| MarketOutcome {
        label: label.into(),
        token_id: format!("{label} of {market}").into(),
    });
    MarketInfo::bare(&id(market), outcomes)
}

/// The payout of each outcome of a market.
fn payouts(market: usize) -> [Price; 2] {
    let half = Price::from_micros(500_000);
    [[Price::ONE, Price::ZERO], [Price::ZERO, Price::ONE], [half, half]][market % 3]
}

fn resolved(market: usize) -> MarketInfo {
    let (status, payouts) = (MarketStatus::Resolved, payouts(market).to_vec());
    MarketInfo { status, payouts, evidence: Some("the test".into()), ..info(market) }
}

/// A trader's identity, in one of five shards.
fn identity(trader: u8) -> Identity {
    let mut digest = [trader; 32];
    digest[0] = trader % 5;
    Identity { digest, issuer: "test".into(), subject: format!("trader {trader}").into() }
}

fn order(trader: u8, market: usize, outcome: usize, side: Side, micros: i64) -> Trade {
    let order = TradeOrder {
        market_id: id(market).into(),
        outcome: ["Yes", "No"][outcome].into(),
        side,
        quantity: Shares::from_micros(micros),
        expected_price: None,
        max_slippage_bps: None,
    };
    Trade::new(Owner::Identity(identity(trader)), order, OrderNames::default())
}

impl World {
    fn open(&self, market: usize) {
        self.markets.list(vec![info(market)]).unwrap();
        let level = |cents: i64| Level {
            price: Price::from_micros(cents * 10_000),
            size: Shares::from_micros(1 << 50),
        };
        let ladder = Ladder::from_levels(vec![level(40)], vec![level(45)]).unwrap();
        let book = Arc::new(Book::new(ladder, Timestamp::EPOCH));
        let market = self.markets.by_condition(&id(market)).unwrap();
        self.markets.publish(&market, OutcomeIndex(0), book);
    }

    /// Reads all shards, which are idle.
    fn each_state<T: Send + 'static>(&self, read: fn(&State) -> T) -> Vec<T> {
        let waiters = self.journal.register();
        let runtime = Builder::new_current_thread().build().unwrap();
        let all = ShardId::all().map(|shard| {
            let read = self.shards.observe(shard, &waiters, move |state| Observed {
                value: read(state),
                lsn: Lsn::START,
            });
            runtime.block_on(read).unwrap()
        });
        all.collect()
    }

    /// The states that a new process recovers.
    fn recovered(&self) -> Recovered {
        let mut recovered = Recovered::default();
        for record in self.memory.records() {
            recovered.replay(0, &record, &|_, _| {}).unwrap();
        }
        recovered
    }

    fn is_fully_settled(&self) -> bool {
        let unsettled = self.each_state(|state| {
            (0..MARKET_COUNT).filter(|&market| state.is_unsettled(&id(market))).count()
        });
        unsettled.into_iter().sum::<usize>() == 0
    }
}

/// A trader's own record of their account, from the answers to their orders.
#[derive(Default, Debug)]
struct OwnBooks {
    account: Option<AccountId>,
    spent_micros: i64,
    held_micros: BTreeMap<(usize, usize), i64>,
    closed: BTreeMap<usize, u64>,
    fill_count: u64,
}

/// State shared by all traders.
#[derive(Default)]
struct Trading {
    /// How many traders have filled an order.
    traders: AtomicUsize,
    fills: AtomicU64,
    is_over: AtomicBool,
}

impl OwnBooks {
    /// Trades at random until `trading.is_over`.
    fn trade(world: &World, trader: u8, trading: &Trading) -> Self {
        let runtime = Builder::new_current_thread().enable_time().build().unwrap();
        let waiters = world.journal.register();
        runtime.spawn({
            let waiters = waiters.clone();
            async move { waiters.run().await }
        });
        let mut random = Random::new(trader.into());
        let mut books = Self::default();
        while !trading.is_over.load(Ordering::Relaxed) {
            let (market, outcome) = (random.below(MARKET_COUNT), random.below(2));
            let side = if random.one_in(3) { Side::Sell } else { Side::Buy };
            let micros = 1 + i64::try_from(random.below(3_000_000)).unwrap();
            let command = order(trader, market, outcome, side, micros);
            let shard = identity(trader).shard();
            let answer =
                runtime.block_on(async { world.shards.execute(shard, command, &waiters).await });
            match answer {
                Ok(Placed { receipt, .. }) => {
                    assert!(!books.closed.contains_key(&market), "{market} was closed");
                    let sign = if side == Side::Buy { 1 } else { -1 };
                    books.account = Some(receipt.account);
                    books.spent_micros += sign * receipt.fill.notional.micros();
                    *books.held_micros.entry((market, outcome)).or_default() += sign * micros;
                    books.fill_count += 1;
                    trading.fills.fetch_add(1, Ordering::Relaxed);
                    if books.fill_count == 1 {
                        trading.traders.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Err(Refusal::Rejected(Rejection::MarketClosed { .. })) => {
                    *books.closed.entry(market).or_default() += 1;
                }
                Err(Refusal::Rejected(Rejection::InsufficientPosition { .. }) | Refusal::Busy) => {}
                other => panic!("{other:?}"),
            }
        }
        books
    }

    /// Checks the account against the trader's own record and the payouts.
    fn check(&self, states: &[State]) {
        let state = &states[self.account.unwrap().shard().index()];
        let account = state.account(self.account.unwrap()).unwrap();
        let pays = |(&(market, outcome), &micros): (&(usize, usize), &i64)| {
            micros * payouts(market)[outcome].micros() / 1_000_000
        };
        let payouts: i64 = self.held_micros.iter().map(pays).sum();
        assert_eq!(account.ledger().payouts.micros(), payouts, "{self:?}");
        assert_eq!(account.ledger().cash().micros(), START.micros() - self.spent_micros + payouts);
        assert!(account.positions().iter().all(|position| !position.is_open()));
        let held = self.held_micros.values().filter(|&&micros| micros > 0).count();
        let settlements = state.settlements().filter(|(id, ..)| *id == account.id());
        assert_eq!(settlements.count(), held, "one settlement for each position held");
    }
}

/// Sixteen traders trade in all markets at once while the markets are resolved one by one.
#[test]
fn orders_that_race_a_settlement_leave_no_open_position() {
    const TRADER_COUNT: u8 = 16;
    let (world, settler) = new_world();
    let trading = Trading::default();
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    runtime.spawn(settler.run());
    let books: Vec<OwnBooks> = std::thread::scope(|scope| {
        let traders: Vec<_> = (0..TRADER_COUNT)
            .map(|trader| {
                let (world, trading) = (&world, &trading);
                scope.spawn(move || OwnBooks::trade(world, trader, trading))
            })
            .collect();
        // On a busy machine a thread may start only after the others have traded in all markets.
        while trading.traders.load(Ordering::Relaxed) < TRADER_COUNT.into() {
            std::thread::yield_now();
        }
        for market in 0..MARKET_COUNT {
            // Every market, the last one included, is resolved in the middle of trading.
            let seen = trading.fills.load(Ordering::Relaxed);
            while trading.fills.load(Ordering::Relaxed) < seen + 40 {
                std::thread::yield_now();
            }
            world.markets.list(vec![resolved(market)]).unwrap();
        }
        while !world.is_fully_settled() {
            std::thread::yield_now();
        }
        trading.is_over.store(true, Ordering::Relaxed);
        traders.into_iter().map(|trader| trader.join().unwrap()).collect()
    });
    let recovered = world.recovered();
    let states: Vec<State> = recovered.states().cloned().collect();
    let live = world.each_state(State::hash);
    assert!(states.iter().map(State::hash).eq(live), "the journal replays to the state in memory");
    for own in &books {
        own.check(&states);
    }
    let count = |of: fn(&OwnBooks) -> u64| books.iter().map(of).sum::<u64>();
    assert!(count(|own| own.fill_count) > 40 * MARKET_COUNT as u64);
    assert!(count(|own| own.closed.values().sum()) > 0, "no order met a market that was resolved");
    let decisions: usize = states.iter().map(|state| state.decisions().len()).sum();
    let held = books.iter().flat_map(|own| own.held_micros.keys());
    let used: BTreeSet<usize> = held.map(|&(market, _)| market).collect();
    assert_eq!(decisions, used.len(), "one decision for each market that was traded");
}

/// Runs a settler until the first `market_count` markets are settled.
fn settle(world: &World, settler: Settler, market_count: usize) {
    let runtime = Builder::new_multi_thread().worker_threads(1).enable_time().build().unwrap();
    runtime.spawn(settler.run());
    let decided = || -> usize { world.each_state(|state| state.decisions().len()).iter().sum() };
    while decided() < market_count || !world.is_fully_settled() {
        std::thread::yield_now();
    }
}

/// The payouts of all accounts, in micro-dollars.
fn paid_micros(world: &World) -> i64 {
    let paid = world.each_state(|state| -> i64 {
        state.accounts().map(|account| account.ledger.payouts.micros()).sum()
    });
    paid.into_iter().sum()
}

/// A process may end after any record: the next one finishes the settlement, even if its venue does
/// not report the resolution again.
#[test]
fn a_restarted_process_finishes_a_settlement_cut_after_any_record() {
    const RESOLVED_COUNT: usize = 3;
    let (world, settler) = new_world();
    let runtime = Builder::new_current_thread().build().unwrap();
    let waiters = world.journal.register();
    for trader in 0..8 {
        for market in 0..RESOLVED_COUNT {
            for outcome in 0..2 {
                let command = order(trader, market, outcome, Side::Buy, 1_000_001);
                let shard = identity(trader).shard();
                runtime.block_on(async {
                    let trade = world.shards.execute(shard, command, &waiters);
                    tokio::select! {
                        filled = trade => assert!(filled.is_ok(), "{filled:?}"),
                        () = waiters.run() => {}
                    }
                });
            }
        }
    }
    let traded = world.memory.records().len();
    let all_resolved = || (0..RESOLVED_COUNT).map(resolved).collect();
    world.markets.list(all_resolved()).unwrap();
    settle(&world, settler, RESOLVED_COUNT);
    // One dollar for each pair of shares; two half payouts are each rounded down.
    assert_eq!(paid_micros(&world), 8 * (1_000_001 + 1_000_001 + 1_000_000));
    let records = world.memory.records();
    assert!(records.len() > traded + RESOLVED_COUNT, "decisions, and payments by shards");
    for cut in traded..=records.len() {
        let mut recovered = Recovered::default();
        for record in &records[..cut] {
            recovered.replay(0, record, &|_, _| {}).unwrap();
        }
        let decided: usize = recovered.states().map(|state| state.decisions().len()).sum();
        let memory = MemoryJournal::keeping(&JournalConfig::default());
        let (again, settler) = self::world(recovered, memory);
        if decided < RESOLVED_COUNT {
            again.markets.list(all_resolved()).unwrap();
        }
        settle(&again, settler, RESOLVED_COUNT);
        assert_eq!(paid_micros(&again), paid_micros(&world), "after {cut} records");
        let written = again.memory.records().len();
        assert!(written >= records.len() - cut, "{written} records after {cut}");
        assert!(cut < records.len() || written == 0, "nothing was left to do");
    }
}

/// A payout for one token does not settle shares of another.
#[test]
fn a_market_that_a_shard_cannot_settle_stays_unsettled() {
    for (is_same, unsettled) in [(true, 0), (false, 1)] {
        let (world, _) = new_world();
        let runtime = Builder::new_current_thread().build().unwrap();
        let waiters = world.journal.register();
        let bought = world.shards.execute(
            identity(1).shard(),
            order(1, 0, 0, Side::Buy, 1_000_000),
            &waiters,
        );
        runtime.block_on(bought).unwrap();
        let mut info = resolved(0);
        if !is_same {
            info.outcomes[0].token_id = "another token".into();
        }
        let markets = Arc::new(Markets::new());
        markets.list(vec![info]).unwrap();
        assert_eq!(markets.unsettled_count(), 1);
        let settler = Settler::new(markets.clone(), world.shards.clone(), &world.journal, vec![]);
        let market = markets.by_condition(&id(0)).unwrap();
        runtime.block_on(settler.settle(&[market]));
        assert_eq!(markets.unsettled_count(), unsettled, "the same tokens: {is_same}");
    }
}
