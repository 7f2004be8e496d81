//! What operators do to accounts, beside servers that run and that were killed.

use std::path::Path;

use paperbourse::http::operation::Operation;
use paperbourse::http::operations::OPERATIONS;
use paperbourse_test_support::{Client, Request};
use serde_json::{Value, json};

use crate::accounts::{account, failure};
use crate::world::{MARKET, Trader, buy, json_of, start, text, tool};

/// The events of this kind that the journal holds.
fn journaled(data: &Path, kind: &str) -> Vec<Value> {
    let dump = tool(&["journal", "dump", text(data), "--json"]);
    let dump = String::from_utf8(dump.stdout).unwrap();
    let records = dump.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let events =
        records.flat_map(|record| record["events"].as_array().cloned().unwrap_or_default());
    events.filter(|event| event["kind"] == kind).collect()
}

/// Places an order that rests, and returns its id.
fn rest(client: &mut Client) -> u64 {
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10,
                       "order_type": "limit", "price": "0.01"});
    client.post("/v1/orders", &order).ok(200)["order_id"].as_u64().unwrap()
}

/// A request for each operation that writes, with what it may name.
fn writes(order: u64, key: u64, comment: u64) -> Vec<(&'static str, Request)> {
    let trade = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    let none = json!({});
    let post = |path: &str, body: &Value| Request::post(path, body);
    vec![
        ("POST /trade", post("/trade", &trade)),
        (
            "POST /trades/{order_id}/comments",
            post(&format!("/trades/{order}/comments"), &json!({"content": "words"})),
        ),
        ("DELETE /comments/{comment_id}", Request::delete(format!("/comments/{comment}"))),
        ("POST /v1/orders", post("/v1/orders", &trade)),
        ("DELETE /v1/orders/{order_id}", Request::delete(format!("/v1/orders/{order}"))),
        ("POST /v1/cancel-all", post("/v1/cancel-all?confirm=true", &none)),
        ("DELETE /v1/cancel-all", Request::delete("/v1/cancel-all")),
        (
            "DELETE /v1/cancel-market-orders",
            Request::delete(format!("/v1/cancel-market-orders?market={MARKET}")),
        ),
        ("POST /v1/heartbeats", post("/v1/heartbeats", &none)),
        ("POST /heartbeats", post("/heartbeats", &none)),
        ("POST /v1/me/wallets/{wallet_id}/reset", post("/v1/me/wallets/api/reset", &none)),
        ("POST /v1/account/reset-api-balance", post("/v1/account/reset-api-balance", &none)),
        ("POST /v1/keys/bootstrap", post("/v1/keys/bootstrap", &none)),
        ("POST /v1/keys", post("/v1/keys", &none)),
        (
            "PATCH /v1/keys/{key_id}",
            Request::patch(format!("/v1/keys/{key}"), &json!({"name": "n"})),
        ),
        ("POST /v1/keys/{key_id}/rotate", post(&format!("/v1/keys/{key}/rotate"), &none)),
        ("DELETE /v1/keys/{key_id}", Request::delete(format!("/v1/keys/{key}"))),
    ]
}

