//! The naive shard: lists of events, and every number summed up from the start each time.
//!
//! It shares no code with the engine: exact fractions for money, sorted maps for books, linear
//! searches for names. It is slow, and its rules can be checked against the interface by reading.

use std::collections::{BTreeMap, BTreeSet};

use crate::ratio::Ratio;

/// Millionths of any unit.
pub(crate) type Micros = i128;

const ACTIVE_KEYS_MAX: usize = 5;
/// An account forgets all but this many of its orders, and their comments.
pub(crate) const KEPT_ORDERS_MAX: u32 = 6;

/// A market order. Accounts, markets and names are small numbers.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    pub(crate) account: usize,
    /// Sent with an access token, which opens the account.
    pub(crate) by_token: bool,
    pub(crate) market: usize,
    pub(crate) label: &'static str,
    pub(crate) is_buy: bool,
    pub(crate) quantity: Micros,
    pub(crate) expected_price: Option<Micros>,
    pub(crate) max_slippage_bps: Option<u16>,
    pub(crate) names: BTreeSet<usize>,
}

impl Order {
    /// Whether the two orders are the same request, apart from their names.
    fn is_same_request(&self, other: &Self) -> bool {
        self.market == other.market
            && self.label.to_lowercase() == other.label.to_lowercase()
            && self.is_buy == other.is_buy
            && self.quantity == other.quantity
            && self.expected_price == other.expected_price
            && self.max_slippage_bps == other.max_slippage_bps
    }
}

/// The numbers of a fill.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Fill {
    pub(crate) opens_account: bool,
    pub(crate) levels: Vec<(Micros, Micros)>,
    pub(crate) notional: Micros,
    pub(crate) fee: Micros,
    pub(crate) price: Micros,
    pub(crate) slippage_bps: Option<i128>,
    pub(crate) cash: Micros,
    pub(crate) shares: Micros,
    pub(crate) cost: Micros,
    pub(crate) average: Micros,
}

