//! The document at `/openapi.json` against the server: every route is in it, real answers have the
//! described form, and bodies are accepted and refused as described.

use std::collections::{BTreeMap, BTreeSet};

use jsonschema::Validator;
use paperbourse::http::openapi::document;
use paperbourse::http::operations::OPERATIONS;
use paperbourse::http::operations::batch::read_batch;
use paperbourse_test_support::{Request, Response};
use serde_json::{Map, Value, json};

use super::credentials::path_of;
use super::recording::{PLAIN, buy, limit, sell, token_id};
use super::server::{Server, shared};

/// The document, and what checks values against its schemas.
pub(crate) struct Document(Value);

impl Document {
    pub(crate) fn new() -> Self {
        Self(document())
    }

    pub(crate) fn paths(&self) -> &Map<String, Value> {
        self.0["paths"].as_object().unwrap()
    }

    fn operation(&self, method: &str, path: &str) -> &Value {
        &self.0["paths"][path][method.to_lowercase()]
    }

    pub(crate) fn resolve<'a>(&'a self, value: &'a Value) -> &'a Value {
        match value["$ref"].as_str() {
            Some(reference) => self.0.pointer(&reference[1..]).unwrap(),
            None => value,
        }
    }

    /// What checks values against a schema, which may refer to others.
    pub(crate) fn validator(&self, schema: &Value) -> Validator {
        let mut schema = schema.clone();
        schema["components"] = self.0["components"].clone();
        jsonschema::draft202012::options().should_validate_formats(true).build(&schema).unwrap()
    }

    /// Checks that an answer has a described status and the form described for it.
    #[track_caller]
    fn check(&self, method: &str, path: &str, response: &Response) {
        let responses = &self.operation(method, path)["responses"];
        let described = self.resolve(&responses[response.status.to_string()]);
        assert!(!described.is_null(), "{method} {path} answers {response:?}");
        for name in described["headers"].as_object().into_iter().flat_map(|it| it.keys()) {
            let is_of_limits = name.starts_with("X-RateLimit");
            let name = name.to_lowercase();
            assert!(is_of_limits || response.header(&name).is_some(), "{name} in {response:?}");
        }
        let sent_kind = response.header("content-type").unwrap_or_default();
        let is_sent = |(kind, _): &(&String, &Value)| sent_kind.starts_with(kind.as_str());
        let content = described["content"].as_object().and_then(|it| it.iter().find(is_sent));
        let (kind, content) = content.unwrap_or_else(|| panic!("{method} {path}: {sent_kind}"));
        if kind == "application/json" {
            let errors: Vec<String> = self
                .validator(&content["schema"])
                .iter_errors(&response.json())
                .map(|error| format!("{}: {error}", error.instance_path()))
                .collect();
            assert!(errors.is_empty(), "{method} {path}: {errors:#?} in {}", response.text);
        }
    }
}

#[test]
fn every_operation_is_described() {
    let served = shared().get("/openapi.json").ok(200);
    let document = Document::new();
    assert_eq!(served, document.0);
    let mut ids = BTreeSet::new();
    let mut count = 0;
    for (path, methods) in document.paths() {
        for (method, operation) in methods.as_object().unwrap() {
            let is_known = |it: &&paperbourse::http::operation::Operation| {
                it.path.as_str() == path && it.method.as_str().eq_ignore_ascii_case(method)
            };
            let row = OPERATIONS.iter().find(is_known).unwrap();
            assert!(ids.insert(operation["operationId"].as_str().unwrap().to_owned()), "{path}");
            let names: Vec<&str> = operation["parameters"]
                .as_array()
                .unwrap()
                .iter()
                .map(|parameter| parameter["name"].as_str().unwrap())
                .collect();
            let of_path = Some(row.path.parameter()).filter(|name| !name.is_empty());
            assert_eq!(names.first().copied().filter(|_| of_path.is_some()), of_path, "{path}");
            count += 1;
        }
    }
    assert_eq!(count, OPERATIONS.len());
    check_references(&document, &document.0);
    let links: Vec<&Value> = links(&document.0);
    assert!(links.len() > 20, "{links:#?}");
    for link in links {
        assert!(ids.contains(link["operationId"].as_str().unwrap()), "{link}");
    }
}

/// Every link of a document.
fn links(value: &Value) -> Vec<&Value> {
    match value {
        Value::Object(fields) if fields.contains_key("links") => {
            fields["links"].as_object().unwrap().values().collect()
        }
        Value::Object(fields) => fields.values().flat_map(links).collect(),
        Value::Array(list) => list.iter().flat_map(links).collect(),
        _ => Vec::new(),
    }
}

