//! The operations whose instructions are counted, each repeated a given number of times.
//!
//! Every run prepares for the highest number of repetitions, so that two runs differ only in the
//! repetitions themselves.

use std::hint::black_box;

use paperbourse::auth::api_key::{KEY_SECRET_BYTES, RawKey};
use paperbourse::auth::key_table::{KeyEntry, KeyFacts, KeyTable};
use paperbourse::engine::command::{Identity, OpenAccount, OrderNames, Owner, Trade, TradeOrder};
use paperbourse::engine::event::Events;
use paperbourse::engine::fills::fill::Fill;
use paperbourse::engine::key::Permissions;
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::receipt::OrderReceipt;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::http::operations::trade::{read_trade, write_trade};
use paperbourse::ids::{AccountId, KeyId, Lsn, OrderId, ShardId, Timestamp};
use paperbourse::journal::record::{self, RecordHeader};
use paperbourse::limits::tier::{Tier, Tiers};
use paperbourse::limits::window::KeyLimiter;
use paperbourse::market::book::{Book, Side};
use paperbourse::market::catalogue::MarketInfo;
use paperbourse::market::quote::Quote;
use paperbourse::money::{FeeRate, Price, Shares, Usd};

use super::client::Shape;
use super::exchange;
use super::market::{self, MARKET_ID};

/// The highest number of repetitions. The preparation varies by some two million instructions with
/// its random keys, which is about a hundred per repetition.
pub(crate) const TIMES_MAX: usize = 32_000;

const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);
const BODY: &[u8] = concat!(
    r#"{"market_id":"0x5f65177b394277fd294cd75650044e32ba009a95022d88a0c1d565897d72f8f1","#,
    r#""outcome":"Yes","side":"BUY","quantity":94.339622,"#,
    r#""client_order_id":"6f1c2a52-6f0b-4b55-9f53-0d8b2b6f7f0a","#,
    r#""expected_price":0.53,"max_slippage_bps":250}"#
)
.as_bytes();

/// A function that repeats an operation the given number of times.
pub(crate) type Operation = fn(usize);

/// All operations, with their names in the table.
pub(crate) const OPERATIONS: [(&str, Operation); 13] = [
    ("read an order's body and header", read_body),
    ("find the only key", find_key),
    ("decide on a key's limits", decide_limits),
    ("decide and apply, no name and one level", |times| trade(Shape::Plain, times)),
    ("decide and apply, two names and two levels", |times| trade(Shape::Rich, times)),
    ("decide and apply, opens or closes one of 1,000 positions", open_and_close),
    ("encode a record, no name and one level", |times| encode(Shape::Plain, times)),
    ("encode a record, two names and two levels", |times| encode(Shape::Rich, times)),
    ("decode a record, two names and two levels", decode),
    ("write a trade's answer", write_answer),
    ("bare hyper, no network", exchange::bare),
    ("trade, no network", |times| exchange::trade(Shape::Plain, times)),
    ("trade with two names and two levels, no network", |times| {
        exchange::trade(Shape::Rich, times);
    }),
];

fn read_body(times: usize) {
    for _ in 0..times {
        let request = read_trade(black_box(BODY), black_box(Some(b"retry-1")));
        black_box(request.expect("a valid order"));
    }
}

/// Uses a table with a single key: the position of one key among many depends on a random number.
fn find_key(times: usize) {
    let key = RawKey::from_secret([0x5b; KEY_SECRET_BYTES]);
    let facts = KeyFacts {
        key_id: KeyId::new(shard(), 1).expect("the first key"),
        account_id: AccountId::new(shard(), 1).expect("the first account"),
        tier: Tier::Free,
        permissions: Permissions::DEFAULT,
    };
    let table = KeyTable::new(1);
    let entry = KeyEntry::new(facts, Tiers::default().get(Tier::Free));
    table.insert(key.hash(), entry, None).expect("a new key");
    for _ in 0..times {
        let entry = table.authenticate(black_box(key.expose().as_bytes()), black_box(NOW));
        black_box(entry.expect("a good key"));
    }
}

/// Decides at the steady rate of the tier, so that each request is admitted and one leaves each
/// window.
fn decide_limits(times: usize) {
    const PACE_NS: u64 = 200_000_000;
    let limiter = KeyLimiter::new(Tiers::default().get(Tier::Free));
    let warm_up = TIMES_MAX as u64;
    for number in 0..warm_up + times as u64 {
        assert!(limiter.decide(black_box(number * PACE_NS)).is_admitted);
    }
}

fn trade(shape: Shape, times: usize) {
    let (info, book) = market();
    let quote = Quote::new(&info, [Some(&book), None]);
    let mut state = state(&quote);
    for command in &commands(shape)[..times] {
        black_box(happen(&mut state, command, &quote));
    }
}

