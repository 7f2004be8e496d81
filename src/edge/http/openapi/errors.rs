//! The errors of the OpenAPI document: one response and one schema for each set of codes that an
//! operation can answer with one status.

use std::collections::BTreeMap;

use hyper::StatusCode;
use serde_json::{Map, Value, json};

use super::{codes_of, json_response};
use crate::http::operation::Operation;
use crate::http::operations::OPERATIONS;

/// The name of the schema with the fields that every error has besides its code.
const MESSAGE: &str = "ErrorMessage";

/// Names for sets with too many codes to be named after their codes. Each name comes with an
/// operation and a status that have the set.
const NAMES: [(&str, &str, StatusCode); 11] = [
    ("TradeRefused", "POST /trade", StatusCode::BAD_REQUEST),
    ("OrderRefused", "POST /v1/orders", StatusCode::BAD_REQUEST),
    ("Unauthorized", "POST /trade", StatusCode::UNAUTHORIZED),
    ("InvalidCredential", "GET /v1/markets", StatusCode::UNAUTHORIZED),
    ("KeyForbidden", "POST /v1/keys", StatusCode::FORBIDDEN),
    ("BookNotFound", "GET /v1/markets/{condition_id}/book", StatusCode::NOT_FOUND),
    ("TradingUnavailable", "POST /trade", StatusCode::SERVICE_UNAVAILABLE),
    ("PreviewUnavailable", "POST /v1/orders/preview", StatusCode::SERVICE_UNAVAILABLE),
    ("StorageUnavailable", "POST /v1/keys", StatusCode::SERVICE_UNAVAILABLE),
    ("JournalUnavailable", "DELETE /v1/orders/{order_id}", StatusCode::SERVICE_UNAVAILABLE),
    ("ServiceUnavailable", "GET /v1/me", StatusCode::SERVICE_UNAVAILABLE),
];

/// The errors that operations refer to.
pub(super) struct Errors {
    /// The names in [`NAMES`], with their codes.
    names: Vec<(&'static str, Vec<&'static str>)>,
    /// The status and codes of each name in use.
    used: BTreeMap<String, (StatusCode, Vec<&'static str>)>,
}

impl Errors {
    pub(super) fn new() -> Self {
        let named = |(name, operation, status)| (name, codes_of(called(operation), status));
        Self { names: NAMES.map(named).into(), used: BTreeMap::new() }
    }

    /// Returns a reference to the response for an error with one of these codes.
    pub(super) fn response(&mut self, status: StatusCode, codes: &[&'static str]) -> Value {
        reference("responses", &self.add(status, codes))
    }

    /// Returns a reference to the schema of an error with one of these codes.
    pub(super) fn schema(&mut self, status: StatusCode, codes: &[&'static str]) -> Value {
        reference("schemas", &self.add(status, codes))
    }

    fn add(&mut self, status: StatusCode, codes: &[&'static str]) -> String {
        let name = self.name_of(codes);
        let entry = self.used.entry(name.clone());
        let (.., known) = entry.or_insert_with(|| (status, codes.to_vec()));
        assert_eq!(*known, codes, "{name} is the name of two sets of codes: add one to NAMES");
        name
    }

    /// Returns the name of a set of codes: `InvalidHost`, `AccountOrWalletNotFound`.
    fn name_of(&self, codes: &[&str]) -> String {
        match self.names.iter().find(|(_, named)| *named == codes) {
            Some((name, _)) => (*name).to_owned(),
            None => joined(codes),
        }
    }

    /// Returns the responses, by name.
    pub(super) fn responses(&self) -> Value {
        let responses = self.used.iter().map(|(name, (status, codes))| {
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

    /// Returns the schemas, by name.
    pub(super) fn schemas(&self) -> Map<String, Value> {
        let sets = self.used.iter().map(|(name, (status, codes))| {
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

/// Returns the operation with this method and path. Panics if there is none.
fn called(name: &str) -> &'static Operation {
    let is_it = |it: &&Operation| format!("{} {}", it.method.as_str(), it.path.as_str()) == name;
    OPERATIONS.iter().find(is_it).unwrap_or_else(|| panic!("no operation is called {name}"))
}

/// Joins codes into one name, in which the words that they share appear only once.
fn joined(codes: &[&str]) -> String {
    let codes: Vec<Vec<&str>> = codes.iter().map(|code| code.split('_').collect()).collect();
    let first = &codes[0];
    let shortest = codes.iter().map(Vec::len).min().unwrap_or_default();
    // Leaves at least one word of each code, for example of `INVALID_TOKEN` beside
    // `INVALID_TOKEN_ID`.
    let before = (0..shortest.saturating_sub(1))
        .take_while(|at| codes.iter().all(|words| words[*at] == first[*at]))
        .count();
    let after = (1..=shortest - before)
        .take_while(|at| codes.iter().all(|it| it[it.len() - at] == first[first.len() - at]))
        .count();
    // Only the code for a missing path, `NOT_FOUND`, has no word of its own.
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

/// Converts `NOT_FOUND` to `NotFound`.
fn camel(words: &[&str]) -> String {
    let words = words.iter().map(|word| match word.split_at_checked(1) {
        Some((first, rest)) => [first, &rest.to_lowercase()].concat(),
        None => String::new(),
    });
    words.collect()
}

/// Returns the schema of an error whose code is one of these.
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
        let errors = Errors::new();
        let long = codes_of(called("POST /trade"), StatusCode::BAD_REQUEST);
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
            (&long, "TradeRefused"),
        ] {
            assert_eq!(errors.name_of(codes), name);
        }
    }

    #[test]
    fn every_name_is_used_and_short_enough_to_read() {
        let document = document();
        let named = document["components"]["responses"].as_object().unwrap();
        for (name, ..) in NAMES {
            assert!(
                named.contains_key(name),
                "{name} is unused: no operation answers with exactly its codes"
            );
        }
        for (name, response) in named {
            assert!(name.len() <= 45, "{name} needs a shorter name: add it to NAMES");
            let schema = &document["components"]["schemas"][name];
            assert!(schema.is_object(), "{name}: {response}");
        }
    }
}
