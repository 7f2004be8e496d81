//! Matching and expiry of open orders, which no client waits for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::{OpenOrderBoard, Refusal, Shards};
use paperbourse_core::engine::Command;
use paperbourse_core::engine::command::{
    CancelOnDisconnect, ClearBooks, ExpireOrders, MatchOrders,
};
use paperbourse_core::ids::ShardId;

/// Minimum time between two log lines about work that the engine rejected.
const LINE_INTERVAL: Duration = Duration::from_secs(1);

/// Markets with work that could not be journaled or queued. They must be looked at again later,
/// with the books of that moment.
#[derive(Default)]
pub(super) struct Unmatched {
    markets: Mutex<BTreeSet<Arc<str>>>,
    logged_at: Mutex<Option<Instant>>,
}

impl Unmatched {
    /// Records refused work. If the engine rejected the work, it would do so again, so the
    /// rejection is only logged, and the market waits for its next change.
    fn note(&self, shard: ShardId, market_id: Option<Arc<str>>, refusal: &Refusal) {
        match refusal {
            Refusal::Rejected(rejection) => {
                let mut logged_at = self.logged_at.lock();
                if logged_at.is_none_or(|at| at.elapsed() >= LINE_INTERVAL) {
                    *logged_at = Some(Instant::now());
                    let (shard, market) = (shard.get(), market_id.as_deref());
                    tracing::error!(shard, market, %rejection, "work on open orders was rejected");
                }
            }
            // Work without a market stays due.
            Refusal::Busy | Refusal::JournalFull | Refusal::ServerFull => {
                self.markets.lock().extend(market_id);
            }
        }
    }
}

impl Shards {
    /// Returns the counts and deadlines of the open orders.
    pub fn open_orders(&self) -> &OpenOrderBoard {
        &self.environment.open_orders
    }

    /// Takes the markets that must be looked at again because their work was refused.
    pub fn take_unmatched(&self) -> impl IntoIterator<Item = Arc<str>> + use<> {
        std::mem::take(&mut *self.environment.unmatched.markets.lock())
    }

    /// Fills the shard's orders that these books cross, in as many visits as necessary. Other tasks
    /// run in between.
    pub fn match_orders(self: &Arc<Self>, shard: ShardId, command: MatchOrders) {
        let market_id = command.market_id.clone();
        self.visit(shard, Some(market_id), command, move |shards, command, matched| {
            shards.environment.open_orders.note_fills(matched.fill_count);
            if let Some(next) = matched.next {
                shards.match_orders(shard, MatchOrders { after: Some(next), ..command });
            }
        });
    }

    /// Ends the shard's orders that have expired, and the orders of accounts whose heartbeats have
    /// stopped. Orders whose end cannot be journaled now stay due.
    pub fn end_due_orders(self: &Arc<Self>, shard: ShardId) {
        self.visit_until_done(shard, None, ExpireOrders);
        self.visit_until_done(shard, None, CancelOnDisconnect);
    }

    /// Ends the shard's orders in a market whose books the venue has cleared.
    pub fn clear_books(self: &Arc<Self>, shard: ShardId, command: ClearBooks) {
        self.visit_until_done(shard, Some(command.market_id.clone()), command);
    }

    /// Runs a command until it answers that there is nothing more to do.
    fn visit_until_done<C>(
        self: &Arc<Self>,
        shard: ShardId,
        market_id: Option<Arc<str>>,
        command: C,
    ) where
        C: Command<Answer = bool> + Send + 'static,
    {
        self.visit(shard, market_id.clone(), command, move |shards, command, has_more| {
            if has_more {
                shards.visit_until_done(shard, market_id, command);
            }
        });
    }

    /// Runs or queues a command, and then runs `follow` with its answer.
    fn visit<C: Command + Send + 'static>(
        self: &Arc<Self>,
        shard: ShardId,
        market_id: Option<Arc<str>>,
        command: C,
        follow: impl FnOnce(&Arc<Self>, C, C::Answer) + Send + 'static,
    ) {
        let shards = self.clone();
        let posted_for = market_id.clone();
        let is_posted = self.post(shard, move |core, environment| {
            match core.execute(&command, environment).value {
                Ok(answer) => follow(&shards, command, answer),
                Err(refusal) => environment.unmatched.note(shard, posted_for, &refusal),
            }
        });
        if !is_posted {
            self.environment.unmatched.note(shard, market_id, &Refusal::Busy);
        }
    }
}
