//! Restoring to moments of a busy time, from the data folder and from backups: what comes back is
//! the ledger of the clients at that moment, as their acknowledged answers add up to.
//!
//! `PAPERBOURSE_RESTORES` sets how many moments each part of the run restores, and
//! `PAPERBOURSE_RESTORE_SECONDS` how long the clients trade, 160 times a second then. With
//! `--nocapture` the run says what it does.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::sync::Mutex;
use std::time::{Duration, Instant, SystemTime};

use jiff::Timestamp;
use paperbourse_test_support::process::{ServerProcess, command};
use paperbourse_test_support::{Client, PATIENCE};
use serde_json::{Value, json};

use crate::damage::HEALTHY;
use crate::world::{
    BINARY, Load, MARKET, STARTING_BALANCE, Trader, comment, copy_folder, files, json_of,
    start_with, text, tool, write,
};

const TRADERS: usize = 4;

/// Restores while the load runs, as many after the server was killed, and as many from backups
/// alone. More in a long run.
fn rounds() -> usize {
    let rounds = std::env::var("PAPERBOURSE_RESTORES");
    rounds.map_or(4, |rounds| rounds.parse().expect("a number of restores"))
}

/// How long the load runs. Without it, the load is over after the restores beside it.
fn load_duration() -> Option<Duration> {
    let seconds = std::env::var("PAPERBOURSE_RESTORE_SECONDS").ok()?;
    Some(Duration::from_secs(seconds.parse().expect("a number of seconds")))
}

/// The pace of each of the traders of a load with a duration. Those of another go as fast as they
/// can, until they have sent [`UNPACED_MAX`] orders.
const PACE: Duration = Duration::from_millis(25);

/// On a busy machine, a load without a pace would make each restore longer than the last.
const UNPACED_MAX: usize = 4_000;

/// The load runs until at least this many snapshots were made and this much is archived.
const SNAPSHOTS_MIN: usize = 3;
const ARCHIVED_MIN: usize = 4;

fn now() -> Timestamp {
    Timestamp::try_from(SystemTime::now()).unwrap()
}

/// An acknowledged order.
#[derive(Clone, Debug)]
struct Order {
    name: String,
    id: u64,
    sent: Timestamp,
    answered: Timestamp,
    /// What the answer adds to cash and to shares, in millionths.
    cash: i64,
    shares: i64,
}

/// What a trader has, in millionths, added up from answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Holdings {
    orders: usize,
    cash: i64,
    shares: i64,
}

fn holdings(orders: &[Order]) -> Holdings {
    Holdings {
        orders: orders.len(),
        cash: STARTING_BALANCE * 1_000_000 + orders.iter().map(|order| order.cash).sum::<i64>(),
        shares: orders.iter().map(|order| order.shares).sum(),
    }
}

/// A decimal number, as a JSON number or text, in millionths.
fn micros(value: &Value) -> i64 {
    let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits = format!("{whole}{fraction:0<6}");
    digits.parse().unwrap_or_else(|error| panic!("{error}: {value}"))
}

/// Buys, sells and comments until the load is over. Requests follow one another, so the trader's
/// state at any moment is that after some number of the orders. At a pace, comments, whose texts
/// are long, are rarer.
fn trade(
    load: &Load,
    client: &mut Client,
    label: &str,
    pace: Option<Duration>,
    orders: &Mutex<Vec<Order>>,
) {
    let mut held = 0;
    let mut next = Instant::now();
    for number in 0_usize.. {
        if load.is_over() {
            return;
        }
        let pace = pace.or((number >= UNPACED_MAX).then_some(PACE));
        if let Some(pace) = pace {
            std::thread::sleep(next.saturating_duration_since(Instant::now()));
            next = Instant::max(next + pace, Instant::now());
        }
        let sells = held > 0 && number % 3 == 2;
        let quantity = 1 + number % 3;
        let quantity = if sells { quantity.min(held) } else { quantity };
        let name = format!("{label}-{number}");
        let body = json!({"market_id": MARKET, "outcome": "Yes", "quantity": quantity,
                          "side": if sells { "SELL" } else { "BUY" }, "client_order_id": name});
        let sent = now();
        let answer = write(client, "/trade", &body);
        let answered = now();
        let sign = if sells { 1 } else { -1 };
        let cash = sign * micros(&answer["notional"]) - micros(&answer["fee"]);
        let shares = -sign * micros(&answer["quantity"]);
        held = if sells { held - quantity } else { held + quantity };
        let id = answer["order_id"].as_u64().unwrap();
        orders.lock().unwrap().push(Order { name, id, sent, answered, cash, shares });
        if number % pace.map_or(2, |_| 16) == 0 {
            comment(client, id);
        }
    }
}

