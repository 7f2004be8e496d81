//! The whole program, following the stand-in: a bot trades over HTTP.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use paperbourse_test_support::process::{Process, ServerProcess, command};
use paperbourse_test_support::{Connection, Request, Response};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::standin::world::{condition_id, token_id};
use crate::standin::{
    Endpoint, EndpointFault, Fault, Options, Payout, Side, StandIn, Which, World, micros,
};

const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often a condition is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// The smallest value of `--venue-fresh`.
const FRESH: Duration = Duration::from_secs(10);

/// How long the venue takes for its catalogue. A test that does not wait for it sees none of it.
const SLOW: Duration = Duration::from_secs(1);

/// A server with an account that may trade, killed on drop.
pub(crate) struct Served {
    pub(crate) server: ServerProcess,
    key: String,
    folder: TempDir,
}

impl Served {
    /// Follows two markets of this venue, with an account that may trade.
    fn start(venue: &StandIn) -> Self {
        Self::start_with(venue, &[])
    }

    /// The same, with these additional flags.
    pub(crate) fn start_with(venue: &StandIn, flags: &[&str]) -> Self {
        let flags = [&["--venue-markets", "2"], flags].concat();
        Self::run(|command| Self::follow(command, venue, &flags))
    }

    /// The same as [`Self::start`], with its data on this file system.
    pub(crate) fn start_on(disk: &Path, venue: &StandIn) -> Self {
        let folder = TempDir::new_in(disk).unwrap();
        Self::run_in(folder, |command| Self::follow(command, venue, &["--venue-markets", "2"]))
    }

    pub(crate) const fn address(&self) -> SocketAddr {
        self.server.address
    }

    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    /// Follows this venue, and of its markets those that these flags want.
    pub(crate) fn follow<'a>(
        command: &'a mut Command,
        venue: &StandIn,
        wanted: &[&str],
    ) -> &'a mut Command {
        command
            .args(["--venue", "polymarket"])
            .args(wanted)
            .args(["--venue-fresh", &FRESH.as_secs().to_string()])
            .args(["--venue-gamma", &venue.gamma_url, "--venue-clob", &venue.clob_url])
            .args(["--venue-data", &venue.data_url, "--venue-socket", &venue.ws_url])
            .arg("--venue-ca")
            .arg(venue.authority_path.as_ref().unwrap())
    }

    /// Kills the server and starts another on the same data that follows other markets.
    pub(crate) fn restart(self, venue: &StandIn, wanted: &[&str]) -> Self {
        self.restart_after(venue, wanted, || {})
    }

    /// The same; something happens while no server runs.
    pub(crate) fn restart_after(
        self,
        venue: &StandIn,
        wanted: &[&str],
        meanwhile: impl FnOnce(),
    ) -> Self {
        let Self { server, key, folder } = self;
        server.kill();
        meanwhile();
        let server = Self::spawn(&folder, |command| Self::follow(command, venue, wanted));
        Self { server, key, folder }
    }

    /// Starts another server that takes over from this one, which ends.
    fn taken_over(self, venue: &StandIn) -> Self {
        self.taken_over_with(venue, &["--venue-markets", "2"])
    }

    /// The same; the other server follows other markets.
    fn taken_over_with(mut self, venue: &StandIn, wanted: &[&str]) -> Self {
        let next = Self::spawn(&self.folder, |command| {
            Self::follow(command, venue, wanted).arg("--take-over")
        });
        assert!(self.server.wait().success());
        self.server = next;
        self
    }

    /// Starts a server that plays the recording in this folder.
    pub(crate) fn play(recorded: &Path, arguments: &[&str]) -> Self {
        let venue = format!("recorded:{}", recorded.display());
        Self::run(|command| command.args(["--venue", &venue]).args(arguments))
    }

    fn run(venue: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        Self::run_in(TempDir::new().unwrap(), venue)
    }

    fn run_in(folder: TempDir, venue: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let server = Self::spawn(&folder, venue);
        let mut served = Self { server, key: String::new(), folder };
        let token = command(BINARY)
            .args(["token", "--subject", "bot", "--data"])
            .arg(served.folder.path().join("data"))
            .output()
            .unwrap();
        assert!(token.status.success(), "{token:?}");
        let token = String::from_utf8(token.stdout).unwrap();
        let wanted = json!({"permissions": ["read", "trade"]});
        let bootstrap = Request::post("/v1/keys/bootstrap", &wanted).bearer(token.trim());
        let (status, made) = served.send(&bootstrap);
        assert_eq!(status, 201, "{made}");
        made["raw_key"].as_str().unwrap().clone_into(&mut served.key);
        served
    }

    fn spawn(folder: &TempDir, venue: impl FnOnce(&mut Command) -> &mut Command) -> ServerProcess {
        let mut command = command(BINARY);
        let command = venue(command.arg("serve"))
            .args(["--listen", "127.0.0.1:0", "--workers", "1"])
            .args(["--tier", "free=unlimited/unlimited/2/100", "--address-limits", "off"])
            .arg("--data")
            .arg(folder.path().join("data"));
        if command.get_args().all(|word| word != "--journal-segment-bytes") {
            command.args(["--journal-segment-bytes", "1048576"]);
        }
        Process::spawn(command).ready()
    }

    /// A request of the account.
    pub(crate) fn signed(&self, request: Request) -> Request {
        request.key(&self.key)
    }

    /// Sends a request on a connection of its own.
    pub(crate) fn answer(&self, request: &Request) -> Response {
        Connection::open(self.server.address).send(request)
    }

    /// Returns the status and the body of the answer.
    fn send(&self, request: &Request) -> (u16, Value) {
        let response = self.answer(request);
        (response.status, response.json())
    }

    pub(crate) fn get(&self, path: &str) -> (u16, Value) {
        self.send(&Request::get(path))
    }

    /// Buys one share of the first outcome of market 0.
    pub(crate) fn buy(&self) -> (u16, Value) {
        self.trade(0, "BUY")
    }

    fn trade(&self, market: usize, side: &str) -> (u16, Value) {
        let order = json!({
            "market_id": condition_id(market), "outcome": "Yes", "side": side, "quantity": 1,
        });
        self.send(&Request::post("/trade", &order).key(&self.key))
    }

    /// Whether every book is the venue's current one.
    pub(crate) fn is_fresh(&self) -> bool {
        self.get("/v1/health/ready").1["status"] == "ok"
    }

    pub(crate) fn until(&self, what: &str, condition: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !condition(self) {
            assert!(started.elapsed() < PATIENCE, "timed out waiting for {what}");
            // Every check opens a connection, and the number of ports is limited.
            std::thread::park_timeout(CHECK_INTERVAL);
        }
    }
}

