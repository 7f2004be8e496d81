//! The tools beside a running server that constantly writes, rotates, snapshots and archives.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use serde_json::Value;

use paperbourse_test_support::process::ServerProcess;

use crate::world::{Load, Trader, files, json_of, start, text, tool};

/// Each tool runs at least this often, and until the server has made this many snapshots.
const ROUNDS_MIN: usize = 5;
const SNAPSHOTS_MIN: u64 = 2;
const CONNECTIONS: usize = 2;

/// The number of the newest snapshot, or 0 if there is none.
fn newest_snapshot(data: &Path) -> u64 {
    let names = files(data, "snapshots").into_iter().filter_map(|path| {
        let name = path.file_name()?.to_str()?.strip_suffix(".snapshot")?.to_owned();
        name.parse().ok()
    });
    names.max().unwrap_or(0)
}

#[test]
fn all_tools_work_beside_a_running_server() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let server = start(&data);
    let traders: Vec<_> = (0..CONNECTIONS)
        .map(|number| Trader::new(&data, &server, &format!("trader-{number}")))
        .collect();
    let load = Load::default();
    let (acknowledged, report): (Vec<String>, Value) = std::thread::scope(|scope| {
        let ends = load.ends();
        for (number, trader) in traders.iter().enumerate() {
            let (load, mut client) = (&load, trader.connect(&server));
            scope.spawn(move || load.run(&mut client, &format!("t{number}")));
        }
        let (mut snapshots, mut newest) = (0, 0);
        let (mut position, mut backup) = (0, None);
        for round in 0.. {
            if round >= ROUNDS_MIN && snapshots >= SNAPSHOTS_MIN {
                break;
            }
            position = check_round(&data, position);
            let target = folder.path().join("backup");
            if target.exists() {
                std::fs::remove_dir_all(&target).unwrap();
            }
            let acknowledged = load.acknowledged();
            let (report, code) = json_of(&["backup", text(&data), text(&target)]);
            assert_eq!(code, 0, "{report}");
            backup = Some((acknowledged, report));
            let number = newest_snapshot(&data);
            snapshots += u64::from(number > newest);
            newest = number;
        }
        drop(ends);
        backup.unwrap()
    });
    assert!(!files(&data, "archive").is_empty(), "segments were archived meanwhile");
    check_backup(&traders, &acknowledged, &report);
    drop(server);
}

/// Runs each tool that only reads. Returns the last verified position.
fn check_round(data: &Path, position_before: u64) -> u64 {
    let (report, code) = json_of(&["journal", "verify", text(data)]);
    assert_eq!((code, &report["damage"]), (0, &Value::Null), "{report}");
    let position = report["last_position"].as_u64().unwrap();
    assert!(position > position_before, "the load goes on: {report}");

    let (stats, code) = json_of(&["journal", "stats", text(data)]);
    assert_eq!(code, 0, "{stats}");
    let number = |name: &str| stats[name].as_u64().unwrap();
    assert!(number("last_position") >= position, "{stats}");
    assert_eq!(number("last_position") - number("first_position") + 1, number("records"));

    let from = position.to_string();
    let dumped = tool(&["journal", "dump", text(data), "--from", &from]);
    let errors = String::from_utf8_lossy(&dumped.stderr);
    assert!(dumped.status.success() && errors.is_empty(), "{errors}");
    let lines = String::from_utf8(dumped.stdout).unwrap();
    for (expected, line) in (position..).zip(lines.lines()) {
        assert_eq!(line.split(' ').next().unwrap(), expected.to_string(), "{line}");
    }
    assert!(!lines.is_empty());
    position
}

/// Starts a server on a backup and checks that it has every order acknowledged before.
fn check_backup(traders: &[Trader], acknowledged: &[String], report: &Value) {
    let target = Path::new(report["target"].as_str().unwrap());
    let key = target.join("issuer/ed25519.pk8");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(report["has_issuer_key"], true);
    let server = start(target);
    let mut clients: Vec<_> = traders.iter().map(|trader| trader.connect(&server)).collect();
    for name in acknowledged {
        let number: usize = name[1..name.find('-').unwrap()].parse().unwrap();
        let answer = clients[number].get(&format!("/v1/orders?client_order_id={name}"));
        assert!(answer.status == 200 && answer.text.contains(name), "{name}: {}", answer.text);
    }
    assert!(!acknowledged.is_empty());
    check_writable(target, server);
}

/// A restored folder accepts writes and is undamaged afterwards.
fn check_writable(target: &Path, server: ServerProcess) {
    let trader = Trader::new(target, &server, "newcomer");
    crate::world::buy(&mut trader.connect(&server), "after");
    server.interrupt();
    let (report, code) = json_of(&["journal", "verify", text(target)]);
    assert_eq!((code, &report["damage"]), (0, &Value::Null), "{report}");
}
