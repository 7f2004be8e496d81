//! Many readers of prices on one thread, by socket or by stream, which count frames and measure
//! delays.

use std::collections::HashMap;
use std::convert::Infallible;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use parking_lot::Mutex;
use rustix::process::nice;
use serde::Serialize;
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::cores::use_only;
use crate::event_stream::EventStream;
use crate::setup::Target;
use crate::socket::Socket;
use crate::spread::Spread;

/// The price socket.
const PATH: &str = "/v1/ws/prices";

/// How long all readers together may take to subscribe.
pub(crate) const OPEN_SECONDS_MAX: u64 = 120;

/// The highest recorded delay.
const DELAY_MS_MAX: u64 = 60_000;

/// By how much readers lower their priority. A thread of the server then gets ten times their
/// share; at the lowest priority of all, other processes would keep them from reading.
const NICER: i32 = 10;

/// How a frame ends that combines several changes.
const CONFLATED: &[u8] = b",\"conflated\":true}";

/// Counts of received frames.
#[derive(Clone)]
pub(crate) struct Counts {
    /// Frames with prices.
    pub(crate) frame_count: u64,
    /// Those that combine several changes.
    pub(crate) conflated_count: u64,
    /// Frames whose number was not above that of the one before; only where these are kept.
    pub(crate) disorder_count: u64,
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

/// What readers read, and what becomes of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Reading {
    pub(crate) via: Via,
    pub(crate) stamp: Stamp,
    /// Whether to keep the last frame of each market for [`PriceReaders::last_frames`].
    pub(crate) keeps_last: bool,
    /// How many of the readers stop reading while they are paused. Their frames do not count.
    pub(crate) pausing: usize,
    /// Whether they run at a lower priority, and so leave the processors to what is measured beside
    /// them.
    pub(crate) gives_way: bool,
}

/// Where prices come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Via {
    /// The price socket.
    Socket,
    /// The price stream.
    Stream,
}

/// The last frame of each market.
pub(crate) type LastFrames = HashMap<Box<[u8]>, LastFrame>;

/// What is kept of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LastFrame {
    /// Its number.
    pub(crate) seq: u64,
    /// A hash of its text.
    pub(crate) hash: u64,
}

/// Figures of readers. Times are in milliseconds, the resolution of the frames' timestamps, except
/// for the server's CPU time per frame in microseconds.
#[derive(Clone, Copy, Serialize)]
pub(crate) struct ReaderFigures {
    pub(crate) frames_per_second: f64,
    pub(crate) megabytes_per_second: f64,
    /// The share of frames that combine several changes.
    conflated: f64,
    delay_p50_ms: u64,
    pub(crate) delay_p99_ms: u64,
    delay_p999_ms: u64,
    delay_max_ms: u64,
    /// NaN if the CPU time cannot be attributed to the frames.
    server_cpu_us: f64,
}

/// Open sockets or streams.
pub(crate) struct PriceReaders {
    counts: Arc<Mutex<Counts>>,
    last_frames: Arc<Mutex<Vec<LastFrames>>>,
    is_paused: watch::Sender<bool>,
    stop: Option<tokio::sync::oneshot::Sender<()>>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl Counts {
    fn new(stamp: Stamp) -> Self {
        let delay_ms = Histogram::new_with_bounds(1, DELAY_MS_MAX, 3)
            .expect("the bounds of the histogram are constants");
        Self {
            frame_count: 0,
            conflated_count: 0,
            disorder_count: 0,
            byte_count: 0,
            delay_ms,
            stamp,
        }
    }

    /// Counts a frame if its text has prices.
    fn count(&mut self, text: &[u8], now_ms: u64) {
        let from_ms = match self.stamp {
            Stamp::Emitted => emitted_ms(text),
            Stamp::Updated => updated_ms(text),
        };
        let Some(from_ms) = from_ms else { return };
        self.frame_count += 1;
        self.conflated_count += u64::from(text.ends_with(CONFLATED));
        self.delay_ms.saturating_record(now_ms.saturating_sub(from_ms));
    }
}

impl PriceReaders {
    /// Opens a reader for each of these groups of markets. Sockets use the keys of the target in
    /// turn.
    pub(crate) fn open(
        target: &Target,
        subscriptions: &[Vec<String>],
        Reading { via, stamp, keeps_last, pausing, gives_way }: Reading,
    ) -> anyhow::Result<Self> {
        let counts = Arc::new(Mutex::new(Counts::new(stamp)));
        let count = subscriptions.len();
        let last_frames = Arc::new(Mutex::new(vec![LastFrames::new(); count]));
        let subscriptions = subscriptions.to_vec();
        let (address, keys) = (target.address, target.keys.clone());
        let cores = target.cores.clone();
        let (opened, is_open) = mpsc::channel();
        let (stop, stopped) = tokio::sync::oneshot::channel();
        let (is_paused, paused) = watch::channel(false);
        let (shared, kept) = (counts.clone(), last_frames.clone());
        let thread = std::thread::spawn(move || {
            if let Some(cores) = cores {
                use_only(cores.generator())?;
            }
            if gives_way {
                // On Linux, this is about the calling thread alone.
                nice(NICER).context("failed to lower the priority")?;
            }
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let tasks = LocalSet::new();
            tasks.block_on(&runtime, async {
                let (failed, mut failures) = tokio::sync::mpsc::channel(1);
                for (index, markets) in subscriptions.iter().enumerate() {
                    let (shared, kept) = (shared.clone(), kept.clone());
                    let gate = (index < pausing).then(|| paused.clone());
                    let is_counted = gate.is_none();
                    let count_frame = move |text: &[u8], byte_count, now_ns: u64| {
                        let is_disordered = keeps_last
                            && last_frame(text).is_some_and(|(market, frame)| {
                                let before = kept.lock()[index].insert(market, frame);
                                before.is_some_and(|before| before.seq >= frame.seq)
                            });
                        let mut counts = shared.lock();
                        counts.disorder_count += u64::from(is_disordered);
                        if is_counted {
                            counts.byte_count += byte_count;
                            counts.count(text, now_ns / 1_000_000);
                        }
                    };
                    let number = || format!("reader {index} of {count}");
                    match via {
                        Via::Socket => {
                            let key = &keys[index % keys.len()];
                            let socket = Socket::open(address, PATH, key).await;
                            let mut socket = socket.with_context(number)?;
                            socket.subscribe(markets).await?;
                            report_failure(socket.receive(gate, count_frame), &failed);
                        }
                        Via::Stream => {
                            let stream = EventStream::open(address, markets).await;
                            let stream = stream.with_context(number)?;
                            report_failure(stream.receive(gate, count_frame), &failed);
                        }
                    }
                }
                // The opener may have given up waiting.
                let _ = opened.send(());
                tokio::select! {
                    _ = stopped => Ok(()),
                    Some(error) = failures.recv() => Err(error),
                }
            })
        });
        let (stop, thread) = (Some(stop), Some(thread));
        let mut readers = Self { counts, last_frames, is_paused, stop, thread };
        if is_open.recv_timeout(Duration::from_secs(OPEN_SECONDS_MAX)).is_err() {
            readers.ensure_open()?;
            bail!("{count} readers were not open after {OPEN_SECONDS_MAX} s");
        }
        Ok(readers)
    }