/// Lets each account in turn buy its first share, and then each in turn sell it.
fn open_and_close(times: usize) {
    const ACCOUNTS: usize = 1_000;
    /// Coprime to the number of accounts, so that each account gets its turn.
    const STRIDE: usize = 617;
    let (info, book) = market();
    let quote = Quote::new(&info, [Some(&book), None]);
    let mut state = state(&quote);
    for number in 1..=ACCOUNTS {
        happen(&mut state, &OpenAccount(identity(number)), &quote);
    }
    let command = |turn: usize| {
        let owner = Owner::Account(account(1 + turn * STRIDE % ACCOUNTS));
        let side = if (turn / ACCOUNTS).is_multiple_of(2) { Side::Buy } else { Side::Sell };
        let order = TradeOrder { side, expected_price: None, ..purchase(1) };
        Trade::new(owner, order, OrderNames::default())
    };
    let commands: Vec<_> = (0..TIMES_MAX).map(command).collect();
    for command in &commands[..times] {
        black_box(happen(&mut state, command, &quote));
    }
}

fn encode(shape: Shape, times: usize) {
    let events = fill(shape);
    let mut bytes = Vec::with_capacity(1_024);
    for _ in 0..times {
        bytes.clear();
        record::encode(header(), black_box(&events), &mut bytes);
        black_box(bytes.len());
    }
}

fn decode(times: usize) {
    let bytes = record_of(Shape::Rich);
    for _ in 0..times {
        black_box(record::decode(black_box(&bytes)).expect("a record"));
    }
}

fn write_answer(times: usize) {
    let receipt = OrderReceipt {
        order: OrderId::from_raw(7_104).expect("an id"),
        account: AccountId::from_raw(128).expect("an id"),
        market_id: MARKET_ID.into(),
        outcome: "Yes".into(),
        side: Side::Buy,
        fill: Fill {
            quantity: Shares::from_micros(94_339_622),
            notional: Usd::from_micros(50_000_000),
            fee: Usd::from_micros(1_645_000),
            fee_rate: FeeRate::from_micros(70_000),
            balance: Usd::from_micros(948_355_000),
            position_shares: Shares::from_micros(94_339_622),
            position_cost: Usd::from_micros(50_000_000),
            at: NOW,
        },
        level_count: 2,
        slippage_bps: Some(12),
        client_order_id: Some("6f1c2a52-6f0b-4b55-9f53-0d8b2b6f7f0a".into()),
        order_state: None,
    };
    let mut out = Vec::with_capacity(1_024);
    for _ in 0..times {
        out.clear();
        write_trade(&mut out, black_box(&receipt));
        black_box(out.len());
    }
}

/// Returns the record of an order of this shape.
pub(crate) fn record_of(shape: Shape) -> Vec<u8> {
    let mut bytes = Vec::new();
    record::encode(header(), &fill(shape), &mut bytes);
    bytes
}

/// Returns the events of an order of this shape in a market with earlier trades.
fn fill(shape: Shape) -> Events {
    let (info, book) = market();
    let quote = Quote::new(&info, [Some(&book), None]);
    let mut state = state(&quote);
    let commands = commands(shape);
    happen(&mut state, &commands[0], &quote);
    happen(&mut state, &commands[1], &quote)
}

fn header() -> RecordHeader {
    RecordHeader { shard: shard(), epoch: 3, sequence: 77, at: NOW }
}

fn shard() -> ShardId {
    ShardId::new(0).expect("the first shard")
}

/// Creates a shard with an account that has traded.
fn state(quote: &Quote<'_>) -> State {
    let mut state = State::new(shard());
    happen(&mut state, &OpenAccount(identity(0)), quote);
    happen(&mut state, &order(Shape::Plain, TIMES_MAX), quote);
    state
}

fn identity(number: usize) -> Identity {
    let mut digest = [0; 32];
    digest[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    Identity { digest, issuer: "https://issuer.example".into(), subject: "bot".into() }
}

/// Returns the account that was opened after `number` others.
fn account(number: usize) -> AccountId {
    AccountId::new(shard(), number as u64 + 1).expect("a small counter")
}

fn happen<C: Command>(state: &mut State, command: &C, quote: &Quote<'_>) -> Events {
    let rules = Rules { starting_balance: Usd::from_micros(1_000_000_000_000), ..Rules::default() };
    let verdict = state.decide(command, Some(quote), NOW, &rules);
    let Ok(Verdict::Happens(events, _)) = verdict else { panic!("nothing happens") };
    state.apply(&events, Lsn::new(0, state.sequence() + 1));
    events
}

fn commands(shape: Shape) -> Vec<Trade> {
    (0..TIMES_MAX).map(|number| order(shape, number)).collect()
}

fn order(shape: Shape, number: usize) -> Trade {
    let (shares, names) = match shape {
        Shape::Plain => (1, OrderNames::default()),
        Shape::Rich => {
            let [header, body] = [format!("retry-{number:016x}"), format!("order-{number:016x}")];
            let hashes = [&header, &body].map(|name| NameHash::of_order(name));
            (10, OrderNames::new(hashes, Some(body.into())))
        }
    };
    Trade::new(Owner::Account(account(0)), purchase(shares), names)
}

fn purchase(shares: i64) -> TradeOrder {
    TradeOrder {
        market_id: MARKET_ID.into(),
        outcome: "yes".into(),
        side: Side::Buy,
        quantity: Shares::from_micros(shares * 1_000_000),
        expected_price: Some(Price::from_micros(580_000)),
        max_slippage_bps: None,
    }
}

/// Creates a market whose book has 5 shares at its first level.
fn market() -> (MarketInfo, Book) {
    market::market(["Yes", "No"], market::three_levels([5; 3]), NOW)
}
