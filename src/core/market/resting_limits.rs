//! The shards with orders resting in a market, and the best limits of those orders. The feed reads
//! the limits when a book has changed, so that a change that fills nothing wakes no shard.
//!
//! Each shard has its own slot for each outcome and side, with the best limit of its orders there.
//! Nothing is locked. No crossing is missed, because the shard and the feed each write first, then
//! fence, and then read what the other one writes:
//!
//! | the shard's runner | the feed |
//! |---|---|
//! | [`RestingLimits::set_best`] | publishes the book |
//! | `fence(SeqCst)` | `fence(SeqCst)` |
//! | reads the newest book again | [`RestingLimits::reached_by`] |
//!
//! If the runner reads a book from before a change, the feed finds the limit that the runner has
//! stored. If each sees the other's write, a match finds nothing left to fill. A runner raises its
//! limit before it lets an order rest, and lowers it after the order is gone.

mod atomics;
#[cfg(all(test, paperbourse_loom))]
mod model;

use atomics::{AtomicU32, Ordering};

use super::book::Side;
use crate::ids::{OutcomeIndex, SHARD_COUNT, ShardId};
use crate::money::Price;

/// The finest tick in millionths of a dollar, the unit in which limits are stored.
const TICK_MICROS: u32 = 100;

/// The stored limit while no order rests.
const NOTHING: u32 = 0;

/// The best limits of the orders resting in one market, by outcome, side and shard.
pub struct RestingLimits {
    outcomes: Box<[[Limits; 2]]>,
}

/// The best limit of each shard on one side of one outcome, in units of 0.0001.
type Limits = [AtomicU32; SHARD_COUNT];

/// A set of shards.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub struct ShardSet(u64);

const _: () = assert!(SHARD_COUNT == u64::BITS as usize);

impl RestingLimits {
    /// Creates an interest without resting orders.
    pub fn new(outcome_count: usize) -> Self {
        let limits = || std::array::from_fn(|_| AtomicU32::new(NOTHING));
        Self { outcomes: (0..outcome_count).map(|_| [limits(), limits()]).collect() }
    }

    /// Stores the best limit of a shard's orders: the highest buy, the lowest sell, or `None` if
    /// none rests. Only the shard's runner calls this, and it fences before it reads a book again.
    pub fn set_best(
        &self,
        outcome: OutcomeIndex,
        side: Side,
        shard: ShardId,
        limit: Option<Price>,
    ) {
        let limit = limit.map_or(NOTHING, ticks);
        self.outcomes[outcome.index()][side as usize][shard.index()]
            .store(limit, Ordering::Relaxed);
    }

    /// Returns the best limit of a shard's orders, or `None` if none rests.
    pub fn best(&self, outcome: OutcomeIndex, side: Side, shard: ShardId) -> Option<Price> {
        let limits = self.limits(outcome, side)?;
        let limit = limits[shard.index()].load(Ordering::Relaxed);
        (limit != NOTHING).then(|| Price::from_micros(i64::from(limit * TICK_MICROS)))
    }

    /// Returns the shards with an order resting on this side that a level on the other side
    /// reaches: a buy at or above `level_price`, or a sell at or below it. The caller must fence
    /// first.
    pub fn reached_by(&self, outcome: OutcomeIndex, resting: Side, level_price: Price) -> ShardSet {
        let level = ticks(level_price);
        match resting {
            Side::Buy => self.shards(outcome, resting, |limit| limit >= level),
            // `NOTHING` wraps to a number that is not below any level.
            Side::Sell => self.shards(outcome, resting, |limit| limit.wrapping_sub(1) < level),
        }
    }

    /// Returns the shards with an order resting on either side of an outcome. The caller must fence
    /// first.
    pub fn any(&self, outcome: OutcomeIndex) -> ShardSet {
        let any = |side| self.shards(outcome, side, |limit| limit != NOTHING);
        any(Side::Buy).union(any(Side::Sell))
    }

    /// Returns the shards with an order resting anywhere in the market. The caller must fence
    /// first.
    pub fn anywhere(&self) -> ShardSet {
        let outcomes = (0_u8..).map(OutcomeIndex).take(self.outcomes.len());
        outcomes.fold(ShardSet::EMPTY, |all, outcome| all.union(self.any(outcome)))
    }

    fn shards(
        &self,
        outcome: OutcomeIndex,
        side: Side,
        is_wanted: impl Fn(u32) -> bool,
    ) -> ShardSet {
        let Some(limits) = self.limits(outcome, side) else { return ShardSet::EMPTY };
        let bits = limits
            .iter()
            .enumerate()
            .map(|(index, limit)| u64::from(is_wanted(limit.load(Ordering::Relaxed))) << index);
        ShardSet(bits.fold(0, |bits, bit| bits | bit))
    }

    fn limits(&self, outcome: OutcomeIndex, side: Side) -> Option<&Limits> {
        self.outcomes.get(outcome.index()).map(|sides| &sides[side as usize])
    }
}

impl ShardSet {
    /// The empty set.
    pub const EMPTY: Self = Self(0);

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Returns the shards in either set.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set contains this shard.
    pub const fn contains(self, shard: ShardId) -> bool {
        self.0 & (1 << shard.index()) != 0
    }

    /// Iterates over the shards in order.
    pub fn iter(self) -> impl Iterator<Item = ShardId> {
        ShardId::all().filter(move |&shard| self.contains(shard))
    }
}

impl FromIterator<ShardId> for ShardSet {
    fn from_iter<I: IntoIterator<Item = ShardId>>(shards: I) -> Self {
        Self(shards.into_iter().fold(0, |bits, shard| bits | 1 << shard.index()))
    }
}

impl std::fmt::Debug for ShardSet {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_set().entries(self.iter().map(ShardId::get)).finish()
    }
}

fn ticks(price: Price) -> u32 {
    debug_assert!(price.is_quotable(), "{price} is no price of an order or a level");
    u32::try_from(price.micros()).expect("a quotable price is below 1") / TICK_MICROS
}

#[cfg(test)]
#[cfg(not(paperbourse_loom))]
mod tests;
