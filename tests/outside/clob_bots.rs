//! Bots of three of Polymarket's clients trade on a recording whose markets are resolved, without
//! and with trouble: each one's cash is what its own trades and payouts say, every position is paid
//! once, the server's memory does not grow, and nothing is raised but what was asked for.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Connection, Request};
use serde::Deserialize;
use serde_json::Value;

use super::clob::{BINARY, admin, clients, folder, host};
use super::{Script, output_of};

/// For how many seconds bots trade, and how many of each client there are, unless the variables say
/// other numbers. Nightly it is an hour, in which the recording plays a day.
const SECONDS: (&str, u64) = ("PAPERBOURSE_BOTS_SECONDS", 40);
const BOTS: (&str, u64) = ("PAPERBOURSE_BOTS", 2);

const SPEED: u64 = 24;

/// By how many bytes the server may grow in the second half, besides what it keeps of orders.
const GROWTH_BYTES_MAX: u64 = 8 << 20;

/// What it may keep of each turn of a bot, which places an order at most, in bytes.
const TURN_BYTES_MAX: u64 = 512;

const TROUBLE: &str = "seed=7,lost=3%,late=2%:200ms-900ms,reset=1%,restarting=1%:1s,not-run=2%,\
    cancel-only=1%:1s,post-only=1%:1s,blocked=0.3%:1s,limited=1%:1s,version=2%";

/// What the venue answers to bots whose view is a moment old.
const ANSWERS: [&str; 5] = [
    "no orders found to match with FAK order",
    "The market does not accept orders",
    "No orderbook exists",
    "invalid amount for a marketable BUY order",
    "the balance is not enough",
];

/// What clients raise in trouble, each in its words.
const RAISED: [(&str, &[&str]); 8] = [
    (
        "lost, reset",
        &[
            "Request exception!",
            "TransportError",
            "socket hang up",
            "ECONNRESET",
            "RemoteDisconnected",
        ],
    ),
    ("restarting", &["service not ready"]),
    ("not-run", &["could not run the execution"]),
    ("cancel-only", &["cancel-only"]),
    ("post-only", &["post-only mode"]),
    ("blocked", &[" 403 "]),
    ("limited", &["RateLimitError", " 429 "]),
    ("version", &["order_version_mismatch"]),
];

/// What came of the bots of a client.
#[derive(Deserialize, Debug)]
struct Settled {
    turns: u64,
    trades: u64,
    resolved: u64,
    wrong: Vec<String>,
    raised: BTreeMap<String, u64>,
}

fn setting((name, default): (&str, u64)) -> u64 {
    std::env::var(name).map_or(default, |number| number.parse().unwrap())
}

/// The memory of a process that is in use, in bytes.
fn resident_bytes(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kibibytes: u64 = line.trim().trim_end_matches(" kB").parse().unwrap();
    kibibytes << 10
}

/// Bots of each client, each kind with wallets of its own.
fn bots(clients: &Path, host: &str, seconds: u64) -> Vec<Script> {
    let count = setting(BOTS);
    let python = |package: &str| {
        let mut python = Command::new(clients.join("bin/python"));
        python.arg(folder().join("bots.py")).args([package, host]);
        python
    };
    let mut node = Command::new("node");
    node.arg(folder().join("bots.mjs")).arg(host).env("MODULES", clients);
    let commands = [python("py-clob-client-v2"), python("polymarket-client"), node];
    let commands = commands.into_iter().zip((1..).step_by(80));
    let start = |(mut command, first): (Command, u64)| {
        Script::start(command.args([first, count, seconds].map(|number| number.to_string())))
    };
    commands.map(start).collect()
}

/// Waits until all markets are resolved and paid.
fn wait_for_payouts(server: &ServerProcess, admin: SocketAddr) {
    let mut connection = Connection::open(server.address);
    loop {
        let markets = connection.send(&Request::get("/simplified-markets")).ok(200);
        let markets = markets["data"].as_array().unwrap();
        let has_winner = |market: &Value| {
            market["tokens"].as_array().unwrap().iter().any(|token| token["winner"] == true)
        };
        if !markets.is_empty() && markets.iter().all(has_winner) {
            break;
        }
        std::thread::yield_now();
    }
    let mut connection = Connection::open(admin);
    while !connection
        .send(&Request::get("/metrics"))
        .text
        .lines()
        .any(|line| line == "paperbourse_unsettled_markets 0")
    {
        std::thread::yield_now();
    }
}

