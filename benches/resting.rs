//! The cost of resting orders: of the engine for each order, and of the feed for each change of a
//! book.
//!
//! Everything is measured with 1,000 and with 100,000 orders at rest in 1,000 markets. All of them
//! are in one shard, which in a server would have a sixty-fourth of them.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, criterion_group, criterion_main};

use paperbourse::engine::command::{
    CancelOrder, Identity, MatchOrders, OpenAccount, OrderNames, Owner, PlaceOrder,
};
use paperbourse::engine::event::{Event, Events};
use paperbourse::engine::order::payload::NewOrder;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{AccountId, Lsn, OrderId, OutcomeIndex, ShardId, Timestamp};
use paperbourse::market::Markets;
use paperbourse::market::book::{Book, Ladder, Side};
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::market::quote::Quote;
use paperbourse::money::{Price, Shares, Usd};
use paperbourse::venue::feed::{Feed, MismatchPolicy};
use paperbourse::venue::{BookReplaced, LevelChanged, VenueChange, VenueEvent};

#[path = "../perf/market.rs"]
#[expect(dead_code, reason = "shared with code that needs other books")]
mod market;

use market::level;

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const MARKET_COUNT: u64 = 1_000;
const ACCOUNT_COUNT: u64 = 1_000;
const RESTING_COUNTS: [u64; 2] = [1_000, 100_000];
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
/// The number of orders that one change of a book fills.
const FILLED_COUNT: u64 = 10;

fn rules() -> Rules {
    Rules { starting_balance: Usd::from_micros(1_000_000_000_000), ..Rules::default() }
}

fn shard() -> ShardId {
    ShardId::new(0).expect("the first shard")
}

fn account(number: u64) -> AccountId {
    AccountId::new(shard(), number + 1).expect("a small counter")
}

fn market_id(number: u64) -> Arc<str> {
    format!("0x{number:064x}").into()
}

fn info(number: u64) -> MarketInfo {
    let outcomes = ["Yes", "No"]
        .map(|label| Outcome { label: label.into(), token_id: format!("{label}{number}").into() });
    MarketInfo::bare(&market_id(number), outcomes)
}

/// Five levels a side, bids from 48 cents down and asks from 52 cents up.
fn ladder() -> Ladder {
    let bids = (0..5).map(|step| level(48 - step, 100)).collect();
    let asks = (0..5).map(|step| level(52 + step, 100)).collect();
    Ladder::from_levels(bids, asks).expect("levels of a book")
}

/// The same with an ask at 50 cents.
fn crossing_ladder() -> Ladder {
    let bids = (0..5).map(|step| level(48 - step, 100)).collect();
    let asks = [50, 52, 53, 54, 55].map(|cents| level(cents, 100)).to_vec();
    Ladder::from_levels(bids, asks).expect("levels of a book")
}

/// A purchase of 5 shares.
fn limit_order(account_number: u64, market_number: u64, cents: i64) -> PlaceOrder {
    let market_id = market_id(market_number);
    let quantity = Shares::from_micros(5_000_000);
    let price = Price::from_micros(cents * 10_000);
    let order = NewOrder::limit(&market_id, "yes", Side::Buy, quantity, price);
    PlaceOrder::new(Owner::Account(account(account_number)), order, OrderNames::default())
}

/// Decides and applies. The events would go to the journal; here they are dropped.
fn run<C: Command>(state: &mut State, command: &C, quote: Option<&Quote<'_>>) -> Events {
    let verdict = state.decide(command, quote, NOW, &rules());
    let Ok(Verdict::Happens(events, subject)) = verdict else { panic!("nothing happens") };
    state.apply(&events, Lsn::new(0, state.sequence() + 1));
    C::remember(state, &subject);
    events
}

struct World {
    state: State,
    infos: Vec<MarketInfo>,
    book: Book,
    /// The era of the newest book that crosses orders.
    era: u32,
}

impl World {
    /// Orders at 40 to 47 cents, which no book crosses.
    fn new(resting_count: u64) -> Self {
        let mut state = State::new(shard());
        for number in 0..ACCOUNT_COUNT {
            let mut digest = [0; 32];
            digest[8..16].copy_from_slice(&number.to_le_bytes());
            let subject = number.to_string().into();
            let identity = Identity { digest, issuer: "https://bench".into(), subject };
            run(&mut state, &OpenAccount(identity), None);
        }
        let infos = (0..MARKET_COUNT).map(info).collect();
        let mut world = Self { state, infos, book: Book::new(ladder(), NOW), era: 0 };
        for number in 0..resting_count {
            let cents = 40 + i64::try_from(number / MARKET_COUNT % 8).expect("a small number");
            world.place(number % ACCOUNT_COUNT, number % MARKET_COUNT, cents);
        }
        world
    }

    fn place(&mut self, account_number: u64, market_number: u64, cents: i64) -> OrderId {
        let order = limit_order(account_number, market_number, cents);
        let Self { state, infos, book, .. } = self;
        let info = &infos[usize::try_from(market_number).expect("a small number")];
        let events = run(state, &order, Some(&Quote::new(info, [Some(&*book), None])));
        let Some(Event::OrderPlaced(placed)) = events.last() else { panic!("it rests") };
        placed.placement.order
    }

