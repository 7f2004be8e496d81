//! The execution socket from the client's side.

use std::collections::BTreeMap;

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use super::expect::Kind::{Decimal, Integer, Text, Time};
use super::expect::{check_error, check_fields};
use super::recording::{self, PLAIN};
use super::server::{Server, shared};
use paperbourse_test_support::socket::{Frame, Socket, upgrade};

const PATH: &str = "/v1/ws/executions";

/// Opens an execution socket, and returns it with the number of the newest fill.
#[track_caller]
fn follow(server: &Server, key: &str) -> (Socket, u64) {
    let mut socket = Socket::open(server, &upgrade(PATH).key(key)).unwrap();
    let hello = socket.text();
    assert_eq!((&hello["type"], &hello["protocol_version"]), (&json!("connected"), &json!("1.0")));
    (socket, hello["seq"].as_u64().unwrap())
}

#[track_caller]
fn resume(socket: &mut Socket, after: u64) {
    socket.say(&json!({"action": "resume", "after": after}));
    assert_eq!(socket.text_of("resumed"), json!({"type": "resumed", "after": after}));
}

/// Checks that the next frame is the fill with this number, and returns it.
#[track_caller]
fn fill(socket: &mut Socket, seq: u64) -> Value {
    let frame = socket.text();
    assert_eq!((&frame["type"], &frame["seq"]), (&json!("fill"), &json!(seq)), "{frame}");
    frame
}

#[test]
fn a_fill_has_its_fields() {
    let account = shared().account();
    let (mut socket, newest) = follow(shared(), &account.key);
    assert_eq!(newest, 0);
    let mut order = recording::buy(3);
    order["client_order_id"] = "mine".into();
    let order = account.post("/trade", &order).ok(200);
    let frame = fill(&mut socket, 1);
    check_fields(
        &frame,
        &[
            ("type", Text),
            ("seq", Integer),
            ("order_id", Integer),
            ("trade_id", Text),
            ("market_id", Text),
            ("side", Text),
            ("outcome", Text),
            ("price", Decimal),
            ("quantity", Decimal),
            ("notional", Decimal),
            ("fee", Decimal),
            ("filled_at", Time),
            ("client_order_id", Text),
            ("account_balance", Decimal),
        ],
    );
    assert_eq!(frame["order_id"], order["order_id"]);
    assert_eq!(frame["trade_id"], format!("{}-1", order["order_id"]));
    assert_eq!((&frame["market_id"], &frame["side"]), (&json!(PLAIN), &json!("BUY")));
    assert_eq!((&frame["price"], &frame["quantity"]), (&json!("0.5"), &json!("3")));
    assert_eq!((&frame["notional"], &frame["client_order_id"]), (&json!("1.5"), &json!("mine")));
    assert_eq!(frame["account_balance"], account.balance());
}

#[test]
fn a_socket_shows_the_fills_of_its_account_only() {
    let [account, other] = [shared().account(), shared().account()];
    let (mut first, _) = follow(shared(), &account.key);
    let (mut second, _) = follow(shared(), &account.key);
    other.buy(1);
    for seq in 1..=5 {
        account.buy(1);
        let frames = [fill(&mut first, seq), fill(&mut second, seq)];
        assert_eq!(frames[0], frames[1]);
    }
    // Without a resume, a socket shows what comes after it was opened.
    first.end();
    let (mut third, newest) = follow(shared(), &account.key);
    assert_eq!(newest, 5);
    account.buy(1);
    fill(&mut third, 6);
    for after in [0, 6, 4] {
        resume(&mut third, after);
        for seq in after + 1..=6 {
            fill(&mut third, seq);
        }
    }
}

#[test]
fn an_unusable_frame_is_answered_and_the_socket_stays() {
    let account = shared().account();
    account.buy(1);
    let (mut socket, _) = follow(shared(), &account.key);
    for message in [
        json!({"action": "resume", "after": 2}),
        json!({"action": "resume", "after": -1}),
        json!({"action": "resume", "after": 0.5}),
        json!({"action": "resume"}),
        json!({"action": "dance"}),
        json!([]),
    ] {
        socket.say(&message);
        let error = socket.text();
        check_fields(&error, &[("type", Text), ("message", Text)]);
        assert_eq!(error["type"], "error", "{message}");
    }
    socket.say(&json!({"type": "subscribe", "markets": [PLAIN]}));
    assert_eq!(socket.text(), json!({"type": "subscribed"}));
    socket.say(&json!({"action": "ping"}));
    assert_eq!(socket.text()["type"], "pong");
    socket.say(&json!({"type": "RESUME", "after": 0}));
    assert_eq!(socket.text()["type"], "resumed");
    fill(&mut socket, 1);
}

