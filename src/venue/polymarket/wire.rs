//! Parses Polymarket's JSON into typed values, and does nothing else.
//!
//! Gamma uses camel case, numbers, and strings that contain JSON arrays; the CLOB service uses
//! snake case or single letters; the market socket uses strings throughout. Numbers of all forms
//! are parsed from their text, never through a float.
//!
//! The parser is `serde_json`: exact numbers need its raw values, which `simd-json` lacks, and
//! where all numbers are strings `simd-json` was the slower of the two (`perf/README.md` has the
//! figures). Well-formed input is parsed in one pass.
//!
//! Parsing keeps no state: the feed decides what a message changes.

pub mod clob;
pub mod data;
pub mod gamma;
pub mod socket;

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error as _, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::resolution::Stage;
use paperbourse_core::ids::Timestamp;
pub use paperbourse_core::market::catalogue::ID_BYTES_MAX;
use paperbourse_core::market::catalogue::{
    LABEL_BYTES_MAX, MarketInfo, OUTCOMES_PER_MARKET_MAX, Outcome, SHOWN_TEXT_BYTES_MAX,
};
use paperbourse_core::money::{DecimalError, Price, Rounding, micros_from_text};

/// Maximum length of a hash, in bytes. The venue's hashes have 40 bytes.
pub const HASH_BYTES_MAX: usize = 80;

/// Placeholder for a missing timestamp. The venue does send messages without a timestamp.
pub const NO_TIMESTAMP: Timestamp = Timestamp::EPOCH;

/// An error from parsing a message.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The text is not JSON of the expected form. The error states line and column.
    #[error("{0}")]
    Json(#[from] serde_json::Error),
    /// A required field is missing.
    #[error("field {field} is missing")]
    Missing {
        /// The name of the field.
        field: &'static str,
    },
    /// A field has an invalid value.
    #[error("field {field}: {problem}")]
    Field {
        /// The name of the field.
        field: &'static str,
        /// The problem with its value.
        problem: FieldProblem,
    },
    /// A frame of an undocumented type.
    #[error("frame of unknown type {event_type:?}")]
    UnknownType {
        /// The type, truncated to [`ID_BYTES_MAX`] characters.
        event_type: String,
    },
    /// An entry of a `price_change` cannot be parsed.
    #[error("{0}")]
    Entry(String),
    /// A `price_change` from before 2025-09-15, which no server sends today.
    #[error("price_change in the format before 2025-09-15")]
    OldFormat,
}

