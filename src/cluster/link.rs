//! Links between the nodes of a cluster: byte streams that the brokers carry.
//!
//! The owner of a log listens on a subject that names its epoch, so no request reaches a node that
//! has lost the log without noticing. Each end of a link receives pieces on a separate subject.
//! Core NATS delivers a message at most once, so pieces are numbered, and a link that has lost a
//! piece is closed. Users of a link must detect for themselves whether the other end is alive.

use std::io;
use std::time::Duration;

use async_nats::client::RequestErrorKind;
use async_nats::{Client, Message, Subject, Subscriber};
use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use futures_util::{Stream, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, ReadHalf, WriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{ClusterError, ClusterFile, connect};

/// The maximum size of a piece, in bytes. Brokers accept messages of up to a megabyte.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// The maximum number of pieces queued in the client. A longer queue would delay the answers to the
/// broker's pings.
const QUEUE_PIECES_MAX: usize = 64;

/// The minimum buffer capacity left for a piece and its number, in bytes.
const ROOM_BYTES_MIN: usize = 4 * 1024;

/// How long the owner may take to accept a link.
const OPEN_TIME_MAX: Duration = Duration::from_secs(2);

/// How long the notice that a link has closed may take to reach a broker.
const FAREWELL_TIME_MAX: Duration = Duration::from_secs(1);

/// The owner's answer when it has no room for a link. An empty answer accepts it.
const REFUSED: &[u8] = b"full";

/// The length of a link's random name, in bytes before the hexadecimal encoding.
const NAME_BYTES: usize = 16;

/// Opens and accepts the links of a log, over a separate connection to the brokers.
pub struct Links {
    client: Client,
    log: String,
    alive: mpsc::Sender<()>,
}

/// An error opening a link.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// No node owns the log in this epoch, or it does not accept links yet.
    #[error("no node accepts links in epoch {epoch}")]
    Nobody {
        /// The requested epoch.
        epoch: u64,
    },
    /// The owner has too many connections.
    #[error("the owner of the log has no room for another connection")]
    Refused,
    /// A broker or the owner does not answer.
    #[error("no answer: {0}")]
    Silence(String),
}

/// Receives other nodes' requests for links. Each request goes to one listener of the process.
pub struct Listener {
    client: Client,
    log: String,
    alive: mpsc::Sender<()>,
    opened: Subscriber,
}

/// A node's request for a link.
pub struct Opening<'a> {
    name: String,
    answer_to: Subject,
    listener: &'a Listener,
}

impl Links {
    /// Connects to the brokers of this file, for the links of its first log. Each link holds a
    /// clone of `alive` until it has told the other end that the link is closed.
    pub async fn connect(
        file: &ClusterFile,
        alive: mpsc::Sender<()>,
    ) -> Result<Self, ClusterError> {
        // All nodes prefer the first broker, so that pieces need not be routed between brokers.
        let options = file.options()?.retain_servers_order().client_capacity(QUEUE_PIECES_MAX);
        let client = connect(file, options).await?;
        let log = file.first_stream();
        Ok(Self { client, log, alive })
    }

    /// Opens a link to the node that owns the log in this epoch.
    pub async fn open(&self, epoch: u64) -> Result<DuplexStream, LinkError> {
        // Subscribe before asking, so that nothing the owner sends after it accepts is lost.
        let name = random_name();
        let (here, there) = (subject(&self.log, &name, "node"), subject(&self.log, &name, "owner"));
        let silence = |error: &dyn std::error::Error| LinkError::Silence(error.to_string());
        let inbound = self.client.subscribe(here).await.map_err(|error| silence(&error))?;
        let opened = self.client.request(owner_subject(&self.log, epoch), name.into());
        match timeout(OPEN_TIME_MAX, opened).await {
            Ok(Ok(answer)) if answer.payload == REFUSED => Err(LinkError::Refused),
            Ok(Ok(_)) => Ok(start(self.client.clone(), inbound, there, self.alive.clone())),
            Ok(Err(error)) if error.kind() == RequestErrorKind::NoResponders => {
                Err(LinkError::Nobody { epoch })
            }
            Ok(Err(error)) => Err(silence(&error)),
            Err(late) => Err(silence(&late)),
        }
    }

    /// Accepts links as the owner of the log in this epoch.
    pub async fn listen(&self, epoch: u64) -> Result<Listener, LinkError> {
        let subject = owner_subject(&self.log, epoch);
        let opened = self.client.queue_subscribe(subject, "owner".to_owned()).await;
        let opened = opened.map_err(|error| LinkError::Silence(error.to_string()))?;
        let (client, log, alive) = (self.client.clone(), self.log.clone(), self.alive.clone());
        Ok(Listener { client, log, alive, opened })
    }
}

impl Listener {
    /// Returns the next request for a link; `None` once the subscription has ended.
    pub async fn next(&mut self) -> Option<Opening<'_>> {
        loop {
            // Malformed requests are skipped: any client of the brokers can send to this subject.
            let Message { payload, reply, .. } = self.opened.next().await?;
            let name = std::str::from_utf8(&payload).ok().filter(|name| is_name(name));
            if let (Some(name), Some(answer_to)) = (name, reply) {
                return Some(Opening { name: name.to_owned(), answer_to, listener: self });
            }
        }
    }
}

