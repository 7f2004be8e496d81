//! A network that loses answers after the request went through: a client that repeats each request
//! under the same name has every order once.
//!
//! `PAPERBOURSE_LOST_ANSWERS=1000` sets how many answers are lost for each kind of order.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};

use paperbourse_test_support::head::Head;
use paperbourse_test_support::socket::{Socket, upgrade};
use paperbourse_test_support::value::micros;
use paperbourse_test_support::{Connection, PATIENCE, Request, Response, uninterrupted};
use serde_json::{Value, json};

use super::expect::check_error;
use super::recording::{DEEP, PLAIN, limit};
use super::server::{Account, Server};

const LOST_ANSWERS_DEFAULT: usize = 50;
/// Segments so large that a busy disk always has room.
const ROOM: [&str; 2] = ["--journal-segment-bytes", "67108864"];

/// When the network loses the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Lost {
    /// When the whole answer has left the server.
    Answered,
    /// When the request has been sent. The server may still be working on it.
    Sent,
}

impl Lost {
    /// Both, in turn.
    const fn of(number: usize) -> Self {
        if number.is_multiple_of(2) { Self::Answered } else { Self::Sent }
    }
}

/// Takes each request to the server, and loses the answer.
struct Proxy {
    address: SocketAddr,
}

impl Proxy {
    /// Serves this many connections, with one request each.
    fn start(server: SocketAddr, connection_count: usize) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for number in 0..connection_count {
                let (mut client, _) = listener.accept().unwrap();
                let request = read_request(&mut client);
                let mut upstream = TcpStream::connect(server).unwrap();
                upstream.set_read_timeout(Some(PATIENCE)).unwrap();
                upstream.write_all(&request).unwrap();
                if Lost::of(number) == Lost::Answered {
                    read_response(&mut upstream);
                }
            }
        });
        Self { address }
    }

    /// Sends a request, whose answer does not arrive.
    #[track_caller]
    fn send(&self, request: &Request) {
        let answer = Connection::open(self.address).try_send(request);
        assert!(answer.is_err(), "{answer:?}");
    }
}

fn read_request(client: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request);
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
            if body.len() == length.map_or(0, |length| length.parse().unwrap()) {
                return request;
            }
        }
        read_more(client, &mut request);
    }
}

fn read_response(server: &mut TcpStream) {
    let mut response = Vec::new();
    let is_complete = |response: &[u8]| {
        Some(Head::parse(response).unwrap()?.is_complete(response.len()).unwrap())
    };
    while is_complete(&response) != Some(true) {
        read_more(server, &mut response);
    }
}

fn read_more(stream: &mut TcpStream, received: &mut Vec<u8>) {
    let mut bytes = [0; 4096];
    let count = uninterrupted(|| stream.read(&mut bytes)).unwrap();
    assert!(count > 0, "the stream ended after {}", String::from_utf8_lossy(received));
    received.extend_from_slice(&bytes[..count]);
}

fn lost_answers() -> usize {
    let text = std::env::var("PAPERBOURSE_LOST_ANSWERS").ok();
    text.map_or(LOST_ANSWERS_DEFAULT, |text| text.parse().unwrap())
}

/// A kind of request, and what becomes of each of its orders.
struct Kind {
    name: &'static str,
    path: &'static str,
    body: Value,
    /// The status and the filled quantity of each order.
    ends: Vec<(&'static str, &'static str)>,
}

