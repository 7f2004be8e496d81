//! The simulated venue: an invented market maker quotes invented markets. A seed gives the same
//! tape in every version of this code.
//!
//! A tape is a pure function of its seed and its start: no clock, no floats, and no random numbers
//! from a library. It has no end, and its player sets the pace.
//!
//! Each market has two outcomes, whose books mirror each other exactly after every batch. Best
//! prices follow a fair value that wanders within a fixed range. Spreads widen and narrow, trades
//! remove the shares that they take, and now and then a full book repeats the known levels. In an
//! event with exactly one winning market, the fair values always sum to 1.
//!
//! Ticks are 0.01 or 0.001. Fees are Polymarket's fees for the category: 0.07 for coins, 0.04 for
//! politics, 0.05 for all others. Most markets never close; one is paused. Within eight minutes of
//! venue time, one market closes without a result and three resolve, one of them half to each
//! outcome. The market [`DEEP_MARKET_SLUG`] is for the README's walk-through and for load tests: it
//! has no fees, stays open, and always shows at least [`DEEP_MARKET_SHARES_MIN`] shares on each
//! side within ten ticks of the best price.
//!
//! The markets and their ids do not depend on the seed.

mod maker;
mod names;
mod player;
mod random;
mod script;

use maker::Maker;
pub use player::Player;
use random::Random;
use script::{Ending, Life, SCRIPTS};

use crate::{VenueChange, VenueEvent};
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::catalogue::MarketStatus;

/// The default seed.
pub const DEFAULT_SEED: u64 = 1;

/// The slug of the market that always has depth.
pub const DEEP_MARKET_SLUG: &str = "port-amber-tide";

/// The condition id of the market that always has depth.
pub const DEEP_MARKET_CONDITION_ID: &str =
    "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

/// Minimum number of shares on each side of the deep market within ten ticks of the best price, at
/// all times.
pub const DEEP_MARKET_SHARES_MIN: i64 = 100_000;

/// Range of the venue time between two batches. Closes and resolutions have batches of their own.
const STEP_MILLIS_MIN: i64 = 100;
const STEP_MILLIS_MAX: i64 = 250;

/// Maximum number of markets that act in a batch, each with at most one rival whose fair value
/// moves the opposite way.
const ACTIVE_MARKETS_MAX: i64 = 4;

/// One action in this many repeats a full book.
const FULL_BOOK_ONE_IN: u64 = 64;

/// One in this many of the other actions is a trade.
const TRADE_ONE_IN: u64 = 6;

/// A venue whose markets, books and trades are derived from a seed.
pub struct SimulatedVenue {
    start: Timestamp,
    elapsed_millis: i64,
    /// The time at which the next batch of quotes and trades is due, in milliseconds after the
    /// start.
    step_due_millis: i64,
    makers: Vec<Maker>,
    /// The remaining closes and resolutions, the next one last.
    milestones: Vec<Milestone>,
    random: Random,
}

/// A change of a market's status at a fixed time.
#[derive(Clone, Copy)]
struct Milestone {
    due_millis: i64,
    maker_index: usize,
    /// The payouts of the market; `None` if it only closes.
    ending: Option<Ending>,
}

impl SimulatedVenue {
    /// Creates the venue for a seed, at the start of its tape.
    pub fn new(seed: u64, start: Timestamp) -> Self {
        let mut random = Random::new(seed);
        let makers: Vec<Maker> =
            SCRIPTS.iter().map(|script| Maker::new(script, start, &mut random)).collect();
        Self {
            start,
            elapsed_millis: 0,
            step_due_millis: random.between(STEP_MILLIS_MIN, STEP_MILLIS_MAX),
            milestones: milestones(&makers),
            makers,
            random,
        }
    }

    /// Returns all markets and the full book of each token in their current state, to which later
    /// batches apply. Does not advance the tape.
    pub fn opening(&self) -> Vec<VenueEvent> {
        let infos = self.makers.iter().map(|maker| maker.info().clone()).collect();
        let mut changes = vec![VenueChange::Listed(infos)];
        changes.extend(self.makers.iter().flat_map(Maker::books));
        self.stamped(changes)
    }