#[test]
fn credentials_and_caps_are_those_of_the_price_socket() {
    let account = shared().account();
    let trades = account.new_key(&json!({"permissions": ["trade"]}));
    let revoked = account.new_key(&json!({}));
    let revoked_key = revoked["raw_key"].as_str().unwrap();
    let first_frame = |request| Socket::open(shared(), &request).unwrap().next_frame();
    for request in [
        upgrade(PATH),
        upgrade(PATH).key(trades["raw_key"].as_str().unwrap()),
        upgrade(PATH).bearer(&account.token),
        upgrade(&format!("{PATH}?token=nonsense")),
    ] {
        assert_eq!(first_frame(request), Frame::Close(4001));
    }
    check_error(&account.get(PATH), 426, "UPGRADE_REQUIRED");
    let minted = account.post("/v1/keys/ws-token", &json!({})).ok(200);
    let path = format!("{PATH}?token={}", minted["token"].as_str().unwrap());
    let mut by_token = Socket::open(shared(), &upgrade(&path)).unwrap();
    assert_eq!(by_token.text()["type"], "connected");
    let prices = Socket::prices(shared(), &account.key);
    for path in [PATH, "/v1/ws/prices"] {
        assert_eq!(first_frame(upgrade(path).key(&account.key)), Frame::Close(4002));
    }
    prices.end();
    let (mut of_revoked, _) = follow(shared(), revoked_key);
    account.delete(format!("/v1/keys/{}", revoked["id"])).ok(200);
    assert_eq!(of_revoked.close_code(), 4001);
}

#[test]
fn a_shutdown_sends_every_fill_that_was_answered() {
    let mut server = Server::unlimited();
    let key = server.account().key;
    let (mut socket, _) = follow(&server, &key);
    let trade = Request::post("/trade", &recording::buy(1)).key(&key);
    let mut connection = server.connect();
    for _ in 0..50 {
        connection.send(&trade).ok(200);
    }
    server.terminate();
    for seq in 1..=50 {
        fill(&mut socket, seq);
    }
    assert_eq!(socket.close_code(), 1001);
    drop((socket, connection));
    assert_eq!(server.wait().code(), Some(0));
}

/// Notes a fill; the same number always means the same fill.
fn note(frame: &Value, seen: &mut BTreeMap<u64, Value>) {
    let seq = frame["seq"].as_u64().unwrap();
    let known = seen.entry(seq).or_insert_with(|| frame.clone());
    assert_eq!(known, frame);
}

/// Twenty reconnects and two crashes during fills: the union of the frames is what the account did.
#[test]
fn reconnects_with_resume_lose_nothing() {
    let mut server = Server::unlimited();
    let account = server.account();
    let key = account.key.clone();
    let mut seen = BTreeMap::new();
    let mut trade_count = 0;
    for round in 0..20 {
        if round == 7 || round == 14 {
            server = server.crash_and_restart();
        }
        std::thread::scope(|scope| {
            let trading = scope.spawn(|| {
                let trade = Request::post("/trade", &recording::buy(1)).key(&key);
                let mut connection = server.connect();
                for _ in 0..10 {
                    connection.send(&trade).ok(200);
                }
            });
            let (mut socket, _) = follow(&server, &key);
            let after = seen.len() as u64;
            resume(&mut socket, after);
            for seq in (after + 1..).take(round % 10) {
                note(&fill(&mut socket, seq), &mut seen);
            }
            trading.join().unwrap();
            trade_count += 10;
            // The other frames of this connection are lost.
            if round % 3 == 0 {
                socket.end();
            }
        });
    }
    let (mut socket, newest) = follow(&server, &key);
    assert_eq!(newest, trade_count);
    let after = seen.len() as u64;
    resume(&mut socket, after);
    for seq in after + 1..=newest {
        note(&fill(&mut socket, seq), &mut seen);
    }
    assert!(seen.keys().copied().eq(1..=trade_count));
    check_against_orders(&server, &key, &seen);
}

/// Checks that the fills are those that the list of orders shows.
fn check_against_orders(server: &Server, key: &str, seen: &BTreeMap<u64, Value>) {
    let mut orders = Vec::new();
    loop {
        let path = format!("/v1/orders?limit=100&offset={}", orders.len());
        let page = server.send(&Request::get(path).key(key)).ok(200);
        let rows = page["orders"].as_array().unwrap();
        if rows.is_empty() {
            break;
        }
        orders.extend(rows.iter().map(|row| row["order_id"].clone()));
    }
    orders.reverse();
    assert!(seen.values().map(|frame| &frame["order_id"]).eq(&orders));
}
