//! The client side of a WebSocket.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{bail, ensure};
use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::client::{ReceiveBuffer, encode_request, open_endless};
use crate::price_readers::wait;

/// Buffer space for one read, in bytes.
const READ_BYTES: usize = 32 * 1024;

/// The first bytes of unfragmented messages: text, close, ping and pong.
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The second byte if the payload's length follows in two bytes, or in eight bytes.
const LONG: u8 = 126;
const LONGER: u8 = 127;

/// The bit of the second byte that announces a mask, and a mask that changes nothing.
const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0; 4];

/// An open socket.
pub(crate) struct Socket {
    stream: TcpStream,
    received: BytesMut,
}

/// The head of one frame from the server.
#[derive(PartialEq, Eq, Debug)]
struct Frame {
    first: u8,
    head_byte_count: usize,
    payload_byte_count: usize,
}

impl Socket {
    /// Connects and upgrades.
    pub(crate) async fn open(address: SocketAddr, path: &str, key: &str) -> anyhow::Result<Self> {
        Self::open_with(ReceiveBuffer::Usual, address, path, key).await
    }

    /// Like [`Self::open`], with this receive buffer.
    pub(crate) async fn open_with(
        buffer: ReceiveBuffer,
        address: SocketAddr,
        path: &str,
        key: &str,
    ) -> anyhow::Result<Self> {
        let headers = [
            ("X-API-Key", key),
            ("Connection", "Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", "cGFwZXJib3Vyc2UtMTIzNA=="),
        ];
        let request = encode_request("GET", path, address, &headers, "");
        let (stream, received) = open_endless(address, &request, 101, buffer).await?;
        Ok(Self { stream, received })
    }

    /// Subscribes to the prices of these markets.
    pub(crate) async fn subscribe(&mut self, markets: &[String]) -> anyhow::Result<()> {
        let message = serde_json::json!({ "action": "subscribe", "markets": markets });
        Ok(self.stream.write_all(&masked(TEXT, message.to_string().as_bytes())).await?)
    }

    /// Subscribes to these tokens, on the market socket of the venue's interface.
    pub(crate) async fn subscribe_tokens(&mut self, tokens: &[String]) -> anyhow::Result<()> {
        let message = serde_json::json!({ "type": "market", "assets_ids": tokens });
        Ok(self.stream.write_all(&masked(TEXT, message.to_string().as_bytes())).await?)
    }

    /// Calls `take` with the text of each message, the size of its frame in bytes and the time in
    /// nanoseconds, until the socket fails.
    pub(crate) async fn receive(
        self,
        mut gate: Option<watch::Receiver<bool>>,
        mut take: impl FnMut(&[u8], u64, u64),
    ) -> Result<Infallible, anyhow::Error> {
        let Self { mut stream, mut received } = self;
        loop {
            let now_ns = now_ns();
            while let Some(frame) = Frame::parse(&received) {
                let byte_count = frame.head_byte_count + frame.payload_byte_count;
                let payload = &received[frame.head_byte_count..byte_count];
                match frame.first {
                    TEXT => take(payload, byte_count as u64, now_ns),
                    PING => stream.write_all(&masked(PONG, payload)).await?,
                    CLOSE => bail!("closed: {}", String::from_utf8_lossy(payload)),
                    other => bail!("unexpected frame type {other:#x}"),
                }
                received.advance(byte_count);
            }
            wait(&mut gate).await;
            received.reserve(READ_BYTES);
            ensure!(stream.read_buf(&mut received).await? > 0, "the server hung up");
        }
    }
}

impl Frame {
    /// Parses the first frame; `None` while it is incomplete.
    fn parse(received: &[u8]) -> Option<Self> {
        let (&first, &second) = (received.first()?, received.get(1)?);
        let (head_byte_count, payload_byte_count): (usize, usize) = match second {
            LONG => (4, usize::from(u16::from_be_bytes(received.get(2..4)?.try_into().ok()?))),
            LONGER => {
                let long = u64::from_be_bytes(received.get(2..10)?.try_into().ok()?);
                (10, usize::try_from(long).ok()?)
            }
            short => (2, usize::from(short)),
        };
        let is_complete = received.len() >= head_byte_count.checked_add(payload_byte_count)?;
        is_complete.then_some(Self { first, head_byte_count, payload_byte_count })
    }
}

/// Builds a masked frame, as clients must send it.
fn masked(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![first];
    if let Ok(short @ ..LONG) = u8::try_from(payload.len()) {
        frame.push(MASKED | short);
    } else {
        let long = u16::try_from(payload.len()).expect("a client's frame is short");
        frame.push(MASKED | LONG);
        frame.extend(long.to_be_bytes());
    }
    frame.extend(MASK);
    frame.extend(payload);
    frame
}

/// Returns the nanoseconds since 1970, which can be compared between processes.
pub(crate) fn now_ns() -> u64 {
    let elapsed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(elapsed.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_split_by_their_lengths() {
        for (payload_byte_count, head) in [
            (5, vec![0x81, 5]),
            (125, vec![0x81, 125]),
            (126, vec![0x81, 126, 0, 126]),
            (70_000, vec![0x81, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70]),
        ] {
            let head_byte_count = head.len();
            let bytes = [head, vec![b'x'; payload_byte_count]].concat();
            let frame = Frame { first: TEXT, head_byte_count, payload_byte_count };
            assert_eq!(Frame::parse(&[&bytes[..], b"next"].concat()), Some(frame));
            for end in [0, 1, head_byte_count, bytes.len() - 1] {
                assert_eq!(Frame::parse(&bytes[..end]), None, "{payload_byte_count}, {end}");
            }
        }
    }

    #[test]
    fn client_frames_are_masked() {
        assert_eq!(masked(PONG, b"ab"), [0x8a, 0x82, 0, 0, 0, 0, b'a', b'b']);
        assert_eq!(masked(TEXT, &[b'x'; 300])[..8], [0x81, 0xfe, 1, 44, 0, 0, 0, 0]);
    }
}
