//! The book of one outcome: resting size by price, and the venue's changes to it.

use crate::ids::Timestamp;
use crate::money::{Price, Shares};

/// Maximum number of levels per side; a level beyond it is refused. No real side comes close, since
/// a tick of 0.0001 allows 9,999 prices.
pub const LEVELS_PER_SIDE_MAX: usize = 9_999;

/// The side of an order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Side {
    /// Pays dollars for shares; takes asks, rests as a bid.
    Buy,
    /// Sells shares for dollars; takes bids, rests as an ask.
    Sell,
}

impl Side {
    /// The name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buy => "BUY",
            Self::Sell => "SELL",
        }
    }

    /// The opposite side.
    pub const fn opposite(self) -> Self {
        match self {
            Self::Buy => Self::Sell,
            Self::Sell => Self::Buy,
        }
    }
}

/// A price level.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Level {
    /// Dollars per share.
    pub price: Price,
    /// Displayed shares, above 0.
    pub size: Shares,
}

/// A trade as reported by the venue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LastTrade {
    /// Dollars per share.
    pub price: Price,
    /// Shares; 0 if the venue reported only the price.
    pub size: Shares,
    /// The taker's side, if the venue reported it.
    pub side: Option<Side>,
    /// The time of the trade.
    pub at: Timestamp,
}

/// The book of one outcome as readers see it: complete, immutable and shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Book {
    ladder: Ladder,
    /// Increases with every published change of this book.
    pub sequence: u64,
    /// The venue's time of the newest change.
    pub updated_at: Timestamp,
    /// The venue's hash of exactly this book, if reported or verified: 40 hexadecimal digits.
    pub hash: Option<Box<str>>,
    /// The newest trade.
    pub last_trade: Option<LastTrade>,
    /// The book may differ from what the venue shows now. Readers see the flag, and nothing fills
    /// on it.
    pub stale: bool,
}

impl Book {
    /// A book with these levels, without trades, the first of its sequence.
    pub fn new(ladder: Ladder, updated_at: Timestamp) -> Self {
        Self { ladder, sequence: 1, updated_at, hash: None, last_trade: None, stale: false }
    }

    /// The levels of both sides.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }
}

/// Both sides of a book, each sorted with its best level **last**, in the order of the venue's
/// messages and of a walk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ladder {
    /// Ascending.
    bids: Vec<Level>,
    /// Descending.
    asks: Vec<Level>,
}

/// Why a level is invalid.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LadderError {
    /// The price is not strictly between 0 and 1, or has more than four decimals.
    #[error("price {price} is not between 0 and 1 on a tick of 0.0001")]
    Price {
        /// As given.
        price: Price,
    },
    /// The size is negative.
    #[error("size {size} at price {price} is negative")]
    Size {
        /// As given.
        price: Price,
        /// As given.
        size: Shares,
    },
    /// The same price occurs twice on one side of a full book.
    #[error("price {price} occurs twice on one side")]
    Duplicate {
        /// The price.
        price: Price,
    },
    /// A side is longer than [`LEVELS_PER_SIDE_MAX`].
    #[error("more than {LEVELS_PER_SIDE_MAX} levels on one side")]
    TooLong,
}

impl Ladder {
    /// Builds a full book from levels in any order. Levels of size 0 are left out.
    pub fn from_levels(bids: Vec<Level>, asks: Vec<Level>) -> Result<Self, LadderError> {
        let bids = sorted_side(bids, |a, b| a.price.cmp(&b.price))?;
        let asks = sorted_side(asks, |a, b| b.price.cmp(&a.price))?;
        Ok(Self { bids, asks })
    }

    /// Bids, ascending: the best one last.
    pub fn bids(&self) -> &[Level] {
        &self.bids
    }

    /// Asks, descending: the best one last.
    pub fn asks(&self) -> &[Level] {
        &self.asks
    }

    /// The levels that a taker on this side takes, best last: asks for a buyer.
    pub fn taken_by(&self, taker: Side) -> &[Level] {
        match taker {
            Side::Buy => &self.asks,
            Side::Sell => &self.bids,
        }
    }

    /// The highest bid.
    pub fn best_bid(&self) -> Option<Level> {
        self.bids.last().copied()
    }

    /// The lowest ask.
    pub fn best_ask(&self) -> Option<Level> {
        self.asks.last().copied()
    }

    /// Whether the highest bid is at or above the lowest ask, which happens briefly within a burst
    /// of changes.
    pub fn is_crossed(&self) -> bool {
        match (self.best_bid(), self.best_ask()) {
            (Some(bid), Some(ask)) => bid.price >= ask.price,
            _ => false,
        }
    }

    /// Sets the size at a price; 0 removes the level. Returns whether the ladder changed, so that
    /// the removal of an unknown level can be detected.
    pub fn set(&mut self, side: Side, price: Price, size: Shares) -> Result<bool, LadderError> {
        check_level(Level { price, size })?;
        let (levels, found) = match side {
            Side::Buy => {
                let found = self.bids.binary_search_by(|level| level.price.cmp(&price));
                (&mut self.bids, found)
            }
            Side::Sell => {
                let found = self.asks.binary_search_by(|level| price.cmp(&level.price));
                (&mut self.asks, found)
            }
        };
        match found {
            Ok(index) if size == Shares::ZERO => {
                levels.remove(index);
                Ok(true)
            }
            Ok(index) => Ok(std::mem::replace(&mut levels[index].size, size) != size),
            Err(_) if size == Shares::ZERO => Ok(false),
            Err(_) if levels.len() >= LEVELS_PER_SIDE_MAX => Err(LadderError::TooLong),
            Err(index) => {
                levels.insert(index, Level { price, size });
                Ok(true)
            }
        }
    }

