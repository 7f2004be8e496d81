//! Short samples of unexpected data, without addresses or keys, to attach to a report.

use serde::Serialize;
use serde_json::Value;

/// Maximum length of a sample's text, in bytes. Longer texts are truncated.
const SAMPLE_BYTES_MAX: usize = 8 << 10;

/// Maximum size of all samples together, in bytes, and their maximum number.
const SAMPLES_BYTES_MAX: usize = 256 << 10;
const SAMPLES_MAX: usize = 64;

/// Field names with one of these parts identify a person or their property.
const PRIVATE: [&str; 13] = [
    "transaction",
    "secret",
    "apikey",
    "api_key",
    "passphrase",
    "password",
    "signature",
    "owner",
    "wallet",
    "address",
    "user",
    "email",
    "submitted",
];

/// Fields whose value is a condition id.
const MARKETS: [&str; 5] = ["market", "condition_id", "conditionId", "c", "condition_ids"];

/// Hexadecimal numbers with at least this many digits may identify a person.
const HEX_DIGITS_MAX: usize = 24;

/// Number of hexadecimal digits in a wallet's address.
const ADDRESS_DIGITS: usize = 40;

/// A sample of unexpected data, without personal data.
#[derive(Clone, PartialEq, Eq, Serialize, Debug)]
pub struct Sample {
    /// The name of the assumption that the data breaks.
    pub assumption: &'static str,
    /// The problem, in words.
    pub problem: String,
    /// The path of the request; `None` for the socket.
    pub request: Option<String>,
    /// The JSON received, scrubbed and truncated.
    pub payload: String,
}

/// Returns as many of these samples as the limits allow.
pub(super) fn within_limits(samples: Vec<Sample>) -> Vec<Sample> {
    let mut bytes_left = SAMPLES_BYTES_MAX;
    let fits = |sample: &Sample| {
        let Some(left) = bytes_left.checked_sub(sample.payload.len() + sample.problem.len()) else {
            return false;
        };
        bytes_left = left;
        true
    };
    samples.into_iter().filter(fits).take(SAMPLES_MAX).collect()
}

/// Removes identifying data from JSON and truncates the text. For text that is not JSON, returns
/// only its length.
pub(super) fn scrubbed(payload: &str) -> String {
    let Ok(mut value) = serde_json::from_str::<Value>(payload) else {
        return format!("({} bytes that are not JSON)", payload.len());
    };
    scrub(&mut value, "");
    let mut text = value.to_string();
    text.truncate(text.floor_char_boundary(SAMPLE_BYTES_MAX));
    text
}

/// Scrubs text that is not JSON, such as an error message.
pub(super) fn scrubbed_text(text: &str) -> String {
    let mut text = without_hosts(&without_hex(text, ""));
    text.truncate(text.floor_char_boundary(SAMPLE_BYTES_MAX));
    text
}

fn scrub(value: &mut Value, name: &str) {
    match value {
        Value::Object(fields) => {
            let named = std::mem::take(fields).into_iter().map(|(name, mut value)| {
                let lower = name.to_ascii_lowercase();
                if PRIVATE.iter().any(|part| lower.contains(part)) {
                    value = Value::from("(removed)");
                } else {
                    scrub(&mut value, &name);
                }
                (without_hex(&name, ""), value)
            });
            *fields = named.collect();
        }
        Value::Array(items) => items.iter_mut().for_each(|item| scrub(item, name)),
        Value::String(text) => {
            // Gamma nests JSON in strings.
            let hidden: Option<Value> = serde_json::from_str(text).ok();
            if let Some(mut inner @ (Value::Object(_) | Value::Array(_))) = hidden {
                scrub(&mut inner, name);
                *text = inner.to_string();
            } else {
                *text = without_hosts(&without_hex(text, name));
            }
        }
        _ => {}
    }
}

