//! The venue's sockets with trouble on demand, by raw frames, and the tick that changes meanwhile.

use std::collections::HashSet;

use paperbourse_test_support::socket::{Frame, Socket, TEXT, upgrade};
use serde_json::{Value, json};

use super::clob_trouble::{follow, record, server};
use super::clob_user_socket::open as open_user;
use super::clob_wallets::Client;
use super::recording::{PLAIN, token_id};
use super::server::Server;

/// Opens a market socket for these tokens.
fn open_market(server: &Server, tokens: &[String]) -> Socket {
    let mut socket = Socket::open(server, &upgrade("/ws/market")).unwrap();
    socket.say(&json!({"type": "market", "assets_ids": tokens, "custom_feature_enabled": true}));
    socket
}

/// The type of what a user socket is sent, and its status.
fn told(socket: &mut Socket, count: usize) -> Vec<String> {
    let frames = (0..count).map(|_| socket.text());
    let text = |frame: &Value, field: &str| frame[field].as_str().unwrap().to_owned();
    frames.map(|frame| format!("{}:{}", text(&frame, "type"), text(&frame, "status"))).collect()
}

/// Whether nothing but the answer to a ping is sent.
#[track_caller]
fn only_pong(socket: &mut Socket) {
    socket.send(TEXT, b"PING");
    assert_eq!(socket.text(), "PONG");
}

const PLACED: [&str; 2] = ["PLACEMENT:MATCHED", "UPDATE:MATCHED"];
const TRADES: [&str; 3] = ["TRADE:MATCHED", "TRADE:MINED", "TRADE:CONFIRMED"];

#[test]
fn frames_of_a_wallet_are_swapped_repeated_and_left_out() {
    let server = server("seed=1");
    let client = Client::new(&server, 1);
    let mut sockets = [open_user(&client, &[]), open_user(&client, &[])];
    let fill = |salt| drop(client.order(salt, "BUY FOK 5 for 10").ok(200));

    follow(&server, "trade-first=100%");
    fill(1);
    for socket in &mut sockets {
        assert_eq!(told(socket, 5), [&TRADES[..1], &PLACED[..], &TRADES[1..]].concat());
    }
    follow(&server, "twice=100%");
    fill(2);
    for socket in &mut sockets {
        let twice = |told: &[&'static str]| -> Vec<&str> {
            told.iter().flat_map(|&one| [one, one]).collect()
        };
        assert_eq!(told(socket, 10), [twice(&PLACED), twice(&TRADES)].concat());
    }
    follow(&server, "omitted=100%");
    fill(3);
    // Frames meet what is wanted when they are written, which is after the order is answered.
    while server.get("/v1/status").ok(200)["clob_trouble"]["met"]["omitted"] != 5 {
        std::thread::yield_now();
    }
    follow(&server, "");
    client.order(4, "BUY GTC 4 for 10").ok(200);
    for socket in &mut sockets {
        assert_eq!(told(socket, 1), ["PLACEMENT:LIVE"]);
    }
}

#[test]
fn a_user_socket_ends_without_a_close_frame() {
    let server = server("user-closed=100%");
    let client = Client::new(&server, 1);
    let mut socket = open_user(&client, &[]);
    let placed = client.order(1, "BUY GTC 4 for 10").ok(200);
    assert_eq!(socket.next_frame(), Frame::End);
    follow(&server, "");
    let mut again = open_user(&client, &[]);
    client.order(2, "BUY GTC 4 for 10").ok(200);
    assert_eq!(told(&mut again, 1), ["PLACEMENT:LIVE"]);
    again.end();

    let lines = record(&server, 8);
    let wallet = client.signer.address().to_string();
    let met: Vec<&Value> = lines.iter().filter(|line| line["trouble"].is_string()).collect();
    let [met] = met[..] else { panic!("{met:?}") };
    assert_eq!((&met["trouble"], &met["wallet"]), (&json!("user-closed"), &json!(wallet)));
    assert_eq!(met["orders"], json!([placed["orderID"]]));
    assert_eq!((&met["token"], &met["address"]), (&json!(token_id(0, 0)), &json!("127.0.0.1")));
    for act in ["user-socket", "user-socket-end"] {
        let acts: Vec<&Value> = lines.iter().filter(|line| line["act"] == act).collect();
        assert_eq!(acts.len(), 2, "{act}: {lines:?}");
        assert!(acts.iter().all(|line| line["wallet"] == json!(wallet)), "{acts:?}");
    }
}

/// The n-th frame of a wallet meets the same, whatever sockets it comes on.
#[test]
fn the_same_seed_is_the_same_trouble_of_a_wallet() {
    let met = || -> Vec<Value> {
        let server = server("seed=3,twice=30%,trade-first=50%");
        let client = Client::new(&server, 1);
        let mut socket = open_user(&client, &[]);
        let ids: Vec<Value> = (0..8)
            .map(|salt| client.order(salt, "BUY FOK 5 for 10").ok(200)["orderID"].clone())
            .collect();
        let (mut frames, mut confirmed, mut last) = (Vec::new(), HashSet::new(), None);
        loop {
            // That a trade is settled is told later, so the frames of different orders mix.
            if confirmed.len() == ids.len() && last.is_none() {
                last = Some(client.order(100, "BUY GTC 4 for 10").ok(200)["orderID"].clone());
            }
            let frame = socket.text();
            if Some(&frame["id"]) == last.as_ref() {
                frames.sort_by_key(|(order, _)| *order);
                break frames.into_iter().map(|(_, frame)| frame).collect();
            }
            let is_trade = frame["event_type"] == "trade";
            let id = if is_trade { &frame["taker_order_id"] } else { &frame["id"] };
            let order = ids.iter().position(|known| known == id).unwrap();
            if frame["status"] == "CONFIRMED" {
                confirmed.insert(order);
            }
            frames.push((order, json!([order, frame["type"], frame["status"]])));
        }
    };
    let first = met();
    assert!(first.len() > 40, "{first:?}");
    assert_eq!(first, met());
}

