//! A reader of the price stream.

use std::net::SocketAddr;

use anyhow::{Context as _, bail, ensure};
use bytes::{Buf as _, BytesMut};
use memchr::memmem;
use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::client::{ReceiveBuffer, encode_request, open_endless};
use crate::price_readers::wait;
use crate::socket::now_ns;

/// Buffer space for one read, in bytes.
const READ_BYTES: usize = 32 * 1024;

/// The beginnings of events with prices, and of the reconnection delay that may precede them.
const PRICE: &[u8] = b"event: market_price\ndata: ";
const SNAPSHOT: &[u8] = b"event: snapshot\ndata: ";
const RETRY: &[u8] = b"retry: ";

/// An open stream.
pub(crate) struct EventStream {
    stream: TcpStream,
    received: BytesMut,
}

#[derive(Deserialize)]
struct Snapshot<'a> {
    #[serde(borrow)]
    prices: Vec<&'a RawValue>,
}

impl EventStream {
    /// Connects and subscribes to these markets.
    pub(crate) async fn open(
        buffer: ReceiveBuffer,
        address: SocketAddr,
        markets: &[String],
    ) -> anyhow::Result<Self> {
        let path = format!("/prices/stream?condition_ids={}", markets.join(","));
        let headers = [("Accept", "text/event-stream")];
        let request = encode_request("GET", &path, address, &headers, "");
        let (stream, received) = open_endless(address, &request, 200, buffer).await?;
        Ok(Self { stream, received })
    }

    /// Calls `take` with each price frame, the size of its event in bytes and the time in
    /// nanoseconds, until the stream ends.
    pub(crate) async fn receive(
        self,
        mut gate: Option<watch::Receiver<bool>>,
        mut take: impl FnMut(&[u8], u64, u64),
    ) -> Result<std::convert::Infallible, anyhow::Error> {
        let Self { mut stream, mut received } = self;
        let mut text = BytesMut::new();
        loop {
            let now_ns = now_ns();
            while let Some(chunk) = next_chunk(&mut received)? {
                text.extend_from_slice(&chunk);
            }
            while let Some(end) = memmem::find(&text, b"\n\n") {
                let event = without_retry(&text[..end]);
                if let Some(frame) = event.strip_prefix(PRICE) {
                    take(first_line(frame), end as u64 + 2, now_ns);
                } else if let Some(snapshot) = event.strip_prefix(SNAPSHOT) {
                    let snapshot: Snapshot<'_> = serde_json::from_slice(first_line(snapshot))?;
                    for frame in snapshot.prices {
                        take(frame.get().as_bytes(), frame.get().len() as u64, now_ns);
                    }
                }
                text.advance(end + 2);
            }
            wait(&mut gate).await;
            received.reserve(READ_BYTES);
            ensure!(stream.read_buf(&mut received).await? > 0, "the server cut the stream off");
        }
    }
}

fn without_retry(event: &[u8]) -> &[u8] {
    let is_retry = event.starts_with(RETRY);
    let end = event.iter().position(|&byte| byte == b'\n').filter(|_| is_retry);
    end.map_or(event, |end| &event[end + 1..])
}

fn first_line(text: &[u8]) -> &[u8] {
    text.split(|&byte| byte == b'\n').next().unwrap_or_default()
}

/// Takes the first chunk; `None` while it is incomplete.
fn next_chunk(received: &mut BytesMut) -> anyhow::Result<Option<BytesMut>> {
    let Some(at) = memmem::find(received, b"\r\n") else { return Ok(None) };
    let size = std::str::from_utf8(&received[..at])?;
    let size = usize::from_str_radix(size, 16).with_context(|| format!("a chunk of {size:?}"))?;
    if size == 0 {
        bail!("the server ended the stream");
    }
    if received.len() < at + 2 + size + 2 {
        return Ok(None);
    }
    received.advance(at + 2);
    let chunk = received.split_to(size);
    received.advance(2);
    Ok(Some(chunk))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_split_by_their_sizes() {
        let bytes = b"3\r\nabc\r\nA\r\n0123456789\r\n";
        for end in 0..bytes.len() {
            let mut received = BytesMut::from(&bytes[..end]);
            let mut chunks = Vec::new();
            while let Some(chunk) = next_chunk(&mut received).expect("the sizes are valid") {
                chunks.push(chunk);
            }
            let expected = usize::from(end >= 8);
            assert_eq!(chunks.len(), expected, "of {end} bytes");
        }
        let mut received = BytesMut::from(&bytes[..]);
        let mut next = || next_chunk(&mut received).expect("the sizes are valid");
        assert_eq!(next().as_deref(), Some(&b"abc"[..]));
        assert_eq!(next().as_deref(), Some(&b"0123456789"[..]));
        assert_eq!(next(), None);
        for end in [&b"0\r\n\r\n"[..], b"x\r\n"] {
            assert!(next_chunk(&mut BytesMut::from(end)).is_err());
        }
    }
}
