//! The naive matcher: a list of orders and a list of fills, and every number summed up from the
//! start each time. It looks at all orders whenever a book changes, and shares no code with the
//! engine.

mod cost;
mod delayed;
mod ends;
mod money;
mod undo;

use std::collections::{BTreeMap, BTreeSet};

use crate::naive::{Book, Market, Micros, Outcome, level_fee, require, slippage};
use crate::ratio::Ratio;
use cost::{affordable, cost, dollars, limit, reaches, taken, value};
use ends::Heartbeat;

pub(crate) const QUANTITY_MIN: Micros = 5_000_000;
/// A level that is gone for less than this is the same level when it comes back.
const FLICKER_MS: i64 = 1_000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Tif {
    Gtc,
    /// Until this time, in milliseconds.
    Gtd(i64),
    Fok,
    Fak,
}

impl Tif {
    const fn may_rest(self) -> bool {
        matches!(self, Self::Gtc | Self::Gtd(_))
    }
}

/// An order as it is sent. Accounts and markets are small numbers.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "fields of a request, not states")]
pub(crate) struct Sent {
    pub(crate) account: usize,
    pub(crate) market: usize,
    pub(crate) outcome: usize,
    pub(crate) is_buy: bool,
    pub(crate) is_limit: bool,
    /// Sent to `POST /trade`.
    pub(crate) is_trade: bool,
    pub(crate) tif: Tif,
    pub(crate) quantity: Micros,
    /// Instead of the quantity.
    pub(crate) amount: Option<Micros>,
    pub(crate) price: Option<Micros>,
    pub(crate) post_only: bool,
    pub(crate) expected_price: Option<Micros>,
    pub(crate) max_slippage_bps: Option<u16>,
}

#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) sent: Sent,
    /// What it asks for; for an amount, what that bought.
    pub(crate) quantity: Micros,
    pub(crate) awaits: bool,
    /// The dollars that it holds back while it waits to be decided.
    pub(crate) held: Option<Micros>,
    /// When it came, or was decided, in milliseconds.
    came_ms: i64,
    /// How long it was delayed.
    pub(crate) delayed_ms: i64,
    pub(crate) names: Vec<usize>,
    is_forgotten: bool,
    /// Why it ended before it was filled.
    pub(crate) end: Option<&'static str>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Fill {
    pub(crate) order: usize,
    pub(crate) quantity: Micros,
    pub(crate) notional: Micros,
    pub(crate) fee: Micros,
}

