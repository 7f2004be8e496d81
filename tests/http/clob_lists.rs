//! The venue's interface: orders and trades of a wallet, and heartbeats.

use std::fmt::Write as _;

use paperbourse_test_support::{Request, Response};
use serde_json::{Value, json};

use super::clob_wallets::{Client, UNAUTHORIZED, check_refused, with};
use super::recording::{PLAIN, token_id};
use super::server::{Server, shared_with_clob as server};

/// The text of a digest that no order has.
const DIGEST: &str = "0x00000000000000000000000000000000000000000000000000000000deadbeef";

#[test]
fn lists_of_a_wallet_without_orders_are_empty_or_refused() {
    let client = Client::new(server(), 21);
    let token = token_id(0, 0);
    let long = "7".repeat(300);
    let mut transcript = String::new();
    for target in [
        "/data/orders",
        &format!("/data/orders?id={DIGEST}&market={PLAIN}&asset_id={token}&next_cursor=MA=="),
        "/data/orders?id=711&next_cursor=LTE=&geo_block_token=x",
        "/data/orders?next_cursor=x",
        "/data/orders?market=0xabc",
        &format!("/data/orders?asset_id={long}"),
        &format!("/data/order/{DIGEST}"),
        "/data/order/711",
        "/data/order/x%2Fy",
        &format!("/order/{DIGEST}"),
        "/data/trades",
        &format!("/data/trades?id=711-1&market={PLAIN}&asset_id={token}&before=9&after=1"),
        "/data/trades?id=x",
        "/data/trades?maker_address=0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266",
        "/data/trades?maker_address=0x1",
        "/data/trades?taker=me",
        "/data/trades?before=now",
        "/data/trades?after=-1",
        "/data/trades?next_cursor=x",
        "/data/trades?market=0xabc",
    ] {
        let response = client.get(target);
        let Response { status, text, .. } = &response;
        writeln!(transcript, "# GET {target}\n{status}\n{text}\n").unwrap();
        assert_eq!(*status == 200, response.json().get("error").is_none(), "{target}");
    }
    insta::assert_snapshot!(transcript);
}

/// At the venue, a cursor is the number of rows before the page, in Base64: clients can write one.
#[test]
fn a_page_may_begin_after_a_number_of_rows() {
    let client = Client::new(server(), 27);
    for salt in 0..5 {
        client.order(salt, "BUY FOK 5 for 10").ok(200);
        client.order(10 + salt, "BUY GTC 4 for 10").ok(200);
    }
    let page = |path: &str, cursor: &str| {
        let page = client.get(&format!("{path}?next_cursor={cursor}")).ok(200);
        assert_eq!(page["next_cursor"], "LTE=");
        page["data"].as_array().unwrap().clone()
    };
    for path in ["/data/orders", "/data/trades"] {
        let all = page(path, "");
        assert_eq!(all.len(), 5);
        // 0, 1, 4, 5, 300, a billion, and none.
        for (cursor, skipped) in [
            ("MA==", 0),
            ("MQ==", 1),
            ("NA==", 4),
            ("NQ==", 5),
            ("MzAw", 5),
            ("MTAwMDAwMDAwMA==", 5),
            ("LTE=", 5),
        ] {
            assert_eq!(page(path, cursor), all[skipped..], "{path} {cursor}");
        }
        // "-2", a billion and one, and a number beyond 64 bits.
        for cursor in ["LTI=", "MTAwMDAwMDAwMQ==", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5"] {
            let refused = client.get(&format!("{path}?next_cursor={cursor}"));
            let expected = (400, json!({"error": "Invalid payload"}));
            assert_eq!((refused.status, refused.json()), expected, "{path} {cursor}");
        }
    }
}

#[test]
fn fixed_paths_are_not_ids_of_orders() {
    let client = Client::new(server(), 22);
    assert_eq!(client.get("/data/orders").ok(200)["count"], 0);
    let scoring = client.get("/order-scoring?order_id=orders").ok(200);
    assert_eq!(scoring, json!({"scoring": false}));
    assert_eq!(client.get("/data/order/").status, 404);
    for path in ["/data/orders", "/data/order/711", "/order/711", "/data/trades"] {
        check_refused(&server().get(path), UNAUTHORIZED, "send POLY_ADDRESS");
    }
}

/// Sends a heartbeat that names this one.
fn beat(client: &Client<'_>, previous: &Value) -> Response {
    client.call("POST", "/v1/heartbeats", &json!({"heartbeat_id": previous}).to_string())
}

