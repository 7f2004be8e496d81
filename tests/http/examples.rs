//! The examples of `/openapi.json` are what a server answers: a walk calls every operation on the
//! simulated venue, and what it gets is what is committed, except for values that differ from run
//! to run. `PAPERBOURSE_EXAMPLES=write` commits what it gets now.

mod errors;
mod walk;

use std::collections::BTreeSet;

use paperbourse::ws::event_id::EventId;
use serde_json::{Value, json};

use super::openapi::Document;

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/edge/http/openapi/examples.json");

/// Values that differ from run to run, whatever they are.
const CHANGING: [&str; 11] = [
    "commit",
    "commit_date",
    "features",
    "in_use_bytes",
    "key_prefix",
    "limit_bytes",
    "raw_key",
    "token",
    "unflushed_ms",
    "uptime_seconds",
    "version",
];

/// Media types whose files speak for themselves.
const FILES: [&str; 4] = ["text/css", "text/html", "text/javascript", "text/plain"];

/// Times are later than this second of 1970, and no other number is so large.
const TIMES_MIN: f64 = 1_600_000_000.0;

#[test]
fn examples_are_what_the_server_answers() {
    let answered = json!({ "errors": errors::provoked(), "operations": walk::taken() });
    if std::env::var("PAPERBOURSE_EXAMPLES").as_deref() == Ok("write") {
        let text = serde_json::to_string_pretty(&answered).unwrap();
        std::fs::write(FILE, text + "\n").unwrap();
    }
    let committed = std::fs::read(FILE).unwrap_or_else(|_| b"{}".to_vec());
    let committed: Value = serde_json::from_slice(&committed).unwrap();
    let mut differences = Vec::new();
    compare("", &stable(&committed), &stable(&answered), &mut differences);
    let differences = differences.join("\n");
    assert!(
        differences.is_empty(),
        "{FILE} is not what the server answers; PAPERBOURSE_EXAMPLES=write with this test writes \
         it:\n{differences}"
    );
}

/// The value without what differs from run to run.
fn stable(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let stable_field = |(name, field): (&String, &Value)| {
                let is_changing = CHANGING.contains(&name.as_str()) && !field.is_object();
                (name.clone(), if is_changing { json!(format!("[{name}]")) } else { stable(field) })
            };
            Value::Object(fields.iter().map(stable_field).collect())
        }
        Value::Array(list) => list.iter().map(stable).collect(),
        Value::Number(number) if number.as_f64() >= Some(TIMES_MIN) => json!("[time]"),
        Value::String(text) => stable_text(text).into(),
        value => value.clone(),
    }
}

/// The text with its times replaced, as RFC 3339 and as milliseconds or seconds since 1970, and the
/// ids of events and of orders, which depend on the account's shard.
fn stable_text(text: &str) -> String {
    let is_of_word = |it: char| it.is_ascii_alphanumeric() || ".:-".contains(it);
    let mut out = String::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_of_word) {
        let end = rest[start..].find(|it| !is_of_word(it)).map_or(rest.len(), |end| start + end);
        let word = rest[start..end].trim_start_matches(':');
        let start = end - word.len();
        let is_count =
            [10, 13].contains(&word.len()) && word.parse().is_ok_and(|it: f64| it >= TIMES_MIN);
        let is_time = is_count || word.parse::<jiff::Timestamp>().is_ok();
        out += &rest[..start];
        let is_order = (out.ends_with("order ") || out.ends_with("orders/"))
            && word.bytes().all(|it| it.is_ascii_digit());
        out += match word {
            _ if is_time => "[time]",
            _ if is_order => "[order]",
            word if EventId::parse(word).is_some() => "[position]",
            word => word,
        };
        rest = &rest[end..];
    }
    out + rest
}

/// Lists where two values differ.
fn compare(place: &str, one: &Value, other: &Value, differences: &mut Vec<String>) {
    match (one, other) {
        (Value::Object(one), Value::Object(other)) => {
            for name in one.keys().chain(other.keys()).collect::<BTreeSet<_>>() {
                let [one, other] = [one, other].map(|it| it.get(name).unwrap_or(&Value::Null));
                compare(&format!("{place} > {name}"), one, other, differences);
            }
        }
        (one, other) if one == other => {}
        (one, other) => differences.push(format!("{place}: {one}, now {other}")),
    }
}

#[test]
fn everything_has_an_example_of_its_form() {
    let document = Document::new();
    let mut places = Vec::new();
    for (path, methods) in document.paths() {
        for (method, operation) in methods.as_object().unwrap() {
            let name = format!("{} {path}", method.to_uppercase());
            for parameter in operation["parameters"].as_array().unwrap() {
                places.push((format!("{name}: {}", parameter["name"]), parameter));
            }
            let sent = contents(&operation["requestBody"]);
            places.extend(sent.map(|(_, content)| (format!("{name}: body"), content)));
            for (status, response) in operation["responses"].as_object().unwrap() {
                let answered = contents(document.resolve(response));
                let answered = answered.filter(|(kind, _)| !FILES.contains(kind));
                places.extend(answered.map(|(_, it)| (format!("{name}: {status}"), it)));
            }
        }
    }
    // This document and its sibling.
    places.retain(|(place, _)| !place.ends_with("api.json: 200"));
    assert!(places.len() > 600, "{}", places.len());
    let mut lacking = Vec::new();
    for (place, described) in &places {
        let examples = examples_of(&document, described);
        if examples.is_empty() {
            lacking.push(place);
        }
        let validator = document.validator(&described["schema"]);
        for example in examples {
            let errors: Vec<String> = validator
                .iter_errors(example)
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{place}: {errors:#?} in {example}");
        }
    }
    assert!(lacking.is_empty(), "no example: {lacking:#?}");
}

/// The content of a body or an answer, by its media type.
fn contents(described: &Value) -> impl Iterator<Item = (&str, &Value)> {
    let content = described["content"].as_object().into_iter().flatten();
    content.map(|(kind, content)| (kind.as_str(), content))
}

/// The one example of a description, or those that have names.
fn examples_of<'a>(document: &'a Document, described: &'a Value) -> Vec<&'a Value> {
    let named = described["examples"].as_object().into_iter().flatten();
    let named = named.map(|(_, example)| &document.resolve(example)["value"]);
    described.get("example").into_iter().chain(named).collect()
}