/// Returns which kinds of trouble were raised. Nothing else may be.
fn kinds_raised<'a>(raised: impl Iterator<Item = &'a str>) -> Vec<&'static str> {
    let raised = raised.filter(|text| !ANSWERS.iter().any(|answer| text.contains(answer)));
    let kind = |text: &str| {
        let is = |(_, words): &&(&str, &[&str])| words.iter().any(|word| text.contains(word));
        RAISED.iter().find(is).unwrap_or_else(|| panic!("nobody asked for {text}")).0
    };
    let mut kinds: Vec<&str> = raised.map(kind).collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

/// Has bots trade, and returns which kinds of trouble they met.
#[track_caller]
fn trade(clients: &Path, plan: &str) -> Vec<&'static str> {
    let seconds = setting(SECONDS);
    let data = tempfile::tempdir().unwrap();
    let recording = data.path().join("recording");
    // It ends before the bots do.
    let minutes = (seconds * SPEED / 60).saturating_sub(3).max(5);
    let mut script = Command::new(clients.join("bin/python"));
    script.arg(folder().join("bots_tape.py")).arg(minutes.to_string()).arg(&recording);
    output_of(&mut script);

    let venue = format!("recorded:{}", recording.display());
    let speed = SPEED.to_string();
    let server = ServerProcess::start(
        BINARY,
        &data.path().join("data"),
        &[
            &["--venue", &venue, "--venue-speed", &speed, "--clob", "on"][..],
            &["--address-limits", "off", "--tier", "free=unlimited/unlimited/2/5"],
            &["--clob-trouble", "seed=7", "--admin-listen", "127.0.0.1:0"],
        ]
        .concat(),
    );
    let admin = admin(&server);
    let follow = |plan: &str| {
        let answer = Connection::open(admin).send(&Request::new("PUT", "/trouble").body(plan));
        assert_eq!(answer.status, 200, "{answer:?}");
    };
    let mut bots = bots(clients, &host(&server), seconds);
    for bots in &mut bots {
        assert_eq!(bots.line(), "ready\n");
    }
    follow(plan);
    for bots in &mut bots {
        assert_eq!(bots.line(), "half\n");
    }
    let half_bytes = resident_bytes(server.id());
    for bots in &mut bots {
        assert_eq!(bots.line(), "done\n");
    }
    let grown_bytes = resident_bytes(server.id()).saturating_sub(half_bytes);
    follow("");
    wait_for_payouts(&server, admin);

    let settle = |bots: &mut Script| {
        bots.say("settle");
        bots.json()
    };
    let settled: Vec<Settled> = bots.iter_mut().map(settle).collect();
    eprintln!("{half_bytes} bytes, then {grown_bytes} more; {settled:#?}");
    let turns: u64 = settled.iter().map(|it| it.turns).sum();
    let bound = GROWTH_BYTES_MAX + turns / 2 * TURN_BYTES_MAX;
    assert!(grown_bytes < bound, "{grown_bytes} of {bound}");
    for Settled { wrong, trades, resolved, .. } in &settled {
        assert!(wrong.is_empty(), "{wrong:#?}");
        assert!(*trades > 0 && *resolved > 0, "{settled:#?}");
    }
    kinds_raised(settled.iter().flat_map(|it| it.raised.keys().map(String::as_str)))
}

#[test]
fn bots_trade_through_resolutions() {
    let Some(clients) = clients() else { return };
    assert!(trade(&clients, "").is_empty());
}

#[test]
fn bots_trade_through_resolutions_and_trouble() {
    let Some(clients) = clients() else { return };
    let kinds = trade(&clients, TROUBLE);
    assert!(kinds.len() >= 4, "{kinds:?}");
}
