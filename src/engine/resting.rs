//! The part of an account that only accounts with resting orders, or with resets, have, and those
//! that operators have acted on.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use super::fill_log::FillLog;
use super::heap::tree_bytes;
use super::ledger::Resets;
use super::open_orders::BookSide;
use super::standing::Standing;
use crate::ids::{MarketIndex, OutcomeIndex};
use crate::market::book::Side;
use crate::money::{Price, Shares};

/// An account's open orders, and what follows from them.
#[derive(Clone, Debug, Default)]
pub(super) struct Resting {
    /// The slots of the open orders, by the counter of the order.
    pub(super) open: BTreeMap<u64, u32>,
    /// How many fills the account ever had, less the orders that it ever finished.
    pub(super) fill_surplus: i64,
    /// How often the account sends a heartbeat, in milliseconds.
    pub(super) heartbeat_ms: Option<u32>,
    /// The fills since the account's first order that need not fill at once.
    pub(super) fill_log: Option<FillLog>,
    pub(super) resets: Option<Resets>,
    pub(super) standing: Option<Box<Standing>>,
    on: BTreeMap<BookSide, OnSide>,
    /// How many of `on` have used levels, so that nobody has to look at each.
    used_count: u32,
}

/// An account's open orders on one side of a book.
#[derive(Clone, Debug, Default)]
struct OnSide {
    count: u32,
    /// The shares that open sales hold back.
    reserved: Shares,
    /// Most orders have used none.
    used: Option<Box<UsedLevels>>,
}

/// The displayed sizes that an account's resting orders have used.
///
/// This is working memory: neither journaled nor part of the state hash. After a restart every
/// displayed size counts as new. There is at most one entry for each price.
pub(super) type UsedLevels = SmallVec<[UsedLevel; 1]>;

/// A level of the venue's book that an account's resting orders have taken from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct UsedLevel {
    /// The level's price.
    pub(super) price: Price,
    /// What was left of the displayed size after the newest fill.
    pub(super) left: Shares,
    /// How much the level had ever grown by then; see [`crate::market::book::Book`].
    pub(super) grown: Shares,
    /// The era of `grown`.
    pub(super) era: u64,
}

impl Resting {
    /// The memory of this and of what it owns, without the logged fills.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>()
            + tree_bytes(&self.open)
            + tree_bytes(&self.on)
            + self.used_count as usize * size_of::<UsedLevels>()
            + self.standing.as_ref().map_or(0, |standing| standing.bytes())
    }

    /// Adds an open order with the shares that it holds back; `None` if the sum exceeds its range.
    pub(super) fn insert(
        &mut self,
        counter: u64,
        slot: u32,
        on: BookSide,
        shares: Shares,
    ) -> Option<()> {
        self.open.insert(counter, slot);
        let side = self.on.entry(on).or_default();
        side.count += 1;
        side.reserved = side.reserved.checked_add(shares)?;
        Some(())
    }

    /// Changes the shares that an open order holds back.
    pub(super) fn release(&mut self, on: BookSide, shares: Shares) {
        if let Some(side) = self.on.get_mut(&on) {
            side.reserved -= shares;
        }
    }

    /// Removes an open order that holds back nothing any more.
    pub(super) fn remove(&mut self, counter: u64, on: BookSide) {
        self.open.remove(&counter);
        if let Some(side) = self.on.get_mut(&on) {
            side.count -= 1;
            if side.count == 0 {
                self.used_count -= u32::from(side.used.is_some());
                self.on.remove(&on);
            }
        }
    }

    /// The shares of an outcome that open sales hold back.
    pub(super) fn reserved_shares(&self, market: MarketIndex, outcome: OutcomeIndex) -> Shares {
        let on = BookSide { market, outcome, side: Side::Sell };
        self.on.get(&on).map_or(Shares::ZERO, |side| side.reserved)
    }

    /// The displayed sizes that orders on one side of a book have used.
    pub(super) fn used(&self, on: BookSide) -> &[UsedLevel] {
        let used = self.on.get(&on).and_then(|side| side.used.as_deref());
        used.map_or(&[], |used| used)
    }

    /// Adds displayed sizes that a new order has used to those that others have, as long as there
    /// are orders on that side of the book.
    pub(super) fn note_used(&mut self, on: BookSide, levels: &[UsedLevel]) {
        if let Some(side) = self.on.get_mut(&on) {
            self.used_count += u32::from(side.used.is_none());
            let used = side.used.get_or_insert_default();
            for &level in levels {
                note_used(used, level);
            }
        }
    }

    /// Remembers the displayed sizes that orders on one side of a book have used, as long as there
    /// are such orders.
    pub(super) fn remember(&mut self, on: BookSide, used: UsedLevels) {
        if let Some(side) = self.on.get_mut(&on) {
            self.used_count += u32::from(side.used.is_none());
            side.used = Some(Box::new(used));
        }
    }
}

