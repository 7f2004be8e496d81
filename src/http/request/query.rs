//! Query strings: the parameters of each operation that has any.

use std::borrow::Cow;

use super::order::{MARKET_ID_CHARACTERS_MAX, ORDER_NAME_CHARACTERS_MAX, OUTCOME_CHARACTERS_MAX};
use crate::http::fields::check_length;
use crate::http::invalid::{FieldError, Invalid, Location};
use crate::http::percent;
use crate::ids::Timestamp;
use crate::market::book::Side;

/// A list cannot be entered further in than this.
pub const OFFSET_MAX: usize = 1_000_000_000;
/// A list of orders or markets has at most this many rows.
pub const ROWS_MAX: usize = 200;
/// A list of settlements has at most this many rows.
pub const SETTLEMENTS_MAX: usize = 500;
/// A list of comments has at most this many rows.
pub const COMMENTS_MAX: usize = 100;
/// What markets are searched for has at most this many characters.
pub const SEARCH_CHARACTERS_MAX: usize = 120;
/// At most so many levels of a side of a book can be asked for; all of them when not said.
pub const DEPTH_MAX: usize = 500;
/// A credential has at most this many characters.
pub const TOKEN_CHARACTERS_MAX: usize = 4_096;

/// Which part of a list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Page {
    /// How many rows at most.
    pub limit: usize,
    /// How many rows to leave out first.
    pub offset: usize,
}

/// `GET /v1/markets`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarketsQuery<'a> {
    /// Which part of the list.
    pub page: Page,
    /// What question or slug should contain; `search` is the older name of `q`.
    pub text: Option<Cow<'a, str>>,
    /// What the category should contain.
    pub category: Option<Cow<'a, str>>,
    /// Only markets that are not closed.
    pub active_only: bool,
    /// Only markets that are traded much.
    pub hot_only: bool,
}

/// `GET /v1/markets/{condition_id}/book`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarketBookQuery<'a> {
    /// The label of the outcome; the first one when not said.
    pub outcome: Option<Cow<'a, str>>,
    /// How many levels of each side, best first; all when not said.
    pub depth: Option<usize>,
}

/// `GET /v1/book`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BookQuery<'a> {
    /// The venue's name for the outcome's token.
    pub token_id: Cow<'a, str>,
    /// How many levels of each side, best first; all when not said.
    pub depth: Option<usize>,
}

/// `GET /v1/orders`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OrdersQuery<'a> {
    /// Which part of the list.
    pub page: Page,
    /// Only orders in this state.
    pub status: Option<OrderStatus>,
    /// Only orders of this market.
    pub market_id: Option<Cow<'a, str>>,
    /// Only orders of this side.
    pub side: Option<Side>,
    /// Only the order with this name; an empty one is none.
    pub client_order_id: Option<Cow<'a, str>>,
}

/// `GET /v1/account/settlements`
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettlementsQuery<'a> {
    /// How many rows at most.
    pub limit: usize,
    /// Only of positions before this one, by number; an empty cursor is none.
    pub before: Option<u64>,
    /// Only of this market.
    pub market_id: Option<Cow<'a, str>>,
    /// Only of this time and later.
    pub from: Option<Timestamp>,
    /// Only of this time and before; a day is meant with all of its hours.
    pub to: Option<Timestamp>,
}

/// Where in its life an order is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OrderStatus {
    /// It rests; `OPEN` is another name for it.
    Pending,
    /// It has filled.
    Filled,
    /// It was cancelled.
    Cancelled,
    /// It ended by itself.
    Expired,
}

/// Whether a position holds shares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PositionStatus {
    /// It does.
    Open,
    /// It did.
    Closed,
}

impl<'a> MarketsQuery<'a> {
    /// Reads a query string.
    pub fn read(query: Option<&'a str>) -> Result<Self, Invalid> {
        let mut query = Parameters::new(query);
        let request = Self {
            page: query.page(50, ROWS_MAX),
            text: match query.text("q", 0, SEARCH_CHARACTERS_MAX) {
                None => query.text("search", 0, SEARCH_CHARACTERS_MAX),
                some => some,
            },
            category: query.text("category", 0, SEARCH_CHARACTERS_MAX),
            active_only: query.flag("active_only"),
            hot_only: query.flag("hot_only"),
        };
        query.finish(request)
    }
}

