//! One market socket: keeps a connection open and alive, and subscribes to the wanted tokens.
//!
//! It passes all frames on, in order, through a bounded queue, and interprets only `PONG`. When the
//! queue is full, it gives up the connection instead of dropping a frame: a book with a missing
//! change is worse than one known to be stale.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use fastwebsockets::{Frame, OpCode, Payload, Role, WebSocket, WebSocketError};
use tokio::io::{AsyncRead, AsyncWrite, Empty, Join, Sink};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, watch};
use tokio::time::{Instant, MissedTickBehavior};

use super::handshake::{self, HandshakeError};
use super::{Event, LiveConfig};
use crate::follow::backoff::Backoff;
use crate::follow::timing::Timing;

/// Maximum size of a message over all of its fragments, in bytes. 200 books take 2 MB.
const MESSAGE_BYTES_MAX: usize = 16 << 20;

/// Maximum number of frame bytes queued, across all sockets.
pub(super) const QUEUE_BYTES_MAX: usize = 64 << 20;

/// Maximum number of queued requests for a full book: more than a socket has tokens.
const RENEWALS_MAX: usize = 256;

/// Maximum number of pings from the server that wait for an answer.
const PINGS_MAX: usize = 4;

/// The tokens to subscribe to.
pub(super) type Wanted = Arc<[Arc<str>]>;

/// The reason for giving up connections when the process shuts down.
const SHUTDOWN: &str = "shutting down";