/// The result of a command.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Outcome {
    Filled(Box<Fill>),
    /// The index in the list of fills.
    Replay(usize),
    Refused(&'static str),
    Already,
    Done,
    /// The indices in the list of keys.
    Revoked(BTreeSet<usize>),
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Book {
    pub(crate) bids: BTreeMap<Micros, Micros>,
    pub(crate) asks: BTreeMap<Micros, Micros>,
    pub(crate) is_stale: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Market {
    pub(crate) labels: &'static [&'static str],
    pub(crate) is_open: bool,
    /// The rate and the exponent.
    pub(crate) fees: (Micros, i64),
    pub(crate) books: Vec<Option<Book>>,
}

/// A filled order.
struct Trade {
    order: Order,
    outcome: usize,
    notional: Micros,
    fee: Micros,
}

struct Key {
    account: usize,
    created_by: Option<usize>,
    name: Option<usize>,
    /// The end of its overlap, if it was rotated.
    expires_at: Option<i64>,
    is_revoked: bool,
}

pub(crate) struct Naive {
    pub(crate) starting_balance: Micros,
    pub(crate) now: i64,
    pub(crate) markets: Vec<Market>,
    /// The open accounts, oldest first.
    pub(crate) accounts: Vec<usize>,
    trades: Vec<Trade>,
    keys: Vec<Key>,
    /// The author and the order; `None` if the comment was deleted.
    comments: Vec<Option<(usize, usize)>>,
    /// Settled markets, and the payout of each outcome.
    settled: BTreeMap<usize, Vec<Micros>>,
}

impl Naive {
    pub(crate) fn new(starting_balance: Micros, markets: Vec<Market>) -> Self {
        Self {
            starting_balance,
            now: 0,
            markets,
            accounts: Vec::new(),
            trades: Vec::new(),
            keys: Vec::new(),
            comments: Vec::new(),
            settled: BTreeMap::new(),
        }
    }

    /// Starting balance + sales + payouts − purchases − fees.
    pub(crate) fn cash(&self, account: usize) -> Micros {
        let trades = self.trades.iter().filter(|trade| trade.order.account == account);
        let change = |trade: &Trade| {
            (if trade.order.is_buy { -trade.notional } else { trade.notional }) - trade.fee
        };
        self.starting_balance + trades.map(change).sum::<Micros>() + self.payouts(account)
    }

    /// The payouts of settled markets, rounded down for each position.
    fn payouts(&self, account: usize) -> Micros {
        let mut sum = 0;
        for (&market, payouts) in &self.settled {
            for (outcome, &price) in payouts.iter().enumerate() {
                let shares = self.bought(account, market, outcome).0;
                let pays = Ratio::micros(shares) * Ratio::micros(price);
                sum += (pays * Ratio::whole(1_000_000)).floor();
            }
        }
        sum
    }

    /// Settles a market: it pays and stays closed, if it was ever traded.
    pub(crate) fn settle(&mut self, market: usize, payouts: Vec<Micros>) -> Outcome {
        let is_used = self.trades.iter().any(|trade| trade.order.market == market);
        if !is_used || self.settled.contains_key(&market) {
            return Outcome::Already;
        }
        self.settled.insert(market, payouts);
        Outcome::Done
    }

    /// Shares and their cost; zero in a settled market.
    pub(crate) fn position(
        &self,
        account: usize,
        market: usize,
        outcome: usize,
    ) -> (Micros, Micros) {
        let is_settled = self.settled.contains_key(&market);
        if is_settled { (0, 0) } else { self.bought(account, market, outcome) }
    }

    /// Shares and their cost after all orders, before any settlement.
    fn bought(&self, account: usize, market: usize, outcome: usize) -> (Micros, Micros) {
        let own = self.trades.iter().filter(|Trade { order, outcome: of, .. }| {
            (order.account, order.market, *of) == (account, market, outcome)
        });
        sum_up(own.map(|trade| (trade.order.is_buy, trade.order.quantity, trade.notional)))
    }

    pub(crate) fn order_count(&self) -> usize {
        self.trades.len()
    }

    pub(crate) fn open(&mut self, account: usize) -> Outcome {
        if self.accounts.contains(&account) {
            return Outcome::Already;
        }
        self.accounts.push(account);
        Outcome::Done
    }

    pub(crate) fn trade(&mut self, order: &Order) -> Outcome {
        match self.filled(order) {
            Ok((outcome, fill)) => {
                if fill.opens_account {
                    self.accounts.push(order.account);
                }
                let (notional, fee) = (fill.notional, fill.fee);
                self.trades.push(Trade { order: order.clone(), outcome, notional, fee });
                let cash = self.cash(order.account);
                let (shares, cost) = self.position(order.account, order.market, outcome);
                let average = if shares == 0 { 0 } else { per_share(cost, shares) };
                Outcome::Filled(Box::new(Fill { cash, shares, cost, average, ..fill }))
            }
            Err(outcome) => outcome,
        }
    }

    /// The traded outcome and the fill, without the account's balance and position after it.
    fn filled(&self, order: &Order) -> Result<(usize, Fill), Outcome> {
        let has_account = self.accounts.contains(&order.account);
        require(has_account || order.by_token, "ACCOUNT_NOT_FOUND")?;
        let named: BTreeSet<usize> = (0..self.trades.len())
            .filter(|&index| {
                let earlier = &self.trades[index].order;
                earlier.account == order.account && !earlier.names.is_disjoint(&order.names)
            })
            .filter(|&index| self.is_kept(index))
            .collect();
        if let Some(&first) = named.first() {
            let is_same = self.trades[first].order.is_same_request(order);
            let has_all = order.names.is_subset(&self.trades[first].order.names);
            require(named.len() == 1 && is_same && has_all, "IDEMPOTENCY_KEY_REUSE")?;
            return Err(Outcome::Replay(first));
        }

        require(!self.settled.contains_key(&order.market), "MARKET_CLOSED")?;
        let market = self.markets.get(order.market);
        let market = market.ok_or(Outcome::Refused("MARKET_NOT_FOUND"))?;
        let outcome = market.outcome(order.label).ok_or(Outcome::Refused("OUTCOME_NOT_FOUND"))?;
        require(market.is_open, "MARKET_CLOSED")?;
        let (rate, exponent) = market.fees;
        let is_known = rate == 0 || exponent == 1 || exponent == 2;
        require(is_known, "FEES_UNSUPPORTED")?;
        let book = market.book(outcome).ok_or(Outcome::Refused("VENUE_UNAVAILABLE"))?;
        require(!book.is_stale, "VENUE_UNAVAILABLE")?;
        let held = self.position(order.account, order.market, outcome).0;
        require(order.is_buy || order.quantity <= held, "INSUFFICIENT_POSITION")?;

        let levels = book.taken(order.is_buy, order.quantity);
        let taken: Micros = levels.iter().map(|level| level.1).sum();
        require(taken == order.quantity, "INSUFFICIENT_LIQUIDITY")?;
        let value = levels.iter().fold(Ratio::ZERO, |sum, &(price, size)| {
            sum + Ratio::micros(price) * Ratio::micros(size)
        });
        let bounds = (order.expected_price, order.max_slippage_bps);
        let slippage = slippage((order.is_buy, order.quantity), bounds, levels[0].0, value)?;
        let dollars = value * Ratio::whole(1_000_000);
        let notional = if order.is_buy { dollars.ceil() } else { dollars.floor() };
        let fee = levels.iter().map(|&level| level_fee(rate, exponent, level)).sum();
        let change = if order.is_buy { -notional - fee } else { notional - fee };
        let cash = if has_account { self.cash(order.account) } else { self.starting_balance };
        require(cash + change >= 0, "INSUFFICIENT_BALANCE")?;
        let fill = Fill {
            opens_account: !has_account,
            notional,
            fee,
            price: per_share(notional, order.quantity),
            slippage_bps: slippage,
            levels,
            cash: 0,
            shares: 0,
            cost: 0,
            average: 0,
        };
        Ok((outcome, fill))
    }

    fn is_active(&self, key: &Key) -> bool {
        !key.is_revoked && key.expires_at.is_none_or(|end| self.now < end)
    }

    pub(crate) fn create_key(
        &mut self,
        account: usize,
        by_token: bool,
        is_bootstrap: bool,
        created_by: Option<usize>,
    ) -> Outcome {
        if !self.accounts.contains(&account) && !by_token {
            return Outcome::Refused("ACCOUNT_NOT_FOUND");
        }
        if created_by.is_some_and(|maker| self.keys[maker].expires_at.is_some()) {
            return Outcome::Refused("MAKER_ROTATED");
        }
        if !self.accounts.contains(&account) {
            self.accounts.push(account);
        }
        let active: Vec<&Key> =
            self.keys.iter().filter(|key| key.account == account && self.is_active(key)).collect();
        if is_bootstrap && !active.is_empty() {
            return Outcome::Refused("BOOTSTRAP_NOT_ALLOWED");
        }
        if active.iter().filter(|key| key.expires_at.is_none()).count() >= ACTIVE_KEYS_MAX {
            return Outcome::Refused("TIER_KEY_LIMIT_EXCEEDED");
        }
        self.keys.push(Key {
            account,
            created_by,
            name: None,
            expires_at: None,
            is_revoked: false,
        });
        Outcome::Done
    }

    /// Why a change to a key of this account, by one of its active keys or the token, is refused.
    fn refuse_change(&self, account: usize, key: usize, with: Option<usize>) -> Option<Outcome> {
        let refused = |code| Some(Outcome::Refused(code));
        if !self.accounts.contains(&account) {
            return refused("ACCOUNT_NOT_FOUND");
        }
        if with.is_some_and(|with| self.keys[with].expires_at.is_some()) {
            return refused("MAKER_ROTATED");
        }
        match self.keys.get(key) {
            Some(key) if key.account == account => None,
            _ => refused("KEY_NOT_FOUND"),
        }
    }

    pub(crate) fn rename(
        &mut self,
        account: usize,
        key: usize,
        with: Option<usize>,
        name: Option<usize>,
    ) -> Outcome {
        if let Some(refusal) = self.refuse_change(account, key, with) {
            return refusal;
        }
        if self.keys[key].name == name {
            return Outcome::Already;
        }
        self.keys[key].name = name;
        Outcome::Done
    }

    pub(crate) fn rotate(
        &mut self,
        account: usize,
        key: usize,
        with: Option<usize>,
        overlap_seconds: u32,
    ) -> Outcome {
        if let Some(refusal) = self.refuse_change(account, key, with) {
            return refusal;
        }
        if !self.is_active(&self.keys[key]) {
            return Outcome::Refused("KEY_ENDED");
        }
        if self.keys[key].expires_at.is_some() {
            return Outcome::Refused("KEY_ROTATED");
        }
        let name = self.keys[key].name;
        let created_by = Some(key);
        self.keys.push(Key { account, created_by, name, expires_at: None, is_revoked: false });
        if overlap_seconds == 0 {
            self.keys[key].is_revoked = true;
            return Outcome::Revoked(BTreeSet::from([key]));
        }
        self.keys[key].expires_at = Some(self.now + i64::from(overlap_seconds));
        Outcome::Done
    }

    pub(crate) fn name_of(&self, key: usize) -> Option<usize> {
        self.keys[key].name
    }

    pub(crate) fn key_count(&self) -> usize {
        self.keys.len()
    }

    pub(crate) fn revoke(&mut self, account: usize, root: usize, descendants: bool) -> Outcome {
        if !self.accounts.contains(&account) {
            return Outcome::Refused("ACCOUNT_NOT_FOUND");
        }
        if self.keys.get(root).is_none_or(|key| key.account != account) {
            return Outcome::Refused("KEY_NOT_FOUND");
        }
        let ended: BTreeSet<usize> = (0..self.keys.len())
            .filter(|&key| key == root || (descendants && self.descends(key, root)))
            .filter(|&key| !self.keys[key].is_revoked)
            .collect();
        if ended.is_empty() {
            return Outcome::Already;
        }
        for &key in &ended {
            self.keys[key].is_revoked = true;
        }
        Outcome::Revoked(ended)
    }

    fn descends(&self, key: usize, ancestor: usize) -> bool {
        self.keys[key]
            .created_by
            .is_some_and(|maker| maker == ancestor || self.descends(maker, ancestor))
    }

    /// The active keys of an account.
    pub(crate) fn active_keys_of(&self, account: usize) -> Vec<usize> {
        let is_active = |key: &Key| key.account == account && self.is_active(key);
        (0..self.keys.len()).filter(|&key| is_active(&self.keys[key])).collect()
    }

    pub(crate) fn comment(&mut self, author: usize, order: usize) -> Outcome {
        if order >= self.trades.len() || !self.is_kept(order) {
            return Outcome::Refused("ORDER_NOT_FOUND");
        }
        self.comments.push(Some((author, order)));
        Outcome::Done
    }

    pub(crate) fn delete_comment(&mut self, author: usize, comment: usize) -> Outcome {
        match self.comments.get(comment) {
            Some(&Some((writer, order))) if self.is_kept(order) => {
                if writer != author {
                    return Outcome::Refused("COMMENT_NOT_OWN");
                }
                self.comments[comment] = None;
                Outcome::Done
            }
            _ => Outcome::Refused("COMMENT_NOT_FOUND"),
        }
    }

    /// Whether the account still keeps the order.
    fn is_kept(&self, order: usize) -> bool {
        let account = self.trades[order].order.account;
        let newer = self.trades[order + 1..].iter();
        newer.filter(|trade| trade.order.account == account).count() < KEPT_ORDERS_MAX as usize
    }
}

impl Market {
    fn outcome(&self, label: &str) -> Option<usize> {
        let lowered = label.to_lowercase();
        let named = self.labels.iter().position(|other| other.to_lowercase() == lowered);
        let is_binary = self.labels.len() == 2;
        named.or(match lowered.as_str() {
            "yes" if is_binary => Some(0),
            "no" if is_binary => Some(1),
            _ => None,
        })
    }

    /// The outcome's own book, or the mirror of the other one's in a binary market.
    pub(crate) fn book(&self, outcome: usize) -> Option<Book> {
        if let Some(book) = &self.books[outcome] {
            return Some(book.clone());
        }
        if self.books.len() != 2 {
            return None;
        }
        let other = self.books[1 - outcome].as_ref()?;
        let turned = |side: &BTreeMap<Micros, Micros>| {
            side.iter().map(|(price, &size)| (1_000_000 - price, size)).collect()
        };
        let (bids, asks) = (turned(&other.asks), turned(&other.bids));
        Some(Book { bids, asks, is_stale: other.is_stale })
    }
}

impl Book {
    /// The best levels up to the quantity, or all of them if there is less.
    fn taken(&self, is_buy: bool, quantity: Micros) -> Vec<(Micros, Micros)> {
        let best_first: Vec<_> =
            if is_buy { self.asks.iter().collect() } else { self.bids.iter().rev().collect() };
        let mut rest = quantity;
        let mut taken = Vec::new();
        for (&price, &size) in best_first {
            if rest > 0 {
                taken.push((price, size.min(rest)));
                rest -= size.min(rest);
            }
        }
        taken
    }
}

/// Shares and their cost after these orders: whether each is a purchase, its shares and its
/// notional. A sale takes its part of the cost, rounded down.
pub(crate) fn sum_up(orders: impl Iterator<Item = (bool, Micros, Micros)>) -> (Micros, Micros) {
    let (mut shares, mut cost) = (0, 0);
    for (is_buy, quantity, notional) in orders {
        if is_buy {
            shares += quantity;
            cost += notional;
        } else {
            let part = Ratio::whole(quantity) / Ratio::whole(shares);
            cost -= (Ratio::whole(cost) * part).floor();
            shares -= quantity;
        }
    }
    (shares, cost)
}

pub(crate) fn require(holds: bool, code: &'static str) -> Result<(), Outcome> {
    if holds { Ok(()) } else { Err(Outcome::Refused(code)) }
}

/// Dollars per share, to a millionth, halves to even.
fn per_share(dollars: Micros, shares: Micros) -> Micros {
    (Ratio::micros(dollars) / Ratio::micros(shares) * Ratio::whole(1_000_000)).nearest_even()
}

/// shares × rate × (p(1−p))^exponent dollars, half to even at five decimals.
pub(crate) fn level_fee(rate: Micros, exponent: i64, (price, size): (Micros, Micros)) -> Micros {
    let price = Ratio::micros(price);
    let weight = (0..exponent).fold(Ratio::ONE, |power, _| power * (price * (Ratio::ONE - price)));
    if rate == 0 {
        return 0;
    }
    let dollars = Ratio::micros(size) * Ratio::micros(rate) * weight;
    (dollars * Ratio::whole(100_000)).nearest_even() * 10
}

/// The slippage from the reference, in basis points rounded up, or a refusal if it is too much.
/// `None` for a reference of 0.
pub(crate) fn slippage(
    (is_buy, quantity): (bool, Micros),
    (expected_price, max_slippage_bps): (Option<Micros>, Option<u16>),
    touch: Micros,
    value: Ratio,
) -> Result<Option<i128>, Outcome> {
    let average = value / Ratio::micros(quantity);
    let reference = Ratio::micros(expected_price.unwrap_or(touch));
    let adverse = if is_buy { average - reference } else { reference - average };
    let default_bound = expected_price.map(|_| 500);
    let bound = max_slippage_bps.or(default_bound);
    if reference == Ratio::ZERO {
        require(!is_buy, "SLIPPAGE_EXCEEDED")?;
        return Ok(None);
    }
    let bps = adverse / reference * Ratio::whole(10_000);
    require(bound.is_none_or(|bound| bps <= Ratio::whole(bound.into())), "SLIPPAGE_EXCEEDED")?;
    Ok(Some(bps.ceil().max(0)))
}
