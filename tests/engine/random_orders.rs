//! Random runs of orders that may rest, for which the engine and the naive matcher must agree after
//! every step.
//!
//! `PAPERBOURSE_ORDER_RUNS` sets the number of runs, and `PAPERBOURSE_ORDER_SEED` the first seed. A
//! run that fails prints its seed and its steps.

mod check;
mod convert;
mod ends;
mod preview;
mod sent;
mod undo;

use std::collections::BTreeMap;

use paperbourse::engine::admin::reset::ResetAccount;
use paperbourse::engine::command::{
    CancelOnDisconnect, CancelOrder, CancelOrders, ClearBooks, ExpireOrders, MatchOrders,
    OpenAccount, OrderNames, Owner, PlaceOrder, SetHeartbeat, Settle, Trade, TradeOrder,
};
use paperbourse::engine::event::{Event, Events, FillUndone};
use paperbourse::engine::fills::undo::UndoFill;
use paperbourse::engine::market::payout::Decision;
use paperbourse::engine::market::settlement::Payment;
use paperbourse::engine::order::delayed::{DecideDelayed, DelayedSubject};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::payload::{NamedTimeInForce, NewOrder};
use paperbourse::engine::order::place::PlacedSubject;
use paperbourse::engine::order::terms::{OrderKind, Reserve};
use paperbourse::engine::rejection::Rejection;
use paperbourse::engine::{Command, Verdict};
use paperbourse::ids::{AccountId, OrderId, OutcomeIndex, Timestamp};
use paperbourse::market::book::{Level, Side};
use paperbourse::market::catalogue::{Fees, MarketStatus};
use paperbourse::money::{FeeRate, Price, Shares, Usd};

use crate::contradictions::{history, replay};
use crate::naive::{Book, Market, Micros};
use crate::naive_orders::{Fact, Fill, NaiveOrders, Order, QUANTITY_MIN, Sent, Tif};
use crate::report;
use crate::world::World;
use convert::{
    account_id, at, events_of, facts, index, level, market_id, name_hashes, narrow, new_order,
    placed_facts, price, side, subject,
};

const ACCOUNTS: usize = 4;
const LABELS: &[&str] = &["Yes", "No"];
const MARKETS: usize = 3;
const STEPS: usize = 150;
const RUNS_DEFAULT: u64 = 100;
/// Small enough that some orders are refused.
const BALANCE: Micros = 30_000_000;
const CENT: Micros = 10_000;

/// The generator `SplitMix64`.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, end: usize) -> usize {
        usize::try_from(self.next() % end as u64).expect("below a usize")
    }

    /// True once in this many times.
    fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    fn within(&mut self, first: Micros, last: Micros) -> Micros {
        first + self.below(usize::try_from(last - first + 1).expect("a range")) as Micros
    }
}

/// The engine and the naive matcher side by side.
struct Pair {
    world: World,
    naive: NaiveOrders,
    random: Random,
    /// The middle of each market's prices, in cents.
    middle: [Micros; MARKETS],
    /// What happened, for a run that fails.
    steps: Vec<String>,
    seed: u64,
    /// Money is short more often in runs in which no fill is undone.
    are_fills_undone: bool,
    reached: BTreeMap<String, u64>,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.seed, self.steps.join("\n"));
        }
    }
}

impl Pair {
    fn new(seed: u64, are_fills_undone: bool) -> Self {
        let mut world = World::new();
        world.rules.starting_balance = Usd::from_micros(narrow(BALANCE));
        world.now = Timestamp::EPOCH;
        let market =
            Market { labels: LABELS, is_open: true, fees: (0, 1), books: vec![None; LABELS.len()] };
        for index in 0..MARKETS {
            world.list(&market_id(index), LABELS);
        }
        for account in 0..ACCOUNTS {
            world.run(&OpenAccount(World::identity(&subject(account)))).expect("a new account");
        }
        let naive = NaiveOrders::new(BALANCE, vec![market; MARKETS]);
        let mut pair = Self {
            world,
            naive,
            random: Random(seed),
            middle: [50; MARKETS],
            steps: Vec::new(),
            seed,
            are_fills_undone,
            reached: BTreeMap::new(),
        };
        if pair.random.once_in(3) {
            pair.world.rules.kept_orders_max = 4;
        }
        if pair.random.once_in(3) {
            pair.world.rules.open_orders_max = 2;
            pair.naive.open_max = 2;
        }
        for market in 0..MARKETS {
            let delay_ms = pair.delay_ms();
            pair.set_delay(market, delay_ms);
        }
        pair
    }