    /// Returns the counts since the last call.
    pub(crate) fn take(&self) -> Counts {
        let mut counts = self.counts.lock();
        let fresh = Counts::new(counts.stamp);
        std::mem::replace(&mut *counts, fresh)
    }

    /// Has those readers that may pause stop reading, or go on.
    pub(crate) fn pause(&self, is_paused: bool) {
        self.is_paused.send_replace(is_paused);
    }

    /// The last frame of each market so far, by reader.
    pub(crate) fn last_frames(&self) -> Vec<LastFrames> {
        self.last_frames.lock().clone()
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

impl ReaderFigures {
    /// The heads of the columns that [`Self::cells`] fills.
    pub(crate) const COLUMNS: &str = "frames/s | MB/s | conflated | delay p50 (ms) | p99 (ms) | \
                                      p99.9 (ms) | max (ms) | server CPU a frame (µs)";

    /// The figures of these counts, with the CPU time that the server took for them.
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
        }
    }

    /// The cells of a table's row about all rounds.
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
        ]
        .join(" | ")
    }
}

/// Waits while the reader is paused, if it may pause.
pub(crate) async fn wait(gate: &mut Option<watch::Receiver<bool>>) {
    if let Some(gate) = gate {
        // An error means that the readers are being closed.
        let _ = gate.wait_for(|is_paused| !is_paused).await;
    }
}

/// Runs a reader and reports why it ended. Only the first failure of all readers is reported.
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

/// When the server made a frame with prices; `None` for any other frame.
fn emitted_ms(text: &[u8]) -> Option<u64> {
    let is_price = text.starts_with(b"{\"type\":\"price\"");
    number_after(b"\"emit_ts_ms\":", text).filter(|_| is_price)
}

/// The number behind the first occurrence of this name.
fn number_after(name: &[u8], text: &[u8]) -> Option<u64> {
    let at = text.windows(name.len()).position(|bytes| bytes == name)?;
    let digits = text[at + name.len()..].iter().take_while(|byte| byte.is_ascii_digit());
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

/// The market of a frame with prices, and the frame. Whether it is conflated makes no difference.
fn last_frame(text: &[u8]) -> Option<(Box<[u8]>, LastFrame)> {
    const BEGIN: &[u8] = b"{\"type\":\"price\",\"market_id\":\"";
    let market = text.strip_prefix(BEGIN)?.split(|&byte| byte == b'"').next()?;
    let shared = text.strip_suffix(CONFLATED).or_else(|| text.strip_suffix(b"}"))?;
    let mut hasher = DefaultHasher::new();
    shared.hash(&mut hasher);
    Some((
        market.into(),
        LastFrame { seq: number_after(b"\"seq\":", text)?, hash: hasher.finish() },
    ))
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
        let kept = |text: &str| last_frame(text.as_bytes());
        let seq = |text: &str| kept(text).map(|(_, frame)| frame.seq);
        assert_eq!(seq(r#"{"type":"price","market_id":"0xa","seq":70,"buy":"1"}"#), Some(70));
        let plain = kept(r#"{"type":"price","market_id":"0xa","seq":70,"buy":"1"}"#);
        assert_eq!(plain.as_ref().map(|(market, _)| &**market), Some(&b"0xa"[..]));
        assert_eq!(
            kept(r#"{"type":"price","market_id":"0xa","seq":70,"buy":"1","conflated":true}"#),
            plain
        );
        assert_ne!(kept(r#"{"type":"price","market_id":"0xa","seq":70,"buy":"2"}"#), plain);
        assert_eq!(kept(r#"{"type":"subscribed","markets":[]}"#), None);
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
