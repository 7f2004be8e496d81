//! Nodes that begin with a copy: of another node's folder, since the brokers keep no more of a log
//! than they must, and of the data of a single server.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::thread;

use paperbourse_test_support::brokers::{self, Brokers};
use paperbourse_test_support::process::command;
use tempfile::TempDir;

use crate::nodes::{Nodes, Over, Trader, trade_all, wait_for_orders};
use crate::{BINARY, check, cluster_file, cluster_on_brokers, status_once};

/// How many orders are placed before the log is trimmed, and how many after.
const ORDERS: usize = 40;

/// The fewest blocks that a log ever has: the owner appends heartbeats in between.
const BLOCKS_MAX: usize = 20;

/// How often a log is released until a certain node has it.
const RELEASES_MAX: usize = 30;

/// How many blocks the brokers have of the log.
fn blocks(status: &str) -> usize {
    let (_, blocks) = status.split_once("  blocks ").unwrap();
    blocks.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_node_that_comes_late_begins_with_a_copy_of_another() {
    let Some((folder, _brokers, file)) = cluster_on_brokers("keep_minutes = 0") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, 2);
    nodes.owner();
    let addresses = nodes.addresses.clone();
    let trader = Trader::new(folder.path(), &addresses.lock().unwrap(), 0);
    (0..ORDERS).for_each(|number| trader.buy(&addresses, number));
    status_once(&file, |status| blocks(status) < BLOCKS_MAX);

    // On an empty folder.
    let late = nodes.serve(2).output().unwrap();
    let error = String::from_utf8(late.stderr).unwrap();
    assert!(error.contains("it was removed before it was read here"), "{error}");
    assert!(error.contains("`paperbourse backup`"), "{error}");
    assert_eq!(late.status.code(), Some(1));
    std::fs::remove_dir_all(nodes.data(2)).unwrap();

    nodes.run_on_copy(2, 0);
    (ORDERS..2 * ORDERS).for_each(|number| trader.buy(&addresses, number));

    // A standby that was away for a moment, on a log that is trimmed all the time.
    let owner = nodes.owner();
    let standby = (owner + 1) % 2;
    nodes.processes[standby] = None;
    nodes.run(standby);
    nodes.processes[owner] = None;
    nodes.processes[standby] = None;
    assert_eq!(nodes.owner(), 2);
    trader.check(addresses.lock().unwrap()[2]);
}

#[test]
fn a_single_server_becomes_the_first_node() {
    let Some(program) = brokers::program() else { return };
    let folder = TempDir::new().unwrap();
    let brokers = Brokers::start(&program, folder.path(), "always", "");
    let file = cluster_file(folder.path(), &brokers, "");
    let mut nodes = Nodes::start(folder.path(), &file, 0);
    let data = nodes.data(0);
    let from = data.to_str().unwrap();
    let addresses = nodes.addresses.clone();

    // It starts twice, so that its journal is in its second epoch.
    nodes.run_alone(0);
    let trader = Trader::new(folder.path(), &addresses.lock().unwrap(), 0);
    (0..10).for_each(|number| trader.buy(&addresses, number));
    let (_, error) = check(&["init", "--from", from], &file, 1);
    assert!(error.contains("is in use by another process"), "{error}");
    nodes.processes[0] = None;
    nodes.run_alone(0);
    (10..20).for_each(|number| trader.buy(&addresses, number));
    nodes.processes[0] = None;

    let empty = folder.path().to_str().unwrap();
    let (_, error) = check(&["init", "--from", empty], &file, 1);
    assert!(error.contains("cannot import"), "{error}");
    for expected in ["created 1 log\n", "created 0 logs, 1 exists already\n"] {
        assert_eq!(check(&["init", "--from", from], &file, 0).0, expected);
    }
    nodes.run(0);
    assert_eq!(nodes.owner(), 0);
    (20..30).for_each(|number| trader.buy(&addresses, number));

    // Nobody else has what the log begins with.
    let late = nodes.serve(1).output().unwrap();
    let error = String::from_utf8(late.stderr).unwrap();
    assert!(error.contains("the log continues older data"), "{error}");
    std::fs::remove_dir_all(nodes.data(1)).unwrap();
    nodes.run_on_copy(1, 0);
    nodes.processes[0] = None;
    assert_eq!(nodes.owner(), 1);
    trader.check(addresses.lock().unwrap()[1]);

    let (_, error) = check(&["init", "--from", from], &file, 1);
    assert!(error.contains("already belongs to a node of a cluster"), "{error}");
}

/// What a folder has of the log: its records, by position.
fn records(data: &Path) -> BTreeMap<u64, String> {
    let dump = command(BINARY).args(["journal", "dump"]).arg(data).output().unwrap();
    assert!(dump.status.success(), "{}", String::from_utf8_lossy(&dump.stderr));
    let text = String::from_utf8(dump.stdout).unwrap();
    let numbered = text.lines().map(|line| line.trim_start().split_once(' ').unwrap());
    numbered.map(|(position, record)| (position.parse().unwrap(), record.to_owned())).collect()
}

#[test]
fn a_node_joins_under_load_serves_and_leaves_again() {
    let Some((folder, _brokers, file)) = cluster_on_brokers("keep_minutes = 0") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, 2);
    nodes.all_answer();
    let addresses = nodes.addresses.clone();
    let traders = Trader::several(2, folder.path(), &nodes);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        let threads = trade_all(scope, &traders, &addresses, &is_over);
        let more = || wait_for_orders(&traders, &threads, ORDERS, || {});
        more();
        nodes.run_on_copy(2, nodes.owner());
        more();
        for release in 0.. {
            let owner = nodes.all_answer();
            if owner == 2 {
                break;
            }
            assert!(release < RELEASES_MAX, "the new node never gets the log");
            nodes.end(owner);
            more();
            nodes.run(owner);
        }
        more();
        nodes.end(2);
        more();
        drop(over);
    });
    let refused: usize = traders.iter().map(Trader::refused).sum();
    println!("{refused} requests were told to come again");
    let cut_off: Vec<String> = traders.iter().flat_map(Trader::take_cut_off).collect();
    assert_eq!(cut_off, [""; 0], "all ends were planned");
    let owner = nodes.check(&traders);
    nodes.end(1 - owner);
    nodes.end(owner);
    let copies = [0, 1, 2].map(|number| records(&nodes.data(number)));
    let whole = &copies[owner];
    assert!(whole.len() > 4 * ORDERS);
    for copy in &copies {
        assert!(copy.len() > ORDERS, "{}", copy.len());
        let differing = copy.iter().find(|&(position, record)| whole.get(position) != Some(record));
        assert_eq!(differing, None, "all copies are of one log");
    }
}