    /// Returns the next batch and its time, which never decreases. A batch has at least one event,
    /// and all of its events have the batch's time.
    pub fn next_batch(&mut self) -> (Timestamp, Vec<VenueEvent>) {
        loop {
            let changes = match self
                .milestones
                .pop_if(|milestone| milestone.due_millis <= self.step_due_millis)
            {
                Some(milestone) => self.reach(milestone),
                None => self.step(),
            };
            // Skip steps in which nothing changes: a batch has at least one event.
            if !changes.is_empty() {
                return (self.now(), self.stamped(changes));
            }
        }
    }

    fn now(&self) -> Timestamp {
        after_millis(self.start, self.elapsed_millis)
    }

    fn stamped(&self, changes: Vec<VenueChange>) -> Vec<VenueEvent> {
        let at = self.now();
        changes.into_iter().map(|change| VenueEvent { at, change }).collect()
    }

    fn reach(&mut self, milestone: Milestone) -> Vec<VenueChange> {
        self.elapsed_millis = milestone.due_millis;
        let maker = &mut self.makers[milestone.maker_index];
        vec![match milestone.ending {
            Some(ending) => maker.resolve(ending, &mut self.random),
            None => maker.close(),
        }]
    }

    /// Advances to the next batch, in which a few open markets act.
    fn step(&mut self) -> Vec<VenueChange> {
        self.elapsed_millis = self.step_due_millis;
        self.step_due_millis += self.random.between(STEP_MILLIS_MIN, STEP_MILLIS_MAX);
        let open: Vec<usize> = self.open_makers(|_| true);
        let mut changes = Vec::new();
        for _ in 0..self.random.between(1, ACTIVE_MARKETS_MAX) {
            let index = open[self.random.index(open.len())];
            if self.random.once_in(FULL_BOOK_ONE_IN) {
                changes.extend(self.makers[index].books());
            } else if self.random.once_in(TRADE_ONE_IN) {
                changes.extend(self.makers[index].trade(&mut self.random).into_iter().flatten());
            } else {
                self.drift_and_quote(index, &mut changes);
            }
        }
        changes
    }

    /// Moves the fair value of a market and quotes around it. In an event with exactly one winning
    /// market, a rival moves the opposite way, so that the sum stays at 1.
    fn drift_and_quote(&mut self, index: usize, changes: &mut Vec<VenueChange>) {
        let script = self.makers[index].script();
        let drift_micros = self.random.between(-script.drift_micros_max, script.drift_micros_max);
        let rivals = match script.event {
            None => Vec::new(),
            Some(event) => self.open_makers(|maker| {
                maker.script().event == Some(event) && maker.script().slug != script.slug
            }),
        };
        let rival = (!rivals.is_empty()).then(|| rivals[self.random.index(rivals.len())]);
        let can_drift = self.makers[index].can_drift(drift_micros)
            && rival.is_none_or(|rival| self.makers[rival].can_drift(-drift_micros));
        if can_drift {
            self.makers[index].drift(drift_micros);
            if let Some(rival) = rival {
                self.makers[rival].drift(-drift_micros);
            }
        }
        for index in [Some(index), rival].into_iter().flatten() {
            changes.extend(self.makers[index].quote(&mut self.random));
        }
    }

    fn open_makers(&self, matches: impl Fn(&Maker) -> bool) -> Vec<usize> {
        let is_open = |maker: &Maker| maker.info().status == MarketStatus::Open;
        let makers = self.makers.iter().enumerate();
        makers.filter(|(_, m)| is_open(m) && matches(m)).map(|(index, _)| index).collect()
    }
}

/// Returns all closes and resolutions, the first one last.
fn milestones(makers: &[Maker]) -> Vec<Milestone> {
    let mut milestones = Vec::new();
    for (maker_index, maker) in makers.iter().enumerate() {
        let mut add = |after_s: i64, ending| {
            milestones.push(Milestone { due_millis: after_s * 1_000, maker_index, ending });
        };
        match maker.script().life {
            Life::Open | Life::Paused => {}
            Life::Closes { closes_after_s } => add(closes_after_s, None),
            Life::Resolves { closes_after_s, resolves_after_s, ending } => {
                add(closes_after_s, None);
                add(resolves_after_s, Some(ending));
            }
        }
    }
    milestones.sort_by_key(|milestone| std::cmp::Reverse(milestone.due_millis));
    milestones
}

fn after_millis(start: Timestamp, millis: i64) -> Timestamp {
    Timestamp::from_nanos(start.nanos() + millis * 1_000_000)
}

#[cfg(test)]
mod tests;