/// A moment, and what `restore` says about it.
struct Restored {
    to: To,
    report: Value,
}

#[derive(Clone, Copy, Debug)]
enum To {
    Time(Timestamp),
    Position(u64),
}

/// Restores a folder to a moment.
#[track_caller]
fn restore(from: &Path, target: &Path, to: To) -> Restored {
    let (flag, value) = match to {
        To::Time(time) => ("--to", time.to_string()),
        To::Position(position) => ("--to-position", position.to_string()),
    };
    let (report, code) = json_of(&["restore", text(from), text(target), flag, &value]);
    assert_eq!(code, 0, "{report}");
    Restored { to, report }
}

/// A repeatable choice: the fraction of a whole, in 1024ths.
fn fraction(seed: usize) -> u64 {
    let mixed = (seed as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed ^ (mixed >> 31)) % 1024
}

/// A time and a position.
type Mark = (Timestamp, u64);

/// A moment between these two, by position and by time in turn.
fn moment(round: usize, from: Mark, to: Mark) -> To {
    if round.is_multiple_of(2) {
        let elapsed = to.0.duration_since(from.0).as_micros();
        let micros = elapsed * i128::from(fraction(round)) / 1024;
        To::Time(from.0 + Duration::from_micros(u64::try_from(micros).unwrap()))
    } else {
        To::Position(from.1 + (to.1 - from.1) * fraction(round) / 1024)
    }
}

fn newest_position(data: &Path) -> u64 {
    let (report, _) = json_of(&["journal", "verify", text(data)]);
    report["last_position"].as_u64().unwrap()
}

/// Adds to the repository. Returns the report.
#[track_caller]
pub(crate) fn back_up(data: &Path, repository: &Path) -> Value {
    let (report, code) = json_of(&["backup", text(data), "--repository", text(repository)]);
    assert_eq!(code, 0, "{report}");
    report
}

fn snapshots_made(server: &ServerProcess) -> usize {
    server.log_lines("took a snapshot").len()
}

/// The traders, and their acknowledged orders.
struct Ledger {
    traders: Vec<Trader>,
    orders: [Mutex<Vec<Order>>; TRADERS],
}

