//! An order in the form of the venue's CLOB.

use std::borrow::Cow;

use serde::{Serialize, Serializer};

use super::stage::{Stage, TradeIds};
use super::{Party, is_digest, order_id};
use paperbourse_clob::order::EXPIRATION_EARLY_SECONDS;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::order::terms::{EndReason, OrderStatus};
use paperbourse_core::engine::state::view::ListedOrder;
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::money::Price;
use paperbourse_core::wire::Decimal;

/// An order. Clients fail if a key is missing.
#[derive(Serialize)]
pub(crate) struct OrderRow<'a> {
    id: Cow<'a, str>,
    pub(crate) status: &'static str,
    owner: &'a str,
    maker_address: String,
    market: Cow<'a, str>,
    asset_id: &'a str,
    side: &'static str,
    /// In shares, also for an order that spends an amount of dollars.
    original_size: Decimal,
    /// In shares.
    size_matched: Decimal,
    /// The limit, or the worst price that a market order accepts.
    price: Decimal,
    outcome: &'a str,
    pub(crate) created_at: CreatedAt,
    /// In seconds since 1970, as text; `0` if the order does not expire.
    expiration: String,
    order_type: &'static str,
    associate_trades: TradeIds,
}

/// When an order was placed, in seconds since 1970. On sockets, this is text.
pub(crate) enum CreatedAt {
    Number(i64),
    Text(i64),
}

impl Serialize for CreatedAt {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Number(seconds) => serializer.serialize_i64(*seconds),
            Self::Text(seconds) => serializer.collect_str(seconds),
        }
    }
}

impl<'a> OrderRow<'a> {
    pub(crate) fn of(listed: &'a ListedOrder, party: &Party<'a>) -> Self {
        let ListedOrder { receipt, token_id } = listed;
        let stage = Stage::now(receipt);
        let price = stage.worst_price().or_else(|| stage.fill_price()).unwrap_or(Price::ZERO);
        let order_type = stage.time_in_force();
        let expiration = order_type.expires_at().map_or(0, |at| stated_expiration(receipt, at));
        Self {
            id: order_id(receipt.order, receipt.client_order_id.as_deref()),
            status: status(receipt, &stage),
            owner: party.owner,
            maker_address: party.wallet.checksummed(),
            market: condition::wide(&receipt.market_id),
            asset_id: token_id,
            side: receipt.side.as_str(),
            original_size: stage.asked().into(),
            size_matched: stage.filled().into(),
            price: price.into(),
            outcome: &receipt.outcome,
            created_at: CreatedAt::Number(receipt.fill.at.seconds()),
            expiration: expiration.to_string(),
            order_type: order_type.as_str(),
            associate_trades: stage.trade_ids(),
        }
    }
}

/// Returns the expiration of an order that ends at this time, in seconds, as its wallet has stated
/// it. An order that was placed here ends earlier than that.
fn stated_expiration(receipt: &OrderReceipt, ends_at: Timestamp) -> i64 {
    let is_early = receipt.client_order_id.as_deref().is_some_and(is_digest);
    ends_at.seconds() + if is_early { EXPIRATION_EARLY_SECONDS.cast_signed() } else { 0 }
}

/// Returns the venue's name for the status of an order. The venue refuses an order that has to fill
/// at once and does not, and knows nothing of it from then on; here it is `INVALID`.
fn status(receipt: &OrderReceipt, stage: &Stage<'_>) -> &'static str {
    match stage.status() {
        OrderStatus::Pending if receipt.is_delayed() => "DELAYED",
        OrderStatus::Pending => "LIVE",
        OrderStatus::Filled => "MATCHED",
        OrderStatus::Expired => "CANCELED_MARKET_RESOLVED",
        OrderStatus::Cancelled => match stage.end().map(|end| end.reason) {
            Some(EndReason::FokNotFilled | EndReason::FakNotFilled) => "INVALID",
            _ => "CANCELED",
        },
    }
}
