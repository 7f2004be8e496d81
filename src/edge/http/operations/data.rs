//! Orders and fills in the form of the venue's API, for clients that were written for it.
//!
//! These clients refuse a null, and a number where they expect text. Times are text: seconds under
//! the venue's names, and milliseconds under the names that newer clients prefer.

mod orders;
mod trades;

pub(in crate::http) use orders::{ORDERS_QUERY, orders};
pub(super) use trades::read_trade_id;
pub(in crate::http) use trades::{TRADES_QUERY, trades};

use schemars::JsonSchema;
use serde::{Serialize, Serializer};

use super::order_fields::MARKET_ID_CHARACTERS_MAX;
use crate::http::cursor::{END, START};
use crate::http::error::ApiError;
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use paperbourse_core::ids::Timestamp;

pub(in crate::http) type OrdersPage = Page<orders::OrderRow<'static>>;
pub(in crate::http) type TradesPage = Page<trades::TradeRow<'static>>;

const MARKET: Parameter = Parameter::text(
    "market",
    0,
    MARKET_ID_CHARACTERS_MAX,
    "only in this market, by its condition id",
);
const TOKEN: Parameter =
    Parameter::text("asset_id", 0, MARKET_ID_CHARACTERS_MAX, "only in this outcome, by its token");
const AFTER: Parameter =
    Parameter::own("after", "^[0-9]*$", "only after this time, in seconds since 1970");
const BEFORE: Parameter =
    Parameter::own("before", "^[0-9]*$", "only before this time, in seconds since 1970");

/// The parameters that both lists share.
const LIST: [Parameter; 7] = [
    MARKET,
    TOKEN,
    AFTER,
    BEFORE,
    Parameter::limit(ROWS_DEFAULT, ROWS_MAX),
    Parameter::cursor("cursor"),
    Parameter::cursor("next_cursor"),
];

/// Returns the parameters of a list: its own, then the shared ones.
const fn list_query<const ALL: usize>(own: &[Parameter]) -> [Parameter; ALL] {
    assert!(own.len() + LIST.len() == ALL);
    let mut all = [MARKET; ALL];
    let mut at = 0;
    while at < ALL {
        all[at] = if at < own.len() { own[at] } else { LIST[at - own.len()] };
        at += 1;
    }
    all
}

/// Maximum number of rows in a list.
const ROWS_MAX: usize = 500;
const ROWS_DEFAULT: usize = 100;

/// A page of a list, from which the client reads the next one.
#[derive(JsonSchema, Serialize)]
#[schemars(rename = "VenuePageOf{Row}")]
pub(in crate::http) struct Page<Row> {
    /// The most rows of a page.
    limit: usize,
    /// The rows of this page.
    count: usize,
    /// `LTE=` on the last page.
    next_cursor: String,
    data: Vec<Row>,
}

/// The position at which a page starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cursor<C> {
    Start,
    At(C),
    End,
}

impl<Row> Page<Row> {
    fn new(limit: usize, data: Vec<Row>, next_cursor: Option<String>) -> Self {
        let next_cursor = next_cursor.unwrap_or_else(|| END.to_owned());
        Self { limit, count: data.len(), next_cursor, data }
    }
}

/// The values of the parameters of [`LIST`].
struct List<C> {
    market_id: Option<Box<str>>,
    token_id: Option<Box<str>>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
    limit: usize,
    cursor: Cursor<C>,
}

/// Reads the shared parameters. Fails if any parameter of the query was invalid.
fn read_list<C>(mut query: Query<'_>, read: fn(&str) -> Option<C>) -> Result<List<C>, ApiError> {
    let limit = query.number("limit", 1, ROWS_MAX).unwrap_or(ROWS_DEFAULT);
    let [market_id, token_id] = ["market", "asset_id"]
        .map(|name| query.filled_text(name, MARKET_ID_CHARACTERS_MAX).map(Into::into));
    let cursor = read_cursor(&mut query, read);
    let times = read_times(&query);
    query.finish(())?;
    let [from, to] = times?;
    Ok(List { market_id, token_id, from, to, limit, cursor })
}