/// Notes what is left of a level after a fill.
pub(super) fn note_used(used: &mut UsedLevels, mut level: UsedLevel) {
    // A match that takes several visits may go on with its book after a newer one was matched.
    let is_newer = |known: &UsedLevel| {
        let is_mirrored = |era: u64| era & 1;
        is_mirrored(known.era) == is_mirrored(level.era) && known.era > level.era
    };
    if used.iter().any(is_newer) {
        return;
    }
    let known = used.iter().find(|it| it.price == level.price && it.era == level.era);
    level.grown = known.map_or(level.grown, |known| known.grown.max(level.grown));
    // Levels of an earlier era say nothing any more.
    used.retain(|known| known.price != level.price && known.era == level.era);
    used.push(level);
}

/// What an account's resting orders may take of a displayed level: what was left after their newest
/// fill there, and what the level has grown since, but at most what is displayed.
pub(super) fn free_size(
    used: &[UsedLevel],
    price: Price,
    shown: Shares,
    grown: Shares,
    era: u64,
) -> Shares {
    match used.iter().find(|level| level.price == price && level.era == era) {
        Some(level) => {
            let growth = grown.micros().saturating_sub(level.grown.micros()).max(0);
            shown.min(Shares::from_micros(level.left.micros().saturating_add(growth)))
        }
        None => shown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is left of levels of one price after these fills: left, grown and era of each.
    #[track_caller]
    fn check_used(fills: &[(i64, i64, u64)], expected: &[(i64, i64, u64)]) {
        let shares = Shares::from_micros;
        let level = |&(left, grown, era): &(i64, i64, u64)| UsedLevel {
            price: Price::from_micros(500_000),
            left: shares(left),
            grown: shares(grown),
            era,
        };
        let mut used = UsedLevels::new();
        for fill in fills {
            note_used(&mut used, level(fill));
        }
        assert_eq!(used.to_vec(), expected.iter().map(level).collect::<Vec<_>>());
    }

    #[test]
    fn a_fill_on_an_older_book_keeps_what_a_newer_one_used() {
        check_used(&[(685, 0, 2), (870, 500, 2)], &[(870, 500, 2)]);
        // What the level grew by counts once.
        check_used(&[(870, 500, 2), (555, 0, 2)], &[(555, 500, 2)]);
        check_used(&[(870, 500, 2), (9, 0, 4)], &[(9, 0, 4)]);
        check_used(&[(870, 500, 4), (9, 900, 2)], &[(870, 500, 4)]);
        // A book of its own and a mirrored one count their eras apart.
        check_used(&[(870, 500, 4), (9, 0, 3)], &[(9, 0, 3)]);
    }

    #[test]
    fn sides_with_used_levels_are_counted_as_they_come_and_go() {
        let on = |outcome| BookSide {
            market: MarketIndex(0),
            outcome: OutcomeIndex(outcome),
            side: Side::Buy,
        };
        let mut resting = Resting::default();
        let sides = |resting: &Resting| resting.on.values().filter(|it| it.used.is_some()).count();
        let check = |resting: &Resting, expected: usize| {
            assert_eq!((resting.used_count as usize, sides(resting)), (expected, expected));
        };
        resting.note_used(on(0), &[]);
        check(&resting, 0);
        for (counter, side) in [(0, on(0)), (1, on(0)), (2, on(1))] {
            resting.insert(counter, 0, side, Shares::ZERO).unwrap();
        }
        check(&resting, 0);
        resting.note_used(on(0), &[]);
        resting.remember(on(0), UsedLevels::new());
        check(&resting, 1);
        resting.remember(on(1), UsedLevels::new());
        resting.note_used(on(1), &[]);
        check(&resting, 2);
        resting.remove(0, on(0));
        check(&resting, 2);
        resting.remove(1, on(0));
        check(&resting, 1);
        resting.remove(2, on(1));
        check(&resting, 0);
    }
}