fn kinds() -> Vec<Kind> {
    let one = |name, path, order: Value, status, filled| Kind {
        name,
        path,
        body: order,
        ends: vec![(status, filled)],
    };
    let order = |fields: Value| {
        let mut order = json!({"market_id": DEEP, "outcome": "Yes", "side": "BUY"});
        order.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        order
    };
    let place = |name, fields: Value, status, filled| {
        one(name, "/v1/orders", order(fields), status, filled)
    };
    let at = |price: &str, time_in_force: &str| {
        json!({"order_type": "limit", "quantity": 10, "price": price,
               "time_in_force": time_in_force})
    };
    let mut until = at("0.0001", "GTD");
    until["expiration"] = json!(4_000_000_000_u64);
    let entries = [json!({"quantity": 3}), at("0.0001", "GTC"), json!({"amount": "0.01"})];
    let batch = Kind {
        name: "a batch",
        path: "/v1/orders/batch",
        body: json!({"orders": entries.map(order)}),
        ends: vec![("FILLED", "3"), ("PENDING", "0"), ("FILLED", "10")],
    };
    vec![
        one("a trade", "/trade", order(json!({"quantity": 10})), "FILLED", "10"),
        place("market FOK", json!({"quantity": 10}), "FILLED", "10"),
        place("market FAK", json!({"quantity": 10, "time_in_force": "FAK"}), "FILLED", "10"),
        place("amount FOK", json!({"amount": "0.01"}), "FILLED", "10"),
        place("amount FAK", json!({"amount": 0.01, "time_in_force": "FAK"}), "FILLED", "10"),
        place("a sale", json!({"side": "SELL", "quantity": 10}), "FILLED", "10"),
        place("limit GTC that crosses", at("0.001", "GTC"), "FILLED", "10"),
        place("limit GTC that rests", at("0.0001", "GTC"), "PENDING", "0"),
        place("limit GTD", until, "PENDING", "0"),
        place("limit FOK", at("0.001", "FOK"), "FILLED", "10"),
        place("limit FOK that is killed", at("0.0005", "FOK"), "CANCELLED", "0"),
        place("limit FAK", at("0.001", "FAK"), "FILLED", "10"),
        place("limit FAK that is killed", at("0.0005", "FAK"), "CANCELLED", "0"),
        batch,
    ]
}

#[test]
fn an_order_whose_answer_is_lost_executes_once() {
    let (server, count) = (Server::unlimited_with(&ROOM), lost_answers());
    std::thread::scope(|scope| {
        for kind in kinds() {
            let server = &server;
            scope.spawn(move || place_all(server, &kind, count));
        }
    });
}

fn place_all(server: &Server, kind: &Kind, count: usize) {
    let account = server.account();
    let mut stock_count = 0;
    if kind.body["side"] == "SELL" {
        let stock = json!({"market_id": DEEP, "outcome": "Yes", "side": "BUY",
                           "quantity": 10 * count});
        account.post("/trade", &stock).ok(200);
        stock_count = 1;
    }
    let proxy = Proxy::start(server.address, count);
    let mut connection = server.connect();
    let mut placed = BTreeMap::new();
    for number in 0..count {
        let mut body = kind.body.clone();
        if number.is_multiple_of(3) && body.get("orders").is_none() {
            body["client_order_id"] = json!(format!("body-{number}"));
        }
        let request = Request::post(kind.path, &body).key(&account.key);
        let request = request.named(&format!("header-{number}"));
        proxy.send(&request);
        let second = orders_of(kind, &connection.send(&request));
        let third = orders_of(kind, &connection.send(&request));
        for ((second, third), end) in second.iter().zip(&third).zip(&kind.ends) {
            if Lost::of(number) == Lost::Answered {
                assert!(second.is_replay, "{}: executed twice: {}", kind.name, second.row);
            }
            assert!(third.is_replay, "{}: executed again: {}", kind.name, third.row);
            assert_eq!(second.row, third.row, "{}", kind.name);
            assert_eq!(second.row["status"], end.0, "{}", kind.name);
            let before = placed.insert(second.row["order_id"].as_u64().unwrap(), *end);
            assert!(before.is_none(), "{}: one order for two names", kind.name);
        }
    }
    let fill_count = placed.values().filter(|end| end.1 != "0").count() + stock_count;
    assert_eq!(placed.len(), count * kind.ends.len());
    check_account(&account, &placed, stock_count, fill_count);
}

/// An order in an answer, without what says that it is repeated.
struct Answered {
    row: Value,
    is_replay: bool,
}

