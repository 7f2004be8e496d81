//! Reads the account's orders: one by its id, or a list.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::invalid::Invalid;
use crate::http::operations::account::{MARKET, read_wallet};
use crate::http::operations::order_fields::{
    MARKET_ID_CHARACTERS_MAX, ORDER_NAME_CHARACTERS_MAX, SIDE, SIDES,
};
use crate::http::parameter::{Parameter, words};
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::rows::stage::{Amounts, Stage};
use paperbourse_core::engine::order::idempotency::NameHash;
use paperbourse_core::engine::order::receipt::OrderReceipt;
use paperbourse_core::engine::order::terms::OrderStatus;
use paperbourse_core::engine::state::view::{OrderCursor, OrderFilter};
use paperbourse_core::ids::OrderId;
use paperbourse_core::wire::{Decimal, Time};
use paperbourse_exchange::service::{OnlyOrder, OrderList, OrdersRequest, Page, Wallet};

/// Maximum number of rows in a list.
const ROWS_MAX: usize = 200;

const STATUSES: [(&str, OrderStatus); 5] = [
    ("PENDING", OrderStatus::Pending),
    ("OPEN", OrderStatus::Pending),
    ("FILLED", OrderStatus::Filled),
    ("CANCELLED", OrderStatus::Cancelled),
    ("EXPIRED", OrderStatus::Expired),
];

pub(in crate::http) const QUERY: [Parameter; 9] = [
    Parameter::text(
        "client_order_id",
        0,
        ORDER_NAME_CHARACTERS_MAX,
        "only the order that the client gave this name",
    ),
    MARKET,
    SIDE,
    Parameter::choice("status", &words(&STATUSES), "only orders with this status"),
    Parameter::limit(50, ROWS_MAX),
    Parameter::OFFSET,
    Parameter::cursor("cursor"),
    Parameter::cursor("next_cursor"),
    Parameter::WALLET,
];

pub(in crate::http) async fn list(call: &Call<'_>) -> Answer {
    let (request, wallet) = read_orders(call.query())?;
    call.caller.require_own(wallet)?;
    let list = call.service().orders(&call.caller, request, call.context).await?;
    Ok(Reply::ok(&OrdersAnswer::of(&list)))
}

pub(in crate::http) async fn get(call: &Call<'_>) -> Answer {
    let (order, wallet) = ApiError::both(
        call.id(OrderId::from_raw).map_err(Invalid::from),
        read_wallet(call.query()),
    )?;
    call.caller.require_own(wallet)?;
    let receipt = call.service().order(&call.caller, order, call.context).await?;
    Ok(Reply::ok(&OrderRow::of(&receipt)))
}

fn read_orders(mut query: Query<'_>) -> Result<(OrdersRequest, Wallet), Invalid> {
    let page = query.page(50, ROWS_MAX);
    let status = query.choice("status", &STATUSES);
    let market_id = query.text("market_id", 1, MARKET_ID_CHARACTERS_MAX).map(Into::into);
    let side = query.choice("side", &SIDES);
    let name = query.filled_text("client_order_id", ORDER_NAME_CHARACTERS_MAX);
    let only = name.map(|name| OnlyOrder::Named(NameHash::of_order(&name)));
    let filter = OrderFilter { market_id, side, status, ..OrderFilter::default() };
    let from = query.cursor_of(["cursor", "next_cursor"], read_cursor);
    let page = Page { offset: if from.is_some() { 0 } else { page.offset }, ..page };
    let from = from.unwrap_or(OrderCursor::START);
    let wallet = query.wallet();
    query.finish((OrdersRequest { only, filter, from, page }, wallet))
}

/// Parses a cursor that [`write_cursor`] wrote.
pub(in crate::http::operations) fn read_cursor(text: &str) -> Option<OrderCursor> {
    let (kind, number) = text.split_at_checked(1)?;
    let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
    let before = number.parse().ok().filter(|_| is_number)?;
    match kind {
        "o" => Some(OrderCursor::Open { before }),
        "f" => Some(OrderCursor::Finished { before }),
        _ => None,
    }
}

pub(in crate::http::operations) fn write_cursor(cursor: OrderCursor) -> String {
    match cursor {
        OrderCursor::Open { before } => format!("o{before}"),
        OrderCursor::Finished { before } => format!("f{before}"),
    }
}

/// A page, and whether orders follow that may match.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "OrderList")]
pub(in crate::http) struct OrdersAnswer<'a> {
    orders: Vec<OrderRow<'a>>,
    /// The `cursor` of the next page; null on the last.
    next_cursor: Option<String>,
    /// Whether there is a next page.
    has_more: bool,
    /// Always null.
    total_hint: Option<u64>,
}

