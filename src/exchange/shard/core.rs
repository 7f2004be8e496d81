//! One shard's state, and the execution of a command on it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::facts::{self, Facts, Subscribers};
use super::fills::FillFollowers;
use super::limits::{OpenOrderBoard, Published};
use super::{DelayedOrders, Observer, Refusal, Room, Unmatched};
use paperbourse_core::clock::Clock;
use paperbourse_core::engine::event::{Event, Events};
use paperbourse_core::engine::rejection::Rejection;
use paperbourse_core::engine::state::view::Observed;
use paperbourse_core::engine::{Command, Rules, State, Verdict};
use paperbourse_core::faults::{self, Fault};
use paperbourse_core::ids::{Lsn, Timestamp};
use paperbourse_core::market::{MarketSnapshot, Markets};
use paperbourse_store::journal::Journal;
use paperbourse_store::journal::record::{self, RecordHeader};

/// One record in this many carries the state's hash, as does the shard's first record in each
/// segment. Snapshots are checked against these hashes.
const STATE_CHECK_INTERVAL: u64 = 1024;

/// While the clock is behind a shard's newest decision by at most this much, the shard's time does
/// not advance. If the clock is further behind, the earlier time is taken to be wrong: records
/// stamped with it stay, and new decisions follow the clock.
const TIME_AHEAD_NS_MAX: i64 = 60_000_000_000;

/// The rejection of a record that is too long. This cannot happen: every part of a record has a
/// bound, and the journal's tests show that the longest record fits.
const RECORD_TOO_LONG: Rejection = Rejection::Broken { rule: "a record is longer than one may be" };

/// Everything that commands need besides the shard's own state. Shared by all shards.
pub(super) struct Environment {
    pub(super) journal: Arc<Journal>,
    pub(super) markets: Arc<Markets>,
    pub(super) rules: Rules,
    pub(super) clock: Clock,
    pub(super) room: Arc<Room>,
    pub(super) observer: Observer,
    pub(super) account_count: AtomicUsize,
    pub(super) open_orders: OpenOrderBoard,
    pub(super) unmatched: Unmatched,
    pub(super) delayed_orders: DelayedOrders,
    pub(super) fill_followers: FillFollowers,
    /// The subscribers to the facts of all shards.
    pub(super) subscribers: Mutex<Vec<Weak<facts::Shared>>>,
}

/// The mutable part of a shard, owned by the thread that has its turn.
pub(super) struct Core {
    pub(super) state: State,
    /// Time of the newest decision.
    decided_at: Timestamp,
    /// The journal segment that contains the shard's newest state hash.
    checked_segment: Option<u64>,
    /// Buffer for the encoded record, reused to avoid allocations.
    record: Vec<u8>,
    pub(super) subscribers: Subscribers,
    published: Published,
}

impl Core {
    pub(super) fn new(state: State, decided_at: Timestamp) -> Self {
        Self {
            state,
            decided_at,
            checked_segment: None,
            record: Vec::new(),
            subscribers: Subscribers::default(),
            published: Published::default(),
        }
    }

    /// Publishes the open orders of a recovered state to the feed and the timers.
    pub(super) fn publish_limits(&mut self, environment: &Environment) {
        self.published.publish_all(&self.state, environment);
        environment.delayed_orders.announce_all(&self.state);
    }

