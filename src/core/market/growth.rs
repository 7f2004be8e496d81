//! The growth of each level of a book, so that a displayed size is used only once.
//!
//! Each level has a number that rises by whatever is added to the level. A taker that recorded the
//! number when it took shares can tell later how many of the displayed shares are free: at most
//! those it left plus those added since, `min(shown, left + number - number_then)`. No history is
//! needed.
//!
//! A level that returns within [`FLICKER_NS`] is not entirely new: orders are moved by removing and
//! adding them. Its number rises by the excess over its former size. A level that returns later is
//! new, and its number rises by its whole size.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::sync::Arc;

use super::book::{Ladder, Level, Side};
use crate::ids::Timestamp;
use crate::money::{Price, Shares};

/// A level that returns within this time keeps its number.
pub const FLICKER_NS: i64 = 1_000_000_000;

/// Number of removed levels that are remembered per side. The newest are kept.
pub const GONE_MAX: usize = 64;

/// The growth numbers of a book's levels, and the state needed to update them.
#[derive(Debug)]
pub struct Growth {
    bids: Grower,
    asks: Grower,
    /// Built when a book is published, and reused until the next change.
    numbers: Option<Arc<Numbers>>,
}

/// The growth numbers of a book's levels at one moment. Levels that have not grown are left out.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Numbers {
    /// Ascending by price.
    bids: Box<[(Price, i64)]>,
    /// Descending by price.
    asks: Box<[(Price, i64)]>,
}

/// The best level on each side that has appeared or grown.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Grown {
    /// The highest bid.
    pub bid: Option<Price>,
    /// The lowest ask.
    pub ask: Option<Price>,
}

/// One side of a book.
#[derive(Debug)]
struct Grower {
    side: Side,
    /// Sorted with the best level last, as in a [`Ladder`].
    levels: Vec<Numbered>,
    /// The most recently removed levels, oldest first.
    gone: VecDeque<Gone>,
    /// At least as high as every number so far. A new level starts above this, so that for a taker
    /// that recorded the number of an earlier level at the same price, the whole size counts as
    /// added.
    ever: i64,
    /// The best price at which a level has appeared or grown since this field was last taken.
    best_grown: Option<Price>,
}

#[derive(Clone, Copy, Debug)]
struct Numbered {
    level: Level,
    number: i64,
}

#[derive(Debug)]
struct Gone {
    was: Numbered,
    at: Timestamp,
}

impl Growth {
    /// Starts with these levels, all numbered 0.
    pub fn starting_from(ladder: &Ladder) -> Self {
        Self {
            bids: Grower::new(Side::Buy, ladder.bids()),
            asks: Grower::new(Side::Sell, ladder.asks()),
            numbers: None,
        }
    }

    /// Sets the size of a level; 0 removes it.
    pub fn set(&mut self, side: Side, price: Price, size: Shares, at: Timestamp) {
        self.numbers = None;
        let grower = match side {
            Side::Buy => &mut self.bids,
            Side::Sell => &mut self.asks,
        };
        grower.set(Level { price, size }, at);
    }

    /// Replaces all levels with these.
    pub fn replace(&mut self, ladder: &Ladder, at: Timestamp) {
        self.numbers = None;
        self.bids.replace(ladder.bids(), at);
        self.asks.replace(ladder.asks(), at);
    }

    /// Returns the current numbers of the levels, or `None` if all are 0.
    pub fn numbers(&mut self) -> Option<Arc<Numbers>> {
        if self.numbers.is_none() {
            let [bids, asks] = [&self.bids, &self.asks].map(Grower::numbers);
            if !bids.is_empty() || !asks.is_empty() {
                self.numbers = Some(Arc::new(Numbers { bids, asks }));
            }
        }
        self.numbers.clone()
    }

    /// Returns the best levels that have appeared or grown since the last call. Some may be gone by
    /// now.
    pub fn take_grown(&mut self) -> Grown {
        Grown { bid: self.bids.best_grown.take(), ask: self.asks.best_grown.take() }
    }
}

