//! One shard, its markets, and a clock that the test moves.
//!
//! All events are encoded, decoded and applied to a second state that sees only these records. The
//! two states must be equal after each record and decide every command alike. Every few records the
//! second state is replaced by one restored from the rows of the first, so that all scenarios also
//! run on restored states.

use std::fmt::Debug;
use std::sync::Arc;

use paperbourse::engine::command::Identity;
use paperbourse::engine::event::Event;
use paperbourse::engine::order::OrderRow;
use paperbourse::engine::rejection::Rejection;
use paperbourse::engine::{Command, Rules, State, Verdict};
use paperbourse::ids::{OutcomeIndex, Place, ShardId, Timestamp};
use paperbourse::journal::record::{self, RecordHeader};
use paperbourse::market::book::{Book, Ladder, Level};
use paperbourse::market::catalogue::{MarketInfo, Outcome};
use paperbourse::market::{MarketSnapshot, Markets};

use crate::restore::Rows;

const SHARD: u8 = 5;
const EPOCH: u64 = 7;
/// The state's hash is recorded once per this many records.
const RECORDS_PER_CHECK: u64 = 16;
/// The second state is restored from rows once per this many records.
const RECORDS_PER_RESTORE: u64 = 5;

pub(crate) struct World {
    pub(crate) state: State,
    /// Built from the decoded records.
    follower: State,
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
        &self,
        id: &str,
        outcome: OutcomeIndex,
        bids: Vec<Level>,
        asks: Vec<Level>,
        stale: bool,
    ) {
        let market = self.markets.by_condition(id).unwrap_or_else(|| panic!("no market {id}"));
        let ladder = Ladder::from_levels(bids, asks).expect("levels of a book");
        let before = market.book(outcome).as_ref().map_or(0, |book| book.sequence);
        let mut book = Book::new(ladder, self.now);
        book.sequence = before + 1;
        book.stale = stale;
        self.markets.publish(&market, outcome, Arc::new(book));
    }

    /// Decides a command in both states, and applies its events to both.
    #[track_caller]
    pub(crate) fn run<C>(&mut self, command: &C) -> Result<Verdict<C::Subject>, Rejection>
    where
        C: Command<Subject: PartialEq + Debug>,
    {
        let market = command.market_id().and_then(|id| self.markets.by_condition(id));
        let snapshot = market.map(|market| market.snapshot());
        let quote = snapshot.as_ref().map(MarketSnapshot::quote);
        let decide = |state: &State| state.decide(command, quote.as_ref(), self.now, &self.rules);
        let verdict = decide(&self.state);
        assert_eq!(decide(&self.follower), verdict, "the two states decide differently");
        let verdict = verdict?;
        if let Verdict::Happens(events, _) = &verdict {
            assert!(!events.is_empty(), "a command that happens has an event");
            self.record(events);
            if self.state.sequence().is_multiple_of(RECORDS_PER_CHECK) {
                self.record(&[Event::StateChecked { hash: self.state.hash() }]);
            }
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
        let place = Place::new(0, sequence);
        let header =
            RecordHeader { shard: self.state.shard(), epoch: EPOCH, sequence, at: self.now };
        let mut bytes = Vec::new();
        record::encode(header, events, &mut bytes);
        let (read_header, read_events) = record::decode(&bytes).expect("a written record decodes");
        assert_eq!(read_header, header);
        assert_eq!(&*read_events, events);
        self.records.push(bytes);

        self.state.apply(events, place);
        self.follower.apply(&read_events, place);
        assert_eq!(self.follower.hash(), self.state.hash(), "hashes after record {sequence}");
        assert_eq!(self.follower, self.state, "states after record {sequence}");
        self.finished.extend(events.iter().filter_map(|event| match event {
            Event::OrderFilled(fill) => self.state.order_row(fill.placement.order),
            _ => None,
        }));
        if sequence.is_multiple_of(RECORDS_PER_RESTORE) {
            let restored = Rows::of(&self.state, &self.finished).restore();
            self.follower = restored.expect("rows of a state restore");
            assert_eq!(self.follower, self.state, "states restored after record {sequence}");
        }
    }
}
