//! The market maker of one market: a fair value that wanders, and quotes on both sides of it.
//!
//! It maintains the book of the first outcome. The second outcome's book always mirrors it, since
//! each event changes both tokens together.

use super::random::Random;
use super::script::{Ending, Script};
use crate::{BookReplaced, LevelChanged, NewestTrade, VenueChange};
use paperbourse_core::ids::{OutcomeIndex, Timestamp};
use paperbourse_core::market::book::{Ladder, Level, Side};
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::money::{MICROS_PER_UNIT, Price, Shares};

/// The increment of sizes. Sizes have at most two decimals, as on Polymarket.
const SIZE_STEP_MICROS: i64 = 10_000;

/// Maximum number of levels that a quote resizes at random, besides those that the fair value
/// changes.
const RESIZED_LEVELS_MAX: i64 = 3;

/// One trade in this many takes all shares at the best price.
const SWEEP_ONE_IN: u64 = 4;

/// A market, its book and its maker's fair value.
pub(super) struct Maker {
    script: &'static Script,
    info: MarketInfo,
    /// The book of the first outcome.
    ladder: Ladder,
    /// The fair value of a share of the first outcome, in dollars.
    fair: Price,
    /// The last quoted spread; a trade may have widened the actual one.
    spread_ticks: i64,
    last_trade_prices: [Option<Price>; 2],
}

impl Maker {
    /// Creates the market with its first quotes.
    pub(super) fn new(script: &'static Script, start: Timestamp, random: &mut Random) -> Self {
        let mut maker = Self {
            script,
            info: script.info(start),
            ladder: Ladder::default(),
            fair: script.fair,
            spread_ticks: script.spread_ticks_max,
            last_trade_prices: [None; 2],
        };
        maker.quote(random);
        // Assume an earlier sale, so that each market shows a last trade from the start.
        let bid = maker.resting(Side::Buy).last().expect("the maker quotes both sides").price;
        maker.last_trade_prices = [Some(bid), Some(bid.complement())];
        maker
    }

    /// Returns the current description.
    pub(super) fn info(&self) -> &MarketInfo {
        &self.info
    }