    /// The time to place this many orders, and to cancel them.
    fn place_and_cancel(&mut self, count: u64) -> [Duration; 2] {
        let mut elapsed = [Duration::ZERO; 2];
        let mut left = count;
        while left > 0 {
            let batch = left.min(ACCOUNT_COUNT);
            let orders: Vec<PlaceOrder> = (0..batch)
                .map(|number| limit_order(number, number * 7 % MARKET_COUNT, 45))
                .collect();
            let first = self.state.head().orders_ever + 1;
            let Self { state, infos, book, .. } = self;
            let began = Instant::now();
            for (number, order) in (0..).zip(&orders) {
                let info = &infos[number * 7 % 1_000];
                black_box(run(state, order, Some(&Quote::new(info, [Some(&*book), None]))));
            }
            elapsed[0] += began.elapsed();
            let cancels: Vec<CancelOrder> = (0..batch)
                .map(|number| CancelOrder {
                    account: account(number),
                    order: OrderId::new(shard(), first + number).expect("a small counter"),
                })
                .collect();
            let began = Instant::now();
            for cancel in &cancels {
                black_box(run(state, cancel, None));
            }
            elapsed[1] += began.elapsed();
            left -= batch;
        }
        elapsed
    }

    /// The time of this many matches, each of which fills [`FILLED_COUNT`] orders of as many
    /// accounts.
    fn match_orders(&mut self, count: u64) -> Duration {
        let mut elapsed = Duration::ZERO;
        for round in 0..count {
            let mut crossing = Book::new(crossing_ladder(), NOW);
            crossing.sequence = 2;
            // What the level showed in an earlier era may be used again.
            self.era += 1;
            crossing.era = self.era;
            let crossing = Arc::new(crossing);
            let market_number = round % MARKET_COUNT;
            for number in 0..FILLED_COUNT {
                self.place((round + number) % ACCOUNT_COUNT, market_number, 50);
            }
            let command = MatchOrders {
                market_id: market_id(market_number),
                book: Some((OutcomeIndex(0), crossing.clone())),
                after: None,
            };
            let Self { state, infos, .. } = self;
            let info = &infos[usize::try_from(market_number).expect("a small number")];
            let quote = Quote::new(info, [Some(&*crossing), None]);
            let began = Instant::now();
            let events = run(state, &command, Some(&quote));
            elapsed += began.elapsed();
            assert_eq!(events.len(), 10, "each of the orders at 50 cents fills");
        }
        elapsed
    }
}

fn orders(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resting");
    for resting_count in RESTING_COUNTS {
        let mut world = World::new(resting_count);
        let id = |name| BenchmarkId::new(name, resting_count);
        group.bench_function(id("place and rest"), |bencher| {
            bencher.iter_custom(|count| world.place_and_cancel(count)[0]);
        });
        group.bench_function(id("cancel"), |bencher| {
            bencher.iter_custom(|count| world.place_and_cancel(count)[1]);
        });
        group.bench_function(id("a match that fills ten"), |bencher| {
            bencher.iter_custom(|count| world.match_orders(count));
        });
    }
    group.finish();
}

/// A change of a book that fills nothing: the best bid grows and shrinks. With nothing at rest, the
/// feed only publishes.
fn book_changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("resting");
    for has_resting_limits in [false, true] {
        let markets = Arc::new(Markets::new());
        let mut feed = Feed::new(markets.clone(), MismatchPolicy::Count);
        let listed = VenueChange::Listed(vec![info(0)]);
        feed.apply(VenueEvent { at: NOW, change: listed });
        let token_id: Arc<str> = "Yes0".into();
        let book = BookReplaced::new(token_id.clone(), ladder());
        feed.apply(VenueEvent { at: NOW, change: VenueChange::Book(book) });
        if has_resting_limits {
            let resting_limits = markets.resting_limits(&market_id(0), 2);
            for shard in ShardId::all() {
                let price = Some(Price::from_micros(400_000));
                resting_limits.set_best(OutcomeIndex(0), Side::Buy, shard, price);
                let price = Some(Price::from_micros(600_000));
                resting_limits.set_best(OutcomeIndex(0), Side::Sell, shard, price);
            }
        }
        let change = |size: i64| VenueEvent {
            at: NOW,
            change: VenueChange::Levels(vec![LevelChanged {
                token_id: token_id.clone(),
                side: Side::Buy,
                price: Price::from_micros(480_000),
                size: Shares::from_micros(size * 1_000_000),
                hash: None,
                top: None,
            }]),
        };
        let name = if has_resting_limits { "64 shards" } else { "nobody" };
        group.bench_function(BenchmarkId::new("a change that fills none", name), |bencher| {
            let mut size = 100;
            bencher.iter_custom(|count| {
                let mut elapsed = Duration::ZERO;
                for _ in 0..count {
                    size = 300 - size;
                    let event = change(size);
                    let began = Instant::now();
                    black_box(feed.apply(event));
                    elapsed += began.elapsed();
                }
                elapsed
            });
        });
    }
    group.finish();
}

criterion_group!(benches, orders, book_changes);
criterion_main!(benches);