/// Replaces long hexadecimal numbers, except condition ids, hashes of books and decimal numbers.
fn without_hex(text: &str, name: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(|character: char| character.is_ascii_hexdigit()) {
        out.push_str(&rest[..start]);
        rest = &rest[start..];
        let is_prefixed = rest.starts_with("0x");
        let digits_at = if is_prefixed { 2 } else { 0 };
        let digits = &rest[digits_at..];
        let count = digits.find(|it: char| !it.is_ascii_hexdigit()).unwrap_or(digits.len());
        let (number, after) = rest.split_at(digits_at + count);
        let is_decimal = !is_prefixed && number.bytes().all(|byte| byte.is_ascii_digit());
        let is_market = MARKETS.contains(&name) && is_prefixed && count != ADDRESS_DIGITS;
        let is_book_hash = name == "hash" && !is_prefixed;
        if count < HEX_DIGITS_MAX || is_decimal || is_market || is_book_hash {
            out.push_str(number);
        } else {
            out.push_str("(removed)");
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

/// Reduces each URL to its path and removes email addresses.
fn without_hosts(text: &str) -> String {
    let words = text.split(' ').map(|word| {
        if let Some((before, after)) = word.split_once("://") {
            let scheme = before.rfind(|it: char| !it.is_ascii_alphanumeric());
            let kept = scheme.map_or("", |at| &before[..=at]);
            let path = after.find(['/', '?']).map_or("", |at| &after[at..]);
            let path = path.split('?').next().unwrap_or_default();
            return format!("{kept}{path}");
        }
        if word.contains('@') { "(removed)".to_owned() } else { word.to_owned() }
    });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_identifies_anybody() {
        let (wallet, id) = ("a".repeat(40), "b".repeat(64));
        let (signature, token) = ("c".repeat(130), "7".repeat(77));
        for (payload, expected) in [
            (format!(r#"{{"market":"0x{id}"}}"#), format!(r#"{{"market":"0x{id}"}}"#)),
            (format!(r#"{{"market":"0x{wallet}"}}"#), r#"{"market":"(removed)"}"#.to_owned()),
            (format!(r#"{{"x":"0x{id}"}}"#), r#"{"x":"(removed)"}"#.to_owned()),
            (format!(r#"{{"x":"0x{wallet}"}}"#), r#"{"x":"(removed)"}"#.to_owned()),
            (format!(r#"{{"0x{wallet}":1}}"#), r#"{"(removed)":1}"#.to_owned()),
            (format!(r#"{{"hash":"{wallet}"}}"#), format!(r#"{{"hash":"{wallet}"}}"#)),
            (format!(r#"{{"x":"{wallet}"}}"#), r#"{"x":"(removed)"}"#.to_owned()),
            (format!(r#"{{"x":["by 0x{signature}"]}}"#), r#"{"x":["by (removed)"]}"#.to_owned()),
            (format!(r#"{{"asset_id":"{token}"}}"#), format!(r#"{{"asset_id":"{token}"}}"#)),
            (
                format!(r#"{{"transaction_hash":"0x{id}","price":"0.5"}}"#),
                r#"{"price":"0.5","transaction_hash":"(removed)"}"#.to_owned(),
            ),
            (format!(r#"{{"ids":"[\"0x{wallet}\"]"}}"#), r#"{"ids":"[\"(removed)\"]"}"#.to_owned()),
            (
                r#"{"x":"see https://host.example.org:8080/a/b?key=1 or a@example.org"}"#
                    .to_owned(),
                r#"{"x":"see /a/b or (removed)"}"#.to_owned(),
            ),
            (r#"{"apiKey":"k","Owner":{"a":1}}"#.to_owned(), {
                r#"{"Owner":"(removed)","apiKey":"(removed)"}"#.to_owned()
            }),
            ("<html>1.2.3.4</html>".to_owned(), "(20 bytes that are not JSON)".to_owned()),
        ] {
            assert_eq!(scrubbed(&payload), expected, "{payload}");
        }
        let text = format!("0x{wallet} at wss://host/ws/market?x=1");
        assert_eq!(scrubbed_text(&text), "(removed) at /ws/market");
    }

    #[test]
    fn samples_are_few_and_small() {
        let long = scrubbed(&format!(r#"{{"x":"{}"}}"#, "y ".repeat(SAMPLE_BYTES_MAX)));
        assert_eq!(long.len(), SAMPLE_BYTES_MAX);
        let sample =
            Sample { assumption: "a", problem: String::new(), request: None, payload: long };
        let many = within_limits(vec![sample.clone(); 100]);
        assert_eq!(many.len(), SAMPLES_BYTES_MAX / SAMPLE_BYTES_MAX);
        let short = Sample { payload: String::new(), ..sample };
        assert_eq!(within_limits(vec![short; 100]).len(), SAMPLES_MAX);
    }
}
