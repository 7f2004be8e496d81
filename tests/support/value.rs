//! What the values of answers mean.

use serde_json::Value;

/// An amount or a quantity, as text or as a number, in millionths.
#[track_caller]
pub fn micros(value: &Value) -> i64 {
    // Unlike JSON's, the text of an `f64` never has an exponent.
    let number = || value.as_f64().unwrap_or_else(|| panic!("{value} is no number")).to_string();
    let text = value.as_str().map_or_else(number, str::to_owned);
    let (whole, part) = text.split_once('.').unwrap_or((&text, ""));
    assert!(part.len() <= 6, "{value} has parts of a millionth");
    format!("{whole}{part:0<6}").parse().unwrap_or_else(|error| panic!("{value}: {error}"))
}

/// An id, or another number that counts.
#[track_caller]
pub fn id(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is not an id"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_read_as_text_and_as_numbers() {
        for (value, expected) in [
            (json!("0.000006"), 6),
            (json!(0.000_006), 6),
            (json!(1_000_000), 1_000_000_000_000),
            (json!(-0.5), -500_000),
            (json!("994.7"), 994_700_000),
        ] {
            assert_eq!(micros(&value), expected, "{value}");
        }
    }
}
