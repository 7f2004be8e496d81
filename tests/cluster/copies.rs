//! Nodes that begin with a copy: of another node's folder, since the brokers keep no more of a log
//! than they must, and of the data of a single server.

use paperbourse_test_support::brokers::{self, Brokers};
use tempfile::TempDir;

use crate::nodes::{Nodes, Trader};
use crate::{check, cluster_file, status_once};

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
    assert!(error.contains("the log continues the data of a single server"), "{error}");
    std::fs::remove_dir_all(nodes.data(1)).unwrap();
    nodes.run_on_copy(1, 0);
    nodes.processes[0] = None;
    assert_eq!(nodes.owner(), 1);
    trader.check(addresses.lock().unwrap()[1]);

    let (_, error) = check(&["init", "--from", from], &file, 1);
    assert!(error.contains("already belongs to a node of a cluster"), "{error}");
}
