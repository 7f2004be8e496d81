//! A taker's walk through one side of a book.

use smallvec::SmallVec;

use super::book::{Ladder, Level, Side};
use crate::money::{Notional, Price, Shares};

/// The levels taken. Most orders take one or two, and few take more than fit inline.
pub type Fills = SmallVec<[Level; 8]>;

/// What a taker would get from a book, before checking any rules on prices or balances.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walk {
    /// The levels taken, best price first, each with the size taken there, above 0.
    pub fills: Fills,
    /// The exact Σ price × size.
    pub notional: Notional,
    /// The unfilled quantity, 0 if everything was filled.
    pub shortfall: Shares,
}

/// The levels that an outcome trades on.
#[derive(Clone, Copy, Debug)]
pub struct Liquidity<'a> {
    ladder: &'a Ladder,
    mirrored: bool,
}

impl<'a> Liquidity<'a> {
    /// The outcome's own book, which already includes the mirror of the other's.
    pub const fn own(ladder: &'a Ladder) -> Self {
        Self { ladder, mirrored: false }
    }

    /// The other outcome's book of a binary market, read from the other side.
    pub const fn mirror_of(ladder: &'a Ladder) -> Self {
        Self { ladder, mirrored: true }
    }

    /// Whether it is the other outcome's book.
    pub const fn is_mirrored(self) -> bool {
        self.mirrored
    }

    /// The best price for a taker on this side.
    pub fn touch(self, taker: Side) -> Option<Price> {
        self.taken_by(taker).next().map(|level| level.price)
    }

    /// The levels that a taker on this side takes, best first.
    pub fn taken_by(self, taker: Side) -> impl Iterator<Item = Level> + 'a {
        let side = if self.mirrored { taker.opposite() } else { taker };
        let mirrored = self.mirrored;
        self.ladder.taken_by(side).iter().rev().map(move |&level| {
            if mirrored { Level { price: level.price.complement(), ..level } } else { level }
        })
    }

    /// Takes up to `quantity` shares, best price first.
    pub fn walk(self, taker: Side, quantity: Shares) -> Walk {
        debug_assert!(quantity > Shares::ZERO);
        let mut fills = Fills::new();
        let mut notional = Notional::ZERO;
        let mut shortfall = quantity;
        for level in self.taken_by(taker) {
            let size = level.size.min(shortfall);
            fills.push(Level { price: level.price, size });
            notional += Notional::of(level.price, size);
            shortfall -= size;
            if shortfall == Shares::ZERO {
                break;
            }
        }
        Walk { fills, notional, shortfall }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn level(price: i64, size: i64) -> Level {
        Level {
            price: Price::from_micros(price * 10_000),
            size: Shares::from_micros(size * 1_000_000),
        }
    }

    #[track_caller]
    fn check(
        liquidity: Liquidity<'_>,
        taker: Side,
        quantity: i64,
        fills: &[(i64, i64)],
        shortfall: i64,
    ) {
        let walk = liquidity.walk(taker, Shares::from_micros(quantity * 1_000_000));
        let fills: Vec<Level> = fills.iter().map(|&(price, size)| level(price, size)).collect();
        assert_eq!(walk.fills.as_slice(), fills);
        assert_eq!(walk.shortfall, Shares::from_micros(shortfall * 1_000_000));
        let notional = fills
            .iter()
            .fold(Notional::ZERO, |sum, fill| sum + Notional::of(fill.price, fill.size));
        assert_eq!(walk.notional, notional);
    }

    #[test]
    fn a_taker_takes_the_best_price_first() {
        let ladder = Ladder::from_levels(
            vec![level(47, 3), level(48, 5)],
            vec![level(52, 7), level(51, 2), level(60, 1)],
        )
        .unwrap();
        let own = Liquidity::own(&ladder);
        check(own, Side::Buy, 1, &[(51, 1)], 0);
        check(own, Side::Buy, 2, &[(51, 2)], 0);
        check(own, Side::Buy, 3, &[(51, 2), (52, 1)], 0);
        check(own, Side::Buy, 12, &[(51, 2), (52, 7), (60, 1)], 2);
        check(own, Side::Sell, 6, &[(48, 5), (47, 1)], 0);
        assert_eq!(own.touch(Side::Buy), Some(level(51, 0).price));
        assert_eq!(own.touch(Side::Sell), Some(level(48, 0).price));

        let mirror = Liquidity::mirror_of(&ladder);
        check(mirror, Side::Buy, 6, &[(52, 5), (53, 1)], 0);
        check(mirror, Side::Sell, 3, &[(49, 2), (48, 1)], 0);
        let mirrored = ladder.mirrored();
        for taker in [Side::Buy, Side::Sell] {
            let quantity = Shares::from_micros(5_000_000);
            assert_eq!(
                mirror.walk(taker, quantity),
                Liquidity::own(&mirrored).walk(taker, quantity)
            );
        }
    }

    #[test]
    fn an_empty_side_fills_nothing() {
        let ladder = Ladder::default();
        check(Liquidity::own(&ladder), Side::Buy, 4, &[], 4);
        assert_eq!(Liquidity::own(&ladder).touch(Side::Sell), None);
    }
}
