//! The times from which accounts with a heartbeat count as silent.

use std::collections::{BTreeMap, BTreeSet};

use crate::engine::state::heap::{set_bytes, tree_bytes};
use crate::ids::{AccountId, Timestamp};

/// The time from which each account with a heartbeat counts as silent, unless it sends another
/// heartbeat.
///
/// These times are not journaled. After a restart an account's time is the epoch, until the account
/// is given a whole interval.
#[derive(Clone, Debug, Default)]
pub(in crate::engine) struct Silences {
    by_account: BTreeMap<AccountId, Timestamp>,
    by_time: BTreeSet<(Timestamp, AccountId)>,
}

impl Silences {
    /// Returns the heap memory of the timers, in bytes.
    pub(in crate::engine) fn bytes(&self) -> usize {
        tree_bytes(&self.by_account) + set_bytes(&self.by_time)
    }

    /// Sets the time from which the account counts as silent.
    pub(in crate::engine) fn insert(&mut self, account: AccountId, silent_at: Timestamp) {
        if let Some(before) = self.by_account.insert(account, silent_at) {
            self.by_time.remove(&(before, account));
        }
        self.by_time.insert((silent_at, account));
    }

    pub(in crate::engine) fn remove(&mut self, account: AccountId) {
        if let Some(before) = self.by_account.remove(&account) {
            self.by_time.remove(&(before, account));
        }
    }

    /// Returns the time at which the next account counts as silent.
    pub(in crate::engine) fn next(&self) -> Option<Timestamp> {
        self.by_time.first().map(|&(silent_at, _)| silent_at)
    }

    /// Returns the accounts that count as silent at `now`, longest silent first.
    pub(in crate::engine) fn due(
        &self,
        now: Timestamp,
    ) -> impl Iterator<Item = (Timestamp, AccountId)> + '_ {
        self.by_time.iter().copied().take_while(move |&(silent_at, _)| silent_at <= now)
    }
}
