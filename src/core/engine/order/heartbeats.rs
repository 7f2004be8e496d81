//! Heartbeats: if an account that sends heartbeats stops, its open orders are cancelled.
//!
//! Only changes of the interval are journaled. The time of the newest heartbeat is kept only in
//! memory, so after a restart every account gets a whole interval.

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
use crate::ids::{AccountId, Lsn, Timestamp};

/// The range of permitted intervals, in milliseconds.
pub const INTERVAL_MS: std::ops::RangeInclusive<u32> = 1_000..=60_000;

/// Returns the time in milliseconds after which an account without a heartbeat counts as silent:
/// the interval plus a quarter of it, or plus one second if that is longer.
pub const fn patience_ms(interval_ms: u32) -> i64 {
    let quarter = interval_ms / 4;
    interval_ms as i64 + if quarter > 1_000 { quarter as i64 } else { 1_000 }
}

/// Returns the time from which an account counts as silent.
const fn deadline(beat_at: Timestamp, interval_ms: u32) -> Timestamp {
    Timestamp::from_nanos(beat_at.nanos().saturating_add(patience_ms(interval_ms) * 1_000_000))
}

/// The maximum number of accounts that one command gives a whole interval after a restart.
const BEGUN_PER_VISIT_MAX: usize = 1_024;

impl Command for SetHeartbeat {
    /// The account, and the time from which it counts as silent unless it sends another heartbeat.
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

    fn depends_on(&self, state: &State) -> Lsn {
        state.account_lsn(self.account)
    }
}

impl Command for CancelOnDisconnect {
    /// Whether the command must be repeated, and the accounts that have sent no heartbeat since the
    /// server started, each with the time from which it counts as silent.
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
            // This account has sent no heartbeat since the server started; see `Silences`.
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
            // End the heartbeat too, so that later orders are not cancelled until the account sends
            // heartbeats again.
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

    fn depends_on(&self, _: &State) -> Lsn {
        Lsn::START
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
