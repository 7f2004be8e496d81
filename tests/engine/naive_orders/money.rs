//! What an account has, summed up from its fills and its open orders.

use super::*;
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
        let fills = self.fills_since_reset(account).iter();
        let fills = fills.map(|fill| (&self.orders[fill.order].sent, fill));
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

    /// All fills, without those of before the account was last reset.
    pub(super) fn fills_since_reset(&self, account: usize) -> &[Fill] {
        &self.fills[self.reset_at.get(&account).copied().unwrap_or(0)..]
    }
}
