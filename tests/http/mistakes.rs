//! Mistakes that people make, and the sentence that each is answered with. Whoever reads the
//! sentence, without the documentation, can mend the request: look at each when it changes.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use paperbourse_test_support::Request;
use paperbourse_test_support::socket::{Socket, upgrade};
use serde_json::{Value, json};

use super::recording::{BOOKLESS, DEEP, PAUSED, PLAIN, buy, limit, sell, token_id};
use super::server::Server;

/// An order with this field.
fn and(mut order: Value, field: &str, value: Value) -> Value {
    order[field] = value;
    order
}

/// The code and the text of the close frame that a socket begins with.
fn closed(server: &Server, request: &Request) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.write_all(&request.to_bytes()).unwrap();
    let mut received = Vec::new();
    stream.read_to_end(&mut received).unwrap();
    let head = received.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let [0x88, length, high, low, text @ ..] = &received[head..] else {
        panic!("a close frame: {:?}", String::from_utf8_lossy(&received));
    };
    assert_eq!(usize::from(*length), 2 + text.len());
    let code = u16::from_be_bytes([*high, *low]);
    format!("{code}: {}", String::from_utf8_lossy(text))
}

#[test]
#[expect(clippy::too_many_lines, reason = "most of them are rows")]
fn a_mistake_can_be_mended_from_its_sentence() {
    let server = Server::unlimited();
    let other_server = Server::unlimited();
    let account = server.account();
    let reads = account.new_key(&json!({"permissions": ["read"]}));
    let reads = reads["raw_key"].as_str().unwrap();
    let trades = account.new_key(&json!({"permissions": ["trade"]}));
    let trades = trades["raw_key"].as_str().unwrap();
    account.buy(100);
    let named = account.send(Request::post("/trade", &buy(1)).named("used")).ok(200);
    let order_id = named["order_id"].to_string();
    let key = &*account.key;
    let keyed = |request: Request| request.key(key);
    let trade = |order: Value| keyed(Request::post("/trade", &order));
    let order = |order: Value| keyed(Request::post("/v1/orders", &order));
    let get = |path: &str| keyed(Request::get(path));
    let raw = |body: &str| keyed(Request::new("POST", "/trade").body(body));
    let foreign = other_server.token("stranger", None);
    let mut slipping = buy(150);
    slipping["max_slippage_bps"] = json!(0);
    let batch = json!({"orders": vec![buy(1); 6]});
    let slug = "invented-market-0";
    let rows = [
        ("a limit price by the name of answers", order(and(buy(1), "limit_price", json!("0.4")))),
        ("a limit price at /trade", trade(and(buy(1), "price", json!("0.4")))),
        ("an answer's name at /trade", trade(and(buy(1), "limit_price", json!("0.4")))),
        ("a guard without its unit", trade(and(buy(1), "max_slippage", json!(0.01)))),
        ("type for order_type", order(and(buy(1), "type", json!("limit")))),
        ("size for quantity", order(and(buy(1), "size", json!(5)))),
        ("camel case", order(and(limit("BUY", 5, "0.4"), "postOnly", json!(true)))),
        ("a letter too few", order(and(buy(1), "pric", json!("0.4")))),
        ("another side", trade(and(buy(1), "side", json!("LONG")))),
        ("nothing", keyed(Request::post("/trade", &json!({})))),
        ("a form", raw("market_id=0xa&outcome=Yes&side=BUY&quantity=1")),
        ("half a body", raw("{\"market_id\":")),
        ("a price off the tick", order(limit("BUY", 5, "0.505"))),
        ("a price above the last", order(limit("BUY", 5, "0.999"))),
        ("a price of nothing", order(limit("BUY", 5, "0"))),
        (
            "milliseconds",
            order(and(
                and(limit("BUY", 5, "0.4"), "time_in_force", json!("GTD")),
                "expiration",
                json!(1_900_000_000_000_u64),
            )),
        ),
        (
            "an expiration without GTD",
            order(and(limit("BUY", 5, "0.4"), "expiration", json!(1_900_000_000))),
        ),
        ("no price", order(and(limit("BUY", 5, "0.4"), "price", Value::Null))),
        ("too few shares", order(limit("BUY", 1, "0.4"))),
        ("a slug for an id", trade(and(buy(1), "market_id", json!(slug)))),
        ("a token for an id", order(and(buy(1), "market_id", json!(token_id(0, 1))))),
        ("a slug in a path", get(&format!("/v1/markets/{slug}"))),
        ("a token in a path", get(&format!("/v1/markets/{}/book", token_id(0, 0)))),
        ("an unknown market", trade(and(buy(1), "market_id", json!("0xnone")))),
        ("an unknown outcome", trade(and(buy(1), "outcome", json!("Maybe")))),
        ("a paused market", trade(and(buy(1), "market_id", json!(PAUSED)))),
        ("a market without a book", trade(and(buy(1), "market_id", json!(BOOKLESS)))),
        ("more than the book has", trade(buy(5_000))),
        ("more slippage than allowed", trade(slipping)),
        ("more than the money", trade(and(buy(1_000_000), "market_id", json!(DEEP)))),
        ("more than is held", trade(sell(500))),
        ("a name used before", trade(buy(2)).named("used")),
        ("a batch too long", keyed(Request::post("/v1/orders/batch", &batch))),
        ("a path with a version", keyed(Request::post("/v1/trade", &buy(1)))),
        ("a path without one", get("/orders")),
        ("a path that ends in a slash", get("/v1/markets/")),
        ("another health", get("/health")),
        ("a path misspelt", get("/v1/acount/balance")),
        ("the wrong method", keyed(Request::get("/trade"))),
        ("an id that is none", get("/v1/orders/last")),
        ("no credential", Request::get("/v1/orders")),
        ("a token as a key", Request::get("/v1/orders").key(&account.token)),
        ("a key without its scheme", Request::get("/v1/orders").header("authorization", key)),
        ("a key cut short", Request::get("/v1/orders").key(&key[..71])),
        ("a key of another service", Request::get("/v1/orders").key(&"k".repeat(72))),
        ("an unknown key", Request::get("/v1/orders").key(&format!("ps_live_{}", "0".repeat(64)))),
        ("a token of another server", Request::get("/v1/keys").bearer(&foreign)),
        ("an old token", Request::get("/v1/keys").bearer(&server.expired_token("x"))),
        ("a token where keys are needed", Request::get("/v1/orders").bearer(&account.token)),
        ("a key that may not trade", Request::post("/trade", &buy(1)).key(reads)),
        ("a tier too high", keyed(Request::post("/v1/keys", &json!({"tier": "pro"})))),
        ("a socket's path without an upgrade", get("/v1/ws/prices")),
        ("all, unconfirmed", keyed(Request::post("/v1/cancel-all", &json!({})))),
    ];
    let mut table = String::new();
    let secrets = [key, reads, trades, &account.token, &foreign];
    for (mistake, request) in rows {
        let response = server.send(&request);
        let body = response.json();
        let message = body["message"].as_str().unwrap_or_else(|| panic!("{mistake}: {body}"));
        for secret in secrets {
            assert!(!response.text.contains(&secret[8..60]), "{mistake} shows a credential");
        }
        assert!(response.status >= 400, "{mistake}");
        let message = message.replace(&order_id, "[order_id]").replace(PLAIN, "[market_id]");
        let code = body["error"].as_str().unwrap();
        writeln!(table, "{mistake}: {} {code}\n  {message}", response.status).unwrap();
    }

    let limited = Server::start(&["--tier", "free=1/300/2/5", "--address-limits", "off"]);
    let hasty = limited.account();
    let refused = (0..1_000).map(|_| hasty.get("/v1/account/balance")).find(|it| it.status == 429);
    let text = refused.unwrap().json()["message"].as_str().unwrap().to_owned();
    writeln!(table, "too many requests: 429 RATE_LIMIT_EXCEEDED\n  {text}").unwrap();

    let prices = "/v1/ws/prices";
    for (mistake, request) in [
        ("a socket without a credential", upgrade(prices)),
        ("a socket's old token", upgrade(&format!("{prices}?token=old"))),
        ("a socket's wrong key", upgrade(prices).key("nonsense")),
        ("a socket's wrong key as Bearer", upgrade(prices).bearer("ps_live_nonsense")),
        ("an access token for a socket", upgrade(prices).bearer(&account.token)),
        ("a socket's key that may not read", upgrade(prices).key(trades)),
    ] {
        writeln!(table, "{mistake}: closed\n  {}", closed(&server, &request)).unwrap();
    }
    let mut socket = Socket::prices(&server, key);
    for (mistake, message) in [
        ("a subscription to nothing", json!({"type": "subscribe"})),
        ("a subscription in a channel", json!({"channel": "prices", "markets": [PLAIN]})),
        ("a subscription of the venue", json!({"type": "market", "assets_ids": ["7"]})),
        ("a subscription by slug", json!({"action": "subscribe", "markets": [slug]})),
    ] {
        socket.say(&message);
        let said = socket.text_of("error");
        let said = said["message"].as_str().unwrap();
        writeln!(table, "{mistake}: error frame\n  {said}").unwrap();
    }
    insta::assert_snapshot!(table);
}
