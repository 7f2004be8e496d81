//! One shard, its markets, and a clock that the test moves.
//!
//! All events are encoded, decoded and applied to a second state that sees only these records. The
//! two states must be equal after each record and decide every command alike. Every few records a
//! third state is restored from the rows of the first, and must agree too, so that all scenarios
//! also run on restored states. What a state remembers without journaling it is lost there, and
//! only matches depend on that.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;

use paperbourse::engine::command::{Identity, MatchOrders};
use paperbourse::engine::event::{Event, Events};
use paperbourse::engine::order::matching::{EVENTS_PER_VISIT_MAX, Matched};
use paperbourse::engine::order::receipt::OrderRow;
use paperbourse::engine::rejection::Rejection;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{Lsn, OutcomeIndex, ShardId, Timestamp};
use paperbourse::journal::record::{self, RecordHeader};
use paperbourse::market::book::{Book, Ladder, Level};
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::market::growth::Growth;
use paperbourse::market::{MarketSnapshot, Markets};

use crate::restore::Rows;

const SHARD: u8 = 5;
const EPOCH: u64 = 7;
/// The state's hash is recorded once per this many records.
const RECORDS_PER_CHECK: u64 = 16;
/// The third state is restored from rows once per this many records.
const RECORDS_PER_RESTORE: u64 = 5;

pub(crate) struct World {
    pub(crate) state: State,
    /// Built from the decoded records.
    follower: State,
    /// Restored from rows, and continued with the decoded records.
    restored: State,
    /// How much the levels of each outcome's books have grown.
    growths: BTreeMap<(String, u8), Growth>,
    pub(crate) markets: Markets,
    pub(crate) rules: Rules,
    pub(crate) now: Timestamp,
    /// Every record, as the journal would hold it.
    pub(crate) records: Vec<Vec<u8>>,
    /// Every finished order, including forgotten ones.
    pub(crate) finished: Vec<OrderRow>,
}

