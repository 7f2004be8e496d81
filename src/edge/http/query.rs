//! Reads and validates query parameters. Errors are collected, so that a client gets all of them at
//! once.

use std::borrow::Cow;
use std::collections::BTreeSet;

use hyper::header::{CONTENT_TYPE, HeaderName, HeaderValue};

use super::call::read_id;
use super::cursor::Cursor;
use super::fields::{check_length, closest, enum_message, warnings};
use super::invalid::{FieldError, Invalid, Location};
use super::operation::{Operation, Run};
use super::operations::trade::add_warnings;
use super::parameter::ParameterKind;
use super::reply::Reply;
use paperbourse_core::ids::{AccountId, Timestamp};
use paperbourse_exchange::service::{Page, Wallet};

/// Maximum `offset` of a list.
pub(super) const OFFSET_MAX: usize = 1_000_000_000;

/// The header with a sentence about each query parameter that was ignored.
const WARNINGS_HEADER: HeaderName = HeaderName::from_static("x-polysim-warnings");

/// Warns of query parameters that the operation does not read: in a header and, if the answer is an
/// object, in its `warnings`. Names that start with an underscore are exempt, because clients add
/// such parameters to get around caches.
pub(super) fn warn_of_ignored(reply: &mut Reply, operation: &Operation, query: &str) {
    if operation.is_clob() {
        return;
    }
    let is_read = |name: &str| operation.query.iter().any(|it| it.name == name);
    let names = form_urlencoded::parse(query.as_bytes()).map(|(name, _)| name);
    let ignored: BTreeSet<_> =
        names.filter(|name| !is_read(name) && !name.starts_with('_')).collect();
    if ignored.is_empty() || !reply.status.is_success() || matches!(operation.run, Run::File(_)) {
        return;
    }
    let ignored: Vec<_> = ignored.into_iter().collect();
    let mut sentences =
        warnings(&ignored, &format!("is not a parameter of {operation:?} and was ignored"));
    let known: Vec<_> = operation.query.iter().map(|it| it.name).collect();
    // The last sentence may count names instead of saying something about one.
    let named = sentences.len() - usize::from(ignored.len() > sentences.len());
    for (sentence, name) in sentences[..named].iter_mut().zip(&ignored) {
        if let Some(meant) = closest(name, &known) {
            sentence.truncate(sentence.len() - 1);
            *sentence += "; did you mean `";
            *sentence += meant;
            *sentence += "`?";
        }
    }
    let header = HeaderValue::try_from(sentences.join(" "));
    reply.headers.insert(WARNINGS_HEADER, header.expect("names are shown in visible ASCII"));
    let is_json = reply.instead.is_none() && !reply.headers.contains_key(CONTENT_TYPE);
    if is_json && reply.body.first() == Some(&b'{') {
        add_warnings(&mut reply.body, &sentences);
    }
}

/// Reads an operation's parameters by name, and collects their errors.
pub(super) struct Query<'a> {
    operation: &'static Operation,
    text: &'a str,
    errors: Vec<FieldError>,
}

/// The side of a period that a time bounds: its start or its end. The period includes everything
/// that the time stands for: the whole day for a date, and otherwise a microsecond, because answers
/// show times to the microsecond.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Bound {
    From,
    To,
}

impl<'a> Query<'a> {
    pub(super) fn new(operation: &'static Operation, text: Option<&'a str>) -> Self {
        Self { operation, text: text.unwrap_or_default(), errors: Vec::new() }
    }