impl Numbers {
    /// Returns the number of a level. `side` is a buy for a bid, a sell for an ask.
    pub fn of(&self, side: Side, price: Price) -> i64 {
        let levels = match side {
            Side::Buy => &self.bids,
            Side::Sell => &self.asks,
        };
        let found = levels.binary_search_by(|&(other, _)| improvement(side, other, price));
        found.map_or(0, |index| levels[index].1)
    }
}

impl Grower {
    fn new(side: Side, levels: &[Level]) -> Self {
        let levels = levels.iter().map(|&level| Numbered { level, number: 0 }).collect();
        Self { side, levels, gone: VecDeque::new(), ever: 0, best_grown: None }
    }

    fn set(&mut self, level: Level, at: Timestamp) {
        let side = self.side;
        let found =
            self.levels.binary_search_by(|other| improvement(side, other.level.price, level.price));
        match found {
            Ok(index) if level.size == Shares::ZERO => {
                let was = self.levels.remove(index);
                self.forget(was, at);
            }
            Ok(index) => self.levels[index] = self.resized(self.levels[index], level.size),
            Err(_) if level.size == Shares::ZERO => {}
            Err(index) => {
                let added = self.added(level, at);
                self.levels.insert(index, added);
            }
        }
    }

    fn replace(&mut self, levels: &[Level], at: Timestamp) {
        let side = self.side;
        let mut before = std::mem::take(&mut self.levels).into_iter().peekable();
        let mut after = Vec::with_capacity(levels.len());
        for &level in levels {
            let is_worse = |other: &Numbered| {
                improvement(side, other.level.price, level.price) == Ordering::Less
            };
            while let Some(was) = before.next_if(is_worse) {
                self.forget(was, at);
            }
            let known = before.next_if(|other| other.level.price == level.price);
            after.push(match known {
                Some(known) => self.resized(known, level.size),
                None => self.added(level, at),
            });
        }
        for was in before {
            self.forget(was, at);
        }
        self.levels = after;
    }

    fn resized(&mut self, known: Numbered, size: Shares) -> Numbered {
        let level = Level { size, ..known.level };
        let number = known.number.saturating_add(excess(size, known.level.size));
        if size > known.level.size {
            self.note_grown(level.price);
        }
        self.ever = self.ever.max(number);
        Numbered { level, number }
    }

    fn added(&mut self, level: Level, at: Timestamp) -> Numbered {
        // The level counts as grown even if its number stays the same, because an order that takes
        // from it may have arrived while it was gone.
        self.note_grown(level.price);
        let position = self.gone.iter().position(|gone| gone.was.level.price == level.price);
        let gone = position.and_then(|index| self.gone.remove(index));
        let number = match gone {
            Some(Gone { was, at: gone_at })
                if at.nanos().saturating_sub(gone_at.nanos()) < FLICKER_NS =>
            {
                was.number.saturating_add(excess(level.size, was.level.size))
            }
            _ => self.ever.saturating_add(level.size.micros()),
        };
        self.ever = self.ever.max(number);
        Numbered { level, number }
    }

    fn forget(&mut self, was: Numbered, at: Timestamp) {
        if self.gone.len() == GONE_MAX {
            self.gone.pop_front();
        }
        self.gone.push_back(Gone { was, at });
    }

    fn note_grown(&mut self, price: Price) {
        let is_better = |best| improvement(self.side, best, price) == Ordering::Less;
        if self.best_grown.is_none_or(is_better) {
            self.best_grown = Some(price);
        }
    }

    fn numbers(&self) -> Box<[(Price, i64)]> {
        let grown = self.levels.iter().filter(|it| it.number != 0);
        grown.map(|it| (it.level.price, it.number)).collect()
    }
}

/// Compares two prices on a side: the better one is greater.
fn improvement(side: Side, price: Price, other: Price) -> Ordering {
    match side {
        Side::Buy => price.cmp(&other),
        Side::Sell => other.cmp(&price),
    }
}

/// Returns how much larger a size is than the former size; 0 if it is not larger.
fn excess(size: Shares, former: Shares) -> i64 {
    size.micros().saturating_sub(former.micros()).max(0)
}

#[cfg(test)]
mod tests;
