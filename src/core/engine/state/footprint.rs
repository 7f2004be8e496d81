//! How much memory a shard's state takes, by what it holds.
//!
//! [`heap`](crate::engine::state::heap) says how exact that is. Tables are counted without looking
//! at their rows; what rows own beyond the tables is counted a bounded number of rows at a time.

use std::ops::AddAssign;
use std::sync::Arc;

use crate::engine::state::State;
use crate::engine::state::heap::{map_bytes, queue_bytes, set_bytes, tree_bytes, vec_bytes};
use crate::ids::CommentId;

/// The most slots to count in one visit.
pub const SLOTS_PER_VISIT_MAX: u32 = 32;

/// Memory of a state by what it holds, in bytes.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Footprint {
    /// Accounts with their money, positions, settlements and lists of orders.
    pub accounts: usize,
    /// The fills that accounts log.
    pub fills: usize,
    /// Finished and open orders, with the names by which they are found again.
    pub orders: usize,
    /// What only open orders have: their lives, and their places by price and expiry.
    pub open_orders: usize,
    /// API keys.
    pub keys: usize,
    /// Comments.
    pub comments: usize,
    /// The markets that the shard has used, and how they were settled.
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
    /// Counts what the rows from this slot on own, [`SLOTS_PER_VISIT_MAX`] slots of them, and with
    /// the first ones all tables. Returns the slot from which to continue.
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
        // Two outcomes each, as a rule. The catalogue has the texts of their tokens.
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
            open_orders: self.orders.life_bytes()
                + self.open.bytes()
                + self.holds.bytes()
                + self.silences.bytes(),
            keys: self.keys.bytes(),
            comments: tree_bytes(&self.comments) + of_comments,
            markets: used + settled + map_bytes(&self.market_of),
        }
    }
}
