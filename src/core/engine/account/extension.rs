//! The rarely used part of an account: resting orders, resets, operator acts and undone fills.

use std::collections::BTreeMap;

use smallvec::SmallVec;

use crate::engine::account::ledger::Resets;
use crate::engine::admin::standing::Standing;
use crate::engine::fills::log::FillLog;
use crate::engine::fills::undone::UndoneFills;
use crate::engine::order::open::BookSide;
use crate::engine::state::heap::tree_bytes;
use crate::faults::{self, Fault};
use crate::ids::{MarketIndex, OutcomeIndex};
use crate::market::book::{Level, Side};
use crate::money::{Price, Shares};

/// An account's open orders, and other data that most accounts lack.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct AccountExtension {
    /// The slots of the open orders, by order counter.
    pub(in crate::engine) open: BTreeMap<u64, u32>,
    /// The number of fills the account has ever had, minus the number of orders it has ever
    /// finished.
    pub(in crate::engine) fill_surplus: i64,
    /// The heartbeat interval in milliseconds.
    pub(in crate::engine) heartbeat_ms: Option<u32>,
    /// The account's fills, from its first order that did not have to fill at once. `None` if it
    /// never had such an order.
    pub(in crate::engine) fill_log: Option<FillLog>,
    pub(in crate::engine) resets: Option<Resets>,
    pub(in crate::engine) standing: Option<Box<Standing>>,
    /// The fills that were undone. Boxed, since most accounts never have one.
    pub(in crate::engine) undone_fills: Option<Box<UndoneFills>>,
    on: BTreeMap<BookSide, OnSide>,
    /// The number of entries in `on` with used levels, kept up to date so that `bytes` is O(1).
    used_count: u32,
}

/// An account's open orders on one side of a book.
#[derive(Clone, Debug, Default)]
struct OnSide {
    count: u32,
    /// The shares that open sales reserve.
    reserved: Shares,
    /// The levels that the orders have taken from. Boxed, since most orders have taken from none.
    used: Option<Box<UsedLevels>>,
}

/// The displayed levels that an account's resting orders have taken from, in the order of the
/// newest fill at each level. At most one entry per price.
pub(in crate::engine) type UsedLevels = SmallVec<[NotedLevel; 1]>;

/// A level of the venue's book that an account's resting orders have taken from. It is journaled
/// with the fill and is not part of the state hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UsedLevel {
    /// The level's price.
    pub price: Price,
    /// The size displayed at the newest fill.
    pub shown: Shares,
    /// The part of `shown` that the account's orders may still take.
    pub left: Shares,
}

impl UsedLevel {
    /// Creates the record of a level whose whole size was taken.
    pub(in crate::engine) const fn whole(level: &Level) -> Self {
        Self { price: level.price, shown: level.size, left: Shares::ZERO }
    }

    /// Whether a level read from disk has a valid price and sizes.
    pub(in crate::engine) fn is_possible(&self) -> bool {
        let Self { price, shown, left } = *self;
        (Price::ZERO..=Price::ONE).contains(&price) && (Shares::ZERO..=shown).contains(&left)
    }
}

/// A used level, and its growth up to the newest fill.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct NotedLevel {
    pub(in crate::engine) level: UsedLevel,
    /// The growth. It is not journaled, so it is `None` if the newest fill happened before this
    /// process started.
    pub(in crate::engine) seen: Option<Seen>,
}

impl NotedLevel {
    /// Creates the record of a level whose book this process has not seen.
    pub(in crate::engine) const fn unseen(level: UsedLevel) -> Self {
        Self { level, seen: None }
    }
}

/// The total growth of a level; see [`crate::market::book::Book`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in crate::engine) struct Seen {
    pub(in crate::engine) grown: Shares,
    /// The era in which `grown` was counted.
    pub(in crate::engine) era: u64,
}

impl AccountExtension {
    /// Returns the memory of this value in bytes, including its heap data but not the logged fills.
    pub(in crate::engine) fn bytes(&self) -> usize {
        size_of::<Self>()
            + tree_bytes(&self.open)
            + tree_bytes(&self.on)
            + self.used_count as usize * size_of::<UsedLevels>()
            + self.standing.as_ref().map_or(0, |standing| standing.bytes())
            + self.undone_fills.as_deref().map_or(0, |it| size_of_val(it) + tree_bytes(it))
    }

