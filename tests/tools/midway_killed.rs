//! The server is killed while it resets, gives a tier to, or erases an account that trades and
//! comments.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use paperbourse_test_support::process::ServerProcess;
use paperbourse_test_support::{Connection, Request};
use serde_json::{Value, json};

use crate::accounts::account;
use crate::acts::journaled;
use crate::world::{MARKET, STARTING_BALANCE, Trader, buy, json_of, start, text, tool};

const ROUNDS: u32 = 5;

/// Each round lets the server live this much longer; that of an erasure is killed at once in the
/// first.
const STEP: Duration = Duration::from_millis(7);

/// Sends a request again and again until the server is gone or the round is over.
fn repeat(address: SocketAddr, request: &Request, is_over: &AtomicBool) {
    let Ok(mut connection) = Connection::try_open(address) else { return };
    while !is_over.load(Ordering::SeqCst) && connection.try_send(request).is_ok() {}
}

fn order() -> Request {
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    Request::post("/trade", &order)
}

/// Acts on an account by its id; `None` if the answer is lost.
fn act(data: &Path, id: u64, arguments: &[&str]) -> Option<Value> {
    let (id, act) = (id.to_string(), arguments[0]);
    let common = ["--json", "--reason", "a test", "--data", text(data)];
    let output = tool(&[&["account", act, &id], &arguments[1..], &common].concat());
    output.status.success().then(|| serde_json::from_slice(&output.stdout).unwrap())
}

/// Kills the server while these acts are done one after the other, and these requests sent. Returns
/// the answers, and the act whose answer is lost.
fn kill_midway<'a>(
    data: &Path,
    id: u64,
    server: ServerProcess,
    acts: impl IntoIterator<Item = &'a [&'a str]> + Send,
    requests: &[Request],
    life: Duration,
) -> (Vec<Value>, Option<&'a [&'a str]>) {
    let (address, is_over) = (server.address, AtomicBool::new(false));
    thread::scope(|scope| {
        for request in requests {
            scope.spawn(|| repeat(address, request, &is_over));
        }
        let operator = scope.spawn(move || {
            let mut answers = Vec::new();
            for arguments in acts {
                match act(data, id, arguments) {
                    Some(answer) => answers.push(answer),
                    None => return (answers, Some(arguments)),
                }
            }
            (answers, None)
        });
        // When it dies is a matter of chance, and any moment will do.
        thread::park_timeout(life);
        server.kill();
        is_over.store(true, Ordering::SeqCst);
        operator.join().unwrap()
    })
}

fn count_of(acts: &[Value], name: &str) -> usize {
    acts.iter().filter(|act| act["act"] == name).count()
}

#[test]
fn resets_and_tiers_happen_once_and_stay() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut server = start(data);
    let owner = Trader::new(data, &server, "owner");
    let id = account(data, &["show", "--subject", "owner"])["account"].as_u64().unwrap();
    let cycle: [&[&str]; 4] =
        [&["reset"], &["tier", "--tier", "pro"], &["reset"], &["tier", "--tier", "free"]];
    let mut done = 0;
    let (mut reset_count, mut unsure_count) = (0, 0);
    let mut tier = None;
    for round in 0..ROUNDS {
        let requests = [order().key(&owner.key), order().key(&owner.key)];
        let acts = cycle.into_iter().cycle().skip(done);
        let life = Duration::from_millis(300) + round * STEP;
        let (answers, lost) = kill_midway(data, id, server, acts, &requests, life);
        let lost = lost.expect("the server is gone, and the acts have no end");
        for (answer, act) in answers.iter().zip(cycle.into_iter().cycle().skip(done)) {
            match *act {
                ["tier", .., given] => tier = Some(given),
                _ => reset_count += usize::from(answer["is_new"] == true),
            }
        }
        done += answers.len();
        server = start(data);
        let first = act(data, id, lost).expect("an answer");
        let again = act(data, id, lost).expect("an answer");
        assert_eq!(again["is_new"], false, "{again}");
        let line = account(data, &["show", "--subject", "owner"]);
        if let ["tier", .., given] = *lost {
            tier = Some(given);
        } else {
            // Orders may have come between the lost one and the end.
            reset_count += usize::from(first["is_new"] == true);
            unsure_count += 1;
            assert_eq!(line["balance"], STARTING_BALANCE.to_string(), "{line}");
            assert_eq!(line["open_positions"], 0, "{line}");
        }
        done += 1;
        assert_eq!(line["given_tier"].as_str(), tier, "{line}");
        let me = Connection::open(server.address).send(&Request::get("/v1/me").key(&owner.key));
        assert_eq!(me.header("x-ratelimit-tier"), Some(tier.unwrap_or("free")), "{me:?}");
        let resets = count_of(&journaled(data, "operator_acted"), "reset");
        let expected = reset_count..=reset_count + unsure_count;
        assert!(expected.contains(&resets), "{resets} resets are journaled, not {expected:?}");
        assert_eq!(journaled(data, "account_reset").len(), resets);
    }
    assert!(reset_count > 0);
    server.terminate();
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!(code, 0, "{report}");
}

#[test]
fn an_erasure_that_is_stopped_anywhere_can_be_finished() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let mut server = start(data);
    let other = Trader::new(data, &server, "other");
    let mut cut_short = 0;
    for round in 0..ROUNDS {
        let subject = format!("owner-{round}");
        let owner = Trader::new(data, &server, &subject);
        let id = account(data, &["show", "--subject", &subject])["account"].as_u64().unwrap();
        buy(&mut owner.connect(&server), "before");
        // On the order of somebody else, in another shard.
        let commented = buy(&mut other.connect(&server), &format!("commented-{round}"));
        let comments = format!("/trades/{commented}/comments");
        let comment = Request::post(&comments, &json!({"content": "words"})).key(&owner.key);
        Connection::open(server.address).send(&comment).ok(200);
        let requests = [order().key(&owner.key), comment];
        let erase: [&[&str]; 1] = [&["erase"]];
        let life = round * STEP;
        let (answers, _) = kill_midway(data, id, server, erase, &requests, life);
        server = start(data);
        let finished = act(data, id, &["erase"]).expect("it goes on with what is left");
        cut_short += usize::from(answers.is_empty());
        assert!(answers.is_empty() || finished["is_new"] == false, "{finished}");

        let line = account(data, &["show", &id.to_string()]);
        assert_eq!((&line["state"], &line["subject"]), (&json!("erased"), &json!("")), "{line}");
        let me = Request::get("/v1/me").key(&owner.key);
        assert_eq!(Connection::open(server.address).send(&me).status, 401);
        let shown = Request::get(&comments).key(&other.key);
        let shown = Connection::open(server.address).send(&shown).ok(200);
        let is_own = |comment: &Value| comment["account_id"] == id;
        assert!(!shown.as_array().unwrap().iter().any(is_own), "{shown}");
        let acts: Vec<Value> = journaled(data, "operator_acted");
        let own: Vec<Value> = acts.into_iter().filter(|act| act["account"] == id).collect();
        assert_eq!((count_of(&own, "suspend"), count_of(&own, "erase")), (1, 1), "{own:?}");
    }
    assert!(cut_short > 0, "no erasure was stopped");
    server.terminate();
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!(code, 0, "{report}");
}