    /// Whether the other book shows the same orders from the other outcome of the market.
    pub fn is_mirror_of(&self, other: &Self) -> bool {
        let mirrors = |levels: &[Level], others: &[Level]| {
            levels.len() == others.len()
                && levels.iter().zip(others).all(|(level, other)| {
                    level.price == other.price.complement() && level.size == other.size
                })
        };
        mirrors(&self.bids, &other.asks) && mirrors(&self.asks, &other.bids)
    }

    /// The book of the other outcome of a binary market, where a bid at p becomes an ask at 1 − p.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let complement =
            |level: &Level| Level { price: level.price.complement(), size: level.size };
        Self {
            bids: self.asks.iter().map(complement).collect(),
            asks: self.bids.iter().map(complement).collect(),
        }
    }
}

fn check_level(level: Level) -> Result<(), LadderError> {
    if !level.price.is_quotable() {
        return Err(LadderError::Price { price: level.price });
    }
    if level.size < Shares::ZERO {
        return Err(LadderError::Size { price: level.price, size: level.size });
    }
    Ok(())
}

fn sorted_side(
    mut levels: Vec<Level>,
    order: impl Fn(&Level, &Level) -> std::cmp::Ordering,
) -> Result<Vec<Level>, LadderError> {
    if levels.len() > LEVELS_PER_SIDE_MAX {
        return Err(LadderError::TooLong);
    }
    for &level in &levels {
        check_level(level)?;
    }
    levels.retain(|level| level.size != Shares::ZERO);
    levels.sort_by(order);
    for pair in levels.windows(2) {
        if pair[0].price == pair[1].price {
            return Err(LadderError::Duplicate { price: pair[0].price });
        }
    }
    Ok(levels)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn level(price_micros: i64, size: i64) -> Level {
        Level { price: Price::from_micros(price_micros), size: Shares::from_micros(size) }
    }

    #[test]
    fn the_best_level_is_last() {
        let ladder = Ladder::from_levels(
            vec![level(480_000, 5), level(470_000, 5), level(490_000, 0)],
            vec![level(510_000, 5), level(520_000, 5)],
        )
        .unwrap();
        assert_eq!(ladder.best_bid(), Some(level(480_000, 5)));
        assert_eq!(ladder.best_ask(), Some(level(510_000, 5)));
        assert_eq!(ladder.taken_by(Side::Buy), ladder.asks());
        assert!(!ladder.is_crossed());
        let mirror = ladder.mirrored();
        assert_eq!(mirror.best_bid(), Some(level(490_000, 5)));
        assert_eq!(mirror.best_ask(), Some(level(520_000, 5)));
        assert_eq!(mirror.mirrored(), ladder);
    }

    #[test]
    fn invalid_levels_are_refused() {
        for (bids, expected) in [
            (vec![level(0, 1)], LadderError::Price { price: Price::ZERO }),
            (vec![level(1_000_000, 1)], LadderError::Price { price: Price::ONE }),
            (
                vec![level(500_000, -1)],
                LadderError::Size {
                    price: Price::from_micros(500_000),
                    size: Shares::from_micros(-1),
                },
            ),
            (
                vec![level(500_000, 1), level(500_000, 2)],
                LadderError::Duplicate { price: Price::from_micros(500_000) },
            ),
            (vec![level(500_000, 1); LEVELS_PER_SIDE_MAX + 1], LadderError::TooLong),
        ] {
            assert_eq!(Ladder::from_levels(bids, Vec::new()), Err(expected));
        }
    }

    proptest! {
        /// A naive book made of two sorted maps.
        #[test]
        fn changes_agree_with_sorted_maps(
            changes in prop::collection::vec((any::<bool>(), 1_i64..40, 0_i64..4), 0..200),
        ) {
            let mut ladder = Ladder::default();
            let mut maps = [BTreeMap::new(), BTreeMap::new()];
            for (is_bid, price, size) in changes {
                let side = if is_bid { Side::Buy } else { Side::Sell };
                let map = &mut maps[usize::from(is_bid)];
                let before = map.clone();
                if size == 0 { map.remove(&price); } else { map.insert(price, size); }
                let changed = ladder
                    .set(side, Price::from_micros(price * 100), Shares::from_micros(size))
                    .unwrap();
                prop_assert_eq!(changed, *map != before);
            }
            let expected = |map: &BTreeMap<i64, i64>| -> Vec<Level> {
                map.iter().map(|(&price, &size)| level(price * 100, size)).collect()
            };
            let mut asks = expected(&maps[0]);
            asks.reverse();
            prop_assert_eq!(ladder.bids(), expected(&maps[1]));
            prop_assert_eq!(ladder.asks(), asks);
        }
    }
}
