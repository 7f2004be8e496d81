//! Slippage: how much worse than its reference price an order fills.

use crate::engine::command::TradeOrder;
use crate::engine::rejection::Rejection;
use crate::market::book::Side;
use crate::market::walk::Walk;
use crate::money::{Notional, Price, Shares, div_ceil};

/// The adverse difference between a fill's notional and its notional at the reference price, both
/// exact, in 10⁻¹² dollars.
pub(in crate::engine) struct Slippage {
    reference: Option<Price>,
    adverse: i128,
    at_reference: i128,
    quantity: Shares,
}

impl Slippage {
    /// Computes the slippage of a walk that takes `quantity`. The reference is the expected price,
    /// or else the best price taken.
    #[inline]
    pub(in crate::engine) fn of(
        side: Side,
        quantity: Shares,
        expected_price: Option<Price>,
        walk: &Walk,
    ) -> Self {
        let touch = walk.fills.first().map(|level| level.price);
        let reference = expected_price.or(touch);
        let at_reference = Notional::of(reference.unwrap_or(Price::ZERO), quantity).picos();
        let difference = walk.notional.picos() - at_reference;
        let adverse = match side {
            Side::Buy => difference,
            Side::Sell => -difference,
        };
        Self { reference, adverse, at_reference, quantity }
    }

    /// Rejects a fill whose slippage exceeds the bound. There is no bound if the caller gave
    /// neither an expected price nor a bound. A reference of 0 rejects every purchase, since any
    /// price is infinitely worse.
    pub(in crate::engine) fn check(
        &self,
        expected_price: Option<Price>,
        max_slippage_bps: Option<u16>,
        walk: &Walk,
    ) -> Result<(), Rejection> {
        let bound = match (max_slippage_bps, expected_price) {
            (Some(bound), _) => bound,
            (None, Some(_)) => TradeOrder::MAX_SLIPPAGE_BPS_DEFAULT,
            (None, None) => return Ok(()),
        };
        let Some(reference) = self.reference else {
            return Ok(());
        };
        if self.adverse > 0
            && self.adverse_in_bps() > self.at_reference.wrapping_mul(i128::from(bound))
        {
            let average = walk.notional.floor().per_share(self.quantity);
            return Err(Rejection::SlippageExceeded {
                price: average.unwrap_or(Price::ZERO),
                reference,
                max_slippage_bps: bound,
            });
        }
        Ok(())
    }

    /// Returns the slippage in whole basis points, rounded up, for display; 0 if the fill was no
    /// worse than the reference, `None` if the reference is 0.
    pub(in crate::engine) fn reported_bps(&self) -> Option<u32> {
        if self.at_reference == 0 {
            return None;
        }
        if self.adverse <= 0 {
            return Some(0);
        }
        let bps = div_ceil(self.adverse_in_bps(), self.at_reference);
        Some(u32::try_from(bps).unwrap_or(u32::MAX))
    }

    /// Returns the adverse difference × 10,000. An order has less than 2⁴⁰ micro-shares at prices
    /// below 2⁶³, so neither this product nor bound × reference overflows.
    fn adverse_in_bps(&self) -> i128 {
        self.adverse.wrapping_mul(10_000)
    }
}
