//! The fills of an account, newest first.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::csv::Line;
use crate::http::invalid::Invalid;
use crate::http::operations::account::MARKET;
use crate::http::operations::order_fields::{MARKET_ID_CHARACTERS_MAX, SIDE, SIDES};
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::engine::fills::{FillCursor, FillFilter, PastFill};
use paperbourse_core::wire::{Decimal, Time};
use paperbourse_exchange::service::{Page, Wallet};

/// Maximum number of rows in a list.
const ROWS_MAX: usize = 200;

pub(in crate::http) const QUERY: [Parameter; 5] =
    [MARKET, SIDE, Parameter::limit(50, ROWS_MAX), Parameter::OFFSET, Parameter::WALLET];

pub(in crate::http) async fn history(call: &Call<'_>) -> Answer {
    let (filter, page, wallet) = read_history(call.query())?;
    call.caller.require_own(wallet)?;
    let from = FillCursor::newest(page.offset as u64);
    let list = call.service();
    let list = list.fill_history(&call.caller, filter, from, page.limit, call.context).await?;
    Ok(Reply::ok(&list.fills.iter().map(FillFields::of).collect::<Vec<_>>()))
}

/// Reads the filter and the page.
fn read_history(mut query: Query<'_>) -> Result<(FillFilter, Page, Wallet), Invalid> {
    let page = query.page(50, ROWS_MAX);
    let market_id = query.text("market_id", 1, MARKET_ID_CHARACTERS_MAX).map(Into::into);
    let side = query.choice("side", &SIDES);
    let wallet = query.wallet();
    query.finish((FillFilter { market_id, side, ..FillFilter::default() }, page, wallet))
}

/// A fill of one of the account's orders.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "Fill")]
pub(in crate::http) struct FillFields<'a> {
    /// The trade id that orders and the execution socket show.
    fill_id: String,
    /// The order's id.
    order_id: u64,
    /// The name that the client gave the order.
    client_order_id: Option<&'a str>,
    /// The market's condition id.
    market_id: &'a str,
    #[schemars(extend("enum" = ["BUY", "SELL"]))]
    side: &'static str,
    /// The outcome's label.
    outcome: &'a str,
    price: Decimal,
    /// In shares.
    quantity: Decimal,
    /// Price times quantity, in dollars.
    notional: Decimal,
    /// The taker fee, in dollars.
    fee: Decimal,
    /// A fill is always this.
    status: &'static str,
    /// Null for a fill at the limit of an order that rested, or of a forgotten order.
    price_source: Option<&'static str>,
    /// The age of the price is not kept.
    price_age_ms: Option<u64>,
    /// When it happened.
    filled_at: Time,
    /// When the order was placed; null if it was forgotten.
    created_at: Option<Time>,
}

impl<'a> FillFields<'a> {
    /// The columns of the CSV file.
    pub(in crate::http::operations) const COLUMNS: &'static str = "order_id,market_id,side,\
         outcome,price,quantity,notional,fee,status,client_order_id,filled_at,created_at";

    pub(in crate::http::operations) fn of(past: &'a PastFill) -> Self {
        let PastFill { row, placed_at, .. } = past;
        Self {
            fill_id: format!("{}-{}", row.order, row.part),
            order_id: row.order.get(),
            client_order_id: row.client_order_id.as_deref(),
            market_id: &row.market_id,
            side: row.side.as_str(),
            outcome: &row.outcome,
            price: row.fill.price().into(),
            quantity: row.fill.quantity.into(),
            notional: row.fill.notional.into(),
            fee: row.fill.fee.into(),
            status: "FILLED",
            price_source: past.is_at_placement().then_some("book_walk"),
            price_age_ms: None,
            filled_at: Time(row.fill.at),
            created_at: placed_at.map(Time),
        }
    }

    /// Writes the fields of [`Self::COLUMNS`].
    pub(in crate::http::operations) fn write_csv(&self, line: &mut Line<'_>) {
        line.integer(self.order_id);
        line.text(self.market_id);
        line.text(self.side);
        line.text(self.outcome);
        line.decimal(self.price);
        line.decimal(self.quantity);
        line.decimal(self.notional);
        line.decimal(self.fee);
        line.text(self.status);
        line.text(self.client_order_id.unwrap_or_default());
        line.time(Some(self.filled_at));
        line.time(self.created_at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::operations::account::tests::check_csv;
    use crate::http::query::tests::query;
    use paperbourse_core::engine::fills::FillRow;
    use paperbourse_core::engine::fills::fill::Fill;
    use paperbourse_core::ids::{OrderId, Timestamp};
    use paperbourse_core::market::book::Side;
    use paperbourse_core::money::{FeeRate, Shares, Usd};

    #[test]
    fn a_line_of_a_csv_file_has_the_fields_of_a_history() {
        let fill = Fill {
            quantity: Shares::from_micros(3_000_000),
            notional: Usd::from_micros(1_230_000),
            fee: Usd::from_micros(37_500),
            fee_rate: FeeRate::ZERO,
            balance: Usd::ZERO,
            position_shares: Shares::ZERO,
            position_cost: Usd::ZERO,
            at: Timestamp::from_millis(1_800_000_000_070),
        };
        let row = FillRow {
            number: 7,
            order: OrderId::from_raw(711).unwrap(),
            part: 1,
            market_id: "0xabc".into(),
            outcome: "Yes, \"more\"\r\nor less".into(),
            side: Side::Sell,
            fill,
            client_order_id: Some("=1+1".into()),
            undone_at: None,
        };
        let forgotten = FillRow { client_order_id: None, ..row.clone() };
        for (row, placed_at) in [(row, Some(fill.at)), (forgotten, None)] {
            let past = PastFill { row, token_id: "1".into(), placed_at };
            let fields = FillFields::of(&past);
            check_csv(FillFields::COLUMNS, &fields, |line| fields.write_csv(line));
        }
    }

    #[test]
    fn a_history_is_filtered() {
        let read = |text| read_history(query("GET /v1/account/history", text));
        let page = Page { limit: 50, offset: 0 };
        assert_eq!(read(None), Ok((FillFilter::default(), page, Wallet::Own)));
        let (market_id, side) = (Some("0xa".into()), Some(Side::Sell));
        let filter = FillFilter { market_id, side, ..FillFilter::default() };
        let page = Page { limit: 200, offset: 7 };
        let text = "limit=200&offset=7&side=sell&market_id=0xa";
        assert_eq!(read(Some(text)), Ok((filter, page, Wallet::Own)));
        for (text, expected) in [
            ("limit=0", "query.limit: greater_than_equal"),
            ("limit=201", "query.limit: less_than_equal"),
            ("offset=-1", "query.offset: greater_than_equal"),
            ("side=HOLD", "query.side: enum"),
            ("market_id=", "query.market_id: string_too_short"),
        ] {
            assert_eq!(errors_of(&read(Some(text))), [expected], "{text}");
        }
    }
}
