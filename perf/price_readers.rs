//! Many readers of prices on one thread, by socket or by stream: counts of frames, and delays.

mod text;

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::BuildHasher as _;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use foldhash::fast::FixedState;
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rustix::thread::{Pid, gettid};
use serde::{Deserialize, Serialize};
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::client::ReceiveBuffer;
use crate::cores::use_only;
use crate::event_stream::EventStream;
use crate::machine::{CpuClock, cpu_seconds};
use crate::setup::Target;
use crate::socket::Socket;
use crate::spread::Spread;
use crate::venue_side::standin::micros;
use text::{changed_ms, emitted_ms, millis, number_after, updated_ms};

/// The paths of the price socket and of the market socket of the venue's interface.
const PATH: &str = "/v1/ws/prices";
const CLOB_PATH: &str = "/ws/market";

/// Seconds that all readers together may take to subscribe.
pub(crate) const OPEN_SECONDS_MAX: u64 = 120;

/// The highest recorded delay, in milliseconds.
const DELAY_MS_MAX: u64 = 60_000;

/// Frames that polite readers read at a time, in a tenth of a millisecond, before a [`PAUSE`].
const FRAMES_AT_A_TIME: u64 = 20;

/// See [`FRAMES_AT_A_TIME`]. With a lower scheduling priority instead, they would get their share
/// of the core for milliseconds at a time, which is longer than a trade takes.
const PAUSE: Duration = Duration::from_micros(400);

/// Share of a core at which a thread counts as busy all the time.
const BUSY_CORES_MIN: f64 = 0.95;

/// The end of a frame that combines several changes.
const CONFLATED: &[u8] = b",\"conflated\":true}";

/// Counts of received frames.
#[derive(Clone)]
pub(crate) struct Counts {
    /// Number of frames with prices.
    pub(crate) frame_count: u64,
    /// Number of frames that combine several changes.
    pub(crate) conflated_count: u64,
    /// Number of bytes of all frames, as received.
    pub(crate) byte_count: u64,
    /// CPU time of the readers' thread.
    pub(crate) reader_cpu_seconds: f64,
    /// Delays from the chosen timestamp until the frame was read here.
    pub(crate) delay_ms: Histogram<u64>,
    stamp: Stamp,
}

/// The timestamp of a frame from which its delay counts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stamp {
    /// The time at which the server made the frame.
    Emitted,
    /// The venue's timestamp of the newest change in the frame.
    Updated,
    /// The same, in a frame of the market socket of the venue's interface. Only changes of levels
    /// count: a whole book may be older than the frame.
    Changed,
}

/// The prices to read, and the treatment of their frames.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub(crate) via: Via,
    pub(crate) stamp: Stamp,
    /// Whether to keep the last frame of each market for [`PriceReaders::last_frames`].
    pub(crate) keeps_last: bool,
    /// Whether the readers can stop reading. The kernel then buffers little for them.
    pub(crate) stops: bool,
    /// Whether the readers leave most of a core to the programs measured beside them.
    pub(crate) gives_way: bool,
}

/// The source of prices.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Via {
    /// The price socket.
    Socket,
    /// The price stream.
    Stream,
    /// The market socket of the venue's interface. Its subscriptions name tokens, not markets.
    ClobSocket,
}

type Map<K, V> = HashMap<K, V, FixedState>;

/// The last frame of each market.
pub(crate) type LastFrames = Map<Box<[u8]>, LastFrame>;

/// The record of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastFrame {
    /// The frame's sequence number.
    pub(crate) seq: u64,
    /// A hash of the frame's text.
    pub(crate) hash: u64,
}

/// All frames that the readers together received, by market and sequence number.
#[derive(Default)]
pub(crate) struct Received {
    markets: Map<Box<[u8]>, Map<u64, ReceivedFrame>>,
    /// Number of frames that differed from the frame another reader got under the same number.
    pub(crate) differing_count: u64,
    /// Number of frames whose number was not above that of the reader's last one of the market.
    pub(crate) disorder_count: u64,
}

/// A frame as the first reader received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ReceivedFrame {
    /// A hash of the frame's text.
    pub(crate) hash: u64,
    /// The time at which the server made the frame, in milliseconds since 1970.
    pub(crate) emitted_ms: u64,
    /// The venue's timestamp of the newest change in the frame.
    pub(crate) updated_ms: Option<u64>,
    /// The best prices of the first outcome, in millionths of a dollar.
    pub(crate) bid_micros: Option<i64>,
    pub(crate) ask_micros: Option<i64>,
}

