//! Describes a journal record for people and for scripts. Pure.
//!
//! The output contains no secrets: no hashes of keys or names, no fingerprints, no identity
//! digests. JSON field names and event kinds are an interface that scripts rely on. Prices, sizes
//! and amounts of money are strings in JSON.

mod operator;
mod order;
mod reset;
mod undo;

use std::fmt;
use std::sync::Arc;

use serde::Serialize;

pub use operator::ActRow;
pub use order::{DelayedRow, FillRow, LevelRow, PlacedRow, RestingFillRow};
pub use reset::ResetRow;
pub use undo::UndoneRow;

use super::text::Text;
use crate::journal::record::RecordHeader;
use paperbourse_core::engine::UsedMarket;
use paperbourse_core::engine::event::{Event, OrderFilled};
use paperbourse_core::engine::key::{KeyGrant, Permission, WalletGrant};
use paperbourse_core::engine::market::payout::PositionsSettled;
use paperbourse_core::ids::{AccountId, KeyId, MarketIndex, Timestamp};
use paperbourse_core::money::{Price, Shares, Usd};

/// The printable form of a record.
#[derive(Debug, Serialize)]
pub struct RecordRow<'a> {
    /// The record's position in the journal, from 1.
    pub position: u64,
    /// The record's epoch.
    pub epoch: u64,
    /// The shard that the events belong to.
    pub shard: u8,
    /// The record's sequence number within the shard, from 1.
    pub sequence: u64,
    /// Time at which the command was decided.
    pub time: Text<Timestamp>,
    /// The events, in order.
    pub events: Vec<EventRow<'a>>,
}

impl<'a> RecordRow<'a> {
    /// Describes a record. `market` resolves a market index of the record's shard; it returns
    /// `None` if the market is no longer known.
    pub fn new(
        position: u64,
        header: &RecordHeader,
        events: &'a [Event],
        mut market: impl FnMut(MarketIndex) -> Option<UsedMarket>,
    ) -> Self {
        Self {
            position,
            epoch: header.epoch,
            shard: header.shard.get(),
            sequence: header.sequence,
            time: Text(header.at),
            events: events.iter().map(|event| EventRow::new(event, &mut market)).collect(),
        }
    }
}

/// Formats one line: position, epoch, shard, sequence within the shard, time, events.
impl fmt::Display for RecordRow<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { position, epoch, shard, sequence, time, events } = self;
        write!(formatter, "{position} epoch {epoch} shard {shard} record {sequence} {time}: ")?;
        for (index, event) in events.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(formatter, "{separator}{event}")?;
        }
        Ok(())
    }
}

