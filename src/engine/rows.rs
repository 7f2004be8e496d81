//! A state as rows: what a snapshot is written from, and what two states are compared by.
//!
//! Rows of a kind come in a fixed order, so that equal states are written as equal bytes. Places
//! are not part of the rows: what was read back from a disk is on it.

use super::account::{Account, Ledger};
use super::comment::Comment;
use super::key::Key;
use super::order::{Order, OrderRow};
use super::payout::{SettledMarket, Settlement};
use super::position::Position;
use super::state::State;
use super::state_hash::StateHash;
use super::used_market::UsedMarket;
use crate::ids::{AccountId, MarketIndex, OrderId, ShardId, Timestamp};

/// Everything of a state that is not a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateHead {
    /// Which shard it is.
    pub shard: ShardId,
    /// How many records have been applied.
    pub sequence: u64,
    /// How many accounts there ever were: all of them are kept.
    pub accounts_ever: u64,
    /// How many keys there ever were.
    pub keys_ever: u64,
    /// How many orders there ever were.
    pub orders_ever: u64,
    /// How many comments there ever were.
    pub comments_ever: u64,
    /// The hash of everything in it.
    pub hash: StateHash,
}

/// Who an account belongs to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentityRow<'a> {
    /// SHA-256 of issuer, a zero byte, and subject.
    pub digest: &'a [u8; 32],
    /// Who vouches.
    pub issuer: &'a str,
    /// The provider's name for the person or program.
    pub subject: &'a str,
}

/// An account without its keys and orders.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AccountRow<'a> {
    /// Its id.
    pub id: AccountId,
    /// Whose it is.
    pub identity: IdentityRow<'a>,
    /// When it was opened.
    pub opened_at: Timestamp,
    /// Its money.
    pub ledger: Ledger,
    /// One for each outcome that it ever held, in the order of opening; closed ones stay.
    pub positions: &'a [Position],
    /// The oldest order that it keeps; older ones are forgotten.
    pub oldest_order: Option<OrderId>,
    /// How many orders it ever finished.
    pub order_count_ever: u64,
}

impl State {
    /// Everything that is not a row.
    pub fn head(&self) -> StateHead {
        StateHead {
            shard: self.shard,
            sequence: self.sequence,
            accounts_ever: self.accounts.len() as u64,
            keys_ever: self.keys_ever,
            orders_ever: self.orders_ever,
            comments_ever: self.comments_ever,
            hash: self.hash,
        }
    }

    /// How many orders it keeps.
    pub fn orders_kept(&self) -> u64 {
        self.orders.len() as u64
    }

    /// The markets that it has used, by index.
    pub fn markets(&self) -> &[UsedMarket] {
        &self.markets
    }

    /// The markets that it settles or has settled, by index.
    pub fn settled_markets(&self) -> impl ExactSizeIterator<Item = (MarketIndex, &SettledMarket)> {
        self.settled.iter().map(|(&market, settled)| (market, settled))
    }

    /// What all accounts were paid for positions, by account and the place of the position among
    /// all that it ever had.
    pub fn settlements(&self) -> impl Iterator<Item = (AccountId, u32, &Settlement)> {
        self.accounts.iter().flat_map(|(_, account)| {
            let settlements = account.settlements().iter();
            settlements.map(|(&position, settlement)| (account.id, position, settlement))
        })
    }

    /// All accounts, by id.
    pub fn accounts(&self) -> impl ExactSizeIterator<Item = AccountRow<'_>> {
        let slots = u32::try_from(self.accounts.len()).expect("they are called by a u32");
        (0..slots).map(|slot| self.account_row(&self.accounts[slot]))
    }

    fn account_row<'a>(&'a self, account: &'a Account) -> AccountRow<'a> {
        AccountRow {
            id: account.id,
            identity: IdentityRow {
                digest: &account.digest,
                issuer: &self.issuers[account.issuer as usize],
                subject: &account.subject,
            },
            opened_at: account.opened_at,
            ledger: account.ledger(),
            positions: account.positions(),
            oldest_order: account.orders().next().map(|slot| self.orders[slot].id()),
            order_count_ever: account.order_count_ever(),
        }
    }

    /// All keys, by id. What is sorted to this end are as many numbers as there are keys.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys.by_id().map(|key| self.unpacked(key))
    }

    /// All comments, by id.
    pub fn comments(&self) -> impl ExactSizeIterator<Item = &Comment> {
        self.comments.values()
    }

    /// The orders that an account keeps, oldest first: in the order in which they finished.
    pub fn orders_of(&self, account: AccountId) -> impl Iterator<Item = OrderRow> {
        let slots = self.account(account).into_iter().flat_map(Account::orders);
        slots.map(|slot| self.orders[slot].row())
    }

    /// All fields of an order that is kept.
    pub fn order_row(&self, order: OrderId) -> Option<OrderRow> {
        self.order(order).map(Order::row)
    }
}

/// Whether they hold the same. On which place of a log that rests does not count.
impl PartialEq for State {
    fn eq(&self, other: &Self) -> bool {
        let orders = |state: &Self, account: AccountId| -> Vec<OrderRow> {
            state.orders_of(account).collect()
        };
        self.head() == other.head()
            && self.markets == other.markets
            && self.settled == other.settled
            && self.settlements().eq(other.settlements())
            && self.decisions().eq(other.decisions())
            && self.orders.len() == other.orders.len()
            && self.accounts().eq(other.accounts())
            && self.accounts().all(|account| orders(self, account.id) == orders(other, account.id))
            && self.keys().eq(other.keys())
            && self.comments == other.comments
    }
}