/// The fields that are read from the text of a frame.
#[derive(Deserialize)]
struct FrameText<'a> {
    emit_ts_ms: u64,
    #[serde(borrow)]
    updated_at: Option<&'a str>,
    #[serde(borrow)]
    best_bid: Option<&'a str>,
    #[serde(borrow)]
    best_ask: Option<&'a str>,
}

/// Figures of readers. Times are in milliseconds, the resolution of the frames' timestamps, except
/// for the server's CPU time per frame in microseconds.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct ReaderFigures {
    pub(crate) frames_per_second: f64,
    pub(crate) megabytes_per_second: f64,
    /// Share of frames that combine several changes.
    conflated: f64,
    delay_p50_ms: u64,
    pub(crate) delay_p99_ms: u64,
    delay_p999_ms: u64,
    delay_max_ms: u64,
    /// CPU time of the server per frame; NaN if it cannot be attributed to the frames.
    server_cpu_us: f64,
    /// Load of the readers' thread; 1 if it never waited.
    reader_cores: f64,
}

/// Open sockets or streams.
pub(crate) struct PriceReaders {
    counts: Arc<Mutex<Counts>>,
    last_frames: Arc<Mutex<Vec<LastFrames>>>,
    received: Arc<Mutex<Received>>,
    has_stopped: watch::Sender<bool>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
    thread_id: Pid,
    /// CPU time of the thread until the last [`Self::take`], in seconds.
    cpu_before: f64,
}

impl Reading {
    /// Returns a reading at the usual priority, with delays from when the server made a frame.
    pub(crate) const fn of(via: Via) -> Self {
        Self { via, stamp: Stamp::Emitted, keeps_last: false, stops: false, gives_way: false }
    }
}

impl Counts {
    fn new(stamp: Stamp) -> Self {
        let delay_ms = Histogram::new_with_bounds(1, DELAY_MS_MAX, 3)
            .expect("the bounds of the histogram are constants");
        Self {
            frame_count: 0,
            conflated_count: 0,
            byte_count: 0,
            reader_cpu_seconds: 0.0,
            delay_ms,
            stamp,
        }
    }

    /// Counts a frame if its text has prices.
    fn count(&mut self, text: &[u8], now_ms: u64) {
        let from_ms = match self.stamp {
            Stamp::Emitted => emitted_ms(text),
            Stamp::Updated => updated_ms(text),
            Stamp::Changed => changed_ms(text),
        };
        let Some(from_ms) = from_ms else { return };
        self.frame_count += 1;
        self.conflated_count += u64::from(text.ends_with(CONFLATED));
        self.delay_ms.saturating_record(now_ms.saturating_sub(from_ms));
    }
}

