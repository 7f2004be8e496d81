//! Checks of answers: their fields, the common form of all errors, and what comes a moment later.

use std::time::Instant;

use paperbourse_test_support::{PATIENCE, Response};
use serde_json::Value;

/// The JSON type of a field, or the format of its text.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kind {
    Integer,
    Number,
    Text,
    /// A number as text.
    Decimal,
    Flag,
    Null,
    /// RFC 3339 in UTC, with `Z`.
    Time,
    List,
    Object,
}

/// Tries again until there is a result.
#[track_caller]
pub(crate) fn eventually<T>(mut attempt: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(result) = attempt() {
            return result;
        }
        assert!(began.elapsed() < PATIENCE, "still not after {PATIENCE:?}");
    }
}

/// Checks that an object has exactly these fields with these types.
#[track_caller]
pub(crate) fn check_fields(value: &Value, fields: &[(&str, Kind)]) {
    let object = value.as_object().unwrap_or_else(|| panic!("an object: {value}"));
    let mut expected: Vec<&str> = fields.iter().map(|(name, _)| *name).collect();
    expected.sort_unstable();
    let mut actual: Vec<&str> = object.keys().map(String::as_str).collect();
    actual.sort_unstable();
    assert_eq!(actual, expected, "{value}");
    for (name, kind) in fields {
        let field = &object[*name];
        let is_right = match kind {
            Kind::Integer => field.is_u64(),
            Kind::Number => field.is_number(),
            Kind::Text => field.is_string(),
            Kind::Decimal => field.as_str().is_some_and(is_decimal),
            Kind::Flag => field.is_boolean(),
            Kind::Null => field.is_null(),
            Kind::Time => field.as_str().is_some_and(is_time),
            Kind::List => field.is_array(),
            Kind::Object => field.is_object(),
        };
        assert!(is_right, "{name} should be {kind:?}: {field}");
    }
}

fn is_decimal(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let all_digits = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
    all_digits(whole)
        && all_digits(fraction)
        && fraction.len() <= 6
        && (!text.contains('.') || !fraction.ends_with('0'))
}

fn is_time(text: &str) -> bool {
    text.ends_with('Z') && text.parse::<jiff::Timestamp>().is_ok()
}

/// Checks an error: its status, its code in the header, and the common form of all errors.
#[track_caller]
pub(crate) fn check_error(response: &Response, status: u16, code: &str) {
    assert_eq!(
        (response.status, response.header("x-polysim-code")),
        (status, Some(code)),
        "{}",
        response.text
    );
    assert_eq!(response.header("content-type"), Some("application/json"));
    assert!(response.header("x-request-id").is_some_and(|id| !id.is_empty()), "{response:?}");
    let body = response.json();
    let detail = if status == 422 { Kind::List } else { Kind::Text };
    check_fields(&body, &[("detail", detail), ("error", Kind::Text), ("message", Kind::Text)]);
    let body_code = match code {
        "POST_ONLY_WOULD_CROSS" => "INVALID_POST_ONLY_ORDER",
        "ORDER_BELOW_MIN_SIZE" => "INVALID_ORDER_MIN_SIZE",
        code => code,
    };
    assert_eq!(body["error"], body_code);
    if status == 422 {
        for entry in body["detail"].as_array().unwrap() {
            let fields = [("loc", Kind::List), ("msg", Kind::Text), ("type", Kind::Text)];
            check_fields(entry, &fields);
            assert!(entry["loc"].as_array().unwrap().iter().all(Value::is_string), "{entry}");
        }
    } else {
        assert_eq!(body["detail"], body["message"]);
    }
    let seconds = response.header("retry-after").map(|text| text.parse::<u64>().unwrap());
    assert_eq!(seconds.is_some(), [429, 503].contains(&status), "{response:?}");
    assert_ne!(seconds, Some(0));
    assert_eq!(response.header("allow").is_some(), status == 405);
    assert_eq!(response.header("www-authenticate").is_some(), status == 401);
}

/// Checks a 422 and its failing fields, in the body's order, such as `body.quantity: greater_than`.
#[track_caller]
pub(crate) fn check_invalid(response: &Response, fields: &[&str]) {
    check_error(response, 422, "VALIDATION_FAILED");
    let body = response.json();
    let failing: Vec<String> = body["detail"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| {
            let steps: Vec<_> = entry["loc"]
                .as_array()
                .unwrap()
                .iter()
                .map(|step| step.as_str().unwrap())
                .collect();
            format!("{}: {}", steps.join("."), entry["type"].as_str().unwrap())
        })
        .collect();
    assert_eq!(failing, fields, "{body}");
}

/// The expected outcome of a request with one field of interest.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Outcome<'a> {
    /// The request succeeds.
    Done,
    /// The field is well-formed; the request is refused with this code for another reason.
    Refused(u16, &'a str),
    /// The request is invalid, for these reasons.
    Invalid(&'a [&'a str]),
}

impl Outcome<'_> {
    #[track_caller]
    pub(crate) fn check(self, response: &Response) {
        match self {
            Self::Done => assert!((200..300).contains(&response.status), "{}", response.text),
            Self::Refused(status, code) => check_error(response, status, code),
            Self::Invalid(fields) => check_invalid(response, fields),
        }
    }
}
