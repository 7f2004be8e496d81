//! Many subscribers of the price socket on one thread, which count frames and measure delays.

use std::net::SocketAddr;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use bytes::{Buf as _, BytesMut};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use crate::setup::Target;

/// The price socket.
const PATH: &str = "/v1/ws/prices";

/// How long all sockets together may take to subscribe.
pub(crate) const OPEN_SECONDS_MAX: u64 = 30;

/// The highest recorded delay.
const DELAY_MS_MAX: u64 = 60_000;

/// Buffer space for one read.
const READ_BYTES: usize = 32 * 1024;

/// The first bytes of unfragmented messages: text, close, ping and pong.
const TEXT: u8 = 0x81;
const CLOSE: u8 = 0x88;
const PING: u8 = 0x89;
const PONG: u8 = 0x8a;

/// The second byte if the payload's length follows in two bytes, or in eight.
const LONG: u8 = 126;
const LONGER: u8 = 127;

/// The bit of the second byte that announces a mask, and a mask that changes nothing.
const MASKED: u8 = 0x80;
const MASK: [u8; 4] = [0; 4];

/// Counts of received frames.
#[derive(Clone)]
pub(crate) struct Counts {
    /// Frames with prices.
    pub(crate) frame_count: u64,
    /// Those that combine several changes.
    pub(crate) conflated_count: u64,
    /// Bytes of all frames, as received.
    pub(crate) byte_count: u64,
    /// Delays from the chosen timestamp to reading the frame here.
    pub(crate) delay_ms: Histogram<u64>,
    stamp: Stamp,
}

/// The timestamp of a frame from which its delay counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// When the server made the frame.
    Emitted,
    /// The venue's timestamp of the newest change in the frame.
    Updated,
}

/// Open sockets.
pub(crate) struct Sockets {
    counts: Arc<Mutex<Counts>>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

/// One frame from the server.
#[derive(PartialEq, Eq, Debug)]
struct Frame {
    first: u8,
    head_byte_count: usize,
    payload_byte_count: usize,
}

impl Counts {
    fn new(stamp: Stamp) -> Self {
        let delay_ms = Histogram::new_with_bounds(1, DELAY_MS_MAX, 3)
            .expect("the bounds of the histogram are constants");
        Self { frame_count: 0, conflated_count: 0, byte_count: 0, delay_ms, stamp }
    }

    /// Counts a frame if its text has prices.
    fn count(&mut self, text: &[u8], now_ms: u64) {
        let from_ms = match self.stamp {
            Stamp::Emitted => emitted_ms(text),
            Stamp::Updated => updated_ms(text),
        };
        let Some(from_ms) = from_ms else { return };
        self.frame_count += 1;
        self.conflated_count += u64::from(text.ends_with(b",\"conflated\":true}"));
        self.delay_ms.saturating_record(now_ms.saturating_sub(from_ms));
    }
}

impl Sockets {
    /// Opens a socket for each of these groups of markets, using the keys of the target in turn.
    pub(crate) fn open(
        target: &Target,
        subscriptions: &[Vec<String>],
        stamp: Stamp,
    ) -> anyhow::Result<Self> {
        let counts = Arc::new(Mutex::new(Counts::new(stamp)));
        let count = subscriptions.len();
        let subscribe = |markets: &Vec<String>| {
            let message = serde_json::json!({ "action": "subscribe", "markets": markets });
            masked(TEXT, message.to_string().as_bytes())
        };
        let subscriptions: Vec<Vec<u8>> = subscriptions.iter().map(subscribe).collect();
        let (address, keys) = (target.address, target.keys.clone());
        let (opened, is_open) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let shared = counts.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, async {
                let (failed, mut failures) = tokio::sync::mpsc::channel(1);
                for (index, subscribe) in subscriptions.iter().enumerate() {
                    let key = &keys[index % keys.len()];
                    let socket = Socket::open(address, PATH, key).await;
                    let mut socket =
                        socket.with_context(|| format!("socket {index} of {count}"))?;
                    socket.stream.write_all(subscribe).await?;
                    let (failed, shared) = (failed.clone(), shared.clone());
                    tokio::task::spawn_local(async move {
                        let count = |text: &[u8], byte_count, now_ns: u64| {
                            let mut counts = shared.lock();
                            counts.byte_count += byte_count;
                            counts.count(text, now_ns / 1_000_000);
                        };
                        let Err(error) = socket.receive(count).await;
                        // Only the first failure is reported.
                        let _ = failed.try_send(error);
                    });
                }
                // The opener may have given up waiting.
                let _ = opened.send(());
                tokio::select! {
                    _ = stopped => Ok(()),
                    Some(error) = failures.recv() => Err(error),
                }
            })
        });
        let mut sockets = Self { counts, stop: Some(stop), thread: Some(thread) };
        if is_open.recv_timeout(Duration::from_secs(OPEN_SECONDS_MAX)).is_err() {
            sockets.ensure_open()?;
            bail!("{count} sockets were not open after {OPEN_SECONDS_MAX} s");
        }
        Ok(sockets)
    }

    /// Returns the counts since the last call.
    pub(crate) fn take(&self) -> Counts {
        let mut counts = self.counts.lock();
        let fresh = Counts::new(counts.stamp);
        std::mem::replace(&mut *counts, fresh)
    }

    /// Fails if a socket has ended.
    pub(crate) fn ensure_open(&mut self) -> anyhow::Result<()> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join().context("a socket ended")?;
            bail!("a socket ended");
        }
        Ok(())
    }

    /// Closes all sockets.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        drop(self.stop.take());
        self.join()
    }

    fn join(&mut self) -> anyhow::Result<()> {
        let thread = self.thread.take().context("the thread has already ended")?;
        thread.join().expect("the thread of the sockets does not panic")
    }
}