impl PriceReaders {
    /// Opens a reader for each of these groups of markets. Sockets use the target's keys in turn.
    pub(crate) fn open(
        target: &Target,
        subscriptions: &[Vec<String>],
        Reading { via, stamp, keeps_last, stops, gives_way }: Reading,
    ) -> anyhow::Result<Self> {
        let counts = Arc::new(Mutex::new(Counts::new(stamp)));
        let count = subscriptions.len();
        let last_frames = Arc::new(Mutex::new(vec![LastFrames::default(); count]));
        let received: Arc<Mutex<Received>> = Arc::default();
        let subscriptions = subscriptions.to_vec();
        let (address, keys) = (target.address, target.keys.clone());
        let cores = target.cores.clone();
        let (opened, is_open) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (has_stopped, stopping) = watch::channel(false);
        let (shared, kept, heard) = (counts.clone(), last_frames.clone(), received.clone());
        let thread = std::thread::spawn(move || {
            if let Some(cores) = cores {
                use_only(cores.generator())?;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, async {
                let buffer = if stops { ReceiveBuffer::Small } else { ReceiveBuffer::Usual };
                let (failed, mut failures) = tokio::sync::mpsc::channel(1);
                for (index, markets) in subscriptions.iter().enumerate() {
                    let (shared, kept, heard) = (shared.clone(), kept.clone(), heard.clone());
                    let gate = stops.then(|| stopping.clone());
                    let count_frame = move |text: &[u8], byte_count, now_ns: u64| {
                        if keeps_last && let Some((market, frame)) = last_frame(text) {
                            let before = replace(&mut kept.lock()[index], market, frame);
                            let is_disordered =
                                before.is_some_and(|before| before.seq >= frame.seq);
                            let mut received = heard.lock();
                            received.disorder_count += u64::from(is_disordered);
                            received.note(market, frame, text);
                        }
                        let mut counts = shared.lock();
                        counts.byte_count += byte_count;
                        let count_before = counts.frame_count;
                        counts.count(text, now_ns / 1_000_000);
                        let count = counts.frame_count;
                        drop(counts);
                        if gives_way && count > count_before && count % FRAMES_AT_A_TIME == 0 {
                            std::thread::sleep(PAUSE);
                        }
                    };
                    let number = || format!("reader {index} of {count}");
                    match via {
                        Via::Socket => {
                            let key = &keys[index % keys.len()];
                            let socket = Socket::open_with(buffer, address, PATH, key).await;
                            let mut socket = socket.with_context(number)?;
                            socket.subscribe(markets).await?;
                            report_failure(socket.receive(gate, count_frame), &failed);
                        }
                        Via::ClobSocket => {
                            let socket = Socket::open_with(buffer, address, CLOB_PATH, "").await;
                            let mut socket = socket.with_context(number)?;
                            socket.subscribe_tokens(markets).await?;
                            report_failure(socket.receive(gate, count_frame), &failed);
                        }
                        Via::Stream => {
                            let stream = EventStream::open(buffer, address, markets).await;
                            let stream = stream.with_context(number)?;
                            report_failure(stream.receive(gate, count_frame), &failed);
                        }
                    }
                }
                // The opener may have given up waiting.
                let _ = opened.send(gettid());
                tokio::select! {
                    _ = stopped => Ok(()),
                    Some(error) = failures.recv() => Err(error),
                }
            })
        });
        let thread_id = match is_open.recv_timeout(Duration::from_secs(OPEN_SECONDS_MAX)) {
            Ok(id) => id,
            Err(RecvTimeoutError::Timeout) => {
                bail!("{count} readers were not open after {OPEN_SECONDS_MAX} s")
            }
            Err(RecvTimeoutError::Disconnected) => {
                thread.join().expect("the thread of the readers does not panic")?;
                bail!("a reader ended");
            }
        };
        Ok(Self {
            counts,
            last_frames,
            received,
            has_stopped,
            stop: Some(stop),
            thread: Some(thread),
            thread_id,
            cpu_before: 0.0,
        })
    }

    /// Returns the counts since the last call.
    pub(crate) fn take(&mut self) -> anyhow::Result<Counts> {
        let cpu_seconds = cpu_seconds(CpuClock::OwnThread(self.thread_id))?;
        let mut counts = self.counts.lock();
        counts.reader_cpu_seconds =
            cpu_seconds - std::mem::replace(&mut self.cpu_before, cpu_seconds);
        let fresh = Counts::new(counts.stamp);
        Ok(std::mem::replace(&mut *counts, fresh))
    }

    /// Makes the readers that can stop reading do so, or continue.
    pub(crate) fn stop_reading(&self, stops: bool) {
        self.has_stopped.send_replace(stops);
    }

    /// Returns the last frame of each market so far, by reader.
    pub(crate) fn last_frames(&self) -> Vec<LastFrames> {
        self.last_frames.lock().clone()
    }

    /// Takes the frames that the readers have received so far, if their last frames are kept.
    pub(crate) fn take_received(&self) -> Received {
        std::mem::take(&mut *self.received.lock())
    }

    /// Fails if a reader has ended.
    pub(crate) fn ensure_open(&mut self) -> anyhow::Result<()> {
        if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
            self.join().context("a reader ended")?;
            bail!("a reader ended");
        }
        Ok(())
    }

    /// Closes all connections.
    pub(crate) fn close(mut self) -> anyhow::Result<()> {
        drop(self.stop.take());
        self.join()
    }

    fn join(&mut self) -> anyhow::Result<()> {
        let thread = self.thread.take().context("the thread has already ended")?;
        thread.join().expect("the thread of the readers does not panic")
    }
}