impl Opening<'_> {
    /// Accepts the link. `None` if the connection to the brokers is gone.
    pub async fn accept(self) -> Option<DuplexStream> {
        let Self { name, answer_to, listener: Listener { client, log, alive, .. } } = self;
        let there = subject(log, &name, "node");
        let inbound = client.subscribe(subject(log, &name, "owner")).await.ok()?;
        client.publish(answer_to, Bytes::new()).await.ok()?;
        Some(start(client.clone(), inbound, there, alive.clone()))
    }

    /// Tells the node that there is no room for its link.
    pub async fn refuse(self) {
        let answer = Bytes::from_static(REFUSED);
        let _ = self.listener.client.publish(self.answer_to, answer).await;
    }
}
/// Returns the subject on which the owner of this epoch receives requests for links.
fn owner_subject(log: &str, epoch: u64) -> String {
    format!("{log}.owner.{epoch}")
}

/// Returns the subject on which one end of a link receives its pieces.
fn subject(log: &str, name: &str, end: &str) -> String {
    format!("{log}.link.{name}.{end}")
}

pub(super) fn random_name() -> String {
    let mut bytes = [0; NAME_BYTES];
    getrandom::fill(&mut bytes).expect("the operating system gives random numbers");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

/// Whether this is a valid link name. Wildcards, which would match other links, are not.
pub(super) fn is_name(name: &str) -> bool {
    name.len() == 2 * NAME_BYTES && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Sends the bytes written to the returned stream to the subject `there`, and makes the `inbound`
/// bytes readable from that stream. The link closes when either end is dropped.
fn start(
    client: Client,
    inbound: Subscriber,
    there: String,
    alive: mpsc::Sender<()>,
) -> DuplexStream {
    let (near, far) = tokio::io::duplex(PIECE_BYTES_MAX);
    tokio::spawn(async move {
        let (mut from_here, mut to_here) = tokio::io::split(far);
        let ended = tokio::select! {
            ended = send(&client, &there, &mut from_here) => ended,
            ended = receive(inbound.map(|message| message.payload), &mut to_here) => ended,
        };
        if let Err(error) = ended {
            tracing::debug!(link = there, %error, "a link is over");
        }
        // Tell the other end at once: it would otherwise notice only later.
        let told = async {
            client.publish(there, Bytes::new()).await.is_ok() && client.flush().await.is_ok()
        };
        let _ = timeout(FAREWELL_TIME_MAX, told).await;
        drop(alive);
    });
    near
}

/// Sends everything that is written, in numbered pieces, until the writer is dropped.
async fn send(
    client: &Client,
    there: &str,
    from_here: &mut ReadHalf<DuplexStream>,
) -> io::Result<()> {
    let mut buffer = BytesMut::new();
    for number in 0.. {
        if buffer.capacity() < ROOM_BYTES_MIN {
            buffer.reserve(PIECE_BYTES_MAX);
        }
        buffer.put_u64(number);
        if from_here.read_buf(&mut buffer).await? == 0 {
            break;
        }
        let piece = buffer.split().freeze();
        client.publish(there.to_owned(), piece).await.map_err(io::Error::other)?;
    }
    Ok(())
}

/// Passes on each piece until the other end closes the link. A gap in the numbers is an error.
async fn receive(
    mut inbound: impl Stream<Item = Bytes> + Unpin,
    to_here: &mut WriteHalf<DuplexStream>,
) -> io::Result<()> {
    let mut expected = 0;
    while let Some(mut piece) = inbound.next().await {
        if piece.is_empty() {
            break;
        }
        let number = piece.try_get_u64().map_err(io::Error::other)?;
        if number != expected {
            return Err(io::Error::other(format!("piece {number} came instead of {expected}")));
        }
        expected += 1;
        to_here.write_all(&piece).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use futures_util::stream;

    use super::*;

    fn piece(number: u64, text: &str) -> Bytes {
        [&number.to_be_bytes(), text.as_bytes()].concat().into()
    }

    /// Receives these pieces. Returns the text that arrives, and whether the link ended without an
    /// error.
    async fn received(pieces: &[Bytes]) -> (String, bool) {
        let (mut near, far) = tokio::io::duplex(PIECE_BYTES_MAX);
        let (from_here, mut to_here) = tokio::io::split(far);
        let ended = receive(stream::iter(pieces.to_vec()), &mut to_here).await;
        drop((from_here, to_here));
        let mut arrived = String::new();
        near.read_to_string(&mut arrived).await.unwrap();
        (arrived, ended.is_ok())
    }

    #[tokio::test]
    async fn a_link_that_has_lost_a_piece_is_over() {
        let (first, second, third) = (piece(0, "a"), piece(1, "b"), piece(2, "c"));
        let end = Bytes::new();
        let short = Bytes::from_static(&[0; 7]);
        for (pieces, arrived, is_in_order) in [
            (vec![first.clone(), second.clone(), third.clone()], "abc", true),
            (vec![first.clone(), end, second.clone()], "a", true),
            (vec![first.clone(), third.clone()], "a", false),
            (vec![first.clone(), first.clone()], "a", false),
            (vec![second, first.clone()], "", false),
            (vec![first, short], "a", false),
        ] {
            assert_eq!(received(&pieces).await, (arrived.to_owned(), is_in_order), "{pieces:?}");
        }
    }

    #[test]
    fn the_name_of_a_link_names_no_others() {
        assert!(is_name(&random_name()));
        for name in ["", "*", ">", "a.b", &"*".repeat(32), &"g".repeat(32), &"a".repeat(31)] {
            assert!(!is_name(name), "{name}");
        }
    }
}
