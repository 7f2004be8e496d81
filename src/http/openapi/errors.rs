//! The errors of the document: one response and one schema for each set of codes that an operation
//! can answer with one status.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::json_response;

/// What every error says, besides its code.
const MESSAGE: &str = "ErrorMessage";

/// The names of sets that are too long to be named by their codes.
const NAMES: [(&str, &[&str]); 9] = [
    (
        "TradeRefused",
        &[
            "MARKET_CLOSED",
            "INSUFFICIENT_POSITION",
            "INSUFFICIENT_LIQUIDITY",
            "SLIPPAGE_EXCEEDED",
            "INSUFFICIENT_BALANCE",
            "INVALID_HOST",
        ],
    ),
    (
        "OrderRefused",
        &[
            "MARKET_CLOSED",
            "INSUFFICIENT_POSITION",
            "INSUFFICIENT_LIQUIDITY",
            "SLIPPAGE_EXCEEDED",
            "INSUFFICIENT_BALANCE",
            "INVALID_ORDER_PAYLOAD",
            "INVALID_ORDER_EXPIRATION",
            "INVALID_ORDER_MIN_TICK_SIZE",
            "INVALID_ORDER_MIN_SIZE",
            "INVALID_QUANTITY",
            "INVALID_POST_ONLY_ORDER",
            "INVALID_POST_ONLY_ORDER_TYPE",
            "FOK_ORDER_NOT_FILLED_ERROR",
            "OPEN_ORDER_LIMIT_EXCEEDED",
            "INVALID_HOST",
        ],
    ),
    (
        "Unauthorized",
        &[
            "MISSING_AUTH",
            "INVALID_KEY",
            "KEY_DEACTIVATED",
            "KEY_EXPIRED",
            "INVALID_TOKEN",
            "TOKEN_EXPIRED",
        ],
    ),
    (
        "InvalidCredential",
        &["INVALID_KEY", "KEY_DEACTIVATED", "KEY_EXPIRED", "INVALID_TOKEN", "TOKEN_EXPIRED"],
    ),
    ("BookNotFound", &["NOT_FOUND", "MARKET_NOT_FOUND", "OUTCOME_NOT_FOUND", "BOOK_UNAVAILABLE"]),
    (
        "TradingUnavailable",
        &[
            "VENUE_UNAVAILABLE",
            "IDENTITY_UNAVAILABLE",
            "SERVER_BUSY",
            "SERVER_FULL",
            "JOURNAL_FULL",
            "NOT_READY",
        ],
    ),
    (
        "StorageUnavailable",
        &["IDENTITY_UNAVAILABLE", "SERVER_BUSY", "SERVER_FULL", "JOURNAL_FULL", "NOT_READY"],
    ),
    ("JournalUnavailable", &["IDENTITY_UNAVAILABLE", "SERVER_BUSY", "JOURNAL_FULL", "NOT_READY"]),
    ("ServiceUnavailable", &["IDENTITY_UNAVAILABLE", "SERVER_BUSY", "NOT_READY"]),
];

