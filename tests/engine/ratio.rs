//! Exact fractions, in which the ledger's rules can be written down directly.

use std::cmp::Ordering;
use std::ops::{Add, Div, Mul, Sub};

/// A reduced fraction with a positive denominator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ratio {
    numerator: i128,
    denominator: i128,
}

impl Ratio {
    pub(crate) const ZERO: Self = Self::whole(0);
    pub(crate) const ONE: Self = Self::whole(1);

    pub(crate) const fn whole(value: i128) -> Self {
        Self { numerator: value, denominator: 1 }
    }

    /// A number of millionths.
    pub(crate) fn micros(value: i128) -> Self {
        Self::of(value, 1_000_000)
    }

    fn of(numerator: i128, denominator: i128) -> Self {
        assert_ne!(denominator, 0, "division by zero");
        let divisor = gcd(numerator.abs(), denominator.abs()) * denominator.signum();
        Self { numerator: numerator / divisor, denominator: denominator / divisor }
    }

    /// Rounds down to an integer.
    pub(crate) fn floor(self) -> i128 {
        self.numerator.div_euclid(self.denominator)
    }

    /// Rounds up to an integer.
    pub(crate) fn ceil(self) -> i128 {
        let floor = self.floor();
        if Self::whole(floor) == self { floor } else { floor + 1 }
    }

    /// Rounds to the nearest integer, halves to even.
    pub(crate) fn nearest_even(self) -> i128 {
        let below = self.floor();
        let to_below = self - Self::whole(below);
        let to_above = Self::whole(below + 1) - self;
        match to_below.cmp(&to_above) {
            Ordering::Less => below,
            Ordering::Equal if below % 2 == 0 => below,
            Ordering::Equal | Ordering::Greater => below + 1,
        }
    }
}

fn gcd(a: i128, b: i128) -> i128 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Add for Ratio {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        let common = gcd(self.denominator, other.denominator);
        let (left, right) = (other.denominator / common, self.denominator / common);
        Self::of(self.numerator * left + other.numerator * right, self.denominator * left)
    }
}

impl Sub for Ratio {
    type Output = Self;
    fn sub(self, other: Self) -> Self {
        self + other * Self::whole(-1)
    }
}

impl Mul for Ratio {
    type Output = Self;
    fn mul(self, other: Self) -> Self {
        // Reduce crosswise first, so that products of small fractions stay small.
        let left = Self::of(self.numerator, other.denominator);
        let right = Self::of(other.numerator, self.denominator);
        Self::of(left.numerator * right.numerator, left.denominator * right.denominator)
    }
}

impl Div for Ratio {
    type Output = Self;
    fn div(self, other: Self) -> Self {
        self.mul(Self::of(other.denominator, other.numerator))
    }
}

impl PartialOrd for Ratio {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ratio {
    fn cmp(&self, other: &Self) -> Ordering {
        (*self - *other).numerator.cmp(&0)
    }
}

#[test]
fn fractions_round_as_named() {
    for (numerator, denominator, floor, ceil, nearest) in [
        (7, 2, 3, 4, 4),
        (5, 2, 2, 3, 2),
        (-5, 2, -3, -2, -2),
        (-7, 2, -4, -3, -4),
        (10, 4, 2, 3, 2),
        (7, 3, 2, 3, 2),
        (8, 3, 2, 3, 3),
        (6, 3, 2, 2, 2),
    ] {
        let ratio = Ratio::whole(numerator) / Ratio::whole(denominator);
        assert_eq!((ratio.floor(), ratio.ceil()), (floor, ceil), "{ratio:?}");
        assert_eq!(ratio.nearest_even(), nearest, "{ratio:?}");
    }
}