    /// Returns the value of a parameter, the last one if it is repeated. Bytes that are not UTF-8
    /// become replacement characters, which match nothing.
    pub(super) fn get(&self, name: &'static str) -> Option<Cow<'a, str>> {
        self.assert_described(name, |_| true);
        let pairs = form_urlencoded::parse(self.text.as_bytes());
        pairs.filter(|(field, _)| field == name).last().map(|(_, value)| value)
    }

    /// Returns the value of a parameter; `None` if it is absent or empty, since clients send empty
    /// text for parameters that they leave out.
    pub(super) fn get_filled(&self, name: &'static str) -> Option<Cow<'a, str>> {
        self.get(name).filter(|text| !text.is_empty())
    }

    /// Panics in debug builds unless the operation's row describes this parameter with the right
    /// kind.
    fn assert_described(&self, name: &'static str, is_right: impl Fn(ParameterKind) -> bool) {
        debug_assert!(
            self.operation.query.iter().any(|it| it.name == name && is_right(it.kind)),
            "the row of {:?} describes {name} otherwise, or not at all",
            self.operation
        );
    }

    /// Adds an error about a parameter.
    pub(super) fn note(
        &mut self,
        name: &'static str,
        kind: &'static str,
        message: impl Into<Cow<'static, str>>,
    ) {
        let location = Location::of("query").field(name);
        self.errors.push(FieldError { location, kind, message: message.into() });
    }

    /// Reads text of `min` to `max` characters.
    pub(super) fn text(
        &mut self,
        name: &'static str,
        min: usize,
        max: usize,
    ) -> Option<Cow<'a, str>> {
        self.assert_described(name, |kind| kind == ParameterKind::Text { min, max });
        let text = self.get(name)?;
        match check_length(&text, min, max) {
            Ok(()) => Some(text),
            Err((kind, message)) => {
                self.note(name, kind, message);
                None
            }
        }
    }

    /// Reads text of at most `max` characters; `None` if it is absent or empty.
    pub(super) fn filled_text(&mut self, name: &'static str, max: usize) -> Option<Cow<'a, str>> {
        self.text(name, 0, max).filter(|text| !text.is_empty())
    }

    /// Reads required text of `min` to `max` characters. Returns empty text if there is an error.
    pub(super) fn required_text(
        &mut self,
        name: &'static str,
        min: usize,
        max: usize,
    ) -> Cow<'a, str> {
        debug_assert!(self.operation.query.iter().all(|it| it.name != name || it.is_required));
        if self.get(name).is_none() {
            self.note(name, "missing", "the parameter is required");
        }
        self.text(name, min, max).unwrap_or_default()
    }

    /// Reads the `wallet_id`: the id of a wallet, or `api` or `all`, which both mean the caller's
    /// only wallet. By default, this is the caller's own wallet.
    pub(super) fn wallet(&mut self) -> Wallet {
        const NAME: &str = "wallet_id";
        self.assert_described(NAME, |kind| kind == ParameterKind::Wallet);
        let Some(text) = self.get(NAME) else {
            return Wallet::Own;
        };
        read_wallet(Location::of("query").field(NAME), &text).unwrap_or_else(|error| {
            self.errors.push(error);
            Wallet::Own
        })
    }

    /// Reads a whole number of at least `min` and at most `max`.
    pub(super) fn number(&mut self, name: &'static str, min: usize, max: usize) -> Option<usize> {
        self.assert_described(name, |kind| match kind {
            ParameterKind::Number { min: least, max: most, .. } => (least, most) == (min, max),
            _ => false,
        });
        let text = self.get(name)?;
        let digits = text.strip_prefix(['+', '-']).unwrap_or(&text);
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            self.note(name, "int_parsing", "should be an integer");
            return None;
        }
        // A number that overflows an `i64` is also too large or too small for this parameter.
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

    /// Reads the start or the end of a period: a time in RFC 3339, or a date in UTC.
    pub(super) fn time(&mut self, name: &'static str, bound: Bound) -> Option<Timestamp> {
        self.assert_described(name, |kind| kind == ParameterKind::Time);
        let nanos = read_time(&self.get(name)?, bound);
        if nanos.is_none() {
            self.note(name, "datetime_parsing", "should be a time in RFC 3339 or a day");
        }
        nanos
    }

    /// Reads seconds since 1970, rounded down, or a time in RFC 3339, or a date in UTC. Returns
    /// seconds since 1970.
    pub(super) fn seconds(&mut self, name: &'static str, bound: Bound) -> Option<i64> {
        self.assert_described(name, |kind| kind == ParameterKind::Seconds);
        let text = self.get(name)?;
        let seconds =
            read_seconds(&text).or_else(|| read_time(&text, bound).map(Timestamp::seconds));
        if seconds.is_none() {
            let message = "should be seconds since 1970, a time in RFC 3339 or a day";
            self.note(name, "datetime_parsing", message);
        }
        seconds
    }

    /// Reads `limit` and `offset`.
    pub(super) fn page(&mut self, limit_default: usize, limit_max: usize) -> Page {
        self.assert_described("limit", |kind| {
            let default = Some(limit_default);
            kind == ParameterKind::Number { min: 1, max: limit_max, default }
        });
        Page {
            limit: self.number("limit", 1, limit_max).unwrap_or(limit_default),
            offset: self.number("offset", 0, OFFSET_MAX).unwrap_or(0),
        }
    }

    /// Reads a cursor, sent under one of these names, with `read`. An empty cursor counts as
    /// absent.
    pub(super) fn cursor_of<C, const N: usize>(
        &mut self,
        names: [&'static str; N],
        read: impl Fn(&str) -> Option<C>,
    ) -> Option<C> {
        names.into_iter().find_map(|name| {
            self.assert_described(name, |kind| kind == ParameterKind::Cursor);
            let cursor = read(&self.get_filled(name)?);
            if cursor.is_none() {
                self.note(name, "cursor_parsing", "should be a next_cursor of this list");
            }
            cursor
        })
    }

    /// Reads a cursor of a list that is paged by row number.
    pub(super) fn cursor(&mut self, name: &'static str) -> Option<Cursor> {
        self.assert_described(name, |kind| kind == ParameterKind::Cursor);
        let cursor = Cursor::parse(&self.get(name)?);
        if cursor.is_none_or(|it| matches!(it, Cursor::At(offset) if offset > OFFSET_MAX)) {
            self.note(name, "value_error", "should be a cursor that a page ended with");
        }
        // A cursor with an error is returned too, but `finish` then refuses the request.
        cursor
    }

    /// Reads a flag, by default false.
    pub(super) fn flag(&mut self, name: &'static str) -> bool {
        self.flag_or_none(name).unwrap_or(false)
    }

    /// Reads a flag; `None` if it is absent.
    pub(super) fn flag_or_none(&mut self, name: &'static str) -> Option<bool> {
        const TRUE: [&str; 6] = ["true", "1", "yes", "on", "t", "y"];
        const FALSE: [&str; 6] = ["false", "0", "no", "off", "f", "n"];
        self.assert_described(name, |kind| kind == ParameterKind::Flag);
        let text = self.get(name)?;
        let is_one_of = |words: [&str; 6]| words.iter().any(|word| text.eq_ignore_ascii_case(word));
        if !is_one_of(TRUE) && !is_one_of(FALSE) {
            self.note(name, "bool_parsing", "should be true or false");
        }
        Some(is_one_of(TRUE))
    }

    /// Reads one of several words, ignoring case.
    pub(super) fn choice<T: Copy>(
        &mut self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Option<T> {
        self.assert_described(name, |kind| match kind {
            ParameterKind::Choice { words } => {
                words.iter().eq(choices.iter().map(|(word, _)| word))
            }
            _ => false,
        });
        let text = self.get(name)?;
        let choice = choices.iter().find(|(word, _)| text.eq_ignore_ascii_case(word));
        if choice.is_none() {
            self.note(name, "enum", enum_message(choices));
        }
        choice.map(|(_, value)| *value)
    }

    /// Returns `value`, or the errors if there are any.
    pub(super) fn finish<T>(self, value: T) -> Result<T, Invalid> {
        if self.errors.is_empty() { Ok(value) } else { Err(Invalid { errors: self.errors }) }
    }
}

/// Reads the id of a wallet, or `api` or `all`, which both mean the caller's only wallet.
pub(super) fn read_wallet(location: Location, text: &str) -> Result<Wallet, FieldError> {
    if ["api", "all"].iter().any(|word| text.eq_ignore_ascii_case(word)) {
        return Ok(Wallet::Own);
    }
    let id = read_id(location, text, AccountId::from_raw).map_err(|error| FieldError {
        message: "should be an integer, `api` or `all`".into(),
        ..error
    });
    id.map(Wallet::WithId)
}

/// Reads the start or the end of a period: a time in RFC 3339, or a date in UTC. For an open end,
/// clients send the first or the last year that text can name. So a time before 1677 or after 2262,
/// which nanoseconds cannot represent, becomes the first or the last time that they can represent.
fn read_time(text: &str, bound: Bound) -> Option<Timestamp> {
    const NANOS_PER_MICRO: i128 = 1_000;
    const NANOS_PER_DAY: i128 = 86_400_000_000_000;
    let pieces = jiff::fmt::temporal::Pieces::parse(text).ok()?;
    let (start, length) = match (pieces.time(), pieces.offset()) {
        (None, None) => {
            let day = pieces.date().to_zoned(jiff::tz::TimeZone::UTC);
            (day.map(|day| day.timestamp()), NANOS_PER_DAY)
        }
        (Some(_), Some(_)) => (text.parse(), NANOS_PER_MICRO),
        // A time of day without a zone is ambiguous.
        _ => return None,
    };
    // The bounds of `jiff::Timestamp` are within the first and the last day that text can name.
    let start = match (start, pieces.date().year()) {
        (Ok(start), _) => start,
        (Err(_), -9999) => jiff::Timestamp::MIN,
        (Err(_), 9999) => jiff::Timestamp::MAX,
        (Err(_), _) => return None,
    };
    let start = start.as_nanosecond();
    let nanos = match bound {
        Bound::From => start,
        Bound::To => start - start.rem_euclid(length) + length - 1,
    };
    let nanos = nanos.clamp(i64::MIN.into(), i64::MAX.into());
    Some(Timestamp::from_nanos(i64::try_from(nanos).expect("it is clamped")))
}

/// Reads seconds since 1970, rounding down. Milliseconds, which would be far in the future, are
/// refused.
fn read_seconds(text: &str) -> Option<i64> {
    const SECONDS_MAX: i64 = 100_000_000_000;
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = whole.strip_prefix(['+', '-']).unwrap_or(whole);
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|it| it.is_ascii_digit());
    if !are_digits(digits) || !are_digits(fraction) {
        return None;
    }
    let is_rounded = whole.starts_with('-') && fraction.bytes().any(|digit| digit != b'0');
    let seconds: i64 = whole.parse().ok()?;
    // Checked before the subtraction, which then cannot overflow.
    let is_near = (1 - SECONDS_MAX..SECONDS_MAX).contains(&seconds);
    is_near.then(|| seconds - i64::from(is_rounded))
}

#[cfg(test)]
pub(super) mod tests {
    use hyper::Method;

    use super::*;
    use crate::http::route::find;

    /// Returns the query of a request such as `GET /v1/markets`.
    pub(in crate::http) fn query<'a>(request: &str, text: Option<&'a str>) -> Query<'a> {
        let (method, path) = request.split_once(' ').unwrap();
        let method: Method = method.parse().unwrap();
        Query::new(find(&method, path, false).unwrap(), text)
    }

