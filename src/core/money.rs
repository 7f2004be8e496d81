//! Prices, shares and dollars in fixed point.
//!
//! Every quantity is an `i64` of millionths in a type of its own, so that a price cannot be added
//! to a balance by mistake, and no float ever touches the ledger. The product of two quantities is
//! an exact `i128`, rounded once, in the direction that the method name states.
//!
//! This module deals only with numbers and their text, not with orders, books or accounts.

mod decimal;

pub use decimal::{
    DECIMAL_TEXT_BYTES_MAX, DecimalError, MICROS_TEXT_BYTES_MAX, Rounding, micros_from_text,
    put_micros, write_micros, write_micros_to_thousandths,
};

use std::fmt;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Neg, Sub, SubAssign};

/// Millionths per unit of a price, of shares or of dollars.
pub const MICROS_PER_UNIT: i64 = 1_000_000;

/// Declares a quantity: an `i64` of millionths with its text form and no arithmetic that mixes
/// units.
macro_rules! micros {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
        pub struct $name(i64);

        impl $name {
            /// Zero.
            pub const ZERO: Self = Self(0);

            /// Returns the quantity of this many millionths.
            pub const fn from_micros(micros: i64) -> Self {
                Self(micros)
            }

            /// Returns the number of millionths.
            pub const fn micros(self) -> i64 {
                self.0
            }

            /// Parses decimal text; see [`micros_from_text`] for the grammar.
            pub fn from_text(text: &str, rounding: Rounding) -> Result<Self, DecimalError> {
                micros_from_text(text, rounding).map(Self)
            }
        }

        /// Formats as trimmed decimal text: `0.53`, `10`, `994.69`.
        impl fmt::Display for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                decimal::format_micros(self.0, formatter)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, concat!(stringify!($name), "({})"), self)
            }
        }
    };
}

/// Declares addition and subtraction. Overflow panics in every build profile of this package.
macro_rules! sums {
    ($name:ident) => {
        impl $name {
            /// Returns the sum, or `None` on overflow.
            pub fn checked_add(self, other: Self) -> Option<Self> {
                self.0.checked_add(other.0).map(Self)
            }

            /// Returns the difference, or `None` on overflow.
            pub fn checked_sub(self, other: Self) -> Option<Self> {
                self.0.checked_sub(other.0).map(Self)
            }
        }

        impl Add for $name {
            type Output = Self;
            fn add(self, other: Self) -> Self {
                Self(self.0 + other.0)
            }
        }

        impl Sub for $name {
            type Output = Self;
            fn sub(self, other: Self) -> Self {
                Self(self.0 - other.0)
            }
        }

        impl AddAssign for $name {
            fn add_assign(&mut self, other: Self) {
                *self = *self + other;
            }
        }

        impl SubAssign for $name {
            fn sub_assign(&mut self, other: Self) {
                *self = *self - other;
            }
        }

        impl Neg for $name {
            type Output = Self;
            fn neg(self) -> Self {
                Self(-self.0)
            }
        }

        impl Sum for $name {
            fn sum<I: Iterator<Item = Self>>(parts: I) -> Self {
                parts.fold(Self::ZERO, Add::add)
            }
        }
    };
}

micros! {
    /// Dollars per share, in millionths. A venue's price is strictly between 0 and 1; a reference
    /// price sent by a client may also be 0 or 1.
    Price
}
micros! {
    /// A number of shares, in micro-shares.
    Shares
}
micros! {
    /// An amount of dollars, in micro-dollars.
    Usd
}
micros! {
    /// The rate of a taker fee, in millionths: 0.07 is 70,000.
    FeeRate
}
sums!(Shares);
sums!(Usd);

impl Price {
    /// One dollar, the payout of a winning share.
    pub const ONE: Self = Self(MICROS_PER_UNIT);

    /// Returns the price of the other outcome of a binary market, `1 - p`.
    pub const fn complement(self) -> Self {
        Self(MICROS_PER_UNIT - self.0)
    }

    /// Whether orders can rest at this price: strictly between 0 and 1, with at most four decimals,
    /// the venue's finest tick.
    pub const fn is_quotable(self) -> bool {
        self.0 > 0 && self.0 < MICROS_PER_UNIT && self.0 % 100 == 0
    }
}