impl Received {
    /// Records a frame, or compares it with the one that another reader received.
    fn note(&mut self, market: &[u8], frame: LastFrame, text: &[u8]) {
        let Some(frames) = self.markets.get_mut(market) else {
            self.markets.insert(market.into(), Map::default());
            return self.note(market, frame, text);
        };
        let received =
            frames.entry(frame.seq).or_insert_with(|| ReceivedFrame::read(frame.hash, text));
        self.differing_count += u64::from(received.hash != frame.hash);
    }

    /// Returns the number of distinct frames.
    pub(crate) fn frame_count(&self) -> usize {
        self.markets.values().map(Map::len).sum()
    }

    /// Returns the p50 and p99 of the time from the venue's change until the server made a frame,
    /// in milliseconds. Only frames with a newer book time count: after a trade the time is
    /// unchanged, and if a side is empty it is the time of the last trade.
    pub(crate) fn made_after_ms(&self) -> [u64; 2] {
        let mut after_ms = Counts::new(Stamp::Emitted).delay_ms;
        for market in self.markets.keys() {
            let frames = self.in_order(std::str::from_utf8(market).expect("an id is text"));
            let whole = frames.iter().filter(|frame| frame.is_whole());
            let mut newest_ms = None;
            for ReceivedFrame { emitted_ms, updated_ms, .. } in whole {
                if let Some(updated_ms) = updated_ms.filter(|_| newest_ms < *updated_ms) {
                    if newest_ms.is_some() {
                        after_ms.saturating_record(emitted_ms.saturating_sub(updated_ms));
                    }
                    newest_ms = Some(updated_ms);
                }
            }
        }
        [0.5, 0.99].map(|part| after_ms.value_at_quantile(part))
    }

    /// Returns the frames of a market, in the order of their sequence numbers.
    pub(crate) fn in_order(&self, market_id: &str) -> Vec<&ReceivedFrame> {
        let frames = self.markets.get(market_id.as_bytes()).into_iter().flatten();
        let mut frames: Vec<(&u64, &ReceivedFrame)> = frames.collect();
        frames.sort_unstable_by_key(|(seq, _)| **seq);
        frames.into_iter().map(|(_, frame)| frame).collect()
    }
}

impl ReceivedFrame {
    /// Whether both sides have prices.
    pub(crate) fn is_whole(&self) -> bool {
        self.bid_micros.is_some() && self.ask_micros.is_some()
    }

    fn read(hash: u64, text: &[u8]) -> Self {
        let text: FrameText<'_> = serde_json::from_slice(text).expect("a frame is JSON");
        Self {
            hash,
            emitted_ms: text.emit_ts_ms,
            updated_ms: text.updated_at.and_then(millis),
            bid_micros: text.best_bid.map(micros),
            ask_micros: text.best_ask.map(micros),
        }
    }
}

impl ReaderFigures {
    /// The headings of the columns that [`Self::cells`] fills.
    pub(crate) const COLUMNS: &str = "frames/s | MB/s | conflated | delay p50 (ms) | p99 (ms) | \
                                      p99.9 (ms) | max (ms) | server CPU a frame (µs) | \
                                      readers (cores)";

    /// Whether the readers' thread was busy all the time, so that the readers were what was
    /// measured.
    pub(crate) const fn is_of_readers(&self) -> bool {
        self.reader_cores >= BUSY_CORES_MIN
    }

    /// Calculates the figures from these counts and the CPU time that the server took for them.
    #[expect(clippy::cast_precision_loss, reason = "shown with three digits")]
    pub(crate) fn of(counts: &Counts, elapsed: Duration, server_cpu_seconds: f64) -> Self {
        let (frames, seconds) = (counts.frame_count as f64, elapsed.as_secs_f64());
        Self {
            frames_per_second: frames / seconds,
            megabytes_per_second: counts.byte_count as f64 / 1e6 / seconds,
            conflated: counts.conflated_count as f64 / frames,
            delay_p50_ms: counts.delay_ms.value_at_quantile(0.5),
            delay_p99_ms: counts.delay_ms.value_at_quantile(0.99),
            delay_p999_ms: counts.delay_ms.value_at_quantile(0.999),
            delay_max_ms: counts.delay_ms.max(),
            server_cpu_us: server_cpu_seconds * 1e6 / frames,
            reader_cores: counts.reader_cpu_seconds / seconds,
        }
    }

