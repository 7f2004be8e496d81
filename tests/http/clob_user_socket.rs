//! The venue's user socket, by raw frames.

use paperbourse_test_support::socket::{Frame, Socket, TEXT, upgrade};
use serde_json::{Value, json};

use super::clob_wallets::Client;
use super::recording::{PLAIN, other, token_id};
use super::server::{Server, shared, shared_with_clob as server};

const PATH: &str = "/ws/user";

/// Opens a socket for a wallet, which is told what happens from then on.
pub(super) fn open(client: &Client<'_>, markets: &[&str]) -> Socket {
    let mut socket = Socket::open(client.server, &upgrade(PATH)).unwrap();
    let mut first = first_frame(client);
    first["markets"] = json!(markets);
    socket.say(&first);
    ping(&mut socket);
    socket
}

fn first_frame(client: &Client<'_>) -> Value {
    let credentials = &client.credentials;
    json!({"type": "user", "auth": {
        "apiKey": credentials.api_key, "secret": credentials.secret,
        "passphrase": credentials.passphrase,
    }})
}

#[track_caller]
fn ping(socket: &mut Socket) {
    socket.send(TEXT, b"PING");
    assert_eq!(socket.text(), "PONG");
}

/// Reads a frame about an order, and returns its row, after removing what only frames have.
#[track_caller]
fn order_row(socket: &mut Socket, client: &Client<'_>, kind: &str) -> Value {
    let mut frame = socket.text();
    let fields = frame.as_object_mut().unwrap();
    let mut take = |name: &str| fields.remove(name).unwrap();
    assert_eq!((take("event_type"), take("type")), (json!("order"), json!(kind)));
    assert_eq!(take("order_owner"), json!(client.credentials.api_key));
    assert_eq!(take("timestamp").as_str().unwrap().len(), 13, "milliseconds");
    let created_at: i64 = take("created_at").as_str().unwrap().parse().unwrap();
    fields.insert("created_at".to_owned(), json!(created_at));
    frame
}

/// Reads the three frames about a trade, and returns its row.
#[track_caller]
fn trade_row(socket: &mut Socket, client: &Client<'_>) -> Value {
    let [matched, mined, confirmed] = ["MATCHED", "MINED", "CONFIRMED"].map(|status| {
        let mut frame = socket.text();
        let fields = frame.as_object_mut().unwrap();
        let mut take = |name: &str| fields.remove(name).unwrap();
        assert_eq!((take("event_type"), take("type")), (json!("trade"), json!("TRADE")));
        assert_eq!(take("trade_owner"), json!(client.credentials.api_key));
        assert_eq!(take("timestamp").as_str().unwrap().len(), 13, "milliseconds");
        assert_eq!(take("status"), status);
        frame
    });
    assert_eq!((&matched, &mined), (&confirmed, &confirmed));
    confirmed
}

#[track_caller]
fn shown_order(client: &Client<'_>, answer: &Value) -> Value {
    let id = answer["orderID"].as_str().unwrap();
    client.get(&format!("/data/order/{id}")).ok(200)
}

#[test]
fn frames_are_the_rows_that_requests_show() {
    let client = Client::new(server(), 201);
    let mut socket = open(&client, &[]);
    let resting = client.order(1, "BUY GTC 4 for 10").ok(200);
    assert_eq!(order_row(&mut socket, &client, "PLACEMENT"), shown_order(&client, &resting));

    let taken = client.order(2, "BUY FOK 5 for 10").ok(200);
    let row = shown_order(&client, &taken);
    assert_eq!((&row["status"], &row["size_matched"]), (&json!("MATCHED"), &json!("10")));
    for kind in ["PLACEMENT", "UPDATE"] {
        assert_eq!(order_row(&mut socket, &client, kind), row);
    }
    let trade_id = taken["tradeIDs"][0].as_str().unwrap();
    let mut trades = client.get(&format!("/data/trades?id={trade_id}")).ok(200);
    let mut trade = trades["data"][0].take();
    assert_eq!(trade.as_object_mut().unwrap().remove("status"), Some(json!("CONFIRMED")));
    assert_eq!(trade_row(&mut socket, &client), trade);

    // What is refused, or was answered before, is not told.
    assert_eq!(client.order(3, "BUY GTC 5000 for 10000").status, 400);
    assert_eq!(client.order(2, "BUY FOK 5 for 10").ok(200), taken);
    client.call("DELETE", "/cancel-all", "").ok(200);
    let cancelled = order_row(&mut socket, &client, "CANCELLATION");
    assert_eq!(cancelled["status"], "CANCELED");
    assert_eq!(cancelled, shown_order(&client, &resting));
    socket.end();
}