impl FeeRate {
    /// The highest rate that a market may charge, 1.
    pub const MAX: Self = Self(MICROS_PER_UNIT);
}

/// An exact sum of price × size, in millionths of a micro-dollar (10⁻¹² dollars).
///
/// The sum is rounded once, to a micro-dollar, when it is complete.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub struct Notional(i128);

impl Notional {
    /// Zero.
    pub const ZERO: Self = Self(0);

    /// Returns the exact value of `size` shares at `price`.
    pub fn of(price: Price, size: Shares) -> Self {
        Self(i128::from(price.0) * i128::from(size.0))
    }

    /// Returns the exact value in 10⁻¹² dollars.
    pub const fn picos(self) -> i128 {
        self.0
    }

    /// Rounds down to a micro-dollar: the amount that a seller receives.
    pub fn floor(self) -> Usd {
        usd(div_floor(self.0, i128::from(MICROS_PER_UNIT)).0)
    }

    /// Rounds up to a micro-dollar: the amount that a buyer pays.
    pub fn ceil(self) -> Usd {
        usd(div_ceil(self.0, i128::from(MICROS_PER_UNIT)))
    }
}

impl Add for Notional {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0 + other.0)
    }
}

impl AddAssign for Notional {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl Usd {
    /// Returns the average price per share if `self` pays for `quantity` shares, rounded to six
    /// decimals, half to even. Returns `None` for zero shares.
    pub fn per_share(self, quantity: Shares) -> Option<Price> {
        if quantity.0 == 0 {
            return None;
        }
        let micros =
            div_half_even(i128::from(self.0) * i128::from(MICROS_PER_UNIT), i128::from(quantity.0));
        Some(Price(i64::try_from(micros).expect("a price of a bounded order fits an i64")))
    }

    /// Returns the part of `self` that corresponds to `part` out of `whole`, rounded down.
    ///
    /// If `part == whole`, this is exactly `self`, so taking the last part leaves exactly 0.
    pub fn share_floor(self, part: Shares, whole: Shares) -> Usd {
        assert!(part <= whole, "a part cannot exceed its whole");
        assert!(whole.0 > 0, "cannot divide by a whole of zero");
        usd(div_floor(i128::from(self.0) * i128::from(part.0), i128::from(whole.0)).0)
    }
}

/// Returns the quotient rounded to the nearest integer, halves to even. The divisor must be
/// positive.
#[inline]
pub fn div_half_even(dividend: i128, divisor: i128) -> i128 {
    let (floor, rest) = div_floor(dividend, divisor);
    match rest.cmp(&(divisor - rest)) {
        std::cmp::Ordering::Less => floor,
        std::cmp::Ordering::Greater => floor + 1,
        std::cmp::Ordering::Equal => floor + (floor & 1),
    }
}

/// Returns the quotient rounded up. The divisor must be positive.
#[inline]
pub fn div_ceil(dividend: i128, divisor: i128) -> i128 {
    let (floor, rest) = div_floor(dividend, divisor);
    floor + i128::from(rest != 0)
}

/// Returns the quotient rounded down, and the remainder. The divisor must be positive.
///
/// Processors divide 64 bits many times faster than 128, and dividing by a constant takes only a
/// multiplication. Removing common powers of two first brings nearly every order down to 64 bits:
/// ⌊a / (b × 2ⁿ)⌋ = ⌊⌊a / 2ⁿ⌋ / b⌋.
#[inline]
fn div_floor(dividend: i128, divisor: i128) -> (i128, i128) {
    assert!(divisor > 0, "the divisor must be positive");
    let shift = divisor.trailing_zeros();
    if let Ok(short_dividend) = u64::try_from(dividend >> shift)
        && let Ok(short_divisor) = u64::try_from(divisor >> shift)
    {
        let floor = i128::from(short_dividend / short_divisor);
        // The product is at most the dividend, so it cannot overflow.
        return (floor, dividend - floor.wrapping_mul(divisor));
    }
    (dividend.div_euclid(divisor), dividend.rem_euclid(divisor))
}

fn usd(micros: i128) -> Usd {
    Usd(i64::try_from(micros).expect("an amount of a bounded order fits an i64"))
}

#[cfg(test)]
mod tests;