/// The reason for the end of a connection.
#[derive(Debug, thiserror::Error)]
pub(super) enum Lost {
    /// The connection could not be opened.
    #[error("{0}")]
    Handshake(#[from] HandshakeError),
    /// The server or the network closed the connection.
    #[error("closed: {0}")]
    Closed(String),
    /// The server did not answer our `PING`.
    #[error("no PONG within {} s", timeout.as_secs())]
    NoPong {
        /// The time limit for the answer.
        timeout: Duration,
    },
    /// The server sent a frame that is not UTF-8 text.
    #[error("frame is not UTF-8 text")]
    NotText,
    /// The server sent a message of more than [`MESSAGE_BYTES_MAX`] bytes.
    #[error("message longer than {MESSAGE_BYTES_MAX} bytes")]
    TooLong,
    /// The queue is full.
    #[error("frames arrived faster than they were processed")]
    Overflow,
    /// We gave up the connection.
    #[error("given up: {0}")]
    GivenUp(&'static str),
}

/// A handle that controls a socket and keeps it open until dropped.
pub(super) struct Handle {
    wanted: watch::Sender<Wanted>,
    renewals: mpsc::Sender<Arc<str>>,
    given_up: watch::Sender<GivenUp>,
    _task: AbortOnDrop,
}

/// The newest connection that was given up. Its number keeps a delayed request from closing the
/// next connection.
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
    /// Starts a socket. All of its events carry `number`.
    pub(super) fn open(
        number: usize,
        config: Arc<LiveConfig>,
        connect_lock: Arc<tokio::sync::Mutex<()>>,
        bytes: Arc<Semaphore>,
        events: mpsc::Sender<Event>,
    ) -> Self {
        let (wanted, receiver) = watch::channel(Wanted::default());
        let (renewals, renewals_receiver) = mpsc::channel(RENEWALS_MAX);
        let (given_up, given_up_receiver) = watch::channel(GivenUp::default());
        let socket = Socket {
            number,
            config,
            connect_lock,
            bytes,
            events,
            wanted: receiver,
            renewals: renewals_receiver,
            given_up: given_up_receiver,
            connection: 0,
        };
        Self { wanted, renewals, given_up, _task: AbortOnDrop(tokio::spawn(socket.run())) }
    }

    /// Subscribes to exactly these tokens.
    pub(super) fn want(&self, tokens: Wanted) {
        self.wanted.send_replace(tokens);
    }

    /// Requests the full book of a token from the server again. Dropped if the queue is full.
    pub(super) fn renew(&self, token: Arc<str>) {
        let _ = self.renewals.try_send(token);
    }

    /// Closes this connection if it is still open, and reconnects.
    pub(super) fn give_up(&self, connection: u64, why: &'static str) {
        self.given_up.send_replace(GivenUp { connection, why });
    }
}

struct Socket {
    number: usize,
    config: Arc<LiveConfig>,
    /// Held briefly by each socket that connects, to space out connections.
    connect_lock: Arc<tokio::sync::Mutex<()>>,
    bytes: Arc<Semaphore>,
    events: mpsc::Sender<Event>,
    wanted: watch::Receiver<Wanted>,
    renewals: mpsc::Receiver<Arc<str>>,
    given_up: watch::Receiver<GivenUp>,
    /// The number of the newest connection, starting at 1.
    connection: u64,
}

impl Socket {
    async fn run(mut self) {
        let timing = &self.config.clone().timing;
        let mut backoff = Backoff::new(timing.backoff_min, timing.backoff_max);
        loop {
            // The server closes connections without a subscription.
            if self.wanted.wait_for(|wanted| !wanted.is_empty()).await.is_err() {
                return;
            }
            let began = Instant::now();
            let lost = self.connect().await;
            // A connection that lasted for a while does not count as a failure.
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

    /// Opens a connection and runs it until it ends.
    async fn connect(&mut self) -> Lost {
        let timing = &self.config.timing;
        // Held only for the spacing, so that a slow handshake does not delay other sockets.
        {
            let _held = self.connect_lock.lock().await;
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
            return Lost::GivenUp(SHUTDOWN);
        }
        let (read_half, write_half) = tokio::io::split(stream);
        let (pings, pings_received) = mpsc::channel(PINGS_MAX);
        let ponged = watch::Sender::new(Instant::now());
        let ponged_receiver = ponged.subscribe();
        let reader = Reader::new(read_half, &self.events, self.bytes.clone(), self.number);
        let writer = Writer { socket: writing(write_half), subscribed: HashSet::new() };
        // A new connection starts with all books, so queued renewals are obsolete.
        while self.renewals.try_recv().is_ok() {}
        let wants = (&mut self.wanted, &mut self.renewals);
        let mut given_up = self.given_up.clone();
        let given_up = given_up.wait_for(|given_up| given_up.connection == connection);
        // Both halves run until one ends: a cancelled read may already have consumed half a frame.
        tokio::select! {
            lost = reader.run(pings, ponged) => lost,
            lost = writer.run(wants, timing, pings_received, ponged_receiver) => lost,
            given_up = given_up => {
                Lost::GivenUp(given_up.map_or(SHUTDOWN, |given_up| given_up.why))
            }
        }
    }
}

/// Returns a uniformly distributed random number.
fn chance() -> u32 {
    let mut bytes = [0; 4];
    // Without random bytes, every socket takes the shortest back-off.
    let _ = getrandom::fill(&mut bytes);
    u32::from_le_bytes(bytes)
}

struct Reader<'a, R> {
    socket: WebSocket<Join<R, Sink>>,
    events: &'a mpsc::Sender<Event>,
    bytes: Arc<Semaphore>,
    number: usize,
    /// The fragments of an incomplete message.
    partial: Vec<u8>,
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
        // The crate's limit is exclusive.
        socket.set_max_message_size(MESSAGE_BYTES_MAX + 1);
        Self { socket, events, bytes, number, partial: Vec::new() }
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
                    if self.partial.len() + frame.payload.len() > MESSAGE_BYTES_MAX {
                        return Lost::TooLong;
                    }
                    self.partial.extend_from_slice(&frame.payload);
                    if !frame.fin {
                        continue;
                    }
                    let Ok(text) = String::from_utf8(std::mem::take(&mut self.partial)) else {
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
                // If the server pings faster than we write, some pings stay unanswered.
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

/// A text frame in the queue.
pub(super) struct Received {
    /// The number of the socket.
    pub(super) socket: usize,
    /// The instant at which it was received.
    pub(super) at: Instant,
    pub(super) text: String,
    /// Its share of [`QUEUE_BYTES_MAX`].
    _room: OwnedSemaphorePermit,
}

impl Received {
    /// Creates a frame received now.
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
        (wanted, renewals): (&mut watch::Receiver<Wanted>, &mut mpsc::Receiver<Arc<str>>),
        timing: &Timing,
        mut pings: mpsc::Receiver<Vec<u8>>,
        mut ponged: watch::Receiver<Instant>,
    ) -> Lost {
        let mut ping = tokio::time::interval(timing.ping_interval);
        ping.set_missed_tick_behavior(MissedTickBehavior::Delay);
        ping.reset();
        // Consecutive intervals without a PONG. After a suspend the clock jumps ahead while the
        // answers are still unread, so only intervals in which this task ran count.
        let mut silent_intervals = 0;
        let ending = loop {
            let tokens = wanted.borrow_and_update().clone();
            if tokens.is_empty() {
                break Lost::GivenUp("no tokens left");
            }
            if let Err(error) = self.subscribe(&tokens).await {
                break Lost::Closed(error.to_string());
            }
            let written = tokio::select! {
                changed = wanted.changed() => match changed {
                    Ok(()) => continue,
                    Err(_) => break Lost::GivenUp(SHUTDOWN),
                },
                Some(token) = renewals.recv() => self.renew(token).await,
                Some(payload) = pings.recv() => {
                    self.socket.write_frame(Frame::pong(Payload::Owned(payload))).await
                }
                _ = ping.tick() => {
                    let timeout = timing.pong_timeout;
                    let has_answered = ponged.has_changed().unwrap_or(false);
                    let is_late = ponged.borrow_and_update().elapsed() > timeout;
                    silent_intervals = if has_answered { 0 } else { silent_intervals + 1 };
                    if is_late && timing.ping_interval * silent_intervals >= timeout {
                        break Lost::NoPong { timeout };
                    }
                    self.write("PING".to_owned()).await
                }
            };
            if let Err(error) = written {
                break Lost::Closed(error.to_string());
            }
        };
        // A courtesy: the server may already be gone.
        let close = self.socket.write_frame(Frame::close(1000, b""));
        let _ = tokio::time::timeout(Duration::from_secs(1), close).await;
        ending
    }

    /// Sends the difference between these tokens and the subscribed ones.
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

    /// Resubscribes to a token: the server sends its full book after each subscription.
    async fn renew(&mut self, token: Arc<str>) -> Result<(), WebSocketError> {
        if !self.subscribed.contains(&token) {
            return Ok(());
        }
        let tokens = [token];
        self.write(subscription(&tokens, r#""operation":"unsubscribe""#)).await?;
        self.write(subscription(&tokens, r#""operation":"subscribe""#)).await
    }

    async fn write(&mut self, text: String) -> Result<(), WebSocketError> {
        self.socket.write_frame(Frame::text(Payload::Owned(text.into_bytes()))).await
    }
}

/// Formats a change of subscriptions. Token ids need no escaping: they were checked when parsed.
fn subscription(tokens: &[Arc<str>], operation: &str) -> String {
    let ids: Vec<String> = tokens.iter().map(|token| format!(r#""{token}""#)).collect();
    let ids = ids.join(",");
    format!(
        r#"{{"assets_ids":[{ids}],{operation},"initial_dump":true,"custom_feature_enabled":true}}"#
    )
}

#[cfg(test)]
mod tests;
