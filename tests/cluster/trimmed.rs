//! Brokers that keep no more of a log than they must, and a node that comes too late for the rest.

use paperbourse_test_support::brokers::{self, Brokers};
use paperbourse_test_support::process::command;
use tempfile::TempDir;

use crate::nodes::{Nodes, Trader};
use crate::{BINARY, check, cluster_file, status_once};

/// How many orders are placed before the log is trimmed, and how many after.
const ORDERS: usize = 40;

/// The fewest blocks that a log ever has: the owner appends heartbeats in between.
const BLOCKS_MAX: usize = 20;

/// How many blocks the brokers have of the log.
fn blocks(status: &str) -> usize {
    let (_, blocks) = status.split_once("  blocks ").unwrap();
    blocks.split_whitespace().next().unwrap().parse().unwrap()
}

#[test]
fn a_node_that_comes_late_begins_with_a_copy_of_another() {
    let Some(program) = brokers::program() else { return };
    let folder = TempDir::new().unwrap();
    let brokers = Brokers::start(&program, folder.path(), "always", "");
    let file = cluster_file(folder.path(), &brokers, "keep_minutes = 0");
    check(&["init"], &file, 0);
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

    let mut backup = command(BINARY);
    backup.arg("backup").arg(nodes.data(0)).arg(nodes.data(2));
    assert!(backup.status().unwrap().success());
    nodes.run(2);
    let standing_by = |line: &str| line.contains("standing by node=");
    nodes.processes[2].as_ref().unwrap().wait_for_line(standing_by);
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
