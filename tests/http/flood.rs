//! A trade while other callers keep the workers constantly busy.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use paperbourse_test_support::Request;

use super::recording::buy;
use super::server::Server;

/// Connections that always have requests in flight.
const CONNECTION_COUNT: usize = 300;

/// Threads that keep them busy.
const FLOODER_COUNT: usize = 4;

/// Requests that are sent together.
const BATCH: usize = 32;

/// The bytes of answers between two trades.
const BYTES_BETWEEN: u64 = 100_000;

const TRADE_COUNT: usize = 5;

/// Long enough for a busy machine. A trade that had to wait for an idle worker would get no answer
/// before the flood ends.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(6);

#[test]
fn a_trade_is_answered_beside_a_flood() {
    let server = Server::unlimited_with(&["--workers", "1"]);
    let account = server.account();
    let mut connection = server.connect();
    let order = Request::post("/trade", &buy(1)).key(&account.key);
    connection.send(&order).ok(200);
    let (is_over, answered_bytes) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        // The flood also ends if an answer never arrives.
        let _end = EndFlood(&is_over);
        for _ in 0..FLOODER_COUNT {
            scope.spawn(|| flood(&server, &is_over, &answered_bytes));
        }
        for _ in 0..TRADE_COUNT {
            let before = answered_bytes.load(Ordering::Relaxed);
            while answered_bytes.load(Ordering::Relaxed) < before + BYTES_BETWEEN {
                std::thread::yield_now();
            }
            let sent = Instant::now();
            connection.send(&order).ok(200);
            let elapsed = sent.elapsed();
            assert!(elapsed <= ANSWER_TIME_MAX, "a trade took {elapsed:?}");
        }
    });
}

/// Ends the flood when it is dropped.
struct EndFlood<'a>(&'a AtomicBool);

impl Drop for EndFlood<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends requests on many connections, and more as soon as some are answered.
fn flood(server: &Server, is_over: &AtomicBool, answered_bytes: &AtomicU64) {
    let request = Request::get("/v1/health").to_bytes();
    let mut buffer = vec![0; 1 << 16];
    let mut first = TcpStream::connect(server.address).unwrap();
    first.write_all(&request).unwrap();
    let batch_bytes = first.read(&mut buffer).unwrap() * BATCH;
    let batch = request.repeat(BATCH);
    let open = |_| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_nonblocking(true).unwrap();
        // Two batches are in flight: after the answers to one, another is sent.
        stream.write_all(&batch.repeat(2)).unwrap();
        (stream, 0)
    };
    let mut connections: Vec<_> = (0..CONNECTION_COUNT / FLOODER_COUNT).map(open).collect();
    while !is_over.load(Ordering::Relaxed) {
        for (stream, unmatched) in &mut connections {
            if let Ok(length) = stream.read(&mut buffer) {
                assert!(length > 0, "the server closed a connection");
                answered_bytes.fetch_add(length as u64, Ordering::Relaxed);
                *unmatched += length;
                while *unmatched >= batch_bytes {
                    *unmatched -= batch_bytes;
                    stream.write_all(&batch).unwrap();
                }
            }
        }
    }
}
