//! The fields of settlement events, in the order in which they are stored.

use std::sync::Arc;

use super::field::{Fields, Read, Reader};
use super::kind;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::market::payout::{Decision, PaidPosition, Payouts, PositionsSettled};
use paperbourse_core::ids::{AccountId, MarketIndex, OutcomeIndex, Timestamp};
use paperbourse_core::money::{Price, Shares, Usd};

impl Fields<'_> {
    pub(super) fn settlement_decided(&mut self, decision: &Decision, at: Timestamp) -> u16 {
        self.i64(at.nanos());
        self.length(decision.payouts.len());
        self.text(&decision.condition_id);
        for (token_id, price) in &decision.payouts {
            self.i64(price.micros());
            self.text(token_id);
        }
        self.text(&decision.evidence);
        kind::SETTLEMENT_DECIDED
    }

    pub(super) fn positions_settled(&mut self, settled: &PositionsSettled) -> u16 {
        self.market_settled(settled.market, &settled.payouts, settled.at);
        self.length(settled.positions.len());
        for paid in &settled.positions {
            self.u64(paid.account.get());
            self.u8(paid.outcome.0);
            self.i64(paid.shares.micros());
            self.i64(paid.payout.micros());
            self.i64(paid.balance.micros());
        }
        kind::POSITIONS_SETTLED
    }

    pub(super) fn market_settled(
        &mut self,
        market: MarketIndex,
        payouts: &Payouts,
        at: Timestamp,
    ) -> u16 {
        self.u32(market.0);
        self.i64(at.nanos());
        self.length(payouts.len());
        for price in payouts {
            self.i64(price.micros());
        }
        kind::MARKET_SETTLED
    }
}

impl Reader<'_> {
    pub(super) fn settlement_decided(&mut self) -> Read<Event> {
        let at = self.timestamp("time")?;
        let count = self.u32("payout count")?;
        let condition_id = self.shared_text("condition id")?;
        let mut payouts = Vec::new();
        for _ in 0..count {
            let price = self.payout()?;
            payouts.push((self.shared_text("token id")?, price));
        }
        let evidence = self.text("evidence")?.into();
        let decision = Arc::new(Decision { condition_id, payouts, evidence });
        Ok(Event::SettlementDecided { decision, at })
    }

    pub(super) fn positions_settled(&mut self) -> Read<Event> {
        let (market, payouts, at) = self.settled()?;
        let mut positions = Vec::new();
        for _ in 0..self.u32("count of positions")? {
            positions.push(PaidPosition {
                account: self.id("account", AccountId::from_raw)?,
                outcome: OutcomeIndex(self.u8("outcome index")?),
                shares: Shares::from_micros(self.i64("settled shares")?),
                payout: Usd::from_micros(self.i64("payout")?),
                balance: Usd::from_micros(self.i64("balance")?),
            });
        }
        let settled = PositionsSettled { market, payouts, positions, at };
        Ok(Event::PositionsSettled(Box::new(settled)))
    }

    pub(super) fn market_settled(&mut self) -> Read<Event> {
        let (market, payouts, at) = self.settled()?;
        Ok(Event::MarketSettled { market, payouts, at })
    }

    fn settled(&mut self) -> Read<(MarketIndex, Payouts, Timestamp)> {
        let market = MarketIndex(self.u32("market index")?);
        let at = self.timestamp("time")?;
        let mut payouts = Payouts::new();
        for _ in 0..self.u32("payout count")? {
            payouts.push(self.payout()?);
        }
        Ok((market, payouts, at))
    }

    fn payout(&mut self) -> Read<Price> {
        self.i64("payout").map(Price::from_micros)
    }
}
