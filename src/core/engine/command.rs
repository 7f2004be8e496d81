//! The commands that a shard executes, and their parameters.

use std::sync::Arc;

use smallvec::SmallVec;

use crate::engine::comment::Written;
use crate::engine::key::{KeyGrant, Permissions, WalletGrant};
use crate::engine::market::payout::Decision;
use crate::engine::order::idempotency::{
    Fingerprint, NAMES_PER_ORDER_MAX, NameHash, RequestedOrder,
};
use crate::engine::order::open::Priority;
use crate::engine::order::payload::{Intent, NewOrder};
use crate::engine::order::terms::{OrderKind, Terms, TimeInForce};
use crate::ids::{AccountId, CommentId, KeyId, OrderId, OutcomeIndex, ShardId, Timestamp};
use crate::limits::tier::Tier;
use crate::market::book::{Book, Side};
use crate::money::{Price, Shares};

/// Opens an account for an identity. Does nothing if the identity already has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenAccount(pub Identity);

/// Renames a key.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenameKey {
    /// The account that the key belongs to.
    pub account: AccountId,
    /// The key to rename.
    pub key: KeyId,
    /// The new name; `None` removes the name.
    pub name: Option<Box<str>>,
    /// The key that the caller authenticated with; `None` for an access token.
    pub caller_key: Option<KeyId>,
}

/// Revokes a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RevokeKey {
    /// The account that the key belongs to.
    pub account: AccountId,
    /// The key to revoke.
    pub key: KeyId,
    /// Whether to also revoke the keys that this key created, directly or indirectly.
    pub descendants: bool,
}

/// Adds a comment to an order of this shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteComment {
    /// The order to comment on.
    pub order: OrderId,
    /// The author's account, which may be in another shard.
    pub author: AccountId,
    /// The text, 1 to 1,000 characters long.
    pub content: Box<str>,
    /// The number of the author's comments in the other shards, and the oldest of them.
    pub elsewhere: Written,
}

/// Deletes a comment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeleteComment {
    /// The comment to delete.
    pub comment: CommentId,
    /// The caller's account, which must be the author's.
    pub author: AccountId,
}

/// Deletes a comment by any author, on behalf of an operator.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RemoveComment(pub CommentId);

/// Records the resolution of a market, unless one is already recorded. Must be sent to the shard
/// that [`Decision::home`] returns.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecideSettlement(pub Arc<Decision>);

/// Ends a bounded number of the shard's open orders in a resolved market. Once no order is open,
/// pays a bounded number of the shard's positions in the market instead. Repeat until all positions
/// are paid.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle(pub Arc<Decision>);

/// A user's identity at the identity provider.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// SHA-256 of the issuer, a zero byte and the subject. This digest alone identifies the
    /// account.
    pub digest: [u8; 32],
    /// The issuer of the identity.
    pub issuer: Box<str>,
    /// The issuer's identifier for the person or program.
    pub subject: Box<str>,
}

impl Identity {
    /// Returns the shard of this identity's account.
    pub const fn shard(&self) -> ShardId {
        ShardId::of_digest(self.digest[0])
    }
}

/// The account that a command acts on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// An existing account, for a caller with one of its keys.
    Account(AccountId),
    /// The account of an identity, for a caller with an access token. The command opens an account
    /// if the identity has none.
    Identity(Identity),
}

impl Owner {
    /// Returns the account's shard.
    pub const fn shard(&self) -> ShardId {
        match self {
            Self::Account(account) => account.shard(),
            Self::Identity(identity) => identity.shard(),
        }
    }
}

/// Creates a key. The caller must already be authorised to grant it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateKey {
    /// The owner of the new key.
    pub owner: Owner,
    /// Whether to reject the command if the account has an active key.
    pub is_bootstrap: bool,
    /// The key that the caller authenticated with; `None` for an access token.
    pub created_by: Option<KeyId>,
    /// The properties of the new key.
    pub grant: KeyGrant,
}

/// Grants a key to a wallet. Does nothing if the wallet has a key for the same nonce that was
/// neither revoked nor rotated.
#[derive(Clone)]
pub struct GrantWalletKey<F> {
    /// The account of the wallet.
    pub owner: Owner,
    /// The wallet, and the nonce that it has signed.
    pub wallet: WalletGrant,
    /// The name of the new key; at most 100 characters.
    pub name: Box<str>,
    /// The tier of the new key, unless an operator has given the account another one.
    pub tier: Tier,
    /// The permissions of the new key.
    pub permissions: Permissions,
    /// Derives the raw key from its generation. Always returns the same for the same generation.
    pub derive: F,
}

