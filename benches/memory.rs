//! Bytes of engine state per account, key, position and order, counted at the allocator.
//!
//! `cargo bench --bench memory -- 1000000` measures a million accounts and ten times as many
//! orders; the default is 100,000 accounts. They are spread over the 64 shards as in a server.
//! Counted are the bytes requested from the allocator and not freed, including spare capacity but
//! not the allocator's rounding. The key table that requests are checked against is separate from
//! the engine and not counted.

#[path = "../perf/counts/allocator.rs"]
#[expect(dead_code, reason = "only the live bytes are read here")]
mod allocator;

use paperbourse::engine::command::{
    CreateKey, Identity, OpenAccount, OrderNames, Owner, PlaceOrder, Trade, TradeOrder,
};
use paperbourse::engine::key::{KeyGrant, Permissions};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::payload::NewOrder;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{Lsn, SHARD_COUNT, ShardId, Timestamp};
use paperbourse::limits::tier::Tier;
use paperbourse::market::book::{Book, Ladder, Level, Side};
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::market::quote::Quote;
use paperbourse::money::{Price, Shares};

const ACCOUNTS_DEFAULT: usize = 100_000;
/// Orders of each account.
const ORDERS: usize = 10;
const NOW: Timestamp = Timestamp::from_seconds(1_800_000_000);

#[global_allocator]
static ALLOCATOR: allocator::Counting = allocator::Counting;

/// All shards of a server, without the server around them.
struct Server {
    states: Vec<State>,
    markets: Vec<MarketInfo>,
    /// The book of the first outcome of every market.
    book: Book,
    account_count: usize,
    /// Orders sent so far.
    order_count: usize,
}

impl Server {
    fn new(account_count: usize) -> Self {
        let outcomes =
            ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: label.into() });
        let markets = (0..ORDERS)
            .map(|number| MarketInfo::bare(&format!("0x{number:064x}"), outcomes.clone()));
        let ask =
            Level { price: Price::from_micros(500_000), size: Shares::from_micros(1_000_000_000) };
        let ladder = Ladder::from_levels(vec![], vec![ask]).expect("one level");
        Self {
            states: ShardId::all().map(State::new).collect(),
            markets: markets.collect(),
            book: Book::new(ladder, NOW),
            account_count,
            order_count: 0,
        }
    }

    /// Has every account do something, and returns how many bytes each account grew by.
    fn bytes_for_each<C: Command>(
        &mut self,
        command: impl Fn(&mut Self, Identity) -> (C, usize),
    ) -> f64 {
        let before = allocator::live_bytes();
        for number in 0..self.account_count {
            let shard = number % SHARD_COUNT;
            let (command, market) = command(self, identity(number));
            let state = &mut self.states[shard];
            let quote = Quote::new(&self.markets[market], [Some(&self.book), None]);
            let verdict = state.decide(&command, Some(&quote), NOW, &Rules::default());
            let Ok(Verdict::Happens(events, _)) = verdict else { panic!("nothing happens") };
            state.apply(&events, Lsn::new(0, state.sequence() + 1));
        }
        let bytes = allocator::live_bytes() - before;
        #[expect(clippy::cast_precision_loss, reason = "a mean to print")]
        let mean = bytes as f64 / self.account_count as f64;
        mean
    }

    fn open(&mut self) -> f64 {
        self.bytes_for_each(|_, identity| (OpenAccount(identity), 0))
    }

    fn create_keys(&mut self) -> f64 {
        self.bytes_for_each(|_, identity| {
            let create = CreateKey {
                owner: Owner::Identity(identity),
                is_bootstrap: true,
                created_by: None,
                grant: KeyGrant {
                    hash: [7; 32],
                    prefix: "ps_live_01234567".into(),
                    name: None,
                    tier: Tier::Free,
                    permissions: Permissions::DEFAULT,
                    expires_at: None,
                    wallet: None,
                },
            };
            (create, 0)
        })
    }

    /// Has one order of each account rest in this market.
    fn rest(&mut self, market: usize) -> f64 {
        self.bytes_for_each(|server, identity| {
            let market_id = &server.markets[market].condition_id;
            let quantity = Shares::from_micros(5_000_000);
            let price = Price::from_micros(100_000);
            let order = NewOrder::limit(market_id, "yes", Side::Buy, quantity, price);
            (PlaceOrder::new(Owner::Identity(identity), order, OrderNames::default()), market)
        })
    }

    /// Sends one order of each account in this market.
    fn trade(&mut self, market: usize, has_names: bool) -> f64 {
        self.bytes_for_each(|server, identity| {
            server.order_count += 1;
            let number = server.order_count;
            let names = [format!("a{number}"), format!("b{number}")];
            let names = names.iter().map(|name| NameHash::of_order(name));
            let command = Trade::new(
                Owner::Identity(identity),
                TradeOrder {
                    market_id: server.markets[market].condition_id[..].into(),
                    outcome: "yes".into(),
                    side: Side::Buy,
                    quantity: Shares::from_micros(1_000_000),
                    expected_price: None,
                    max_slippage_bps: None,
                },
                OrderNames::new(names.take(if has_names { 2 } else { 0 }), None),
            );
            (command, market)
        })
    }
}

/// Bytes of the first order at rest of an account, and the mean of further ones.
fn rest_orders(account_count: usize, market: impl Fn(usize) -> usize) -> (f64, f64) {
    let mut server = Server::new(account_count);
    server.open();
    let first = server.rest(market(0));
    let others = (1..ORDERS).map(|number| server.rest(market(number))).sum::<f64>();
    (first, mean(others))
}

fn mean(total: f64) -> f64 {
    total / f64::from(u32::try_from(ORDERS - 1).expect("few orders"))
}

fn identity(number: usize) -> Identity {
    let mut digest = [0; 32];
    digest[0] = u8::try_from(number % SHARD_COUNT).expect("below 64");
    digest[8..16].copy_from_slice(&(number as u64).to_le_bytes());
    let subject = format!("trader-{number}");
    Identity { digest, issuer: "https://issuer.example".into(), subject: subject.into() }
}

fn main() {
    // Cargo passes a flag of its own.
    let number = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let account_count = match number.map(|text| text.parse()) {
        None => ACCOUNTS_DEFAULT,
        Some(Ok(count)) if count > 0 => count,
        Some(_) => panic!("not a number of accounts"),
    };
    println!("{account_count} accounts, bytes for each:");
    let mut plain_order = 0.0;
    for has_names in [false, true] {
        let mut server = Server::new(account_count);
        let account = server.open();
        let key = server.create_keys();
        let first = server.trade(0, has_names);
        let order = mean((1..ORDERS).map(|_| server.trade(0, has_names)).sum());
        if has_names {
            println!("{order:7.1}  order with two names");
        } else {
            plain_order = order;
            println!("{account:7.1}  idle account");
            println!("{:7.1}  idle account with a key", account + key);
            println!("{:7.1}  first trade of an account, order apart", first - order);
            println!("{order:7.1}  order without names");
        }
    }
    let mut server = Server::new(account_count);
    server.open();
    server.trade(0, false);
    let with_positions = mean((1..ORDERS).map(|market| server.trade(market, false)).sum());
    println!("{:7.1}  position", with_positions - plain_order);
    let (first, same_market) = rest_orders(account_count, |_| 0);
    println!("{:7.1}  first order at rest of an account, order apart", first - same_market);
    println!("{same_market:7.1}  order at rest, all of an account in one market");
    let (_, other_market) = rest_orders(account_count, |number| number);
    println!("{other_market:7.1}  order at rest, each in another market");
}