/// The errors that operations refer to, by their names.
#[derive(Default)]
pub(super) struct Errors(BTreeMap<String, (StatusCode, Vec<&'static str>)>);

impl Errors {
    /// A reference to the response with an error that has one of these codes.
    pub(super) fn response(&mut self, status: StatusCode, codes: &[&'static str]) -> Value {
        reference("responses", &self.add(status, codes))
    }

    /// A reference to the schema of an error that has one of these codes.
    pub(super) fn schema(&mut self, status: StatusCode, codes: &[&'static str]) -> Value {
        reference("schemas", &self.add(status, codes))
    }

    fn add(&mut self, status: StatusCode, codes: &[&'static str]) -> String {
        let name = name_of(codes);
        let (.., known) = self.0.entry(name.clone()).or_insert_with(|| (status, codes.to_vec()));
        assert_eq!(*known, codes, "{name} is the name of two sets of codes: add one to NAMES");
        name
    }

    /// The responses, by their names.
    pub(super) fn responses(&self) -> Value {
        let responses = self.0.iter().map(|(name, (status, codes))| {
            let listed: Vec<String> = codes.iter().map(|code| format!("`{code}`")).collect();
            let schema = reference("schemas", name);
            let mut response = json_response(&format!("{}.", listed.join(", ")), &schema);
            let examples = codes.iter().map(|code| (*code, reference("examples", code)));
            let examples: Map<_, _> = examples.map(|(code, it)| (code.to_owned(), it)).collect();
            response["content"]["application/json"]["examples"] = Value::Object(examples);
            response["headers"] = headers(*status);
            (name.clone(), response)
        });
        Value::Object(responses.collect())
    }

    /// The schemas, by their names.
    pub(super) fn schemas(&self) -> Map<String, Value> {
        let sets = self.0.iter().map(|(name, (status, codes))| {
            let schema = match *status {
                StatusCode::UNPROCESSABLE_ENTITY => invalid_schema(codes),
                _ => schema(codes),
            };
            (name.clone(), schema)
        });
        sets.chain([(MESSAGE.to_owned(), message_schema())]).collect()
    }
}

fn reference(kind: &str, name: &str) -> Value {
    json!({ "$ref": format!("#/components/{kind}/{name}") })
}

/// The name of a set of codes: `InvalidHost`, `AccountOrWalletNotFound`.
fn name_of(codes: &[&str]) -> String {
    match NAMES.iter().find(|(_, named)| *named == codes) {
        Some((name, _)) => (*name).to_owned(),
        None => joined(codes),
    }
}

/// The codes in one name, which says what they have in common only once.
fn joined(codes: &[&str]) -> String {
    let codes: Vec<Vec<&str>> = codes.iter().map(|code| code.split('_').collect()).collect();
    let first = &codes[0];
    let shortest = codes.iter().map(Vec::len).min().unwrap_or_default();
    // At least one word is left of `INVALID_TOKEN` beside `INVALID_TOKEN_ID`.
    let before = (0..shortest.saturating_sub(1))
        .take_while(|at| codes.iter().all(|words| words[*at] == first[*at]))
        .count();
    let after = (1..=shortest - before)
        .take_while(|at| codes.iter().all(|it| it[it.len() - at] == first[first.len() - at]))
        .count();
    // What is not found has a name, except the path.
    let between = codes.iter().map(|words| match &words[before..words.len() - after] {
        [] if codes.len() > 1 => "Path".to_owned(),
        words => camel(words),
    });
    let between: Vec<String> = between.collect();
    let listed = match between.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, others)) => format!("{}Or{last}", others.concat()),
        None => String::new(),
    };
    [camel(&first[..before]), listed, camel(&first[first.len() - after..])].concat()
}

/// `NOT_FOUND` as `NotFound`.
fn camel(words: &[&str]) -> String {
    let words = words.iter().map(|word| match word.split_at_checked(1) {
        Some((first, rest)) => [first, &rest.to_lowercase()].concat(),
        None => String::new(),
    });
    words.collect()
}

/// An error whose code is one of these.
fn schema(codes: &[&str]) -> Value {
    let mut properties = json!({ "error": code_schema(codes) });
    if codes.contains(&"INVALID_INTERVAL") {
        properties["supported_intervals"] =
            json!({ "type": "array", "items": { "type": "string" } });
    }
    json!({
        "allOf": [
            reference("schemas", MESSAGE),
            { "type": "object", "properties": properties, "required": ["error"] },
        ],
    })
}

fn code_schema(codes: &[&str]) -> Value {
    match codes {
        [code] => json!({ "const": code }),
        codes => json!({ "type": "string", "enum": codes }),
    }
}

fn message_schema() -> Value {
    json!({
        "type": "object",
        "description": "What went wrong.",
        "properties": {
            "detail": { "type": "string", "description": "The same as the message." },
            "message": { "type": "string", "description": "A sentence, for people." },
        },
        "required": ["detail", "message"],
    })
}

fn invalid_schema(codes: &[&str]) -> Value {
    json!({
        "type": "object",
        "description": "Every field that is invalid.",
        "properties": {
            "detail": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {
                        "loc": {
                            "type": "array",
                            "items": { "type": "string" },
                            "description": "The path to the field, such as `body`, `quantity`.",
                        },
                        "msg": { "type": "string" },
                        "type": { "type": "string" },
                    },
                    "required": ["loc", "msg", "type"],
                },
            },
            "error": code_schema(codes),
            "message": { "type": "string" },
        },
        "required": ["detail", "error", "message"],
    })
}

fn headers(status: StatusCode) -> Value {
    let mut names = vec!["X-Request-Id", "X-Polysim-Code"];
    if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
        names.push("Retry-After");
    }
    names.into_iter().map(|name| (name.to_owned(), reference("headers", name))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::openapi::document;

    #[test]
    fn a_set_is_named_by_its_codes() {
        for (codes, name) in [
            (&["INVALID_HOST"][..], "InvalidHost"),
            (&["NOT_FOUND"], "NotFound"),
            (&["ACCOUNT_NOT_FOUND", "WALLET_NOT_FOUND"], "AccountOrWalletNotFound"),
            (&["NOT_FOUND", "ORDER_NOT_FOUND"], "PathOrOrderNotFound"),
            (&["NOT_FOUND", "ACCOUNT_NOT_FOUND", "KEY_NOT_FOUND"], "PathAccountOrKeyNotFound"),
            (&["KEY_ROTATED", "KEY_ENDED"], "KeyRotatedOrEnded"),
            (&["INVALID_TOKEN_ID", "INVALID_HOST"], "InvalidTokenIdOrHost"),
            (&["RATE_LIMIT_EXCEEDED", "EXPORT_LIMIT_EXCEEDED"], "RateOrExportLimitExceeded"),
            (&["TOKEN_NOT_FOUND", "BOOK_UNAVAILABLE"], "TokenNotFoundOrBookUnavailable"),
            (
                &["INVALID_KEY", "KEY_DEACTIVATED", "KEY_EXPIRED"],
                "InvalidKeyKeyDeactivatedOrKeyExpired",
            ),
            (NAMES[0].1, "TradeRefused"),
        ] {
            assert_eq!(name_of(codes), name);
        }
    }

    #[test]
    fn every_name_is_used_and_short_enough_to_read() {
        let document = document();
        let named = document["components"]["responses"].as_object().unwrap();
        for (name, _) in NAMES {
            assert!(named.contains_key(name), "no operation has the codes of {name}");
        }
        for (name, response) in named {
            assert!(name.len() <= 45, "{name} needs a shorter name: add it to NAMES");
            let schema = &document["components"]["schemas"][name];
            assert!(schema.is_object(), "{name}: {response}");
        }
    }
}
