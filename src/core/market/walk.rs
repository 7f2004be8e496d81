//! A taker's walk through one side of a book.

use smallvec::SmallVec;

use super::book::{Ladder, Level, Side};
use crate::money::{MICROS_PER_UNIT, Notional, Price, Shares, Usd};

/// The levels taken. Most orders take one or two, and few take more than the vector stores inline.
pub type Fills = SmallVec<[Level; 8]>;

/// The result of a taker's walk, before any rules on prices or balances are checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Walk {
    /// The levels taken, best price first, each with the size taken there, above 0.
    pub fills: Fills,
    /// The exact Σ price × size.
    pub notional: Notional,
    /// The unfilled quantity, 0 if everything was filled.
    pub shortfall: Shares,
}

impl Walk {
    /// Returns the walk of an order that takes nothing.
    pub fn nothing(quantity: Shares) -> Self {
        Self { fills: Fills::new(), notional: Notional::ZERO, shortfall: quantity }
    }

    /// Whether the fills and the shortfall add up to this quantity.
    fn is_of(&self, quantity: Shares) -> bool {
        self.fills.iter().map(|level| level.size).sum::<Shares>() + self.shortfall == quantity
    }
}

/// The levels that an outcome trades on.
#[derive(Clone, Copy, Debug)]
pub struct Liquidity<'a> {
    ladder: &'a Ladder,
    mirrored: bool,
}

impl<'a> Liquidity<'a> {
    /// Returns the outcome's own book, which already includes the mirror of the other outcome's
    /// book.
    pub const fn own(ladder: &'a Ladder) -> Self {
        Self { ladder, mirrored: false }
    }

    /// Returns the mirror of the other outcome's book in a binary market.
    pub const fn mirror_of(ladder: &'a Ladder) -> Self {
        Self { ladder, mirrored: true }
    }

    /// Whether the levels come from the other outcome's book.
    pub const fn is_mirrored(self) -> bool {
        self.mirrored
    }

    /// Returns the best price for a taker on this side.
    pub fn touch(self, taker: Side) -> Option<Price> {
        self.taken_by(taker).next().map(|level| level.price)
    }

    /// Iterates over the levels that a taker on this side takes, best first.
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
        let walk = Walk { fills, notional, shortfall };
        debug_assert!(walk.is_of(quantity), "each share is either filled or missing");
        walk
    }

    /// Takes up to `quantity` shares at `limit` or better, best price first.
    pub fn walk_within(self, taker: Side, quantity: Shares, limit: Option<Price>) -> Walk {
        let mut walk = Walk::nothing(quantity);
        for level in self.within(taker, limit) {
            let size = level.size.min(walk.shortfall);
            if size == Shares::ZERO {
                break;
            }
            walk.fills.push(Level { price: level.price, size });
            walk.notional += Notional::of(level.price, size);
            walk.shortfall -= size;
        }
        debug_assert!(walk.is_of(quantity), "each share is either filled or missing");
        walk
    }

    /// Iterates over the levels that a taker on this side takes at `limit` or better, best first.
    pub fn within(self, taker: Side, limit: Option<Price>) -> impl Iterator<Item = Level> + 'a {
        self.taken_by(taker).take_while(move |level| match (limit, taker) {
            (None, _) => true,
            (Some(limit), Side::Buy) => level.price <= limit,
            (Some(limit), Side::Sell) => level.price >= limit,
        })
    }

    /// Returns how many shares a buyer gets for an amount of dollars at `limit` or better.
    pub fn affordable(self, amount: Usd, limit: Option<Price>) -> Affordable {
        let budget = i128::from(amount.micros()) * i128::from(MICROS_PER_UNIT);
        let mut left = budget;
        let mut shares: i64 = 0;
        let mut is_spent = false;
        for level in self.within(Side::Buy, limit) {
            let cost = Notional::of(level.price, level.size).picos();
            if cost > left {
                let part = left / i128::from(level.price.micros());
                // This is less than the size of the level, since the whole level costs more.
                shares = shares.saturating_add(i64::try_from(part).unwrap_or(i64::MAX));
                is_spent = true;
                break;
            }
            left -= cost;
            shares = shares.saturating_add(level.size.micros());
        }
        is_spent |= left == 0;
        let whole = shares - shares % QUANTUM_MICROS;
        Affordable { quantity: Shares::from_micros(whole), is_spent }
    }
}

/// A quantity bought for an amount of dollars is a multiple of this many micro-shares.
const QUANTUM_MICROS: i64 = 100;

/// The shares that an amount of dollars buys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Affordable {
    /// The largest number of shares that costs no more than the amount, in steps of 0.0001.
    pub quantity: Shares,
    /// Whether the amount was used up before the book was.
    pub is_spent: bool,
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
    fn a_limit_ends_the_walk() {
        let asks = vec![level(52, 7), level(51, 2), level(60, 1)];
        let ladder = Ladder::from_levels(vec![level(47, 3), level(48, 5)], asks).unwrap();
        let own = Liquidity::own(&ladder);
        let taken = |taker, quantity: i64, limit: i64| {
            let quantity = Shares::from_micros(quantity * 1_000_000);
            let walk = own.walk_within(taker, quantity, Some(level(limit, 0).price));
            (walk.fills.to_vec(), walk.shortfall.micros() / 1_000_000)
        };
        assert_eq!(taken(Side::Buy, 4, 52), (vec![level(51, 2), level(52, 2)], 0));
        assert_eq!(taken(Side::Buy, 20, 52), (vec![level(51, 2), level(52, 7)], 11));
        assert_eq!(taken(Side::Buy, 20, 50), (vec![], 20));
        assert_eq!(taken(Side::Sell, 20, 48), (vec![level(48, 5)], 15));
        let all = own.walk_within(Side::Buy, Shares::from_micros(9_500_000), None);
        assert_eq!(all, own.walk(Side::Buy, Shares::from_micros(9_500_000)));
    }

    #[test]
    fn an_amount_buys_the_most_shares_that_cost_no_more() {
        let ladder = Ladder::from_levels(vec![], vec![level(52, 7), level(51, 2)]).unwrap();
        let own = Liquidity::own(&ladder);
        let mirror = ladder.mirrored();
        for (amount, limit, quantity, is_spent) in [
            // 1 / 0.51 = 1.96078…
            (1_000_000, None, 1_960_700, true),
            (1_020_000, None, 2_000_000, true),
            // 2 shares for 1.02, then 0.98 / 0.52 = 1.88461…
            (2_000_000, None, 3_884_600, true),
            (4_660_000, None, 9_000_000, true),
            (5_000_000, None, 9_000_000, false),
            (2_000_000, Some(51), 2_000_000, false),
            (2_000_000, Some(50), 0, false),
            (50, None, 0, true),
            (52, None, 100, true),
        ] {
            let limit = limit.map(|limit| level(limit, 0).price);
            let expected = Affordable { quantity: Shares::from_micros(quantity), is_spent };
            let amount = Usd::from_micros(amount);
            assert_eq!(own.affordable(amount, limit), expected, "{amount} {limit:?}");
            let mirrored = Liquidity::mirror_of(&mirror).affordable(amount, limit);
            assert_eq!(mirrored, expected, "{amount} {limit:?}");
        }
    }

    #[test]
    fn an_empty_side_fills_nothing() {
        let ladder = Ladder::default();
        check(Liquidity::own(&ladder), Side::Buy, 4, &[], 4);
        assert_eq!(Liquidity::own(&ladder).touch(Side::Sell), None);
    }
}
