//! A client that does not allocate while it trades.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use paperbourse_test_support::head::Head;
use serde_json::json;

/// Timeout for an answer.
const PATIENCE: Duration = Duration::from_mins(1);
/// Maximum size of an answer, in bytes. The longest ones are to trades and key requests.
const ANSWER_BYTES_MAX: usize = 8 * 1024;
/// Placeholder in a request for the unique name of each order.
const NAME_GAP: &str = "################";

/// A persistent connection with one request in flight.
pub(crate) struct Connection {
    stream: TcpStream,
    received: [u8; ANSWER_BYTES_MAX],
}

/// The kind of order.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Shape {
    /// One share with an idempotency key, the typical order of a simple bot.
    Plain,
    /// An order that also has a client order id, takes two levels and pays a fee.
    Rich,
}

/// A source of requests, one for each order.
pub(crate) struct Orders {
    request: Vec<u8>,
    /// The offsets of the names in the request.
    gaps: Vec<usize>,
    count: u64,
}

impl Connection {
    pub(crate) fn open(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the server listens");
        stream.set_nodelay(true).expect("an open socket");
        stream.set_read_timeout(Some(PATIENCE)).expect("an open socket");
        Self { stream, received: [0; ANSWER_BYTES_MAX] }
    }

    pub(crate) fn send(&mut self, request: &[u8]) {
        self.stream.write_all(request).expect("the server reads");
    }

    /// Receives a whole answer: head and JSON body.
    pub(crate) fn receive(&mut self) -> &str {
        let mut length = 0;
        loop {
            let room = &mut self.received[length..];
            assert!(!room.is_empty(), "the answer is too long");
            length += match self.stream.read(room).expect("the server answers") {
                0 => panic!("the server hung up"),
                count => count,
            };
            let head = Head::parse(&self.received[..length]).expect("a response");
            if head.is_some_and(|head| head.is_complete(length).expect("one response")) {
                break;
            }
        }
        str::from_utf8(&self.received[..length]).expect("answers are text")
    }

    pub(crate) fn exchange(&mut self, request: &[u8]) -> &str {
        self.send(request);
        self.receive()
    }

    /// Sends an order and waits until it is filled.
    pub(crate) fn trade(&mut self, orders: &mut Orders) {
        self.send(orders.next_request());
        self.expect_fill();
    }

    pub(crate) fn expect_fill(&mut self) {
        let answer = self.receive();
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

impl Orders {
    /// Creates orders with this key. The market must be the recorded one with a fee, whose first
    /// level has 100 shares.
    pub(crate) fn new(key: &str, market_id: &str, shape: Shape) -> Self {
        let mut body = json!({"market_id": market_id, "outcome": "Up", "side": "BUY"});
        match shape {
            Shape::Plain => body["quantity"] = json!(1),
            Shape::Rich => {
                body["quantity"] = json!(101);
                body["client_order_id"] = json!(format!("order-{NAME_GAP}"));
            }
        }
        let headers = format!("X-API-Key: {key}\r\nIdempotency-Key: retry-{NAME_GAP}\r\n");
        let request = post("/trade", &headers, &body.to_string());
        let gaps = request.match_indices(NAME_GAP).map(|(at, _)| at).collect();
        Self { request: request.into_bytes(), gaps, count: 0 }
    }

    /// Returns a request with names that no earlier order used.
    pub(crate) fn next_request(&mut self) -> &[u8] {
        self.count += 1;
        for &gap in &self.gaps {
            let mut name = &mut self.request[gap..gap + NAME_GAP.len()];
            write!(name, "{:016x}", self.count).expect("as long as the gap");
        }
        &self.request
    }
}

/// Builds a request like those of a client library. Each header must end with a line break.
pub(crate) fn post(path: &str, headers: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nAccept: application/json\r\n{headers}\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