#[test]
fn a_moment_of_a_busy_time_is_restored_as_the_clients_saw_it() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = start_with(&data, "17179869184");
    let traders: Vec<_> = (0..TRADERS)
        .map(|number| Trader::new(&data, &server, &format!("trader-{number}")))
        .collect();
    let ledger = Ledger { traders, orders: [const { Mutex::new(Vec::new()) }; TRADERS] };
    let repository = folder.path().join("repository");
    let report = back_up(&data, &repository);
    let began = (now(), report["last_position"].as_u64().unwrap());
    let (load, load_began, duration) = (Load::default(), Instant::now(), load_duration());
    let mut checked = Vec::new();
    let mut restore_next = |from: &Path, to: Mark| {
        let round = checked.len();
        let target = folder.path().join(format!("restored-{round}"));
        let restored = restore(from, &target, moment(round, began, to));
        if !load.is_over() {
            ledger.wait_for_orders_after(now());
        }
        let last = restored.report["last_position"].as_u64().unwrap();
        let counts = ledger.check(&restored);
        let elapsed = load_began.elapsed().as_secs();
        println!("{elapsed} s: restored {:?}, orders {counts:?}: equal", restored.to);
        checked.push((last, counts));
    };
    std::thread::scope(|scope| {
        let ends = load.ends();
        let pace = duration.map(|_| PACE);
        for (number, (trader, orders)) in ledger.traders.iter().zip(&ledger.orders).enumerate() {
            let (load, mut client) = (&load, trader.connect(&server));
            scope.spawn(move || trade(load, &mut client, &format!("t{number}"), pace, orders));
        }
        while snapshots_made(&server) < SNAPSHOTS_MIN
            || files(&data, "archive").len() < ARCHIVED_MIN
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        let rounds = u32::try_from(rounds()).unwrap();
        for round in 0..rounds {
            let part = duration.map_or(Duration::ZERO, |whole| whole * (round + 1) / rounds);
            std::thread::sleep(part.saturating_sub(load_began.elapsed()));
            restore_next(&data, (now(), newest_position(&data)));
            let report = back_up(&data, &repository);
            assert_eq!(report["begins_anew"], Value::Null, "{report}");
        }
        drop(ends);
    });
    let lasted = load_began.elapsed().as_secs().max(1);
    server.kill();
    let newest = (now(), newest_position(&data));
    let trades: usize = ledger.orders.iter().map(|orders| orders.lock().unwrap().len()).sum();
    let a_second = trades / usize::try_from(lasted).unwrap();
    println!("{trades} trades in {lasted} s, {a_second} a second; {} records", newest.1);
    for _ in 0..rounds() {
        restore_next(&data, newest);
    }
    let positions = positions(&data);
    let before = now();
    let report = back_up(&data, &repository);
    assert_eq!(
        (&report["begins_anew"], &report["last_position"]),
        (&Value::Null, &json!(newest.1))
    );
    // The data folder and its disk are gone.
    fs::remove_dir_all(&data).unwrap();
    for _ in 0..rounds() {
        restore_next(&repository, (before, newest.1));
    }
    // To the order, what was restored ends where the original says that it does.
    for (last, counts) in checked {
        for (orders, count) in ledger.orders.iter().zip(counts) {
            let orders = orders.lock().unwrap();
            let (before, after) = orders.split_at(count);
            assert!(before.iter().all(|order| positions[&order.id] <= last), "{last}: {count}");
            assert!(after.iter().all(|order| positions[&order.id] > last), "{last}: {count}");
        }
    }
    let (report, code) = json_of(&["backup", "verify", text(&repository)]);
    assert_eq!((code, &report["points"]), (0, &json!(rounds() + 2)), "{report}");
}

