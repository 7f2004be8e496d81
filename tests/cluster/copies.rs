//! Nodes that begin with a copy: of another node's folder, since the brokers keep no more of a log
//! than they must, and of the data of a single server.

use std::collections::BTreeMap;
use std::fs;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use paperbourse_test_support::NOBODY;
use paperbourse_test_support::brokers::{self, Brokers};
use paperbourse_test_support::process::command;
use tempfile::TempDir;

use crate::load::{Addresses, Load, Trader};
use crate::nodes::{Nodes, ask};
use crate::{BINARY, check, cluster_file, cluster_on_brokers, status_once};

/// How many orders are placed before the log is trimmed, and how many after.
const ORDERS: usize = 40;

/// The fewest blocks that a log ever has: the owner appends heartbeats in between.
const BLOCKS_MAX: usize = 20;

/// How often a node is stopped until that was in the middle of its copy.
const STOPS_MAX: usize = 10;

/// How often a log is released until a certain node has it.
const RELEASES_MAX: usize = 30;

/// How many blocks the brokers have of the log.
fn blocks(status: &str) -> usize {
    number(status, "  blocks ")
}

/// Whether the brokers have removed blocks of the log.
fn is_trimmed(status: &str) -> bool {
    blocks(status) < number(status, "  tail ")
}

/// The number behind these words.
fn number(status: &str, words: &str) -> usize {
    let (_, rest) = status.split_once(words).unwrap();
    rest.split_whitespace().next().unwrap().parse().unwrap()
}

/// Runs a node whose data is not enough, and returns once it has that of another.
pub(crate) fn run_on_others_data(nodes: &mut Nodes, number: usize) {
    nodes.run(number);
    let process = nodes.process(number);
    process.wait_for_line(|line| line.contains("copied another node's data"));
    process.wait_for_line(|line| line.contains("standing by node="));
}

/// Sets the folder of a node aside, and runs it on the data of another.
fn run_anew(nodes: &mut Nodes, number: usize) {
    let data = nodes.data(number);
    fs::rename(&data, data.with_extension("aside")).unwrap();
    run_on_others_data(nodes, number);
}

/// Two nodes, an account with as many orders as there are before a trim, and a log that is trimmed
/// all the time.
struct Trimmed {
    // Dropped in this order.
    nodes: Nodes,
    _brokers: Brokers,
    _folder: TempDir,
    file: PathBuf,
    addresses: Arc<Addresses>,
    trader: Trader,
}

impl Trimmed {
    /// `None` if there is no program for brokers.
    fn start() -> Option<Self> {
        let (folder, brokers, file) = cluster_on_brokers("keep_minutes = 0")?;
        let nodes = Nodes::start(folder.path(), &file, 2);
        nodes.owner();
        let addresses = nodes.addresses.clone();
        let trader = Trader::new(folder.path(), &addresses.lock().unwrap(), 0);
        let started = Self { nodes, _brokers: brokers, _folder: folder, file, addresses, trader };
        started.buy(0..ORDERS);
        Some(started)
    }

    /// Places these orders, and waits until the brokers have removed nearly all blocks.
    fn buy(&self, orders: Range<usize>) {
        orders.for_each(|number| self.trader.buy(&self.addresses, number));
        status_once(&self.file, |status| blocks(status) < BLOCKS_MAX);
    }

    /// Checks that this node owns the log, and has all orders.
    fn check(&self, owner: usize) {
        assert_eq!(self.nodes.owner(), owner);
        self.trader.check(self.addresses.lock().unwrap()[owner]);
    }
}

