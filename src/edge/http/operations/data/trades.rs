//! Fills in the venue's form.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Cursor, List, Millis, Page, ROWS_DEFAULT, list_query, read_list};
use crate::http::call::{Answer, Call};
use crate::http::error::ApiError;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use crate::rows::{CONFIRMED, MakerOrderRow, Seconds, fee_rate_bps};
use paperbourse_core::engine::fills::{FillCursor, FillFilter, PastFill};
use paperbourse_core::ids::{AccountId, OrderId};
use paperbourse_core::wire::Decimal;

/// The parameters of the query.
pub(in crate::http) const TRADES_QUERY: [Parameter; 8] =
    list_query(&[Parameter::own("id", "", "only the fill with this id")]);

pub(in crate::http) async fn trades(call: &Call<'_>) -> Answer {
    let Some(TradesRequest { filter, from, limit }) = read_trades(call.query())? else {
        return Ok(Reply::ok(&Page::<TradeRow<'_>>::new(ROWS_DEFAULT, Vec::new(), None)));
    };
    let service = call.service();
    let found = service.fill_history(&call.caller, filter, from, limit, call.context).await?;
    let account = call.caller.account()?;
    let rows = found.fills.iter().map(|past| TradeRow::of(past, account)).collect();
    let next = found.next.map(|next| next.before.to_string());
    Ok(Reply::ok(&Page::new(limit, rows, next)))
}

#[derive(PartialEq, Eq, Debug)]
struct TradesRequest {
    filter: FillFilter,
    from: FillCursor,
    limit: usize,
}

/// Reads the filter and the page; `None` after the last page, and for an id that no fill can have.
fn read_trades(query: Query<'_>) -> Result<Option<TradesRequest>, ApiError> {
    let part_of = query.get_filled("id").map(|id| read_trade_id(&id));
    let List { market_id, token_id, from, to, limit, cursor } =
        read_list(query, |text| text.parse().ok())?;
    let before = match cursor {
        Cursor::Start => u64::MAX,
        Cursor::At(before) => before,
        Cursor::End => return Ok(None),
    };
    let part_of = match part_of {
        Some(None) => return Ok(None),
        part_of => part_of.flatten(),
    };
    let filter = FillFilter { market_id, token_id, side: None, part_of, from, to };
    Ok(Some(TradesRequest { filter, from: FillCursor { before, skip: 0 }, limit }))
}

/// Reads an order's id and the number of the fill, as in `711-1`.
pub(in crate::http::operations) fn read_trade_id(text: &str) -> Option<(OrderId, u32)> {
    let (order, part) = text.split_once('-')?;
    Some((order.parse().ok().and_then(OrderId::from_raw)?, part.parse().ok()?))
}

/// A fill in the venue's form.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "VenueTrade")]
pub(in crate::http) struct TradeRow<'a> {
    /// The order's id and the number of the fill.
    id: String,
    /// Empty if this account's order was the one that rested.
    taker_order_id: String,
    /// The market's condition id.
    market: &'a str,
    /// The outcome's token.
    asset_id: &'a str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// In shares.
    size: Decimal,
    fee_rate_bps: Decimal,
    price: Decimal,
    #[schemars(extend("const" = "CONFIRMED"))]
    status: &'static str,
    /// In seconds since 1970.
    match_time: Seconds,
    last_update: Seconds,
    /// In milliseconds since 1970.
    matched_at: Millis,
    updated_at: Millis,
    /// The outcome's label.
    outcome: &'a str,
    bucket_index: u32,
    /// The account's id.
    owner: String,
    maker_address: String,
    /// There is no chain.
    transaction_hash: &'static str,
    #[schemars(extend("enum" = ["TAKER", "MAKER"]))]
    trader_side: &'static str,
    /// The account's order if it was the one that rested.
    maker_orders: Vec<MakerOrderRow<'a>>,
}

impl<'a> TradeRow<'a> {
    fn of(past: &'a PastFill, account: AccountId) -> Self {
        let PastFill { row, token_id, .. } = past;
        let fill = &row.fill;
        let is_taker = past.is_taker();
        let fee_rate_bps = fee_rate_bps(fill);
        let maker_order = (!is_taker).then(|| MakerOrderRow {
            order_id: row.order.to_string(),
            owner: account.to_string(),
            maker_address: account.to_string(),
            matched_amount: fill.quantity.into(),
            price: fill.price().into(),
            fee_rate_bps,
            asset_id: token_id,
            outcome: &row.outcome,
            side: row.side.as_str(),
        });
        Self {
            id: format!("{}-{}", row.order, row.part),
            taker_order_id: if is_taker { row.order.to_string() } else { String::new() },
            market: &row.market_id,
            asset_id: token_id,
            side: row.side.as_str(),
            size: fill.quantity.into(),
            fee_rate_bps,
            price: fill.price().into(),
            status: if row.undone_at.is_some() { "FAILED" } else { CONFIRMED },
            match_time: Seconds(fill.at),
            last_update: Seconds(fill.at),
            matched_at: Millis(Some(fill.at)),
            updated_at: Millis(Some(fill.at)),
            outcome: &row.outcome,
            bucket_index: 0,
            owner: account.to_string(),
            maker_address: account.to_string(),
            transaction_hash: "",
            trader_side: if is_taker { "TAKER" } else { "MAKER" },
            maker_orders: maker_order.into_iter().collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::query::tests::query;
    use paperbourse_core::engine::fills::FillRow;
    use paperbourse_core::engine::fills::fill::Fill;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::market::book::Side;
    use paperbourse_core::money::{FeeRate, Shares, Usd};

    #[test]
    fn fills_are_filtered() {
        let read = |text| read_trades(query("GET /v1/data/trades", Some(text))).unwrap();
        let filter = FillFilter::default();
        let newest = FillCursor::newest(0);
        assert_eq!(read(""), Some(TradesRequest { filter, from: newest, limit: 100 }));
        let text = "market=0xa&asset_id=7&before=5&id=711-2&limit=500&next_cursor=9";
        let filter = FillFilter {
            market_id: Some("0xa".into()),
            token_id: Some("7".into()),
            part_of: OrderId::from_raw(711).map(|order| (order, 2)),
            to: Some(Timestamp::from_nanos(4_999_999_999)),
            ..FillFilter::default()
        };
        let from = FillCursor { before: 9, skip: 0 };
        assert_eq!(read(text), Some(TradesRequest { filter, from, limit: 500 }));
        for text in ["next_cursor=LTE=", "id=711", "id=x-1", "id=711-", "id=7-1"] {
            assert_eq!(read(text), None, "{text}");
        }
        let fails = |text| read_trades(query("GET /v1/data/trades", Some(text))).unwrap_err().code;
        assert_eq!(fails("limit=0&after=x"), "VALIDATION_FAILED");
        assert_eq!(fails("after=x"), "INVALID_TIME_FILTER");
    }

    /// Shows a fill of an order that rested, beside a fill that was taken at once.
    #[test]
    fn a_fill_is_shown_without_a_null() {
        let order = OrderId::from_raw(711).unwrap();
        let at = Timestamp::from_millis(1_784_578_686_071);
        let row = FillRow {
            number: 7,
            order,
            part: 2,
            market_id: "0xabc".into(),
            outcome: "Yes".into(),
            side: Side::Sell,
            fill: Fill {
                quantity: Shares::from_micros(3_000_000),
                notional: Usd::from_micros(1_000_000),
                fee: Usd::ZERO,
                fee_rate: FeeRate::ZERO,
                balance: Usd::ZERO,
                position_shares: Shares::ZERO,
                position_cost: Usd::ZERO,
                at,
            },
            client_order_id: None,
            undone_at: None,
        };
        let made = PastFill { row, token_id: "77".into(), placed_at: Some(Timestamp::EPOCH) };
        let mut taken = made.clone();
        (taken.row.part, taken.placed_at) = (1, Some(at));
        taken.row.fill.fee_rate = FeeRate::from_micros(70_050);
        let account = AccountId::from_raw(69).unwrap();
        let rows = [made, taken];
        let rows: Vec<_> = rows.iter().map(|past| TradeRow::of(past, account)).collect();
        let json = serde_json::to_string_pretty(&rows).unwrap();
        assert!(!json.contains("null"));
        insta::assert_snapshot!(json);
    }
}
