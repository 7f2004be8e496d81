//! Books that move at random, at the message rate that a test sets.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::decimal::{micros, text};
use super::ladder::Side;
use super::state::{Random, State};

/// How far from the best price of the other side levels change, in ticks.
const STEPS_MAX: u64 = 20;
/// The time between batches of messages.
const BATCH_INTERVAL: Duration = Duration::from_millis(10);
/// The time between messages that are evenly spaced: the runtime has no finer clock.
const EVEN_INTERVAL: Duration = Duration::from_millis(1);
/// The most steps for one message: not every step sends one.
const STEPS_PER_MESSAGE_MAX: u64 = 16;
/// One step in this many is a trade.
const TRADE_ONE_IN: u64 = 50;

/// The outcome of a walk with evenly spaced messages.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) struct Pace {
    /// Frames that were queued on sockets.
    pub(crate) message_count: u64,
    /// Changes of books and trades.
    pub(crate) step_count: u64,
    /// The largest delay of a message that was due.
    pub(crate) late_max: Duration,
    /// The time from the first to the last.
    pub(crate) elapsed: Duration,
}

/// Which books move, and how.
pub(crate) struct Walk {
    random: Random,
    /// Indices of tokens.
    tokens: Vec<usize>,
    has_trades: bool,
}

impl Walk {
    /// A walk over all tokens that have a book.
    pub(crate) fn new(state: &State, seed: u64, has_trades: bool) -> Self {
        let tokens = state.tokens.iter().enumerate().filter(|(_, token)| token.has_book);
        let tokens = tokens.map(|(place, _)| place).collect();
        Self { random: Random(seed | 1), tokens, has_trades }
    }

    /// Leaves out these tokens.
    pub(crate) fn but(mut self, quiet: &[usize]) -> Self {
        self.tokens.retain(|token| !quiet.contains(token));
        self
    }

    /// Changes one book. Bids stay below asks.
    pub(crate) fn step(&mut self, state: &mut State) {
        let chosen = usize::try_from(self.random.below(self.tokens.len() as u64)).unwrap();
        let token = self.tokens[chosen];
        let side = if self.random.below(2) == 0 { Side::Buy } else { Side::Sell };
        if self.has_trades && self.random.below(TRADE_ONE_IN) == 0 {
            let size = text(self.cents(300));
            state.trade(token, side, &size);
            return;
        }
        let market = state.tokens[token].market;
        let step = micros(&state.markets[market].tick_size);
        let away = step * (1 + i64::try_from(self.random.below(STEPS_MAX)).unwrap());
        let (bid, ask) = state.tokens[token].ladder.top();
        let price = match side {
            Side::Buy => micros(ask) - away,
            Side::Sell => micros(bid) + away,
        };
        if price < step || price > super::decimal::ONE_MICROS - step {
            return;
        }
        let price = text(price);
        // Levels come and go in equal numbers, so that books keep their depth.
        let has_level = state.tokens[token].ladder.size(side, &price).is_some();
        let size = if has_level && self.random.below(2) == 0 { 0 } else { self.cents(100_000) };
        state.change_levels(token, &[(side, &price, &text(size))]);
    }

    /// A random number of hundredths of a share, in millionths; at least one hundredth.
    fn cents(&mut self, bound: u64) -> i64 {
        i64::try_from(1 + self.random.below(bound)).unwrap() * 10_000
    }

    /// Makes steps at this rate and returns their number, never more than are due: a late batch is
    /// not made up for by a burst.
    pub(crate) async fn run(
        &mut self,
        shared: &super::server::Shared,
        steps_per_second: u32,
        duration: Duration,
    ) -> u64 {
        let mut ticks = interval(BATCH_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = Instant::now();
        let mut step_count = 0;
        loop {
            ticks.tick().await;
            let elapsed = begun.elapsed().min(duration);
            let due =
                u64::from(steps_per_second) * u64::try_from(elapsed.as_millis()).unwrap() / 1000;
            let mut state = shared.state.lock();
            for _ in step_count..due {
                self.step(&mut state);
            }
            step_count = due;
            if elapsed == duration {
                return step_count;
            }
        }
    }

    /// Sends messages at this rate, whether or not clients keep up: late ones are made up for at
    /// once.
    pub(crate) async fn run_evenly(
        &mut self,
        shared: &super::server::Shared,
        messages_per_second: u32,
        duration: Duration,
    ) -> Pace {
        let mut ticks = interval(EVEN_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let begun = Instant::now();
        let mut pace =
            Pace { message_count: 0, step_count: 0, late_max: Duration::ZERO, elapsed: duration };
        let before = shared.state.lock().message_count;
        loop {
            ticks.tick().await;
            let elapsed = begun.elapsed().min(duration);
            let millis = u64::try_from(elapsed.as_millis()).unwrap();
            let due = u64::from(messages_per_second) * millis / 1000;
            let mut state = shared.state.lock();
            let missing = due.saturating_sub(state.message_count - before);
            let first_due_at =
                Duration::from_millis((due - missing) * 1000) / messages_per_second.max(1);
            if missing > 0 {
                pace.late_max = pace.late_max.max(elapsed.saturating_sub(first_due_at));
            }
            for _ in 0..missing * STEPS_PER_MESSAGE_MAX {
                if state.message_count - before >= due {
                    break;
                }
                self.step(&mut state);
                pace.step_count += 1;
            }
            pace.message_count = state.message_count - before;
            if elapsed == duration {
                pace.elapsed = begun.elapsed();
                return pace;
            }
        }
    }
}