impl<'a> MarketBookQuery<'a> {
    /// Reads a query string.
    pub fn read(query: Option<&'a str>) -> Result<Self, Invalid> {
        let mut query = Parameters::new(query);
        let request = Self {
            outcome: query.text("outcome", 1, OUTCOME_CHARACTERS_MAX),
            depth: query.number("depth", 1, DEPTH_MAX),
        };
        query.finish(request)
    }
}

impl<'a> BookQuery<'a> {
    /// Reads a query string.
    pub fn read(query: Option<&'a str>) -> Result<Self, Invalid> {
        let mut query = Parameters::new(query);
        if query.get("token_id").is_none() {
            query.note("token_id", "missing", "the parameter is required");
        }
        let request = Self {
            token_id: query.text("token_id", 1, MARKET_ID_CHARACTERS_MAX).unwrap_or_default(),
            depth: query.number("depth", 1, DEPTH_MAX),
        };
        query.finish(request)
    }
}

impl<'a> OrdersQuery<'a> {
    /// Reads a query string.
    pub fn read(query: Option<&'a str>) -> Result<Self, Invalid> {
        use OrderStatus::{Cancelled, Expired, Filled, Pending};
        let mut query = Parameters::new(query);
        let statuses = [
            ("PENDING", Pending),
            ("OPEN", Pending),
            ("FILLED", Filled),
            ("CANCELLED", Cancelled),
            ("EXPIRED", Expired),
        ];
        let names = ORDER_NAME_CHARACTERS_MAX;
        let request = Self {
            page: query.page(50, ROWS_MAX),
            status: query.choice("status", &statuses),
            market_id: query.text("market_id", 1, MARKET_ID_CHARACTERS_MAX),
            side: query.choice("side", &[("BUY", Side::Buy), ("SELL", Side::Sell)]),
            client_order_id: query
                .text("client_order_id", 0, names)
                .filter(|name| !name.is_empty()),
        };
        query.finish(request)
    }
}

impl<'a> SettlementsQuery<'a> {
    /// Reads a query string.
    pub fn read(query: Option<&'a str>) -> Result<Self, Invalid> {
        let mut query = Parameters::new(query);
        let has_cursor = query.get("cursor").is_some_and(|cursor| !cursor.is_empty());
        let cursor = has_cursor.then(|| query.number("cursor", 1, usize::MAX)).flatten();
        let request = Self {
            limit: query.number("limit", 1, SETTLEMENTS_MAX).unwrap_or(100),
            before: cursor.and_then(|cursor| u64::try_from(cursor).ok()),
            market_id: query.text("market_id", 1, MARKET_ID_CHARACTERS_MAX),
            from: query.time("from", DayEnd::First),
            to: query.time("to", DayEnd::Last),
        };
        query.finish(request)
    }
}

/// Which moment of a day is meant by the day.
#[derive(Clone, Copy, PartialEq, Eq)]
enum DayEnd {
    First,
    Last,
}

/// `GET /trades/{order_id}/comments`
pub fn read_comments_page(query: Option<&str>) -> Result<Page, Invalid> {
    let mut query = Parameters::new(query);
    let page = query.page(50, COMMENTS_MAX);
    query.finish(page)
}

/// `GET /v1/account/positions`: only positions in this state, all when not said.
pub fn read_position_status(query: Option<&str>) -> Result<Option<PositionStatus>, Invalid> {
    let mut query = Parameters::new(query);
    let statuses = [("OPEN", PositionStatus::Open), ("CLOSED", PositionStatus::Closed)];
    let status = query.choice("status", &statuses);
    query.finish(status)
}

/// `DELETE /v1/keys/{key_id}`: whether keys that were made with it end too.
pub fn read_descendants(query: Option<&str>) -> Result<bool, Invalid> {
    read_flag(query, "descendants")
}