/// What is stored of a raw key that was derived for a wallet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WalletKeyText {
    /// SHA-256 of the raw key.
    pub hash: [u8; 32],
    /// The first characters of the raw key; at most
    /// [`KEY_PREFIX_BYTES_MAX`](crate::engine::key::KEY_PREFIX_BYTES_MAX) bytes.
    pub prefix: Box<str>,
}

/// Replaces a key with a new one that has the same name, tier and permissions. The caller must
/// already be authorised to grant them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RotateKey {
    /// The account that the key belongs to.
    pub account: AccountId,
    /// The key to replace.
    pub key: KeyId,
    /// The key that the caller authenticated with; `None` for an access token.
    pub caller_key: Option<KeyId>,
    /// How long the old key keeps working, in seconds; 0 revokes it at once.
    pub overlap_seconds: u32,
    /// SHA-256 of the new raw key.
    pub hash: [u8; 32],
    /// The first characters of the new raw key.
    pub prefix: Box<str>,
}

/// Places a market order that fills completely or not at all.
pub type Trade = OrderCommand<TradeOrder>;

/// Places an order of any kind.
pub type PlaceOrder = OrderCommand<NewOrder>;

/// Places an order of type `O` for an owner.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrderCommand<O> {
    /// The owner of the order.
    pub owner: Owner,
    order: O,
    names: OrderNames,
    fingerprint: Fingerprint,
    /// For how long a marketable order is held at least, in milliseconds.
    delay_ms_min: u32,
}

impl<O: RequestedOrder> OrderCommand<O> {
    /// Creates the command. The fingerprint is computed here, on the caller's thread, to spare the
    /// shard the work.
    pub fn new(owner: Owner, order: O, names: OrderNames) -> Self {
        let fingerprint = order.fingerprint();
        Self { owner, order, names, fingerprint, delay_ms_min: 0 }
    }

    /// Has a marketable order held before it is matched for at least so many milliseconds, also in
    /// a market without a delay. This is no part of the order's fingerprint.
    #[must_use]
    pub fn held_for(self, delay_ms_min: u32) -> Self {
        Self { delay_ms_min, ..self }
    }

    /// Returns for how long a marketable order is held at least, in milliseconds.
    pub(in crate::engine) const fn delay_ms_min(&self) -> u32 {
        self.delay_ms_min
    }

    /// Returns the requested order.
    pub const fn order(&self) -> &O {
        &self.order
    }

    /// Returns the caller's names for the order, which identify it in lookups and retries.
    pub const fn names(&self) -> &OrderNames {
        &self.names
    }

    /// Returns the fingerprint of the order; see [`RequestedOrder::fingerprint`].
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// A market order that fills completely or not at all.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TradeOrder {
    /// The market's condition id.
    pub market_id: Box<str>,
    /// The label of the outcome, as the caller wrote it.
    pub outcome: Box<str>,
    /// Buy or sell.
    pub side: Side,
    /// The number of shares; above 0, at most [`TradeOrder::QUANTITY_MAX`].
    pub quantity: Shares,
    /// The price that the caller saw, between 0 and 1: the reference for slippage. If `None`, the
    /// reference is the best price in the book.
    pub expected_price: Option<Price>,
    /// The maximum slippage from the reference price in basis points, 0 to 10,000.
    pub max_slippage_bps: Option<u16>,
}

impl TradeOrder {
    /// The maximum quantity of an order: a million shares.
    pub const QUANTITY_MAX: Shares = Shares::from_micros(1_000_000_000_000);
    /// The slippage bound, in basis points, of an order that has an expected price but no bound.
    pub const MAX_SLIPPAGE_BPS_DEFAULT: u16 = 500;

    /// Returns the order's side, terms and slippage bound, without its market.
    pub(super) const fn intent(&self) -> Intent {
        let terms =
            Terms::of_order(OrderKind::Market, TimeInForce::FillOrKill, self.quantity, None);
        Intent {
            side: self.side,
            terms,
            amount: None,
            expected_price: self.expected_price,
            max_slippage_bps: self.max_slippage_bps,
        }
    }
}

impl RequestedOrder for TradeOrder {
    fn market_id(&self) -> &str {
        &self.market_id
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of_order(
            (&self.market_id, &self.outcome, self.side),
            Some(self.quantity),
            (self.expected_price, self.max_slippage_bps),
            &[],
        )
    }
}

/// Cancels an open order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelOrder {
    /// The account that the order belongs to.
    pub account: AccountId,
    /// The order to cancel.
    pub order: OrderId,
}