/// A problem with the value of a field.
#[derive(Debug, thiserror::Error)]
pub enum FieldProblem {
    /// The value is not a valid number.
    #[error(transparent)]
    Number(#[from] DecimalError),
    /// The value does not have the expected form.
    #[error("expected {expected}")]
    Expected {
        /// The expected form.
        expected: &'static str,
    },
    /// The levels in the value do not form a book.
    #[error(transparent)]
    Ladder(#[from] paperbourse_core::market::book::LadderError),
}

/// A description of a market, from any of the services.
#[derive(Clone, PartialEq, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each says what one field of the venue states")]
pub struct Description {
    /// The market, with defaults for fields that the description does not state.
    pub info: MarketInfo,
    /// The time at which the venue last updated the description, if stated.
    pub updated_at: Option<Timestamp>,
    /// Whether the description states the taker fee.
    pub is_fee_stated: bool,
    /// Whether the description states the delay on marketable orders.
    pub is_delay_stated: bool,
    /// Whether the description states that delay in milliseconds, which takes precedence over the
    /// usual delay.
    pub is_delay_exact: bool,
    /// The payouts that a closed market shows, if a market can resolve to them. They are not final:
    /// see [`super::resolution`].
    pub shown_payouts: Option<Vec<Price>>,
    /// Whether a winner is named. If so, it determines `shown_payouts`.
    pub has_named_winner: bool,
    /// The stage of the resolution.
    pub stage: Stage,
}

/// A field that may be missing, null, or of any type.
type Raw<'a> = Option<&'a RawValue>;

/// Returns the content of a string or the text of a number; `None` if it is missing, null or empty.
fn scalar<'a>(field: &'static str, raw: Raw<'a>) -> Result<Option<Cow<'a, str>>, WireError> {
    let Some(raw) = raw else { return Ok(None) };
    let text = raw.get();
    let content = match text.as_bytes().first() {
        Some(b'"') if !text.contains('\\') => Cow::Borrowed(&text[1..text.len() - 1]),
        Some(b'"') => Cow::Owned(serde_json::from_str(text)?),
        Some(b'-' | b'0'..=b'9') => Cow::Borrowed(text),
        Some(b'n') => return Ok(None),
        _ => return Err(expected(field, "a string or a number")),
    };
    Ok(if content.is_empty() { None } else { Some(content) })
}

/// Parses millionths from a number or a string that contains one.
fn micros(field: &'static str, raw: Raw<'_>, rounding: Rounding) -> Result<Option<i64>, WireError> {
    let Some(text) = scalar(field, raw)? else { return Ok(None) };
    let micros = micros_from_text(&text, rounding)
        .map_err(|error| WireError::Field { field, problem: error.into() })?;
    Ok(Some(micros))
}

/// Parses a delay, rounded to the nearest millisecond, from a number or a string that contains one;
/// `None` if the field is missing or null. `micros_per_ms` is one millisecond in millionths of the
/// field's unit.
fn delay_ms(
    field: &'static str,
    raw: Raw<'_>,
    micros_per_ms: i64,
) -> Result<Option<u32>, WireError> {
    let Some(micros) = micros(field, raw, Rounding::HalfEven)? else { return Ok(None) };
    if micros < 0 {
        return Err(expected(field, "a delay of 0 or more"));
    }
    let ms = micros.saturating_add(micros_per_ms / 2) / micros_per_ms;
    Ok(Some(u32::try_from(ms).unwrap_or(u32::MAX)))
}

/// Parses the delay on marketable orders in milliseconds, from the field in milliseconds or else
/// from the field in seconds. The flag is true if a positive number of milliseconds was stated; 0
/// may mean that the source knows of no delay.
fn taker_delay_ms(
    (ms_field, ms): (&'static str, Raw<'_>),
    (seconds_field, seconds): (&'static str, Raw<'_>),
) -> Result<(Option<u32>, bool), WireError> {
    let ms = delay_ms(ms_field, ms, 1_000_000)?;
    let is_exact = ms.is_some_and(|ms| ms > 0);
    Ok((ms.or(delay_ms(seconds_field, seconds, 1_000)?), is_exact))
}

/// Parses a flag; `None` if it is missing or null.
fn flag(field: &'static str, raw: Raw<'_>) -> Result<Option<bool>, WireError> {
    match raw.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some("true" | "\"true\"") => Ok(Some(true)),
        Some("false" | "\"false\"") => Ok(Some(false)),
        Some(_) => Err(expected(field, "true or false")),
    }
}

/// Parses the scalars of an array, or of a string that contains one; empty if there is none.
fn list<'a>(field: &'static str, raw: Raw<'a>) -> Result<Vec<Cow<'a, str>>, WireError> {
    let Some(raw) = raw else { return Ok(Vec::new()) };
    if raw.get().starts_with('[') {
        let items: Vec<&'a RawValue> = serde_json::from_str(raw.get())?;
        return items.into_iter().map(|item| item_text(field, item)).collect();
    }
    let Some(text) = scalar(field, Some(raw))? else { return Ok(Vec::new()) };
    let items: Vec<&RawValue> =
        serde_json::from_str(&text).map_err(|_| expected(field, "a string that holds an array"))?;
    items.into_iter().map(|item| Ok(Cow::Owned(item_text(field, item)?.into_owned()))).collect()
}

fn item_text<'a>(field: &'static str, item: &'a RawValue) -> Result<Cow<'a, str>, WireError> {
    Ok(scalar(field, Some(item))?.unwrap_or_default())
}

fn expected(field: &'static str, expected: &'static str) -> WireError {
    WireError::Field { field, problem: FieldProblem::Expected { expected } }
}

/// Checks the id of a market or a token: visible ASCII that needs no escaping in JSON.
fn checked_id<'a>(field: &'static str, id: &'a str) -> Result<&'a str, WireError> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if id.is_empty() || id.len() > ID_BYTES_MAX || !id.bytes().all(is_plain) {
        return Err(expected(field, "an id of at most 80 letters and digits"));
    }
    Ok(id)
}

