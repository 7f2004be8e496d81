//! Readers of prices that stop reading: what waits for them, and where.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{SystemTime, UNIX_EPOCH};

use paperbourse_test_support::socket::{TEXT, masked, upgrade};
use paperbourse_test_support::{PATIENCE, Request};
use serde_json::json;
use socket2::{Domain, Socket, Type};

use super::expect::eventually;
use super::server::Server;

/// How much the client's kernel takes for a program that does not read.
const RECEIVE_BUFFER_BYTES: usize = 64 * 1024;

/// More than that and what the server's kernel should take, and much less than it would take by
/// default.
const OLD_BYTES_MAX: usize = 512 * 1024;

/// The server holds something for a client in so many looks in a row: its kernel takes no more.
const LOOK_COUNT: usize = 20;

/// Opens the connection of a reader that reads nothing yet.
fn open(server: &Server, request: &Request, message: &[u8]) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(RECEIVE_BUFFER_BYTES).unwrap();
    socket.connect(&SocketAddr::from(server).into()).unwrap();
    let mut stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(&[&request.to_bytes(), message].concat()).unwrap();
    stream
}

/// Old prices cannot be replaced once the kernel has them.
#[test]
fn the_kernel_holds_few_old_prices_for_a_slow_reader() {
    let server = Server::simulated_with(&["--venue-speed", "200"]);
    let listed = server.get("/v1/markets").ok(200);
    let listed = listed.as_array().unwrap();
    let ids: Vec<&str> = listed.iter().map(|it| it["condition_id"].as_str().unwrap()).collect();
    let key = server.account().key;
    let subscribe = json!({"action": "subscribe", "markets": ids}).to_string();
    let path = format!("/prices/stream?condition_ids={}", ids.join(","));
    let unsent_bytes = || {
        let status = server.get("/v1/status").ok(200);
        status["readers"]["unsent_bytes"].as_u64().unwrap()
    };
    for (name, request, message) in [
        ("socket", upgrade("/v1/ws/prices").key(&key), masked(TEXT, subscribe.as_bytes())),
        ("stream", Request::get(path), Vec::new()),
    ] {
        eventually(|| (unsent_bytes() == 0).then_some(()));
        let mut reader = open(&server, &request, &message);
        eventually(|| (0..LOOK_COUNT).all(|_| unsent_bytes() > 0).then_some(()));
        let asked_ms = now_ms();
        let (mut received, mut chunk) = (Vec::new(), [0; 4_096]);
        while newest_ms(&received) < asked_ms {
            let count = reader.read(&mut chunk).unwrap();
            assert!(count > 0, "the {name} ended");
            received.extend_from_slice(&chunk[..count]);
            assert!(received.len() < OLD_BYTES_MAX, "the {name} got nothing but old prices");
        }
    }
}

fn now_ms() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

/// When the last frame here was made; 0 if there is none.
fn newest_ms(received: &[u8]) -> u128 {
    const NAME: &[u8] = b"\"emit_ts_ms\":";
    let name = received.windows(NAME.len()).rposition(|bytes| bytes == NAME);
    let digits = name.map_or(&[][..], |at| &received[at + NAME.len()..]);
    let end = digits.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(0);
    std::str::from_utf8(&digits[..end]).unwrap().parse().unwrap_or(0)
}
