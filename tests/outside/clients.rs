//! The sockets through libraries that nobody here wrote, under load: each client subscribes to all
//! markets and to its account's fills while the account trades, and checks what it gets.
//! `.ci/clients` installs the libraries of Python and Node, and `.ci/sdk` the official SDK, whose
//! libraries the recipes of the guide need too.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use paperbourse_test_support::process::{ServerProcess, command};
use paperbourse_test_support::{Client, Connection, Request};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::installed;

mod recipes;
mod tungstenite;

/// The binary under test.
const BINARY: &str = env!("CARGO_BIN_EXE_paperbourse");

/// How long each client listens while its account trades, in seconds.
const SECONDS: u64 = 2;
/// Set to a number of seconds for longer.
const SECONDS_VARIABLE: &str = "PAPERBOURSE_CLIENT_SECONDS";

/// The close codes of both sockets.
const BOTH_CLOSED: [u64; 2] = [1000, 1000];

/// The most markets of a socket.
const MARKETS_MAX: usize = 50;

/// A server whose prices change all the time, and an account there.
struct World {
    server: ServerProcess,
    _data: TempDir,
    key: String,
    markets: Vec<String>,
}

/// What a client has to say at the end.
#[derive(Debug)]
struct Report {
    /// Number of prices.
    prices: u64,
    /// The order of each fill.
    orders: Vec<u64>,
    /// The close codes that the server sent, as far as the client tells.
    closes: Vec<u64>,
}

impl World {
    fn start() -> Self {
        let data = tempfile::tempdir().unwrap();
        let unlimited = ["--tier", "free=unlimited/unlimited/2/5", "--address-limits", "off"];
        let lively = ["--venue", "simulated:1", "--venue-speed", "20", "--venue-delay", "off"];
        let flags = [&unlimited[..], &lively, &["--starting-balance", "1000000"]].concat();
        let server = ServerProcess::start(BINARY, data.path(), &flags);
        let mut minting = command(BINARY);
        let minted = minting.args(["token", "--subject", "client", "--data"]).arg(data.path());
        let token = String::from_utf8(minted.output().unwrap().stdout).unwrap();
        let mut client = Client::with_token(server.address, token.trim_end());
        let key = client.post("/v1/keys/bootstrap", &json!({})).ok(201)["raw_key"].clone();
        let listed = Connection::open(server.address).send(&Request::get("/v1/markets")).ok(200);
        let markets = listed.as_array().unwrap().iter().take(MARKETS_MAX);
        let markets = markets.map(|market| text(&market["condition_id"])).collect();
        Self { key: text(&key), server, _data: data, markets }
    }

    /// Trades for a while. Returns the orders that were filled.
    fn trade(&self) -> Vec<u64> {
        let seconds = std::env::var(SECONDS_VARIABLE).map_or(SECONDS, |text| text.parse().unwrap());
        let mut client = Client::with_key(self.server.address, &self.key);
        let began = Instant::now();
        let mut orders = Vec::new();
        let mut markets = self.markets.iter().cycle();
        while began.elapsed() < Duration::from_secs(seconds) || orders.is_empty() {
            let market = markets.next().unwrap();
            for side in ["BUY", "SELL"] {
                let order =
                    json!({"market_id": market, "outcome": "yes", "side": side, "quantity": 5});
                let answer = client.post("/trade", &order);
                // A market may just have closed, or its other side be empty.
                if answer.status == 200 {
                    orders.push(answer.json()["order_id"].as_u64().unwrap());
                }
            }
        }
        orders
    }
}

fn text(value: &Value) -> String {
    value.as_str().unwrap().to_owned()
}

/// Where `.ci/clients` has installed the libraries; `None` if it has not, which fails in CI.
fn libraries() -> Option<PathBuf> {
    installed("clients", "no other client is installed (.ci/clients does it), so none was tried")
}

/// Where `.ci/sdk` has installed the official SDK; `None` if it has not, which fails in CI.
fn sdk(consequence: &str) -> Option<PathBuf> {
    installed("sdk", &format!("the SDK is not installed (.ci/sdk does it), so {consequence}"))
}

/// Compares what a client has seen with what happened.
#[track_caller]
fn check(world: &World, orders: &[u64], report: &Report, expected_closes: &[u64]) {
    let Report { prices, orders: seen, closes } = report;
    assert_eq!(closes, expected_closes);
    // Not to print thousands of numbers.
    assert!(seen == orders, "{} fills seen, {} made", seen.len(), orders.len());
    assert!(*prices > world.markets.len() as u64, "{prices} prices of {}", world.markets.len());
    println!("{prices} prices, {} fills", orders.len());
}

/// Runs a client that is a program of its own.
#[track_caller]
fn run(mut program: Command, closes: &[u64]) {
    let world = World::start();
    let mut client = program
        .arg(format!("ws://{}", world.server.address))
        .arg(&world.key)
        .args(&world.markets)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(client.stdout.take().unwrap()).lines();
    assert_eq!(lines.next().unwrap().unwrap(), "ready");
    let orders = world.trade();
    writeln!(client.stdin.take().unwrap(), "{}", orders.last().unwrap()).unwrap();
    let report: Value = serde_json::from_str(&lines.next().unwrap().unwrap()).unwrap();
    let numbers = |name: &str| {
        report[name].as_array().unwrap().iter().map(|it| it.as_u64().unwrap()).collect()
    };
    let prices = report["prices"].as_u64().unwrap();
    check(
        &world,
        &orders,
        &Report { prices, orders: numbers("orders"), closes: numbers("closes") },
        closes,
    );
    assert!(client.wait().unwrap().success());
}

#[track_caller]
fn run_python(script: &str) {
    let Some(libraries) = libraries() else { return };
    let mut python = Command::new(libraries.join("bin/python"));
    python.arg(folder().join(script));
    run(python, &BOTH_CLOSED);
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/outside/clients")
}

#[test]
fn python_with_websockets() {
    run_python("with_websockets.py");
}

#[test]
fn python_with_aiohttp() {
    run_python("with_aiohttp.py");
}

#[test]
fn python_with_the_sdk() {
    let Some(installed) = sdk("its streams were not tried") else { return };
    let mut python = Command::new(installed.join("bin/python"));
    python.arg(folder().join("with_sdk.py"));
    run(python, &[]);
}

#[test]
fn node_with_ws() {
    let Some(libraries) = libraries() else { return };
    let mut node = Command::new("node");
    node.arg(folder().join("with_ws.mjs")).env("MODULES", libraries);
    run(node, &BOTH_CLOSED);
}

#[test]
fn rust_with_tungstenite() {
    let world = World::start();
    let address: SocketAddr = world.server.address;
    let client = tungstenite::Listener::start(address, &world.key, &world.markets);
    let orders = world.trade();
    let report = client.end(*orders.last().unwrap());
    check(&world, &orders, &report, &BOTH_CLOSED);
}