    /// Decides a command and commits its events. The clock and the book are read at the moment of
    /// decision, however long the command was queued.
    pub(super) fn execute<C: Command>(
        &mut self,
        command: &C,
        environment: &Environment,
    ) -> Observed<Result<C::Answer, Refusal>> {
        let now = decision_time(environment.clock.now(), self.decided_at);
        let market = command.market_id().and_then(|id| snapshot_of(id, &environment.markets));
        let quote = market.as_ref().map(MarketSnapshot::quote);
        let state = &self.state;
        match state.decide(command, quote.as_ref(), now, &environment.rules) {
            Err(rejection) => self.refuse(command, rejection.into()),
            Ok(Verdict::Already(subject)) => {
                self.remember::<C>(&subject, environment);
                let state = &self.state;
                let answer = C::answer(state, subject, false);
                Observed { value: Ok(answer), lsn: command.depends_on(state) }
            }
            Ok(Verdict::Happens(events, subject)) => match self.commit(events, now, environment) {
                Err(refusal) => self.refuse(command, refusal),
                Ok(lsn) => {
                    self.remember::<C>(&subject, environment);
                    Observed { value: Ok(C::answer(&self.state, subject, true)), lsn }
                }
            },
        }
    }

    /// Updates the part of the state that is not journaled.
    fn remember<C: Command>(&mut self, subject: &C::Subject, environment: &Environment) {
        C::remember(&mut self.state, subject);
        if C::MOVES_TIMERS {
            environment.open_orders.note(&self.state);
        }
    }

    /// Journals and applies events. Reserving the record's LSN may be refused; after that,
    /// nothing may fail.
    fn commit(
        &mut self,
        mut events: Events,
        now: Timestamp,
        environment: &Environment,
    ) -> Result<Lsn, Refusal> {
        assert!(!events.is_empty(), "a record has events");
        if environment.room.is_full() && events.iter().any(Event::takes_memory) {
            return Err(Refusal::ServerFull);
        }
        let sequence = self.state.sequence() + 1;
        let segment = environment.journal.segment();
        if sequence.is_multiple_of(STATE_CHECK_INTERVAL) || segment != self.checked_segment {
            // The hash covers the state before this record, so it is the record's first event.
            events.insert(0, Event::StateChecked { hash: self.state.hash() });
        }
        let header = RecordHeader {
            shard: self.state.shard(),
            epoch: environment.journal.epoch(),
            sequence,
            at: now,
        };
        self.record.clear();
        record::encode(header, &events, &mut self.record);
        if self.record.len() > environment.journal.record_bytes_max() {
            return Err(RECORD_TOO_LONG.into());
        }
        let reservation = environment.journal.reserve(self.record.len())?;
        let lsn = reservation.lsn();
        self.decided_at = now;
        self.checked_segment = segment;
        // The observer is given the state before the record, so it runs before the events are
        // applied.
        for event in &events {
            (environment.observer)(event, &self.state);
            if matches!(event, Event::AccountOpened { .. }) {
                environment.account_count.fetch_add(1, Ordering::Relaxed);
            }
        }
        self.state.apply(&events, lsn);
        assert_eq!(self.state.sequence(), sequence, "a record has the number of its state");
        if events.iter().any(Event::concerns_open_orders) {
            self.published.follow(&events, &self.state, environment);
            environment.delayed_orders.announce(&events, &self.state);
        }
        environment.fill_followers.wake(&events, &self.state);
        // Published before the record's bytes are filled in: once an LSN is durable, every record
        // before it is queued or known to be missing.
        if !self.subscribers.is_empty() {
            let shard = self.state.shard();
            self.subscribers.publish(Facts { shard, sequence, lsn, events });
        }
        reservation.fill_from(&self.record);
        Ok(lsn)
    }

    fn refuse<C: Command>(
        &self,
        command: &C,
        refusal: Refusal,
    ) -> Observed<Result<C::Answer, Refusal>> {
        let is_early = faults::is_on(Fault::RejectionAnsweredEarly);
        let lsn = match &refusal {
            _ if is_early => Lsn::START,
            Refusal::Rejected(rejection) => command.refusal_depends_on(&self.state, rejection),
            _ => command.depends_on(&self.state),
        };
        Observed { value: Err(refusal), lsn }
    }
}

/// Returns the clock's time, but no earlier than the newest decision, unless the clock jumped back
/// by more than [`TIME_AHEAD_NS_MAX`].
fn decision_time(now: Timestamp, newest: Timestamp) -> Timestamp {
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
