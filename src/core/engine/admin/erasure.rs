//! Erasure of an account and its comments.
//!
//! An erased account keeps its id and loses everything else: its owner's identity, its keys,
//! orders, fills, positions and sums. All sums are then zero, so they still balance. The account's
//! comments on other accounts' orders are stored in the shards of those orders, where
//! [`EraseComments`] deletes them.

use std::hash::BuildHasher as _;

use crate::engine::account::Account;
use crate::engine::admin::reset::ORDERS_PER_RECORD_MAX;
use crate::engine::decide::{Command, Given, Verdict};
use crate::engine::event::{Event, Events};
use crate::engine::rejection::Rejection;
use crate::engine::state::State;
use crate::ids::{AccountId, CommentId, Lsn, Timestamp};
use crate::money::Usd;

/// The maximum number of comments that one command examines.
const EXAMINED_PER_VISIT_MAX: usize = 10_000;

/// The maximum number of comments that one command deletes.
const DELETED_PER_VISIT_MAX: usize = 1_000;

/// Deletes a bounded number of an account's comments on this shard's orders. Repeat with the
/// returned cursor until it is `None`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EraseComments {
    /// The account, which may be in another shard.
    pub author: AccountId,
    /// Only comments newer than this one.
    pub after: Option<CommentId>,
}

/// The result of one [`EraseComments`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ErasedComments {
    /// The number of comments deleted.
    pub count: usize,
    /// The last comment examined; `None` if no comments are left to examine.
    pub next: Option<CommentId>,
}

impl Command for EraseComments {
    type Subject = ErasedComments;
    type Answer = ErasedComments;

    fn decide(
        &self,
        state: &State,
        _: Given<'_, '_>,
    ) -> Result<Verdict<ErasedComments>, Rejection> {
        let mut events = Events::new();
        let mut next = None;
        let first = CommentId::new(state.shard, self.after.map_or(1, |after| after.counter() + 1));
        let comments = first.into_iter().flat_map(|first| state.comments.range(first..));
        for (index, (&comment, row)) in comments.enumerate() {
            if index >= EXAMINED_PER_VISIT_MAX || events.len() >= DELETED_PER_VISIT_MAX {
                let erased = ErasedComments { count: events.len(), next };
                return Ok(Verdict::of(events, erased));
            }
            next = Some(comment);
            if row.author == self.author {
                events.push(Event::CommentDeleted { comment });
            }
        }
        let erased = ErasedComments { count: events.len(), next: None };
        Ok(Verdict::of(events, erased))
    }

    fn answer(_: &State, erased: ErasedComments, _: bool) -> ErasedComments {
        erased
    }

    fn depends_on(&self, state: &State) -> Lsn {
        // If no comment is left, an earlier command may have deleted the last one.
        state.lsn_at(state.last_removal)
    }
}

/// Returns a placeholder for the identity digest of an erased account. It is unique to the account
/// and is not the SHA-256 of any known identity.
fn erased_digest(account: AccountId) -> [u8; 32] {
    let mut digest = [0; 32];
    digest[0] = account.shard().get();
    digest[24..].copy_from_slice(&account.counter().to_be_bytes());
    digest
}

impl State {
    /// Returns the next events that forget an account's oldest orders, and with them their
    /// comments, ahead of its erasure. Returns `None` once what is left fits into the record that
    /// erases the account. The account must have no open orders.
    pub(in crate::engine) fn forgotten_before_erasure(&self, account: &Account) -> Option<Events> {
        let mut events = Events::new();
        let mut row_count = 0;
        for slot in account.orders() {
            let order = self.orders[slot].id();
            let comment_count = self.comments_of.get(&order).map_or(0, |it| it.ids.len());
            row_count += 1 + comment_count;
            if row_count > ORDERS_PER_RECORD_MAX && !events.is_empty() {
                return Some(events);
            }
            events.push(Event::OrderForgotten { order });
        }
        None
    }

    /// Erases the account in this slot. Fails if the account is not suspended or has open orders.
    pub(in crate::engine) fn erase_account(
        &mut self,
        slot: u32,
        at: Timestamp,
        position_in_log: u64,
    ) -> Result<(), &'static str> {
        self.last_erasure = position_in_log;
        let account = &self.accounts[slot];
        if !account.is_suspended() || account.open_order_count() > 0 {
            return Err("is erased before it is suspended");
        }
        let (id, opened_at, digest) = (account.id, account.opened_at, account.digest);
        while let Some(order) = self.accounts[slot].pop_order() {
            let order_id = self.orders[order].id();
            let (order, order_state) = self.orders.remove(order);
            self.hash -= order.term();
            if let Some(order_state) = order_state {
                self.hash -= order_state.term(order_id);
            }
            self.forget_comments_of(order_id);
        }
        self.orders.shrink();
        let keys: Vec<_> = self.keys_of(&self.accounts[slot]).map(|key| key.id).collect();
        for key in keys {
            self.remove_key(key);
        }
        self.hash -= self.accounts[slot].all_terms();
        self.leave_unpaid(slot)?;
        self.silences.remove(id);
        let found = self.account_of.find_entry(self.hasher.hash_one(digest), |&it| it == slot);
        let Ok(found) = found else { return Err("has no identity") };
        found.remove();

        // Drop the issuer's name too: a small issuer has few users, so its name could identify a
        // person.
        let issuer = self.issuer("");
        let mut erased =
            Account::opened(id, erased_digest(id), issuer, "".into(), Usd::ZERO, opened_at);
        erased.change_standing(|standing| standing.erased_at = Some(at));
        erased.position_in_log = position_in_log;
        self.hash += erased.all_terms();
        let hash = self.hasher.hash_one(erased.digest);
        self.accounts[slot] = erased;
        let (accounts, hasher) = (&self.accounts, &self.hasher);
        let hash_at = |&slot: &u32| hasher.hash_one(accounts[slot].digest);
        self.account_of.insert_unique(hash, slot, hash_at);
        self.last_removal = position_in_log;
        Ok(())
    }
}
