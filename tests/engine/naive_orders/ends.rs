//! How open orders end before they are filled.

use super::*;

/// How often an account beats, and when it last did; `None` if nobody remembers.
#[derive(Clone, Copy)]
pub(super) struct Heartbeat {
    interval_ms: i64,
    beat_ms: Option<i64>,
}

impl NaiveOrders {
    pub(crate) fn cancel(&mut self, account: usize, order: usize) -> Vec<Fact> {
        if self.is_gone(order) || self.orders[order].sent.account != account {
            return vec![Fact::Refused("ORDER_NOT_FOUND")];
        }
        if !self.is_open(order) || self.is_delayed(order) {
            return vec![Fact::Refused("ORDER_NOT_CANCELLABLE")];
        }
        self.end_all(&[order], "user")
    }

    pub(crate) fn cancel_all(&mut self, account: usize, market: Option<usize>) -> Vec<Fact> {
        let mut orders = self.resting_of(account);
        orders.retain(|&order| market.is_none_or(|it| self.orders[order].sent.market == it));
        self.end_all(&orders, "user")
    }

    /// Whether a reset closed the position, and it was not bought since.
    pub(crate) fn is_closed_by_reset(&self, account: usize, market: usize, outcome: usize) -> bool {
        let is_bought = |fill: &Fill| {
            let sent = &self.orders[fill.order].sent;
            (sent.account, sent.market, sent.outcome) == (account, market, outcome)
        };
        self.lost.contains(&(account, market, outcome))
            && !self.fills[self.newest_reset(account)..].iter().any(is_bought)
    }

    /// Starts an account anew: nothing open, and the starting balance.
    pub(crate) fn reset(&mut self, account: usize) -> Vec<Fact> {
        let mut facts = self.end_all(&self.open_of(account), "reset");
        let granted = self.balance - self.cash(account);
        let (mut position_count, mut cost) = (0, 0);
        for market in 0..self.markets.len() {
            for outcome in 0..2 {
                let (shares, costs) = self.position(account, market, outcome);
                if shares > 0 {
                    self.lost.insert((account, market, outcome));
                    position_count += 1;
                    cost += costs;
                } else if !self.is_closed_by_reset(account, market, outcome) {
                    self.lost.remove(&(account, market, outcome));
                }
            }
        }
        if facts.is_empty() && position_count == 0 && granted == 0 {
            return facts;
        }
        self.reset_at.entry(account).or_default().push(self.fills.len());
        *self.reset_counts.entry(account).or_default() += 1;
        facts.push(Fact::Reset { account, position_count, cost, granted });
        facts
    }

    fn resting_of(&self, account: usize) -> Vec<usize> {
        self.resting().filter(|&order| self.orders[order].sent.account == account).collect()
    }

    pub(crate) fn expire(&mut self) -> Vec<Fact> {
        let mut due: Vec<(i64, usize)> = Vec::new();
        for order in self.resting() {
            if let Tif::Gtd(at) = self.orders[order].sent.tif
                && at <= self.now_ms
            {
                due.push((at, order));
            }
        }
        due.sort_unstable();
        let due: Vec<usize> = due.into_iter().map(|(_, order)| order).collect();
        self.end_all(&due, "gtd_expired")
    }

    pub(crate) fn beat(&mut self, account: usize, interval_ms: i64) -> Vec<Fact> {
        let beat = Heartbeat { interval_ms, beat_ms: Some(self.now_ms) };
        let before = self.heartbeats.insert(account, beat);
        let is_new = before.is_none_or(|before| before.interval_ms != interval_ms);
        if is_new { vec![Fact::Heartbeat(account, Some(interval_ms))] } else { Vec::new() }
    }

    /// After a start, each account has a whole interval.
    pub(super) fn forget_beats(&mut self) {
        for heartbeat in self.heartbeats.values_mut() {
            heartbeat.beat_ms = None;
        }
    }

    /// Cancels what rests of the accounts that have stopped beating.
    pub(crate) fn end_silent(&mut self) -> Vec<Fact> {
        let mut silent: Vec<(i64, usize)> = Vec::new();
        for (&account, heartbeat) in &mut self.heartbeats {
            let Heartbeat { interval_ms, beat_ms } = *heartbeat;
            let until = beat_ms.unwrap_or(self.now_ms) + interval_ms + (interval_ms / 4).max(1_000);
            if until <= self.now_ms {
                silent.push((until, account));
            }
            heartbeat.beat_ms = Some(beat_ms.unwrap_or(self.now_ms));
        }
        silent.sort_unstable();
        let mut facts = Vec::new();
        for (_, account) in silent {
            facts.extend(self.end_all(&self.resting_of(account), "heartbeat"));
            facts.push(Fact::Heartbeat(account, None));
            self.heartbeats.remove(&account);
        }
        facts
    }

    /// Clears the books of a market of what rests there since before this time.
    pub(crate) fn clear_books(&mut self, market: usize, at_ms: i64) -> Vec<Fact> {
        let mut orders = self.open_in(market);
        orders.retain(|&order| !self.is_delayed(order) && self.orders[order].came_ms < at_ms);
        self.end_all(&orders, "game_start")
    }

    /// Ends the open orders of a market and pays its positions, if it was ever used.
    pub(crate) fn settle(&mut self, market: usize, payouts: Vec<Micros>) -> Vec<Fact> {
        let is_used = self.orders.iter().any(|order| order.sent.market == market);
        if !is_used || self.settled.contains_key(&market) {
            return Vec::new();
        }
        let facts = self.end_all(&self.open_in(market), "resolved");
        let accounts: BTreeSet<usize> = self.orders.iter().map(|it| it.sent.account).collect();
        for account in accounts {
            for (outcome, &price) in payouts.iter().enumerate() {
                let (shares, cost) = self.position(account, market, outcome);
                let brought = dollars(price, shares).floor() - cost;
                self.paid.insert((account, market, outcome), brought);
            }
        }
        self.settled.insert(market, payouts);
        facts
    }

    /// The open orders of a market: what rests by outcome, purchases first, the best price first
    /// and then the oldest; then what is delayed, the oldest first.
    fn open_in(&self, market: usize) -> Vec<usize> {
        let mut orders: Vec<usize> = self.open().collect();
        orders.retain(|&order| self.orders[order].sent.market == market);
        orders.sort_by_key(|&order| {
            let sent = &self.orders[order].sent;
            if self.is_delayed(order) {
                return (true, 0, false, 0, order);
            }
            let rank = if sent.is_buy { -limit(sent) } else { limit(sent) };
            (false, sent.outcome, !sent.is_buy, rank, order)
        });
        orders
    }

    pub(super) fn end_all(&mut self, orders: &[usize], reason: &'static str) -> Vec<Fact> {
        let mut facts = Vec::new();
        for &order in orders {
            self.end(order, reason, &mut facts);
        }
        self.forget_used();
        facts
    }
}