/// Pairs labels with tokens by index. The ids of tokens that are not known yet are empty.
fn outcomes(
    labels: &[Cow<'_, str>],
    (field, tokens): (&'static str, &[Cow<'_, str>]),
) -> Result<Vec<Outcome>, WireError> {
    if labels.len() > OUTCOMES_PER_MARKET_MAX {
        return Err(expected("outcomes", "at most 64 outcomes"));
    }
    if tokens.len() > labels.len() {
        return Err(expected(field, "no more tokens than outcomes"));
    }
    let outcomes = labels.iter().enumerate().map(|(index, label)| {
        if label.len() > LABEL_BYTES_MAX {
            return Err(expected("outcomes", "labels of at most 200 bytes"));
        }
        let token = tokens.get(index).map_or("", Cow::as_ref);
        if !token.is_empty() {
            checked_id(field, token)?;
            if tokens[..index].iter().any(|other| other == token) {
                return Err(expected(field, "a token of its own for each outcome"));
            }
        }
        Ok(Outcome { label: label.as_ref().into(), token_id: token.into() })
    });
    outcomes.collect()
}

/// Checks the length of the venue's hash of a book, if there is one.
fn checked_hash(hash: Option<&str>) -> Result<Option<&str>, WireError> {
    match hash {
        Some(hash) if hash.len() > HASH_BYTES_MAX => Err(expected("hash", "at most 80 bytes")),
        hash => Ok(hash.filter(|hash| !hash.is_empty())),
    }
}

/// Parses text that is only displayed; `None` if it is malformed or too long.
fn shown(raw: Raw<'_>) -> Option<Box<str>> {
    let text = scalar("text", raw).ok().flatten()?;
    (text.len() <= SHOWN_TEXT_BYTES_MAX).then(|| text.as_ref().into())
}

/// Returns whether all outcomes have tokens.
fn is_hydrated(outcomes: &[Outcome]) -> bool {
    !outcomes.is_empty() && outcomes.iter().all(|outcome| !outcome.token_id.is_empty())
}

/// Rounds prices to payouts if they are within 0.001: 1 for one outcome and 0 for the others, or ½
/// for both of two. `None` for any other prices, which old markets show.
fn payouts_of(shown: &[Price]) -> Option<Vec<Price>> {
    const TOLERANCE_MICROS: i64 = 1_000;
    let half = Price::from_micros(500_000);
    let is_near =
        |price: Price, value: Price| (price.micros() - value.micros()).abs() <= TOLERANCE_MICROS;
    if shown.len() == 2 && shown.iter().all(|&price| is_near(price, half)) {
        return Some(vec![half; 2]);
    }
    let winner_count = shown.iter().filter(|&&price| is_near(price, Price::ONE)).count();
    let loser_count = shown.iter().filter(|&&price| is_near(price, Price::ZERO)).count();
    if winner_count != 1 || winner_count + loser_count != shown.len() || shown.len() < 2 {
        return None;
    }
    let snap = |&price: &Price| if is_near(price, Price::ONE) { Price::ONE } else { Price::ZERO };
    Some(shown.iter().map(snap).collect())
}

/// Parses RFC 3339 text.
fn time(text: &str) -> Option<Timestamp> {
    let time: jiff::Timestamp = text.parse().ok()?;
    i64::try_from(time.as_nanosecond()).ok().map(Timestamp::from_nanos)
}

/// Parses the timestamp of a message, in milliseconds; [`NO_TIMESTAMP`] if there is none.
fn timestamp_of(millis: Option<&str>) -> Result<Timestamp, WireError> {
    match millis {
        None | Some("") => Ok(NO_TIMESTAMP),
        Some(millis) => time_of_millis("timestamp", millis),
    }
}