/// An open socket.
pub(crate) struct Socket {
    stream: TcpStream,
    received: BytesMut,
}

impl Socket {
    /// Connects and upgrades.
    pub(crate) async fn open(address: SocketAddr, path: &str, key: &str) -> anyhow::Result<Self> {
        let mut stream = TcpStream::connect(address).await.context("failed to connect")?;
        stream.set_nodelay(true)?;
        let request = format!(
            "GET {path} HTTP/1.1\r\nHost: {address}\r\nX-API-Key: {key}\r\nConnection: \
             Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: \
             cGFwZXJib3Vyc2UtMTIzNA==\r\n\r\n"
        );
        stream.write_all(request.as_bytes()).await?;
        let mut received = BytesMut::with_capacity(READ_BYTES);
        let head_byte_count = loop {
            ensure!(stream.read_buf(&mut received).await? > 0, "the server hung up");
            if let Some(at) = received.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
                break at + 4;
            }
        };
        let head = received.split_to(head_byte_count);
        let text = String::from_utf8_lossy(&head);
        ensure!(text.starts_with("HTTP/1.1 101 "), "the server did not upgrade: {text}");
        Ok(Self { stream, received })
    }

    /// Passes on the text of each message, the bytes of its frame and the time until the socket
    /// fails.
    pub(crate) async fn receive(
        self,
        mut take: impl FnMut(&[u8], u64, u64),
    ) -> Result<std::convert::Infallible, anyhow::Error> {
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

/// A masked frame from a client.
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

/// When the server made a frame with prices; `None` for any other frame.
fn emitted_ms(text: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"emit_ts_ms\":";
    let is_price = text.starts_with(b"{\"type\":\"price\"");
    let at = text.windows(NAME.len()).position(|bytes| bytes == NAME).filter(|_| is_price)?;
    let digits = text[at + NAME.len()..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |value: u64, digit| value * 10 + u64::from(digit - b'0')))
}

/// The venue's timestamp in a frame with prices; `None` for any other frame, and if the prices are
/// still empty.
fn updated_ms(text: &[u8]) -> Option<u64> {
    const NAME: &[u8] = b"\"updated_at\":\"";
    let is_price = text.starts_with(b"{\"type\":\"price\"");
    let at = text.windows(NAME.len()).position(|bytes| bytes == NAME).filter(|_| is_price)?;
    let time = text[at + NAME.len()..].split(|&byte| byte == b'"').next()?;
    let time: jiff::Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// The time since 1970, which processes can compare.
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

    #[test]
    fn only_frames_with_prices_are_counted() {
        let mut counts = Counts::new(Stamp::Emitted);
        for text in [
            r#"{"type":"price","market_id":"0x","seq":1,"emit_ts_ms":1000,"x":2}"#,
            r#"{"type":"price","market_id":"0x","seq":9,"emit_ts_ms":990,"x":2,"conflated":true}"#,
            r#"{"type":"subscribed","emit_ts_ms":1000}"#,
        ] {
            counts.count(text.as_bytes(), 1007);
        }
        assert_eq!((counts.frame_count, counts.conflated_count), (2, 1));
        assert_eq!((counts.delay_ms.min(), counts.delay_ms.max()), (7, 17));
    }

    #[test]
    fn a_delay_may_count_from_the_venues_timestamp() {
        let mut counts = Counts::new(Stamp::Updated);
        for text in [
            r#"{"type":"price","emit_ts_ms":1,"updated_at":"1970-01-01T00:00:01.5Z","stale":0}"#,
            r#"{"type":"price","emit_ts_ms":1,"updated_at":null,"stale":0}"#,
            r#"{"type":"subscribed","updated_at":"1970-01-01T00:00:01.5Z"}"#,
        ] {
            counts.count(text.as_bytes(), 1507);
        }
        assert_eq!((counts.frame_count, counts.delay_ms.min(), counts.delay_ms.max()), (1, 7, 7));
    }
}
