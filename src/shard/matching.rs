//! Matching and expiry of open orders: work that no client waits for.

use std::collections::BTreeSet;
use std::sync::Arc;

use parking_lot::Mutex;

use super::core::Core;
use super::{OpenOrderBoard, Refusal, Shards};
use crate::engine::command::{ClearBooks, EndSilent, ExpireOrders, MatchOrders};
use crate::ids::ShardId;

/// Markets with work that could not be journaled or queued. They must be looked at again; the books
/// of that later moment count.
#[derive(Default)]
pub(super) struct Unmatched {
    markets: Mutex<BTreeSet<Arc<str>>>,
}

impl Unmatched {
    fn add(&self, market_id: Arc<str>) {
        self.markets.lock().insert(market_id);
    }
}

impl Shards {
    /// What timers and metrics need to know about the open orders.
    pub fn open_orders(&self) -> &OpenOrderBoard {
        &self.environment.open_orders
    }

    /// Fills the shard's orders that these books cross, in as many visits as that takes; other
    /// tasks run in between.
    pub fn match_orders(self: &Arc<Self>, shard: ShardId, command: MatchOrders) {
        let shards = self.clone();
        let market_id = command.market_id.clone();
        let is_posted = self.post(shard, move |core, environment| {
            match core.execute(&command, environment).value {
                Ok(matched) => {
                    environment.open_orders.note_fills(matched.fill_count);
                    if let Some(next) = matched.next {
                        shards.match_orders(shard, MatchOrders { after: Some(next), ..command });
                    }
                }
                Err(refusal) => {
                    report("match", shard, &refusal);
                    environment.unmatched.add(command.market_id);
                }
            }
        });
        if !is_posted {
            self.environment.unmatched.add(market_id);
        }
    }

    /// The markets that must be looked at again because their work was refused.
    pub fn take_unmatched(&self) -> impl IntoIterator<Item = Arc<str>> + use<> {
        std::mem::take(&mut *self.environment.unmatched.markets.lock())
    }

    /// Ends the shard's orders that have expired, and those of accounts that fell silent. Whatever
    /// cannot be journaled now stays due.
    pub fn end_due_orders(self: &Arc<Self>, shard: ShardId) {
        let shards = self.clone();
        self.post(shard, move |core: &mut Core, environment| {
            let expired = core.execute(&ExpireOrders, environment).value;
            let silent = core.execute(&EndSilent, environment).value;
            let mut has_more = false;
            for ended in [expired, silent] {
                match ended {
                    Ok(more) => has_more |= more,
                    Err(refusal) => report("expiry", shard, &refusal),
                }
            }
            if has_more {
                shards.end_due_orders(shard);
            }
        });
    }
}

impl Shards {
    /// Ends the shard's orders in a market whose books the venue has cleared.
    pub fn clear_books(self: &Arc<Self>, shard: ShardId, command: ClearBooks) {
        let shards = self.clone();
        let market_id = command.market_id.clone();
        let is_posted = self.post(shard, move |core: &mut Core, environment| {
            match core.execute(&command, environment).value {
                Ok(true) => shards.clear_books(shard, command),
                Ok(false) => {}
                Err(refusal) => {
                    report("clearing", shard, &refusal);
                    environment.unmatched.add(command.market_id);
                }
            }
        });
        if !is_posted {
            self.environment.unmatched.add(market_id);
        }
    }
}

fn report(work: &'static str, shard: ShardId, refusal: &Refusal) {
    match refusal {
        Refusal::Rejected(rejection) => {
            let shard = shard.get();
            tracing::error!(shard, %rejection, work, "work on open orders was rejected");
        }
        // It is tried again until there is room.
        Refusal::Busy | Refusal::JournalFull | Refusal::ServerFull => {}
    }
}
