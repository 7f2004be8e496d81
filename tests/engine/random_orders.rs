//! Random runs of orders that may rest, for which the engine and the naive matcher must agree after
//! every step.
//!
//! `PAPERBOURSE_ORDER_RUNS` sets the number of runs, and `PAPERBOURSE_ORDER_SEED` the first seed. A
//! run that fails prints its seed and its steps.

mod convert;

use std::collections::BTreeMap;

use paperbourse::engine::Verdict;
use paperbourse::engine::command::{
    CancelOrder, CancelOrders, ExpireOrders, MatchOrders, OpenAccount, OrderNames, Owner,
    PlaceOrder, Settle, Trade, TradeOrder,
};
use paperbourse::engine::event::{Event, Events};
use paperbourse::engine::payload::{NamedTimeInForce, NewOrder};
use paperbourse::engine::payout::Decision;
use paperbourse::engine::settlement::Payment;
use paperbourse::engine::terms::OrderKind;
use paperbourse::ids::{AccountId, OrderId, OutcomeIndex, Timestamp};
use paperbourse::market::book::{Level, Side};
use paperbourse::market::catalogue::{Fees, MarketStatus};
use paperbourse::money::{FeeRate, Price, Shares, Usd};

use crate::contradictions::{history, replay};
use crate::naive::{Book, Market, Micros};
use crate::naive_orders::{Fact, Fill, NaiveOrders, QUANTITY_MIN, Sent, Tif};
use crate::report;
use crate::world::World;
use convert::{
    account_id, at, events_of, facts, index, level, market_id, narrow, new_order, price, side,
    subject,
};

const ACCOUNTS: usize = 4;
const LABELS: &[&str] = &["Yes", "No"];
const MARKETS: usize = 3;
const STEPS: usize = 150;
const RUNS_DEFAULT: u64 = 40;
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
    reached: BTreeMap<&'static str, u64>,
}

impl Drop for Pair {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("seed {}:\n{}", self.seed, self.steps.join("\n"));
        }
    }
}

