//! What a fill costs or brings, and whether an account has that.

use super::account::Ledger;
use super::fee::level_fee;
use super::rejection::Rejection;
use crate::market::book::Side;
use crate::market::catalogue::Fees;
use crate::market::walk::Walk;
use crate::money::{FeeRate, Usd};

/// What a fill costs or brings.
pub(super) struct Cost {
    pub(super) notional: Usd,
    pub(super) fee: Usd,
    pub(super) fee_rate: FeeRate,
}

impl Cost {
    pub(super) fn of(side: Side, walk: &Walk, fees: Fees) -> Self {
        let notional = match side {
            Side::Buy => walk.notional.ceil(),
            Side::Sell => walk.notional.floor(),
        };
        let (fee, fee_rate) = match fees {
            Fees::Curve(curve) => {
                (walk.fills.iter().map(|&fill| level_fee(curve, fill)).sum(), curve.rate)
            }
            Fees::Free | Fees::Unsupported => (Usd::ZERO, FeeRate::ZERO),
        };
        Self { notional, fee, fee_rate }
    }

    /// The ledger afterwards. A sale can be refused too: of a few micro-dollars, its fee may be
    /// more than its proceeds.
    pub(super) fn charge(&self, side: Side, ledger: Ledger) -> Result<Ledger, Rejection> {
        let available = ledger.cash();
        let broken = || Rejection::Broken { rule: "an account's sums outgrow their range" };
        let needed = match side {
            Side::Buy => self.notional.checked_add(self.fee),
            Side::Sell => self.fee.checked_sub(self.notional),
        }
        .ok_or_else(broken)?;
        if needed > available {
            return Err(Rejection::InsufficientBalance { needed, available });
        }
        ledger.after_fill(side, self.notional, self.fee).ok_or_else(broken)
    }
}
