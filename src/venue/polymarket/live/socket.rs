//! One connection to the market socket: kept open, kept alive, subscribed to what is wanted.
//!
//! What it reads it hands on, in order, through one bounded queue; it understands none of it but
//! the `PONG`. When the queue is full it gives the connection up rather than a frame: a book with a
//! hole in it is worse than one that is known to be old.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket, WebSocketError};
use tokio::io::{AsyncRead, AsyncWrite, Empty, Join, Sink};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::handshake::{self, HandshakeError};
use super::{Event, LiveConfig};
use crate::venue::follow::backoff::Backoff;
use crate::venue::follow::timing::Timing;

/// A message has at most this many bytes, in whatever number of fragments: 200 books are 2 MB.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// So many bytes of frames wait to be read, of all sockets together.
pub(super) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Pings of the server's that wait to be answered.
const PINGS_MAX: usize = 4;

/// The tokens that a socket is to follow.
pub(super) type Wanted = Arc<[Arc<str>]>;

/// Why a connection ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// There was none.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// The server closed it, or the network did.
    #[error("closed: {0}")]
    Closed(String),
    /// It did not answer our `PING`.
    #[error("no PONG within {} s", patience.as_secs())]
    NoPong {
        /// How long was waited.
        patience: Duration,
    },
    /// A frame that no text can be read from.
    #[error("a frame that is not text, or not UTF-8")]
    NotText,
    /// A message of more than [`MESSAGE_BYTES_MAX`] bytes.
    #[error("a message of more than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// We were too slow.
    #[error("frames came faster than they were read")]
    Overflow,
    /// Whoever reads the frames gave it up.
    #[error("given up: {0}")]
    GivenUp(&'static str),
}

/// How the reader of the frames steers a socket.
pub(super) struct Handle {
    wanted: watch::Sender<Wanted>,
    given_up: watch::Sender<GivenUp>,
    _task: AbortOnDrop,
}

/// The newest connection that was given up, by its number, and why. A connection that comes after
/// it was never given up, however late the word reaches its socket.
#[derive(Clone, Copy, Default)]
struct GivenUp {
    connection: u64,
    why: &'static str,
}