/// The printable form of an event.
#[derive(Debug, Serialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub enum EventRow<'a> {
    /// [`Event::AccountOpened`].
    AccountOpened {
        account: u64,
        issuer: &'a str,
        subject: &'a str,
        granted: Text<Usd>,
        at: Text<Timestamp>,
    },
    /// [`Event::KeyCreated`].
    KeyCreated {
        key: u64,
        account: u64,
        prefix: &'a str,
        name: Option<&'a str>,
        tier: &'static str,
        permissions: Vec<&'static str>,
        expires_at: Option<Text<Timestamp>>,
        created_by: Option<u64>,
        #[serde(skip_serializing_if = "Option::is_none")]
        wallet: Option<WalletRow>,
        at: Text<Timestamp>,
    },
    /// [`Event::KeyRevoked`].
    KeyRevoked { key: u64, at: Text<Timestamp> },
    /// [`Event::KeyRenamed`].
    KeyRenamed { key: u64, name: Option<&'a str> },
    /// [`Event::KeyExpirySet`].
    KeyExpirySet { key: u64, expires_at: Text<Timestamp> },
    /// [`Event::KeyForgotten`].
    KeyForgotten { key: u64 },
    /// [`Event::MarketIntroduced`].
    MarketIntroduced { market_index: u32, market_id: &'a str, outcomes: Vec<OutcomeRow<'a>> },
    /// [`Event::OrderFilled`].
    OrderFilled(Box<FillRow<'a>>),
    /// [`Event::OrderPlaced`].
    OrderPlaced(Box<PlacedRow<'a>>),
    /// [`Event::OrderDelayed`].
    #[serde(rename = "order_held")]
    OrderDelayed(Box<DelayedRow<'a>>),
    /// [`Event::DelayedOrderDropped`].
    #[serde(rename = "held_order_dropped")]
    DelayedOrderDropped { order: u64 },
    /// [`Event::OrderAdmitted`].
    OrderAdmitted { order: u64 },
    /// [`Event::RestingFilled`].
    RestingFilled(Box<RestingFillRow>),
    /// [`Event::FillUndone`].
    FillUndone(Box<UndoneRow>),
    /// [`Event::OrderEnded`].
    OrderEnded { order: u64, reason: &'static str, at: Text<Timestamp> },
    /// [`Event::AccountReset`].
    AccountReset(ResetRow),
    /// [`Event::OperatorActed`].
    OperatorActed(Box<ActRow<'a>>),
    /// [`Event::HeartbeatSet`].
    HeartbeatSet { account: u64, interval_ms: Option<u32> },
    /// [`Event::FillLogBegun`].
    FillLogBegun { account: u64 },
    /// [`Event::OrderForgotten`].
    OrderForgotten { order: u64 },
    /// [`Event::CommentAdded`].
    CommentAdded { comment: u64, order: u64, author: u64, content: &'a str, at: Text<Timestamp> },
    /// [`Event::CommentDeleted`].
    CommentDeleted { comment: u64 },
    /// [`Event::SettlementDecided`].
    SettlementDecided {
        market_id: &'a str,
        payouts: Vec<PayoutRow<'a>>,
        evidence: &'a str,
        at: Text<Timestamp>,
    },
    /// [`Event::PositionsSettled`].
    PositionsSettled(Box<SettledRow>),
    /// [`Event::MarketSettled`].
    MarketSettled {
        market_index: u32,
        /// `None` if the record that names the market is gone.
        market_id: Option<Text<Arc<str>>>,
        payouts: Vec<Text<Price>>,
        at: Text<Timestamp>,
    },
    /// [`Event::StateChecked`].
    StateChecked { hash: String },
}

/// Returns the name of an event's kind in JSON.
pub const fn kind(event: &Event) -> &'static str {
    match event {
        Event::AccountOpened { .. } => "account_opened",
        Event::KeyCreated { .. } => "key_created",
        Event::KeyRevoked { .. } => "key_revoked",
        Event::KeyForgotten { .. } => "key_forgotten",
        Event::KeyRenamed { .. } => "key_renamed",
        Event::KeyExpirySet { .. } => "key_expiry_set",
        Event::MarketIntroduced { .. } => "market_introduced",
        Event::OrderFilled(_) => "order_filled",
        Event::OrderPlaced(_) => "order_placed",
        Event::OrderDelayed(_) => "order_held",
        Event::DelayedOrderDropped { .. } => "held_order_dropped",
        Event::OrderAdmitted { .. } => "order_admitted",
        Event::RestingFilled(_) => "resting_filled",
        Event::FillUndone(_) => "fill_undone",
        Event::OrderEnded { .. } => "order_ended",
        Event::AccountReset(_) => "account_reset",
        Event::OperatorActed(_) => "operator_acted",
        Event::HeartbeatSet { .. } => "heartbeat_set",
        Event::FillLogBegun { .. } => "fill_log_begun",
        Event::OrderForgotten { .. } => "order_forgotten",
        Event::CommentAdded { .. } => "comment_added",
        Event::CommentDeleted { .. } => "comment_deleted",
        Event::SettlementDecided { .. } => "settlement_decided",
        Event::PositionsSettled(_) => "positions_settled",
        Event::MarketSettled { .. } => "market_settled",
        Event::StateChecked { .. } => "state_checked",
    }
}

/// The payout of one token.
#[derive(Debug, Serialize)]
pub struct PayoutRow<'a> {
    /// The token's id.
    pub token_id: &'a str,
    /// The payout, in dollars per share.
    pub payout: Text<Price>,
}

/// The positions settled in one market by one event.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct SettledRow {
    pub market_index: u32,
    /// `None` if the record that names the market is gone.
    pub market_id: Option<Text<Arc<str>>>,
    pub payouts: Vec<Text<Price>>,
    pub positions: Vec<PaidRow>,
    pub at: Text<Timestamp>,
}

/// One settled position.
#[derive(Debug, Serialize)]
#[expect(missing_docs, reason = "the fields are those of the event")]
pub struct PaidRow {
    pub account: u64,
    pub outcome_index: u8,
    pub shares: Text<Shares>,
    pub payout: Text<Usd>,
    pub balance: Text<Usd>,
}

/// The wallet to which a key was granted.
#[derive(Debug, Serialize)]
pub struct WalletRow {
    /// The address: `0x` and 40 hexadecimal digits in lower case.
    pub address: String,
    /// The nonce that the wallet has signed.
    pub nonce: u64,
}

impl WalletRow {
    fn of(WalletGrant { address, nonce }: WalletGrant) -> Self {
        let digits = address.iter().map(|byte| format!("{byte:02x}"));
        Self { address: format!("0x{}", digits.collect::<String>()), nonce }
    }
}

/// An outcome of a market.
#[derive(Debug, Serialize)]
pub struct OutcomeRow<'a> {
    /// The outcome's label.
    pub label: &'a str,
    /// The id of the outcome's token.
    pub token_id: &'a str,
}

impl<'a> EventRow<'a> {
    fn key_created(
        key: KeyId,
        account: AccountId,
        grant: &'a KeyGrant,
        created_by: Option<KeyId>,
        at: Timestamp,
    ) -> Self {
        Self::KeyCreated {
            key: key.get(),
            account: account.get(),
            prefix: &grant.prefix,
            name: grant.name.as_deref(),
            tier: grant.tier.as_str(),
            permissions: grant.permissions.iter().map(Permission::as_str).collect(),
            expires_at: grant.expires_at.map(Text),
            created_by: created_by.map(KeyId::get),
            wallet: grant.wallet.map(WalletRow::of),
            at: Text(at),
        }
    }

    /// Describes an event. For `market`, see [`RecordRow::new`].
    fn new(event: &'a Event, market: &mut impl FnMut(MarketIndex) -> Option<UsedMarket>) -> Self {
        match event {
            Event::AccountOpened { account, identity, granted, at } => Self::AccountOpened {
                account: account.get(),
                issuer: &identity.issuer,
                subject: &identity.subject,
                granted: Text(*granted),
                at: Text(*at),
            },
            Event::KeyCreated { key, account, grant, created_by, at } => {
                Self::key_created(*key, *account, grant, *created_by, *at)
            }
            Event::KeyRevoked { key, at } => Self::KeyRevoked { key: key.get(), at: Text(*at) },
            Event::KeyForgotten { key } => Self::KeyForgotten { key: key.get() },
            Event::KeyRenamed { key, name } => {
                Self::KeyRenamed { key: key.get(), name: name.as_deref() }
            }
            Event::KeyExpirySet { key, expires_at } => {
                Self::KeyExpirySet { key: key.get(), expires_at: Text(*expires_at) }
            }
            Event::MarketIntroduced { index, condition_id, outcomes } => {
                let outcomes = outcomes.iter();
                let row =
                    |(label, token_id): &'a (Arc<str>, Arc<str>)| OutcomeRow { label, token_id };
                Self::MarketIntroduced {
                    market_index: index.0,
                    market_id: condition_id,
                    outcomes: outcomes.map(row).collect(),
                }
            }
            Event::OrderFilled(filled) => {
                let market = market(filled.placement.market);
                let OrderFilled { placement, fill, levels, book_sequence, slippage_bps } =
                    &**filled;
                let taken = (fill, &levels[..], *book_sequence, *slippage_bps);
                Self::OrderFilled(Box::new(FillRow::new(placement, taken, market)))
            }
            Event::OrderPlaced(placed) => {
                let market = market(placed.placement.market);
                Self::OrderPlaced(Box::new(PlacedRow::new(placed, market)))
            }
            Event::OrderDelayed(delayed) => {
                let market = market(delayed.placement.market);
                Self::OrderDelayed(Box::new(DelayedRow::new(delayed, market)))
            }
            Event::DelayedOrderDropped { order } => {
                Self::DelayedOrderDropped { order: order.get() }
            }
            Event::OrderAdmitted { order } => Self::OrderAdmitted { order: order.get() },
            Event::RestingFilled(filled) => {
                Self::RestingFilled(Box::new(RestingFillRow::new(filled)))
            }
            Event::FillUndone(undone) => Self::FillUndone(Box::new(UndoneRow::new(undone))),
            Event::OrderEnded { order, reason, at } => {
                Self::OrderEnded { order: order.get(), reason: reason.as_str(), at: Text(*at) }
            }
            Event::AccountReset(reset) => Self::AccountReset(ResetRow::new(reset)),
            Event::OperatorActed(acted) => Self::OperatorActed(Box::new(ActRow::new(acted))),
            Event::FillLogBegun { account } => Self::FillLogBegun { account: account.get() },
            Event::HeartbeatSet { account, interval_ms } => {
                Self::HeartbeatSet { account: account.get(), interval_ms: *interval_ms }
            }
            Event::OrderForgotten { order } => Self::OrderForgotten { order: order.get() },
            Event::CommentAdded { comment, order, author, content, at } => Self::CommentAdded {
                comment: comment.get(),
                order: order.get(),
                author: author.get(),
                content,
                at: Text(*at),
            },
            Event::CommentDeleted { comment } => Self::CommentDeleted { comment: comment.get() },
            Event::SettlementDecided { decision, at } => Self::SettlementDecided {
                market_id: &decision.condition_id,
                payouts: decision
                    .payouts
                    .iter()
                    .map(|(token_id, payout)| PayoutRow { token_id, payout: Text(*payout) })
                    .collect(),
                evidence: &decision.evidence,
                at: Text(*at),
            },
            Event::PositionsSettled(settled) => {
                Self::PositionsSettled(Box::new(SettledRow::new(settled, market(settled.market))))
            }
            Event::MarketSettled { market: index, payouts, at } => Self::MarketSettled {
                market_index: index.0,
                market_id: market(*index).map(|market| Text(market.condition_id)),
                payouts: payouts.iter().copied().map(Text).collect(),
                at: Text(*at),
            },
            Event::StateChecked { hash } => {
                Self::StateChecked { hash: format!("{:016x}", hash.get()) }
            }
        }
    }
}

impl SettledRow {
    fn new(settled: &PositionsSettled, market: Option<UsedMarket>) -> Self {
        let paid = settled.positions.iter().map(|paid| PaidRow {
            account: paid.account.get(),
            outcome_index: paid.outcome.0,
            shares: Text(paid.shares),
            payout: Text(paid.payout),
            balance: Text(paid.balance),
        });
        Self {
            market_index: settled.market.0,
            market_id: market.map(|market| Text(market.condition_id)),
            payouts: settled.payouts.iter().copied().map(Text).collect(),
            positions: paid.collect(),
            at: Text(settled.at),
        }
    }
}

/// Quotes text chosen by clients and escapes its control characters, so that a record stays on one
/// line.
impl fmt::Display for EventRow<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AccountOpened { account, issuer, subject, granted, .. } => write!(
                formatter,
                "opened account {account} of {subject:?} at {issuer:?} with {granted}"
            ),
            Self::KeyCreated {
                key,
                account,
                prefix,
                name,
                tier,
                permissions,
                expires_at,
                created_by,
                wallet,
                ..
            } => {
                write!(formatter, "created key {key} of account {account}: {prefix:?}")?;
                if let Some(name) = name {
                    write!(formatter, " named {name:?}")?;
                }
                write!(formatter, ", tier {tier}, may {}", permissions.join(" and "))?;
                if let Some(expires_at) = expires_at {
                    write!(formatter, ", expires {expires_at}")?;
                }
                match (created_by, wallet) {
                    (_, Some(WalletRow { address, nonce })) => {
                        write!(formatter, ", granted to wallet {address} for nonce {nonce}")
                    }
                    (Some(maker), None) => write!(formatter, ", made with key {maker}"),
                    (None, None) => write!(formatter, ", made with a token"),
                }
            }
            Self::KeyRevoked { key, .. } => write!(formatter, "revoked key {key}"),
            Self::KeyForgotten { key } => write!(formatter, "forgot key {key}"),
            Self::KeyRenamed { key, name: Some(name) } => {
                write!(formatter, "named key {key} {name:?}")
            }
            Self::KeyRenamed { key, name: None } => {
                write!(formatter, "took the name of key {key} away")
            }
            Self::KeyExpirySet { key, expires_at } => {
                write!(formatter, "rotated key {key}, which ends {expires_at}")
            }
            Self::MarketIntroduced { market_index, market_id, outcomes } => {
                let market_id = market_id.escape_debug();
                write!(formatter, "introduced market {market_index}: {market_id} with")?;
                for (index, outcome) in outcomes.iter().enumerate() {
                    let separator = if index == 0 { " " } else { ", " };
                    write!(formatter, "{separator}{:?}", outcome.label)?;
                }
                Ok(())
            }
            Self::OrderFilled(fill) => fill.fmt(formatter),
            Self::OrderPlaced(placed) => placed.fmt(formatter),
            Self::OrderDelayed(delayed) => delayed.fmt(formatter),
            Self::DelayedOrderDropped { order } => write!(formatter, "dropped held order {order}"),
            Self::OrderAdmitted { order } => {
                write!(formatter, "admitted order {order} to a fresh book")
            }
            Self::RestingFilled(fill) => fill.fmt(formatter),
            Self::FillUndone(undone) => undone.fmt(formatter),
            Self::OrderEnded { order, reason, .. } => {
                write!(formatter, "ended order {order}: {reason}")
            }
            Self::AccountReset(reset) => reset.fmt(formatter),
            Self::OperatorActed(act) => act.fmt(formatter),
            Self::HeartbeatSet { account, interval_ms: Some(interval_ms) } => {
                write!(formatter, "account {account} sends a heartbeat every {interval_ms} ms")
            }
            Self::HeartbeatSet { account, interval_ms: None } => {
                write!(formatter, "account {account} no longer sends a heartbeat")
            }
            Self::FillLogBegun { account } => write!(formatter, "account {account} logs its fills"),
            Self::OrderForgotten { order } => write!(formatter, "forgot order {order}"),
            Self::CommentAdded { comment, order, author, content, .. } => write!(
                formatter,
                "account {author} wrote comment {comment} on order {order}: {content:?}"
            ),
            Self::CommentDeleted { comment } => write!(formatter, "deleted comment {comment}"),
            Self::SettlementDecided { market_id, payouts, evidence, .. } => {
                write!(formatter, "decided that market {} pays", market_id.escape_debug())?;
                for (index, PayoutRow { token_id, payout }) in payouts.iter().enumerate() {
                    let separator = if index == 0 { " " } else { ", " };
                    write!(formatter, "{separator}{payout} for {}", token_id.escape_debug())?;
                }
                write!(formatter, ": {evidence:?}")
            }
            Self::PositionsSettled(settled) => settled.fmt(formatter),
            Self::MarketSettled { market_index, market_id, .. } => {
                write!(formatter, "settled {}", MarketName(*market_index, market_id.as_ref()))
            }
            Self::StateChecked { hash } => write!(formatter, "checked state {hash}"),
        }
    }
}

impl fmt::Display for SettledRow {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { market_index, market_id, positions, .. } = self;
        write!(formatter, "paid in {}:", MarketName(*market_index, market_id.as_ref()))?;
        for (index, paid) in positions.iter().enumerate() {
            let PaidRow { account, outcome_index, shares, payout, balance } = paid;
            let separator = if index == 0 { " " } else { ", " };
            write!(
                formatter,
                "{separator}account {account} {payout} for {shares} of outcome {outcome_index}, \
                 balance {balance}"
            )?;
        }
        Ok(())
    }
}

/// A market, by the venue's name, or by its index in the shard if the record that names it is gone.
struct MarketName<'a>(u32, Option<&'a Text<Arc<str>>>);

impl fmt::Display for MarketName<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self(_, Some(Text(market_id))) => write!(formatter, "{}", market_id.escape_debug()),
            Self(index, None) => write!(formatter, "market {index}"),
        }
    }
}

#[cfg(test)]
mod tests;