#[track_caller]
fn orders_of(kind: &Kind, answer: &Response) -> Vec<Answered> {
    let mut body = answer.ok(200);
    let rows = match body.get_mut("results") {
        Some(rows) => rows.as_array_mut().unwrap().drain(..).collect(),
        None => vec![body],
    };
    assert_eq!(rows.len(), kind.ends.len());
    let is_marked = answer.is_replay();
    let answered = rows.into_iter().map(|mut row| {
        let flag = row.as_object_mut().unwrap().remove("is_replay");
        Answered { row, is_replay: is_marked || flag == Some(json!(true)) }
    });
    answered.collect()
}

/// The account has these orders and no others, and their fills are all that it did.
fn check_account(
    account: &Account<'_>,
    placed: &BTreeMap<u64, (&str, &str)>,
    stock_count: usize,
    fill_count: usize,
) {
    let mut rows = BTreeMap::new();
    loop {
        let path = format!("/v1/orders?limit=200&offset={}", rows.len());
        let page = account.get(path).ok(200)["orders"].as_array().unwrap().clone();
        if page.is_empty() {
            break;
        }
        rows.extend(page.into_iter().map(|row| (row["order_id"].as_u64().unwrap(), row)));
    }
    assert_eq!(rows.len(), placed.len() + stock_count);
    let (mut cash, mut shares) = (1_000_000_000, 0);
    for (id, row) in &rows {
        if let Some((status, filled)) = placed.get(id) {
            assert_eq!((&row["status"], &row["filled_quantity"]), (&json!(status), &json!(filled)));
        }
        let sign = if row["side"] == "BUY" { 1 } else { -1 };
        cash -= sign * micros(&row["notional"]) + micros(&row["fee"]);
        shares += sign * micros(&row["filled_quantity"]);
    }
    let balance = account.get("/v1/account/balance").ok(200);
    assert_eq!(micros(&balance["balance"]) + micros(&balance["reserved"]), cash);
    let positions = account.get("/v1/account/positions").ok(200);
    let held: i64 = positions.as_array().unwrap().iter().map(|row| micros(&row["quantity"])).sum();
    assert_eq!(held, shares);
    let follow = upgrade("/v1/ws/executions").key(&account.key);
    let hello = Socket::open(account.server, &follow).unwrap().text();
    assert_eq!(hello["seq"], fill_count);
}

#[test]
fn a_cancel_whose_answer_is_lost_frees_the_money_once() {
    let (server, count) = (Server::unlimited_with(&ROOM), lost_answers());
    let account = server.account();
    let proxy = Proxy::start(server.address, count);
    let mut connection = server.connect();
    for number in 0..count {
        let order = Request::post("/v1/orders", &limit("BUY", 2_000, "0.4")).key(&account.key);
        let placed = connection.send(&order).ok(200);
        let path = format!("/v1/orders/{}", placed["order_id"]);
        let cancel = Request::delete(&*path).key(&account.key).named(&format!("cancel-{number}"));
        proxy.send(&cancel);
        let again = connection.send(&cancel);
        if Lost::of(number) == Lost::Answered || again.status != 200 {
            check_error(&again, 400, "ORDER_NOT_CANCELLABLE");
        }
        let row = connection.send(&Request::get(&*path).key(&account.key)).ok(200);
        let end = [&row["status"], &row["cancelled_reason"], &row["filled_quantity"]];
        assert_eq!(end, ["CANCELLED", "user", "0"]);
        // The next order needs the same dollars, and there are no more of them.
        let balance = account.get("/v1/account/balance").ok(200);
        let shown = ["balance", "reserved", "available"].map(|field| &balance[field]);
        assert_eq!(shown, ["1000", "0", "1000"]);
    }
    let listed = account.get(format!("/v1/orders?market_id={PLAIN}&limit=200")).ok(200);
    assert_eq!(listed["orders"].as_array().unwrap().len(), count.min(200));
}