/// The id that a heartbeat got, which is all that the answer says.
#[track_caller]
fn id_of(response: &Response) -> Value {
    let answer = response.ok(200);
    let id = answer["heartbeat_id"].as_str().unwrap();
    assert_eq!(answer, json!({"heartbeat_id": id}));
    let lengths: Vec<_> = id.split('-').map(str::len).collect();
    assert_eq!(lengths, [8, 4, 4, 4, 12], "{id}");
    id.into()
}

#[test]
fn a_heartbeat_names_the_one_before_it() {
    let client = Client::new(server(), 23);
    let first = id_of(&beat(&client, &Value::Null));
    let second = id_of(&beat(&client, &first));
    assert_ne!(first, second);
    for wrong in [&first, &json!("x")] {
        let refused = beat(&client, wrong);
        assert_eq!(refused.status, 400);
        let expected = format!(r#"{{"error_msg":"Invalid Heartbeat ID","heartbeat_id":{second}}}"#);
        assert_eq!(refused.text, expected, "clients go on with the right id");
    }
    let third = id_of(&beat(&client, &second));
    // A program that starts again knows of none.
    for none in ["", "{}", r#"{"heartbeat_id":""}"#, r#"{"heartbeat_id":null}"#] {
        id_of(&client.call("POST", "/v1/heartbeats", none));
    }
    assert_eq!(beat(&client, &third).status, 400);
    // Every account has its own.
    let other = Client::new(server(), 24);
    id_of(&beat(&other, &third));
    assert_eq!(beat(&other, &third).status, 400);
    for body in ["{", "null", r#"{"heartbeat_id":7}"#] {
        let refused = client.call("POST", "/v1/heartbeats", body);
        assert_eq!((refused.status, refused.json()), (400, json!({"error": "Invalid payload"})));
    }
}

#[test]
fn a_heartbeat_of_the_older_form_names_none() {
    let client = Client::new(server(), 25);
    for body in ["", "{}", "x"] {
        let response = client.call("POST", "/heartbeats", body);
        assert_eq!(response.ok(200), json!({"status": "ok"}));
    }
    let id = id_of(&beat(&client, &json!("any, as none is known")));
    client.call("POST", "/heartbeats", "").ok(200);
    id_of(&beat(&client, &id));
}

/// A restart forgets the names, and clients that know one go on.
#[test]
fn a_heartbeat_may_name_any_after_a_restart() {
    let server = Server::unlimited_with(&["--clob", "on"]);
    let id = id_of(&beat(&Client::new(&server, 1), &Value::Null));
    let server = server.crash_and_restart_with(&["--clob", "on"]);
    let client = Client::new(&server, 1);
    let next = id_of(&beat(&client, &id));
    assert_eq!(beat(&client, &id).status, 400);
    id_of(&beat(&client, &next));
}

/// Our own heartbeats have the same paths. A wallet's key tells the requests apart.
#[test]
fn heartbeats_of_both_interfaces_share_their_paths() {
    let around = Server::unlimited_with(&["--clob", "on", "--lane", "off"]);
    let without = Server::unlimited();
    for server in [server(), &around] {
        let client = Client::new(server, 26);
        let account = server.account();
        let mut connection = server.connect();
        for path in ["/v1/heartbeats", "/heartbeats"] {
            let ours = Request::post(path, &json!({"interval_ms": 5_000})).key(&account.key);
            let venues = client.sign("POST", path, "{}", "{}");
            for _ in 0..2 {
                assert_eq!(connection.send(&ours).ok(200)["ok"], true);
                let answer = connection.send(&venues).ok(200);
                let key = if path == "/heartbeats" { "status" } else { "heartbeat_id" };
                assert!(answer[key].is_string() && answer.get("ok").is_none(), "{answer}");
            }
            // Whoever names a wallet's key has to sign with it, whatever else was sent.
            let forged = client.sign("POST", path, "{}", "[]").key(&account.key);
            let reason = "POLY_SIGNATURE: not that of this request";
            check_refused(&server.send(&forged), UNAUTHORIZED, reason);
            let nobody = Request::post(path, &json!({}));
            let refused = server.send(&nobody);
            assert_eq!((refused.status, &refused.json()["error"]), (401, &json!("MISSING_AUTH")));
            let get = with(Request::get(path), [("poly_api_key", "x".to_owned())]);
            // A stranger's connection ends with its unread body.
            connection = server.connect();
            assert_eq!(server.send(&get).header("allow"), Some("POST"));
            // Without the interface, the header means nothing.
            let account = without.account();
            let header = [("poly_api_key", "x".to_owned())];
            let request = with(Request::post(path, &json!({})).key(&account.key), header);
            assert_eq!(without.send(&request).ok(200)["ok"], true);
        }
    }
}
