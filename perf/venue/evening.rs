//! The recorded evening, played on any number of invented markets. Each is a copy of a recorded
//! market, begins at its own time in the evening, and starts over at the end.

use std::fmt;
use std::str::FromStr;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{MissedTickBehavior, interval};

use super::stand_in::{TrueTop, condition_id, token_id};
use crate::venue_side::standin::recordings::game_place;
use crate::venue_side::standin::{Ladder, Pace, Played, Recordings, StandIn, now_us};

/// The file of the recording.
const TICKS: &str = "ws/nhl_2026-06-07T0130Z_ticks.jsonl";

/// Length of the part that is played. After it, changes are missing from the recording, so that its
/// books cross.
const PLAYED_MS: u64 = 485_000;

/// Time between batches of due changes.
const TICK: Duration = Duration::from_millis(1);

/// At full speed, the part of the evening that is sent between two checks of the client's progress.
const STEP_MS: u64 = 100;

/// At full speed, the number of unsent frames of a socket above which nothing is sent.
const UNSENT_MAX: usize = 1_000;

/// The speed at which the evening passes.
#[derive(Clone, Copy, PartialEq, Debug, Serialize, Deserialize)]
pub(crate) enum Speed {
    /// This many times the original speed.
    Times(u32),
    /// As fast as the client takes the messages.
    Max,
}

/// The events of one recorded market.
type Rows = Vec<Row>;

struct Row {
    /// Time since the beginning of the evening.
    at_ms: u64,
    outcome: usize,
    event: Event,
}

enum Event {
    Level(Played),
    /// The frame of a trade.
    Trade(Value),
}

/// A market that is played.
struct Market {
    /// The index of its recorded market.
    recorded: usize,
    next: usize,
    /// Number of times that the market has been played to its end.
    turn: u64,
    /// The time in the evening at which the market began.
    shift_ms: u64,
}

/// The evening, as far as it has been played.
pub(crate) struct Evening {
    recorded: Vec<Rows>,
    markets: Vec<Market>,
    played_ms: u64,
    tops: Vec<TrueTop>,
}

impl Evening {
    /// Reads the recording, and gives each market the book of the time at which it begins.
    pub(crate) fn begin(venue: &StandIn, market_count: usize) -> anyhow::Result<Self> {
        let recordings = Recordings::open().context("the evening is not recorded here")?;
        let recorded = read(&recordings)?;
        let round_count = market_count.div_ceil(recorded.len()) as u64;
        let mut evening = Self { recorded, markets: Vec::new(), played_ms: 0, tops: Vec::new() };
        for number in 0..market_count {
            let recorded = number % evening.recorded.len();
            let round = (number / evening.recorded.len()) as u64;
            let shift_ms = PLAYED_MS * round / round_count;
            venue.replace_book(&token_id(number, 0), &Ladder::default());
            evening.markets.push(Market { recorded, next: 0, turn: 0, shift_ms: 0 });
            evening.play_market(venue, number, shift_ms);
            evening.markets[number].shift_ms = shift_ms;
        }
        // Drop the earlier tops, since no client has seen them.
        evening.tops = (0..market_count).map(|number| TrueTop::of(venue, number)).collect();
        Ok(evening)
    }