    fn step(&mut self) {
        match self.random.below(if self.are_fills_undone { 131 } else { 123 }) {
            30..62 => self.place(),
            62..80 => {
                let market = self.random.below(MARKETS);
                self.match_market(market, None);
            }
            80..86 => self.pass(),
            86..90 => self.cancel(),
            90..92 => self.cancel_all(),
            92..95 => self.expire(),
            95..98 => self.change_market(),
            98 if self.random.once_in(3) => self.restart(),
            99 if self.random.once_in(4) => self.settle(),
            100..112 => self.decide(),
            112..116 => self.repeat(),
            116..118 => self.beat(),
            118..121 => self.end_silent(),
            121 => self.clear_books(),
            122 => self.reset(),
            123.. => self.undo(),
            _ => self.change_book(),
        }
        self.check();
    }

    #[track_caller]
    fn agree(&mut self, what: &str, actual: &[Fact], expected: &[Fact]) {
        self.steps.push(format!("{what} -> {expected:?}"));
        assert_eq!(actual, expected, "{what}");
        self.note_forgotten();
        for fact in expected {
            let decided = |fill: &Fill| {
                let is_decided = self.naive.orders[fill.order].delayed_ms > 0;
                if is_decided { "decided: ".to_owned() } else { String::new() }
            };
            let reached = match fact {
                Fact::Refused(code) if matches!(expected, [Fact::Dropped(_), _]) => {
                    format!("dropped: {code}")
                }
                Fact::Refused(code) => (*code).to_owned(),
                Fact::Replayed(order) if self.naive.is_delayed(*order) => {
                    "replay while delayed".into()
                }
                Fact::Replayed(_) => "replay".into(),
                Fact::Delayed(..) => "delayed".into(),
                Fact::Dropped(_) => continue,
                Fact::Placed(fill, None, true) if fill.quantity == 0 => decided(fill) + "awaits",
                Fact::Placed(fill, None, _) if fill.quantity == 0 => decided(fill) + "rests",
                Fact::Placed(fill, None, _) if self.naive.is_open(fill.order) => {
                    decided(fill) + "takes and rests"
                }
                Fact::Placed(fill, None, _) => decided(fill) + "fills",
                Fact::Placed(fill, Some(_), _) if fill.quantity > 0 => {
                    decided(fill) + "fills in part"
                }
                Fact::Placed(fill, Some(end), _) => decided(fill) + end,
                Fact::Admitted(_) => "admitted".into(),
                Fact::Filled(fill) if self.naive.is_open(fill.order) => {
                    "resting fills in part".into()
                }
                Fact::Filled(_) => "resting fills".into(),
                Fact::Ended(order, reason) if self.naive.orders[*order].held.is_some() => {
                    format!("{reason} while delayed")
                }
                Fact::Ended(_, reason) => (*reason).to_owned(),
                Fact::Undone(order, ..) if self.naive.is_open(*order) => "undone while open".into(),
                Fact::Undone(order, ..) if self.naive.orders[*order].sent.is_buy => {
                    "purchase undone".into()
                }
                Fact::Undone(..) => "sale undone".into(),
                Fact::Heartbeat(_, Some(_)) => "heartbeat begins".into(),
                Fact::Heartbeat(_, None) => "heartbeat ends".into(),
                Fact::Reset { position_count: 0, .. } => "reset".into(),
                Fact::Reset { .. } => "reset with positions".into(),
            };
            *self.reached.entry(reached).or_default() += 1;
        }
    }

    /// Orders of which an account has too many are forgotten with their names.
    fn note_forgotten(&mut self) {
        for order in 0..self.naive.orders.len() {
            if !self.naive.is_gone(order) && self.world.state.order(self.id(order)).is_none() {
                self.naive.forget(order);
            }
        }
    }

    fn size(&mut self) -> Micros {
        match self.random.below(3) {
            0 => self.random.within(1, 20_000_000),
            _ => self.random.within(1, 20) * 1_000_000,
        }
    }

