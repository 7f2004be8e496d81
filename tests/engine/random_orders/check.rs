//! What must be equal after each step.

use super::*;

impl Pair {
    /// Money, shares, reserves and every order are what the naive matcher adds up.
    #[track_caller]
    pub(super) fn check(&self) {
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
                let closed = naive.is_closed_by_reset(account, market, outcome);
                assert_eq!(position.closed_by_reset, closed, "closed by a reset");
                let realised = naive.realised(account, market, outcome);
                assert_eq!(Micros::from(position.realised.micros()), realised, "realised");
                assert!(naive.reserved_shares(account, market, outcome) <= expected.0);
            }
            let count = naive.fills.iter();
            let count = count.filter(|fill| naive.orders[fill.order].sent.account == account);
            let is_reset = naive.reset_counts.get(&account).copied();
            assert_eq!(row.resets.map(|resets| resets.count), is_reset, "resets");
            let account = state.account(row.id).expect("a row is of an account");
            assert_eq!(account.fill_count_ever(), count.count() as u64, "fills");
        }
        let open = (0..naive.orders.len()).filter(|&order| naive.is_open(order)).count();
        assert_eq!(state.open_order_count(), open);
        for (order, expected) in naive.orders.iter().enumerate() {
            let Some(row) = state.order_row(self.id(order)) else {
                assert!(naive.is_gone(order), "order {order} is gone");
                continue;
            };
            assert!(!naive.is_gone(order), "order {order} is not gone");
            let reserve = row.delay.map(|delay| delay.reserve);
            assert_eq!(reserve, self.delayed_reserve(order), "order {order}");
            let Some(order_state) = row.order_state else {
                assert_eq!(expected.delayed_ms, 0);
                assert_eq!(
                    (naive.status(order), naive.filled(order)),
                    ("FILLED", expected.quantity)
                );
                continue;
            };
            assert_eq!(order_state.status().as_str(), naive.status(order), "order {order}");
            assert_eq!(
                order_state.end.map(|end| end.reason.as_str()),
                expected.end,
                "order {order}"
            );
            assert_eq!(
                i64::from(order_state.terms.delayed_ms),
                expected.delayed_ms,
                "order {order}"
            );
            assert_eq!(order_state.is_delayed, expected.held.is_some(), "order {order}");
            assert_eq!(
                order_state.awaits_book,
                expected.awaits && naive.is_open(order),
                "order {order}"
            );
            let fills: Vec<&Fill> = naive.fills.iter().filter(|fill| fill.order == order).collect();
            let sum = |of: fn(&Fill) -> Micros| fills.iter().map(|fill| of(fill)).sum::<Micros>();
            let progress = order_state.progress;
            let actual =
                [progress.filled.micros(), progress.notional.micros(), progress.fee.micros()];
            let sums = [sum(|fill| fill.quantity), sum(|fill| fill.notional), sum(|fill| fill.fee)];
            assert_eq!(actual.map(Micros::from), sums, "order {order}");
            assert_eq!(progress.fill_count as usize, fills.len(), "order {order}");
        }
    }

    /// The records alone give the state.
    pub(super) fn check_records(&self) {
        let shard = self.world.state.shard();
        let replayed = replay(&history(&self.world.records), shard).expect("records of a world");
        assert_eq!(replayed.hash(), self.world.state.hash());
        assert!(replayed == self.world.state, "the records give another state");
    }

    /// What a delayed order must hold back.
    fn delayed_reserve(&self, order: usize) -> Option<Reserve> {
        let Order { sent, quantity, held, .. } = &self.naive.orders[order];
        let cash = held.filter(|_| self.naive.is_open(order))?;
        let shares = if sent.is_buy { 0 } else { *quantity };
        Some(Reserve {
            cash: Usd::from_micros(narrow(cash)),
            shares: Shares::from_micros(narrow(shares)),
        })
    }
}