/// An order as it is now.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Order")]
pub(in crate::http) struct OrderRow<'a> {
    /// The order's id.
    order_id: u64,
    /// The market's condition id.
    market_id: &'a str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// The outcome's label.
    outcome: &'a str,
    #[schemars(extend("enum" = ["market", "limit"]))]
    order_type: &'static str,
    /// The average price of the fills; without any, the worst price that the order accepts.
    price: Decimal,
    /// Null for a market order.
    limit_price: Option<Decimal>,
    /// In shares.
    quantity: Decimal,
    /// A market order that fills at once is `FOK`.
    #[schemars(extend("enum" = ["GTC", "GTD", "FOK", "FAK"]))]
    time_in_force: &'static str,
    #[schemars(extend("enum" = ["PENDING", "FILLED", "CANCELLED", "EXPIRED"]))]
    status: &'static str,
    /// The name that the client gave the order.
    client_order_id: Option<&'a str>,
    /// When the order was placed.
    created_at: Time,
    /// When the newest fill happened.
    filled_at: Option<Time>,
    /// The average price of the fills.
    fill_price: Option<Decimal>,
    /// Price times quantity of all fills, in dollars, without fees.
    notional: Decimal,
    /// The taker fees of all fills, in dollars.
    fee: Decimal,
    /// When the order was cancelled or expired.
    cancelled_at: Option<Time>,
    /// Why the order ended before it was filled, such as `user` or `gtd_expired`.
    cancelled_reason: Option<&'static str>,
    /// When a GTD order expires.
    expires_at: Option<Time>,
    #[serde(flatten)]
    amounts: Amounts,
    /// Why the order cannot fill yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("enum" = ["venue_outage", "venue_delay"]))]
    hold_reason: Option<&'static str>,
    /// How long the venue's delay held the order, in milliseconds.
    #[serde(rename = "held_ms", skip_serializing_if = "Option::is_none")]
    delayed_ms: Option<u32>,
}

impl<'a> OrdersAnswer<'a> {
    fn of(list: &'a OrderList) -> Self {
        let orders = list.orders.iter().map(|listed| OrderRow::of(&listed.receipt)).collect();
        let next_cursor = list.next.map(write_cursor);
        Self { orders, next_cursor, has_more: list.next.is_some(), total_hint: None }
    }
}

impl<'a> OrderRow<'a> {
    fn of(receipt: &'a OrderReceipt) -> Self {
        let stage = Stage::now(receipt);
        let end = stage.end();
        Self {
            order_id: receipt.order.get(),
            market_id: &receipt.market_id,
            side: receipt.side.as_str(),
            outcome: &receipt.outcome,
            order_type: stage.kind().as_str(),
            price: stage.shown_price().into(),
            limit_price: stage.limit_price().map(Into::into),
            quantity: stage.quantity().into(),
            time_in_force: stage.time_in_force().as_str(),
            status: stage.status().as_str(),
            client_order_id: receipt.client_order_id.as_deref(),
            created_at: Time(receipt.fill.at),
            filled_at: stage.filled_at().map(Time),
            fill_price: stage.fill_price().map(Into::into),
            notional: stage.notional().into(),
            fee: stage.fee().into(),
            cancelled_at: end.map(|end| Time(end.at)),
            cancelled_reason: end.map(|end| end.reason.as_str()),
            expires_at: stage.time_in_force().expires_at().map(Time),
            amounts: stage.amounts(),
            hold_reason: stage.hold_reason(),
            delayed_ms: stage.delayed_ms(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::operations::trade::tests::receipt;
    use crate::http::query::tests::query;
    use paperbourse_core::engine::state::view::ListedOrder;
    use paperbourse_core::market::book::Side;

    #[test]
    fn orders_are_filtered() {
        let read = |text| read_orders(query("GET /v1/orders", Some(text)));
        assert_eq!(
            read("status=open&side=sell&market_id=0xa&client_order_id="),
            Ok((
                OrdersRequest {
                    from: OrderCursor::START,
                    page: Page { limit: 50, offset: 0 },
                    filter: OrderFilter {
                        market_id: Some("0xa".into()),
                        side: Some(Side::Sell),
                        status: Some(OrderStatus::Pending),
                        ..OrderFilter::default()
                    },
                    only: None,
                },
                Wallet::Own
            ))
        );
        let (named, _) = read("client_order_id=a+b").unwrap();
        assert_eq!(named.only, Some(OnlyOrder::Named(NameHash::of_order("a b"))));
        assert_eq!(
            errors_of(&read("status=done&side=HOLD")),
            ["query.status: enum", "query.side: enum"]
        );
    }

    #[test]
    fn a_list_says_whether_there_is_more() {
        let shown = |list: &OrderList| serde_json::to_string(&OrdersAnswer::of(list)).unwrap();
        assert_eq!(
            shown(&OrderList::default()),
            r#"{"orders":[],"next_cursor":null,"has_more":false,"total_hint":null}"#
        );
        let next = Some(OrderCursor::Finished { before: 7 });
        let listed = ListedOrder { receipt: receipt(), token_id: "7".into() };
        insta::assert_snapshot!(shown(&OrderList { orders: vec![listed], next }));
    }

    #[test]
    fn a_cursor_leads_back() {
        for cursor in [
            OrderCursor::START,
            OrderCursor::Open { before: 0 },
            OrderCursor::Finished { before: 1 },
            OrderCursor::Finished { before: u64::MAX },
        ] {
            assert_eq!(read_cursor(&write_cursor(cursor)), Some(cursor));
        }
        let read = |text| read_orders(query("GET /v1/orders", text));
        let (request, _) = read(Some("next_cursor=f7&offset=3&limit=2")).unwrap();
        let page = Page { limit: 2, offset: 0 };
        assert_eq!((request.from, request.page), (OrderCursor::Finished { before: 7 }, page));
        let (request, _) = read(Some("cursor=&next_cursor=&offset=3")).unwrap();
        assert_eq!((request.from, request.page.offset), (OrderCursor::START, 3));
        for text in ["7", "o", "f-7", "f+7", "x7", "f7 ", "f18446744073709551616", "\u{e9}7"] {
            let sent = format!("cursor={text}");
            let errors = errors_of(&read_orders(query("GET /v1/orders", Some(&sent))));
            assert_eq!(errors, ["query.cursor: cursor_parsing"], "{text}");
        }
    }
}
