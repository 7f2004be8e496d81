//! What the values of answers mean.

use serde_json::Value;

/// An amount or a quantity, as text or as a number, in millionths.
#[track_caller]
pub fn micros(value: &Value) -> i64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    assert!(part.len() <= 6, "{value} has parts of a millionth");
    format!("{whole}{part:0<6}").parse().unwrap_or_else(|error| panic!("{value}: {error}"))
}

/// An id, or another number that counts.
#[track_caller]
pub fn id(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not an id"))
}