fn check_references(document: &Document, value: &Value) {
    match value {
        Value::Object(fields) => {
            if let Some(Value::String(reference)) = fields.get("$ref") {
                assert!(document.0.pointer(&reference[1..]).is_some(), "{reference}");
            }
            fields.values().for_each(|field| check_references(document, field));
        }
        Value::Array(list) => list.iter().for_each(|it| check_references(document, it)),
        _ => {}
    }
}

#[test]
fn answers_have_the_described_form() {
    let server = Server::unlimited();
    let account = server.account();
    let document = Document::new();
    let mut answered: BTreeMap<(String, String), BTreeSet<u16>> = BTreeMap::new();
    let mut check = |method: &str, path: &str, response: &Response| {
        document.check(method, path, response);
        answered.entry((method.into(), path.into())).or_default().insert(response.status);
    };
    let trade = account.post("/trade", &buy(100));
    check("POST", "/trade", &trade);
    let order_id = trade.json()["order_id"].clone();
    let comments = format!("/trades/{order_id}/comments");
    let resting = account.post("/v1/orders", &limit("BUY", 10, "0.01"));
    check("POST", "/v1/orders", &resting);
    let cancelled = format!("/v1/orders/{}", resting.json()["order_id"]);
    let key = account.new_key(&json!({}));
    let another = account.new_key(&json!({}));
    for (method, path, sent, body) in [
        ("POST", "/trade", "/trade".to_owned(), sell(1)),
        ("POST", "/trade", "/trade".to_owned(), sell(1_000_000)),
        ("POST", "/trade", "/trade".to_owned(), json!({ "quantity": -1 })),
        ("POST", "/trades/{order_id}/comments", comments, json!({ "content": "one\nof\tmine" })),
        ("POST", "/v1/orders", "/v1/orders".to_owned(), limit("BUY", 10, "0.02")),
        ("POST", "/v1/orders", "/v1/orders".to_owned(), limit("SELL", 2, "0.01")),
        ("POST", "/v1/orders", "/v1/orders".to_owned(), limit("BUY", 10, "0.0215")),
        ("POST", "/v1/orders/preview", "/v1/orders/preview".to_owned(), limit("BUY", 10, "0.02")),
        (
            "POST",
            "/v1/orders/batch",
            "/v1/orders/batch".to_owned(),
            json!({ "orders": [buy(1), sell(1_000), limit("BUY", 10, "0.01")] }),
        ),
        ("DELETE", "/v1/orders/{order_id}", cancelled.clone(), Value::Null),
        ("DELETE", "/v1/orders/{order_id}", cancelled, Value::Null),
        ("POST", "/v1/cancel-all", "/v1/cancel-all".to_owned(), Value::Null),
        ("POST", "/v1/cancel-all", "/v1/cancel-all?confirm=true".to_owned(), Value::Null),
        ("DELETE", "/v1/cancel-all", "/v1/cancel-all".to_owned(), Value::Null),
        (
            "DELETE",
            "/v1/cancel-market-orders",
            "/v1/cancel-market-orders".to_owned(),
            json!({ "market": PLAIN }),
        ),
        ("POST", "/v1/heartbeats", "/v1/heartbeats".to_owned(), json!({})),
        ("POST", "/heartbeats", "/heartbeats".to_owned(), json!({ "interval_ms": 5_000 })),
        (
            "POST",
            "/v1/prices/batch",
            "/v1/prices/batch".to_owned(),
            json!({ "market_ids": [PLAIN, "unknown"] }),
        ),
        ("POST", "/v1/keys", "/v1/keys".to_owned(), json!({ "name": "second" })),
        ("POST", "/v1/keys/ws-token", "/v1/keys/ws-token".to_owned(), Value::Null),
        ("PATCH", "/v1/keys/{key_id}", format!("/v1/keys/{}", key["id"]), json!({ "name": null })),
        ("POST", "/v1/keys/{key_id}/rotate", format!("/v1/keys/{}/rotate", key["id"]), json!({})),
        ("DELETE", "/v1/keys/{key_id}", format!("/v1/keys/{}", another["id"]), Value::Null),
        ("GET", "/v1/markets", "/v1/markets?envelope=true".to_owned(), Value::Null),
        ("GET", "/v1/markets", "/v1/markets?limit=x".to_owned(), Value::Null),
        ("GET", "/v1/health/ready", "/v1/health/ready?strict=x".to_owned(), Value::Null),
        (
            "GET",
            "/v1/prices-history",
            format!("/v1/prices-history?market={}&format=ohlcv", token_id(0, 0)),
            Value::Null,
        ),
    ] {
        let request = Request::new(method, sent);
        let request = if body.is_null() { request } else { request.json(&body) };
        check(method, path, &account.send(request));
    }
    let other = server.token("described", None);
    let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(&other);
    check("POST", "/v1/keys/bootstrap", &server.send(&bootstrap));
    check("POST", "/v1/keys/bootstrap", &server.send(&bootstrap));
    for operation in &OPERATIONS {
        let (method, path) = (operation.method.as_str(), operation.path.as_str());
        let is_endless = path.contains("/ws/") || path.ends_with("/stream");
        if method == "GET" && !is_endless {
            let wallet = path.replace("{wallet_id}", "api");
            let sent = if wallet == path { path_of(operation, &order_id) } else { wallet };
            check(method, path, &account.get(sent));
        }
    }
    // What rows need that are gone by now.
    let comment = account.get(format!("/trades/{order_id}/comments")).json()[0]["id"].clone();
    let deleted = account.delete(format!("/comments/{comment}"));
    check("DELETE", "/comments/{comment_id}", &deleted);
    for path in ["/v1/me/wallets/{wallet_id}/reset", "/v1/account/reset-api-balance"] {
        let sent = path.replace("{wallet_id}", "api");
        check("POST", path, &account.send(Request::new("POST", sent)));
    }
    check("GET", "/v1/account/positions", &account.get("/v1/account/positions"));
    for operation in &OPERATIONS {
        let (method, path) = (operation.method.as_str(), operation.path.as_str());
        let statuses = answered.get(&(method.into(), path.into()));
        let is_answered = statuses.is_some_and(|it| it.contains(&200) || it.contains(&201));
        let is_endless = path.contains("/ws/") || path.ends_with("/stream");
        assert!(is_answered || is_endless, "{operation:?}: {statuses:?}");
    }
}