struct AbortOnDrop(tokio::task::JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Handle {
    /// Keeps a socket open until the handle is dropped. `number` goes with all that it tells.
    pub(super) fn open(
        number: usize,
        config: Arc<LiveConfig>,
        door: Arc<tokio::sync::Mutex<()>>,
        bytes: Arc<Semaphore>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (wanted, receiver) = watch::channel(Wanted::default());
        let (given_up, given_up_receiver) = watch::channel(GivenUp::default());
        let socket = Socket {
            number,
            config,
            door,
            bytes,
            events,
            wanted: receiver,
            given_up: given_up_receiver,
            connection: 0,
        };
        Self { wanted, given_up, _task: AbortOnDrop(tokio::spawn(socket.run())) }
    }

    /// What it is to follow from now on.
    pub(super) fn want(&self, tokens: Wanted) {
        self.wanted.send_replace(tokens);
    }

    /// Has the connection of this number closed, if it is still open, and another one opened.
    pub(super) fn give_up(&self, connection: u64, why: &'static str) {
        self.given_up.send_replace(GivenUp { connection, why });
    }
}

struct Socket {
    number: usize,
    config: Arc<LiveConfig>,
    /// Whoever connects holds it for a while, so that many sockets do not come at once.
    door: Arc<tokio::sync::Mutex<()>>,
    bytes: Arc<Semaphore>,
    events: mpsc::Sender<Event>,
    wanted: watch::Receiver<Wanted>,
    given_up: watch::Receiver<GivenUp>,
    /// Of the newest connection, from 1.
    connection: u64,
}

impl Socket {
    async fn run(mut self) {
        let timing = &self.config.clone().timing;
        let mut backoff = Backoff::new(timing.backoff_min, timing.backoff_max);
        loop {
            // A connection that asks for nothing is closed by the server.
            if self.wanted.wait_for(|wanted| !wanted.is_empty()).await.is_err() {
                return;
            }
            let began = Instant::now();
            let lost = self.connect().await;
            // One that held for a while was no failure.
            if began.elapsed() > timing.backoff_max {
                backoff.reset();
            }
            let pause = backoff.next_wait(chance());
            let number = self.number;
            if self.events.send(Event::Lost { socket: number, lost, pause }).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    /// One connection from its first byte to its last.
    async fn connect(&mut self) -> Lost {
        let timing = &self.config.timing;
        {
            let _held = self.door.lock().await;
            tokio::time::sleep(timing.connect_spacing).await;
        }
        let opened = handshake::open(&self.config.socket, &self.config.tls, timing.connect_timeout);
        let stream = match opened.await {
            Ok(stream) => stream,
            Err(error) => return error.into(),
        };
        self.connection += 1;
        let (socket, connection) = (self.number, self.connection);
        if self.events.send(Event::Opened { socket, connection }).await.is_err() {
            return Lost::GivenUp("the server ends");
        }
        let (read_half, write_half) = tokio::io::split(stream);
        let (pings, pings_received) = mpsc::channel(PINGS_MAX);
        let ponged = watch::Sender::new(Instant::now());
        let ponged_receiver = ponged.subscribe();
        let reader = Reader::new(read_half, &self.events, self.bytes.clone(), self.number);
        let writer = Writer { socket: writing(write_half), subscribed: HashSet::new() };
        let mut given_up = self.given_up.clone();
        let given_up = given_up.wait_for(|given_up| given_up.connection == connection);
        // Both run to the end of either: a read that is given up may have taken half a frame.
        tokio::select! {
            lost = reader.run(pings, ponged) => lost,
            lost = writer.run(&mut self.wanted, timing, pings_received, ponged_receiver) => lost,
            given_up = given_up => {
                Lost::GivenUp(given_up.map_or("the server ends", |given_up| given_up.why))
            }
        }
    }
}

/// A number that is evenly spread over its whole range.
fn chance() -> u32 {
    let mut bytes = [0; 4];
    // Without random bytes every socket waits for as short a time as it may.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

struct Reader<'a, R> {
    socket: WebSocket<Join<R, Sink>>,
    events: &'a mpsc::Sender<Event>,
    bytes: Arc<Semaphore>,
    number: usize,
    /// The fragments of a message so far.
    begun: Vec<u8>,
}

impl<'a, R: AsyncRead + Unpin> Reader<'a, R> {
    fn new(
        stream: R,
        events: &'a mpsc::Sender<Event>,
        bytes: Arc<Semaphore>,
        number: usize,
    ) -> Self {
        let joined = tokio::io::join(stream, tokio::io::sink());
        let mut socket = WebSocket::after_handshake(joined, Role::Client);
        socket.set_auto_close(false);
        socket.set_auto_pong(false);
        // The crate refuses what is as long as this.
        socket.set_max_message_size(MESSAGE_BYTES_MAX + 1);
        Self { socket, events, bytes, number, begun: Vec::new() }
    }

    async fn run(mut self, pings: mpsc::Sender<Vec<u8>>, ponged: watch::Sender<Instant>) -> Lost {
        loop {
            let frame = match self.socket.read_frame().await {
                Ok(frame) => frame,
                Err(WebSocketError::FrameTooLarge) => return Lost::TooLong,
                Err(WebSocketError::InvalidUTF8) => return Lost::NotText,
                Err(error) => return Lost::Closed(error.to_string()),
            };
            match frame.opcode {
                OpCode::Text | OpCode::Continuation => {
                    if self.begun.len() + frame.payload.len() > MESSAGE_BYTES_MAX {
                        return Lost::TooLong;
                    }
                    self.begun.extend_from_slice(&frame.payload);
                    if !frame.fin {
                        continue;
                    }
                    let Ok(text) = String::from_utf8(std::mem::take(&mut self.begun)) else {
                        return Lost::NotText;
                    };
                    if text.trim() == "PONG" {
                        ponged.send_replace(Instant::now());
                        continue;
                    }
                    if let Err(lost) = self.hand_on(text) {
                        return lost;
                    }
                }
                // A server that pings faster than we write is answered now and then.
                OpCode::Ping => drop(pings.try_send(frame.payload.to_vec())),
                OpCode::Pong => {}
                OpCode::Close => return Lost::Closed(close_text(&frame.payload)),
                OpCode::Binary => return Lost::NotText,
            }
        }
    }

    fn hand_on(&self, text: String) -> Result<(), Lost> {
        let length = u32::try_from(text.len()).map_err(|_| Lost::TooLong)?;
        let room = self.bytes.clone().try_acquire_many_owned(length);
        let room = room.map_err(|_| Lost::Overflow)?;
        let frame = Received::new(self.number, text, room);
        self.events.try_send(Event::Frame(frame)).map_err(|_| Lost::Overflow)
    }
}

/// A text frame on its way.
pub(super) struct Received {
    /// From which socket.
    pub(super) socket: usize,
    /// When it came.
    pub(super) at: Instant,
    /// As it came.
    pub(super) text: String,
    /// Its part of what may wait.
    _room: OwnedSemaphorePermit,
}

impl Received {
    /// It comes now.
    pub(super) fn new(socket: usize, text: String, room: OwnedSemaphorePermit) -> Self {
        Self { socket, at: Instant::now(), text, _room: room }
    }
}

fn close_text(payload: &[u8]) -> String {
    match payload {
        [high, low, text @ ..] => {
            let code = u16::from_be_bytes([*high, *low]);
            format!("{code} {}", String::from_utf8_lossy(text)).trim().to_owned()
        }
        _ => "without a code".to_owned(),
    }
}

fn writing<W: AsyncWrite + Unpin>(stream: W) -> WebSocket<Join<Empty, W>> {
    let joined = tokio::io::join(tokio::io::empty(), stream);
    WebSocket::after_handshake(joined, Role::Client)
}

struct Writer<W> {
    socket: WebSocket<Join<Empty, W>>,
    subscribed: HashSet<Arc<str>>,
}

impl<W: AsyncWrite + Unpin> Writer<W> {
    async fn run(
        mut self,
        wanted: &mut watch::Receiver<Wanted>,
        timing: &Timing,
        mut pings: mpsc::Receiver<Vec<u8>>,
        mut ponged: watch::Receiver<Instant>,
    ) -> Lost {
        let mut ping = tokio::time::interval(timing.ping_interval);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ping.reset();
        // Intervals in a row in which no PONG came. A process that slept finds its clock ahead of
        // all that it has not read yet: only intervals that it lived through count.
        let mut silent_intervals = 0;
        let ending = loop {
            let tokens = wanted.borrow_and_update().clone();
            if tokens.is_empty() {
                break Lost::GivenUp("nothing is left to follow");
            }
            if let Err(error) = self.subscribe(&tokens).await {
                break Lost::Closed(error.to_string());
            }
            let written = tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => break Lost::GivenUp("the server ends"),
                },
                Some(payload) = pings.recv() => {
                    self.socket.write_frame(Frame::pong(Payload::Owned(payload))).await
                }
                _ = ping.tick() => {
                    let patience = timing.pong_timeout;
                    let has_answered = ponged.has_changed().unwrap_or(false);
                    let is_late = ponged.borrow_and_update().elapsed() > patience;
                    silent_intervals = if has_answered { 0 } else { silent_intervals + 1 };
                    if is_late && timing.ping_interval * silent_intervals >= patience {
                        break Lost::NoPong { patience };
                    }
                    self.write("PING".to_owned()).await
                }
            };
            if let Err(error) = written {
                break Lost::Closed(error.to_string());
            }
        };
        // A server that is gone need not hear it.
        let farewell = self.socket.write_frame(Frame::close(1000, b""));
        let _ = tokio::time::timeout(Duration::from_secs(1), farewell).await;
        ending
    }

    /// Tells the server what is wanted and was not, and the other way round.
    async fn subscribe(&mut self, tokens: &[Arc<str>]) -> Result<(), WebSocketError> {
        let is_first = self.subscribed.is_empty();
        let added: Vec<_> =
            tokens.iter().filter(|token| !self.subscribed.contains(*token)).cloned().collect();
        let wanted: HashSet<_> = tokens.iter().cloned().collect();
        let removed: Vec<_> = self.subscribed.difference(&wanted).cloned().collect();
        if !added.is_empty() {
            let operation =
                if is_first { r#""type":"market""# } else { r#""operation":"subscribe""# };
            self.write(subscription(&added, operation)).await?;
        }
        if !removed.is_empty() {
            self.write(subscription(&removed, r#""operation":"unsubscribe""#)).await?;
        }
        self.subscribed = wanted;
        Ok(())
    }

    async fn write(&mut self, text: String) -> Result<(), WebSocketError> {
        self.socket.write_frame(Frame::text(Payload::Owned(text.into_bytes()))).await
    }
}

/// The ids of tokens need no escape: they were checked when they were read.
fn subscription(tokens: &[Arc<str>], operation: &str) -> String {
    let ids: Vec<String> = tokens.iter().map(|token| format!(r#""{token}""#)).collect();
    let ids = ids.join(",");
    format!(
        r#"{{"assets_ids":[{ids}],{operation},"initial_dump":true,"custom_feature_enabled":true}}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subscription_names_the_tokens() {
        assert_eq!(
            subscription(&["1".into(), "2".into()], r#""type":"market""#),
            concat!(
                r#"{"assets_ids":["1","2"],"type":"market","#,
                r#""initial_dump":true,"custom_feature_enabled":true}"#
            )
        );
    }

    /// A laptop that was closed, or a machine that was busy elsewhere: the answers may lie there
    /// unread.
    #[tokio::test(start_paused = true)]
    async fn a_process_that_slept_asks_once_more_before_it_gives_up() {
        let timing = crate::venue::follow::timing::Timing::VENUE;
        let (ours, _theirs) = tokio::io::duplex(1 << 16);
        let (wanted, mut receiver) = watch::channel(Wanted::from(["1".into()]));
        let (_pings, pings) = mpsc::channel(1);
        let (_ponged, ponged) = watch::channel(Instant::now());
        let writer = Writer { socket: writing(ours), subscribed: HashSet::new() };
        let mut running = std::pin::pin!(writer.run(&mut receiver, &timing, pings, ponged));
        let a_moment = Duration::from_millis(1);
        assert!(tokio::time::timeout(a_moment, &mut running).await.is_err(), "it has begun");
        tokio::time::advance(timing.pong_timeout * 2).await;
        let lost = tokio::time::timeout(a_moment, &mut running).await;
        assert!(lost.is_err(), "it has slept, and gives up: {lost:?}");
        let began = Instant::now();
        let lost = running.await;
        assert!(matches!(lost, Lost::NoPong { .. }), "{lost}");
        assert!(began.elapsed() <= timing.pong_timeout, "{:?}", began.elapsed());
        drop(wanted);
    }

    #[test]
    fn a_close_is_told_in_words() {
        assert_eq!(close_text(&[]), "without a code");
        assert_eq!(close_text(&[3, 232]), "1000");
        assert_eq!(close_text(b"\x03\xf3restart"), "1011 restart");
    }
}
