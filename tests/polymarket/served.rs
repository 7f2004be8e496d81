//! The whole program at a venue that is the stand-in: a bot trades over HTTP.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::standin::world::{condition_id, token_id};
use crate::standin::{
    Endpoint, EndpointFault, Fault, Options, Payout, Side, StandIn, Which, World, micros,
};

/// A test that waits longer has failed.
const PATIENCE: Duration = Duration::from_mins(1);

/// Between two questions for the same thing.
const ASK_INTERVAL: Duration = Duration::from_millis(20);

/// The least that `--venue-fresh` takes.
const FRESH: Duration = Duration::from_secs(10);

/// A server of its own, killed at the end.
pub(crate) struct Served {
    address: SocketAddr,
    process: Child,
    key: String,
    folder: TempDir,
}

impl Served {
    /// Follows two markets of this venue, with an account that may trade.
    fn start(venue: &StandIn) -> Self {
        Self::run(|command| Self::follow(command, venue, &["--venue-markets", "2"]))
    }

    fn follow<'a>(command: &'a mut Command, venue: &StandIn, wanted: &[&str]) -> &'a mut Command {
        command
            .args(["--venue", "polymarket"])
            .args(wanted)
            .args(["--venue-fresh", &FRESH.as_secs().to_string()])
            .args(["--venue-gamma", &venue.gamma_url, "--venue-clob", &venue.clob_url])
            .args(["--venue-data", &venue.data_url, "--venue-socket", &venue.ws_url])
            .arg("--venue-ca")
            .arg(venue.authority_path.as_ref().unwrap())
    }

    /// Kills it and starts it again on what it has left, with other wishes.
    fn restart(mut self, venue: &StandIn, wanted: &[&str]) -> Self {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
        let (process, address) =
            Self::spawn(&self.folder, |command| Self::follow(command, venue, wanted));
        (self.process, self.address) = (process, address);
        self.until("ready", |it| it.get("/v1/health/ready").0 == 200);
        self
    }

    /// Plays what lies in this folder.
    pub(crate) fn play(recorded: &Path, arguments: &[&str]) -> Self {
        let venue = format!("recorded:{}", recorded.display());
        Self::run(|command| command.args(["--venue", &venue]).args(arguments))
    }

    fn run(venue: impl FnOnce(&mut Command) -> &mut Command) -> Self {
        let folder = TempDir::new().unwrap();
        let (process, address) = Self::spawn(&folder, venue);
        let data = folder.path().join("data");
        let mut served = Self { address, process, key: String::new(), folder };
        served.until("ready", |it| it.get("/v1/health/ready").0 == 200);
        let token = Command::new(env!("CARGO_BIN_EXE_paperbourse"))
            .args(["token", "--subject", "bot", "--data"])
            .arg(&data)
            .output()
            .unwrap();
        assert!(token.status.success(), "{token:?}");
        let bearer = format!("authorization: Bearer {}", String::from_utf8(token.stdout).unwrap());
        let wanted = json!({"permissions": ["read", "trade"]});
        let (status, made) = served.send("POST", "/v1/keys/bootstrap", bearer.trim(), &wanted);
        assert_eq!(status, 201, "{made}");
        made["raw_key"].as_str().unwrap().clone_into(&mut served.key);
        served
    }

    fn spawn(
        folder: &TempDir,
        venue: impl FnOnce(&mut Command) -> &mut Command,
    ) -> (Child, SocketAddr) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_paperbourse"));
        let mut process = venue(command.arg("serve"))
            .args(["--listen", "127.0.0.1:0", "--journal-segment-bytes", "1048576"])
            .args(["--workers", "1"])
            .args(["--tier", "free=unlimited/unlimited/2/5", "--address-limits", "off"])
            .arg("--data")
            .arg(folder.path().join("data"))
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut log = BufReader::new(process.stdout.take().unwrap());
        let mut line = String::new();
        log.read_line(&mut line).unwrap();
        let (_, address) = line.trim().split_once("listening on http://").unwrap();
        let address = address.parse().unwrap();
        // A full pipe would stop the server at its next line.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        (process, address)
    }

    /// The status and the body of the answer.
    fn send(&self, method: &str, path: &str, header: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() { String::new() } else { body.to_string() };
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: test\r\nconnection: close\r\n{header}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all((head + &body).as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, serde_json::from_str(body).unwrap())
    }

    fn get(&self, path: &str) -> (u16, Value) {
        self.send("GET", path, "accept: */*", &Value::Null)
    }

    /// One share of the first outcome of market 0.
    pub(crate) fn buy(&self) -> (u16, Value) {
        self.trade(0, "BUY")
    }

    fn trade(&self, market: usize, side: &str) -> (u16, Value) {
        let order = json!({
            "market_id": condition_id(market), "outcome": "Yes", "side": side, "quantity": 1,
        });
        self.send("POST", "/trade", &self.credential(), &order)
    }

    fn credential(&self) -> String {
        format!("x-api-key: {}", self.key)
    }

    pub(crate) fn until(&self, what: &str, is_so: impl Fn(&Self) -> bool) {
        let started = Instant::now();
        while !is_so(self) {
            assert!(started.elapsed() < PATIENCE, "not in time: {what}");
            // Every question is a connection, and there are only so many ports.
            std::thread::park_timeout(ASK_INTERVAL);
        }
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
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
async fn a_bot_fills_at_the_venues_price_or_not_at_all() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let health = |served: &Served| served.get("/v1/health/ready").1["status"].clone();
    let played = tokio::task::spawn_blocking(move || {
        let served = Served::start(&venue);
        served.until("books", |it| health(it) == "ok");
        assert_eq!(fill_price(&served.buy()), best_ask(&venue));
        // The best ask is gone: the next one is what a bot gets, and never the one before.
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
        served.until("degraded", |it| health(it) == "degraded");
        let (status, _) = served.get("/v1/health/ready?strict=true");
        assert_eq!(status, 503);

        venue.behave_at(Endpoint::Books);
        venue.misbehave(Which::Open, Fault::Drop);
        served.until("recovered", |it| health(it) == "ok");
        served.until("fills", |it| it.buy().0 == 200);
        assert_eq!(fill_price(&served.buy()), best_ask(&venue));
        assert_eq!(best_ask(&venue), micros(&asks[2].0));
    });
    played.await.unwrap();
}

