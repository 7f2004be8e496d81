//! Taker fees.

use crate::market::book::Level;
use crate::market::catalogue::{FeeCurve, FeeExponent};
use crate::money::{MICROS_PER_UNIT, Usd, div_half_even};

/// The step to which fees are rounded, five decimals of a dollar, in micro-dollars.
const FEE_STEP_MICROS: i64 = 10;

/// Returns shares × rate × (p × (1 − p))^exponent for one level, rounded to five decimals, half to
/// even.
///
/// p × (1 − p) is in units of 10⁻⁸, exact for prices of at most four decimals, so that the largest
/// product (10¹² micro-shares, a rate of 1, exponent 2) stays below 10³³.
pub fn level_fee(curve: FeeCurve, fill: Level) -> Usd {
    debug_assert!(fill.price.is_quotable());
    let price = fill.price.micros() / 100;
    let spread = price * (10_000 - price);
    // Fits an `i64`: at most 10¹² micro-shares at a rate of at most 1.
    let amount = fill.size.micros() * curve.rate.micros();
    // Separate calls, so that each divides by a constant.
    let steps = match curve.exponent {
        FeeExponent::One => div_half_even(product(amount, spread), scale(8)),
        FeeExponent::Two => div_half_even(product(amount, spread * spread), scale(16)),
    };
    let steps = i64::try_from(steps).expect("a fee is below its notional");
    Usd::from_micros(steps * FEE_STEP_MICROS)
}

fn product(amount: i64, weight: i64) -> i128 {
    i128::from(amount) * i128::from(weight)
}

/// Returns the divisor that turns size × rate × weight into fee steps, for a weight with this many
/// decimals.
const fn scale(decimals: u32) -> i128 {
    let unit = MICROS_PER_UNIT as i128;
    unit * unit * 10_i128.pow(decimals) / 100_000
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
            // 0.000005 is half a step, rounded to the even neighbour 0.
            ("0.00004", "0.5", "0.5", One, "0"),
            // 0.000015 is one and a half steps, rounded to the even neighbour 2.
            ("0.00012", "0.5", "0.5", One, "0.00002"),
            ("1000000", "0.5", "1", One, "250000"),
            ("1000000", "0.5", "1", Two, "62500"),
            ("0.000001", "0.9999", "0.01", Two, "0"),
        ] {
            check(shares, price, rate, exponent, expected);
        }
    }
}
