//! Numbers, times and texts at the edges of their ranges, in every parameter and field. Arithmetic
//! with them may not overflow, which ends a release build.

use paperbourse::http::operation::{Access, Operation, Verb};
use paperbourse::http::operations::OPERATIONS;
use paperbourse_test_support::{Connection, Request};

use super::recording::{PLAIN, buy, token_id};
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

/// The path of an operation with something that exists, or with an extreme value, as its parameter.
fn path_of(operation: &Operation, value: Option<&str>) -> String {
    let path = operation.path.as_str();
    let parameter = format!("{{{}}}", operation.path.parameter());
    match value {
        Some(value) => path.replace(&parameter, value),
        None => path
            .replace("{condition_id}", PLAIN)
            .replace("{slug}", "invented-market-0")
            .replace("{token_id}", &token_id(0, 0))
            .replace("{wallet_id}", "api")
            .replace(&parameter, "64"),
    }
}

/// Every extreme value in the path, and in each parameter beside what the operation requires.
fn requests(operation: &Operation) -> Vec<Request> {
    let values = || NUMBERS.into_iter().chain(TEXTS);
    let request = |path: String| Request::new(operation.method.as_str(), path);
    let mut requests: Vec<Request> =
        values().map(|value| request(path_of(operation, Some(value)))).collect();
    let token = token_id(0, 0);
    for name in operation.query {
        let required: Vec<String> = ["token_id", "market"]
            .into_iter()
            .filter(|required| operation.query.contains(required) && required != name)
            .map(|required| format!("&{required}={token}"))
            .collect();
        for value in values() {
            let path = path_of(operation, None);
            requests.push(request(format!("{path}?{name}={value}{}", required.concat())));
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
        // A socket, and a stream, of markets that do not exist never ends.
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
    for (path, fields) in [
        ("/trade", &["quantity", "expected_price", "max_slippage_bps"][..]),
        (
            "/v1/orders",
            &["quantity", "price", "amount", "expiration", "expected_price", "max_slippage_bps"],
        ),
        ("/v1/heartbeats", &["interval_ms"]),
        ("/v1/keys", &["name"]),
    ] {
        for (field, number) in fields.iter().flat_map(|field| NUMBERS.map(|it| (field, it))) {
            for order in ["market", "limit", "GTD"] {
                let mut body = buy(5);
                if path == "/v1/orders" && order != "market" {
                    body["order_type"] = "limit".into();
                    body["price"] = "0.5".into();
                }
                if order == "GTD" {
                    body["time_in_force"] = "GTD".into();
                    body["expiration"] = 4_000_000_000_u32.into();
                }
                if *field == "amount" {
                    body.as_object_mut().unwrap().remove("quantity");
                }
                // As the text of the number: a JSON library would round it.
                body[*field] = "EXTREME".into();
                for number in [number.to_owned(), format!("\"{number}\"")] {
                    let body = body.to_string().replace("\"EXTREME\"", &number);
                    let request = Request::new("POST", path).body(body.as_bytes());
                    check(&mut connection, &request.key(&account.key));
                }
            }
        }
    }
}
