//! The cost or proceeds of a fill, and the check that the account can pay.

use crate::engine::account::ledger::Ledger;
use crate::engine::order::fee::level_fee;
use crate::engine::rejection::Rejection;
use crate::market::book::Side;
use crate::market::catalogue::Fees;
use crate::market::walk::Walk;
use crate::money::{FeeRate, Usd};

/// The cost or proceeds of a fill.
pub(in crate::engine) struct Cost {
    pub(in crate::engine) notional: Usd,
    pub(in crate::engine) fee: Usd,
    pub(in crate::engine) fee_rate: FeeRate,
}

impl Cost {
    pub(in crate::engine) fn of(side: Side, walk: &Walk, fees: Fees) -> Self {
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

    /// Returns the ledger after the fill. Rejects a fill that the account cannot pay for. This can
    /// happen to a sale too: the fee of a sale worth a few micro-dollars may exceed its proceeds.
    #[inline]
    pub(in crate::engine) fn charge(
        &self,
        side: Side,
        ledger: Ledger,
    ) -> Result<Ledger, Rejection> {
        self.charge_with_reserve(side, ledger, Usd::ZERO)
    }

    /// Like [`Self::charge`], but for an order whose remainder will reserve cash. `ledger` does not
    /// yet include that reserve.
    #[inline]
    pub(in crate::engine) fn charge_with_reserve(
        &self,
        side: Side,
        ledger: Ledger,
        reserve: Usd,
    ) -> Result<Ledger, Rejection> {
        let available = ledger.available();
        let broken = || Rejection::Broken { rule: "an account's sums outgrow their range" };
        let needed = match side {
            Side::Buy => self.notional.checked_add(self.fee),
            Side::Sell => self.fee.checked_sub(self.notional),
        };
        let needed = needed.and_then(|needed| needed.checked_add(reserve)).ok_or_else(broken)?;
        if needed > available {
            return Err(Rejection::InsufficientBalance { needed, available });
        }
        ledger.after_fill(side, self.notional, self.fee).ok_or_else(broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reserved_cash_cannot_be_spent() {
        let usd = Usd::from_micros;
        let cost = Cost { notional: usd(60), fee: usd(1), fee_rate: FeeRate::ZERO };
        let ledger =
            |reserved| Ledger { granted: usd(100), reserved: usd(reserved), ..Ledger::default() };
        let after = cost.charge(Side::Buy, ledger(39)).unwrap();
        assert_eq!((after.cash(), after.available()), (usd(39), usd(0)));
        let refused = cost.charge(Side::Buy, ledger(40));
        let (needed, available) = (usd(61), usd(60));
        assert_eq!(refused, Err(Rejection::InsufficientBalance { needed, available }));
        // A sale pays its fee from its proceeds.
        let sale = Cost { notional: usd(1), fee: usd(2), fee_rate: FeeRate::ZERO };
        assert!(sale.charge(Side::Sell, ledger(99)).is_ok());
        assert!(sale.charge(Side::Sell, ledger(100)).is_err());
    }
}