/// The best ask of market 0 at the venue, in millionths.
fn best_ask(venue: &StandIn) -> i64 {
    micros(&venue.published(&token_id(0, 0)).last().unwrap().asks[0].0)
}

pub(crate) fn fill_price((status, filled): &(u16, Value)) -> i64 {
    assert_eq!(*status, 200, "{filled}");
    micros(&filled["price"].to_string())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bot_is_filled_at_the_venues_price_or_not_at_all() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = Served::start(&venue);
        served.until("books", Served::is_fresh);
        assert_eq!(fill_price(&served.buy()), best_ask(&venue));
        // The best ask is gone: the bot gets the next one, never the old one.
        let asks = venue.published(&token_id(0, 0)).pop().unwrap().asks;
        venue.change_level(&token_id(0, 0), Side::Sell, &asks[0].0, "0");
        served.until("the new price", |it| fill_price(&it.buy()) == micros(&asks[1].0));

        venue.misbehave(Which::Open, Fault::Freeze { has_pong: true });
        let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
        venue.misbehave_at(Endpoint::Books, refused, u32::MAX);
        venue.change_level(&token_id(0, 0), Side::Sell, &asks[1].0, "0");
        let frozen = Instant::now();
        served.until("a refusal", |it| it.buy().0 == 503);
        let (status, error) = served.buy();
        assert_eq!((status, &error["error"]), (503, &json!("VENUE_UNAVAILABLE")));
        assert!(frozen.elapsed() < FRESH + FRESH / 2, "{:?}", frozen.elapsed());
        served.until("degraded", |it| it.get("/v1/health/ready").1["status"] == "degraded");
        let (status, _) = served.get("/v1/health/ready?strict=true");
        assert_eq!(status, 503);

        venue.behave_at(Endpoint::Books);
        venue.misbehave(Which::Open, Fault::Drop);
        served.until("recovered", Served::is_fresh);
        served.until("fills", |it| it.buy().0 == 200);
        assert_eq!(fill_price(&served.buy()), best_ask(&venue));
        assert_eq!(best_ask(&venue), micros(&asks[2].0));
    });
    played.await.unwrap();
}

/// What a later server is told to follow: a market in which nobody trades yet.
const OTHER_MARKET: [&str; 4] = ["--venue-slug", "invented-thing-3", "--venue-volume", "1"];

/// Serves an account that holds shares of markets 0 and 1, and none of market 2 any more. Market 1
/// has closed.
fn holding(venue: &StandIn) -> Served {
    let served = Served::run(|it| Served::follow(it, venue, &["--venue-markets", "3"]));
    for market in 0..3 {
        served.until("a fill", |it| it.trade(market, "BUY").0 == 200);
    }
    assert_eq!(served.trade(2, "SELL").0, 200);
    assert!(!is_paid(&served));
    venue.resolve(&condition_id(1), Payout::Winner(0));
    served
}

