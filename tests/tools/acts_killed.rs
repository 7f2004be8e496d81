//! Operators act on an account that trades, while the server is killed and started again.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use paperbourse::money::{Rounding, Usd};
use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Connection, Request};
use serde_json::{Value, json};

use crate::accounts::account;
use crate::acts::journaled;
use crate::world::{MARKET, STARTING_BALANCE, Trader, json_of, start, text, tool};

const ROUNDS: u64 = 4;

/// The server is killed once this many acts of a round are done, during a further one.
const ACTS_PER_ROUND: u64 = 6;

/// What the operator knows to have happened.
#[derive(Default)]
struct Known {
    /// In millionths of a dollar.
    deposited: i64,
    deposit_count: u64,
    /// Suspensions and resumptions.
    turn_count: u64,
    is_suspended: bool,
}

/// How far a round is.
#[derive(Default)]
struct Round {
    /// Even while the account may trade, odd while it surely may not.
    turns: AtomicU64,
    is_over: AtomicBool,
    refused: AtomicU64,
    filled: AtomicU64,
}

/// The account trades until the server is gone.
fn trade(address: SocketAddr, key: &str, round: &Round) {
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    let order = Request::post("/trade", &order).key(key);
    let Ok(mut connection) = Connection::try_open(address) else { return };
    while !round.is_over.load(Ordering::SeqCst) {
        let before = round.turns.load(Ordering::SeqCst);
        let Ok(answer) = connection.try_send(&order) else { return };
        let is_suspended = before % 2 == 1 && round.turns.load(Ordering::SeqCst) == before;
        match answer.status {
            200 => assert!(!is_suspended, "a suspended account trades: {answer:?}"),
            403 => assert_eq!(answer.json()["error"], "ACCOUNT_SUSPENDED"),
            status => assert_eq!(status, 503, "{answer:?}"),
        }
        let count = if answer.status == 200 { &round.filled } else { &round.refused };
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// Asks once; `None` if the answer is lost.
fn act(data: &Path, arguments: &[&str]) -> Option<Value> {
    let common = ["--json", "--reason", "a test", "--subject", "owner", "--data", text(data)];
    let output = tool(&[&["account"], arguments, &common].concat());
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Deposits, suspends and resumes in turn, until an answer is lost. Returns the arguments of the
/// act that nobody has answered.
fn operate(data: &Path, known: &mut Known, round: &Round, done: &dyn Fn()) -> Vec<String> {
    loop {
        let number = known.deposit_count + known.turn_count;
        let arguments = if number.is_multiple_of(3) {
            let token = format!("{number:032x}");
            let amount = format!("{number}.25");
            vec!["deposit".to_owned(), "--amount".into(), amount, "--token".into(), token]
        } else if known.is_suspended {
            // From here on it may trade.
            round.turns.fetch_add(1, Ordering::SeqCst);
            vec!["resume".to_owned()]
        } else {
            vec!["suspend".to_owned()]
        };
        let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let Some(answer) = act(data, &words) else { return arguments };
        assert_eq!(answer["is_new"], true, "{answer}");
        known.note(&arguments);
        if arguments[0] == "suspend" {
            round.turns.fetch_add(1, Ordering::SeqCst);
        }
        done();
    }
}

impl Known {
    fn note(&mut self, arguments: &[String]) {
        if arguments[0] == "deposit" {
            self.deposited += micros(&json!(arguments[2]));
            self.deposit_count += 1;
        } else {
            self.is_suspended = arguments[0] == "suspend";
            self.turn_count += 1;
        }
    }
}

/// An amount in millionths of a dollar.
fn micros(amount: &Value) -> i64 {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    Usd::from_text(&text, Rounding::Exact).unwrap().micros()
}

#[test]
fn acts_happen_once_however_often_the_server_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut known = Known::default();
    let mut owner = None;
    let (mut filled, mut refused) = (0, 0);
    for number in 0..ROUNDS {
        let server = start(data);
        let owner = owner.get_or_insert_with(|| Trader::new(data, &server, "owner"));
        let round = Round { turns: u64::from(known.is_suspended).into(), ..Round::default() };
        let address = server.address;
        let (lost, server) = std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| trade(address, &owner.key, &round));
            }
            let (sender, receiver) = std::sync::mpsc::channel();
            let operator = scope.spawn(|| {
                // The receiver is gone once the kill is due.
                let done = move || {
                    let _ = sender.send(());
                };
                operate(data, &mut known, &round, &done)
            });
            for _ in 0..ACTS_PER_ROUND + number {
                receiver.recv().unwrap();
            }
            server.kill();
            round.is_over.store(true, Ordering::SeqCst);
            let lost = operator.join().unwrap();
            (lost, start(data))
        });
        filled += round.filled.load(Ordering::Relaxed);
        refused += round.refused.load(Ordering::Relaxed);
        // The same again, as often as one likes, does it once.
        let words: Vec<&str> = lost.iter().map(String::as_str).collect();
        for repeat in 0..2 {
            let answer = act(data, &words).expect("an answer");
            assert!(repeat == 0 || answer["is_new"] == false, "{answer}");
        }
        known.note(&lost);
        check(data, owner, &server, &known);
        server.kill();
    }
    assert!(filled > 0 && refused > 0, "{filled} orders filled, {refused} were refused");
}

/// Compares with a ledger that knows the deposits.
fn check(data: &Path, owner: &Trader, server: &ServerProcess, known: &Known) {
    let line = account(data, &["show", "--subject", "owner"]);
    let starting = STARTING_BALANCE * 1_000_000 + known.deposited;
    assert_eq!(micros(&line["starting_balance"]), starting, "{line}");
    let state = if known.is_suspended { "suspended" } else { "active" };
    assert_eq!(line["state"], state, "{line}");
    let mut connection = Connection::try_open(server.address).unwrap();
    let mut get = |path: &str| connection.send(&Request::get(path).key(&owner.key)).ok(200);
    let fills = journaled(data, "order_filled");
    let spent = |fill: &Value| micros(&fill["notional"]) + micros(&fill["fee"]);
    let cash = starting - fills.iter().map(spent).sum::<i64>();
    assert_eq!(micros(&line["balance"]), cash, "{line}");
    assert_eq!(micros(&get("/v1/account/balance")["balance"]), cash);
    let acts = journaled(data, "operator_acted");
    assert_eq!(acts.len() as u64, known.deposit_count + known.turn_count);
    let deposits = acts.iter().filter(|act| act["act"] == "deposit");
    let tokens: std::collections::BTreeSet<_> =
        deposits.map(|act| act["token"].as_str().unwrap()).collect();
    assert_eq!(tokens.len() as u64, known.deposit_count);
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!(code, 0, "{report}");
}