#[test]
fn a_suspended_account_reads_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut server = start(data);
    let trader = Trader::new(data, &server, "owner");
    let other = Trader::new(data, &server, "other");
    let mut client = trader.connect(&server);
    let filled = buy(&mut client, "an order");
    let comment = client.post(&format!("/trades/{filled}/comments"), &json!({"content": "words"}));
    let comment = comment.ok(200)["id"].as_u64().unwrap();
    let open = rest(&mut client);
    let kept = rest(&mut other.connect(&server));
    let key = client.get("/v1/keys").ok(200)[0]["id"].as_u64().unwrap();

    let suspend = ["suspend", "--subject", "owner", "--reason", "spam\nand more"];
    let done = account(data, &suspend);
    assert_eq!((&done["is_new"], &done["orders_cancelled"]), (&json!(true), &json!(1)), "{done}");
    let line = &done["account"];
    assert_eq!((&line["state"], &line["open_orders"]), (&json!("suspended"), &json!(0)), "{done}");
    assert_eq!(line["suspension"]["reason"], "spam\nand more");
    let again = account(data, &suspend);
    assert_eq!((&again["is_new"], &again["account"]), (&json!(false), line), "{again}");
    let id = line["account"].to_string();

    let writes = writes(open, key, comment);
    let named = OPERATIONS.iter().filter(|it| it.can_answer("ACCOUNT_SUSPENDED"));
    let mut named: Vec<_> = named.map(Operation::name).collect();
    named.sort_unstable();
    let mut tried: Vec<_> = writes.iter().map(|(name, _)| *name).collect();
    tried.sort_unstable();
    assert_eq!(tried, named);
    let others = OPERATIONS.iter().map(Operation::name);
    let mut others: Vec<_> =
        others.filter(|name| !name.starts_with("GET ") && !tried.contains(&&**name)).collect();
    others.sort_unstable();
    assert_eq!(
        others,
        ["POST /v1/keys/ws-token", "POST /v1/orders/batch", "POST /v1/prices/batch"]
    );

    for is_restarted in [false, true] {
        if is_restarted {
            server.kill();
            server = start(data);
        }
        let token = trader.token(data);
        let mut with_key = trader.connect(&server);
        let mut with_token = Client::with_token(server.address, &token);
        for (name, request) in &writes {
            let client = if name.ends_with("bootstrap") { &mut with_token } else { &mut with_key };
            let answer = client.send(request.clone());
            assert_eq!(answer.status, 403, "{name}: {answer:?}");
            assert_eq!(answer.json()["error"], "ACCOUNT_SUSPENDED", "{name}");
        }
        let trade = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
        let batch = with_key.post("/v1/orders/batch", &json!({"orders": [trade, trade]})).ok(200);
        for result in batch["results"].as_array().unwrap() {
            assert_eq!(result["error"], "ACCOUNT_SUSPENDED");
        }
        with_key.get("/v1/account/portfolio").ok(200);
        with_key.post("/v1/keys/ws-token", &json!({})).ok(200);
        let shown = with_key.get(&format!("/v1/orders/{open}")).ok(200);
        assert_eq!(
            (&shown["status"], &shown["cancelled_reason"]),
            (&json!("CANCELLED"), &json!("suspended"))
        );
        let mut neighbour = other.connect(&server);
        assert_eq!(neighbour.get(&format!("/v1/orders/{kept}")).ok(200)["status"], "PENDING");
        assert_eq!(account(data, &["show", &id]), *line);
    }

    let shown = tool(&["account", "show", &id, "--data", text(data)]);
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("\nsuspended for     spam\\nand more\n"), "{shown}");
    let resume = tool(&["account", "resume", &id, "--reason", "sorry", "--data", text(data)]);
    assert_eq!(String::from_utf8(resume.stdout).unwrap(), format!("resumed account {id}\n"));
    buy(&mut trader.connect(&server), "another order");

    let acts = journaled(data, "operator_acted");
    let acts: Vec<_> = acts.iter().map(|act| [&act["act"], &act["reason"]]).collect();
    assert_eq!(
        acts,
        [[&json!("suspend"), &json!("spam\nand more")], [&json!("resume"), &json!("sorry")]]
    );
    let ended = journaled(data, "order_ended");
    assert_eq!(ended.len(), 1, "{ended:?}");
    assert_eq!((&ended[0]["order"], &ended[0]["reason"]), (&json!(open), &json!("suspended")));
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!(code, 0, "{report}");
    server.terminate();
}

#[test]
fn acts_need_an_account_and_a_reason() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let server = start(data);
    let _trader = Trader::new(data, &server, "owner");
    let long = "x".repeat(501);
    for (arguments, code, part) in [
        (&["suspend", "--subject", "owner"][..], 2, "--reason"),
        (&["suspend", "--reason", "spam"], 2, "required"),
        (&["suspend", "--subject", "owner", "--reason", " "], 1, "must have 1 to 500 bytes"),
        (&["resume", "--subject", "owner", "--reason", &long], 1, "must have 1 to 500 bytes"),
        (&["suspend", "--subject", "nobody", "--reason", "spam"], 1, "no such account"),
        (&["resume", "9999999", "--reason", "spam"], 1, "no such account"),
    ] {
        let (found, error) = failure(data, arguments);
        assert!(found == code && error.contains(part), "{arguments:?}: {found} {error}");
    }
    assert_eq!(journaled(data, "operator_acted"), [Value::Null; 0]);
    server.terminate();
}