#[test]
fn a_silent_market_socket_answers_pings_and_then_sends_the_book() {
    let server = server("silence=100%:1500ms");
    let began = std::time::Instant::now();
    let token = token_id(0, 0);
    let mut socket = open_market(&server, std::slice::from_ref(&token));
    only_pong(&mut socket);
    let book = socket.text();
    assert!(began.elapsed().as_millis() >= 1_500);
    assert_eq!((&book["event_type"], &book["asset_id"]), (&json!("book"), &json!(token)));
    socket.end();
    let lines = record(&server, 3);
    let [opened, met, ended] = &lines[..] else { panic!("{lines:?}") };
    assert_eq!((&opened["act"], &opened["tokens"]), (&json!("market-socket"), &json!([token])));
    assert_eq!((&met["trouble"], &met["length_ms"]), (&json!("silence"), &json!(1_500)));
    assert_eq!((&met["token"], &met["address"]), (&json!(token), &json!("127.0.0.1")));
    assert_eq!((&ended["act"], &ended["tokens"]), (&json!("market-socket-end"), &json!([token])));
}

#[test]
fn a_ghost_is_followed_by_the_true_book() {
    let server = server("ghost=100%:300ms");
    let mut socket = open_market(&server, &[token_id(0, 0)]);
    let ghost = socket.text();
    let level = |price: &str| json!([{"price": price, "size": "100"}]);
    assert_eq!((&ghost["bids"], &ghost["asks"]), (&level("0.01"), &level("0.99")));
    let book = socket.text();
    assert_eq!(book["bids"].as_array().unwrap().last().unwrap()["price"], "0.48");
    assert_ne!(book["hash"], ghost["hash"]);
}

#[test]
fn a_market_socket_ends_without_a_close_frame() {
    let server = server("market-closed=100%");
    let mut socket = open_market(&server, &[token_id(0, 0)]);
    assert_eq!(socket.next_frame(), Frame::End);
    follow(&server, "");
    let mut again = open_market(&server, &[token_id(0, 0)]);
    assert_eq!(again.text()["event_type"], "book");
}

#[test]
fn a_tick_is_coarser_for_a_while_from_an_order_on() {
    let server = server("seed=1");
    let (client, other) = (Client::new(&server, 1), Client::new(&server, 2));
    let token = token_id(0, 0);
    let mut socket = open_market(&server, std::slice::from_ref(&token));
    let before = socket.text();
    let shown = || {
        let number = |target: String, field: &str| server.get(target).ok(200)[field].clone();
        [
            number(format!("/tick-size?token_id={token}"), "minimum_tick_size"),
            number(format!("/markets/{PLAIN}"), "minimum_tick_size"),
            number(format!("/clob-markets/{PLAIN}"), "mts"),
        ]
    };
    let resting = client.order(1, "BUY GTC 4.1 for 10").ok(200);
    follow(&server, "tick=100%:1000s");
    let refused = client.order(2, "BUY GTC 4.2 for 10");
    let text = refused.json()["error"].as_str().unwrap().to_owned();
    assert_eq!(refused.status, 400);
    assert!(
        text.ends_with("is invalid. Price (0.42) breaks minimum tick size rule: 0.1"),
        "{text}"
    );
    for (asked, status) in [
        ("BUY GTC 4 for 10", 200),
        ("BUY FOK 5 for 10", 200),
        ("BUY FOK 5.3 for 10", 400),
        ("SELL FAK 10 for 4.8", 400),
    ] {
        assert_eq!(other.order(3, asked).status, status, "{asked}");
    }
    assert_eq!(client.order(1, "BUY GTC 4.1 for 10").ok(200), resting, "a repeated order");
    assert_eq!(shown(), [0.1, 0.1, 0.1].map(|tick| json!(tick)));
    let begun = socket.text();
    let fields = ["event_type", "old_tick_size", "new_tick_size"].map(|name| begun[name].clone());
    assert_eq!(fields, ["tick_size_change", "0.01", "0.1"].map(|text| json!(text)));
    let book = server.get(format!("/book?token_id={token}")).ok(200);
    let frame = socket.text();
    assert_eq!((&frame["hash"], &frame["tick_size"]), (&book["hash"], &json!("0.1")));
    assert_ne!(book["hash"], before["hash"]);

    follow(&server, "");
    let ended = socket.text();
    let fields = ["event_type", "old_tick_size", "new_tick_size"].map(|name| ended[name].clone());
    assert_eq!(fields, ["tick_size_change", "0.1", "0.01"].map(|text| json!(text)));
    assert_eq!(socket.text(), before);
    assert_eq!(shown(), [0.01, 0.01, 0.01].map(|tick| json!(tick)));
    client.order(2, "BUY GTC 4.2 for 10").ok(200);
}

#[test]
fn a_coarser_tick_ends_in_time() {
    let server = server("tick=100%:2s");
    let client = Client::new(&server, 1);
    let mut socket = open_market(&server, &[token_id(0, 0)]);
    let before = socket.text();
    assert_eq!(client.order(1, "BUY GTC 4.2 for 10").status, 400);
    for tick in ["0.1", "0.01"] {
        let change = socket.text();
        assert_eq!(
            (&change["new_tick_size"], &socket.text()["tick_size"]),
            (&json!(tick), &json!(tick))
        );
    }
    let query = format!("/book?token_id={}", token_id(0, 0));
    assert_eq!(server.get(query).ok(200)["hash"], before["hash"]);
}
