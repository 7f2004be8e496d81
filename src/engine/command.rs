//! What can be asked of a shard: the commands, and the values that they carry.

use std::sync::Arc;

use smallvec::SmallVec;

use super::idempotency::{Fingerprint, NAMES_PER_ORDER_MAX, NameHash};
use super::key::KeyGrant;
use super::payout::Decision;
use crate::ids::{AccountId, CommentId, KeyId, OrderId, ShardId};
use crate::market::book::Side;
use crate::money::{Price, Shares};

/// Opens the account of an identity, unless it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpenAccount(pub Identity);

/// Gives a key another name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RenameKey {
    /// Whose.
    pub account: AccountId,
    /// Which.
    pub key: KeyId,
    /// What it will be called.
    pub name: Option<Box<str>>,
    /// With which key the caller came; none for a token.
    pub asked_with: Option<KeyId>,
}

/// Ends a key, and on request all keys that were made with it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RevokeKey {
    /// Whose.
    pub account: AccountId,
    /// Which.
    pub key: KeyId,
    /// Whether keys made with it, and with those, end too.
    pub descendants: bool,
}

/// Writes a comment on an order of this shard.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WriteComment {
    /// On which order.
    pub order: OrderId,
    /// Who writes; the account may live in another shard.
    pub author: AccountId,
    /// What; 1 to 1,000 characters.
    pub content: Box<str>,
}

/// Takes a comment back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DeleteComment {
    /// Which.
    pub comment: CommentId,
    /// Who asks: only the author may.
    pub author: AccountId,
}

/// Keeps how a market is resolved, unless that was decided before. For the shard that
/// [`Decision::home`] names.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DecideSettlement(pub Arc<Decision>);

/// Pays some of the shard's positions in a market that is resolved, all of them in the end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle(pub Arc<Decision>);

/// Who somebody is, as the identity provider says.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Identity {
    /// SHA-256 of issuer, a zero byte, and subject. It alone decides which account is meant.
    pub digest: [u8; 32],
    /// Who vouches.
    pub issuer: Box<str>,
    /// The provider's name for the person or program.
    pub subject: Box<str>,
}

impl Identity {
    /// The shard that the account of this identity lives in.
    pub const fn shard(&self) -> ShardId {
        ShardId::of_digest(self.digest[0])
    }
}

/// Whose account a command acts on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// An account that exists: the caller came with one of its keys.
    Account(AccountId),
    /// The account of an identity, opened by this command if there is none: the caller came with an
    /// access token.
    Identity(Identity),
}

impl Owner {
    /// The shard that the account lives in.
    pub const fn shard(&self) -> ShardId {
        match self {
            Self::Account(account) => account.shard(),
            Self::Identity(identity) => identity.shard(),
        }
    }
}

/// A key to be made. Whether the caller may give what the grant says was decided before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateKey {
    /// For which account.
    pub owner: Owner,
    /// Refuse when the account has an active key: this is its first one.
    pub is_bootstrap: bool,
    /// With which key it is made; none for a token.
    pub created_by: Option<KeyId>,
    /// What the new key is and may do.
    pub grant: KeyGrant,
}

/// A key to be replaced by one that is and may do the same. Whether the caller may give that was
/// decided before.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RotateKey {
    /// Whose.
    pub account: AccountId,
    /// Which.
    pub key: KeyId,
    /// With which key the caller came; none for a token.
    pub asked_with: Option<KeyId>,
    /// How much longer the old key works; with 0 it is revoked.
    pub overlap_seconds: u32,
    /// SHA-256 of the new raw key.
    pub hash: [u8; 32],
    /// The first characters of the new raw key.
    pub prefix: Box<str>,
}

/// Buys or sells at the market: an order and the names it goes by.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Trade {
    /// For which account.
    pub owner: Owner,
    order: TradeOrder,
    names: OrderNames,
    fingerprint: Fingerprint,
}

impl Trade {
    /// An order for this account. It is hashed here, so that the shard need not.
    pub fn new(owner: Owner, order: TradeOrder, names: OrderNames) -> Self {
        let fingerprint = order.fingerprint();
        Self { owner, order, names, fingerprint }
    }

    /// What to buy or sell.
    pub const fn order(&self) -> &TradeOrder {
        &self.order
    }

    /// How the caller can name it again.
    pub const fn names(&self) -> &OrderNames {
        &self.names
    }

    /// What makes another request the same order.
    pub const fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }
}

/// A market order, all or nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TradeOrder {
    /// The market's condition id.
    pub market_id: Box<str>,
    /// The label of the outcome, as the caller wrote it.
    pub outcome: Box<str>,
    /// Which way.
    pub side: Side,
    /// Above 0, at most [`TradeOrder::QUANTITY_MAX`].
    pub quantity: Shares,
    /// The price that the caller saw, between 0 and 1.
    pub expected_price: Option<Price>,
    /// The most that the fill may be worse than the reference price, 0 to 10,000.
    pub max_slippage_bps: Option<u16>,
}

impl TradeOrder {
    /// One order is for at most a million shares.
    pub const QUANTITY_MAX: Shares = Shares::from_micros(1_000_000_000_000);
    /// What counts as too much slippage when a caller names a price but no bound.
    pub const MAX_SLIPPAGE_BPS_DEFAULT: u16 = 500;

    /// What makes two requests the same order: the trading fields as they were sent, the case of
    /// the outcome apart.
    pub fn fingerprint(&self) -> Fingerprint {
        let outcome: SmallVec<[u8; 32]> = if self.outcome.is_ascii() {
            self.outcome.bytes().map(|byte| byte.to_ascii_lowercase()).collect()
        } else {
            self.outcome.to_lowercase().into_bytes().into()
        };
        let side = [u8::from(self.side == Side::Sell)];
        let quantity = self.quantity.micros().to_le_bytes();
        let expected_price = self.expected_price.map(|price| price.micros().to_le_bytes());
        let max_slippage_bps = self.max_slippage_bps.map(u16::to_le_bytes);
        let sent = [
            (b'm', self.market_id.as_bytes()),
            (b'o', &outcome[..]),
            (b's', &side[..]),
            (b'q', &quantity[..]),
        ];
        let optional = [
            expected_price.as_ref().map(|bytes| (b'e', &bytes[..])),
            max_slippage_bps.as_ref().map(|bytes| (b'x', &bytes[..])),
        ];
        Fingerprint::of_fields(sent.into_iter().chain(optional.into_iter().flatten()))
    }
}

/// The names of an order within its account.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct OrderNames {
    hashes: SmallVec<[NameHash; NAMES_PER_ORDER_MAX]>,
    client_order_id: Option<Box<str>>,
}

impl OrderNames {
    /// These names: from the header, from the body, from a batch. Equal ones count once, and there
    /// are at most [`NAMES_PER_ORDER_MAX`]. `client_order_id` is the one that the body gave, shown
    /// with the order.
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
        assert!(hashes.len() <= NAMES_PER_ORDER_MAX, "one name from each place that can give one");
        Self { hashes, client_order_id }
    }

    /// The names, each once.
    pub fn hashes(&self) -> &[NameHash] {
        &self.hashes
    }

    /// The name that the body gave.
    pub fn client_order_id(&self) -> Option<&str> {
        self.client_order_id.as_deref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_trading_field_counts_and_case_of_the_outcome_does_not() {
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
