//! Orders in the venue's form.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Cursor, List, Millis, Page, ROWS_DEFAULT, list_query, read_list};
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::operations::orders::list;
use crate::http::parameter::{Parameter, words};
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::rows::Seconds;
use crate::rows::stage::{Stage, TradeIds};
use paperbourse_core::engine::order::terms::OrderStatus;
use paperbourse_core::engine::state::view::{ListedOrder, OrderCursor, OrderFilter};
use paperbourse_core::ids::OrderId;
use paperbourse_core::money::Price;
use paperbourse_core::wire::Decimal;
use paperbourse_exchange::service::{self, OnlyOrder, OrdersRequest};

/// The parameters of the query.
pub(in crate::http) const ORDERS_QUERY: [Parameter; 9] = list_query(&[
    Parameter::own("id", "", "only the order with this id"),
    Parameter::choice("status", &words(&STATUSES), "only orders with this status; else open ones"),
]);

/// Names of statuses: the venue's full and short names, and those in this server's other lists.
const STATUSES: [(&str, OrderStatus); 12] = [
    ("ORDER_STATUS_LIVE", OrderStatus::Pending),
    ("LIVE", OrderStatus::Pending),
    ("OPEN", OrderStatus::Pending),
    ("PENDING", OrderStatus::Pending),
    ("ORDER_STATUS_MATCHED", OrderStatus::Filled),
    ("MATCHED", OrderStatus::Filled),
    ("FILLED", OrderStatus::Filled),
    ("ORDER_STATUS_CANCELED", OrderStatus::Cancelled),
    ("CANCELED", OrderStatus::Cancelled),
    ("CANCELLED", OrderStatus::Cancelled),
    ("ORDER_STATUS_INVALID", OrderStatus::Expired),
    ("INVALID", OrderStatus::Expired),
];

pub(in crate::http) async fn orders(call: &Call<'_>) -> Answer {
    let Some(request) = read_orders(call.query())? else {
        return Ok(Reply::ok(&Page::<OrderRow<'_>>::new(ROWS_DEFAULT, Vec::new(), None)));
    };
    let limit = request.page.limit;
    let found = call.service().orders(&call.caller, request, call.context).await?;
    let rows = found.orders.iter().map(OrderRow::of).collect();
    Ok(Reply::ok(&Page::new(limit, rows, found.next.map(list::write_cursor))))
}

/// Reads the filter and the page; `None` after the last page. Without a status, only open orders
/// are requested.
fn read_orders(mut query: Query<'_>) -> Result<Option<OrdersRequest>, ApiError> {
    let status = query.choice("status", &STATUSES).unwrap_or(OrderStatus::Pending);
    // Text that cannot be an id of this server selects no order.
    let only = query.get_filled("id");
    let only = only.map(|id| OnlyOrder::WithId(id.parse().ok().and_then(OrderId::from_raw)));
    let List { market_id, token_id, from, to, limit, cursor } =
        read_list(query, list::read_cursor)?;
    let filter = OrderFilter { market_id, token_id, status: Some(status), from, to, side: None };
    let page = service::Page { limit, offset: 0 };
    let from = match cursor {
        Cursor::Start => OrderCursor::START,
        Cursor::At(cursor) => cursor,
        Cursor::End => return Ok(None),
    };
    Ok(Some(OrdersRequest { only, filter, from, page }))
}

/// An order in the venue's form.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "VenueOrder")]
pub(in crate::http) struct OrderRow<'a> {
    /// The order's id.
    id: String,
    #[schemars(extend("enum" = [
        "ORDER_STATUS_LIVE",
        "ORDER_STATUS_MATCHED",
        "ORDER_STATUS_CANCELED",
        "ORDER_STATUS_INVALID",
    ]))]
    status: &'static str,
    /// The account's id.
    owner: String,
    maker_address: String,
    /// The market's condition id.
    market: &'a str,
    /// The outcome's token.
    asset_id: &'a str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// In shares.
    original_size: Decimal,
    /// In shares.
    size_matched: Decimal,
    /// The limit. Of an order without one, the average price of its fills.
    price: Decimal,
    /// The outcome's label.
    outcome: &'a str,
    order_type: &'static str,
    #[schemars(with = "Vec<String>")]
    associate_trades: TradeIds,
    /// In seconds since 1970.
    created_at: Seconds,
    /// 0 if the order does not expire.
    expiration: Seconds,
    /// In milliseconds since 1970; empty if the order does not expire.
    expires_at: Millis,
}

impl<'a> OrderRow<'a> {
    fn of(listed: &'a ListedOrder) -> Self {
        let ListedOrder { receipt, token_id } = listed;
        let stage = Stage::now(receipt);
        let price = stage.worst_price().or_else(|| stage.fill_price()).unwrap_or(Price::ZERO);
        let expires_at = stage.time_in_force().expires_at();
        Self {
            id: receipt.order.to_string(),
            status: status(stage.status()),
            owner: receipt.account.to_string(),
            maker_address: receipt.account.to_string(),
            market: &receipt.market_id,
            asset_id: token_id,
            side: receipt.side.as_str(),
            original_size: stage.asked().into(),
            size_matched: stage.filled().into(),
            price: price.into(),
            outcome: &receipt.outcome,
            order_type: stage.time_in_force().as_str(),
            associate_trades: stage.trade_ids(),
            created_at: Seconds(receipt.fill.at),
            expiration: Seconds(expires_at.unwrap_or_default()),
            expires_at: Millis(expires_at),
        }
    }
}

/// Returns the venue's name for a status.
const fn status(status: OrderStatus) -> &'static str {
    match status {
        OrderStatus::Pending => "ORDER_STATUS_LIVE",
        OrderStatus::Filled => "ORDER_STATUS_MATCHED",
        OrderStatus::Cancelled => "ORDER_STATUS_CANCELED",
        OrderStatus::Expired => "ORDER_STATUS_INVALID",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::query::tests::query;
    use paperbourse_core::ids::Timestamp;

    #[test]
    fn orders_are_filtered() {
        let read = |text| read_orders(query("GET /v1/data/orders", Some(text))).unwrap();
        let request = read("").unwrap();
        assert_eq!(request.filter.status, Some(OrderStatus::Pending));
        assert_eq!((request.only, request.page.limit), (None, 100));
        let text = "market=0xa&asset_id=7&status=canceled&after=5&id=64&limit=500&cursor=f9";
        let expected = OrdersRequest {
            only: Some(OnlyOrder::WithId(OrderId::from_raw(64))),
            filter: OrderFilter {
                market_id: Some("0xa".into()),
                token_id: Some("7".into()),
                status: Some(OrderStatus::Cancelled),
                from: Some(Timestamp::from_nanos(5_000_000_001)),
                ..OrderFilter::default()
            },
            from: OrderCursor::Finished { before: 9 },
            page: service::Page { limit: 500, offset: 0 },
        };
        assert_eq!(read(text), Some(expected));
        assert_eq!(read("id=0xab").unwrap().only, Some(OnlyOrder::WithId(None)));
        assert_eq!(read("next_cursor=LTE="), None);
        let fails = |text| read_orders(query("GET /v1/data/orders", Some(text))).unwrap_err().code;
        assert_eq!(fails("limit=501&after=x"), "VALIDATION_FAILED");
        assert_eq!(fails("after=x"), "INVALID_TIME_FILTER");
    }
}
