//! The prices of some markets as server-sent events.
//!
//! A stream has a fixed set of markets and receives nothing from its client. It first sends the
//! state of every market, then each change, and a keepalive every [`KEEPALIVE_INTERVAL`]:
//!
//! ```text
//! retry: 1207
//! event: snapshot
//! data: {"prices":[{"type":"price",…},…],"unknown":["0x…"]}
//!
//! event: market_price
//! data: {"type":"price",…}
//! id: 3f09c1d24be2a677-1c5
//!
//! event: market_status
//! data: {"type":"market_status","market_id":"0x…","status":"closed",…}
//!
//! event: tick_size_change
//! data: {"type":"tick_size_change","market":"0x…","asset_id":"71…","tick_size":0.001,…}
//!
//! event: keepalive
//! data: {"ts":"2026-07-20T20:18:06.07Z","n":1}
//! :
//! ```
//!
//! The objects with prices are the frames of the price socket, conflated by the same rules. A tick
//! change is announced for each outcome, before the first price on the new tick. `unknown`, if
//! present, names the markets that are not listed; one that is listed later joins within a
//! keepalive, as a `market_price`.
//!
//! A client that reconnects with the `id` of the last event it received gets no snapshot. Instead
//! it gets the markets that have changed since, each as a `market_price`, with a `tick_size_change`
//! and a `market_status` if there was one. An id that does not apply, because it is from another
//! process or for other markets, is ignored.
//!
//! `retry` is the number of milliseconds that the client should wait before it reconnects after a
//! lost connection, different for each stream. If the server shuts down, the last line of a stream
//! is a `retry` too.
//!
//! This module does no I/O: its caller polls for more bytes once the client has taken the last
//! ones.

use std::future::Future as _;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

use super::batch::Batch;
use super::bounds::{SLOW_TIME, SLOW_WRITE_BYTES_GOAL, WRITE_BYTES_GOAL};
use super::counts::OpenStream;
use super::event_id::EventId;
use super::fanout::Fanout;
use super::price_frame::{self, StatusChange};
use super::subscriptions::{NextFrame, SubscribeError, Subscriptions, TickChange};
use super::turns::Turns;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::limits::tier::MarketsMax;
use paperbourse_core::money::Price;
use paperbourse_core::wire::Time;

/// The time between two keepalives. Clients give up after half a minute of silence.
pub const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(5);

/// The maximum number of markets of a stream.
pub const MARKETS_MAX: u32 = 50;

/// A price stream. Must be opened and polled on a runtime with a timer.
pub struct EventStream {
    subscriptions: Subscriptions,
    /// The markets of the request that were not listed when last looked up.
    unlisted: Vec<String>,
    has_begun: bool,
    snapshot: Option<Snapshot>,
    /// The client's progress, according to the last id it was sent.
    told: EventId,
    woken: Pin<Box<OwnedNotified>>,
    keepalive: Interval,
    keepalive_count: u64,
    /// The time until which the client counts as slow, if it did not take all bytes at once.
    slow_until: Option<Instant>,
    /// The guard that counts the stream as one of the open streams of its address.
    open: OpenStream,
}

/// A snapshot that has not been sent completely.
struct Snapshot {
    has_begun: bool,
    /// Number of markets still to be sent.
    left: usize,
    /// The id that the client gets at the end of the snapshot.
    event_id: EventId,
}

/// Why a stream cannot be opened.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum OpenError {
    /// The server has reached its limit of sockets and streams that receive prices.
    #[error("the server has reached its limit of sockets and streams")]
    Busy,
    /// The markets exceed the limit of a stream or of the server.
    #[error(transparent)]
    Markets(#[from] SubscribeError),
}

