//! The venue's market socket, by raw frames.

use paperbourse_test_support::socket::{BINARY, Frame, PING, Socket, TEXT, TEXT_BEGINS, upgrade};
use serde_json::{Value, json};

use super::recording::token_id;
use super::server::{Server, shared, shared_with_clob as server};

const PATH: &str = "/ws/market";

fn open(server: &Server) -> Socket {
    Socket::open(server, &upgrade(PATH)).unwrap()
}

fn subscribe(socket: &mut Socket, tokens: &[String]) {
    socket.say(&json!({"type": "market", "markets": [], "assets_ids": tokens}));
}

/// What the request for a book answers, without what only that has.
fn book(token: &str) -> Value {
    let mut book = server().get(format!("/book?token_id={token}")).ok(200);
    let fields = book.as_object_mut().unwrap();
    fields.retain(|name, _| !["min_order_size", "neg_risk"].contains(&name.as_str()));
    fields.insert("event_type".to_owned(), json!("book"));
    book
}

#[test]
fn books_are_those_that_requests_show() {
    let mut socket = open(server());
    // Some clients send it as soon as they are connected.
    socket.send(TEXT, b"PING");
    assert_eq!(socket.text(), "PONG");
    let tokens = [token_id(0, 0), token_id(0, 1)];
    subscribe(&mut socket, &[&tokens[..], &["1".to_owned()]].concat());
    for token in &tokens {
        assert_eq!(socket.text(), book(token));
    }
    let other = token_id(1, 0);
    socket.say(&json!({"operation": "subscribe", "assets_ids": [other, tokens[0]]}));
    assert_eq!(socket.text(), book(&other), "an asset that the socket has is not sent again");
    socket.say(&json!({"operation": "unsubscribe", "assets_ids": tokens}));
    socket.say(&json!({"operation": "subscribe", "assets_ids": tokens[1..]}));
    assert_eq!(socket.text(), book(&tokens[1]));
    let market = book(&other)["market"].clone();
    socket.say(&json!({"assets_ids": [], "markets": [market], "custom_feature_enabled": true}));
    assert_eq!(socket.text(), book(&token_id(1, 1)));
    socket.send(PING, b"x");
    assert_eq!(socket.next_frame(), Frame::Pong(b"x".to_vec()));
    socket.end();
}

#[test]
fn a_client_may_do_without_the_first_books() {
    let mut socket = open(server());
    socket.say(&json!({"type": "market", "assets_ids": [token_id(0, 0)], "initial_dump": false}));
    socket.send(TEXT, b"PING");
    assert_eq!(socket.text(), "PONG");
    socket.end();
}

#[test]
fn what_is_no_subscription_closes_the_socket() {
    let mut other = open(server());
    subscribe(&mut other, &[token_id(0, 0)]);
    other.text();
    let large = format!(r#"{{"assets_ids":["{}"]}}"#, "1".repeat(1 << 20));
    let many: Vec<String> = (0..1_500).map(|token| token.to_string()).collect();
    let many = json!({"assets_ids": many}).to_string();
    for (first, payload, code) in [
        (TEXT, r#"{"type":"market"}"#, 1008),
        (TEXT, r#"{"assets_ids":[1]}"#, 1008),
        (TEXT, r#"{"assets_ids":"1"}"#, 1008),
        (TEXT, r#"{"assets_ids":[],"operation":"follow"}"#, 1008),
        (TEXT, r#"[["1"]]"#, 1008),
        (TEXT, "{", 1008),
        (TEXT, "ping", 1008),
        (TEXT, &large, 1009),
        (TEXT_BEGINS, r#"{"assets_ids":"#, 1009),
        (BINARY, r#"{"assets_ids":[]}"#, 1003),
        // Assets that are not listed take no place.
        (TEXT, &many, 0),
    ] {
        let mut socket = open(server());
        socket.send(first, payload.as_bytes());
        if code == 0 {
            socket.end();
        } else {
            assert_eq!(socket.close_code(), code, "{}", &payload[..payload.len().min(80)]);
        }
    }
    other.send(TEXT, b"PING");
    assert_eq!(other.text(), "PONG");
    other.end();
}

#[test]
fn the_socket_is_there_only_with_the_venues_interface() {
    assert_eq!(Socket::open(shared(), &upgrade(PATH)).err().unwrap().status, 404);
    let plain = server().get(PATH);
    assert_eq!(plain.status, 426);
    assert!(plain.json()["error"].as_str().unwrap().contains("connect with ws"), "{plain:?}");
}
