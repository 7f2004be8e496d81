//! Those who attack, and those who read in their stead: an open loop on a thread of its own.
//!
//! All of them come from this machine, which the server takes for its proxy, and name addresses of
//! their own in `X-Forwarded-For`.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
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
use crate::schedule::{self, Due};
use crate::setup::MARKET_ID;

/// Connections that stay open, for each kind of request.
const CONNECTIONS: usize = 32;

/// Addresses that the senders of wrong keys and the openers of sockets share.
const ATTACKER_ADDRESSES: u32 = 64;

/// Addresses that read, few enough times a second each to be served.
const READER_ADDRESSES: u32 = 4_000;

/// How long after the end a request may still be on its way.
const LAST_ANSWER: Duration = Duration::from_secs(5);

/// How long one that opens a socket waits for its end.
const SOCKET_PATIENCE: Duration = Duration::from_secs(5);

/// A frame that closes a socket: its first byte, and the code for a credential that is no good.
const CLOSE: u8 = 0x88;
const BAD_CREDENTIAL: u16 = 4001;

/// What is sent again and again.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize)]
pub(crate) enum Kind {
    /// A read with a key that looks like one and is none.
    WrongKey,
    /// A first key, asked for with a forged token from an address that was never seen.
    NewAddress,
    /// A price socket on a new connection, with a token that is none.
    Socket,
    /// A public read, which is served.
    Read,
}

/// How many a second, how many connections that are held, and how many that flood.
#[derive(Clone, Default, Debug)]
pub(crate) struct Plan {
    pub(crate) rates: Vec<(Kind, f64)>,
    pub(crate) holds: Vec<(Hold, usize)>,
    pub(crate) floods: usize,
}

/// What attackers got, and what they did.
#[derive(Default, Clone, Debug, Serialize)]
pub(crate) struct Counts {
    /// Answers by kind and status; a socket that was opened and closed at once counts by the code
    /// of its close.
    pub(crate) answers: BTreeMap<Kind, BTreeMap<u16, u64>>,
    /// Requests that were due and never answered, by kind.
    pub(crate) unanswered: BTreeMap<Kind, u64>,
    /// Connections that were held until the server ended them.
    pub(crate) holds_dropped: u64,
    /// Those that the server had answered before, or that could not be opened.
    pub(crate) holds_refused: u64,
    /// Answers to floods.
    pub(crate) flood_bytes: u64,
}

/// A thread that attacks until its time is over.
pub(crate) struct Attackers(JoinHandle<anyhow::Result<Counts>>);

/// What the tasks of the thread share.
pub(super) struct Shared {
    pub(super) address: SocketAddr,
    /// A good token but for its signature.
    forged_token: String,
    /// A key of the attackers' own.
    pub(super) own_key: String,
    counts: RefCell<Counts>,
    /// Different in each request.
    number: Cell<u32>,
    pub(super) end: Instant,
}

impl Attackers {
    /// Begins now.
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
            LocalSet::new().block_on(&runtime, attack(shared.clone(), plan, begin));
            Ok(shared.counts.take())
        }))
    }

    /// Waits for the end.
    pub(crate) fn join(self) -> anyhow::Result<Counts> {
        self.0.join().expect("attackers end with a result").context("the attackers failed")
    }
}

impl Counts {
    /// Of those that must be refused, how many were not.
    pub(crate) fn got_in(&self) -> u64 {
        let refused = [401, 429, 503, BAD_CREDENTIAL];
        let attacks = self.answers.iter().filter(|(kind, _)| **kind != Kind::Read);
        let statuses = attacks.flat_map(|(_, statuses)| statuses);
        statuses.filter(|(status, _)| !refused.contains(status)).map(|(_, count)| count).sum()
    }

    /// Answers of all kinds.
    pub(crate) fn answered(&self) -> u64 {
        self.answers.values().flat_map(BTreeMap::values).sum()
    }
}

async fn attack(shared: Rc<Shared>, plan: Plan, begin: Instant) {
    let mut tasks = Vec::new();
    for (kind, rate) in plan.rates.into_iter().filter(|&(_, rate)| rate > 0.0) {
        let dues: Vec<Rc<Due>> = (0..CONNECTIONS).map(|_| Rc::default()).collect();
        tokio::task::spawn_local(schedule::deal(dues.clone(), rate, begin, shared.end));
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
        // What is not answered by then is counted as such where it was sent.
        let _ = tokio::time::timeout_at(deadline.into(), task).await;
    }
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
            // Whoever is refused with a body unread finds the connection closed.
            connection = None;
        }
        let Some(status) = status else { continue };
        shared.count(|counts| {
            *counts.unanswered.entry(kind).or_default() -= 1;
            *counts.answers.entry(kind).or_default().entry(status).or_default() += 1;
        });
    }
}

/// The status of an answer on a connection that is kept, and made anew where it has ended.
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

/// The status of an upgrade that is refused, or the code with which the socket is closed.
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

/// What has come of an upgrade, once that is known: of one that was accepted, by its first frame.
fn socket_status(received: &[u8]) -> Option<u16> {
    const UPGRADED: u16 = 101;
    let head_bytes = received.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
    let status = std::str::from_utf8(received.get(9..12)?).ok()?.parse().ok()?;
    match received[head_bytes..] {
        _ if status != UPGRADED => Some(status),
        [CLOSE, _, high, low, ..] => Some(u16::from_be_bytes([high, low])),
        // Anything else is meant for somebody who is welcome.
        [first, ..] if first != CLOSE => Some(UPGRADED),
        _ => None,
    }
}

impl Shared {
    pub(super) fn count(&self, change: impl FnOnce(&mut Counts)) {
        change(&mut self.counts.borrow_mut());
    }

    /// The next request of this kind, which differs from all before it.
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

/// An address that no other number has; every second one is of IPv6, in a network of its own.
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
    fn an_upgrade_comes_to_a_status_or_a_close() {
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
    fn whoever_is_not_refused_got_in() {
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
