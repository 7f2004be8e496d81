//! One shard's state and the way of one command through it.

use std::sync::Arc;

use super::facts::{Facts, Subscribers};
use super::{Observer, Refusal, Room};
use crate::clock::Clock;
use crate::engine::event::{Event, Events};
use crate::engine::rejection::Rejection;
use crate::engine::view::Observed;
use crate::engine::{Command, Rules, State, Verdict};
use crate::faults::{self, Fault};
use crate::ids::{Place, Timestamp};
use crate::journal::Journal;
use crate::journal::record::{self, RecordHeader};
use crate::market::{MarketSnapshot, Markets};

/// A shard's record in so many carries the state's hash, and so does its first in each segment:
/// what snapshots are checked by.
const STATE_CHECK_INTERVAL: u64 = 1024;

/// How far a shard's time waits for a clock that was set back a little. A clock that was further
/// ahead was wrong: what it stamped stays as it is, and nothing later is stamped by it.
const TIME_AHEAD_NS_MAX: i64 = 60_000_000_000;

/// Every part of a record has a bound, and together they fit: see the test of the longest record.
const RECORD_TOO_LONG: Rejection = Rejection::Broken { rule: "a record is longer than one may be" };

/// What all shards share.
pub(super) struct Surroundings {
    pub(super) journal: Arc<Journal>,
    pub(super) markets: Arc<Markets>,
    pub(super) rules: Rules,
    pub(super) clock: Clock,
    pub(super) room: Arc<Room>,
    pub(super) observer: Observer,
}

/// What the runner of a shard owns while it runs.
pub(super) struct Core {
    pub(super) state: State,
    /// The time of the newest decision.
    decided_at: Timestamp,
    /// The segment in which the journal was when the shard last wrote its hash.
    checked_segment: Option<u64>,
    /// The record that is being made; reused.
    record: Vec<u8>,
    pub(super) subscribers: Subscribers,
}

impl Core {
    pub(super) fn new(state: State, decided_at: Timestamp) -> Self {
        Self {
            state,
            decided_at,
            checked_segment: None,
            record: Vec::new(),
            subscribers: Subscribers::default(),
        }
    }

    /// Decides a command and makes what follows from it happen. Clock and book are read here, at
    /// the moment of decision, however long the command was queued.
    pub(super) fn execute<C: Command>(
        &mut self,
        command: &C,
        around: &Surroundings,
    ) -> Observed<Result<C::Answer, Refusal>> {
        let now = time_of_decision(around.clock.now(), self.decided_at);
        let market = command.market_id().and_then(|id| snapshot_of(id, &around.markets));
        let quote = market.as_ref().map(MarketSnapshot::quote);
        let state = &self.state;
        match state.decide(command, quote.as_ref(), now, &around.rules) {
            Err(rejection) => self.refused(command, rejection.into()),
            Ok(Verdict::Already(subject)) => {
                let answer = C::answer(state, subject, false);
                Observed { value: Ok(answer), place: command.rests_on(state) }
            }
            Ok(Verdict::Happens(events, subject)) => match self.happen(events, now, around) {
                Err(refusal) => self.refused(command, refusal),
                Ok(place) => Observed { value: Ok(C::answer(&self.state, subject, true)), place },
            },
        }
    }

    /// Reserves the record's place, which may be refused; behind that nothing may fail.
    fn happen(
        &mut self,
        mut events: Events,
        now: Timestamp,
        around: &Surroundings,
    ) -> Result<Place, Refusal> {
        if around.room.is_full() && events.iter().any(Event::takes_memory) {
            return Err(Refusal::ServerFull);
        }
        let sequence = self.state.sequence() + 1;
        let segment = around.journal.segment();
        if sequence.is_multiple_of(STATE_CHECK_INTERVAL) || segment != self.checked_segment {
            events.insert(0, Event::StateChecked { hash: self.state.hash() });
        }
        let header = RecordHeader {
            shard: self.state.shard(),
            epoch: around.journal.epoch(),
            sequence,
            at: now,
        };
        self.record.clear();
        record::encode(header, &events, &mut self.record);
        if self.record.len() > around.journal.record_bytes_max() {
            return Err(RECORD_TOO_LONG.into());
        }
        let reservation = around.journal.reserve(self.record.len())?;
        let place = reservation.place();
        self.decided_at = now;
        self.checked_segment = segment;
        for event in &events {
            (around.observer)(event, &self.state);
        }
        self.state.apply(&events, place);
        if !self.subscribers.is_empty() {
            let (shard, events) = (self.state.shard(), Arc::new(events));
            self.subscribers.publish(&Facts { shard, sequence, place, events });
        }
        reservation.fill_from(&self.record);
        Ok(place)
    }

    fn refused<C: Command>(
        &self,
        command: &C,
        refusal: Refusal,
    ) -> Observed<Result<C::Answer, Refusal>> {
        let is_early = faults::is_on(Fault::RejectionAnsweredEarly);
        let place = match &refusal {
            _ if is_early => Place::START,
            Refusal::Rejected(rejection) => command.refusal_rests_on(&self.state, rejection),
            _ => command.rests_on(&self.state),
        };
        Observed { value: Err(refusal), place }
    }
}

/// What the clock shows, and not before the newest decision, unless the clock jumped.
fn time_of_decision(now: Timestamp, newest: Timestamp) -> Timestamp {
    let ahead_ns = newest.nanos().saturating_sub(now.nanos());
    if (0..=TIME_AHEAD_NS_MAX).contains(&ahead_ns) { newest } else { now }
}

fn snapshot_of(condition_id: &str, markets: &Markets) -> Option<MarketSnapshot> {
    markets.listing().by_condition(condition_id).map(|market| market.snapshot())
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}
