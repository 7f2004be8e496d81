//! Network partitions: nodes that reach no broker, brokers that reach no other broker, and several
//! faults at once.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::thread;
use std::time::Instant;

use paperbourse_test_support::brokers::{self, Brokers};
use paperbourse_test_support::link::Link;
use paperbourse_test_support::process::Process;
use tempfile::TempDir;

use crate::load::Load;
use crate::nodes::{EXIT_LOG_LOST, NODES, Nodes, leader};
use crate::{new_cluster, setting};

/// How many orders must be acknowledged before and after each cut.
const ORDERS: usize = 40;

/// What happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Cut {
    /// The owner of the log reaches no broker.
    Owner,
    /// The broker that leads the log reaches no other broker, but still all its clients.
    Leader,
    /// Both.
    OwnerAndLeader,
    /// The owner is killed while that broker is cut off.
    OwnerKilled,
    /// Both are killed.
    BothKilled,
}

const CUTS: [Cut; 5] =
    [Cut::Owner, Cut::Leader, Cut::BothKilled, Cut::OwnerAndLeader, Cut::OwnerKilled];

/// How many of them there are by default.
const CUTS_DEFAULT: usize = 3;

/// The links of each node to the brokers, and the file that each node has.
fn link_nodes(folder: &Path, file: &Path, brokers: &Brokers) -> (Vec<Vec<Link>>, Vec<PathBuf>) {
    let of_node = |number| {
        let mut text = fs::read_to_string(file).unwrap();
        let link = |address: &String| {
            let target: SocketAddr = address.strip_prefix("nats://").unwrap().parse().unwrap();
            let link = Link::to(target);
            text = text.replace(address, &format!("nats://{}", link.address));
            link
        };
        let links = brokers.addresses().iter().map(link).collect();
        let path = folder.join(format!("node-{number}.toml"));
        fs::write(&path, text).unwrap();
        (links, path)
    };
    (0..NODES).map(of_node).unzip()
}

/// Starts nodes again that have lost the log, as a supervisor does.
fn supervise(nodes: &mut Nodes) {
    for number in 0..NODES {
        let ended = nodes.processes[number].as_mut().and_then(Process::try_wait);
        if let Some(status) = ended {
            assert_eq!(status.code(), Some(EXIT_LOG_LOST), "node {number}");
            nodes.run(number);
        }
    }
}

/// Three cuts; `PAPERBOURSE_CLUSTER_CUTS=100` for a long run.
#[test]
fn acknowledged_orders_survive_networks_that_are_cut() {
    let Some(program) = brokers::program() else { return };
    let folder = TempDir::new().unwrap();
    let mut brokers = Brokers::start_linked(&program, folder.path());
    let file = new_cluster(folder.path(), &brokers, "");
    let (links, files) = link_nodes(folder.path(), &file, &brokers);
    let mut nodes = Nodes::start(folder.path(), &file, 0).with_files(files);
    (0..NODES).for_each(|number| nodes.run(number));
    nodes.all_answer();
    let addresses = nodes.addresses.clone();
    let load = Load::new(3, folder.path(), &nodes);

    let count = setting("PAPERBOURSE_CLUSTER_CUTS", CUTS_DEFAULT);
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = load.begin(scope, &addresses, &is_over);
        let more = |nodes: &mut Nodes| running.wait_for_orders(ORDERS, || supervise(nodes));
        for cut in CUTS.into_iter().cycle().take(count) {
            more(&mut nodes);
            let (owner, leader, began) = (nodes.owner(), leader(&file), Instant::now());
            if matches!(cut, Cut::Owner | Cut::OwnerAndLeader) {
                links[owner].iter().for_each(Link::cut);
            }
            if matches!(cut, Cut::Leader | Cut::OwnerAndLeader | Cut::OwnerKilled) {
                brokers.cut_off(leader);
            }
            if matches!(cut, Cut::OwnerKilled | Cut::BothKilled) {
                nodes.processes[owner] = None;
            }
            if cut == Cut::BothKilled {
                brokers.kill(leader);
            }
            more(&mut nodes);
            assert!(!matches!(cut, Cut::Owner | Cut::OwnerAndLeader) || nodes.owner() != owner);
            let pause = load.longest_pause(began);
            println!("{cut:?}: node {owner}, broker {leader}, no order for {pause:?}");
            brokers.join(leader);
            links[owner].iter().for_each(Link::mend);
            if cut == Cut::BothKilled {
                brokers.restart(leader);
            }
            if nodes.processes[owner].is_none() {
                nodes.run(owner);
            }
        }
        more(&mut nodes);
    });
    nodes.check(&load);
}