/// Parses a timestamp in milliseconds.
fn time_of_millis(field: &'static str, text: &str) -> Result<Timestamp, WireError> {
    if text.is_empty() || text.len() > 16 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(expected(field, "milliseconds"));
    }
    let millis = text.parse().map_err(|_| expected(field, "milliseconds"))?;
    Ok(Timestamp::from_millis(millis))
}

/// Quotes every bare number, and replaces `NaN` and infinities with `null`: JSON lacks them, but
/// some writers send them. The venue's numbers are all parsed from strings, so this makes a row
/// with bare numbers readable, or lets it be refused on its own.
pub fn lenient(text: &str) -> String {
    let mut lenient = String::with_capacity(text.len() + text.len() / 8);
    let mut rest = text;
    while let Some(start) = rest.find(|it: char| it == '"' || is_of_number(it)) {
        lenient.push_str(&rest[..start]);
        rest = &rest[start..];
        let length = if rest.starts_with('"') {
            string_length(rest)
        } else {
            rest.find(|it: char| !is_of_number(it)).unwrap_or(rest.len())
        };
        let (token, after) = rest.split_at(length);
        match token {
            "NaN" | "Infinity" | "-Infinity" => lenient.push_str("null"),
            number if number.starts_with(|it: char| it == '-' || it.is_ascii_digit()) => {
                lenient.push('"');
                lenient.push_str(number);
                lenient.push('"');
            }
            other => lenient.push_str(other),
        }
        rest = after;
    }
    lenient.push_str(rest);
    lenient
}

/// Returns whether a character is part of a number or of an unquoted word.
fn is_of_number(character: char) -> bool {
    character.is_ascii_alphanumeric() || matches!(character, '-' | '+' | '.')
}

/// Returns the length of the string at the start of a text, including its quotes.
fn string_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |end| end + 2)
}

/// Parses an object that borrows from the text.
fn object<'a, T: Deserialize<'a>>(text: &'a str) -> Result<T, WireError> {
    Ok(serde_json::from_str(text)?)
}

/// A list of at most `MAX` elements, more than the venue would ever send. Input is bounded in
/// bytes, but an element can take a hundred times as much memory as its text.
pub struct Bounded<T, const MAX: usize>(pub Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(reader: D) -> Result<Self, D::Error> {
        struct Elements<T, const MAX: usize>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Elements<T, MAX> {
            type Value = Bounded<T, MAX>;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(formatter, "a list of at most {MAX} elements")
            }

            fn visit_seq<S: SeqAccess<'de>>(self, mut list: S) -> Result<Self::Value, S::Error> {
                let mut elements = Vec::new();
                while let Some(element) = list.next_element()? {
                    if elements.len() == MAX {
                        return Err(S::Error::invalid_length(MAX + 1, &self));
                    }
                    elements.push(element);
                }
                Ok(Bounded(elements))
            }
        }

        reader.deserialize_seq(Elements(PhantomData))
    }
}

