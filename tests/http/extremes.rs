//! Numbers, times and texts at the edges of their ranges, in every parameter and field. Arithmetic
//! with them may not overflow, which ends a release build.

use paperbourse::http::operation::{Access, Operation, Verb};
use paperbourse::http::operations::OPERATIONS;
use paperbourse::http::parameter::Parameter;
use paperbourse_test_support::{Connection, Request};
use serde_json::{Value, json};

use super::credentials::path_of;
use super::recording::buy;
use super::server::Server;

/// The ends of the integers and times that parsers have, and what lies next to them.
const NUMBERS: [&str; 36] = [
    "0",
    "-0",
    "-1",
    "0.0000001",
    "-0.5",
    "2147483647",
    "2147483648",
    "-2147483649",
    "4294967295",
    "4294967296",
    "9007199254740993",
    "99999999999",
    "100000000000",
    "-99999999999.5",
    "-100000000000",
    "9223372036",
    "9223372037",
    "-9223372037",
    "153722867280",
    "-153722867281",
    "1000000000000000",
    "9223372036853",
    "9223372036854",
    "9223372036854.775807",
    "9223372036854.775808",
    "9223372036854774",
    "9223372036854775",
    "9223372036854775806",
    "9223372036854775807",
    "9223372036854775808",
    "-9223372036854775807.5",
    "-9223372036854775808",
    "-9223372036854775808.5",
    "18446744073709551615",
    "18446744073709551616",
    "170141183460469231731687303715884105727",
];

const TEXTS: [&str; 10] = [
    "1677-09-21T00:12:43.145224191Z",
    "1677-09-21T00:12:43.145224192Z",
    "1677-09-21",
    "2262-04-11T23:47:16.854775807Z",
    "2262-04-11T23:47:16.854775808Z",
    "2262-04-11",
    "9999-12-31T23:59:59.999999999Z",
    "-009999-01-02",
    "%00",
    "%F0%9F%92%B9",
];

/// Every extreme value in the path, and in each parameter beside what the operation requires.
fn requests(operation: &Operation) -> Vec<Request> {
    let values = || NUMBERS.into_iter().chain(TEXTS);
    let request = |path: String| Request::new(operation.method.as_str(), path);
    let pattern = operation.path.as_str();
    let parameter = format!("{{{}}}", operation.path.parameter());
    let mut requests: Vec<Request> =
        values().map(|value| request(pattern.replace(&parameter, value))).collect();
    let path = path_of(operation, &json!(64));
    let separator = if path.contains('?') { '&' } else { '?' };
    for Parameter { name, .. } in operation.query {
        for value in values() {
            // The last value of a parameter counts.
            requests.push(request(format!("{path}{separator}{name}={value}")));
        }
    }
    requests
}

#[track_caller]
fn check(connection: &mut Connection, request: &Request) {
    println!("{request:?}");
    let response = connection.send(request);
    assert!(response.status < 500, "{request:?}: {response:?}");
}

#[test]
fn no_parameter_is_too_large_or_too_small() {
    let server = Server::unlimited();
    let account = server.account();
    account.buy(10);
    let mut connection = server.connect();
    let mut count = 0;
    for operation in &OPERATIONS {
        // Sockets and streams never end.
        let is_endless =
            operation.access == Access::Socket || operation.path.as_str().ends_with("/stream");
        if is_endless || operation.method == Verb::Patch {
            continue;
        }
        for request in requests(operation) {
            check(&mut connection, &request.key(&account.key));
            count += 1;
        }
    }
    assert!(count > 5_000, "{count}");
}

#[test]
fn no_field_is_too_large_or_too_small() {
    let server = Server::unlimited();
    let account = server.account();
    let mut connection = server.connect();
    let market = buy(5);
    let with = |order: &Value, fields: &[(&str, Value)]| {
        let mut order = order.clone();
        order
            .as_object_mut()
            .unwrap()
            .extend(fields.iter().map(|(name, value)| ((*name).to_owned(), value.clone())));
        order
    };
    let limit = with(&market, &[("order_type", json!("limit")), ("price", json!("0.5"))]);
    let gtd =
        with(&limit, &[("time_in_force", json!("GTD")), ("expiration", json!(4_000_000_000_u32))]);
    let placed =
        ["quantity", "price", "amount", "expiration", "expected_price", "max_slippage_bps"];
    for (path, body, fields) in [
        ("/trade", &market, &["quantity", "expected_price", "max_slippage_bps"][..]),
        ("/v1/orders", &market, &placed),
        ("/v1/orders", &limit, &placed),
        ("/v1/orders", &gtd, &placed),
        ("/v1/heartbeats", &json!({}), &["interval_ms"]),
        ("/v1/keys", &json!({}), &["name"]),
    ] {
        for (field, number) in fields.iter().flat_map(|field| NUMBERS.map(|it| (field, it))) {
            // As the text of the number: a JSON library would round it.
            let mut body = with(body, &[(field, json!("EXTREME"))]);
            if *field == "amount" {
                body.as_object_mut().unwrap().remove("quantity");
            }
            for number in [number.to_owned(), format!("\"{number}\"")] {
                let body = body.to_string().replace("\"EXTREME\"", &number);
                let request = Request::new("POST", path).body(body.as_bytes());
                check(&mut connection, &request.key(&account.key));
            }
        }
    }
}