    #[test]
    fn a_flag_is_one_of_several_words() {
        for (text, expected) in [("", false), ("strict=1", true), ("strict=Off", false)] {
            let mut query = query("GET /v1/health/ready", Some(text));
            assert_eq!(query.flag("strict"), expected, "{text}");
            assert_eq!(query.finish(()), Ok(()));
        }
    }

    #[test]
    fn a_time_is_in_seconds_or_text() {
        const DAY: i64 = 86_400;
        const FIRST: i64 = -9_223_372_037;
        const LAST: i64 = 9_223_372_036;
        for (text, expected) in [
            ("1784578686", Some(1_784_578_686)),
            ("1784578686.071", Some(1_784_578_686)),
            ("0", Some(0)),
            ("-0.5", Some(-1)),
            ("-7.0", Some(-7)),
            ("1970-01-02", Some(2 * DAY - 1)),
            ("1970-01-02T00:00:01Z", Some(DAY + 1)),
            ("1970-01-02 00:00:01%2B00:00", Some(DAY + 1)),
            ("1784578686071", None),
            ("9223372036854775808", None),
            ("-9223372036854775807.5", None),
            ("-9223372036854775808", None),
            ("-9223372036854775808.5", None),
            ("-100000000000", None),
            ("0001-01-01", Some(FIRST)),
            ("0001-01-01T00:00:00Z", Some(FIRST)),
            ("1677-09-21", Some(-9_223_286_401)),
            ("1677-09-21T00:12:43.145224191Z", Some(FIRST)),
            ("2262-04-11", Some(LAST)),
            ("9999-12-31", Some(LAST)),
            ("9999-12-31T23:59:59.999999Z", Some(LAST)),
            ("1970-01-02T00:00:01", None),
            ("9999-12-31T23:59:59", None),
            ("9999-12-32T00:00:00Z", None),
            ("1e9", None),
            ("1.", None),
            (".5", None),
            ("+", None),
            ("", None),
            ("now", None),
        ] {
            let request = format!("end_time={text}");
            let mut query = query("GET /v1/markets/0xa/candles", Some(&request));
            assert_eq!(query.seconds("end_time", Bound::To), expected, "{text}");
            assert_eq!(query.finish(()).is_ok(), expected.is_some(), "{text}");
        }
    }

