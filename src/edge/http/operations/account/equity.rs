//! An account's value at each full hour.

use schemars::JsonSchema;
use serde::Serialize;

use crate::http::call::{Answer, Call};
use crate::http::invalid::Invalid;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::engine::account::equity::EquityPoint;
use paperbourse_core::money::Usd;
use paperbourse_core::wire::{Decimal, Time};
use paperbourse_exchange::service::{EQUITY_HOURS_MAX, Wallet};

const HOURS_PER_DAY: usize = 24;

/// Number of days in an answer if the request gives neither `days` nor `limit`.
const DAYS_DEFAULT: usize = 7;

pub(in crate::http) const QUERY: [Parameter; 3] = [
    Parameter::number(
        "days",
        1,
        ROWS_MAX / HOURS_PER_DAY,
        "how many days to look back, by default 7, or all with a `limit`",
    ),
    Parameter::number("limit", 1, ROWS_MAX, "the most rows to return, the newest ones"),
    Parameter::WALLET,
];

const ROWS_MAX: usize = EQUITY_HOURS_MAX as usize;

pub(in crate::http) async fn equity(call: &Call<'_>) -> Answer {
    let (hours, wallet) = read_equity(call.query())?;
    call.caller.require_own(wallet)?;
    let history = call.service().equity(&call.caller, hours, call.context).await?;
    let row = |point| EquityRow::of(point, history.profit(point));
    Ok(Reply::ok(&history.equity.points().iter().map(row).collect::<Vec<_>>()))
}

/// Reads the number of rows and the wallet.
fn read_equity(mut query: Query<'_>) -> Result<(u32, Wallet), Invalid> {
    let days = query.number("days", 1, ROWS_MAX / HOURS_PER_DAY);
    let limit = query.number("limit", 1, ROWS_MAX);
    let days = days.or(limit.is_none().then_some(DAYS_DEFAULT));
    let rows = days.map_or(ROWS_MAX, |days| days * HOURS_PER_DAY).min(limit.unwrap_or(ROWS_MAX));
    let wallet = query.wallet();
    query.finish((u32::try_from(rows).unwrap_or(EQUITY_HOURS_MAX), wallet))
}

/// What the account was worth at one moment.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "EquityPoint")]
pub(in crate::http) struct EquityRow {
    /// A full hour, or now.
    timestamp: Time,
    /// All cash, also what open orders held back.
    cash_balance: Decimal,
    /// The positions at the prices of that moment, in dollars.
    position_value: Decimal,
    /// Cash and positions together, in dollars.
    total_value: Decimal,
    /// Above what the account began with and all that operators had deposited by then.
    pnl: Decimal,
}

impl EquityRow {
    fn of(point: &EquityPoint, profit: Usd) -> Self {
        Self {
            timestamp: Time(point.at),
            cash_balance: point.cash.into(),
            position_value: point.position_value.into(),
            total_value: point.total().into(),
            pnl: profit.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::query::tests::query;

    #[test]
    fn days_and_limit_select_the_newest_hours() {
        let read = |text| read_equity(query("GET /v1/account/equity", text));
        for (text, expected) in [
            (None, 168),
            (Some("days=1"), 24),
            (Some("days=90"), 2_160),
            (Some("limit=1"), 1),
            (Some("limit=500"), 500),
            (Some("limit=2160"), 2_160),
            (Some("days=2&limit=47"), 47),
            (Some("days=2&limit=49"), 48),
        ] {
            assert_eq!(read(text), Ok((expected, Wallet::Own)), "{text:?}");
        }
        for (text, expected) in [
            ("days=0", "query.days: greater_than_equal"),
            ("days=91", "query.days: less_than_equal"),
            ("limit=0", "query.limit: greater_than_equal"),
            ("limit=2161", "query.limit: less_than_equal"),
            ("limit=many", "query.limit: int_parsing"),
        ] {
            assert_eq!(errors_of(&read(Some(text))), [expected], "{text}");
        }
    }
}