/// Cancels a bounded number of an account's open orders. Repeat until none is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CancelOrders {
    /// The account whose orders are cancelled.
    pub account: AccountId,
    /// Only orders in the market with this condition id.
    pub market_id: Option<Box<str>>,
    /// Only orders in the outcome with this token.
    pub token_id: Option<Box<str>>,
    /// Only orders newer than this one. Set this to the last order that the previous command
    /// cancelled, so that each order is examined once.
    pub after: Option<OrderId>,
}

/// Ends a bounded number of the shard's expired orders. Repeat until none is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ExpireOrders;

/// Ends a bounded number of the shard's open orders in a market whose books the venue clears.
/// Repeat until none is left.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClearBooks {
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// When the venue clears the books. Orders placed at or after this time stay open.
    pub at: Timestamp,
}

/// Records a heartbeat of an account. Once the account has been silent for longer than its interval
/// allows, its open orders are cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SetHeartbeat {
    /// The account that sent the heartbeat.
    pub account: AccountId,
    /// The heartbeat interval in milliseconds, within
    /// [`INTERVAL_MS`](crate::engine::order::heartbeats::INTERVAL_MS).
    pub interval_ms: u32,
}

/// Cancels a bounded number of open orders of accounts whose heartbeat stopped. Repeat until none
/// is left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CancelOnDisconnect;

/// Fills a bounded number of the shard's orders that a market's books cross. Repeat with the
/// returned cursor until it is `None`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchOrders {
    /// The market's condition id.
    pub market_id: Arc<str>,
    /// The outcome and its book as published; `None` to match the newest books of all outcomes.
    pub book: Option<(OutcomeIndex, Arc<Book>)>,
    /// The cursor that the previous command returned; `None` to start at the best price.
    pub after: Option<Priority>,
}

/// The names of an order within its account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OrderNames {
    hashes: SmallVec<[NameHash; NAMES_PER_ORDER_MAX]>,
    client_order_id: Option<Box<str>>,
    is_batch_entry: bool,
}

impl OrderNames {
    /// Derives two names for an entry of a named batch that has no name of its own: one from the
    /// entry's index, and one from its content. A retry is then detected even if the entry has
    /// moved, or if another entry has taken its place.
    pub fn of_batch_entry(
        batch_name: &str,
        index: u32,
        fingerprint: Fingerprint,
        twin_count: u32,
    ) -> Self {
        let by_index = NameHash::of_batch_entry(batch_name, index);
        let by_order = NameHash::of_batch_order(batch_name, fingerprint, twin_count);
        let hashes = SmallVec::from_buf([by_index, by_order]);
        Self { hashes, client_order_id: None, is_batch_entry: true }
    }

    /// Collects the names from the header, the body or the batch. Duplicates count once.
    /// `client_order_id` is the name from the body, which is shown with the order.
    ///
    /// # Panics
    ///
    /// If there are more than [`NAMES_PER_ORDER_MAX`] distinct names.
    pub fn new(
        names: impl IntoIterator<Item = NameHash>,
        client_order_id: Option<Box<str>>,
    ) -> Self {
        let mut hashes = SmallVec::new();
        for name in names {
            if !hashes.contains(&name) {
                hashes.push(name);
            }
        }
        assert!(hashes.len() <= NAMES_PER_ORDER_MAX, "at most one name from each source");
        Self { hashes, client_order_id, is_batch_entry: false }
    }

    /// Whether the names were derived from the name of a batch.
    pub const fn is_batch_entry(&self) -> bool {
        self.is_batch_entry
    }

    /// Returns the hashes of the names, without duplicates.
    pub fn hashes(&self) -> &[NameHash] {
        &self.hashes
    }

    /// Returns the order's name from the request's body, if the body had one.
    pub fn client_order_id(&self) -> Option<&str> {
        self.client_order_id.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_covers_every_trading_field_but_not_the_case_of_the_outcome() {
        let order = TradeOrder {
            market_id: "0xa".into(),
            outcome: "Yes".into(),
            side: Side::Buy,
            quantity: Shares::from_micros(1),
            expected_price: None,
            max_slippage_bps: None,
        };
        let base = order.fingerprint();
        assert_eq!(TradeOrder { outcome: "YES".into(), ..order.clone() }.fingerprint(), base);
        for other in [
            TradeOrder { market_id: "0xb".into(), ..order.clone() },
            TradeOrder { outcome: "No".into(), ..order.clone() },
            TradeOrder { side: Side::Sell, ..order.clone() },
            TradeOrder { quantity: Shares::from_micros(2), ..order.clone() },
            TradeOrder { expected_price: Some(Price::ZERO), ..order.clone() },
            TradeOrder { max_slippage_bps: Some(0), ..order.clone() },
        ] {
            assert_ne!(other.fingerprint(), base, "{other:?}");
        }
    }
}
