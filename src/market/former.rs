//! Replacing a market's description, and what it was before, for readers that come back.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Market;
use super::catalogue::{MarketInfo, MarketStatus};
use crate::money::Price;

/// The stage and the tick before the last change of each; `None` if it never changed.
#[derive(Default, Debug)]
pub(super) struct Former {
    status: Option<Changed<MarketStatus>>,
    tick: Option<Changed<Price>>,
}

#[derive(Clone, Copy, Debug)]
struct Changed<T> {
    /// The first list of changes that surely shows the change.
    shown_in: u64,
    before: T,
}

impl Market {
    /// The stage and the tick before the last change of each, if those may have missed it who know
    /// no later list of changes than `since`.
    pub fn missed_since(&self, since: u64) -> (Option<MarketStatus>, Option<Price>) {
        self.former.lock().missed_since(since)
    }

    /// Replaces the description. A resolved market keeps its status and payouts: a late page of the
    /// venue's catalogue must not reopen it. Returns whether this resolves the market. `round` is
    /// the number of lists of changes that were taken.
    pub(super) fn describe(&self, mut info: MarketInfo, round: &AtomicU64) -> bool {
        let before = self.info.load();
        let was_resolved = before.status == MarketStatus::Resolved;
        if was_resolved || !before.status.may_become(info.status) {
            info.status = before.status;
            info.payouts.clone_from(&before.payouts);
            info.evidence.clone_from(&before.evidence);
        }
        // Not every source says when the books are cleared.
        info.books_cleared_at = info.books_cleared_at.or(before.books_cleared_at);
        let is_resolved = info.status == MarketStatus::Resolved;
        let info = Arc::new(info);
        self.info.store(info.clone());
        // Read after the store: any later list is looked at with the new description.
        let shown_in = round.load(Ordering::SeqCst) + 1;
        self.former.lock().note(&before, &info, shown_in);
        is_resolved && !was_resolved
    }
}

impl Former {
    /// Notes what differs in the description after this one. The list of changes `shown_in` is the
    /// first that surely shows it.
    fn note(&mut self, before: &MarketInfo, after: &MarketInfo, shown_in: u64) {
        if before.status != after.status {
            self.status = Some(Changed { shown_in, before: before.status });
        }
        if before.tick != after.tick {
            self.tick = Some(Changed { shown_in, before: before.tick });
        }
    }

    /// What those may have missed who know no later list of changes than `since`.
    pub(super) fn missed_since(&self, since: u64) -> (Option<MarketStatus>, Option<Price>) {
        (missed(self.status, since), missed(self.tick, since))
    }
}

fn missed<T>(changed: Option<Changed<T>>, since: u64) -> Option<T> {
    changed.filter(|changed| changed.shown_in > since).map(|changed| changed.before)
}