    /// Formats the cells of a table's row for all rounds.
    #[expect(clippy::cast_precision_loss, reason = "delays of seconds at most")]
    pub(crate) fn cells(rounds: &[Self]) -> String {
        let cell =
            |digits, value: fn(&Self) -> f64| Spread::of(rounds.iter().map(value)).cell(digits);
        [
            cell(0, |figures| figures.frames_per_second),
            cell(1, |figures| figures.megabytes_per_second),
            cell(3, |figures| figures.conflated),
            cell(0, |figures| figures.delay_p50_ms as f64),
            cell(0, |figures| figures.delay_p99_ms as f64),
            cell(0, |figures| figures.delay_p999_ms as f64),
            cell(0, |figures| figures.delay_max_ms as f64),
            cell(1, |figures| figures.server_cpu_us),
            cell(2, |figures| figures.reader_cores),
        ]
        .join(" | ")
    }
}

/// Waits while the reader is stopped, if it can stop.
pub(crate) async fn wait(gate: &mut Option<watch::Receiver<bool>>) {
    if let Some(gate) = gate {
        // An error means that the readers are being closed.
        let _ = gate.wait_for(|has_stopped| !has_stopped).await;
    }
}

/// Runs a reader and reports its error when it ends. Only the first failure of all readers is
/// reported.
fn report_failure(
    reading: impl Future<Output = Result<Infallible, anyhow::Error>> + 'static,
    failed: &tokio::sync::mpsc::Sender<anyhow::Error>,
) {
    let failed = failed.clone();
    tokio::task::spawn_local(async move {
        let Err(error) = reading.await;
        let _ = failed.try_send(error);
    });
}

/// Returns the market of a frame with prices, and its record. Whether the frame is conflated makes
/// no difference.
fn last_frame(text: &[u8]) -> Option<(&[u8], LastFrame)> {
    const BEGIN: &[u8] = b"{\"type\":\"price\",\"market_id\":\"";
    let market = text.strip_prefix(BEGIN)?.split(|&byte| byte == b'"').next()?;
    let shared = text.strip_suffix(CONFLATED).or_else(|| text.strip_suffix(b"}"))?;
    let hash = FixedState::default().hash_one(shared);
    Some((market, LastFrame { seq: number_after(b"\"seq\":", text)?, hash }))
}

/// Keeps the frame of a market in place of the previous one, which it returns.
fn replace(frames: &mut LastFrames, market: &[u8], frame: LastFrame) -> Option<LastFrame> {
    match frames.get_mut(market) {
        Some(kept) => Some(std::mem::replace(kept, frame)),
        None => frames.insert(market.into(), frame),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn the_same_frame_is_kept_whether_or_not_it_is_conflated() {
        fn kept(text: &str) -> Option<(&[u8], LastFrame)> {
            last_frame(text.as_bytes())
        }
        let plain = kept(r#"{"type":"price","market_id":"0xa","seq":70,"buy":"1"}"#);
        let seen = plain.map(|(market, frame)| (market, frame.seq));
        assert_eq!(seen, Some((&b"0xa"[..], 70)));
        assert_eq!(
            kept(r#"{"type":"price","market_id":"0xa","seq":70,"buy":"1","conflated":true}"#),
            plain
        );
        assert_ne!(kept(r#"{"type":"price","market_id":"0xa","seq":70,"buy":"2"}"#), plain);
        assert_eq!(kept(r#"{"type":"subscribed","markets":[]}"#), None);
    }

    #[test]
    fn a_frame_that_differs_from_another_readers_is_counted() {
        let mut received = Received::default();
        let text = |bid: &str, end: &str| {
            let begin = r#"{"type":"price","market_id":"0xa","seq":7,"emit_ts_ms":9"#;
            format!(r#"{begin},"best_bid":"{bid}"{end}"#)
        };
        for (bid, end) in [("0.5", "}"), ("0.5", r#","conflated":true}"#), ("0.51", "}")] {
            let text = text(bid, end);
            let (market, frame) = last_frame(text.as_bytes()).unwrap();
            received.note(market, frame, text.as_bytes());
        }
        assert_eq!(received.differing_count, 1);
        let bids: Vec<_> = received.in_order("0xa").iter().map(|frame| frame.bid_micros).collect();
        assert_eq!(bids, [Some(500_000)]);
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