#[test]
fn every_socket_of_a_wallet_is_told_of_its_markets() {
    let client = Client::new(server(), 202);
    let stranger = Client::new(server(), 203);
    let (mut all, mut plain) = (open(&client, &[]), open(&client, &[PLAIN, "0x12"]));
    let other_market = other(7);
    let mut of_stranger = open(&stranger, &[]);
    let place = |salt, token: &str| {
        let body = client.body(salt, token, "BUY GTC 4 for 10");
        client.call("POST", "/order", &body).ok(200)["orderID"].clone()
    };
    let in_plain = place(1, &token_id(0, 0));
    let in_other = place(2, &token_id(7 + 7, 0));
    for id in [&in_plain, &in_other] {
        assert_eq!(all.text()["id"], *id);
    }
    plain.say(&json!({"operation": "subscribe", "markets": [other_market]}));
    plain.say(&json!({"operation": "unsubscribe", "markets": [PLAIN]}));
    assert_eq!(plain.text()["id"], in_plain);
    ping(&mut plain);
    let [_, in_other] = [place(3, &token_id(0, 0)), place(4, &token_id(7 + 7, 0))];
    assert_eq!(plain.text()["id"], in_other);
    plain.say(&json!({"operation": "subscribe", "markets": []}));
    ping(&mut plain);
    let everything = [all.text()["id"].clone(), all.text()["id"].clone()];
    assert_eq!(everything[1], in_other);
    let id = place(5, &token_id(0, 0));
    for socket in [&mut all, &mut plain] {
        assert_eq!(socket.text()["id"], id);
    }
    let own = stranger.order(1, "BUY GTC 4 for 10").ok(200);
    assert_eq!(of_stranger.text()["id"], own["orderID"]);
}

/// All that happens in one request, and to a client that reads late.
#[test]
fn many_orders_at_once_are_all_told() {
    let client = Client::new(server(), 204);
    let mut socket = open(&client, &[]);
    let body = |salt| client.body(salt, &token_id(0, 0), "BUY GTC 4 for 10");
    let mut placed = Vec::new();
    for first in (0..60).step_by(15) {
        let list: Vec<String> = (first..first + 15).map(body).collect();
        let answers = client.call("POST", "/orders", &format!("[{}]", list.join(","))).ok(200);
        placed.extend(answers.as_array().unwrap().iter().map(|answer| answer["orderID"].clone()));
    }
    let cancelled = client.call("DELETE", "/cancel-all", "").ok(200);
    let mut told: Vec<Value> = (0..120).map(|_| socket.text()).collect();
    let ended = told.split_off(60);
    let id = |frame: &Value| frame["id"].clone();
    assert_eq!(told.iter().map(id).collect::<Vec<_>>(), placed);
    assert_eq!(json!(ended.iter().map(id).collect::<Vec<_>>()), cancelled["canceled"]);
    assert!(told.iter().all(|frame| frame["type"] == "PLACEMENT"));
    assert!(ended.iter().all(|frame| frame["type"] == "CANCELLATION"));
    socket.end();
}

#[test]
fn a_socket_is_closed_without_a_word_unless_its_credentials_are_good() {
    let client = Client::new(server(), 205);
    let good = first_frame(&client);
    let with = |field: &str, value: &str| {
        let mut first = good.clone();
        first["auth"][field] = json!(value);
        first
    };
    let secret = &client.credentials.secret;
    for first in [
        with("secret", "AAAA"),
        with("passphrase", secret),
        with("apiKey", "0b8a2f6e-1c3d-4e5f-8a9b-0123456789ab"),
        with("apiKey", "x"),
        json!({"type": "user", "markets": []}),
        json!({"type": "user", "auth": null}),
        json!([]),
    ] {
        let mut socket = Socket::open(server(), &upgrade(PATH)).unwrap();
        ping(&mut socket);
        socket.say(&first);
        assert_eq!(socket.next_frame(), Frame::Close(4001), "{first}");
    }
    // The upgrade itself takes no credential.
    let headers = upgrade(PATH).header("POLY_API_KEY", "x");
    assert!(Socket::open(server(), &headers).is_ok());
    assert_eq!(Socket::open(shared(), &upgrade(PATH)).err().unwrap().status, 404);
}

#[test]
fn a_socket_ends_with_its_key() {
    let server = Server::unlimited_with(&["--clob", "on"]);
    let client = Client::new(&server, 1);
    let mut socket = open(&client, &[]);
    client.call("DELETE", "/auth/api-key", "").ok(200);
    assert_eq!(socket.close_code(), 4001);
    let mut refused = Socket::open(&server, &upgrade(PATH)).unwrap();
    refused.say(&first_frame(&client));
    assert_eq!(refused.next_frame(), Frame::Close(4001));
}

/// A socket counts for its account once that is known. Two are open at most in these tests.
#[test]
fn an_account_opens_no_more_sockets_than_its_tier_allows() {
    let client = Client::new(server(), 206);
    let mut open_ones: Vec<Socket> = (0..2).map(|_| open(&client, &[])).collect();
    let mut third = Socket::open(server(), &upgrade(PATH)).unwrap();
    ping(&mut third);
    third.say(&first_frame(&client));
    assert_eq!(third.next_frame(), Frame::Close(4002));
    open_ones.pop().unwrap().end();
    open_ones.push(open(&client, &[]));
    open(&Client::new(server(), 207), &[]).end();
}