    #[test]
    fn a_period_includes_all_that_its_ends_stand_for() {
        let read = |text: &str, bound| {
            let text = format!("to={text}");
            let mut query = query("GET /v1/account/settlements", Some(&text));
            let time = query.time("to", bound);
            query.finish(time).ok().flatten().map(Timestamp::nanos)
        };
        let day = 86_400_000_000_000;
        for (text, from, to) in [
            ("1970-01-02", day, 2 * day - 1),
            ("1970-01-02T00:00:00Z", day, day + 999),
            ("1970-01-02T00:00:00.07Z", day + 70_000_000, day + 70_000_999),
            ("1970-01-02T00:00:00.000001Z", day + 1_000, day + 1_999),
            ("1970-01-02T00:00:00.000001234Z", day + 1_234, day + 1_999),
            ("1970-01-01T23:00:00-01:00", day, day + 999),
            ("1969-12-31T23:59:59.9999995Z", -500, -1),
            ("1969-12-31", -day, -1),
            ("9999-12-31", i64::MAX, i64::MAX),
        ] {
            let expected = [Some(from), Some(to)];
            assert_eq!([Bound::From, Bound::To].map(|bound| read(text, bound)), expected, "{text}");
        }
    }

    #[test]
    fn a_parameter_is_found_by_its_decoded_name() {
        for (text, expected) in [
            (Some("a=1&token=x.y.z"), Some("x.y.z")),
            (Some("token=%FF"), Some("\u{fffd}")),
            (Some("token=1&token=%zz%4"), Some("%zz%4")),
            (Some("%74oken=+%2B"), Some(" +")),
            (Some("token"), Some("")),
            (Some("tokens=1&Token=2&token%00=3&=4"), None),
            (None, None),
        ] {
            assert_eq!(query("GET /v1/ws/prices", text).get("token").as_deref(), expected);
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    #[should_panic(expected = "GET /v1/time describes limit")]
    fn a_parameter_that_the_row_does_not_name_cannot_be_read() {
        query("GET /v1/time", None).get("limit");
    }
}