/// Values that fields of bodies may have or not.
fn values() -> Vec<Value> {
    let numbers = [
        "-1",
        "0",
        "0.0000004",
        "0.000001",
        "0.5",
        "1",
        "1.5",
        "2",
        "500",
        "999",
        "1000",
        "9999",
        "10000",
        "10001",
        "60000",
        "60001",
        "1000000",
        "1000000.1",
        "1000001",
        "2592000",
        "2592001",
        "9223372036",
        "9223372037",
    ];
    let texts = [
        "",
        " ",
        "x",
        "0",
        "1",
        "0.5",
        "0.000001",
        "1000",
        "10000",
        "60001",
        "-1",
        "1.0000001",
        "BUY",
        "HOLD",
        "buy",
        "limit",
        "Limit",
        "GTC",
        "ioc",
        "GTX",
        "free",
        "none",
        "read",
        "a\nb",
        "a\u{7}b",
        "\u{85}",
    ];
    let lengths = [64, 65, 100, 101, 200, 201, 256, 257, 1_000, 1_001];
    let numbers = numbers.into_iter().map(|text| serde_json::from_str(text).unwrap());
    let texts = texts.into_iter().map(Value::from);
    let long = lengths.into_iter().map(|length| Value::from("é".repeat(length)));
    let lists = [json!([]), json!(["read"]), json!(["read", "x"]), json!([1]), json!([""])];
    let counted = [50, 51, 100, 101].map(|count| json!(vec!["é"; count]));
    let others = [Value::Null, json!(true), json!({})];
    numbers.chain(texts).chain(long).chain(lists).chain(counted).chain(others).collect()
}

