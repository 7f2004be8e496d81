//! The messages of the user socket. Pure.
//!
//! The first frame of a client shows its credentials and, if it wants only some, its markets:
//!
//! ```json
//! {"type": "user", "auth": {"apiKey": "…", "secret": "…", "passphrase": "…"}, "markets": ["0x…"]}
//! ```
//!
//! Later ones change the markets:
//!
//! ```json
//! {"operation": "subscribe", "markets": ["0x…"]}
//! ```
//!
//! Fields that clients send besides are ignored.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};

use crate::rows::Party;
use crate::rows::clob_order::{CreatedAt, OrderRow};
use crate::rows::clob_trade::{Trade, TradeRow};
use crate::trouble::Stage;
use crate::ws::frame::put_text;
use paperbourse_core::engine::order::news::{NewFill, OrderNews, OrderStep};
use paperbourse_core::engine::order::terms::EndReason;
use paperbourse_core::engine::state::view::ListedOrder;
use paperbourse_core::ids::{OrderId, Timestamp, condition};

/// Maximum number of markets to which a socket may be restricted.
pub const USER_MARKETS_MAX: usize = 500;

/// Maximum length of a market's name, in bytes.
const MARKET_BYTES_MAX: usize = 256;

/// What a trade goes through at the venue once it is matched.
pub(super) const SETTLED: [Stage; 2] = [Stage::Mined, Stage::Confirmed];

/// A frame of a client.
#[derive(Deserialize)]
pub(super) struct UserRequest {
    pub(super) auth: Option<Auth>,
    pub(super) operation: Option<String>,
    pub(super) markets: Option<Vec<String>>,
}

/// The credentials in the first frame.
#[derive(Deserialize)]
pub(super) struct Auth {
    #[serde(rename = "apiKey")]
    pub(super) api_key: String,
    pub(super) secret: String,
    pub(super) passphrase: String,
}

/// The markets that a socket wants.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Markets {
    /// All of them.
    All,
    /// Only these, by condition id, written as rows write them.
    Only(HashSet<Box<str>>),
}

/// The error for more than [`USER_MARKETS_MAX`] markets.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct TooManyMarkets;

impl UserRequest {
    /// Parses a text frame; `None` if it is not an object with these fields.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok()
    }

    /// Whether markets are taken away.
    pub(super) fn is_unsubscribe(&self) -> bool {
        self.operation.as_deref() == Some("unsubscribe")
    }
}

impl Markets {
    /// Returns the markets that a first frame names. If it names none, all are wanted.
    pub(super) fn first(names: &[String]) -> Result<Self, TooManyMarkets> {
        let mut markets = Self::Only(HashSet::new());
        markets.add(names)?;
        Ok(markets)
    }

    /// Adds markets. An empty list stands for all of them.
    pub(super) fn add(&mut self, names: &[String]) -> Result<(), TooManyMarkets> {
        match self {
            _ if names.is_empty() => *self = Self::All,
            Self::All => {}
            Self::Only(markets) => {
                for name in names {
                    let is_full = markets.len() >= USER_MARKETS_MAX;
                    let name = condition::wide(name);
                    if name.len() > MARKET_BYTES_MAX || is_full && !markets.contains(&*name) {
                        return Err(TooManyMarkets);
                    }
                    markets.insert(name.into());
                }
            }
        }
        Ok(())
    }

    /// Removes markets. A socket that wants all of them keeps them.
    pub(super) fn remove(&mut self, names: &[String]) {
        if let Self::Only(markets) = self {
            for name in names {
                markets.remove(&*condition::wide(name));
            }
        }
    }

    pub(super) fn have(&self, market_id: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(markets) => markets.contains(&*condition::wide(market_id)),
        }
    }
}

/// What happened to an order.
#[derive(Serialize)]
struct OrderFrame<'a> {
    event_type: &'static str,
    r#type: &'static str,
    #[serde(flatten)]
    row: OrderRow<'a>,
    order_owner: &'a str,
    /// In milliseconds since 1970.
    timestamp: String,
}

/// A fill of an order.
#[derive(Serialize)]
struct TradeFrame<'a> {
    event_type: &'static str,
    r#type: &'static str,
    #[serde(flatten)]
    row: TradeRow<'a>,
    trade_owner: &'a str,
    /// In milliseconds since 1970.
    timestamp: String,
}

/// Returns the trade that the news of an order are about, if it filled.
pub(super) fn new_trade(news: &OrderNews) -> Option<Trade<'_>> {
    let ListedOrder { receipt, token_id } = &news.listed;
    let NewFill { part, fill, is_taker } = news.fill.as_ref()?;
    Some(Trade::of_order(receipt, token_id, *part, fill, *is_taker))
}