/// The position of each fill, from a dump of the original folder.
fn positions(data: &Path) -> HashMap<u64, u64> {
    let mut dump = command(BINARY)
        .args(["journal", "dump", text(data), "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut positions = HashMap::new();
    for line in BufReader::new(dump.stdout.take().unwrap()).lines() {
        let row: Value = serde_json::from_str(&line.unwrap()).unwrap();
        for event in row["events"].as_array().unwrap() {
            if event["kind"] == "order_filled" {
                let order = event["order"].as_u64().unwrap();
                positions.insert(order, row["position"].as_u64().unwrap());
            }
        }
    }
    assert!(dump.wait().unwrap().success());
    positions
}

impl Ledger {
    /// Waits until everything that was decided by this time was answered.
    fn wait_for_orders_after(&self, time: Timestamp) {
        let began = Instant::now();
        for orders in &self.orders {
            while orders.lock().unwrap().last().is_none_or(|order| order.sent <= time) {
                assert!(began.elapsed() < PATIENCE, "a trader no longer trades");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    }

    /// Starts a server on what was restored and compares it with the ledger of each trader.
    /// Returns how many orders of each were restored.
    fn check(&self, Restored { to, report }: &Restored) -> [usize; TRADERS] {
        let target = Path::new(report["target"].as_str().unwrap());
        if let To::Position(position) = to {
            assert_eq!(report["last_position"], *position, "{report}");
        }
        let server = start_with(target, "33554432");
        let counts = std::array::from_fn(|number| {
            let mut client = self.traders[number].connect(&server);
            let portfolio = client.get("/v1/account/portfolio").ok(200);
            let position = portfolio["positions"].as_array().unwrap().first();
            let found = Holdings {
                orders: usize::try_from(portfolio["total_trades"].as_u64().unwrap()).unwrap(),
                cash: micros(&portfolio["balance"]["balance"]),
                shares: position.map_or(0, |position| micros(&position["quantity"])),
            };
            let (newest, later) = {
                let orders = self.orders[number].lock().unwrap();
                if let To::Time(time) = to {
                    let answered = orders.partition_point(|order| order.answered < *time);
                    let sent = orders.partition_point(|order| order.sent <= *time);
                    assert!((answered..=sent).contains(&found.orders), "{to:?}: {report}");
                }
                assert_eq!(found, holdings(&orders[..found.orders]), "{to:?}: {report}");
                let newest = found.orders.checked_sub(1).map(|at| orders[at].name.clone());
                (newest, orders.get(found.orders).map(|order| order.name.clone()))
            };
            if let Some(newest) = newest {
                let found = client.get(&format!("/v1/orders?client_order_id={newest}"));
                assert!(found.text.contains(&newest), "{to:?}: {}", found.text);
            }
            if let Some(later) = later {
                // The name is free again, and the server goes on trading.
                let body = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY",
                                  "quantity": 1, "client_order_id": later});
                let placed = client.post("/trade", &body);
                assert!(placed.status != 200 || !placed.is_replay(), "{to:?}: {}", placed.text);
            }
            found.orders
        });
        server.interrupt();
        let (report, code) = json_of(&["journal", "verify", text(target)]);
        assert_eq!((code, &report["damage"]), (0, &Value::Null), "{report}");
        fs::remove_dir_all(target).unwrap();
        counts
    }
}

#[test]
fn moments_that_are_not_there_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let (data, pruned) = (folder.path().join("data"), folder.path().join("pruned"));
    let target = folder.path().join("target");
    copy_folder(HEALTHY.path(), &data);
    copy_folder(HEALTHY.path(), &pruned);
    fs::remove_dir_all(pruned.join("archive")).unwrap();
    let before = fs::read_dir(folder.path()).unwrap().count();
    for (from, flag, moment, code, expected) in [
        (&data, "--to-position", "99999999", 1, "position 99999999 is too late: the newest"),
        (&data, "--to", "2020-01-01T00:00:00Z", 1, "2020-01-01T00:00:00Z is too early: what is "),
        (&data, "--to", "2020-01-01T00:00:00Z", 1, "left begins at position 1, decided at 20"),
        (&data, "--to", "2200-01-01T00:00:00+02:00", 1, "2199-12-31T22:00:00Z is in the future"),
        (&pruned, "--to-position", "1", 1, "position 1 is too early: what is left begins at pos"),
        (&data, "--to", "yesterday", 2, "expected a time with its zone, up to"),
        (&data, "--to", "2026-11-24T10:00:00", 2, "expected a time with its zone, up to"),
        (&data, "--to-position", "0", 2, "invalid value '0' for '--to-position"),
        (&folder.path().join("none"), "--to-position", "1", 1, "holds no journal"),
    ] {
        let output = tool(&["restore", text(from), text(&target), flag, moment]);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{moment}: {errors}");
        assert!(errors.contains(expected), "{moment}: {errors}");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), before, "nothing is left behind");
    }
    let (report, code) = json_of(&["restore", text(&pruned), text(&target)]);
    assert_eq!((code, &report["next_time"]), (0, &Value::Null), "{report}");
}

#[test]
fn every_position_of_a_folder_can_be_restored() {
    let folder = tempfile::tempdir().unwrap();
    let (verified, _) = json_of(&["journal", "verify", text(HEALTHY.path())]);
    let newest = verified["last_position"].as_u64().unwrap();
    // The first and the last records of each part, and some between them.
    let covered = verified["covered"]["records"].as_u64().unwrap();
    for position in [1, 2, covered / 2, covered - 1, covered, covered + 1, newest - 1, newest] {
        let target = folder.path().join(position.to_string());
        let Restored { report, .. } = restore(HEALTHY.path(), &target, To::Position(position));
        assert_eq!(report["last_position"], position, "{report}");
        assert_eq!(report["next_time"].is_null(), position == newest, "{report}");
        let (again, code) = json_of(&["journal", "verify", text(&target)]);
        assert_eq!((code, &again["last_position"]), (0, &json!(position)), "{again}");
        // What was decided last is found by its time as well.
        let time = report["last_time"].as_str().unwrap().parse().unwrap();
        let by_time = folder.path().join(format!("{position}-by-time"));
        let Restored { report: by_time, .. } = restore(HEALTHY.path(), &by_time, To::Time(time));
        assert!(by_time["last_position"].as_u64().unwrap() >= position, "{by_time}");
        assert_eq!(by_time["last_time"], report["last_time"], "{by_time}");
    }
}
