//! The markets of the resting orders. Their books move while a process runs and between processes.

use std::sync::Arc;

use crate::disk::simulated::random::Random;
use crate::market::book::{Ladder, Level};
use crate::market::catalogue::{Fees, MarketInfo, MarketStatus, Outcome};
use crate::money::{FeeRate, Price, Shares};
use crate::venue::{BookReplaced, VenueChange};

/// The ids of the markets. The first stays open; the others are resolved in order.
pub(in crate::simulation) const RESTING_MARKETS: [&str; 4] = ["0xd0", "0xd1", "0xd2", "0xd3"];

/// Returns the time for which a market delays marketable orders, in milliseconds.
const fn taker_delay_ms(market: usize) -> u32 {
    if market.is_multiple_of(2) { 250 } else { 0 }
}

/// The current state of the markets at the venue.
pub(in crate::simulation) struct Venue {
    /// The bid and the ask of each market, in cents.
    touches: [(i64, i64); RESTING_MARKETS.len()],
    resolved_count: usize,
}

impl Venue {
    pub(in crate::simulation) const fn new() -> Self {
        Self { touches: [(48, 52); RESTING_MARKETS.len()], resolved_count: 0 }
    }

    /// Returns the changes that a process receives from the venue when it starts.
    pub(in crate::simulation) fn opening(&self, random: &mut Random) -> Vec<VenueChange> {
        let infos = (0..RESTING_MARKETS.len()).map(|market| self.info(market)).collect();
        let books = (0..RESTING_MARKETS.len()).map(|market| self.book(market, random));
        std::iter::once(VenueChange::Listed(infos)).chain(books).collect()
    }

    /// Moves, resizes or invalidates a random market's book, and returns the change.
    pub(in crate::simulation) fn step(&mut self, random: &mut Random) -> VenueChange {
        let market = random.below(RESTING_MARKETS.len());
        if random.one_in(12) {
            return VenueChange::Stale { token_id: token(market, "Yes") };
        }
        let (bid, ask) = &mut self.touches[market];
        if !random.one_in(4) {
            let middle = bid.midpoint(*ask) + cents(random, 7) - 3;
            *bid = middle.clamp(30, 70) - 1 - cents(random, 3);
            *ask = middle.clamp(30, 70) + 1 + cents(random, 3);
        }
        self.book(market, random)
    }

    /// Resolves the next market; `None` if all but the first are resolved.
    pub(in crate::simulation) fn resolve(&mut self) -> Option<VenueChange> {
        if self.resolved_count + 1 == RESTING_MARKETS.len() {
            return None;
        }
        self.resolved_count += 1;
        Some(VenueChange::Listed(vec![self.info(self.resolved_count)]))
    }

    pub(in crate::simulation) fn is_resolved(&self, market: usize) -> bool {
        (1..=self.resolved_count).contains(&market)
    }

    /// Returns the midpoint of a market's book, in cents.
    pub(in crate::simulation) fn middle(&self, market: usize) -> i64 {
        let (bid, ask) = self.touches[market];
        bid.midpoint(ask)
    }

    fn info(&self, market: usize) -> MarketInfo {
        let outcomes = ["Yes", "No"]
            .map(|label| Outcome { label: label.into(), token_id: token(market, label) });
        let fees = Fees::from_schedule(FeeRate::from_micros(70_000), 1.into());
        let taker_delay_ms = taker_delay_ms(market);
        let bare = MarketInfo::bare(RESTING_MARKETS[market], outcomes);
        let info = MarketInfo { fees, taker_delay_ms, ..bare };
        if !self.is_resolved(market) {
            return info;
        }
        let yes = Price::from_micros(resting_payout_micros(market));
        let (status, payouts) = (MarketStatus::Resolved, vec![yes, yes.complement()]);
        MarketInfo { status, payouts, ..info }
    }

    fn book(&self, market: usize, random: &mut Random) -> VenueChange {
        let (bid, ask) = self.touches[market];
        let mut levels = |best: i64, step: i64| -> Vec<Level> {
            let level = |index| Level {
                price: Price::from_micros((best + step * index) * 10_000),
                size: Shares::from_micros(1 + cents(random, 40_000_000)),
            };
            (0..3).map(level).collect()
        };
        let ladder = Ladder::from_levels(levels(bid, -1), levels(ask, 1)).expect("a book");
        let token_id = token(market, "Yes");
        VenueChange::Book(BookReplaced::new(token_id, ladder))
    }
}

/// Returns the payout per share of the first outcome once its market is resolved, in micro-dollars.
pub(in crate::simulation) const fn resting_payout_micros(market: usize) -> i64 {
    match market % 3 {
        0 => 1_000_000,
        1 => 0,
        _ => 500_000,
    }
}

fn cents(random: &mut Random, end: usize) -> i64 {
    i64::try_from(random.below(end)).expect("a small number")
}

fn token(market: usize, label: &str) -> Arc<str> {
    format!("{} {label}", RESTING_MARKETS[market]).into()
}
