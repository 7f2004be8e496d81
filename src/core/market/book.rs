//! The book of one outcome: resting size by price, and the venue's changes to it.

use std::sync::Arc;

use super::growth::Numbers;
use crate::ids::Timestamp;
use crate::money::{Price, Shares};

/// Maximum number of levels per side; further levels are refused. A tick of 0.0001 allows no more
/// than 9,999 prices, and no real side comes close.
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
    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Buy => "BUY",
            Self::Sell => "SELL",
        }
    }

    /// Returns the opposite side.
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

impl LastTrade {
    /// Returns the trade as seen from the other outcome: buying one means selling the other.
    #[must_use]
    pub fn mirrored(self) -> Self {
        Self { price: self.price.complement(), side: self.side.map(Side::opposite), ..self }
    }
}

/// A venue's hash of a book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookHash {
    /// The hash as the venue writes it.
    pub text: Box<str>,
    /// Price of the last trade that the hash covers, which may be older than the newest one; `None`
    /// if it covers a book without trades.
    pub last_trade_price: Option<Price>,
}

/// The book of one outcome as readers see it: complete, immutable and shared.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Book {
    ladder: Ladder,
    /// Increases with every published change of this book.
    pub sequence: u64,
    /// The venue's time of the newest change.
    pub updated_at: Timestamp,
    /// The venue's hash of exactly this book, if it reported one that was verified.
    pub hash: Option<BookHash>,
    /// The newest trade.
    pub last_trade: Option<LastTrade>,
    /// Whether the book may differ from what the venue shows now. Readers see the flag, and nothing
    /// fills on a stale book.
    pub stale: bool,
    /// The era of `growth`. Growth is comparable only within the same era.
    pub era: u32,
    /// Growth of each level in this era; `None` if no level has grown or growth is not tracked.
    pub growth: Option<Arc<Numbers>>,
}

impl Book {
    /// Creates the first book of a sequence, with these levels and no trades.
    pub fn new(ladder: Ladder, updated_at: Timestamp) -> Self {
        Self {
            ladder,
            sequence: 1,
            updated_at,
            hash: None,
            last_trade: None,
            stale: false,
            era: 0,
            growth: None,
        }
    }

    /// Returns the levels of both sides.
    pub fn ladder(&self) -> &Ladder {
        &self.ladder
    }

    /// Returns how much a level has grown in this era, in micro-shares. `side` is a buy for a bid,
    /// a sell for an ask. A level that shrinks keeps the sum of its growth; see [`super::growth`].
    pub fn grown(&self, side: Side, price: Price) -> i64 {
        self.growth.as_ref().map_or(0, |numbers| numbers.of(side, price))
    }
}

/// Both sides of a book, each sorted with its best level **last**: the order of the venue's
/// messages and of a walk.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ladder {
    /// Ascending by price.
    bids: Vec<Level>,
    /// Descending by price.
    asks: Vec<Level>,
}

/// The error for an invalid level or side.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum LadderError {
    /// The price is not strictly between 0 and 1, or has more than four decimals.
    #[error("price {price} is not between 0 and 1 on a tick of 0.0001")]
    Price {
        /// The rejected price.
        price: Price,
    },
    /// The size is negative.
    #[error("size {size} at price {price} is negative")]
    Size {
        /// The price of the level.
        price: Price,
        /// The rejected size.
        size: Shares,
    },
    /// The same price occurs twice on one side.
    #[error("price {price} occurs twice on one side")]
    Duplicate {
        /// The repeated price.
        price: Price,
    },
    /// A side is longer than [`LEVELS_PER_SIDE_MAX`].
    #[error("more than {LEVELS_PER_SIDE_MAX} levels on one side")]
    TooLong,
}

impl Ladder {
    /// Builds a full book from levels in any order. Levels of size 0 are dropped.
    pub fn from_levels(bids: Vec<Level>, asks: Vec<Level>) -> Result<Self, LadderError> {
        let bids = sorted_side(bids, |a, b| a.price.cmp(&b.price))?;
        let asks = sorted_side(asks, |a, b| b.price.cmp(&a.price))?;
        Ok(Self { bids, asks })
    }

    /// Returns the bids in ascending order: the best one is last.
    pub fn bids(&self) -> &[Level] {
        &self.bids
    }

    /// Returns the asks in descending order: the best one is last.
    pub fn asks(&self) -> &[Level] {
        &self.asks
    }

    /// Returns the levels that a taker on this side takes, which are the asks for a buyer. The best
    /// one is last.
    pub fn taken_by(&self, taker: Side) -> &[Level] {
        match taker {
            Side::Buy => &self.asks,
            Side::Sell => &self.bids,
        }
    }

    /// Returns the highest bid.
    pub fn best_bid(&self) -> Option<Level> {
        self.bids.last().copied()
    }

    /// Returns the lowest ask.
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
    /// the caller can detect the removal of an unknown level.
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

    /// Whether the other ladder shows the same orders as seen from the other outcome of the market.
    pub fn is_mirror_of(&self, other: &Self) -> bool {
        let mirrors = |levels: &[Level], others: &[Level]| {
            levels.len() == others.len()
                && levels.iter().zip(others).all(|(level, other)| {
                    level.price == other.price.complement() && level.size == other.size
                })
        };
        mirrors(&self.bids, &other.asks) && mirrors(&self.asks, &other.bids)
    }

    /// Returns the ladder of the other outcome of a binary market, where a bid at p becomes an ask
    /// at 1 − p.
    #[must_use]
    pub fn mirrored(&self) -> Self {
        let complement =
            |level: &Level| Level { price: level.price.complement(), size: level.size };
        // The complement reverses the order of prices, so each side stays sorted with its best
        // level last.
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
mod tests;