/// `GET /v1/health/ready`: whether a venue that is not fresh counts as not ready.
pub fn read_strict(query: Option<&str>) -> Result<bool, Invalid> {
    read_flag(query, "strict")
}

/// `GET /v1/ws/prices`: the socket token. A text that is too long to be one is none that exists,
/// which the socket says with its close code.
pub fn socket_token(query: Option<&str>) -> Option<Cow<'_, str>> {
    Parameters::new(query).get("token").filter(|token| token.len() <= TOKEN_CHARACTERS_MAX)
}

fn read_flag(query: Option<&str>, name: &'static str) -> Result<bool, Invalid> {
    let mut query = Parameters::new(query);
    let flag = query.flag(name);
    query.finish(flag)
}

/// The parameters of a query string, found in it by name, and what is wrong with them.
struct Parameters<'a> {
    query: &'a str,
    errors: Vec<FieldError>,
}

impl<'a> Parameters<'a> {
    fn new(query: Option<&'a str>) -> Self {
        Self { query: query.unwrap_or_default(), errors: Vec::new() }
    }

    /// The value of a parameter, the last one where it stands several times. Bytes that are not
    /// UTF-8 become replacement characters, which match nothing.
    fn get(&self, name: &str) -> Option<Cow<'a, str>> {
        let pairs = self.query.rsplit('&');
        let mut pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let (_, value) =
            pairs.find(|(field, _)| percent::decode(field, true).as_ref() == name.as_bytes())?;
        Some(match percent::decode(value, true) {
            Cow::Borrowed(_) => Cow::Borrowed(value),
            Cow::Owned(bytes) => Cow::Owned(String::from_utf8_lossy(&bytes).into_owned()),
        })
    }

    fn note(
        &mut self,
        name: &'static str,
        kind: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) {
        let location = Location::of("query").field(name);
        self.errors.push(FieldError { location, kind, message: message.into() });
    }

    fn text(&mut self, name: &'static str, min: usize, max: usize) -> Option<Cow<'a, str>> {
        let text = self.get(name)?;
        match check_length(&text, min, max) {
            Ok(()) => Some(text),
            Err((kind, message)) => {
                self.note(name, kind, message);
                None
            }
        }
    }

    /// A whole number of at least `min` and at most `max`.
    fn number(&mut self, name: &'static str, min: usize, max: usize) -> Option<usize> {
        let text = self.get(name)?;
        let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            self.note(name, "int_parsing", "should be an integer");
            return None;
        }
        // Past the range of an integer every number is too large, or too small.
        let magnitude: i64 = digits.parse().unwrap_or(i64::MAX);
        let number = if text.starts_with('-') { -magnitude } else { magnitude };
        match usize::try_from(number) {
            Ok(number) if number > max => {
                self.note(name, "less_than_equal", format!("should be at most {max}"));
                None
            }
            Ok(number) if number >= min => Some(number),
            _ => {
                self.note(name, "greater_than_equal", format!("should be at least {min}"));
                None
            }
        }
    }

    /// A moment, in RFC 3339, or a day in UTC.
    fn time(&mut self, name: &'static str, end: DayEnd) -> Option<Timestamp> {
        const NANOS_PER_DAY: i64 = 86_400_000_000_000;
        let text = self.get(name)?;
        let moment: Result<jiff::Timestamp, _> = text.parse();
        let day: Result<jiff::civil::Date, _> = text.parse();
        let nanos = match (moment, day) {
            (Ok(moment), _) => i64::try_from(moment.as_nanosecond()).ok(),
            (Err(_), Ok(day)) => {
                let midnight = day.to_zoned(jiff::tz::TimeZone::UTC).ok();
                let nanos = midnight.map(|day| day.timestamp().as_nanosecond());
                let nanos = nanos.and_then(|nanos| i64::try_from(nanos).ok());
                if end == DayEnd::First {
                    nanos
                } else {
                    nanos.and_then(|nanos| nanos.checked_add(NANOS_PER_DAY - 1))
                }
            }
            _ => None,
        };
        if nanos.is_none() {
            self.note(name, "datetime_parsing", "should be a time in RFC 3339 or a day");
        }
        nanos.map(Timestamp::from_nanos)
    }

    fn page(&mut self, limit_default: usize, limit_max: usize) -> Page {
        Page {
            limit: self.number("limit", 1, limit_max).unwrap_or(limit_default),
            offset: self.number("offset", 0, OFFSET_MAX).unwrap_or(0),
        }
    }

    /// Whether something is wanted; not when not said.
    fn flag(&mut self, name: &'static str) -> bool {
        const TRUE: [&str; 6] = ["true", "1", "yes", "on", "t", "y"];
        const FALSE: [&str; 6] = ["false", "0", "no", "off", "f", "n"];
        let Some(text) = self.get(name) else {
            return false;
        };
        let is_one_of = |words: [&str; 6]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        if !is_one_of(TRUE) && !is_one_of(FALSE) {
            self.note(name, "bool_parsing", "should be true or false");
        }
        is_one_of(TRUE)
    }

    /// One of several words, in any case.
    fn choice<T: Copy>(&mut self, name: &'static str, choices: &[(&str, T)]) -> Option<T> {
        let text = self.get(name)?;
        let choice = choices.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
        if choice.is_none() {
            let words: Vec<&str> = choices.iter().map(|(word, _)| *word).collect();
            self.note(name, "enum", format!("should be one of {}", words.join(", ")));
        }
        choice.map(|(_, value)| *value)
    }

    fn finish<T>(self, value: T) -> Result<T, Invalid> {
        if self.errors.is_empty() { Ok(value) } else { Err(Invalid { errors: self.errors }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::told;

    #[test]
    fn a_list_has_a_page() {
        for (query, limit, offset) in [
            (None, 50, 0),
            (Some(""), 50, 0),
            (Some("&&x&=1"), 50, 0),
            (Some("limit=7&offset=9"), 7, 9),
            (Some("limit=7&limit=8"), 8, 0),
            (Some("%6cimit=%31&offset=%2B2"), 1, 2),
            (Some("limit=100&offset=1000000000"), 100, 1_000_000_000),
        ] {
            assert_eq!(read_comments_page(query), Ok(Page { limit, offset }), "{query:?}");
        }
        for (query, expected) in [
            ("limit=0", &["query.limit: greater_than_equal"][..]),
            ("limit=101", &["query.limit: less_than_equal"]),
            ("limit=99999999999999999999", &["query.limit: less_than_equal"]),
            ("limit=-99999999999999999999", &["query.limit: greater_than_equal"]),
            ("limit=", &["query.limit: int_parsing"]),
            ("limit=1.0&offset=x", &["query.limit: int_parsing", "query.offset: int_parsing"]),
            ("offset=-1", &["query.offset: greater_than_equal"]),
        ] {
            assert_eq!(told(&read_comments_page(Some(query))), expected, "{query}");
        }
    }

    #[test]
    fn markets_are_searched_by_either_name() {
        let query = "search=old&q=a+b%26&active_only=TRUE&hot_only=0&category=%C3%A9&limit=200";
        assert_eq!(
            MarketsQuery::read(Some(query)),
            Ok(MarketsQuery {
                page: Page { limit: 200, offset: 0 },
                text: Some("a b&".into()),
                category: Some("é".into()),
                active_only: true,
                hot_only: false,
            })
        );
        assert_eq!(MarketsQuery::read(Some("search=old")).unwrap().text.as_deref(), Some("old"));
        let query = format!("q={}&active_only=maybe&limit=201", "x".repeat(121));
        assert_eq!(
            told(&MarketsQuery::read(Some(&query))),
            [
                "query.limit: less_than_equal",
                "query.q: string_too_long",
                "query.active_only: bool_parsing"
            ]
        );
    }

    #[test]
    fn books_are_asked_for_by_token_or_by_outcome() {
        let book = BookQuery { token_id: "123".into(), depth: None };
        assert_eq!(BookQuery::read(Some("token_id=123")), Ok(book));
        for (query, expected) in [
            (None, "query.token_id: missing"),
            (Some("token_id="), "query.token_id: string_too_short"),
            (Some("token_id=1&depth=0"), "query.depth: greater_than_equal"),
            (Some("token_id=1&depth=501"), "query.depth: less_than_equal"),
        ] {
            assert_eq!(told(&BookQuery::read(query)), [expected], "{query:?}");
        }
        let book = MarketBookQuery { outcome: Some("No".into()), depth: Some(3) };
        assert_eq!(MarketBookQuery::read(Some("outcome=No&depth=3")), Ok(book));
        assert_eq!(
            told(&MarketBookQuery::read(Some("outcome="))),
            ["query.outcome: string_too_short"]
        );
    }

    #[test]
    fn orders_are_filtered() {
        let orders =
            OrdersQuery::read(Some("status=open&side=sell&market_id=0xa&client_order_id="));
        assert_eq!(
            orders,
            Ok(OrdersQuery {
                page: Page { limit: 50, offset: 0 },
                status: Some(OrderStatus::Pending),
                market_id: Some("0xa".into()),
                side: Some(Side::Sell),
                client_order_id: None,
            })
        );
        assert_eq!(
            told(&OrdersQuery::read(Some("status=done&side=HOLD"))),
            ["query.status: enum", "query.side: enum"]
        );
        let open = read_position_status(Some("status=OPEN"));
        assert_eq!(open, Ok(Some(PositionStatus::Open)));
        assert_eq!(told(&read_position_status(Some("status=all"))), ["query.status: enum"]);
    }

    #[test]
    fn settlements_are_filtered() {
        let all =
            SettlementsQuery { limit: 100, before: None, market_id: None, from: None, to: None };
        assert_eq!(SettlementsQuery::read(None), Ok(all.clone()));
        assert_eq!(SettlementsQuery::read(Some("cursor=")), Ok(all.clone()));
        let query = "limit=500&cursor=7&market_id=0xa&from=1970-01-02&to=1970-01-02";
        let day = 86_400;
        let expected = SettlementsQuery {
            limit: 500,
            before: Some(7),
            market_id: Some("0xa".into()),
            from: Some(Timestamp::from_seconds(day)),
            to: Some(Timestamp::from_nanos(2 * day * 1_000_000_000 - 1)),
        };
        assert_eq!(SettlementsQuery::read(Some(query)), Ok(expected));
        let exact = SettlementsQuery::read(Some("from=1970-01-01T01:00:00%2B01:00"));
        assert_eq!(exact, Ok(SettlementsQuery { from: Some(Timestamp::EPOCH), ..all }));
        for (query, expected) in [
            ("limit=501", "query.limit: less_than_equal"),
            ("cursor=0", "query.cursor: greater_than_equal"),
            ("cursor=x", "query.cursor: int_parsing"),
            ("from=yesterday", "query.from: datetime_parsing"),
            ("to=1970-02-30", "query.to: datetime_parsing"),
            ("to=9999-12-31", "query.to: datetime_parsing"),
        ] {
            assert_eq!(told(&SettlementsQuery::read(Some(query))), [expected], "{query}");
        }
    }

    #[test]
    fn flags_and_tokens() {
        for (query, expected) in [("", false), ("strict=1", true), ("strict=Off", false)] {
            assert_eq!(read_strict(Some(query)), Ok(expected), "{query}");
        }
        assert_eq!(
            told(&read_descendants(Some("descendants"))),
            ["query.descendants: bool_parsing"]
        );
        assert_eq!(socket_token(Some("a=1&token=x.y.z")).as_deref(), Some("x.y.z"));
        assert_eq!(socket_token(Some("token=%FF")).as_deref(), Some("\u{fffd}"));
        assert_eq!(socket_token(None), None);
        let long = format!("token={}", "x".repeat(TOKEN_CHARACTERS_MAX + 1));
        assert_eq!(socket_token(Some(&long)), None);
    }
}