    /// Continues the evening for this long.
    pub(crate) async fn play(&mut self, venue: &StandIn, speed: Speed, duration: Duration) -> Pace {
        let began = Instant::now();
        let before = (venue.message_count(), self.played_ms);
        let mut step_count = 0;
        let mut late_max = Duration::ZERO;
        let mut ticks = interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let elapsed = began.elapsed().min(duration);
            match speed {
                Speed::Times(times) => {
                    let millis = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
                    let due_ms = before.1 + millis * u64::from(times);
                    let late = Duration::from_millis((due_ms - self.played_ms) / u64::from(times));
                    late_max = late_max.max(late);
                    self.played_ms = due_ms;
                }
                Speed::Max if venue.is_behind(UNSENT_MAX) => {}
                Speed::Max => self.played_ms += STEP_MS,
            }
            for number in 0..self.markets.len() {
                let until_ms = self.markets[number].shift_ms + self.played_ms;
                step_count += self.play_market(venue, number, until_ms);
            }
            if elapsed == duration {
                let message_count = venue.message_count() - before.0;
                return Pace { message_count, step_count, late_max, elapsed: began.elapsed() };
            }
        }
    }

    /// Returns the number of milliseconds of the evening that have been played.
    pub(crate) fn played_ms(&self) -> u64 {
        self.played_ms
    }

    /// Returns the best prices of the first outcome's book of each market since the last call, in
    /// order.
    pub(crate) fn take_tops(&mut self) -> Vec<TrueTop> {
        std::mem::take(&mut self.tops)
    }

    /// Plays a market up to this time since the beginning of the evening. Returns the number of
    /// rows.
    fn play_market(&mut self, venue: &StandIn, number: usize, until_ms: u64) -> u64 {
        let market = &mut self.markets[number];
        let rows = &self.recorded[market.recorded];
        let mut count = 0;
        loop {
            let row = &rows[market.next];
            if market.turn * PLAYED_MS + row.at_ms >= until_ms {
                return count;
            }
            if market.next == 0 {
                venue.replace_book(&token_id(number, 0), &Ladder::default());
                self.tops.push(TrueTop::of(venue, number));
            }
            row.play(venue, number);
            self.tops.push(TrueTop::of(venue, number));
            count += 1;
            market.next += 1;
            if market.next == rows.len() {
                (market.next, market.turn) = (0, market.turn + 1);
            }
        }
    }
}

impl Row {
    /// Plays the row in the invented market with this number.
    fn play(&self, venue: &StandIn, number: usize) {
        let token = token_id(number, self.outcome);
        match &self.event {
            Event::Level(Played::Level { side, price, size, .. }) => {
                venue.change_level(&token, *side, price, size);
            }
            Event::Level(other) => unreachable!("{other:?} is no level"),
            Event::Trade(frame) => {
                let mut frame = frame.clone();
                frame["market"] = condition_id(number).into();
                frame["asset_id"] = token.into();
                frame["timestamp"] = (now_us() / 1000).to_string().into();
                venue.play(&Played::Frame(frame.to_string()));
            }
        }
    }
}

/// Reads the events of each recorded market.
fn read(recordings: &Recordings) -> anyhow::Result<Vec<Rows>> {
    let mut times_ms = Vec::new();
    for value in recordings.values(TICKS) {
        let row: Value = serde_json::from_str(value.get())?;
        times_ms.push(row["ts_ms"].as_u64().context("a row has a time")?);
    }
    let first_ms = *times_ms.iter().min().context("there are rows")?;
    let mut recorded = Vec::new();
    // Rows are in their order of arrival; some times step back a little.
    let mut at_ms = 0;
    for (played, time_ms) in recordings.tape(TICKS).into_iter().zip(times_ms) {
        at_ms = at_ms.max(time_ms - first_ms);
        if at_ms >= PLAYED_MS {
            break;
        }
        let (token, event) = match &played {
            Played::Level { token, .. } => (token.clone(), Event::Level(played)),
            Played::Frame(text) => {
                let frame: Value = serde_json::from_str(text)?;
                let token = frame["asset_id"].as_str().context("a trade has a token")?;
                (token.to_owned(), Event::Trade(frame))
            }
            other => bail!("{other:?} is no row of the evening"),
        };
        let (market, outcome) = game_place(&token).context("every token is of the game")?;
        if recorded.len() <= market {
            recorded.resize_with(market + 1, Vec::new);
        }
        recorded[market].push(Row { at_ms, outcome, event });
    }
    ensure!(recorded.iter().all(|rows: &Rows| !rows.is_empty()), "a market has no rows");
    Ok(recorded)
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let refuse = || "1 to 1000 times as fast, or max".to_owned();
        match text {
            "max" => Ok(Self::Max),
            times => match times.parse() {
                Ok(times @ 1..=1_000) => Ok(Self::Times(times)),
                _ => Err(refuse()),
            },
        }
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Times(times) => write!(formatter, "{times}"),
            Self::Max => formatter.write_str("max"),
        }
    }
}
