//! One market's maker: a fair value that wanders, and quotes on both sides of it.
//!
//! It keeps the book of the first outcome. The second's is the mirror of it at every moment, since
//! each change is told for both tokens in one event.

use super::random::Random;
use super::script::{Ending, Script};
use crate::ids::{OutcomeIndex, Timestamp};
use crate::market::book::{Ladder, Level, Side};
use crate::market::catalogue::{MarketInfo, MarketStatus};
use crate::money::{MICROS_PER_UNIT, Price, Shares};
use crate::venue::{BookReplaced, LevelChanged, VenueChange};

/// The venue's books show sizes of at most two decimals.
const SIZE_STEP_MICROS: i64 = 10_000;

/// At most this many sizes are drawn anew with each quote, beside those that the fair value moves.
const RESIZED_LEVELS_MAX: i64 = 3;

/// One trade in so many takes all that rests at the best price.
const SWEEP_ONE_IN: u64 = 4;

/// A market, its book and what its maker believes.
pub(super) struct Maker {
    script: &'static Script,
    info: MarketInfo,
    /// Of the first outcome.
    ladder: Ladder,
    /// What a share of the first outcome is worth.
    fair: Price,
    /// Between the best bid and the best ask as last quoted; a trade may have widened it.
    spread_ticks: i64,
    last_trade_prices: [Option<Price>; 2],
}

impl Maker {
    /// The market with its first quotes.
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
        maker
    }

    /// The description as it stands.
    pub(super) fn info(&self) -> &MarketInfo {
        &self.info
    }

    /// What was decided about the market.
    pub(super) fn script(&self) -> &'static Script {
        self.script
    }

    /// What a share of the first outcome is worth.
    #[cfg(test)]
    pub(super) fn fair(&self) -> Price {
        self.fair
    }

    /// Whether the fair value may go that much further.
    pub(super) fn can_drift(&self, drift_micros: i64) -> bool {
        let distance_micros = self.fair.micros() + drift_micros - self.script.fair.micros();
        distance_micros.abs() <= self.script.fair_range_micros
    }

    /// Moves the fair value; the book follows with the next quote.
    pub(super) fn drift(&mut self, drift_micros: i64) {
        assert!(self.can_drift(drift_micros), "a fair value stays in its range");
        self.fair = Price::from_micros(self.fair.micros() + drift_micros);
    }

    /// The full books of both tokens.
    pub(super) fn books(&self) -> [VenueChange; 2] {
        [0, 1].map(|outcome| {
            VenueChange::Book(BookReplaced {
                token_id: self.info.outcomes[outcome].token_id.clone(),
                ladder: if outcome == 0 { self.ladder.clone() } else { self.ladder.mirrored() },
                hash: None,
                last_trade_price: self.last_trade_prices[outcome],
                tick: Some(self.info.tick),
            })
        })
    }

    /// Quotes around the fair value, with a spread that may have changed by a tick and a few sizes
    /// drawn anew. `None` when all of that came out as it was.
    pub(super) fn quote(&mut self, random: &mut Random) -> Option<VenueChange> {
        self.spread_ticks =
            (self.spread_ticks + random.between(-1, 1)).clamp(1, self.script.spread_ticks_max);
        let mut changes = Vec::new();
        // What goes leaves first, so that the book is not crossed between two changes either.
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
        self.told(changes)
    }

    /// A taker takes some or all of what rests at the best price: the print and what it leaves.
    /// Nothing when there is too little left to take a part of.
    pub(super) fn trade(&mut self, random: &mut Random) -> Option<[VenueChange; 2]> {
        let taker = if random.once_in(2) { Side::Buy } else { Side::Sell };
        let outcome = OutcomeIndex(u8::from(random.once_in(2)));
        let levels = self.ladder.taken_by(taker);
        let level = *levels.last().expect("the maker always quotes both sides");
        // Only what was quoted as the best price is taken whole, and only with another level behind
        // it: however many trades come before the next quote, the rest of the depth stands.
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
        let levels = self.told(changes)?;
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

    /// Ends trading. The book stays as it was.
    pub(super) fn close(&mut self) -> VenueChange {
        assert_eq!(self.info.status, MarketStatus::Open, "a market closes once");
        self.info.status = MarketStatus::Closed;
        VenueChange::Listed(vec![self.info.clone()])
    }

    /// Fixes what each outcome pays.
    pub(super) fn resolve(&mut self, ending: Ending, random: &mut Random) -> VenueChange {
        assert_eq!(self.info.status, MarketStatus::Closed, "a market closes before its result");
        let first_pays = match ending {
            Ending::Split => Price::from_micros(MICROS_PER_UNIT / 2),
            Ending::Drawn if random.between(1, MICROS_PER_UNIT) <= self.fair.micros() => Price::ONE,
            Ending::Drawn => Price::ZERO,
        };
        self.info.status = MarketStatus::Resolved;
        self.info.payouts = vec![first_pays, first_pays.complement()];
        VenueChange::Listed(vec![self.info.clone()])
    }

    /// The quoted best prices in ticks: the fair value lies between them.
    fn touch_ticks(&self) -> (i64, i64) {
        let tick = self.script.tick.micros();
        let below_fair_micros = (self.spread_ticks - 1) * tick / 2;
        let bid = (self.fair.micros() - below_fair_micros).div_euclid(tick);
        (bid, bid + self.spread_ticks)
    }

    /// The price so many ticks behind the touch, if it is not past the ends of the price range.
    fn price_at(&self, side: Side, distance_ticks: i64) -> Option<Price> {
        let (bid, ask) = self.touch_ticks();
        let ticks = match side {
            Side::Buy => bid - distance_ticks,
            Side::Sell => ask + distance_ticks,
        };
        let price = Price::from_micros(ticks * self.script.tick.micros());
        price.is_quotable().then_some(price)
    }

    /// How many ticks a resting price lies behind the touch; negative in front of it.
    fn distance_ticks(&self, side: Side, price: Price) -> i64 {
        let (bid, ask) = self.touch_ticks();
        let ticks = price.micros() / self.script.tick.micros();
        match side {
            Side::Buy => bid - ticks,
            Side::Sell => ticks - ask,
        }
    }

    /// The sizes that may rest so far from the touch: larger ones further away.
    fn size_range(&self, distance_ticks: i64) -> (Shares, Shares) {
        let usual_micros = self.script.touch_shares * (distance_ticks + 1) * MICROS_PER_UNIT;
        (Shares::from_micros(usual_micros / 2), Shares::from_micros(usual_micros * 3 / 2))
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

    /// Changes a level of the first outcome and tells it, if it was not so already.
    fn set(&mut self, side: Side, price: Price, size: Shares, changes: &mut Vec<FirstChange>) {
        let changed = self.ladder.set(side, price, size).expect("quotes are on the venue's grid");
        if changed {
            changes.push(FirstChange { side, price, size });
        }
    }

    /// The event that tells the changes for both tokens, if there are any.
    fn told(&self, changes: Vec<FirstChange>) -> Option<VenueChange> {
        if changes.is_empty() {
            return None;
        }
        let [first, second] = &self.info.outcomes[..] else {
            unreachable!("every simulated market has two outcomes");
        };
        let levels = changes.into_iter().flat_map(|FirstChange { side, price, size }| {
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
struct FirstChange {
    side: Side,
    price: Price,
    size: Shares,
}
