//! What a taker pays to the venue.

use crate::market::book::Level;
use crate::market::catalogue::{FeeCurve, FeeExponent};
use crate::money::{MICROS_PER_UNIT, Usd, div_half_even};

/// A fee is rounded to five decimals of a dollar: this many micro-dollars.
const FEE_STEP_MICROS: i64 = 10;

/// shares × rate × (p × (1 − p))^exponent for one level, rounded to five decimals, half to even.
///
/// p × (1 − p) is counted in units of 10⁻⁸, exact for prices of at most four decimals, so that the
/// largest product (10¹² micro-shares, a rate of 1, exponent 2) stays below 10³³.
pub fn level_fee(curve: FeeCurve, fill: Level) -> Usd {
    debug_assert!(fill.price.is_quotable());
    let price = i128::from(fill.price.micros() / 100);
    let spread = price * (10_000 - price);
    let (weight, decimals) = match curve.exponent {
        FeeExponent::One => (spread, 8),
        FeeExponent::Two => (spread * spread, 16),
    };
    let product = i128::from(fill.size.micros()) * i128::from(curve.rate.micros()) * weight;
    let unit = i128::from(MICROS_PER_UNIT);
    let scale = unit * unit * 10_i128.pow(decimals) / 100_000;
    let steps = i64::try_from(div_half_even(product, scale)).expect("a fee is below its notional");
    Usd::from_micros(steps * FEE_STEP_MICROS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::money::{FeeRate, Price, Rounding, Shares};

    #[track_caller]
    fn check(shares: &str, price: &str, rate: &str, exponent: FeeExponent, expected: &str) {
        let fill = Level {
            price: Price::from_text(price, Rounding::Exact).unwrap(),
            size: Shares::from_text(shares, Rounding::Exact).unwrap(),
        };
        let curve = FeeCurve { rate: FeeRate::from_text(rate, Rounding::Exact).unwrap(), exponent };
        let expected = Usd::from_text(expected, Rounding::Exact).unwrap();
        assert_eq!(level_fee(curve, fill), expected, "{shares} @ {price}");
    }

    #[test]
    fn the_fee_follows_the_curve() {
        use FeeExponent::{One, Two};
        for (shares, price, rate, exponent, expected) in [
            ("100", "0.50", "0.07", One, "1.75"),
            ("10", "0.65", "0.07", One, "0.15925"),
            ("100", "0.5", "0.25", Two, "1.5625"),
            ("100", "0.001", "0.05", One, "0.005"),
            ("1", "0.001", "0.05", One, "0.00005"),
            // 0.000005 is half of a step: to the even neighbour, which is 0.
            ("0.00004", "0.5", "0.5", One, "0"),
            // 0.000015 is one and a half: to the even neighbour, which is 2.
            ("0.00012", "0.5", "0.5", One, "0.00002"),
            ("1000000", "0.5", "1", One, "250000"),
            ("1000000", "0.5", "1", Two, "62500"),
            ("0.000001", "0.9999", "0.01", Two, "0"),
        ] {
            check(shares, price, rate, exponent, expected);
        }
    }
}