/// The events of a stream, each with its data.
#[derive(JsonSchema)]
#[schemars(tag = "event", content = "data", rename_all = "snake_case", inline)]
pub enum Event {
    /// The state of every market. It is the first event, unless the client came back.
    Snapshot(Prices),
    /// A market's prices, after a change.
    MarketPrice(price_frame::Price<'static>),
    /// A change of an outcome's tick. It comes before the first price on the new tick.
    TickSizeChange(TickSizeChange<'static>),
    /// A market has closed or been resolved. Sent after the price that reflects this.
    MarketStatus(StatusChange<'static>),
    /// A sign of life.
    Keepalive(Keepalive),
}

/// The prices of all markets of the stream.
#[derive(JsonSchema)]
#[expect(dead_code, reason = "only the schema is used; the prices are written in pieces")]
pub struct Prices {
    prices: Vec<price_frame::Price<'static>>,
    /// The markets that are not listed. One that is listed later joins within a keepalive.
    #[schemars(with = "Vec<String>", skip_serializing_if = "Option::is_none")]
    unknown: Option<Vec<String>>,
}

/// That the stream is alive.
#[derive(Serialize, JsonSchema)]
pub struct Keepalive {
    ts: Time,
    /// Counts the keepalives of the stream from 1.
    n: u64,
}

/// A change of an outcome's tick.
#[derive(Serialize, JsonSchema)]
pub struct TickSizeChange<'a> {
    #[schemars(extend("const" = "tick_size_change"))]
    r#type: &'static str,
    /// The market's condition id.
    market: &'a str,
    /// The outcome's token.
    asset_id: &'a str,
    #[schemars(with = "f64")]
    tick_size: &'a RawValue,
    #[schemars(with = "f64")]
    old_tick_size: &'a RawValue,
    /// Always null.
    // The original service gives the side of the book that caused the change, which is not known
    // here.
    #[schemars(with = "()")]
    side: Option<&'a str>,
    /// In milliseconds since 1970.
    ts_ms: i64,
}

impl EventStream {
    /// Opens a stream of these markets, whether or not they are listed. The list may contain
    /// duplicates. A client that reconnects passes the id of the last event it received.
    pub fn open(
        (fanout, turns): (&Arc<Fanout>, &Arc<Turns>),
        condition_ids: &[String],
        last_event_id: Option<&str>,
        open: OpenStream,
        now: Timestamp,
    ) -> Result<Self, OpenError> {
        // Read before subscribing, so that the first frames include at least these changes.
        let passed_on = fanout.passed_on();
        let mut subscriptions =
            fanout.open(MarketsMax::Count(MARKETS_MAX), turns).ok_or(OpenError::Busy)?;
        let unlisted = owned(&subscriptions.subscribe(condition_ids, now)?);
        let left = subscriptions.condition_ids().count();
        let told = EventId { round: passed_on, ..subscriptions.event_id() };
        let last = last_event_id.and_then(EventId::parse);
        let last = last.filter(|last| last.scope == told.scope && last.round <= told.round);
        if let Some(last) = last {
            subscriptions.resume(last.round);
        }
        let snapshot = Snapshot { has_begun: false, left, event_id: told };
        let woken = Box::pin(subscriptions.mailbox().wake_up().clone().notified_owned());
        let mut keepalive = interval_at(Instant::now() + KEEPALIVE_INTERVAL, KEEPALIVE_INTERVAL);
        keepalive.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Self {
            subscriptions,
            unlisted,
            has_begun: false,
            snapshot: last.is_none().then_some(snapshot),
            told: last.unwrap_or(told),
            woken,
            keepalive,
            keepalive_count: 0,
            slow_until: None,
            open,
        })
    }

    /// Returns the bytes to send next, never empty: whole events, except for parts of a long
    /// snapshot. Must be called only once the client has taken all earlier bytes.
    pub fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Bytes> {
        loop {
            let mut batch = Batch::new();
            if !std::mem::replace(&mut self.has_begun, true) {
                batch.extend_from_slice(retry(self.open.return_after()).as_bytes());
                if self.snapshot.is_none() {
                    batch.push(b'\n');
                }
            }
            self.put_snapshot(&mut batch);
            if self.snapshot.is_none() {
                if self.keepalive.poll_tick(context).is_ready() {
                    self.put_keepalive(&mut batch, Timestamp::now());
                }
                self.put_prices(&mut batch);
            }
            if !batch.is_empty() {
                return Poll::Ready(Bytes::copy_from_slice(&batch));
            }
            drop(batch);
            // Registered only now: `take_turn` has found nothing, and a wake-up since then is
            // stored.
            ready!(self.woken.as_mut().poll(context));
            let wake_up = self.subscriptions.mailbox().wake_up().clone();
            self.woken.set(wake_up.notified_owned());
        }
    }

    /// Notes that the client did not take the last bytes at once. For a while, it is sent less at a
    /// time.
    pub fn note_slow(&mut self) {
        self.slow_until = Some(Instant::now() + SLOW_TIME);
    }

    /// Returns the approximate number of bytes to send next.
    fn bytes_goal(&self) -> usize {
        let is_slow = self.slow_until.is_some_and(|until| Instant::now() < until);
        if is_slow { SLOW_WRITE_BYTES_GOAL } else { WRITE_BYTES_GOAL }
    }

    /// Returns the last bytes to send when the server shuts down: the time after which to
    /// reconnect. Empty in the middle of a snapshot, since the snapshot's event is not complete.
    pub fn farewell(&self) -> Bytes {
        let is_amid = self.snapshot.as_ref().is_some_and(|snapshot| snapshot.has_begun);
        let retry = if is_amid { String::new() } else { retry(self.open.call_back()) + "\n" };
        retry.into()
    }

    /// Adds as much of the snapshot as fits, if it is not complete yet.
    fn put_snapshot(&mut self, batch: &mut Vec<u8>) {
        let bytes_goal = self.bytes_goal();
        let Some(snapshot) = &mut self.snapshot else { return };
        if !snapshot.has_begun {
            batch.extend_from_slice(b"event: snapshot\ndata: {\"prices\":[");
        }
        while snapshot.left > 0 && batch.len() < bytes_goal {
            // Each new subscription has a frame due, and none gets a second one before all the
            // others have had their first.
            let next = self.subscriptions.next_frame().expect("each market has a first frame");
            if std::mem::replace(&mut snapshot.has_begun, true) {
                batch.push(b',');
            }
            for piece in next.frame.json(false) {
                batch.extend_from_slice(piece);
            }
            snapshot.left -= 1;
        }
        if snapshot.left == 0 {
            batch.push(b']');
            if !self.unlisted.is_empty() {
                batch.extend_from_slice(b",\"unknown\":");
                put_json(batch, &self.unlisted);
            }
            batch.extend_from_slice(b"}\n\n");
            put_id(batch, snapshot.event_id);
            self.snapshot = None;
        }
    }

    /// Adds the prices that are due, if it is the stream's turn, up to the byte goal. If all of
    /// them fit, an id follows the last price.
    fn put_prices(&mut self, batch: &mut Vec<u8>) {
        // Read before the frames are taken, so that they include this round.
        let round = self.subscriptions.passed_on();
        let (mut has_price, bytes_goal) = (false, self.bytes_goal());
        let has_all = self.subscriptions.take_turn(|next| {
            put_price(batch, next);
            has_price = true;
            batch.len() < bytes_goal
        });
        if has_all && has_price && round > self.told.round {
            self.told.round = round;
            put_id(batch, self.told);
        }
    }

    fn put_keepalive(&mut self, batch: &mut Vec<u8>, now: Timestamp) {
        self.keepalive_count += 1;
        batch.extend_from_slice(b"event: keepalive\ndata: ");
        put_json(batch, &Keepalive { ts: Time(now), n: self.keepalive_count });
        batch.extend_from_slice(b"\n:\n\n");
        if !self.unlisted.is_empty() {
            // If the server has no room for more subscriptions, the next keepalive tries again.
            let Ok(unlisted) = self.subscriptions.subscribe(&self.unlisted, now) else { return };
            let unlisted = owned(&unlisted);
            if unlisted != self.unlisted {
                self.unlisted = unlisted;
                self.told = EventId { round: self.told.round, ..self.subscriptions.event_id() };
            }
        }
    }
}

/// Adds an id to the event at the end of the batch.
fn put_id(batch: &mut Vec<u8>, event_id: EventId) {
    let blank_line = batch.pop();
    assert_eq!(blank_line, Some(b'\n'), "an event ends with a blank line");
    batch.extend_from_slice(format!("id: {event_id}\n\n").as_bytes());
}

/// Returns the line that tells the client how long to wait before it reconnects.
fn retry(after: Duration) -> String {
    format!("retry: {}\n", after.as_millis())
}

fn owned(ids: &[&str]) -> Vec<String> {
    ids.iter().copied().map(str::to_owned).collect()
}

fn put_price(batch: &mut Vec<u8>, next: &NextFrame) {
    if let Some(change) = &next.tick_change {
        put_tick_change(batch, change, next.frame.tick, Timestamp::now());
    }
    batch.extend_from_slice(b"event: market_price\ndata: ");
    for piece in next.frame.json(next.conflated) {
        batch.extend_from_slice(piece);
    }
    batch.extend_from_slice(b"\n\n");
    if let Some(end) = next.end_json() {
        batch.extend_from_slice(b"event: market_status\ndata: ");
        batch.extend_from_slice(end);
        batch.extend_from_slice(b"\n\n");
    }
}

fn put_tick_change(batch: &mut Vec<u8>, change: &TickChange, tick: Price, now: Timestamp) {
    let number = |price: Price| {
        RawValue::from_string(price.to_string()).expect("the text of a price is a JSON number")
    };
    let (tick, before) = (number(tick), number(change.before));
    for outcome in &change.info.outcomes {
        batch.extend_from_slice(b"event: tick_size_change\ndata: ");
        let fields = TickSizeChange {
            r#type: "tick_size_change",
            market: &change.info.condition_id,
            asset_id: &outcome.token_id,
            tick_size: &tick,
            old_tick_size: &before,
            side: None,
            ts_ms: now.millis(),
        };
        put_json(batch, &fields);
        batch.extend_from_slice(b"\n\n");
    }
}

fn put_json(batch: &mut Vec<u8>, value: &impl Serialize) {
    serde_json::to_writer(batch, value).expect("strings and numbers always have a JSON text");
}

#[cfg(test)]
mod tests;
