//! Heartbeats: an account that sends them has its open orders cancelled once they stop.
//!
//! Only the interval is journaled, where it changes. When the newest beat came is working memory;
//! after a start every account has a whole interval.

use smallvec::smallvec;

use crate::engine::account::heartbeat_term;
use crate::engine::command::{CancelOnDisconnect, SetHeartbeat};
use crate::engine::contradiction::{Flaw, NOT_KEPT};
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events};
use crate::engine::order::cancel::{ENDED_PER_RECORD_MAX, ended};
use crate::engine::order::receipt::Order;
use crate::engine::order::terms::EndReason;
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{AccountId, Place, Timestamp};

/// The shortest and the longest interval, in milliseconds.
pub const INTERVAL_MS: std::ops::RangeInclusive<u32> = 1_000..=60_000;

/// How long after its newest beat an account counts as silent: the interval, and a quarter of it or
/// a second.
pub const fn patience_ms(interval_ms: u32) -> i64 {
    let quarter = interval_ms / 4;
    interval_ms as i64 + if quarter > 1_000 { quarter as i64 } else { 1_000 }
}

/// When an account counts as silent.
const fn deadline(beat_at: Timestamp, interval_ms: u32) -> Timestamp {
    Timestamp::from_nanos(beat_at.nanos().saturating_add(patience_ms(interval_ms) * 1_000_000))
}

/// The most accounts that one visit gives a whole interval after a start.
const BEGUN_PER_VISIT_MAX: usize = 1_024;

impl Command for SetHeartbeat {
    /// When the account counts as silent, unless it beats again.
    type Subject = (AccountId, Timestamp);
    type Answer = Timestamp;

    const MOVES_TIMERS: bool = true;

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<(AccountId, Timestamp)>, Rejection> {
        let Self { account, interval_ms } = *self;
        let row = state.writable_account(account)?;
        let subject = (account, deadline(given.now, interval_ms));
        if row.heartbeat_ms() == Some(interval_ms) {
            return Ok(Verdict::Already(subject));
        }
        let event = Event::HeartbeatSet { account, interval_ms: Some(interval_ms) };
        Ok(Verdict::Happens(smallvec![event], subject))
    }

    fn answer(_: &State, (_, deadline): (AccountId, Timestamp), _: bool) -> Timestamp {
        deadline
    }

    fn remember(state: &mut State, &(account, deadline): &(AccountId, Timestamp)) {
        state.silences.insert(account, deadline);
    }

    fn depends_on(&self, state: &State) -> Place {
        state.account_place(self.account)
    }
}

impl Command for CancelOnDisconnect {
    /// Whether there is more to do, and the accounts of which nothing is known since the start.
    type Subject = (bool, Vec<(AccountId, Timestamp)>);
    type Answer = bool;

    const MOVES_TIMERS: bool = true;

    fn decide(
        &self,
        state: &State,
        given: Given<'_, '_>,
    ) -> Result<Verdict<(bool, Vec<(AccountId, Timestamp)>)>, Rejection> {
        let now = given.now;
        let mut events = Events::new();
        let mut begun = Vec::new();
        let mut has_more = false;
        for (silent_at, account) in state.silences.due(now) {
            has_more = begun.len() >= BEGUN_PER_VISIT_MAX;
            if has_more {
                break;
            }
            let row = state.account(account).ok_or(Rejection::AccountNotFound)?;
            let Some(interval_ms) = row.heartbeat_ms() else { continue };
            if silent_at == Timestamp::EPOCH {
                begun.push((account, deadline(now, interval_ms)));
                continue;
            }
            let mut orders = state.cancellable_orders(row).map(Order::id);
            let ends = orders.by_ref().take(ENDED_PER_RECORD_MAX - events.len());
            events.extend(ends.map(|order| ended(order, EndReason::Heartbeat, now)));
            has_more = orders.next().is_some() || events.len() >= ENDED_PER_RECORD_MAX;
            if has_more {
                break;
            }
            events.push(Event::HeartbeatSet { account, interval_ms: None });
        }
        Ok(Verdict::of(events, (has_more, begun)))
    }

    fn answer(_: &State, (has_more, _): (bool, Vec<(AccountId, Timestamp)>), _: bool) -> bool {
        has_more
    }

    fn remember(state: &mut State, (_, begun): &(bool, Vec<(AccountId, Timestamp)>)) {
        for &(account, deadline) in begun {
            state.silences.insert(account, deadline);
        }
    }

    fn depends_on(&self, _: &State) -> Place {
        Place::START
    }
}

impl State {
    pub(in crate::engine) fn set_heartbeat(
        &mut self,
        account: AccountId,
        interval_ms: Option<u32>,
        position_in_log: u64,
    ) -> Result<(), Flaw> {
        let flaw = |flaw| Flaw::account(account, flaw);
        let slot = self.account_slot(account).ok_or(flaw(NOT_KEPT))?;
        if interval_ms.is_some_and(|interval_ms| !INTERVAL_MS.contains(&interval_ms)) {
            return Err(flaw("has a heartbeat out of range"));
        }
        let before = self.accounts[slot].heartbeat_ms();
        if before == interval_ms {
            return Err(flaw("already has this heartbeat"));
        }
        self.hash -= heartbeat_term(account, before);
        self.hash += heartbeat_term(account, interval_ms);
        self.accounts[slot].set_heartbeat_ms(interval_ms);
        self.accounts[slot].position_in_log = position_in_log;
        match interval_ms {
            Some(_) => self.silences.insert(account, Timestamp::EPOCH),
            None => self.silences.remove(account),
        }
        Ok(())
    }
}