/// What a step did, in order.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Fact {
    Refused(&'static str),
    /// A new order: what it took, why it ended, and whether it awaits its book.
    Placed(Fill, Option<&'static str>, bool),
    /// The order that has the request's names.
    Replayed(usize),
    /// A new order that waits, and what it holds back: dollars, shares.
    Delayed(usize, Micros, Micros),
    /// A delayed order that was refused when it was decided.
    Dropped(usize),
    Admitted(usize),
    Filled(Fill),
    Ended(usize, &'static str),
    /// A part of an order was undone: cash, shares, their cost, and the profit without it.
    Undone(usize, usize, [Micros; 4]),
    /// An account's heartbeat began, changed or ended.
    Heartbeat(usize, Option<i64>),
    /// An account started anew: the positions that it lost and what they had cost, and how much its
    /// cash grew.
    Reset {
        account: usize,
        position_count: usize,
        cost: Micros,
        granted: Micros,
    },
}

/// What an account has used of a displayed level.
#[derive(Clone, Copy, Debug)]
struct Used {
    left: Micros,
    shown: Micros,
    grown: Micros,
    restart_count: u32,
}

/// A level, by the outcome whose book shows it, whether it is an ask there, and its price.
type Place = (usize, usize, bool, Micros);

/// An account's orders on one side of an outcome.
type Side = (usize, usize, usize, bool);

#[derive(Default)]
struct Level {
    size: Micros,
    /// The sum of what was added to it.
    grown: Micros,
    gone: Option<(Micros, i64)>,
}

pub(crate) struct NaiveOrders {
    pub(crate) balance: Micros,
    pub(crate) now_ms: i64,
    pub(crate) markets: Vec<Market>,
    pub(crate) ticks: Vec<Micros>,
    /// How long each market delays what it could match at once.
    pub(crate) delays_ms: Vec<i64>,
    pub(crate) open_max: usize,
    pub(crate) orders: Vec<Order>,
    pub(crate) fills: Vec<Fill>,
    /// The fills that were undone, by their places in `fills`.
    pub(crate) undone: BTreeSet<usize>,
    settled: BTreeMap<usize, Vec<Micros>>,
    /// What payouts have brought above the cost, by account, market and outcome.
    paid: BTreeMap<(usize, usize, usize), Micros>,
    used: BTreeMap<(Side, Place), Used>,
    levels: BTreeMap<Place, Level>,
    restart_count: u32,
    heartbeats: BTreeMap<usize, Heartbeat>,
    /// How many fills there were at each reset of an account; only later ones count.
    reset_at: BTreeMap<usize, Vec<usize>>,
    /// How often each account was reset.
    pub(crate) reset_counts: BTreeMap<usize, u32>,
    /// The positions that the newest reset of each account closed: account, market, outcome.
    lost: BTreeSet<(usize, usize, usize)>,
}

impl NaiveOrders {
    pub(crate) fn new(balance: Micros, markets: Vec<Market>) -> Self {
        Self {
            balance,
            now_ms: 0,
            ticks: vec![10_000; markets.len()],
            delays_ms: vec![0; markets.len()],
            markets,
            open_max: 1_000,
            orders: Vec::new(),
            fills: Vec::new(),
            undone: BTreeSet::new(),
            settled: BTreeMap::new(),
            paid: BTreeMap::new(),
            used: BTreeMap::new(),
            levels: BTreeMap::new(),
            restart_count: 0,
            heartbeats: BTreeMap::new(),
            reset_at: BTreeMap::new(),
            reset_counts: BTreeMap::new(),
            lost: BTreeSet::new(),
        }
    }

    fn fills_of(&self, order: usize) -> impl Iterator<Item = &Fill> {
        self.fills.iter().filter(move |fill| fill.order == order)
    }

    pub(crate) fn filled(&self, order: usize) -> Micros {
        self.fills_of(order).map(|fill| fill.quantity).sum()
    }

    pub(crate) fn remaining(&self, order: usize) -> Micros {
        self.orders[order].quantity - self.filled(order)
    }

    pub(crate) fn is_open(&self, order: usize) -> bool {
        self.orders[order].end.is_none() && self.remaining(order) > 0
    }

    /// The status of an order, by the contract's words.
    pub(crate) fn status(&self, order: usize) -> &'static str {
        let filled = self.filled(order);
        match self.orders[order].end {
            None if self.is_open(order) => "PENDING",
            None => "FILLED",
            Some("fak_not_filled") if filled > 0 => "FILLED",
            Some("resolved") => "EXPIRED",
            Some(_) => "CANCELLED",
        }
    }

    fn open(&self) -> impl Iterator<Item = usize> {
        (0..self.orders.len()).filter(|&order| self.is_open(order))
    }

    pub(crate) fn open_of(&self, account: usize) -> Vec<usize> {
        self.open().filter(|&order| self.orders[order].sent.account == account).collect()
    }

    /// Publishes the book of an outcome.
    pub(crate) fn publish(&mut self, market: usize, outcome: usize, book: Book) {
        let is_first = self.markets[market].books[outcome].is_none();
        for is_ask in [false, true] {
            let shown = if is_ask { &book.asks } else { &book.bids };
            for &price in shown.keys() {
                self.levels.entry((market, outcome, is_ask, price)).or_default();
            }
            for (&(in_market, of, asks, price), level) in &mut self.levels {
                if (in_market, of, asks) != (market, outcome, is_ask) {
                    continue;
                }
                let (before, after) = (level.size, shown.get(&price).copied().unwrap_or(0));
                let former = match level.gone {
                    Some((size, at)) if before == 0 && self.now_ms - at < FLICKER_MS => size,
                    _ => before,
                };
                if before == 0 && after > 0 {
                    level.gone = None;
                }
                if before > 0 && after == 0 {
                    level.gone = Some((before, self.now_ms));
                }
                if !is_first {
                    level.grown += (after - former).max(0);
                }
                level.size = after;
            }
        }
        self.markets[market].books[outcome] = Some(book);
    }

    /// The books of a market show their levels for the first time again.
    pub(crate) fn restart(&mut self) {
        self.restart_count += 1;
        for level in self.levels.values_mut() {
            (level.grown, level.gone) = (0, None);
        }
        self.forget_beats();
    }

    pub(crate) fn place(&mut self, sent: &Sent, names: &[usize]) -> Vec<Fact> {
        if let Some(fact) = self.known(sent, names) {
            return vec![fact];
        }
        let order = self.orders.len();
        match self.placed(sent, true) {
            Ok((new, fill)) => {
                self.orders.push(Order { names: names.to_vec(), ..new });
                vec![self.note_placed(Fill { order, ..fill })]
            }
            Err(refusal) => vec![Fact::Refused(code(refusal))],
        }
    }

    /// Notes what an order took when it was placed.
    fn note_placed(&mut self, fill: Fill) -> Fact {
        let order = &self.orders[fill.order];
        if let Some(cash) = order.held {
            let shares = if order.sent.is_buy { 0 } else { order.quantity };
            return Fact::Delayed(fill.order, cash, shares);
        }
        let fact = Fact::Placed(fill, order.end, order.awaits);
        if fill.quantity > 0 {
            self.fills.push(fill);
        }
        self.use_up(fill.order);
        fact
    }

    /// If the order rests, all that it took of the displayed levels is used.
    fn use_up(&mut self, order: usize) {
        let sent = self.orders[order].sent;
        if !self.is_open(order) || self.filled(order) == 0 {
            return;
        }
        let levels = self.shown(sent.market, sent.outcome, sent.is_buy);
        for (place, price, _) in levels {
            if reaches(&sent, price) {
                self.note_used(&sent, place, 0);
            }
        }
    }

    fn note_used(&mut self, sent: &Sent, place: Place, left: Micros) {
        let Level { size, grown, .. } = self.levels[&place];
        let used = Used { left, shown: size, grown, restart_count: self.restart_count };
        self.used.insert((side_of(sent), place), used);
    }

    /// The levels that an order takes, best first, each with its place.
    fn shown(&self, market: usize, outcome: usize, is_buy: bool) -> Vec<(Place, Micros, Micros)> {
        let Some(book) = self.markets[market].book(outcome) else { return Vec::new() };
        let is_own = self.markets[market].books[outcome].is_some();
        let levels: Vec<(Micros, Micros)> = if is_buy {
            book.asks.into_iter().collect()
        } else {
            book.bids.into_iter().rev().collect()
        };
        let place = |price| {
            if is_own {
                (market, outcome, is_buy, price)
            } else {
                (market, 1 - outcome, !is_buy, 1_000_000 - price)
            }
        };
        levels.into_iter().map(|(price, size)| (place(price), price, size)).collect()
    }

    /// What becomes of an order now. A new one that could be matched may have to wait.
    fn placed(&self, sent: &Sent, is_new: bool) -> Result<(Order, Fill), Outcome> {
        let now = self.now_ms;
        // Fields.
        let is_late = matches!(sent.tif, Tif::Gtd(at) if at <= now);
        require(!is_late, "INVALID_ORDER_EXPIRATION")?;
        require(!sent.post_only || sent.tif.may_rest(), "INVALID_POST_ONLY_ORDER_TYPE")?;
        // The market.
        require(!self.settled.contains_key(&sent.market), "MARKET_CLOSED")?;
        let market = &self.markets[sent.market];
        require(market.is_open, "MARKET_CLOSED")?;
        let (rate, exponent) = market.fees;
        // The limit.
        let (held, _) = self.position(sent.account, sent.market, sent.outcome);
        if sent.is_limit {
            let (price, tick) = (limit(sent), self.ticks[sent.market]);
            let is_on_grid = price % tick == 0 && price >= tick && price <= 1_000_000 - tick;
            require(is_on_grid, "INVALID_ORDER_MIN_TICK_SIZE")?;
            let is_all = !sent.is_buy && sent.quantity == held;
            require(sent.quantity >= QUANTITY_MIN || is_all, "INVALID_ORDER_MIN_SIZE")?;
        }
        // The book.
        let is_fresh = market.book(sent.outcome).is_some_and(|book| !book.is_stale);
        require(is_fresh || sent.is_limit && sent.tif.may_rest(), "VENUE_UNAVAILABLE")?;
        let levels: Vec<(Micros, Micros)> = self
            .shown(sent.market, sent.outcome, sent.is_buy)
            .into_iter()
            .filter(|&(_, price, _)| is_fresh && (sent.price.is_none() || reaches(sent, price)))
            .map(|(_, price, size)| (price, size))
            .collect();
        let (quantity, is_spent) = match sent.amount {
            None => (sent.quantity, true),
            Some(amount) => affordable(amount, &levels),
        };
        require(sent.amount.is_none() || quantity > 0 || !is_spent, "AMOUNT_TOO_SMALL")?;
        // The account.
        let reserved = self.reserved_shares(sent.account, sent.market, sent.outcome);
        require(sent.is_buy || quantity <= held - reserved, "INSUFFICIENT_POSITION")?;
        let rests = sent.is_limit && sent.tif.may_rest();
        let has_room = self.open_of(sent.account).len() < self.open_max;
        require(!rests || has_room, "OPEN_ORDER_LIMIT_EXCEEDED")?;
        require(!sent.post_only || levels.is_empty(), "INVALID_POST_ONLY_ORDER")?;
        let available = self.cash(sent.account) - self.reserved_cash(sent.account);
        let order = Order::new(*sent, quantity, now);
        let nothing = Fill { order: 0, quantity: 0, notional: 0, fee: 0 };
        // What it takes.
        let mut taken = taken(&levels, quantity);
        if is_new && self.delays_ms[sent.market] > 0 && !taken.is_empty() {
            require(has_room, "OPEN_ORDER_LIMIT_EXCEEDED")?;
            let held = delayed::cash(sent, quantity, &taken, (rate, exponent));
            require(held <= available, "INSUFFICIENT_BALANCE")?;
            return Ok((Order { held: Some(held), ..order }, nothing));
        }
        let sum: Micros = taken.iter().map(|level| level.1).sum();
        let is_whole = sum == quantity && is_spent;
        if !is_whole && sent.tif == Tif::Fok && !sent.is_limit {
            let has_cap = sent.price.is_some() || sent.amount.is_some();
            let code =
                if has_cap { "FOK_ORDER_NOT_FILLED_ERROR" } else { "INSUFFICIENT_LIQUIDITY" };
            return Err(Outcome::Refused(code));
        }
        if !is_whole && sent.tif == Tif::Fok {
            taken.clear();
        }
        let sum: Micros = taken.iter().map(|level| level.1).sum();
        let end = match sent.tif {
            _ if sum == quantity && sum > 0 => None,
            Tif::Gtc | Tif::Gtd(_) => None,
            Tif::Fok => Some("fok_not_filled"),
            Tif::Fak => Some("fak_not_filled"),
        };
        let (notional, fee) = cost(sent, &taken, (rate, exponent));
        if sum > 0 {
            let bounds = (sent.expected_price, sent.max_slippage_bps);
            slippage((sent.is_buy, sum), bounds, taken[0].0, value(&taken))?;
        }
        let rest = if end.is_none() { quantity - sum } else { 0 };
        let holds = if rests && sent.is_buy { dollars(limit(sent), rest).ceil() } else { 0 };
        let change = if sent.is_buy { notional + fee } else { fee - notional };
        require(change + holds <= available, "INSUFFICIENT_BALANCE")?;
        Ok((
            Order { awaits: !is_fresh, end, ..order },
            Fill { quantity: sum, notional, fee, ..nothing },
        ))
    }

    /// Matches the orders that trade on the book of this outcome, or on any of the market's.
    pub(crate) fn match_orders(&mut self, market: usize, book: Option<usize>) -> Vec<Fact> {
        let mut facts = Vec::new();
        if self.settled.contains_key(&market) || !self.markets[market].is_open {
            return facts;
        }
        for outcome in 0..self.markets[market].books.len() {
            let is_own = self.markets[market].books[outcome].is_some();
            let trades_on = if is_own { outcome } else { 1 - outcome };
            let quoted = self.markets[market].book(outcome);
            if book.is_some_and(|book| book != trades_on) || quoted.is_none_or(|it| it.is_stale) {
                continue;
            }
            for is_buy in [true, false] {
                self.match_side(market, outcome, is_buy, &mut facts);
            }
        }
        self.forget_used();
        facts
    }

    fn match_side(&mut self, market: usize, outcome: usize, is_buy: bool, facts: &mut Vec<Fact>) {
        let on =
            |sent: &Sent| (sent.market, sent.outcome, sent.is_buy) == (market, outcome, is_buy);
        let mut orders: Vec<usize> =
            self.resting().filter(|&order| on(&self.orders[order].sent)).collect();
        orders.sort_by_key(|&order| {
            let price = limit(&self.orders[order].sent);
            (if is_buy { -price } else { price }, order)
        });
        let (awaiting, resting): (Vec<usize>, Vec<usize>) =
            orders.into_iter().partition(|&order| self.orders[order].awaits);
        for order in awaiting {
            self.admit(order, facts);
        }
        for order in resting {
            self.fill(order, facts);
        }
    }

    fn end(&mut self, order: usize, reason: &'static str, facts: &mut Vec<Fact>) {
        self.orders[order].end = Some(reason);
        facts.push(Fact::Ended(order, reason));
    }

    fn is_due(&self, order: usize) -> bool {
        matches!(self.orders[order].sent.tif, Tif::Gtd(at) if at <= self.now_ms)
    }

    fn admit(&mut self, order: usize, facts: &mut Vec<Fact>) {
        let sent = self.orders[order].sent;
        if self.is_due(order) {
            return self.end(order, "gtd_expired", facts);
        }
        let levels = self.shown(sent.market, sent.outcome, sent.is_buy);
        let within: Vec<(Micros, Micros)> = levels
            .into_iter()
            .filter(|&(_, price, _)| reaches(&sent, price))
            .map(|(_, price, size)| (price, size))
            .collect();
        if sent.post_only && !within.is_empty() {
            return self.end(order, "post_only_would_cross", facts);
        }
        let taken = taken(&within, self.remaining(order));
        let quantity: Micros = taken.iter().map(|level| level.1).sum();
        let (notional, fee) = cost(&sent, &taken, self.markets[sent.market].fees);
        // As if it came now: what it holds back is free for it.
        let before = dollars(limit(&sent), self.remaining(order)).ceil();
        let after = dollars(limit(&sent), self.remaining(order) - quantity).ceil();
        let (before, after) = if sent.is_buy { (before, after) } else { (0, 0) };
        let available = self.cash(sent.account) - self.reserved_cash(sent.account) + before;
        let change = if sent.is_buy { notional + fee } else { fee - notional };
        if quantity > 0 && change + after > available {
            return self.end(order, "insufficient_balance", facts);
        }
        self.orders[order].awaits = false;
        facts.push(Fact::Admitted(order));
        if quantity > 0 {
            let fill = Fill { order, quantity, notional, fee };
            self.fills.push(fill);
            facts.push(Fact::Filled(fill));
            self.use_up(order);
        }
    }

    /// What an order may take of a level.
    fn free(&self, sent: &Sent, place: Place, shown: Micros) -> Micros {
        let Some(used) = self.used.get(&(side_of(sent), place)) else { return shown };
        let grown = self.levels[&place].grown;
        let since = if used.restart_count == self.restart_count {
            grown - used.grown
        } else {
            grown.max(shown - used.shown)
        };
        shown.min(used.left + since)
    }

    fn fill(&mut self, order: usize, facts: &mut Vec<Fact>) {
        let sent = self.orders[order].sent;
        if self.is_due(order) {
            return;
        }
        let before = self.remaining(order);
        let mut left = before;
        for (place, price, shown) in self.shown(sent.market, sent.outcome, sent.is_buy) {
            if !reaches(&sent, price) {
                continue;
            }
            let free = self.free(&sent, place, shown);
            let size = free.min(left);
            if size > 0 {
                self.note_used(&sent, place, free - size);
                left -= size;
            }
        }
        if left == before {
            return;
        }
        // The parts of an order add up to the whole, rounded once.
        let worth = |quantity| {
            let worth = dollars(limit(&sent), quantity);
            if sent.is_buy { worth.ceil() } else { worth.floor() }
        };
        let notional = worth(before) - worth(left);
        let fill = Fill { order, quantity: before - left, notional, fee: 0 };
        self.fills.push(fill);
        facts.push(Fact::Filled(fill));
    }

    /// What an account has used is known as long as it has open orders there.
    fn forget_used(&mut self) {
        let open: Vec<Side> = self.open().map(|order| side_of(&self.orders[order].sent)).collect();
        self.used.retain(|(side, _), _| open.contains(side));
    }
}

const fn side_of(sent: &Sent) -> Side {
    (sent.account, sent.market, sent.outcome, sent.is_buy)
}

fn code(refusal: Outcome) -> &'static str {
    match refusal {
        Outcome::Refused(code) => code,
        outcome => panic!("not an outcome of an order: {outcome:?}"),
    }
}
