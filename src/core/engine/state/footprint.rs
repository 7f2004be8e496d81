//! The memory footprint of a shard's state, by kind of content.
//!
//! See [`heap`](crate::engine::state::heap) for the accuracy of the numbers. Tables are measured
//! without visiting their rows. The heap memory that rows own is counted for a bounded number of
//! rows at a time.

use std::ops::AddAssign;
use std::sync::Arc;

use crate::engine::state::State;
use crate::engine::state::heap::{map_bytes, queue_bytes, set_bytes, tree_bytes, vec_bytes};
use crate::ids::CommentId;

/// The maximum number of slots counted in one call.
pub const SLOTS_PER_VISIT_MAX: u32 = 32;

/// Memory of a state by kind of content, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Accounts with their money, positions, settlements and lists of orders.
    pub accounts: usize,
    /// The fill logs of accounts.
    pub fills: usize,
    /// Finished and open orders, with the index of their names.
    pub orders: usize,
    /// The lives of orders, and the indexes of open orders by price and expiry.
    pub open_orders: usize,
    /// API keys.
    pub keys: usize,
    /// Comments.
    pub comments: usize,
    /// The markets that the shard has used, and their settlements.
    pub markets: usize,
}

impl AddAssign for Footprint {
    fn add_assign(&mut self, other: Self) {
        let Self { accounts, fills, orders, open_orders, keys, comments, markets } = other;
        self.accounts += accounts;
        self.fills += fills;
        self.orders += orders;
        self.open_orders += open_orders;
        self.keys += keys;
        self.comments += comments;
        self.markets += markets;
    }
}

impl State {
    /// Counts the heap memory of the rows in [`SLOTS_PER_VISIT_MAX`] slots, starting at `slot`. A
    /// call for slot 0 also counts all tables. Returns the slot to continue from, if any are left.
    pub fn footprint_from(&self, slot: u32) -> (Footprint, Option<u32>) {
        let mut footprint = if slot == 0 { self.tables() } else { Footprint::default() };
        let end = slot.saturating_add(SLOTS_PER_VISIT_MAX);
        for account in self.accounts.between(slot, end) {
            footprint.accounts += account.owned_bytes();
            footprint.fills += account.fill_log_bytes();
        }
        for key in self.keys.rows().between(slot, end) {
            footprint.keys += key.owned_bytes();
        }
        let slot_count = self.accounts.slot_count().max(self.keys.rows().slot_count());
        (footprint, (end < slot_count).then_some(end))
    }

    fn tables(&self) -> Footprint {
        let settled = tree_bytes(&self.settled) + tree_bytes(&self.decisions);
        // Markets usually have two outcomes. The texts of their tokens belong to the catalogue.
        let outcomes = self.markets.len() * 2 * size_of::<(Arc<str>, Arc<str>)>();
        let used = vec_bytes(&self.markets)
            + vec_bytes(&self.introductions)
            + self.is_settled.capacity()
            + self.market_text_bytes
            + outcomes;
        let of_comments = map_bytes(&self.comments_of)
            + self.comments_of.len() * (4 * size_of::<CommentId>())
            + set_bytes(&self.comments_by)
            + self.comment_text_bytes;
        Footprint {
            accounts: self.accounts.bytes()
                + self.account_of.allocation_size()
                + vec_bytes(&self.holders)
                + self.holders.iter().map(queue_bytes).sum::<usize>(),
            fills: 0,
            orders: self.orders.bytes(),
            open_orders: self.orders.order_state_bytes()
                + self.open.bytes()
                + self.delays.bytes()
                + self.silences.bytes(),
            keys: self.keys.bytes(),
            comments: tree_bytes(&self.comments) + of_comments,
            markets: used + settled + map_bytes(&self.market_of),
        }
    }
}
