//! A state as rows, for writing snapshots and comparing states.
//!
//! The rows of each kind come in a fixed order, so that equal states give equal bytes. Rows hold no
//! LSNs, since a restored state is durable as a whole.

use crate::engine::account::Account;
use crate::engine::account::extension::UsedLevel;
use crate::engine::account::ledger::{Ledger, Resets};
use crate::engine::account::position::Position;
use crate::engine::admin::standing::Standing;
use crate::engine::comment::Comment;
use crate::engine::key::Key;
use crate::engine::market::payout::{SettledMarket, Settlement};
use crate::engine::market::used::UsedMarket;
use crate::engine::order::open::BookSide;
use crate::engine::order::receipt::OrderRow;
use crate::engine::state::State;
use crate::engine::state::hash::StateHash;
use crate::ids::{AccountId, MarketIndex, OrderId, ShardId, Timestamp};

/// The part of a state that is not stored as rows: counters and the hash.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StateHead {
    /// The shard's id.
    pub shard: ShardId,
    /// The number of records applied.
    pub sequence: u64,
    /// The number of accounts ever opened; all are kept.
    pub accounts_ever: u64,
    /// The number of keys ever created.
    pub keys_ever: u64,
    /// The number of orders ever placed.
    pub orders_ever: u64,
    /// The number of comments ever written.
    pub comments_ever: u64,
    /// The hash of the whole state.
    pub hash: StateHash,
}

/// The identity of an account's owner.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IdentityRow<'a> {
    /// SHA-256 of the issuer, a zero byte and the subject.
    pub digest: &'a [u8; 32],
    /// The issuer of the identity.
    pub issuer: &'a str,
    /// The issuer's identifier for the person or program.
    pub subject: &'a str,
}

/// The displayed levels that an account's resting orders have taken from on one side of a book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UsedRow {
    /// The account.
    pub account: AccountId,
    /// The book and the side of the orders.
    pub on: BookSide,
    /// The levels, ordered by the newest fill at each, oldest first.
    pub levels: Vec<UsedLevel>,
}

/// An account without its keys and orders.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct AccountRow<'a> {
    /// The account's id.
    pub id: AccountId,
    /// The owner's identity.
    pub identity: IdentityRow<'a>,
    /// When the account was opened.
    pub opened_at: Timestamp,
    /// The account's money.
    pub ledger: Ledger,
    /// One position for each outcome ever held, in the order of opening, including closed ones.
    pub positions: &'a [Position],
    /// The oldest order that the account keeps.
    pub oldest_order: Option<OrderId>,
    /// The number of orders ever finished, including forgotten ones.
    pub order_count_ever: u64,
    /// The number of fills ever, minus the number of orders ever finished.
    pub fill_surplus: i64,
    /// The heartbeat interval in milliseconds; `None` without a heartbeat.
    pub heartbeat_ms: Option<u32>,
    /// The account's resets; `None` if it was never reset.
    pub resets: Option<Resets>,
    /// The lasting effects of operators' acts, if there are any.
    pub standing: Option<&'a Standing>,
}

impl State {
    /// Returns the counters and the hash of the state.
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

    /// Returns the number of finished orders that are kept.
    pub fn orders_kept(&self) -> u64 {
        (self.orders.len() - self.open_order_count()) as u64
    }

    /// Returns the markets that the shard has used, by index.
    pub fn markets(&self) -> &[UsedMarket] {
        &self.markets
    }

    /// Iterates over the markets that the shard is settling or has settled, by index.
    pub fn settled_markets(&self) -> impl ExactSizeIterator<Item = (MarketIndex, &SettledMarket)> {
        self.settled.iter().map(|(&market, settled)| (market, settled))
    }

    /// Iterates over all settlements, by account and then by position index.
    pub fn settlements(&self) -> impl Iterator<Item = (AccountId, u32, &Settlement)> {
        self.accounts.iter().flat_map(|(_, account)| {
            let settlements = account.settlements().iter();
            settlements.map(|(&position, settlement)| (account.id, position, settlement))
        })
    }

    /// Iterates over all accounts, in id order.
    pub fn accounts(&self) -> impl ExactSizeIterator<Item = AccountRow<'_>> {
        let slots = u32::try_from(self.accounts.len()).expect("slots are u32");
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
            fill_surplus: account.fill_surplus(),
            heartbeat_ms: account.heartbeat_ms(),
            resets: account.resets(),
            standing: account.standing(),
        }
    }

    /// Returns the number of erased accounts.
    pub fn erased_count(&self) -> usize {
        self.accounts.iter().filter(|(_, account)| account.is_erased()).count()
    }

    /// Iterates over all keys, in id order. First collects and sorts one number per page of the key
    /// table.
    pub fn keys(&self) -> impl Iterator<Item = Key> {
        self.keys.by_id().map(|key| self.unpacked(key))
    }

    /// Iterates over all comments, in id order.
    pub fn comments(&self) -> impl ExactSizeIterator<Item = &Comment> {
        self.comments.values()
    }

    /// Iterates over the orders that an account keeps, in the order in which they finished.
    pub fn orders_of(&self, account: AccountId) -> impl Iterator<Item = OrderRow> {
        let slots = self.account(account).into_iter().flat_map(Account::orders);
        slots.map(|slot| self.row_of(slot))
    }

    /// Iterates over the `count` most recently finished orders of an account, or as many as it
    /// keeps, in the order in which they finished.
    pub fn newest_orders_of(
        &self,
        account: AccountId,
        count: usize,
    ) -> impl Iterator<Item = OrderRow> {
        let account = self.account(account);
        let older = account.map_or(0, |it| it.kept_order_count().saturating_sub(count));
        let slots = account.into_iter().flat_map(Account::orders).skip(older);
        slots.map(|slot| self.row_of(slot))
    }

    /// Iterates over the open orders, by account and then by id.
    pub fn open_orders(&self) -> impl Iterator<Item = OrderRow> {
        let slots = self.accounts.iter().flat_map(|(_, account)| account.open_orders());
        slots.map(|slot| self.row_of(slot))
    }

    /// Iterates over the displayed levels that resting orders have taken from, by account and then
    /// by book side.
    pub fn used_rows(&self) -> impl Iterator<Item = UsedRow> {
        self.accounts.iter().flat_map(|(_, account)| {
            account.used_sides().map(|(on, used)| UsedRow {
                account: account.id,
                on,
                levels: used.iter().map(|noted| noted.level).collect(),
            })
        })
    }

    fn row_of(&self, slot: u32) -> OrderRow {
        let order = &self.orders[slot];
        let delay = self.delays.get(order.id()).copied();
        OrderRow { delay, ..order.row(self.orders.order_state(slot).as_ref()) }
    }

    /// Returns the unpacked order with this id, if it is kept.
    pub fn order_row(&self, order: OrderId) -> Option<OrderRow> {
        self.orders.slot(order).map(|slot| self.row_of(slot))
    }
}

/// Compares everything except log positions and data that is not journaled.
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
            && self.open_orders().eq(other.open_orders())
            && self.used_rows().eq(other.used_rows())
            && self.fill_logs().eq(other.fill_logs())
            && self.undone_fills().eq(other.undone_fills())
            && self.accounts().all(|account| orders(self, account.id) == orders(other, account.id))
            && self.keys().eq(other.keys())
            && self.comments == other.comments
    }
}