/// Splits the rows of an answer into the parsed rows and the errors of the unreadable ones.
pub(super) fn split<T>(
    rows: impl IntoIterator<Item = Result<T, WireError>>,
) -> (Vec<T>, Vec<WireError>) {
    let mut unreadable = Vec::new();
    let keep = |row: Result<T, WireError>| row.map_err(|error| unreadable.push(error)).ok();
    let readable = rows.into_iter().filter_map(keep).collect();
    (readable, unreadable)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_has_at_most_as_many_elements_as_it_may() {
        let read = |text: &str| serde_json::from_str::<Bounded<u8, 2>>(text).map(|list| list.0);
        assert!(read("[]").unwrap().is_empty());
        assert_eq!(read("[1,2]").unwrap(), [1, 2]);
        let error = read("[1,2,3,4]").unwrap_err().to_string();
        assert!(error.contains("invalid length 3, expected a list of at most 2"), "{error}");
        assert!(read("{}").is_err());
    }

    #[test]
    fn what_json_lacks_is_read_as_null_and_numbers_as_strings() {
        for (text, expected) in [
            (r#"[1,-0.5e3,{"a":10}]"#, r#"["1","-0.5e3",{"a":"10"}]"#),
            ("[NaN,Infinity,-Infinity]", "[null,null,null]"),
            (r#"{"NaN":true,"x":false,"y":null}"#, r#"{"NaN":true,"x":false,"y":null}"#),
            (r#"["1 NaN \" 2",3]"#, r#"["1 NaN \" 2","3"]"#),
            (r#"["\\",4]"#, r#"["\\","4"]"#),
            (r#"["unended 5"#, r#"["unended 5"#),
            ("7", r#""7""#),
            ("", ""),
        ] {
            assert_eq!(lenient(text), expected, "{text}");
        }
    }

    #[test]
    fn prices_round_to_payouts_or_to_nothing() {
        for (shown, expected) in [
            (&[1_000_000, 0][..], Some(&[1_000_000, 0][..])),
            (&[0, 1_000_000], Some(&[0, 1_000_000])),
            (&[999_900, 100], Some(&[1_000_000, 0])),
            (&[500_000, 500_000], Some(&[500_000, 500_000])),
            (&[499_500, 500_500], Some(&[500_000, 500_000])),
            (&[0, 1_000_000, 0], Some(&[0, 1_000_000, 0])),
            (&[998_900, 1_100], None),
            (&[584_000, 416_000], None),
            (&[0, 0], None),
            (&[1_000_000, 1_000_000], None),
            (&[1_000_000], None),
            (&[], None),
        ] {
            let prices = |micros: &[i64]| -> Vec<Price> {
                micros.iter().map(|&micros| Price::from_micros(micros)).collect()
            };
            assert_eq!(payouts_of(&prices(shown)), expected.map(prices), "{shown:?}");
        }
    }

    #[test]
    fn a_list_is_an_array_or_a_string_that_contains_one() {
        #[derive(Deserialize)]
        struct Row<'a> {
            #[serde(borrow)]
            x: Raw<'a>,
        }
        for (text, expected) in [
            (r#"{"x":"[\"Yes\", \"No\"]"}"#, Ok(&["Yes", "No"][..])),
            (r#"{"x":["Yes","N\"o"]}"#, Ok(&["Yes", "N\"o"])),
            (r#"{"x":"[0.5, \"0.25\"]"}"#, Ok(&["0.5", "0.25"])),
            (r#"{"x":["",null]}"#, Ok(&["", ""])),
            (r#"{"x":""}"#, Ok(&[])),
            (r#"{"x":null}"#, Ok(&[])),
            ("{}", Ok(&[])),
            (r#"{"x":"Yes"}"#, Err("field x: expected a string that holds an array")),
            (r#"{"x":7}"#, Err("field x: expected a string that holds an array")),
            (r#"{"x":{}}"#, Err("field x: expected a string or a number")),
            (r#"{"x":[[]]}"#, Err("field x: expected a string or a number")),
        ] {
            let row: Row<'_> = object(text).unwrap();
            match (list("x", row.x), expected) {
                (Ok(items), Ok(expected)) => assert_eq!(items, expected, "{text}"),
                (Err(error), Err(expected)) => assert_eq!(error.to_string(), expected, "{text}"),
                (result, expected) => panic!("{text}: {result:?}, not {expected:?}"),
            }
        }
    }

    #[test]
    fn malformed_times_are_ignored() {
        assert_eq!(
            time("2026-07-20T20:18:06.071Z"),
            Some(Timestamp::from_millis(1_784_578_686_071))
        );
        assert_eq!(time("2026-07-24"), None);
        let millis = |text| time_of_millis("timestamp", text).ok().map(Timestamp::millis);
        assert_eq!(millis("1784578686071"), Some(1_784_578_686_071));
        for text in ["", "-1", "1e3", "99999999999999999"] {
            assert_eq!(millis(text), None, "{text}");
        }
    }
}