    /// Adds an open order with the shares that it reserves. Returns `None` if the sum of reserved
    /// shares exceeds its range.
    pub(in crate::engine) fn insert(
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

    /// Releases shares that an open order reserved.
    pub(in crate::engine) fn release(&mut self, on: BookSide, shares: Shares) {
        match self.on.get_mut(&on) {
            Some(side) => {
                side.reserved -= shares;
                assert!(
                    side.reserved >= Shares::ZERO || are_reserves_lost(),
                    "an order releases only shares that it reserved"
                );
            }
            None => assert!(shares == Shares::ZERO, "only an open order releases shares"),
        }
    }

    /// Removes an open order, whose shares must already be released.
    pub(in crate::engine) fn remove(&mut self, counter: u64, on: BookSide) {
        let slot = self.open.remove(&counter);
        assert!(slot.is_some(), "only an open order is closed");
        if let Some(side) = self.on.get_mut(&on) {
            assert!(side.count > 0, "an open order is counted on its side");
            side.count -= 1;
            if side.count == 0 {
                assert!(
                    side.reserved == Shares::ZERO || are_reserves_lost(),
                    "the last order of a side leaves no reserve"
                );
                self.used_count -= u32::from(side.used.is_some());
                self.on.remove(&on);
            }
        }
    }

    /// Returns the shares of an outcome that open sales reserve.
    pub(in crate::engine) fn reserved_shares(
        &self,
        market: MarketIndex,
        outcome: OutcomeIndex,
    ) -> Shares {
        let on = BookSide { market, outcome, side: Side::Sell };
        self.on.get(&on).map_or(Shares::ZERO, |side| side.reserved)
    }

    /// Returns the displayed levels that orders on one side of a book have taken from.
    pub(in crate::engine) fn used(&self, on: BookSide) -> &[NotedLevel] {
        let used = self.on.get(&on).and_then(|side| side.used.as_deref());
        used.map_or(&[], |used| used)
    }

    /// Iterates over the book sides on which orders have taken from displayed levels.
    pub(in crate::engine) fn used_sides(&self) -> impl Iterator<Item = (BookSide, &[NotedLevel])> {
        self.on.iter().filter_map(|(&on, side)| Some((on, &side.used.as_deref()?[..])))
    }

    /// Merges the displayed levels that an order has taken from into those recorded for its side of
    /// the book. Does nothing if no order is open on that side.
    pub(in crate::engine) fn note_used(
        &mut self,
        on: BookSide,
        levels: impl IntoIterator<Item = NotedLevel>,
    ) {
        let Some(side) = self.on.get_mut(&on) else { return };
        for level in levels {
            self.used_count += u32::from(side.used.is_none());
            note_used(side.used.get_or_insert_default(), level);
        }
    }

    /// Replaces the displayed levels recorded for one side of a book. Does nothing if no order is
    /// open on that side.
    pub(in crate::engine) fn remember(&mut self, on: BookSide, used: UsedLevels) {
        if let Some(side) = self.on.get_mut(&on) {
            self.used_count += u32::from(side.used.is_none());
            side.used = Some(Box::new(used));
        }
    }
}

/// Whether reserves may be missing because of [`Fault::ReserveNotRestored`]. The assertions about
/// reserves are blind to this injected fault, so that another check has to detect it.
pub(in crate::engine) fn are_reserves_lost() -> bool {
    faults::is_on(Fault::ReserveNotRestored)
}

/// Records what is left of a level after a fill. If a level of a newer book is already recorded,
/// records nothing and returns false. This can happen because a match that takes several visits
/// continues with its own book even if a newer one has been matched meanwhile.
pub(in crate::engine) fn note_used(used: &mut UsedLevels, mut noted: NotedLevel) -> bool {
    if used.iter().any(|known| is_of_newer_book(known, &noted)) {
        return false;
    }
    let place = used.iter().position(|known| known.level.price == noted.level.price);
    let known = place.and_then(|place| used.remove(place).seen);
    if let (Some(known), Some(seen)) = (known, &mut noted.seen)
        && known.era == seen.era
    {
        seen.grown = seen.grown.max(known.grown);
    }
    used.push(noted);
    true
}

fn is_of_newer_book(known: &NotedLevel, noted: &NotedLevel) -> bool {
    let is_mirrored = |seen: Seen| seen.era & 1;
    known.seen.zip(noted.seen).is_some_and(|(known, noted)| {
        is_mirrored(known) == is_mirrored(noted) && known.era > noted.era
    })
}

/// Returns the size that an account's resting orders may take from a displayed level: the size that
/// their newest fill left there plus the level's growth since, but at most the displayed size. The
/// growth is unknown if a change may have been lost or the server was restarted. It is then
/// estimated from the excess of the displayed size over the size at that fill.
pub(in crate::engine) fn free_size(
    used: &[NotedLevel],
    price: Price,
    shown: Shares,
    grown: Shares,
    era: u64,
) -> Shares {
    let Some(NotedLevel { level, seen }) = used.iter().find(|it| it.level.price == price) else {
        return shown;
    };
    let beyond = |now: Shares, then: Shares| now.micros().saturating_sub(then.micros()).max(0);
    let growth = match seen {
        Some(seen) if seen.era == era => beyond(grown, seen.grown),
        // In each era, growth is counted from 0, starting at its first book.
        _ => beyond(shown, level.shown).max(grown.micros()),
    };
    shown.min(Shares::from_micros(level.left.micros().saturating_add(growth)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(left: i64, seen: Option<(i64, u64)>) -> NotedLevel {
        let shares = Shares::from_micros;
        let (price, shown) = (Price::from_micros(500_000), shares(1_000));
        NotedLevel {
            level: UsedLevel { price, shown, left: shares(left) },
            seen: seen.map(|(grown, era)| Seen { grown: shares(grown), era }),
        }
    }

    /// Checks the level recorded after these fills, each given as left, grown and era.
    #[track_caller]
    fn check_used(fills: &[(i64, i64, u64)], expected: (i64, i64, u64)) {
        let mut used = UsedLevels::new();
        for &(left, grown, era) in fills {
            note_used(&mut used, noted(left, Some((grown, era))));
        }
        let (left, grown, era) = expected;
        assert_eq!(used.to_vec(), [noted(left, Some((grown, era)))]);
    }

    #[test]
    fn a_fill_on_an_older_book_keeps_what_a_newer_one_used() {
        check_used(&[(685, 0, 2), (870, 500, 2)], (870, 500, 2));
        // Growth of the level counts once.
        check_used(&[(870, 500, 2), (555, 0, 2)], (555, 500, 2));
        check_used(&[(870, 500, 2), (9, 0, 4)], (9, 0, 4));
        check_used(&[(870, 500, 4), (9, 900, 2)], (870, 500, 4));
        // The outcome's own book and a mirrored one have separate eras.
        check_used(&[(870, 500, 4), (9, 0, 3)], (9, 0, 3));
    }

    /// Checks the size that may be taken from a level that displayed 1,000 at the newest fill.
    #[track_caller]
    fn check_free((left, seen): (i64, Option<(i64, u64)>), now: (i64, i64, u64), expected: i64) {
        let (shown, grown, era) = now;
        let [shown, grown] = [shown, grown].map(Shares::from_micros);
        let used = [noted(left, seen)];
        let free = free_size(&used, used[0].level.price, shown, grown, era);
        assert_eq!(free.micros(), expected, "{used:?} {now:?}");
    }

    #[test]
    fn a_displayed_size_is_used_once_whatever_is_known_of_its_growth() {
        for (fill, now, expected) in [
            // Within one era the growth of the level is known.
            ((0, Some((70, 2))), (1_000, 70, 2), 0),
            ((0, Some((70, 2))), (1_000, 90, 2), 20),
            ((5, Some((70, 2))), (3, 70, 2), 3),
            // In a new era, or after a restart, only the excess over the former size is new.
            ((0, Some((70, 2))), (1_000, 0, 4), 0),
            ((0, None), (1_000, 0, 4), 0),
            ((0, None), (400, 0, 4), 0),
            ((30, None), (1_000, 0, 4), 30),
            ((0, None), (1_250, 0, 4), 250),
            // Both measures count the same 250 shares.
            ((0, None), (1_250, 250, 4), 250),
            // The first book of the era showed 600, and 250 were added.
            ((0, None), (850, 250, 4), 250),
            // The level was empty when the era began.
            ((0, None), (1_000, 1_000, 4), 1_000),
        ] {
            check_free(fill, now, expected);
        }
    }

    #[test]
    fn sides_with_used_levels_are_counted_as_they_come_and_go() {
        let on = |outcome| BookSide {
            market: MarketIndex(0),
            outcome: OutcomeIndex(outcome),
            side: Side::Buy,
        };
        let mut extension = AccountExtension::default();
        let sides = |extension: &AccountExtension| {
            extension.on.values().filter(|it| it.used.is_some()).count()
        };
        let check = |extension: &AccountExtension, expected: usize| {
            assert_eq!((extension.used_count as usize, sides(extension)), (expected, expected));
        };
        extension.note_used(on(0), []);
        check(&extension, 0);
        for (counter, side) in [(0, on(0)), (1, on(0)), (2, on(1))] {
            extension.insert(counter, 0, side, Shares::ZERO).unwrap();
        }
        check(&extension, 0);
        extension.note_used(on(0), []);
        extension.remember(on(0), UsedLevels::new());
        check(&extension, 1);
        extension.remember(on(1), UsedLevels::new());
        extension.note_used(on(1), []);
        check(&extension, 2);
        extension.remove(0, on(0));
        check(&extension, 2);
        extension.remove(1, on(0));
        check(&extension, 1);
        extension.remove(2, on(1));
        check(&extension, 0);
    }
}
