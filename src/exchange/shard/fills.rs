//! Followers of accounts' fills.
//!
//! A follower reads its account's fills from the shard at its own pace. All the shard does is wake
//! it when there are new ones, so nothing is queued for a slow follower, and nothing waits for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::sync::Notify;

use super::Shards;
use paperbourse_core::engine::State;
use paperbourse_core::engine::event::Event;
use paperbourse_core::engine::fills::FillPage;
use paperbourse_core::engine::order::receipt::Order;
use paperbourse_core::engine::state::view::ROWS_PER_READ_MAX;
use paperbourse_core::ids::{AccountId, SHARD_COUNT, ShardId};
use paperbourse_core::money::Shares;
use paperbourse_store::journal::Waiters;

/// Maximum number of followers at the same time.
pub const FOLLOWERS_MAX: usize = 65_536;

/// Delay before a follower reads again from a shard whose queue was full.
const BUSY_DELAY: Duration = Duration::from_millis(5);

type ByAccount = HashMap<AccountId, Vec<Arc<FillSignal>>, foldhash::fast::RandomState>;

/// The followers of all accounts. A shard reads its part without a lock.
pub(super) struct FillFollowers {
    count: AtomicUsize,
    shards: [ArcSwap<ByAccount>; SHARD_COUNT],
}

/// The signal that wakes a follower.
#[derive(Default)]
pub struct FillSignal {
    has_fills: AtomicBool,
    wake: Notify,
}

/// Follows the fills of one account until it is dropped.
pub struct FillFollower {
    shards: Arc<Shards>,
    account: AccountId,
    waiters: Arc<Waiters>,
    signal: Arc<FillSignal>,
}

impl Default for FillFollowers {
    fn default() -> Self {
        Self { count: AtomicUsize::new(0), shards: std::array::from_fn(|_| ArcSwap::default()) }
    }
}

impl FillFollowers {
    /// Wakes the followers of the accounts whose orders these events filled. Must be called with
    /// the state after the events. Costs one load while there are no followers.
    #[inline]
    pub(super) fn wake(&self, events: &[Event], state: &State) {
        // A follower is counted before its first read of the shard, so a fill that is overlooked
        // here shows in that read.
        if self.count.load(Ordering::Relaxed) > 0 {
            self.wake_any(events, state);
        }
    }

    fn wake_any(&self, events: &[Event], state: &State) {
        let by_account = self.part(state.shard()).load();
        if by_account.is_empty() {
            return;
        }
        for account in events.iter().filter_map(|event| filled_account(event, state)) {
            by_account.get(&account).into_iter().flatten().for_each(|signal| signal.ring());
        }
    }

    fn part(&self, shard: ShardId) -> &ArcSwap<ByAccount> {
        &self.shards[shard.index()]
    }

    fn add(&self, account: AccountId, signal: &Arc<FillSignal>) {
        self.part(account.shard()).rcu(|by_account| {
            let mut by_account = ByAccount::clone(by_account);
            by_account.entry(account).or_default().push(signal.clone());
            by_account
        });
    }

    fn remove(&self, account: AccountId, signal: &Arc<FillSignal>) {
        self.part(account.shard()).rcu(|by_account| {
            let mut by_account = ByAccount::clone(by_account);
            if let Some(signals) = by_account.get_mut(&account) {
                signals.retain(|other| !Arc::ptr_eq(other, signal));
                if signals.is_empty() {
                    by_account.remove(&account);
                }
            }
            by_account
        });
    }
}

/// Returns the account whose order this event filled, if any.
fn filled_account(event: &Event, state: &State) -> Option<AccountId> {
    match event {
        Event::OrderFilled(filled) => Some(filled.placement.account),
        Event::OrderPlaced(placed) if placed.fill.quantity > Shares::ZERO => {
            Some(placed.placement.account)
        }
        Event::RestingFilled(filled) => state.order(filled.order).map(Order::account),
        _ => None,
    }
}

impl FillSignal {
    fn ring(&self) {
        if !self.has_fills.swap(true, Ordering::AcqRel) {
            self.wake.notify_one();
        }
    }

    /// Returns whether there have been any fills since the last call.
    pub fn take(&self) -> bool {
        self.has_fills.swap(false, Ordering::AcqRel)
    }

    /// Wakes the follower for a reason other than fills.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until the follower is woken. Wake-ups may be spurious.
    pub async fn woken(&self) {
        self.wake.notified().await;
    }
}

impl Shards {
    /// Follows the fills of an account. Returns `None` if there are [`FOLLOWERS_MAX`] followers.
    /// The owner of `waiters` must be running them.
    pub fn follow_fills(
        self: &Arc<Self>,
        account: AccountId,
        waiters: &Arc<Waiters>,
    ) -> Option<FillFollower> {
        let followers = &self.environment.fill_followers;
        if followers.count.fetch_add(1, Ordering::Relaxed) >= FOLLOWERS_MAX {
            followers.count.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let signal = Arc::default();
        followers.add(account, &signal);
        Some(FillFollower { shards: self.clone(), account, waiters: waiters.clone(), signal })
    }

    /// Returns the number of followers.
    pub fn fill_follower_count(&self) -> usize {
        self.environment.fill_followers.count.load(Ordering::Relaxed)
    }
}

impl FillFollower {
    /// Returns the account whose fills are followed.
    pub const fn account(&self) -> AccountId {
        self.account
    }

    /// Returns the signal that wakes this follower.
    pub fn signal(&self) -> &FillSignal {
        &self.signal
    }

    /// Returns as many fills numbered above `after` as fit a page. Resolves once they are durable.
    pub async fn page(&self, after: u64) -> FillPage {
        let account = self.account;
        loop {
            let read = self.shards.observe(account.shard(), &self.waiters, move |state| {
                state.observe_fills(account, after, ROWS_PER_READ_MAX)
            });
            match read.await {
                Ok(page) => return page.unwrap_or(FillPage::EMPTY),
                // The only possible refusal is a full queue.
                Err(_) => tokio::time::sleep(BUSY_DELAY).await,
            }
        }
    }
}

impl Drop for FillFollower {
    fn drop(&mut self) {
        let followers = &self.shards.environment.fill_followers;
        followers.remove(self.account, &self.signal);
        followers.count.fetch_sub(1, Ordering::Relaxed);
    }
}
