//! Replaces a market's description, and keeps the former values for readers that reconnect.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Market;
use super::catalogue::{MarketInfo, MarketStatus};
use crate::money::Price;

/// The status and the tick as they were before their last changes; `None` for one that never
/// changed. Earlier changes are not recorded.
#[derive(Default, Debug)]
pub(super) struct Former {
    status: Option<Changed<MarketStatus>>,
    tick: Option<Changed<Price>>,
}

#[derive(Clone, Copy, Debug)]
struct Changed<T> {
    /// Number of the first list of changes whose readers are sure to see the change.
    shown_in: u64,
    before: T,
}

impl Market {
    /// Returns the status and the tick as they were before their last changes, for a reader that
    /// has seen the changes up to list `since`. Each is `None` if the reader cannot have missed a
    /// change. Earlier changes are not recorded.
    pub fn missed_since(&self, since: u64) -> (Option<MarketStatus>, Option<Price>) {
        let former = self.former.lock();
        (missed(former.status, since), missed(former.tick, since))
    }

    /// Replaces the description, and returns whether this resolves the market. A resolved market
    /// keeps its status and payouts: a late page of the venue's catalogue must not reopen it.
    /// `round` is the number of lists of changes taken so far.
    pub(super) fn describe(&self, mut info: MarketInfo, round: &AtomicU64) -> bool {
        let before = self.info.load();
        let was_resolved = before.status == MarketStatus::Resolved;
        if was_resolved || !before.status.may_become(info.status) {
            info.status = before.status;
            info.payouts.clone_from(&before.payouts);
            info.evidence.clone_from(&before.evidence);
        }
        // Not every source states when the books are cleared.
        info.books_cleared_at = info.books_cleared_at.or(before.books_cleared_at);
        let is_resolved = info.status == MarketStatus::Resolved;
        let info = Arc::new(info);
        {
            // A reader that sees the new description and then asks for the former values waits here
            // until they are recorded. No other lock is taken while this one is held.
            let mut former = self.former.lock();
            self.info.store(info.clone());
            // Loaded after the store, so that every reader of a later list sees the new
            // description.
            let shown_in = round.load(Ordering::SeqCst) + 1;
            former.note(&before, &info, shown_in);
        }
        is_resolved && !was_resolved
    }
}

impl Former {
    /// Records what differs between two descriptions. `shown_in` is the number of the first list of
    /// changes whose readers are sure to see the new description.
    fn note(&mut self, before: &MarketInfo, after: &MarketInfo, shown_in: u64) {
        if before.status != after.status {
            self.status = Some(Changed { shown_in, before: before.status });
        }
        if before.tick != after.tick {
            self.tick = Some(Changed { shown_in, before: before.tick });
        }
    }
}

fn missed<T>(changed: Option<Changed<T>>, since: u64) -> Option<T> {
    changed.filter(|changed| changed.shown_in > since).map(|changed| changed.before)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::market::catalogue::Outcome;

    /// The two threads meet at a different moment each time, so this is repeated often.
    #[test]
    fn who_sees_a_change_can_ask_for_what_was_before() {
        for _ in 0..2_000 {
            let outcomes =
                ["Yes", "No"].map(|label| Outcome { label: label.into(), token_id: "".into() });
            let mut info = MarketInfo::bare("m", outcomes);
            info.status = MarketStatus::Open;
            let market = Market::new(info.clone());
            info.status = MarketStatus::Closed;
            thread::scope(|scope| {
                scope.spawn(|| market.describe(info, &AtomicU64::new(0)));
                while market.info().status == MarketStatus::Open {
                    std::hint::spin_loop();
                }
                assert_eq!(market.missed_since(0).0, Some(MarketStatus::Open));
            });
        }
    }
}
