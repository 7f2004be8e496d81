//! Which orders a random run sends.

use super::*;

/// Few enough that orders often have the names of others.
const NAMES: usize = 60;

impl Pair {
    pub(super) fn sent(&mut self) -> Sent {
        let market = self.random.below(MARKETS);
        let (account, outcome) = (self.random.below(ACCOUNTS), self.random.below(2));
        let held = self.naive.position(account, market, outcome).0;
        let is_buy = if held > 0 { self.random.once_in(2) } else { !self.random.once_in(8) };
        let is_limit = self.random.below(4) > 0;
        let is_trade = !is_limit && self.random.once_in(3);
        let middle =
            if outcome == 0 { self.middle[market] } else { 100 - self.middle[market] } * CENT;
        let away = self.random.within(-6, 6) * CENT;
        let is_fine_grid = self.naive.ticks[market] < CENT;
        let fine = if self.random.once_in(if is_fine_grid { 2 } else { 12 }) { 1_000 } else { 0 };
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

    pub(super) fn names(&mut self) -> Vec<usize> {
        let mut names: Vec<usize> =
            (0..self.random.below(4).min(2)).map(|_| self.random.below(NAMES)).collect();
        names.dedup();
        names
    }

    /// Sends an order with the names of an earlier one: the same, or another one.
    pub(super) fn repeat(&mut self) {
        let named = self.naive.orders.iter().filter(|order| !order.names.is_empty());
        let named: Vec<(Sent, Vec<usize>)> =
            named.map(|order| (order.sent, order.names.clone())).collect();
        if named.is_empty() {
            return;
        }
        let (mut sent, mut names) = named[self.random.below(named.len())].clone();
        match self.random.below(6) {
            0 => sent.quantity += 1_000_000,
            1 => sent.is_trade ^= !sent.is_limit && sent.price.is_none() && sent.amount.is_none(),
            2 => names.truncate(1),
            3 if names.len() == 1 => names.push(self.random.below(NAMES)),
            _ => {}
        }
        sent.is_trade &= sent.tif == Tif::Fok;
        self.send(&sent, &names);
    }
}