/// Which fields an entry has decides what it is read as.
#[test]
fn entries_of_a_batch_are_read_as_described() {
    let document = Document::new();
    let schema = &document.operation("POST", "/v1/orders/batch")["requestBody"];
    let validator = document.validator(&schema["content"]["application/json"]["schema"]);
    let fields = &document.0["components"]["schemas"]["OrderRequest"]["properties"];
    let fields: Vec<&str> = fields.as_object().unwrap().keys().map(String::as_str).collect();
    let without_quantity = |mut order: Value| {
        order.as_object_mut().unwrap().remove("quantity");
        order
    };
    let with = |mut order: Value, more: Value| {
        order.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        order
    };
    let nulls = json!({ "order_type": null, "price": null, "amount": null,
                        "time_in_force": null, "post_only": null });
    let mut differences = Vec::new();
    let mut accepted_count = 0;
    let mut count = 0;
    for base in [
        buy(1),
        without_quantity(buy(1)),
        with(buy(1), nulls.clone()),
        with(without_quantity(buy(1)), nulls),
        with(buy(1), json!({ "expiration": "never" })),
        with(buy(1), json!({ "order_type": "market", "expiration": 7 })),
        with(without_quantity(buy(1)), json!({ "amount": "5" })),
        with(without_quantity(buy(1)), json!({ "post_only": false })),
        limit("sell", 10, "0.01"),
        without_quantity(limit("BUY", 10, "0.01")),
        json!({}),
        json!(7),
    ] {
        let mut entries = vec![base.clone()];
        for name in fields.iter().filter(|_| base.is_object()) {
            entries.extend(
                values().into_iter().map(|value| with(base.clone(), json!({ *name: value }))),
            );
        }
        for entry in entries {
            let body = json!({ "orders": [entry] });
            let is_accepted = read_batch(body.to_string().as_bytes(), None).is_ok();
            if is_accepted != validator.is_valid(&body) {
                let verb = if is_accepted { "accepts" } else { "refuses" };
                differences.push(format!("the server {verb} {entry}"));
            }
            accepted_count += usize::from(is_accepted);
            count += 1;
        }
    }
    assert!(accepted_count > 200 && count > 5_000, "{accepted_count} of {count}");
    assert!(differences.is_empty(), "{}: {differences:#?}", differences.len());
}

/// A key that nobody has: one of the account's own would end at its first rotation.
const NO_KEY: &str = "/v1/keys/9007199254740990";

#[test]
fn bodies_are_accepted_and_refused_as_described() {
    let server = Server::unlimited();
    let account = server.account();
    let order = account.buy(10)["order_id"].clone();
    let document = Document::new();
    let mut differences = Vec::new();
    let mut count = 0;
    for (method, path, sent, body) in [
        ("POST", "/trade", "/trade".to_owned(), buy(1)),
        ("POST", "/v1/orders", "/v1/orders".to_owned(), limit("BUY", 10, "0.01")),
        ("POST", "/v1/orders/batch", "/v1/orders/batch".to_owned(), json!({ "orders": [] })),
        (
            "POST",
            "/trades/{order_id}/comments",
            format!("/trades/{order}/comments"),
            json!({ "content": "x" }),
        ),
        (
            "POST",
            "/v1/prices/batch",
            "/v1/prices/batch".to_owned(),
            json!({ "market_ids": [PLAIN] }),
        ),
        ("POST", "/v1/keys", "/v1/keys".to_owned(), json!({})),
        ("PATCH", "/v1/keys/{key_id}", NO_KEY.to_owned(), json!({ "name": "x" })),
        ("POST", "/v1/keys/{key_id}/rotate", format!("{NO_KEY}/rotate"), json!({})),
        (
            "DELETE",
            "/v1/cancel-market-orders",
            "/v1/cancel-market-orders?market=x".to_owned(),
            json!({}),
        ),
        ("POST", "/v1/heartbeats", "/v1/heartbeats".to_owned(), json!({})),
    ] {
        let schema =
            &document.operation(method, path)["requestBody"]["content"]["application/json"];
        let schema = document.resolve(&schema["schema"]);
        let validator = document.validator(schema);
        for name in schema["properties"].as_object().unwrap().keys() {
            for value in values() {
                let mut body = body.clone();
                body[name] = value.clone();
                let response = account.send(Request::new(method, sent.clone()).json(&body));
                assert!(response.status < 500, "{body}: {response:?}");
                let is_refused =
                    response.status == 422
                        && response.json()["detail"].as_array().unwrap().iter().any(|error| {
                            error["loc"][0] == "body" && error["loc"][1] == name.as_str()
                        });
                if is_refused == validator.is_valid(&body) {
                    let verb = if is_refused { "refuses" } else { "accepts" };
                    let shown: String = value.to_string().chars().take(30).collect();
                    let shown = shown.escape_default();
                    differences.push(format!("{path} {verb} {name}: {shown}"));
                }
                count += 1;
            }
        }
    }
    assert!(count > 1_500, "{count}");
    assert!(differences.is_empty(), "{differences:#?}");
}