/// Whoever holds shares can sell them, and is paid: whatever the operator wants to follow now, and
/// whatever has become of the market meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn markets_in_which_somebody_holds_shares_are_followed_after_a_restart() {
    let venue = StandIn::start(World::invented(4), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = Served::run(|it| Served::follow(it, &venue, &["--venue-markets", "3"]));
        for market in 0..3 {
            served.until("a fill", |it| it.trade(market, "BUY").0 == 200);
        }
        // Of market 2 nothing is left.
        assert_eq!(served.trade(2, "SELL").0, 200);
        let settlements = |it: &Served| {
            let path = "/v1/account/settlements";
            let (status, told) = it.send("GET", path, &it.credential(), &Value::Null);
            assert_eq!(status, 200, "{told}");
            told.to_string()
        };
        assert!(!settlements(&served).contains(&condition_id(1)));
        let wanted = ["--venue-slug", "invented-thing-3", "--venue-volume", "1"];
        venue.resolve(&condition_id(1), Payout::Winner(0));
        let served = served.restart(&venue, &wanted);
        served.until("a sale", |it| it.trade(0, "SELL").0 == 200);
        served.until("a payout", |it| settlements(it).contains(&condition_id(1)));
        served.until("what is wanted", |it| it.trade(3, "BUY").0 == 200);
        let (status, _) = served.get(&format!("/v1/markets/{}", condition_id(2)));
        assert_eq!(status, 404, "nobody holds shares of it, and nobody asked for it");
    });
    played.await.unwrap();
}
