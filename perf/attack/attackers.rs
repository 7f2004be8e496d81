//! Attackers, and the readers that replace them: an open loop on a separate thread.
//!
//! All connect from this machine, which the server trusts as a proxy, and put invented addresses
//! into `X-Forwarded-For`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use serde::Serialize;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::LocalSet;

use super::holders::{Hold, flood, hold};
use crate::client::{Connection, encode_request};
use crate::schedule::{self, Clock, Due};
use crate::setup::MARKET_ID;

/// Number of connections kept open for each kind of request.
const CONNECTIONS: usize = 32;

/// Number of addresses shared by the senders of invalid keys and the openers of sockets.
const ATTACKER_ADDRESSES: u32 = 64;

/// Number of reader addresses: enough that each sends rarely enough to be served.
const READER_ADDRESSES: u32 = 4_000;

/// Maximum time after the end that a request may still be in flight.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// Timeout for the first frame on an opened socket.
const SOCKET_PATIENCE: Duration = Duration::from_secs(5);

/// The first byte of a close frame, and the close code for an invalid credential.
const CLOSE: u8 = 0x88;
const BAD_CREDENTIAL: u16 = 4001;

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) enum Kind {
    /// A read with a well-formed key that does not exist.
    WrongKey,
    /// A request for a first key, with a forged token and from a new address.
    NewAddress,
    /// A price socket on a new connection, with an invalid token.
    Socket,
    /// A public read, which is served.
    Read,
}

/// Requests per second of each kind, connections to hold and connections that flood.
#[derive(Clone, Default, Debug)]
pub(crate) struct Plan {
    pub(crate) rates: Vec<(Kind, f64)>,
    pub(crate) holds: Vec<(Hold, usize)>,
    pub(crate) floods: usize,
}

/// The number of attackers' requests and the answers to them.
#[derive(Default, Clone, Debug, Serialize)]
pub(crate) struct Counts {
    /// Answers by kind and status; a socket that was opened and closed at once counts by its close
    /// code.
    pub(crate) answers: BTreeMap<Kind, BTreeMap<u16, u64>>,
    /// Requests that were never answered, by kind.
    pub(crate) unanswered: BTreeMap<Kind, u64>,
    /// Connections that were held until the server closed them.
    pub(crate) holds_dropped: u64,
    /// Held connections that the server had answered, or that could not be opened.
    pub(crate) holds_refused: u64,
    /// Bytes of answers to floods.
    pub(crate) flood_bytes: u64,
}

/// A thread that attacks for a fixed time.
pub(crate) struct Attackers(JoinHandle<anyhow::Result<Counts>>);

/// State shared by the tasks of the thread.
pub(super) struct Shared {
    pub(super) address: SocketAddr,
    /// A token that is valid except for its signature.
    forged_token: String,
    /// A valid key for the attackers.
    pub(super) own_key: String,
    counts: RefCell<Counts>,
    /// The number of the last request, which makes each request unique.
    number: Cell<u32>,
    pub(super) end: Instant,
}

impl Attackers {
    /// Starts the attack.
    pub(crate) fn start(
        address: SocketAddr,
        forged_token: String,
        own_key: String,
        plan: Plan,
        duration: Duration,
    ) -> Self {
        Self(std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let begin = Instant::now();
            let shared = Rc::new(Shared {
                address,
                forged_token,
                own_key,
                counts: RefCell::default(),
                number: Cell::new(0),
                end: begin + duration,
            });
            LocalSet::new().block_on(&runtime, attack(shared.clone(), plan, begin))?;
            Ok(shared.counts.take())
        }))
    }

    /// Waits for the end of the attack.
    pub(crate) fn join(self) -> anyhow::Result<Counts> {
        self.0.join().expect("the attackers do not panic").context("the attackers failed")
    }
}

impl Counts {
    /// Returns the number of requests that should have been refused but were not.
    pub(crate) fn got_in(&self) -> u64 {
        let refused = [401, 429, 503, BAD_CREDENTIAL];
        let attacks = self.answers.iter().filter(|(kind, _)| **kind != Kind::Read);
        let statuses = attacks.flat_map(|(_, statuses)| statuses);
        statuses.filter(|(status, _)| !refused.contains(status)).map(|(_, count)| count).sum()
    }