#[test]
fn a_node_that_comes_late_begins_with_the_data_of_another() {
    let Some(mut trimmed) = Trimmed::start() else { return };
    let Trimmed { nodes, trader, addresses, .. } = &mut trimmed;

    // On what a copy that was interrupted has left.
    let snapshots = nodes.data(2).join("incoming.tmp").join("snapshots");
    fs::create_dir_all(&snapshots).unwrap();
    fs::write(snapshots.join("00000000000000000007.snapshot"), "half of one").unwrap();
    run_on_others_data(nodes, 2);
    assert!(!nodes.data(2).join("incoming").exists());
    (ORDERS..2 * ORDERS).for_each(|number| trader.buy(addresses, number));

    // A standby that was away for a moment, on a log that is trimmed all the time.
    let owner = nodes.owner();
    let standby = (owner + 1) % 2;
    nodes.processes[standby] = None;
    nodes.run(standby);
    nodes.processes[owner] = None;
    nodes.processes[standby] = None;
    trimmed.check(2);

    // One that was away for too long says what to do.
    run_anew(&mut trimmed.nodes, 0);
    trimmed.buy(2 * ORDERS..3 * ORDERS);
    let nodes = &mut trimmed.nodes;
    let late = nodes.serve(1).output().unwrap();
    let error = String::from_utf8(late.stderr).unwrap();
    assert!(error.contains("it was removed before it was read here"), "{error}");
    assert_eq!(late.status.code(), Some(1));
    run_anew(nodes, 1);
    nodes.processes[0] = None;
    nodes.processes[2] = None;
    trimmed.check(1);
}

/// A new node stands still between its copy and its look at the log.
#[test]
fn a_copy_that_the_log_has_outrun_is_made_anew() {
    let Some(mut trimmed) = Trimmed::start() else { return };
    for stop in 1.. {
        assert!(stop <= STOPS_MAX, "the node is always faster than its stop");
        trimmed.nodes.run(2);
        let copying = "copying another node's data";
        trimmed.nodes.process(2).wait_for_line(|line| line.contains(copying));
        trimmed.nodes.process(2).signal("-STOP");
        let address = std::mem::replace(&mut trimmed.addresses.lock().unwrap()[2], NOBODY);
        trimmed.buy(ORDERS * stop..ORDERS * (stop + 1));
        trimmed.addresses.lock().unwrap()[2] = address;
        let node = trimmed.nodes.process(2);
        node.signal("-CONT");
        node.wait_for_line(|line| line.contains("standing by node="));
        if !node.log_lines("copying anew").is_empty() {
            break;
        }
        trimmed.nodes.processes[2] = None;
        fs::remove_dir_all(trimmed.nodes.data(2)).unwrap();
    }
    (trimmed.nodes.processes[0], trimmed.nodes.processes[1]) = (None, None);
    trimmed.check(2);
}

/// The other nodes come later than one without data.
#[test]
fn a_node_without_data_waits_for_one_that_has_some() {
    let Some(mut trimmed) = Trimmed::start() else { return };
    let Trimmed { nodes, trader, addresses, .. } = &mut trimmed;
    let owner = nodes.owner();
    nodes.end(1 - owner);
    nodes.end(owner);
    nodes.run(2);
    nodes.process(2).wait_for_line(|line| line.contains("waiting for a node to copy from"));
    let answer = ask(addresses.lock().unwrap()[2], &trader.positions()).unwrap();
    assert_eq!(answer.ok(503)["error"], "NOT_READY");
    nodes.run(owner);
    nodes.process(2).wait_for_line(|line| line.contains("copied another node's data"));
    nodes.process(2).wait_for_line(|line| line.contains("standing by node="));
    nodes.processes[owner] = None;
    trimmed.check(2);
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
    run_on_others_data(&mut nodes, 1);
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
    let load = Load::new(2, folder.path(), &nodes);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = load.begin(scope, &addresses, &is_over);
        let more = || running.wait_for_orders(ORDERS, || {});
        more();
        status_once(&file, is_trimmed);
        run_on_others_data(&mut nodes, 2);
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
    });
    println!("{} requests were told to come again", load.refused());
    assert_eq!(load.take_cut_off(), [""; 0], "all ends were planned");
    let owner = nodes.check(&load);
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