impl World {
    pub(crate) fn new() -> Self {
        let shard = ShardId::new(SHARD).expect("below the shard count");
        Self {
            state: State::new(shard),
            follower: State::new(shard),
            restored: State::new(shard),
            growths: BTreeMap::new(),
            markets: Markets::new(),
            rules: Rules::default(),
            now: Timestamp::from_seconds(1_800_000_000),
            records: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// An identity whose account is in this shard.
    pub(crate) fn identity(subject: &str) -> Identity {
        let mut digest = [0; 32];
        digest[0] = SHARD;
        digest[1..=subject.len()].copy_from_slice(subject.as_bytes());
        Identity { digest, issuer: "https://issuer.example".into(), subject: subject.into() }
    }

    /// Lists a market with these outcomes, open and free of fees, without books.
    pub(crate) fn list(&self, id: &str, labels: &[&str]) {
        let outcomes = labels
            .iter()
            .map(|label| Outcome {
                label: (*label).into(),
                token_id: format!("{id}-{label}").into(),
            })
            .collect::<Vec<_>>();
        self.markets.list(vec![MarketInfo::bare(id, outcomes)]).expect("a new market");
    }

    /// Replaces the description of a market.
    #[track_caller]
    pub(crate) fn describe(&self, id: &str, change: impl FnOnce(&mut MarketInfo)) {
        let market = self.markets.by_condition(id).unwrap_or_else(|| panic!("no market {id}"));
        let mut info = MarketInfo::clone(&market.info());
        change(&mut info);
        self.markets.list(vec![info]).expect("the same outcomes as before");
    }

    /// Publishes the next book of an outcome.
    #[track_caller]
    pub(crate) fn publish(
        &mut self,
        id: &str,
        outcome: OutcomeIndex,
        bids: Vec<Level>,
        asks: Vec<Level>,
        stale: bool,
    ) {
        let market = self.markets.by_condition(id).unwrap_or_else(|| panic!("no market {id}"));
        let ladder = Ladder::from_levels(bids, asks).expect("levels of a book");
        let before = market.book(outcome).as_ref().map_or(0, |book| book.sequence);
        let key = (id.to_owned(), outcome.0);
        let growth = self.growths.entry(key).or_insert_with(|| Growth::starting_from(&ladder));
        growth.replace(&ladder, self.now);
        let mut book = Book::new(ladder, self.now);
        book.growth = growth.numbers();
        book.sequence = before + 1;
        book.stale = stale;
        self.markets.publish(&market, outcome, Arc::new(book));
    }

    /// Decides a command in all states, and applies its events to them.
    #[track_caller]
    pub(crate) fn run<C>(&mut self, command: &C) -> Result<Verdict<C::Subject>, Rejection>
    where
        C: Command<Subject: PartialEq + Debug>,
    {
        self.decide(command, true)
    }

    /// Like [`Self::run`], for what depends on working memory: a state restored from rows has none.
    #[track_caller]
    pub(crate) fn run_unknown_to_rows<C>(
        &mut self,
        command: &C,
    ) -> Result<Verdict<C::Subject>, Rejection>
    where
        C: Command<Subject: PartialEq + Debug>,
    {
        self.decide(command, false)
    }

    /// Runs a match to its end, as the shard's runner would, and returns the events of each visit.
    #[track_caller]
    pub(crate) fn run_match(&mut self, mut command: MatchOrders) -> Vec<Events> {
        let mut visits = Vec::new();
        loop {
            let verdict = self.decide(&command, false).expect("a match is not refused");
            let (events, subject) = match verdict {
                Verdict::Happens(events, subject) => (Some(events), subject),
                Verdict::Already(subject) => (None, subject),
            };
            let Matched { fill_count, next } = MatchOrders::answer(&self.state, subject, true);
            let is_fill = |event: &&Event| matches!(event, Event::RestingFilled(_));
            assert_eq!(events.iter().flatten().filter(is_fill).count(), fill_count);
            assert!(events.as_ref().is_none_or(|it| it.len() <= EVENTS_PER_VISIT_MAX));
            visits.extend(events);
            match next {
                Some(next) => command.after = Some(next),
                None => return visits,
            }
            assert!(visits.len() < 1_000, "a match that does not end");
        }
    }

    /// Loses what is not journaled, as a restart does.
    pub(crate) fn restart(&mut self) {
        let restored = Rows::of(&self.state, &self.finished).restore();
        self.state = restored.expect("rows of a state restore");
        self.follower = self.state.clone();
        self.restored = self.state.clone();
        // The venue shows the same books, and nobody knows what has grown.
        for ((id, outcome), growth) in &mut self.growths {
            let market = self.markets.by_condition(id).expect("a market with a book");
            let outcome = OutcomeIndex(*outcome);
            let shown = market.book(outcome).clone().expect("a book that was published");
            *growth = Growth::starting_from(shown.ladder());
            let mut book = Book::clone(&shown);
            book.growth = None;
            self.markets.publish(&market, outcome, Arc::new(book));
        }
    }

    #[track_caller]
    fn decide<C>(
        &mut self,
        command: &C,
        is_known_to_rows: bool,
    ) -> Result<Verdict<C::Subject>, Rejection>
    where
        C: Command<Subject: PartialEq + Debug>,
    {
        let market = command.market_id().and_then(|id| self.markets.by_condition(id));
        let snapshot = market.map(|market| market.snapshot());
        let quote = snapshot.as_ref().map(MarketSnapshot::quote);
        let decide = |state: &State| state.decide(command, quote.as_ref(), self.now, &self.rules);
        let verdict = decide(&self.state);
        assert_eq!(decide(&self.follower), verdict, "the two states decide differently");
        if is_known_to_rows {
            assert_eq!(decide(&self.restored), verdict, "a restored state decides differently");
        }
        let verdict = verdict?;
        let (subject, events) = match &verdict {
            Verdict::Happens(events, subject) => (subject, Some(events)),
            Verdict::Already(subject) => (subject, None),
        };
        if let Some(events) = events {
            assert!(!events.is_empty(), "a command that happens has an event");
            self.record(events);
        }
        for state in [&mut self.state, &mut self.follower, &mut self.restored] {
            C::remember(state, subject);
        }
        let is_check_due = self.state.sequence().is_multiple_of(RECORDS_PER_CHECK);
        if events.is_some() && is_check_due {
            self.record(&[Event::StateChecked { hash: self.state.hash() }]);
        }
        Ok(verdict)
    }

    /// The number of orders that the shard's accounts keep.
    pub(crate) fn kept_order_count(&self) -> usize {
        self.state.accounts().map(|account| self.state.orders_of(account.id).count()).sum()
    }

    #[track_caller]
    fn record(&mut self, events: &[Event]) {
        let sequence = self.state.sequence() + 1;
        let lsn = Lsn::new(0, sequence);
        let header =
            RecordHeader { shard: self.state.shard(), epoch: EPOCH, sequence, at: self.now };
        let mut bytes = Vec::new();
        record::encode(header, events, &mut bytes);
        let (read_header, read_events) = record::decode(&bytes).expect("a written record decodes");
        assert_eq!(read_header, header);
        assert_eq!(&*read_events, events);
        self.records.push(bytes);

        self.state.apply(events, lsn);
        for (state, name) in [(&mut self.follower, "follower"), (&mut self.restored, "restored")] {
            state.apply(&read_events, lsn);
            assert_eq!(state.hash(), self.state.hash(), "{name}: hash after record {sequence}");
            assert!(*state == self.state, "{name}: state after record {sequence}");
        }
        self.finished.extend(events.iter().filter_map(|event| {
            let order = match event {
                Event::OrderFilled(filled) => filled.placement.order,
                Event::OrderPlaced(placed) => placed.placement.order,
                Event::RestingFilled(filled) => filled.order,
                Event::OrderEnded { order, .. } => *order,
                _ => return None,
            };
            self.state.order_row(order).filter(|row| !row.is_open())
        }));
        if sequence.is_multiple_of(RECORDS_PER_RESTORE) {
            let restored = Rows::of(&self.state, &self.finished).restore();
            self.restored = restored.expect("rows of a state restore");
            assert!(self.restored == self.state, "states restored after record {sequence}");
        }
    }
}