    /// Returns the number of answers of all kinds.
    pub(crate) fn answered(&self) -> u64 {
        self.answers.values().flat_map(BTreeMap::values).sum()
    }
}

async fn attack(shared: Rc<Shared>, plan: Plan, begin: Instant) -> io::Result<()> {
    let (mut clocks, mut tasks) = (Vec::new(), Vec::new());
    for (kind, rate) in plan.rates.into_iter().filter(|&(_, rate)| rate > 0.0) {
        let dues: Vec<Rc<Due>> = (0..CONNECTIONS).map(|_| Rc::default()).collect();
        let clock = schedule::deal(dues.clone(), Clock::Timer, rate, begin, shared.end);
        clocks.push(tokio::task::spawn_local(clock));
        let send = |due| tokio::task::spawn_local(send(kind, due, shared.clone()));
        tasks.extend(dues.into_iter().map(send));
    }
    for _ in 0..plan.floods {
        tasks.push(tokio::task::spawn_local(flood(shared.clone())));
    }
    let holds = plan.holds.into_iter().flat_map(|(kind, count)| std::iter::repeat_n(kind, count));
    for (number, kind) in holds.enumerate() {
        tasks.push(tokio::task::spawn_local(hold(kind, number, shared.clone())));
    }
    let deadline = shared.end + LAST_ANSWER;
    for task in tasks {
        // The sender counts a request without an answer by then as unanswered.
        let _ = tokio::time::timeout_at(deadline.into(), task).await;
    }
    for clock in clocks {
        clock.await.expect("the clock does not panic")?;
    }
    Ok(())
}

async fn send(kind: Kind, due: Rc<Due>, shared: Rc<Shared>) {
    let mut connection = None;
    while due.next().await.is_some() {
        let request = shared.request(kind);
        shared.count(|counts| *counts.unanswered.entry(kind).or_default() += 1);
        let status = if kind == Kind::Socket {
            let opened = open_socket(shared.address, &request);
            tokio::time::timeout(SOCKET_PATIENCE, opened).await.ok().flatten()
        } else {
            exchange(&mut connection, shared.address, &request).await
        };
        if kind == Kind::NewAddress {
            // After a refusal with the body unread, the server closes the connection.
            connection = None;
        }
        let Some(status) = status else { continue };
        shared.count(|counts| {
            *counts.unanswered.entry(kind).or_default() -= 1;
            *counts.answers.entry(kind).or_default().entry(status).or_default() += 1;
        });
    }
}

/// Sends a request on a connection that is kept, and reopened if it has ended. Returns the status
/// of the answer.
async fn exchange(
    connection: &mut Option<Connection>,
    address: SocketAddr,
    request: &str,
) -> Option<u16> {
    if connection.is_none() {
        *connection = Connection::open(address).await.ok();
    }
    let status =
        connection.as_mut()?.exchange(request.as_bytes()).await.ok().map(|answer| answer.status);
    if status.is_none() {
        *connection = None;
    }
    status
}

/// Opens a socket. Returns the status of a refused upgrade, or the close code of the socket.
async fn open_socket(address: SocketAddr, request: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).await.ok()?;
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut received = Vec::new();
    loop {
        if let Some(status) = socket_status(&received) {
            return Some(status);
        }
        if stream.read_buf(&mut received).await.ok()? == 0 {
            return None;
        }
    }
}

/// Returns the result of an upgrade once it is known. An accepted upgrade is judged by its first
/// frame.
fn socket_status(received: &[u8]) -> Option<u16> {
    const UPGRADED: u16 = 101;
    let head_bytes = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let status = std::str::from_utf8(received.get(9..12)?).ok()?.parse().ok()?;
    match received[head_bytes..] {
        _ if status != UPGRADED => Some(status),
        [CLOSE, _, high, low, ..] => Some(u16::from_be_bytes([high, low])),
        // Any other frame means that the socket was accepted.
        [first, ..] if first != CLOSE => Some(UPGRADED),
        _ => None,
    }
}

