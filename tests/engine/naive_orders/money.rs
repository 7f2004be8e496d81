//! What an account has, summed up from its fills and its open orders.

use super::*;
use std::ops::Range;

use crate::naive::sum_up;

impl NaiveOrders {
    /// Starting balance + sales + payouts − purchases − fees.
    pub(crate) fn cash(&self, account: usize) -> Micros {
        let mut cash = self.balance;
        for fill in self.fills_since_reset(account) {
            let sent = &self.orders[fill.order].sent;
            if sent.account == account {
                cash += if sent.is_buy { -fill.notional } else { fill.notional } - fill.fee;
            }
        }
        for (&market, payouts) in &self.settled {
            for (outcome, &price) in payouts.iter().enumerate() {
                let shares = self.bought(account, market, outcome).0;
                cash += (dollars(price, shares)).floor();
            }
        }
        cash
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

    fn bought(&self, account: usize, market: usize, outcome: usize) -> (Micros, Micros) {
        let fills =
            self.fills_since_reset(account).map(|fill| (&self.orders[fill.order].sent, fill));
        let own = fills.filter(|(sent, _)| {
            (sent.account, sent.market, sent.outcome) == (account, market, outcome)
        });
        sum_up(own.map(|(sent, fill)| (sent.is_buy, fill.quantity, fill.notional)))
    }

    pub(crate) fn reserved_cash(&self, account: usize) -> Micros {
        let mut reserved = 0;
        for order in self.open_of(account) {
            let Order { sent, held, .. } = &self.orders[order];
            if sent.is_buy {
                let rests = || dollars(limit(sent), self.remaining(order)).ceil();
                reserved += held.unwrap_or_else(rests);
            }
        }
        reserved
    }

    pub(crate) fn reserved_shares(&self, account: usize, market: usize, outcome: usize) -> Micros {
        let mut reserved = 0;
        for order in self.open_of(account) {
            let sent = &self.orders[order].sent;
            if !sent.is_buy && (sent.market, sent.outcome) == (market, outcome) {
                reserved += self.remaining(order);
            }
        }
        reserved
    }

    /// How many fills there were when the account was last reset.
    pub(super) fn newest_reset(&self, account: usize) -> usize {
        self.reset_at.get(&account).and_then(|resets| resets.last()).copied().unwrap_or(0)
    }

    /// All fills that count, without those of before the account was last reset.
    fn fills_since_reset(&self, account: usize) -> impl Iterator<Item = &Fill> {
        self.counted(self.newest_reset(account)..self.fills.len())
    }

    /// The fills with these places that were not undone.
    fn counted(&self, places: Range<usize>) -> impl Iterator<Item = &Fill> {
        places.filter(|place| !self.undone.contains(place)).map(|place| &self.fills[place])
    }

    /// What sales and payouts have brought above their cost. What a reset closed brings nothing.
    pub(crate) fn realised(&self, account: usize, market: usize, outcome: usize) -> Micros {
        let mut bounds = vec![0];
        bounds.extend(self.reset_at.get(&account).into_iter().flatten());
        bounds.push(self.fills.len());
        let mut realised = 0;
        for bounds in bounds.windows(2) {
            let own = self
                .counted(bounds[0]..bounds[1])
                .map(|fill| (&self.orders[fill.order].sent, fill));
            let own: Vec<_> = own
                .filter(|(sent, _)| {
                    (sent.account, sent.market, sent.outcome) == (account, market, outcome)
                })
                .map(|(sent, fill)| (sent.is_buy, fill.quantity, fill.notional))
                .collect();
            let (_, cost) = sum_up(own.iter().copied());
            for (is_buy, _, notional) in own {
                realised += if is_buy { -notional } else { notional };
            }
            realised += cost;
        }
        realised + self.paid.get(&(account, market, outcome)).copied().unwrap_or(0)
    }
}
