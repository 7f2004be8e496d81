//! A whole trade without network and disk: from the bytes of a request to those of its answer, in
//! one thread. Bare hyper does the same, so the difference is the cost of the exchange.

use std::io::{self, IoSlice};
use std::net::{IpAddr, Ipv4Addr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use paperbourse::auth::identity::IdentitySource;
use paperbourse::auth::identity::embedded::EmbeddedIssuer;
use paperbourse::auth::ws_token::WsTokens;
use paperbourse::clock::Clock;
use paperbourse::engine::Rules;
use paperbourse::http::app::{AppState, ConnectionSlot, Server, Worker};
use paperbourse::http::connection::{Deadlines, serve_connection};
use paperbourse::http::handle::handle;
use paperbourse::http::hot::is_hot;
use paperbourse::ids::{OutcomeIndex, Timestamp};
use paperbourse::journal::{Journal, JournalConfig, MemoryJournal};
use paperbourse::limits::bucket::AccountRates;
use paperbourse::limits::tier::{Tier, TierTable, Tiers};
use paperbourse::market::Markets;
use paperbourse::money::Usd;
use paperbourse::service::{Parts, Service, key_observer, key_table};
use paperbourse::shard::Shards;
use paperbourse::snapshot::Recovered;
use paperbourse::venue::VenueStatus;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _, ReadBuf};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use super::canned;
use super::client::{Orders, Shape, post};
use super::market::{self, MARKET_ID};
use super::operations::TIMES_MAX;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
/// Capacity of a pipe, larger than any request or answer.
const PIPE_BYTES: usize = 64 * 1024;

/// A client that sends one request after another, each after the previous answer, and then
/// disconnects.
struct Client {
    requests: Vec<Vec<u8>>,
    /// The number of requests.
    times: usize,
    sent: usize,
    answered: usize,
    reader: Option<Waker>,
}

/// Serves trades with nothing but hyper.
pub(crate) fn bare(times: usize) {
    let orders = Orders::new("ps_live_0123456789", MARKET_ID, Shape::Plain);
    let client = Client::new(orders, times);
    runtime().block_on(canned::serve_connection(client));
}

/// Serves trades of this shape with an exchange whose journal is in memory.
pub(crate) fn trade(shape: Shape, times: usize) {
    let (exchange, token) = exchange();
    let server = Arc::new(Server::new(1));
    server.open(Arc::new(exchange));
    let slot = ConnectionSlot::new(
        server.connections.admit(None, 0).expect("the first connection"),
        mpsc::channel(1).0,
    );
    let (worker, slot) = (Worker::new(server), Arc::new(slot));
    let handler = |request| handle(&worker, &slot, ADDRESS, request);
    runtime().block_on(async {
        let never = std::future::pending;
        let (mut pipe, server) = tokio::io::duplex(PIPE_BYTES);
        let mut answer = String::new();
        let bootstrap = async {
            let headers = format!("Authorization: Bearer {token}\r\nConnection: close\r\n");
            let request = post("/v1/keys/bootstrap", &headers, "{}");
            pipe.write_all(request.as_bytes()).await.expect("a pipe with room");
            pipe.read_to_string(&mut answer).await.expect("answers are text");
        };
        let served = serve_connection(server, Deadlines::default(), None, handler, never());
        let (served, ()) = tokio::join!(served, bootstrap);
        served.expect("the client sends `Connection: close`");
        let key = answer.split_once(r#""raw_key":""#).and_then(|(_, rest)| rest.split_once('"'));
        let (key, _) = key.unwrap_or_else(|| panic!("no key: {answer}"));

        let client = Client::new(Orders::new(key, MARKET_ID, shape), times);
        let served = serve_connection(client, Deadlines::default(), Some(is_hot), handler, never());
        served.await.expect("the client disconnects after the last answer");
    });
}

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime without a network")
}

/// Creates an exchange with one market, and an access token.
fn exchange() -> (AppState, String) {
    let journal: Arc<Journal> = Arc::new(MemoryJournal::new(&JournalConfig::default()).into());
    let mut tiers = Tiers::default();
    tiers.set("free=unlimited/unlimited/2/5".parse().expect("a tier"));
    // The first level has 100 shares.
    let ladder = market::three_levels([100, 100, 1_000]);
    let (info, book) = market::market(["Up", "Down"], ladder, Timestamp::now());
    let markets = Arc::new(Markets::new());
    markets.list(vec![info]).expect("a new market");
    let market = markets.by_condition(MARKET_ID).expect("it was listed");
    markets.publish(&market, OutcomeIndex(0), Arc::new(book));
    let recovered = Recovered::default();
    let keys = Arc::new(key_table(recovered.states(), &tiers).expect("no key yet"));
    let tiers = Arc::new(TierTable::new(tiers));
    let rules =
        Rules { starting_balance: Usd::from_micros(10_000_000_000_000), ..Rules::default() };
    let shards = Arc::new(Shards::new(
        recovered,
        journal.clone(),
        markets.clone(),
        rules,
        Clock::System,
        Arc::default(),
        key_observer(keys.clone(), tiers.clone()),
    ));
    let issuer = EmbeddedIssuer::in_memory().expect("randomness");
    let token = issuer.mint("somebody", None, u32::MAX, Timestamp::now()).expect("a token");
    let service = Service::new(Parts {
        markets,
        shards,
        keys,
        issuer: IdentitySource::Embedded(issuer),
        ws_tokens: WsTokens::from_secret([7; 32]),
        tiers,
        default_tier: Tier::Free,
        address_rules: None,
        account_rates: AccountRates::UNLIMITED,
    });
    (AppState::new(service, journal, VenueStatus::default()), token)
}

impl Client {
    fn new(mut orders: Orders, times: usize) -> Self {
        let requests = (0..TIMES_MAX).map(|_| orders.next_request().to_vec()).collect();
        Self { requests, times, sent: 0, answered: 0, reader: None }
    }

    /// Checks an answer. The server writes one answer at a time, each in one piece.
    fn accept(&mut self, answer: &[u8]) {
        let head = &answer[..answer.len().min(1_024)];
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", head.escape_ascii());
        self.answered += 1;
        if let Some(reader) = self.reader.take() {
            reader.wake();
        }
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        assert_eq!((self.sent, self.answered), (self.times, self.times), "requests and answers");
    }
}

impl AsyncRead for Client {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.answered < self.sent {
            self.reader = Some(context.waker().clone());
            return Poll::Pending;
        }
        if self.sent < self.times {
            buffer.put_slice(&self.requests[self.sent]);
            self.sent += 1;
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Client {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.accept(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.accept(&parts[0]);
        Poll::Ready(Ok(parts.iter().map(|part| part.len()).sum()))
    }

    /// Returns true, as a socket does.
    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