    pub(super) fn script(&self) -> &'static Script {
        self.script
    }

    #[cfg(test)]
    pub(super) fn fair(&self) -> Price {
        self.fair
    }

    /// Returns whether the fair value would stay in its range after this move.
    pub(super) fn can_drift(&self, drift_micros: i64) -> bool {
        let distance_micros = self.fair.micros() + drift_micros - self.script.fair.micros();
        distance_micros.abs() <= self.script.fair_range_micros
    }

    /// Moves the fair value; the book follows with the next quote.
    pub(super) fn drift(&mut self, drift_micros: i64) {
        assert!(self.can_drift(drift_micros), "the fair value must stay in its range");
        self.fair = Price::from_micros(self.fair.micros() + drift_micros);
    }

    /// Returns the full books of both tokens.
    pub(super) fn books(&self) -> [VenueChange; 2] {
        [0, 1].map(|outcome| {
            let ladder = if outcome == 0 { self.ladder.clone() } else { self.ladder.mirrored() };
            let token_id = self.info.outcomes[outcome].token_id.clone();
            VenueChange::Book(BookReplaced {
                newest_trade: self.last_trade_prices[outcome].map(NewestTrade::At),
                tick: Some(self.info.tick),
                ..BookReplaced::new(token_id, ladder)
            })
        })
    }

    /// Quotes around the fair value, with a spread up to a tick wider or narrower and a few new
    /// sizes. `None` if nothing changes.
    pub(super) fn quote(&mut self, random: &mut Random) -> Option<VenueChange> {
        self.spread_ticks =
            (self.spread_ticks + random.between(-1, 1)).clamp(1, self.script.spread_ticks_max);
        let mut changes = Vec::new();
        // Removals come first, so that the book is never crossed between two changes.
        for side in [Side::Buy, Side::Sell] {
            let range = 0..self.script.level_count;
            let outside: Vec<Price> = self
                .resting(side)
                .iter()
                .map(|level| level.price)
                .filter(|&price| !range.contains(&self.distance_ticks(side, price)))
                .collect();
            for price in outside {
                self.set(side, price, Shares::ZERO, &mut changes);
            }
        }
        for side in [Side::Buy, Side::Sell] {
            for distance_ticks in 0..self.script.level_count {
                let Some(price) = self.price_at(side, distance_ticks) else { continue };
                let size = self.resting_at(side, price);
                let (size_min, size_max) = self.size_range(distance_ticks);
                if size < size_min || size > size_max {
                    let size = self.draw_size(distance_ticks, random);
                    self.set(side, price, size, &mut changes);
                }
            }
        }
        for _ in 0..random.between(1, RESIZED_LEVELS_MAX) {
            let side = if random.once_in(2) { Side::Buy } else { Side::Sell };
            let levels = self.resting(side);
            let price = levels[random.index(levels.len())].price;
            if !changes.iter().any(|change| change.side == side && change.price == price) {
                let size = self.draw_size(self.distance_ticks(side, price), random);
                self.set(side, price, size, &mut changes);
            }
        }
        self.level_event(changes)
    }

    /// Simulates a taker that takes some or all of the shares at the best price. Returns the trade
    /// and the level changes that it causes; `None` if there are too few shares to take only some.
    pub(super) fn trade(&mut self, random: &mut Random) -> Option<[VenueChange; 2]> {
        let taker = if random.once_in(2) { Side::Buy } else { Side::Sell };
        let outcome = OutcomeIndex(u8::from(random.once_in(2)));
        let levels = self.ladder.taken_by(taker);
        let level = *levels.last().expect("the maker always quotes both sides");
        // Sweep only the quoted best price, and only if there is another level behind it. Then no
        // number of trades before the next quote can empty a side.
        let is_touch = self.distance_ticks(taker.opposite(), level.price) == 0;
        let sweeps = random.once_in(SWEEP_ONE_IN) && is_touch && levels.len() > 1;
        let step_count = level.size.micros() / SIZE_STEP_MICROS;
        let left_steps = if sweeps {
            0
        } else if step_count > 1 {
            random.between(1, step_count - 1)
        } else {
            return None;
        };
        let left = Shares::from_micros(left_steps * SIZE_STEP_MICROS);
        let mut changes = Vec::new();
        self.set(taker.opposite(), level.price, left, &mut changes);
        let levels = self.level_event(changes)?;
        let (side, price) = match outcome {
            OutcomeIndex(0) => (taker, level.price),
            _ => (taker.opposite(), level.price.complement()),
        };
        self.last_trade_prices[outcome.index()] = Some(price);
        let trade = VenueChange::Traded {
            token_id: self.info.outcomes[outcome.index()].token_id.clone(),
            price,
            size: level.size - left,
            side: Some(side),
        };
        Some([trade, levels])
    }

    /// Closes the market and leaves its book unchanged.
    pub(super) fn close(&mut self) -> VenueChange {
        assert_eq!(self.info.status, MarketStatus::Open, "only an open market closes");
        self.info.status = MarketStatus::Closed;
        VenueChange::Listed(vec![self.info.clone()])
    }

    /// Resolves the market and fixes the payout of each outcome.
    pub(super) fn resolve(&mut self, ending: Ending, random: &mut Random) -> VenueChange {
        assert_eq!(self.info.status, MarketStatus::Closed, "only a closed market resolves");
        let first_pays = match ending {
            Ending::Split => Price::from_micros(MICROS_PER_UNIT / 2),
            Ending::Drawn if random.between(1, MICROS_PER_UNIT) <= self.fair.micros() => Price::ONE,
            Ending::Drawn => Price::ZERO,
        };
        self.info.status = MarketStatus::Resolved;
        self.info.payouts = vec![first_pays, first_pays.complement()];
        VenueChange::Listed(vec![self.info.clone()])
    }

    /// Returns the best bid and ask of the quote, in ticks. The fair value is between them.
    fn touch_ticks(&self) -> (i64, i64) {
        let tick = self.script.tick.micros();
        let below_fair_micros = (self.spread_ticks - 1) * tick / 2;
        let bid = (self.fair.micros() - below_fair_micros).div_euclid(tick);
        (bid, bid + self.spread_ticks)
    }

    /// Returns the price this many ticks behind the touch; `None` if it is outside the price range.
    fn price_at(&self, side: Side, distance_ticks: i64) -> Option<Price> {
        let (bid, ask) = self.touch_ticks();
        let ticks = match side {
            Side::Buy => bid - distance_ticks,
            Side::Sell => ask + distance_ticks,
        };
        let price = Price::from_micros(ticks * self.script.tick.micros());
        price.is_quotable().then_some(price)
    }

    /// Returns how many ticks a price is behind the touch; negative if it is in front of the touch.
    fn distance_ticks(&self, side: Side, price: Price) -> i64 {
        let (bid, ask) = self.touch_ticks();
        let ticks = price.micros() / self.script.tick.micros();
        match side {
            Side::Buy => bid - ticks,
            Side::Sell => ticks - ask,
        }
    }

    /// Returns the range of sizes at this distance from the touch. Sizes grow with the distance.
    fn size_range(&self, distance_ticks: i64) -> (Shares, Shares) {
        let average_micros = self.script.touch_shares * (distance_ticks + 1) * MICROS_PER_UNIT;
        (Shares::from_micros(average_micros / 2), Shares::from_micros(average_micros * 3 / 2))
    }

    fn draw_size(&self, distance_ticks: i64, random: &mut Random) -> Shares {
        let (size_min, size_max) = self.size_range(distance_ticks);
        let steps = |size: Shares| size.micros() / SIZE_STEP_MICROS;
        Shares::from_micros(random.between(steps(size_min), steps(size_max)) * SIZE_STEP_MICROS)
    }

    fn resting(&self, side: Side) -> &[Level] {
        self.ladder.taken_by(side.opposite())
    }

    fn resting_at(&self, side: Side, price: Price) -> Shares {
        let level = self.resting(side).iter().find(|level| level.price == price);
        level.map_or(Shares::ZERO, |level| level.size)
    }

    /// Sets a level of the first outcome, and adds the change to `changes` if there is one.
    fn set(
        &mut self,
        side: Side,
        price: Price,
        size: Shares,
        changes: &mut Vec<FirstOutcomeChange>,
    ) {
        let changed = self.ladder.set(side, price, size).expect("quotes are on the venue's grid");
        if changed {
            changes.push(FirstOutcomeChange { side, price, size });
        }
    }

    /// Returns the changes for both tokens as one event; `None` if there are no changes.
    fn level_event(&self, changes: Vec<FirstOutcomeChange>) -> Option<VenueChange> {
        if changes.is_empty() {
            return None;
        }
        let [first, second] = &self.info.outcomes[..] else {
            unreachable!("every simulated market has two outcomes");
        };
        let levels = changes.into_iter().flat_map(|FirstOutcomeChange { side, price, size }| {
            [(first, side, price), (second, side.opposite(), price.complement())].map(
                |(outcome, side, price)| LevelChanged {
                    token_id: outcome.token_id.clone(),
                    side,
                    price,
                    size,
                    hash: None,
                    top: None,
                },
            )
        });
        Some(VenueChange::Levels(levels.collect()))
    }
}

/// A new size at a level of the first outcome.
struct FirstOutcomeChange {
    side: Side,
    price: Price,
    size: Shares,
}