    /// A new book, or a change of some levels.
    fn change_book(&mut self) {
        let market = self.random.below(MARKETS);
        // The first market has both books, each other one of them.
        let outcome = if market == 0 { self.random.below(2) } else { market - 1 };
        if self.random.once_in(8) {
            self.middle[market] = self.random.within(35, 65);
        }
        let middle = match outcome {
            0 => self.middle[market],
            _ => 100 - self.middle[market],
        };
        let before = self.naive.markets[market].books[outcome].clone();
        let mut book = before.filter(|_| !self.random.once_in(5)).unwrap_or_default();
        book.bids.retain(|&price, _| price < middle * CENT);
        book.asks.retain(|&price, _| price >= middle * CENT);
        for _ in 0..self.random.within(1, 4) {
            let distance = self.random.within(0, 5);
            let size = if self.random.once_in(4) { 0 } else { self.size() };
            let is_ask = self.random.once_in(2);
            let price = if is_ask { middle + distance } else { middle - 1 - distance } * CENT;
            let side = if is_ask { &mut book.asks } else { &mut book.bids };
            match size {
                0 => side.remove(&price),
                size => side.insert(price, size),
            };
        }
        book.is_stale = self.random.once_in(10);
        self.steps.push(format!("book {market} {outcome} {book:?}"));
        self.publish(market, outcome, &book);
        // The feed reports most changes at once, and some only with a later one.
        if self.random.below(4) > 0 {
            self.match_market(market, Some(outcome));
        }
    }

    fn publish(&mut self, market: usize, outcome: usize, book: &Book) {
        let side = |side: &BTreeMap<Micros, Micros>| {
            side.iter().map(|(&price, &size)| level(price, size)).collect()
        };
        let (bids, asks) = (side(&book.bids), side(&book.asks));
        self.world.publish(&market_id(market), index(outcome), bids, asks, book.is_stale);
        self.naive.publish(market, outcome, book.clone());
    }

    fn match_market(&mut self, market: usize, book: Option<usize>) {
        let listed = self.world.markets.by_condition(&market_id(market)).expect("a market");
        let published = book
            .map(|outcome| (index(outcome), listed.book(index(outcome)).clone().expect("a book")));
        let command =
            MatchOrders { market_id: market_id(market).into(), book: published, after: None };
        let visits = self.world.run_match(command);
        let actual = visits.iter().flat_map(facts).collect::<Vec<Fact>>();
        let expected = self.naive.match_orders(market, book);
        self.agree(&format!("match {market} {book:?}"), &actual, &expected);
    }

    fn place(&mut self) {
        let sent = self.sent();
        let names = self.names();
        self.send(&sent, &names);
    }

    fn send(&mut self, sent: &Sent, names: &[usize]) {
        let hashes = OrderNames::new(name_hashes(names), None);
        let owner = Owner::Account(account_id(&self.world, sent.account));
        let actual = if sent.is_trade {
            let order = TradeOrder {
                market_id: market_id(sent.market).into(),
                outcome: LABELS[sent.outcome].into(),
                side: side(sent.is_buy),
                quantity: Shares::from_micros(narrow(sent.quantity)),
                expected_price: sent.expected_price.map(price),
                max_slippage_bps: sent.max_slippage_bps,
            };
            placed_facts(self.world.run(&Trade::new(owner, order, hashes)))
        } else {
            placed_facts(self.place_previewed(owner, new_order(sent), hashes))
        };
        let expected = self.naive.place(sent, names);
        self.agree(&format!("{names:?} {sent:?}"), &actual, &expected);
    }

    fn pass(&mut self) {
        let passed = if self.random.once_in(2) { 400 } else { 3_000 };
        self.naive.now_ms += passed;
        self.world.now = at(self.naive.now_ms);
        self.steps.push(format!("now {}", self.naive.now_ms));
    }

    fn change_market(&mut self) {
        // Half of the time one in which an order is delayed, if there is one.
        let delayed = (0..self.naive.orders.len()).find(|&order| self.naive.is_delayed(order));
        let delayed = delayed.map(|order| self.naive.orders[order].sent.market);
        let market = match delayed {
            Some(market) if self.random.once_in(2) => market,
            _ => self.random.below(MARKETS),
        };
        let is_open = !self.random.once_in(6);
        let fees = match self.random.below(3) {
            0 => (0, 1),
            1 => (self.random.within(1, 100_000), narrow(self.random.within(1, 2))),
            _ => (self.random.within(300_000, 1_000_000), 1),
        };
        let tick = if self.random.once_in(3) { 1_000 } else { CENT };
        self.naive.markets[market].is_open = is_open;
        self.naive.markets[market].fees = fees;
        self.naive.ticks[market] = tick;
        let delay_ms = self.delay_ms();
        self.set_delay(market, delay_ms);
        self.world.describe(&market_id(market), |info| {
            info.status = if is_open { MarketStatus::Open } else { MarketStatus::Paused };
            info.fees = Fees::from_schedule(FeeRate::from_micros(narrow(fees.0)), fees.1);
            info.tick = price(tick);
        });
        self.steps.push(format!(
            "market {market} open {is_open} fees {fees:?} tick {tick} delay {delay_ms}"
        ));
    }

