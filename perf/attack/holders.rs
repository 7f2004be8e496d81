//! Attackers that occupy resources: the workers, with nonstop requests, or slots, files and memory,
//! with held connections.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::attackers::Shared;
use crate::client::encode_request;

/// Number of requests written at a time, far ahead of their answers.
const PIPELINED: usize = 64;

/// Pause before a refused attacker tries again.
const PAUSE: Duration = Duration::from_millis(100);

/// The announced length of the body, the part sent at once, and the part sent at intervals, fast
/// enough not to be dropped for its rate.
const BODY_BYTES: usize = 256 * 1024;
const FIRST_BYTES: usize = 200 * 1024;
const LATER_BYTES: usize = 1_500;
const LATER: Duration = Duration::from_secs(1);

/// The part of a request that a held connection has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// Nothing.
    Nothing,
    /// An unfinished request head.
    Head,
    /// An unfinished body without a credential.
    StrangersBody,
    /// An unfinished body with a valid key.
    Body,
}

/// Sends requests that need no credential, and discards the answers.
pub(super) async fn flood(shared: Rc<Shared>) {
    let request = encode_request("GET", "/v1/health", shared.address, &[], "");
    let requests = request.repeat(PIPELINED).into_bytes();
    while Instant::now() < shared.end {
        let flooded = flood_once(&shared, &requests);
        if let Ok(None) = tokio::time::timeout_at(shared.end.into(), flooded).await {
            tokio::time::sleep(PAUSE).await;
        }
    }
}

/// Floods until the connection ends.
async fn flood_once(shared: &Shared, requests: &[u8]) -> Option<()> {
    let mut stream = TcpStream::connect(shared.address).await.ok()?;
    let (mut reader, mut writer) = stream.split();
    let write = async { while writer.write_all(requests).await.is_ok() {} };
    let read = async {
        let mut received = vec![0; 64 * 1024];
        while let Ok(bytes @ 1..) = reader.read(&mut received).await {
            shared.count(|counts| counts.flood_bytes += bytes as u64);
        }
    };
    tokio::select! {
        () = write => {}
        () = read => {}
    }
    None
}

/// Holds a connection, and opens a new one when it ends.
pub(super) async fn hold(kind: Hold, number: usize, shared: Rc<Shared>) {
    // Staggers the connections.
    tokio::time::sleep(Duration::from_millis(number as u64)).await;
    while Instant::now() < shared.end {
        let held = held(kind, &shared);
        match tokio::time::timeout_at(shared.end.into(), held).await {
            // Still held at the end.
            Err(_) => return,
            Ok(true) => shared.count(|counts| counts.holds_dropped += 1),
            Ok(false) => {
                shared.count(|counts| counts.holds_refused += 1);
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Holds a connection until it ends. Returns whether the server closed it without an answer.
async fn held(kind: Hold, shared: &Shared) -> bool {
    let Ok(mut stream) = TcpStream::connect(shared.address).await else { return false };
    if stream.write_all(&beginning(kind, shared.address, &shared.own_key)).await.is_err() {
        return false;
    }
    let (mut reader, mut writer) = stream.split();
    let mut received = Vec::new();
    let trickle = async {
        while kind == Hold::Body && writer.write_all(&[b' '; LATER_BYTES]).await.is_ok() {
            tokio::time::sleep(LATER).await;
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        // A reset also ends the connection.
        _ = reader.read_to_end(&mut received) => {}
        () = trickle => {}
    }
    received.is_empty()
}

/// Returns the bytes that a held connection sends at once.
fn beginning(kind: Hold, address: SocketAddr, own_key: &str) -> Vec<u8> {
    let post = |credential: &str, body_bytes| {
        let head = format!(
            "POST /v1/orders/batch HTTP/1.1\r\nHost: {address}\r\nContent-Length: {BODY_BYTES}\r\n\
             {credential}\r\n"
        );
        [head.as_bytes(), &vec![b' '; body_bytes]].concat()
    };
    match kind {
        Hold::Nothing => Vec::new(),
        Hold::Head => {
            format!("GET /v1/markets HTTP/1.1\r\nHost: {address}\r\nX-Slow: ").into_bytes()
        }
        Hold::StrangersBody => post("", 0),
        Hold::Body => post(&format!("X-API-Key: {own_key}\r\n"), FIRST_BYTES),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_request_is_never_complete() {
        let address = "127.0.0.1:1".parse().unwrap();
        for (kind, has_head, body_bytes) in [
            (Hold::Nothing, false, 0),
            (Hold::Head, false, 0),
            (Hold::StrangersBody, true, 0),
            (Hold::Body, true, FIRST_BYTES),
        ] {
            let bytes = beginning(kind, address, "a-key");
            let head_bytes = bytes.windows(4).position(|end| end == b"\r\n\r\n").map(|at| at + 4);
            assert_eq!(head_bytes.is_some(), has_head, "{kind:?}");
            assert_eq!(head_bytes.map_or(0, |head| bytes.len() - head), body_bytes, "{kind:?}");
            let has_key = bytes.windows(5).any(|window| window == b"a-key");
            assert_eq!(has_key, kind == Hold::Body, "{kind:?}");
        }
        const { assert!(FIRST_BYTES < BODY_BYTES) };
    }
}
