//! One shard's state and the way of one command through it.

use std::sync::Arc;

use super::{Observer, Outcome, Refusal, Room};
use crate::clock::Clock;
use crate::engine::command::Command;
use crate::engine::event::{Event, Events};
use crate::engine::rejection::Rejection;
use crate::engine::view::Observed;
use crate::engine::{Rules, State, Verdict};
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
}

impl Core {
    pub(super) fn new(state: State, decided_at: Timestamp) -> Self {
        Self { state, decided_at, checked_segment: None, record: Vec::new() }
    }

    /// Decides a command and makes what follows from it happen. Clock and book are read here, at
    /// the moment of decision, however long the command was queued.
    pub(super) fn execute(
        &mut self,
        command: &Command,
        around: &Surroundings,
    ) -> Observed<Result<Outcome, Refusal>> {
        let now = time_of_decision(around.clock.now(), self.decided_at);
        let market = market_of(command, &around.markets);
        let quote = market.as_ref().map(MarketSnapshot::quote);
        let verdict = self.state.decide(command, quote.as_ref(), now, &around.rules);
        match verdict {
            Err(rejection) => self.refused(command, rejection.into()),
            Ok(Verdict::Already) => {
                Observed { value: Ok(self.already(command)), place: self.state.rests_on(command) }
            }
            Ok(Verdict::Replay(order)) => {
                let order = self.state.order(order).expect("a replay names an order of the shard");
                Observed {
                    value: Ok(Outcome::Order {
                        receipt: self.state.receipt(order),
                        is_replay: true,
                    }),
                    place: self.state.rests_on(command),
                }
            }
            Ok(Verdict::Happens(events)) => self.happen(command, events, now, around),
        }
    }

    /// Reserves the record's place, which may be refused; behind that nothing may fail.
    fn happen(
        &mut self,
        command: &Command,
        mut events: Events,
        now: Timestamp,
        around: &Surroundings,
    ) -> Observed<Result<Outcome, Refusal>> {
        if around.room.is_full() && events.iter().any(Event::takes_memory) {
            return self.refused(command, Refusal::ServerFull);
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
            return self.refused(command, RECORD_TOO_LONG.into());
        }
        let reservation = match around.journal.reserve(self.record.len()) {
            Ok(reservation) => reservation,
            Err(refused) => return self.refused(command, refused.into()),
        };
        let place = reservation.place();
        self.decided_at = now;
        self.checked_segment = segment;
        for event in &events {
            (around.observer)(event, &self.state);
        }
        self.state.apply(&events, place);
        reservation.fill_from(&self.record);
        Observed { value: Ok(self.outcome(&events)), place }
    }

    fn refused(&self, command: &Command, refusal: Refusal) -> Observed<Result<Outcome, Refusal>> {
        let is_early = faults::is_on(Fault::RejectionAnsweredEarly);
        let place = match &refusal {
            _ if is_early => Place::START,
            Refusal::Rejected(rejection) => self.state.refusal_rests_on(command, rejection),
            _ => self.state.rests_on(command),
        };
        Observed { value: Err(refusal), place }
    }

    /// What the answer to a command that has happened is written from.
    fn outcome(&self, events: &[Event]) -> Outcome {
        let state = &self.state;
        match events.last().expect("what happens has an event") {
            Event::AccountOpened { account, .. } => Outcome::Account(*account),
            Event::KeyCreated { key, .. } => {
                Outcome::Key(Box::new(state.key(*key).expect("just created")))
            }
            Event::KeyRenamed { key, .. } => {
                Outcome::Key(Box::new(state.key(*key).expect("just renamed")))
            }
            Event::OrderFilled(fill) => {
                let order = state.order(fill.order).expect("just filled");
                Outcome::Order { receipt: state.receipt(order), is_replay: false }
            }
            Event::CommentAdded { comment, .. } => {
                Outcome::Comment(Box::new(state.comment(*comment).expect("just added").clone()))
            }
            Event::KeyRevoked { .. }
            | Event::CommentDeleted { .. }
            | Event::SettlementDecided { .. }
            | Event::MarketSettled { .. } => Outcome::Done,
            Event::PositionsSettled(_) => Outcome::Unfinished,
            Event::KeyExpirySet { .. }
            | Event::KeyForgotten { .. }
            | Event::MarketIntroduced { .. }
            | Event::OrderForgotten { .. }
            | Event::StateChecked { .. } => unreachable!("no command ends with these"),
        }
    }

    fn already(&self, command: &Command) -> Outcome {
        match command {
            Command::OpenAccount(identity) => {
                let account = self.state.account_of(&identity.digest);
                Outcome::Account(account.expect("it is already open").id())
            }
            Command::RenameKey { key, .. } => {
                Outcome::Key(Box::new(self.state.key(*key).expect("it is already called so")))
            }
            _ => Outcome::Done,
        }
    }
}

/// What the clock shows, and not before the newest decision, unless the clock jumped.
fn time_of_decision(now: Timestamp, newest: Timestamp) -> Timestamp {
    let ahead_ns = newest.nanos().saturating_sub(now.nanos());
    if (0..=TIME_AHEAD_NS_MAX).contains(&ahead_ns) { newest } else { now }
}

fn market_of(command: &Command, markets: &Markets) -> Option<MarketSnapshot> {
    match command {
        Command::Trade(trade) => {
            let listing = markets.listing();
            listing.by_condition(&trade.order().market_id).map(|market| market.snapshot())
        }
        _ => None,
    }
}

impl From<Rejection> for Refusal {
    fn from(rejection: Rejection) -> Self {
        Self::Rejected(rejection)
    }
}
