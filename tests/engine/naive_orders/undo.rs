//! Fills that are undone: each sum is made again without them.

use super::*;

impl NaiveOrders {
    /// Undoes a fill of the account, given by its place, unless what it brought is gone.
    pub(crate) fn undo(&mut self, account: usize, place: usize) -> Vec<Fact> {
        let refused = |code| vec![Fact::Refused(code)];
        let fill = self.fills[place];
        let Sent { account: owner, market, outcome, .. } = self.orders[fill.order].sent;
        if owner != account {
            return refused("UNDO_NOT_KEPT");
        }
        if self.undone.contains(&place) {
            return refused("UNDO_BEFORE");
        }
        if self.settled.contains_key(&market) {
            return refused("UNDO_RESOLVED");
        }
        if place < self.newest_reset(account) {
            return refused("UNDO_RESET");
        }
        self.undone.insert(place);
        let is_possible = self.sells_what_it_has(account, market, outcome);
        let (shares, cost) =
            if is_possible { self.position(account, market, outcome) } else { (0, 0) };
        let flaw = if !is_possible || shares < self.reserved_shares(account, market, outcome) {
            Some("UNDO_SHARES_GONE")
        } else if self.cash(account) < self.reserved_cash(account) {
            Some("UNDO_CASH_GONE")
        } else {
            None
        };
        if let Some(flaw) = flaw {
            self.undone.remove(&place);
            return refused(flaw);
        }
        let realised = self.realised(account, market, outcome);
        let part = self.part(place);
        vec![Fact::Undone(fill.order, part, [self.cash(account), shares, cost, realised])]
    }

    /// The number of a fill within its order, from 1.
    pub(crate) fn part(&self, place: usize) -> usize {
        let order = self.fills[place].order;
        self.fills[..=place].iter().filter(|fill| fill.order == order).count()
    }

    /// Whether no sale since the last reset was of more than was held.
    fn sells_what_it_has(&self, account: usize, market: usize, outcome: usize) -> bool {
        let mut held = 0;
        let fills = self.fills.iter().enumerate().skip(self.newest_reset(account));
        for (_, fill) in fills.filter(|(place, _)| !self.undone.contains(place)) {
            let sent = &self.orders[fill.order].sent;
            if (sent.account, sent.market, sent.outcome) == (account, market, outcome) {
                held += if sent.is_buy { fill.quantity } else { -fill.quantity };
                if held < 0 {
                    return false;
                }
            }
        }
        true
    }
}
