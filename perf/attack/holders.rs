//! Attackers who keep something from others: the workers, by requests without a pause, or places,
//! files and memory, by connections that they hold.

use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::attackers::Shared;
use crate::client::encode_request;

/// Requests that are written at a time, far ahead of their answers.
const PIPELINED: usize = 64;

/// Before the next attempt of one who was refused.
const PAUSE: Duration = Duration::from_millis(100);

/// The body that is announced, what comes of it at once, and what comes later, again and again:
/// fast enough not to be dropped for a rate.
const BODY_BYTES: usize = 256 * 1024;
const FIRST_BYTES: usize = 200 * 1024;
const LATER_BYTES: usize = 1_500;
const LATER: Duration = Duration::from_secs(1);

/// What a connection is held with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Hold {
    /// Not a byte.
    Nothing,
    /// The head of a request that does not end.
    Head,
    /// A body without a credential.
    StrangersBody,
    /// A body with a good key.
    Body,
}

/// Sends requests that cost no credential, and forgets the answers.
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

/// Until the connection ends.
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

/// Holds a connection, and makes a new one when it ends.
pub(super) async fn hold(kind: Hold, number: usize, shared: Rc<Shared>) {
    // Not all of them at once.
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

/// Whether the server has ended the connection without a word.
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
        // A reset is an end as well.
        _ = reader.read_to_end(&mut received) => {}
        () = trickle => {}
    }
    received.is_empty()
}

/// What is sent at once.
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
    fn what_is_held_is_never_a_whole_request() {
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
