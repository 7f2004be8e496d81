//! The cost of the engine alone for each order: no queue, no journal, no socket.
//!
//! All figures are nanoseconds per order (or walk, or record). Building the state and the commands
//! is not counted; freeing the events of a command is.

use std::hint::black_box;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};

use paperbourse::engine::command::{Identity, OpenAccount, OrderNames, Owner, Trade, TradeOrder};
use paperbourse::engine::event::{Event, Events};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{AccountId, Lsn, ShardId, Timestamp};
use paperbourse::journal::record::{self, RecordHeader};
use paperbourse::market::book::{Book, Ladder, Side};
use paperbourse::market::catalogue::MarketInfo;
use paperbourse::market::quote::Quote;
use paperbourse::market::walk::Liquidity;
use paperbourse::money::{Price, Shares, Usd};

#[path = "../perf/market.rs"]
#[expect(dead_code, reason = "shared with code that needs a shorter book")]
mod market;

use market::{MARKET_ID, level};

/// The server's allocator.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const ACCOUNT_COUNT: u64 = 100_000;
/// Number of orders prepared before the clock starts.
const ORDERS_PER_BATCH: u64 = 50_000;
/// Number of orders in the state at the start, and after each reset.
const ORDERS_KEPT_MIN: u64 = 1_000_000;
const ORDERS_KEPT_MAX: u64 = 2 * ORDERS_KEPT_MIN;
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

/// An order sent by a bench.
#[derive(Clone, Copy)]
struct Shape {
    shares: i64,
    has_names: bool,
}

/// 10 shares, of which the first level of the book has 5.
const TWO_LEVELS: Shape = Shape { shares: 10, has_names: true };
const ONE_LEVEL: Shape = Shape { shares: 4, has_names: false };

fn shard() -> ShardId {
    ShardId::new(0).expect("the first shard")
}

fn rules() -> Rules {
    Rules { starting_balance: Usd::from_micros(1_000_000_000_000), ..Rules::default() }
}

/// The book has five levels a side.
fn market() -> (MarketInfo, Book) {
    market::market(["Yes", "No"], five_levels(), NOW)
}

fn five_levels() -> Ladder {
    let bids = (1..=5).map(|step| level(58 - step, 5 * step)).collect();
    let asks = (1..=5).map(|step| level(57 + step, 5 * step)).collect();
    Ladder::from_levels(bids, asks).expect("levels of a book")
}

fn identity(number: u64) -> Identity {
    let mut digest = [0; 32];
    digest[8..16].copy_from_slice(&number.to_le_bytes());
    Identity { digest, issuer: "https://bench".into(), subject: number.to_string().into() }
}

fn account(number: u64) -> AccountId {
    AccountId::new(shard(), number + 1).expect("a small counter")
}

/// Decides and applies. The events would go to the journal; here they are dropped.
fn run<C: Command>(state: &mut State, command: &C, quote: &Quote<'_>) -> Events {
    let verdict = state.decide(command, Some(quote), NOW, &rules());
    let Ok(Verdict::Happens(events, _)) = verdict else { panic!("nothing happens") };
    state.apply(&events, Lsn::new(0, state.sequence() + 1));
    events
}

/// 100,000 accounts with ten orders each.
fn traded_state(quote: &Quote<'_>) -> State {
    let mut state = State::new(shard());
    for number in 0..ACCOUNT_COUNT {
        run(&mut state, &OpenAccount(identity(number)), quote);
    }
    for command in orders(0, ORDERS_KEPT_MIN, ONE_LEVEL) {
        run(&mut state, &command, quote);
    }
    state
}

fn order(account_number: u64, order_number: u64, shape: Shape) -> Trade {
    let names = if shape.has_names {
        let name = format!("bot-7-{order_number}");
        let header = format!("{order_number:032x}");
        OrderNames::new([&header, &name].map(|name| NameHash::of_order(name)), Some(name.into()))
    } else {
        OrderNames::default()
    };
    Trade::new(
        Owner::Account(account(account_number)),
        TradeOrder {
            market_id: MARKET_ID.into(),
            outcome: "yes".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(shape.shares * 1_000_000),
            expected_price: Some(Price::from_micros(580_000)),
            max_slippage_bps: None,
        },
        names,
    )
}

/// Orders of accounts in a sequence that defeats the prefetcher: the high bits of a full-period
/// generator. `first` is the number of the first order.
fn orders(first: u64, count: u64, shape: Shape) -> impl Iterator<Item = Trade> {
    let mut seed: u64 = 0x2545_f491_4f6c_dd1d ^ first;
    (first..first + count).map(move |number| {
        seed = seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
        order((seed >> 32) % ACCOUNT_COUNT, number, shape)
    })
}

/// The time for `count` orders on a state that is kept between calls and reset when it has grown
/// too large.
fn timed_orders(state: &mut State, quote: &Quote<'_>, shape: Shape, count: u64) -> Duration {
    let mut elapsed = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let batch = left.min(ORDERS_PER_BATCH);
        let ordered = state.head().orders_ever;
        if ordered + batch > ORDERS_KEPT_MAX {
            *state = traded_state(quote);
            continue;
        }
        let commands: Vec<Trade> = orders(ordered, batch, shape).collect();
        let start = Instant::now();
        for command in &commands {
            black_box(run(state, command, quote));
        }
        elapsed += start.elapsed();
        left -= batch;
    }
    elapsed
}