fn is_paid(served: &Served) -> bool {
    let request = Request::get("/v1/account/settlements").key(served.key());
    let (status, page) = served.send(&request);
    assert_eq!(status, 200, "{page}");
    page.to_string().contains(&condition_id(1))
}

/// What [`holding`] left can be sold and is paid, whatever the server follows now.
fn assert_followed(served: &Served) {
    served.until("a sale", |it| it.trade(0, "SELL").0 == 200);
    served.until("a payout", is_paid);
    let (status, _) = served.get(&format!("/v1/markets/{}", condition_id(2)));
    assert_eq!(status, 404, "no account holds its shares, and the operator does not follow it");
}

/// An account that holds shares can sell them and is paid, whichever markets the operator follows
/// now, and even if the market closed meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markets_with_open_positions_are_followed_after_a_restart() {
    let venue = StandIn::start(World::invented(4), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = holding(&venue).restart(&venue, &OTHER_MARKET);
        assert_followed(&served);
        served.until("the configured market", |it| it.trade(3, "BUY").0 == 200);
    });
    played.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_over_has_the_venues_books_by_then() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = Served::start(&venue);
        served.until("a fill", |it| it.buy().0 == 200);
        // The old server knows its markets by now.
        venue.misbehave_at(Endpoint::Keyset, EndpointFault::Slow(SLOW), u32::MAX);
        venue.misbehave_at(Endpoint::Named, EndpointFault::Slow(SLOW), u32::MAX);
        let served = served.taken_over(&venue);
        assert_eq!(fill_price(&served.buy()), best_ask(&venue));
        let (status, portfolio) =
            served.send(&Request::get("/v1/account/portfolio").key(served.key()));
        assert_eq!((status, &portfolio["positions"][0]["outcome"]), (200, &json!("Yes")));

        // A venue that does not answer does not keep it from taking over.
        let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
        venue.misbehave_at(Endpoint::Keyset, refused, u32::MAX);
        venue.misbehave_at(Endpoint::Named, refused, u32::MAX);
        let served = served.taken_over(&venue);
        assert_ne!(served.buy().0, 200);
        served.server.logged("has not sent its books in time");

        // Nobody serves after a crash, so nothing is waited for.
        let served = served.restart(&venue, &["--venue-markets", "2", "--take-over"]);
        served.server.logged("no server to take over from");
        assert!(served.server.log_lines("has not sent its books").is_empty());
    });
    played.await.unwrap();
}

/// As after a restart, and no later than that: the list comes once a minute.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markets_with_open_positions_are_followed_after_a_take_over() {
    let venue = StandIn::start(World::invented(4), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = holding(&venue).taken_over_with(&venue, &OTHER_MARKET);
        assert_eq!(served.trade(3, "BUY").0, 200);
        // They do not wait for the next list.
        let refused = EndpointFault::Refuse { status: 503, retry_after_s: None };
        venue.misbehave_at(Endpoint::Keyset, refused, u32::MAX);
        assert_followed(&served);
    });
    played.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_take_over_waits_for_no_books_if_no_market_passes_the_filter() {
    let venue = StandIn::start(World::invented(1), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = Served::start(&venue);
        let served = served.taken_over_with(&venue, &["--venue-slug", "no-such-thing"]);
        assert!(served.server.log_lines("has not sent its books").is_empty());
        assert_eq!(served.buy().0, 404);
    });
    played.await.unwrap();
}

/// Otherwise the server would follow nothing, and not say why.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slug_that_no_market_has_is_told_and_so_is_the_slug_of_an_event() {
    let venue = StandIn::start(World::invented(4), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let wanted = ["--venue-slug", "invented-event-0,no-such-thing,invented-thing-3"];
        let served = Served::run(|it| Served::follow(it, &venue, &wanted));
        let of_event = served.server.logged("the slug of an event");
        assert!(of_event.contains("slug=\"invented-event-0\""), "{of_event}");
        let markets = "invented-thing-0, invented-thing-1, invented-thing-2";
        assert!(of_event.contains(markets), "{of_event}");
        let unknown = served.server.logged("no open market has this slug");
        assert!(unknown.contains("invented-event-0, no-such-thing"), "{unknown}");
        served.until("the market that there is", |it| it.trade(3, "BUY").0 == 200);
        assert_eq!(served.server.log_lines("--venue filters"), [""; 0]);

        let served = Served::run(|it| Served::follow(it, &venue, &["--venue-tag", "99"]));
        served.server.logged("no open market passes the --venue filters");
    });
    played.await.unwrap();
}