impl Pair {
    fn new(seed: u64) -> Self {
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
            reached: BTreeMap::new(),
        };
        if pair.random.once_in(3) {
            pair.world.rules.kept_orders_max = 4;
        }
        if pair.random.once_in(3) {
            pair.world.rules.open_orders_max = 2;
            pair.naive.open_max = 2;
        }
        pair
    }

    fn step(&mut self) {
        match self.random.below(100) {
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
            _ => self.change_book(),
        }
        self.check();
    }

    #[track_caller]
    fn agree(&mut self, what: &str, actual: &[Fact], expected: &[Fact]) {
        self.steps.push(format!("{what} -> {expected:?}"));
        assert_eq!(actual, expected, "{what}");
        for fact in expected {
            let reached = match *fact {
                Fact::Refused(code) => code,
                Fact::Placed(fill, None, true) if fill.quantity == 0 => "awaits",
                Fact::Placed(fill, None, _) if fill.quantity == 0 => "rests",
                Fact::Placed(fill, None, _) if self.naive.is_open(fill.order) => "takes and rests",
                Fact::Placed(_, None, _) => "fills",
                Fact::Placed(fill, Some(_), _) if fill.quantity > 0 => "fills in part",
                Fact::Placed(_, Some(end), _) => end,
                Fact::Admitted(_) => "admitted",
                Fact::Filled(fill) if self.naive.is_open(fill.order) => "resting fills in part",
                Fact::Filled(_) => "resting fills",
                Fact::Ended(_, reason) => reason,
            };
            *self.reached.entry(reached).or_default() += 1;
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
        let what = format!("{sent:?}");
        let names = OrderNames::default();
        let owner = Owner::Account(account_id(&self.world, sent.account));
        let verdict = if sent.is_trade {
            let order = TradeOrder {
                market_id: market_id(sent.market).into(),
                outcome: LABELS[sent.outcome].into(),
                side: side(sent.is_buy),
                quantity: Shares::from_micros(narrow(sent.quantity)),
                expected_price: sent.expected_price.map(price),
                max_slippage_bps: sent.max_slippage_bps,
            };
            events_of(self.world.run(&Trade::new(owner, order, names)))
        } else {
            events_of(self.world.run(&PlaceOrder::new(owner, new_order(&sent), names)))
        };
        let actual = match verdict {
            Ok(events) => facts(&events),
            Err(code) => vec![Fact::Refused(code)],
        };
        let expected = self.naive.place(&sent);
        self.agree(&what, &actual, &expected);
    }

    fn sent(&mut self) -> Sent {
        let market = self.random.below(MARKETS);
        let (account, outcome) = (self.random.below(ACCOUNTS), self.random.below(2));
        let held = self.naive.position(account, market, outcome).0;
        let is_buy = if held > 0 { self.random.once_in(2) } else { !self.random.once_in(8) };
        let is_limit = self.random.below(4) > 0;
        let is_trade = !is_limit && self.random.once_in(3);
        let middle =
            if outcome == 0 { self.middle[market] } else { 100 - self.middle[market] } * CENT;
        let away = self.random.within(-6, 6) * CENT;
        let fine = if self.random.once_in(12) { 1_000 } else { 0 };
        let near = middle + away + fine;
        let free = self.naive.cash(account) - self.naive.reserved_cash(account);
        let quantity = match self.random.below(8) {
            0 if held > 0 => held,
            1 => self.random.within(1, 3 * QUANTITY_MIN),
            2 => self.random.within(20, 60) * 1_000_000,
            // All that the account can spend at this price.
            3 if is_buy && free > CENT => free * 1_000_000 / near,
            _ => self.random.within(4, 15) * 1_000_000,
        };
        let until = self.naive.now_ms + narrow(self.random.within(-500, 20_000));
        let tif = match (is_limit, self.random.below(8)) {
            (true, 0) => Tif::Fak,
            (true, 1) => Tif::Fok,
            (true, 2..4) => Tif::Gtd(until),
            (true, _) => Tif::Gtc,
            (false, 0..4) if !is_trade => Tif::Fak,
            (false, _) => Tif::Fok,
        };
        let has_amount = !is_limit && !is_trade && is_buy && self.random.once_in(2);
        let has_price = is_limit || !is_trade && self.random.once_in(2);
        let bounds = self.random.below(12);
        Sent {
            account,
            market,
            outcome,
            is_buy,
            is_limit,
            is_trade,
            tif,
            quantity,
            amount: has_amount.then(|| match self.random.below(6) {
                0 => self.random.within(1, 100),
                _ => self.random.within(1, 12_000_000),
            }),
            price: has_price.then_some(near),
            post_only: is_limit && self.random.once_in(6),
            expected_price: (bounds < 2).then_some(middle),
            max_slippage_bps: (bounds == 1 || bounds == 2).then_some(100),
        }
    }

    fn pass(&mut self) {
        let passed = if self.random.once_in(2) { 400 } else { 3_000 };
        self.naive.now_ms += passed;
        self.world.now = at(self.naive.now_ms);
        self.steps.push(format!("now {}", self.naive.now_ms));
    }

    fn cancel(&mut self) {
        let count = self.naive.orders.len();
        let order = self.random.below(count + 1);
        let account = match self.naive.orders.get(order) {
            Some(order) if !self.random.once_in(8) => order.sent.account,
            _ => self.random.below(ACCOUNTS),
        };
        if order < count && self.world.state.order(self.id(order)).is_none() {
            return;
        }
        let command =
            CancelOrder { account: account_id(&self.world, account), order: self.id(order) };
        let actual = match events_of(self.world.run(&command)) {
            Ok(events) => facts(&events),
            Err(code) => vec![Fact::Refused(code)],
        };
        let expected = self.naive.cancel(account, order);
        self.agree(&format!("cancel {account} {order}"), &actual, &expected);
    }

    fn cancel_all(&mut self) {
        let account = self.random.below(ACCOUNTS);
        let market = Some(self.random.below(MARKETS)).filter(|_| self.random.once_in(2));
        let command = CancelOrders {
            account: account_id(&self.world, account),
            market_id: market.map(|market| market_id(market).into()),
            token_id: None,
        };
        let events = events_of(self.world.run(&command)).expect("an account");
        let expected = self.naive.cancel_all(account, market);
        self.agree(&format!("cancel all {account} {market:?}"), &facts(&events), &expected);
    }

    fn expire(&mut self) {
        let events = events_of(self.world.run(&ExpireOrders)).expect("it is not refused");
        let expected = self.naive.expire();
        self.agree("expire", &facts(&events), &expected);
    }

    fn change_market(&mut self) {
        let market = self.random.below(MARKETS);
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
        self.world.describe(&market_id(market), |info| {
            info.status = if is_open { MarketStatus::Open } else { MarketStatus::Paused };
            info.fees = Fees::from_schedule(FeeRate::from_micros(narrow(fees.0)), fees.1);
            info.tick = price(tick);
        });
        self.steps.push(format!("market {market} open {is_open} fees {fees:?} tick {tick}"));
    }

    fn restart(&mut self) {
        self.world.restart();
        self.naive.restart();
        self.steps.push("restart".to_owned());
    }

    fn settle(&mut self) {
        let market = self.random.below(MARKETS);
        let payouts = match self.random.below(3) {
            0 => vec![1_000_000, 0],
            1 => vec![0, 1_000_000],
            _ => vec![333_333, 666_667],
        };
        let tokens = LABELS.iter().map(|label| format!("{}-{label}", market_id(market)).into());
        let decision = Decision {
            condition_id: market_id(market).into(),
            payouts: tokens.zip(payouts.iter().copied().map(price)).collect(),
            evidence: "the test".into(),
        };
        let command = Settle(decision.into());
        let mut actual = Vec::new();
        loop {
            let verdict = self.world.run(&command).expect("a market of the shard");
            let (Verdict::Happens(_, payment) | Verdict::Already(payment)) = &verdict;
            let is_whole = *payment == Payment::Whole;
            if let Verdict::Happens(events, _) = &verdict {
                actual.extend(facts(events));
            }
            if is_whole {
                break;
            }
        }
        let expected = self.naive.settle(market, payouts);
        self.agree(&format!("settle {market}"), &actual, &expected);
    }

    fn id(&self, order: usize) -> OrderId {
        OrderId::new(self.world.state.shard(), order as u64 + 1).expect("a small counter")
    }

    /// Money, shares, reserves and every order are what the naive matcher adds up.
    #[track_caller]
    fn check(&self) {
        let (state, naive) = (&self.world.state, &self.naive);
        for (account, row) in state.accounts().enumerate() {
            let ledger = row.ledger;
            let sums = ledger.granted + ledger.sales + ledger.payouts;
            assert_eq!(ledger.cash(), sums - ledger.purchases - ledger.fees, "conservation");
            assert_eq!(Micros::from(ledger.cash().micros()), naive.cash(account), "cash");
            let reserved = naive.reserved_cash(account);
            assert_eq!(Micros::from(ledger.reserved.micros()), reserved, "reserved cash");
            assert!(ledger.available() >= Usd::ZERO, "more is reserved than there is");
            for position in row.positions {
                let id = &*state.used_market(position.market).condition_id;
                let market = (0..MARKETS).find(|&market| market_id(market) == id);
                let (market, outcome) = (market.expect("a market"), position.outcome.index());
                let expected = naive.position(account, market, outcome);
                let actual = (position.shares.micros().into(), position.cost.micros().into());
                assert_eq!(actual, expected, "shares and cost");
                assert!(naive.reserved_shares(account, market, outcome) <= expected.0);
            }
            let count = naive.fills.iter();
            let count = count.filter(|fill| naive.orders[fill.order].sent.account == account);
            let account = state.account(row.id).expect("a row is of an account");
            assert_eq!(account.fill_count_ever(), count.count() as u64, "fills");
        }
        let open = (0..naive.orders.len()).filter(|&order| naive.is_open(order)).count();
        assert_eq!(state.open_order_count(), open);
        for (order, expected) in naive.orders.iter().enumerate() {
            let Some(row) = state.order_row(self.id(order)) else {
                assert!(!naive.is_open(order), "an open order was forgotten");
                continue;
            };
            let Some(life) = row.life else {
                assert_eq!(
                    (naive.status(order), naive.filled(order)),
                    ("FILLED", expected.quantity)
                );
                continue;
            };
            assert_eq!(life.status().as_str(), naive.status(order), "order {order}");
            assert_eq!(life.end.map(|end| end.reason.as_str()), expected.end, "order {order}");
            assert_eq!(life.awaits_book, expected.awaits && naive.is_open(order), "order {order}");
            let fills: Vec<&Fill> = naive.fills.iter().filter(|fill| fill.order == order).collect();
            let sum = |of: fn(&Fill) -> Micros| fills.iter().map(|fill| of(fill)).sum::<Micros>();
            let progress = life.progress;
            let actual =
                [progress.filled.micros(), progress.notional.micros(), progress.fee.micros()];
            let sums = [sum(|fill| fill.quantity), sum(|fill| fill.notional), sum(|fill| fill.fee)];
            assert_eq!(actual.map(Micros::from), sums, "order {order}");
            assert_eq!(progress.fill_count as usize, fills.len(), "order {order}");
        }
    }

    /// The records alone give the state.
    fn check_records(&self) {
        let shard = self.world.state.shard();
        let replayed = replay(&history(&self.world.records), shard).expect("records of a world");
        assert_eq!(replayed.hash(), self.world.state.hash());
        assert!(replayed == self.world.state, "the records give another state");
    }
}

/// What has become of a shard after a random run.
pub(crate) fn random_world(seed: u64, steps: usize) -> World {
    let mut pair = Pair::new(seed);
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
    let mut reached: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + runs {
        let mut pair = Pair::new(seed);
        for _ in 0..STEPS {
            pair.step();
        }
        pair.check_records();
        for (what, count) in &pair.reached {
            *reached.entry(what).or_default() += count;
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
    ] {
        assert!(reached.contains_key(what), "no step led to: {what}");
    }
}