impl Shared {
    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.borrow_mut());
    }

    /// Returns the next request of this kind, different from all earlier ones.
    fn request(&self, kind: Kind) -> String {
        let number = self.number.get().wrapping_add(1);
        self.number.set(number);
        let host = self.address;
        let bearer = format!("Bearer {}", self.forged_token);
        let key = format!("ps_live_{:064x}", u64::from(number).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let attacker = Ipv4Addr::from(0xc612_0000 + number % ATTACKER_ADDRESSES).to_string();
        let forwarded = |address: &str, (name, value): (&str, &str), method: &str, path: &str| {
            let headers = [("X-Forwarded-For", address), (name, value)];
            let headers = &headers[..if name.is_empty() { 1 } else { 2 }];
            encode_request(method, path, host, headers, if method == "GET" { "" } else { "{}" })
        };
        match kind {
            Kind::WrongKey => forwarded(&attacker, ("X-API-Key", &key), "GET", "/v1/orders"),
            Kind::NewAddress => {
                let address = new_address(number);
                forwarded(&address, ("Authorization", &bearer), "POST", "/v1/keys/bootstrap")
            }
            Kind::Socket => encode_request(
                "GET",
                &format!("/v1/ws/prices?token=none-{number}"),
                host,
                &[
                    ("X-Forwarded-For", &attacker),
                    ("Connection", "Upgrade"),
                    ("Upgrade", "websocket"),
                    ("Sec-WebSocket-Version", "13"),
                    ("Sec-WebSocket-Key", "cGFwZXJib3Vyc2UtMTIzNA=="),
                ],
                "",
            ),
            Kind::Read => {
                let reader = Ipv4Addr::from(0x0c00_0000 + number % READER_ADDRESSES).to_string();
                forwarded(&reader, ("", ""), "GET", &format!("/v1/markets/{MARKET_ID}"))
            }
        }
    }
}

/// Returns a unique address for each number. Every second one is IPv6, in its own /64 network.
fn new_address(number: u32) -> String {
    if number.is_multiple_of(2) {
        Ipv4Addr::from(0x0b00_0000 | (number / 2) & 0x00ff_ffff).to_string()
    } else {
        let network = u128::from(0x2001_0db8_u32) << 96 | u128::from(number) << 64;
        Ipv6Addr::from(network | 1).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_upgrade_yields_a_status_or_a_close_code() {
        let accepted = "HTTP/1.1 101 Switching Protocols\r\nupgrade: websocket\r\n\r\n";
        for (head, frame, expected) in [
            ("HTTP/1.1 429 Too Many Requests\r\n\r\n", &b""[..], Some(429)),
            ("HTTP/1.1 429 Too Many", b"", None),
            (accepted, b"", None),
            (accepted, b"\x88\x02\x0f", None),
            (accepted, b"\x88\x02\x0f\xa1", Some(4001)),
            (accepted, b"\x81\x02hi", Some(101)),
        ] {
            assert_eq!(socket_status(&[head.as_bytes(), frame].concat()), expected, "{head}");
        }
    }

    #[test]
    fn an_attacker_who_is_not_refused_got_in() {
        let mut counts = Counts::default();
        counts.answers.insert(Kind::Read, BTreeMap::from([(200, 9)]));
        counts.answers.insert(Kind::WrongKey, BTreeMap::from([(401, 2), (429, 3)]));
        counts.answers.insert(Kind::Socket, BTreeMap::from([(4001, 4)]));
        assert_eq!((counts.got_in(), counts.answered()), (0, 18));
        counts.answers.insert(Kind::NewAddress, BTreeMap::from([(401, 1), (201, 5), (500, 1)]));
        assert_eq!(counts.got_in(), 6);
    }

    #[test]
    fn new_addresses_differ() {
        let mut addresses: Vec<String> = (0..10_000).map(new_address).collect();
        assert_eq!(addresses[2..4], ["11.0.0.1", "2001:db8:0:3::1"]);
        addresses.sort_unstable();
        addresses.dedup();
        assert_eq!(addresses.len(), 10_000);
    }
}