/// What frames are about.
pub(super) struct Of<'a> {
    pub(super) order: OrderId,
    pub(super) client_order_id: Option<&'a str>,
    pub(super) market_id: &'a str,
    pub(super) token_id: &'a str,
}

impl<'a> Of<'a> {
    pub(super) fn order(listed: &'a ListedOrder) -> Self {
        let ListedOrder { receipt, token_id } = listed;
        Self {
            order: receipt.order,
            client_order_id: receipt.client_order_id.as_deref(),
            market_id: &receipt.market_id,
            token_id,
        }
    }

    pub(super) fn trade(trade: &Trade<'a>) -> Self {
        let &Trade { order, client_order_id, market_id, token_id, .. } = trade;
        Self { order, client_order_id, market_id, token_id }
    }
}

/// Appends the frames for what happened to an order, whose trade is in this stage if it filled.
pub(super) fn put_news(out: &mut Vec<u8>, news: &OrderNews, stage: Stage, party: &Party<'_>) {
    let OrderNews { step, listed, fill, at } = news;
    let mut put = |name, status| put_order(out, name, listed, status, *at, party);
    match step {
        OrderStep::Placed => {
            put("PLACEMENT", None);
            if fill.is_some() {
                put("UPDATE", None);
            }
        }
        OrderStep::Updated => put("UPDATE", None),
        OrderStep::Ended => put("CANCELLATION", Some(ended_status(listed))),
        // The venue says nothing of the order, which stays matched.
        OrderStep::FillUndone => {}
    }
    let Some(trade) = new_trade(news) else { return };
    let shown = if *step == OrderStep::FillUndone { Stage::Failed } else { Stage::Matched };
    put_trade(out, &trade, stage, &[shown], *at, party);
}

/// Appends the frames that say that a trade has reached these stages. It is in `stage`, which says
/// whether it has a transaction.
pub(super) fn put_trade(
    out: &mut Vec<u8>,
    trade: &Trade<'_>,
    stage: Stage,
    stages: &[Stage],
    at: Timestamp,
    party: &Party<'_>,
) {
    for shown in stages {
        let mut row = TradeRow::of(trade, party).in_stage(stage);
        row.status = shown.status();
        let timestamp = at.millis().to_string();
        let frame = TradeFrame {
            event_type: "trade",
            r#type: "TRADE",
            row,
            trade_owner: party.owner,
            timestamp,
        };
        put_json(out, &frame);
    }
}

/// Appends the frame for a delayed order that was rejected when its delay was over.
pub(super) fn put_dropped(
    out: &mut Vec<u8>,
    listed: &ListedOrder,
    at: Timestamp,
    party: &Party<'_>,
) {
    put_order(out, "CANCELLATION", listed, Some("INVALID"), at, party);
}

/// Appends a frame about an order. Without a `status`, it has the one of its row.
fn put_order(
    out: &mut Vec<u8>,
    r#type: &'static str,
    listed: &ListedOrder,
    status: Option<&'static str>,
    at: Timestamp,
    party: &Party<'_>,
) {
    let mut row = OrderRow::of(listed, party);
    row.status = status.unwrap_or(row.status);
    row.created_at = CreatedAt::Text(listed.receipt.fill.at.seconds());
    let timestamp = at.millis().to_string();
    let frame =
        OrderFrame { event_type: "order", r#type, row, order_owner: party.owner, timestamp };
    put_json(out, &frame);
}

fn put_json(out: &mut Vec<u8>, frame: &impl Serialize) {
    let json = serde_json::to_vec(frame).expect("a row has no map with other keys than text");
    put_text(out, &[&json]);
}

/// Returns the status of an order that has ended: with the reason if the venue has a name for it,
/// and else without one, since there are clients that take no other.
fn ended_status(listed: &ListedOrder) -> &'static str {
    let end = listed.receipt.order_state.as_ref().and_then(|state| state.end);
    match end.map(|end| end.reason) {
        Some(EndReason::GtdExpired) => "CANCELED_EXPIRED_ORDER",
        Some(EndReason::InsufficientBalance) => "CANCELED_NOT_ENOUGH_BALANCE",
        Some(EndReason::Resolved) => "CANCELED_MARKET_RESOLVED",
        Some(
            EndReason::User
            | EndReason::Heartbeat
            | EndReason::Reset
            | EndReason::GameStart
            | EndReason::Suspended
            | EndReason::PostOnlyWouldCross
            | EndReason::FokNotFilled
            | EndReason::FakNotFilled,
        )
        | None => "CANCELED",
    }
}