fn trades(criterion: &mut Criterion) {
    let (info, book) = market();
    let quote = Quote::new(&info, [Some(&book), None]);
    let mut state = traded_state(&quote);
    let mut group = criterion.benchmark_group("engine");
    group.sample_size(10).warm_up_time(Duration::from_secs(1));

    // The usual order of a careful bot. Dominated by cache misses in a large state (account,
    // position, idempotency table). The hash of the request belongs to the HTTP layer and is not
    // counted. A regression slows every trade on a shard, and a shard runs one thread at a time.
    group.bench_function("trade: two names, two levels, fee", |bencher| {
        bencher.iter_custom(|count| timed_orders(&mut state, &quote, TWO_LEVELS, count));
    });

    // The minimum cost of an order. The difference to the one above is the cost of names and of the
    // second level; if only this one regresses, look at the ladder of refusals.
    group.bench_function("trade: no names, one level, fee", |bencher| {
        bencher.iter_custom(|count| timed_orders(&mut state, &quote, ONE_LEVEL, count));
    });
    group.finish();
}

/// The time to decode `count` order records and apply them to a state that follows another one.
fn timed_records(states: &mut [State; 2], quote: &Quote<'_>, shape: Shape, count: u64) -> Duration {
    let mut elapsed = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let batch = left.min(ORDERS_PER_BATCH);
        let ordered = states[0].head().orders_ever;
        if ordered + batch > ORDERS_KEPT_MAX {
            *states = [traded_state(quote), traded_state(quote)];
            continue;
        }
        let [live, follower] = &mut *states;
        let record = |command| {
            let events = run(live, &command, quote);
            let header =
                RecordHeader { shard: shard(), epoch: 1, sequence: live.sequence(), at: NOW };
            let mut bytes = Vec::new();
            record::encode(header, &events, &mut bytes);
            bytes
        };
        let records: Vec<Vec<u8>> = orders(ordered, batch, shape).map(record).collect();
        let start = Instant::now();
        for bytes in &records {
            let (_, events) = record::decode(bytes).expect("it was encoded");
            follower.apply(&events, Lsn::START);
        }
        elapsed += start.elapsed();
        left -= batch;
    }
    elapsed
}

fn recovery(criterion: &mut Criterion) {
    let (info, book) = market();
    let quote = Quote::new(&info, [Some(&book), None]);
    let mut states = [traded_state(&quote), traded_state(&quote)];
    let mut group = criterion.benchmark_group("engine");
    group.sample_size(10).warm_up_time(Duration::from_secs(1));

    // The cost of a start for each trade since the newest snapshot, on one core: the same cache
    // misses as for a live trade, with decoding instead of the decision.
    group.bench_function("record of a trade with two names, decoded and applied", |bencher| {
        bencher.iter_custom(|count| timed_records(&mut states, &quote, TWO_LEVELS, count));
    });
    group.finish();
}

fn parts(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("engine");
    group.sample_size(20).warm_up_time(Duration::from_millis(500));

    // No more levels than fit inline, so no allocation. A regression means that walks allocate or
    // copy.
    let ladder = five_levels();
    let quantity = Shares::from_micros(70 * 1_000_000);
    group.bench_function("walk of five levels", |bencher| {
        bencher.iter(|| black_box(Liquidity::own(&ladder)).walk(Side::Buy, black_box(quantity)));
    });

    // Finds the shard of a command: a key names an account, whose id names the shard; a token names
    // an identity, whose digest does. A regression means that one of them looks something up.
    let owners = [Owner::Account(account(41)), Owner::Identity(identity(42))];
    let mut turn = 0;
    group.bench_function("route to a shard", |bencher| {
        bencher.iter(|| {
            turn ^= 1;
            black_box(&owners[turn]).shard()
        });
    });

    // Encodes into an existing buffer, as into the journal's ring. A regression means that the
    // record of a trade allocates or has grown; encoding happens while the shard is held.
    let (info, book) = market();
    let quote = Quote::new(&info, [Some(&book), None]);
    let mut state = State::new(shard());
    run(&mut state, &OpenAccount(identity(0)), &quote);
    run(&mut state, &order(0, 0, ONE_LEVEL), &quote);
    let events: Vec<Event> = run(&mut state, &order(0, 1, TWO_LEVELS), &quote).into_vec();
    let header = RecordHeader { shard: shard(), epoch: 1, sequence: 3, at: NOW };
    let mut bytes = Vec::with_capacity(4096);
    group.bench_function("record of a trade, encoded", |bencher| {
        bencher.iter(|| {
            bytes.clear();
            record::encode(black_box(header), black_box(&events), &mut bytes);
            bytes.len()
        });
    });
    // Recovery reads every record once: a million trades take a million of these.
    group.bench_function("record of a trade, decoded", |bencher| {
        bencher.iter(|| record::decode(black_box(&bytes)).expect("it was encoded"));
    });
    group.finish();
}

criterion_group!(benches, trades, recovery, parts);
criterion_main!(benches);