/// Reads the cursor, which can be sent under two names.
fn read_cursor<C>(query: &mut Query<'_>, read: fn(&str) -> Option<C>) -> Cursor<C> {
    let cursor = query.cursor_of(["next_cursor", "cursor"], |text| match text {
        START => Some(Cursor::Start),
        END => Some(Cursor::End),
        text => read(text).map(Cursor::At),
    });
    cursor.unwrap_or(Cursor::Start)
}

/// Reads the time bounds, and returns the first and the last moment between them.
fn read_times(query: &Query<'_>) -> Result<[Option<Timestamp>; 2], ApiError> {
    let [after, before] = ["after", "before"].map(|name| query.get_filled(name));
    times_between(after.as_deref(), before.as_deref()).ok_or_else(ApiError::invalid_time_filter)
}

/// Returns the first and the last moment between two times, which are text of whole seconds since
/// 1970; `None` if one of the texts is no such time.
pub(super) fn times_between(
    after: Option<&str>,
    before: Option<&str>,
) -> Option<[Option<Timestamp>; 2]> {
    let read = |text: &str| {
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        let seconds = text.parse::<i64>().ok().filter(|_| is_number)?;
        seconds.checked_mul(1_000_000_000)
    };
    let after = after.map(|text| read(text).ok_or(())).transpose().ok()?;
    let before = before.map(|text| read(text).ok_or(())).transpose().ok()?;
    let after = after.map(|nanos| Timestamp::from_nanos(nanos.saturating_add(1)));
    // The digits have no sign, so this cannot overflow.
    let before = before.map(|nanos| Timestamp::from_nanos(nanos - 1));
    Some([after, before])
}

/// A time as text of milliseconds; empty if there is none.
#[derive(JsonSchema)]
#[schemars(inline)]
struct Millis(#[schemars(with = "String", extend("pattern" = "^[0-9]*$"))] Option<Timestamp>);

impl Serialize for Millis {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.0 {
            Some(at) => serializer.collect_str(&at.millis()),
            None => serializer.serialize_str(""),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::query::tests::query;

    #[test]
    fn a_cursor_has_a_start_and_an_end() {
        let read = |text| {
            let mut query = query("GET /v1/data/trades", Some(text));
            let cursor = read_cursor(&mut query, |text| text.parse::<u64>().ok());
            query.finish(cursor)
        };
        for (text, expected) in [
            ("", Cursor::Start),
            ("cursor=&next_cursor=", Cursor::Start),
            ("next_cursor=MA%3D%3D", Cursor::Start),
            ("next_cursor=MA==", Cursor::Start),
            ("cursor=LTE=", Cursor::End),
            ("cursor=7", Cursor::At(7)),
            ("cursor=8&next_cursor=7", Cursor::At(7)),
        ] {
            assert_eq!(read(text), Ok(expected), "{text}");
        }
        assert_eq!(errors_of(&read("next_cursor=x")), ["query.next_cursor: cursor_parsing"]);
    }

    #[test]
    fn times_are_bounds_without_themselves() {
        let read = |text| read_times(&query("GET /v1/data/orders", Some(text)));
        let nanos = |nanos| Some(Timestamp::from_nanos(nanos));
        assert_eq!(read("after=&before=").unwrap(), [None, None]);
        assert_eq!(read("after=2&before=3").unwrap(), [nanos(2_000_000_001), nanos(2_999_999_999)]);
        assert_eq!(read("before=0").unwrap(), [None, nanos(-1)]);
        for text in ["after=x", "before=-1", "before=1.5", "after=9223372037", "after=+1"] {
            assert_eq!(read(text).unwrap_err().code, "INVALID_TIME_FILTER", "{text}");
        }
    }
}