    fn delay_ms(&mut self) -> i64 {
        [0, 250, 3_000][self.random.below(3)]
    }

    fn set_delay(&mut self, market: usize, delay_ms: i64) {
        self.naive.delays_ms[market] = delay_ms;
        let taker_delay_ms = u32::try_from(delay_ms).expect("a short delay");
        self.world.describe(&market_id(market), |info| info.taker_delay_ms = taker_delay_ms);
    }

    fn id(&self, order: usize) -> OrderId {
        OrderId::new(self.world.state.shard(), order as u64 + 1).expect("a small counter")
    }
}

/// What has become of a shard after a random run.
pub(crate) fn random_world(seed: u64, steps: usize) -> World {
    let mut pair = Pair::new(seed, true);
    for _ in 0..steps {
        pair.step();
    }
    std::mem::replace(&mut pair.world, World::new())
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn the_engine_agrees_with_the_naive_matcher() {
    let runs = number("PAPERBOURSE_ORDER_RUNS").unwrap_or(RUNS_DEFAULT);
    let first = number("PAPERBOURSE_ORDER_SEED").unwrap_or(1);
    let mut reached: BTreeMap<String, u64> = BTreeMap::new();
    let seeds = first..first + runs;
    for (seed, are_fills_undone) in seeds.flat_map(|seed| [(seed, false), (seed, true)]) {
        let mut pair = Pair::new(seed, are_fills_undone);
        for _ in 0..STEPS {
            pair.step();
        }
        pair.check_records();
        for (what, count) in &pair.reached {
            *reached.entry(what.clone()).or_default() += count;
        }
    }
    println!("{runs} runs of {STEPS} steps: {reached:?}");
    if runs < RUNS_DEFAULT {
        return;
    }
    for what in [
        "AMOUNT_TOO_SMALL",
        "FOK_ORDER_NOT_FILLED_ERROR",
        "INSUFFICIENT_BALANCE",
        "INSUFFICIENT_LIQUIDITY",
        "INSUFFICIENT_POSITION",
        "INVALID_ORDER_EXPIRATION",
        "INVALID_ORDER_MIN_SIZE",
        "INVALID_ORDER_MIN_TICK_SIZE",
        "INVALID_POST_ONLY_ORDER",
        "INVALID_POST_ONLY_ORDER_TYPE",
        "MARKET_CLOSED",
        "OPEN_ORDER_LIMIT_EXCEEDED",
        "ORDER_NOT_CANCELLABLE",
        "SLIPPAGE_EXCEEDED",
        "VENUE_UNAVAILABLE",
        "admitted",
        "awaits",
        "fak_not_filled",
        "fills",
        "fills in part",
        "fok_not_filled",
        "gtd_expired",
        "insufficient_balance",
        "post_only_would_cross",
        "resolved",
        "resting fills",
        "resting fills in part",
        "rests",
        "takes and rests",
        "user",
        "IDEMPOTENCY_KEY_REUSE",
        "ORDER_NOT_FOUND",
        "decided: awaits",
        "decided: fak_not_filled",
        "decided: fills",
        "decided: fills in part",
        "decided: fok_not_filled",
        "decided: rests",
        "decided: takes and rests",
        "dropped: FOK_ORDER_NOT_FILLED_ERROR",
        "dropped: INSUFFICIENT_LIQUIDITY",
        "dropped: INVALID_ORDER_EXPIRATION",
        "dropped: INVALID_ORDER_MIN_TICK_SIZE",
        "dropped: MARKET_CLOSED",
        "dropped: SLIPPAGE_EXCEEDED",
        "dropped: VENUE_UNAVAILABLE",
        "game_start",
        "heartbeat",
        "heartbeat ends",
        "delayed",
        "replay",
        "replay while delayed",
        "reset while delayed",
        "reset with positions",
        "resolved while delayed",
        "UNDO_BEFORE",
        "UNDO_NOT_KEPT",
        "UNDO_RESET",
        "UNDO_RESOLVED",
        "UNDO_SHARES_GONE",
        "purchase undone",
        "sale undone",
        "undone while open",
    ] {
        assert!(reached.contains_key(what), "no step led to: {what}");
    }
}
