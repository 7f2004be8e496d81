//! Three nodes on three brokers: whichever of them is killed, stopped or asked to end, no
//! acknowledged order is lost or doubled, and no read is older than an answer before it.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::brokers::BROKERS;
use paperbourse_test_support::process::{Process, command};
use paperbourse_test_support::{Connection, NOBODY, PATIENCE, Request, Response};

use crate::load::Load;
use crate::{BINARY, PAUSE, cluster_on_brokers, setting, status_once};

/// How many nodes there are.
pub(crate) const NODES: usize = 3;

/// How many accounts trade, each on a thread of its own.
const TRADERS: usize = 3;

/// How many orders must be acknowledged between two faults.
const ORDERS: usize = 60;

/// All faults; `PAPERBOURSE_CLUSTER_FAULTS=100` for a long run.
const FAULTS_DEFAULT: usize = FAULTS.len();

/// A market of the simulated venue that is always open.
pub(crate) const MARKET: &str =
    "0xfbedbcd006f8debf0a24458901c7d2b6129d3a14e398cfb275c00cef14bcf8d9";

/// Arguments of nodes whose clients have no limits.
pub(crate) const UNLIMITED: [&str; 2] = ["--tier", "free=unlimited/unlimited/100/5"];

/// A node that does not answer within this time is left for another.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// What each account begins with, in dollars.
pub(crate) const STARTING_BALANCE: &str = "1000000";

/// The header that names the node that has answered, if it is another than the one that was asked.
pub(crate) const OWNER: &str = "x-paperbourse-owner";

/// The exit code of a node that has lost its log to another.
pub(crate) const EXIT_LOG_LOST: i32 = 75;

/// What happens to the owner of the log.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// It is killed and started again at once. Two of these in a row: its folder has then seen more
    /// starts than those of the others.
    Restarted,
    /// It is killed, and started again once another node owns the log.
    Killed,
    /// It is asked to end, and releases the log.
    Ended,
    /// It stands still until another node owns the log, and goes on.
    Stopped,
    /// The broker that leads the log is killed, and comes back.
    Broker,
}

const FAULTS: [Fault; 6] = [
    Fault::Restarted,
    Fault::Restarted,
    Fault::Killed,
    Fault::Stopped,
    Fault::Ended,
    Fault::Broker,
];

/// The nodes of a cluster, as clients see them.
pub(crate) struct Nodes {
    folder: PathBuf,
    /// The file of the cluster for each node.
    files: Vec<PathBuf>,
    /// The arguments of nodes that tests choose, which come last.
    arguments: Vec<String>,
    /// `None` while a node does not run.
    pub(crate) processes: Vec<Option<Process>>,
    /// Where the nodes listen now.
    pub(crate) addresses: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Nodes {
    /// Nodes whose data is in this folder. Starts so many of them.
    pub(crate) fn start(folder: &Path, file: &Path, count: usize) -> Self {
        let mut nodes = Self {
            folder: folder.to_owned(),
            files: vec![file.to_owned(); NODES],
            arguments: UNLIMITED.map(str::to_owned).to_vec(),
            processes: (0..NODES).map(|_| None).collect(),
            addresses: Arc::new(Mutex::new(vec![NOBODY; NODES])),
        };
        (0..count).for_each(|number| nodes.run(number));
        nodes
    }

    /// Starts nodes with these arguments from now on, and with limits unless they say so.
    pub(crate) fn with(mut self, arguments: &[&str]) -> Self {
        self.arguments = arguments.iter().map(|&argument| argument.to_owned()).collect();
        self
    }

    /// Starts each node with a file of its own from now on.
    pub(crate) fn with_files(self, files: Vec<PathBuf>) -> Self {
        Self { files, ..self }
    }

    /// The data folder of a node.
    pub(crate) fn data(&self, number: usize) -> PathBuf {
        self.folder.join(format!("node-{number}"))
    }

    /// The command that starts a node.
    pub(crate) fn serve(&self, number: usize) -> Command {
        let mut serve = self.serve_alone(number);
        serve.arg("--cluster").arg(&self.files[number]);
        serve.args(["--node", &format!("node-{number}")]);
        serve
    }

    /// The command that starts a single server on a node's folder.
    fn serve_alone(&self, number: usize) -> Command {
        let mut serve = command(BINARY);
        serve.args(["serve", "--listen", "127.0.0.1:0", "--workers", "1"]);
        serve.args(["--address-limits", "off", "--starting-balance", STARTING_BALANCE]);
        // The faster the books move, the more resting orders fill.
        serve.args(["--venue-speed", "30", "--keep-orders", "1000000"]);
        serve.args(["--journal-segment-bytes", "1048576", "--snapshot-bytes", "1"]);
        serve.arg("--data").arg(self.data(number));
        serve.arg("--issuer-data").arg(self.folder.join("issuer"));
        serve.args(&self.arguments);
        serve
    }

    pub(crate) fn run(&mut self, number: usize) {
        self.spawn(number, self.serve(number));
    }

    pub(crate) fn run_alone(&mut self, number: usize) {
        self.spawn(number, self.serve_alone(number));
        self.owner();
    }

    fn spawn(&mut self, number: usize, mut serve: Command) {
        let process = Process::spawn(&mut serve);
        let line = process.wait_for_line(|line| line.contains("listening on http://"));
        let (_, address) = line.split_once("listening on http://").unwrap();
        self.addresses.lock().unwrap()[number] = address.trim().parse().unwrap();
        self.processes[number] = Some(process);
    }

    /// The node that answers itself, once there is one.
    pub(crate) fn owner(&self) -> usize {
        self.wait(|nodes| {
            nodes.running().find(|&number| nodes.answers_by(number) == Some(Answers::Itself))
        })
    }

    /// Waits until all nodes that run answer. Returns the one that does so itself.
    pub(crate) fn all_answer(&self) -> usize {
        self.wait(|nodes| {
            let answers = nodes.running().map(|number| Some((number, nodes.answers_by(number)?)));
            let answers = answers.collect::<Option<Vec<_>>>()?;
            let owner = answers.iter().find(|(_, answers)| *answers == Answers::Itself);
            owner.map(|&(number, _)| number)
        })
    }

    fn running(&self) -> impl Iterator<Item = usize> {
        (0..NODES).filter(|&number| self.processes[number].is_some())
    }

    /// What `found` returns, once that is something.
    fn wait<T>(&self, found: impl Fn(&Self) -> Option<T>) -> T {
        let began = Instant::now();
        loop {
            if let Some(found) = found(self) {
                return found;
            }
            let lines = self.processes.iter().flatten().map(|process| process.log_lines(""));
            assert!(began.elapsed() < 4 * PATIENCE, "{:?}", lines.collect::<Vec<_>>());
            thread::sleep(PAUSE);
        }
    }

    /// Who answers what this node is asked; `None` if nobody does.
    fn answers_by(&self, number: usize) -> Option<Answers> {
        let address = self.addresses.lock().unwrap()[number];
        let answer = ask(address, &Request::get("/v1/health/ready"))?;
        (answer.status == 200).then(|| match answer.header(OWNER) {
            Some(_) => Answers::Another,
            None => Answers::Itself,
        })
    }

    /// Checks at the owner that each order was decided once, as it was answered. Returns the owner.
    pub(crate) fn check(&self, load: &Load) -> usize {
        let owner = self.owner();
        load.check(self.addresses.lock().unwrap()[owner]);
        owner
    }

    /// Asks a node to end, and waits until it has.
    pub(crate) fn end(&mut self, number: usize) {
        self.process(number).signal("-TERM");
        assert!(self.process(number).wait().success(), "node {number}");
        self.processes[number] = None;
    }

    pub(crate) fn process(&mut self, number: usize) -> &mut Process {
        self.processes[number].as_mut().unwrap()
    }
}

/// Who answers what a node is asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Answers {
    Itself,
    /// The node passes it on.
    Another,
}

pub(crate) fn ask(address: SocketAddr, request: &Request) -> Option<Response> {
    let mut connection = Connection::try_open_within(address, ANSWER_TIME_MAX).ok()?;
    connection.try_send(request).ok()
}

/// The broker that leads the log.
pub(crate) fn leader(file: &Path) -> usize {
    let printed = status_once(file, |printed| printed.contains("leader broker-"));
    let (_, leader) = printed.split_once("leader broker-").unwrap();
    leader[..1].parse().unwrap()
}

/// The next node need not wait until it has missed a sign of life.
#[test]
fn a_node_that_ends_while_it_takes_the_log_gives_it_up() {
    let Some((folder, _brokers, file)) = cluster_on_brokers("") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, 2);
    let owner = nodes.all_answer();
    let standby = 1 - owner;
    nodes.process(owner).signal("-KILL");
    nodes.process(standby).wait_for_line(|line| line.contains("taking the log former=node-"));
    nodes.process(standby).signal("-TERM");
    assert!(nodes.process(standby).wait().success());
    nodes.run(2);
    let line = nodes.process(2).wait_for_line(|line| line.contains("taking the log former="));
    assert!(line.contains("former=nobody"), "{line}");
    assert_eq!(nodes.owner(), 2);
}

#[test]
fn acknowledged_orders_survive_the_loss_of_nodes_and_brokers() {
    let Some((folder, mut brokers, file)) = cluster_on_brokers("logs = 1") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, NODES);
    nodes.owner();
    let addresses = nodes.addresses.clone();
    let load = Load::new(TRADERS, folder.path(), &nodes);

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let running = load.begin(scope, &addresses, &is_over);
        let more = || running.wait_for_orders(ORDERS, || {});
        let count = setting("PAPERBOURSE_CLUSTER_FAULTS", FAULTS_DEFAULT);
        let mut pauses: BTreeMap<String, Vec<Duration>> = BTreeMap::new();
        for fault in FAULTS.into_iter().cycle().take(count) {
            more();
            let owner = nodes.owner();
            let began = Instant::now();
            match fault {
                Fault::Restarted => {
                    nodes.processes[owner] = None;
                    nodes.run(owner);
                }
                Fault::Killed => nodes.processes[owner] = None,
                Fault::Ended => {
                    nodes.process(owner).signal("-TERM");
                    assert!(nodes.process(owner).wait().success());
                    let released = nodes.process(owner).log_lines("released the log");
                    assert_eq!(released.len(), 1);
                    nodes.processes[owner] = None;
                }
                Fault::Stopped => {
                    // Its clients leave it.
                    let address = std::mem::replace(&mut addresses.lock().unwrap()[owner], NOBODY);
                    let mut connection = Connection::open(address);
                    nodes.process(owner).signal("-STOP");
                    let mut stopped = nodes.processes[owner].take().unwrap();
                    more();
                    // It finds this question before it can know that it was deposed.
                    connection.write(&load.traders[0].positions().to_bytes());
                    stopped.signal("-CONT");
                    if let Ok(answer) = connection.try_read(false) {
                        assert_eq!(answer.status, 503, "an answer from the past: {answer:?}");
                    }
                    assert_eq!(stopped.wait().code(), Some(EXIT_LOG_LOST));
                }
                Fault::Broker => {
                    let leader = leader(&file);
                    brokers.kill(leader);
                    more();
                    brokers.restart(leader);
                    assert!(leader < BROKERS);
                }
            }
            let next = nodes.owner();
            more();
            let pause = load.longest_pause(began);
            println!("{fault:?}: node {owner}, then {next}, no order for {pause:?}");
            pauses.entry(format!("{fault:?}")).or_default().push(pause);
            let cut_off = load.take_cut_off();
            let is_planned = matches!(fault, Fault::Ended);
            assert!(!is_planned || cut_off.is_empty(), "a node that ends answers: {cut_off:?}");
            if nodes.processes[owner].is_none() {
                nodes.run(owner);
            }
        }
        for (fault, mut pauses) in pauses {
            pauses.sort();
            let (count, median) = (pauses.len(), pauses[pauses.len() / 2]);
            println!(
                "{fault} {count} times: no order for {median:?}, at most {:?}",
                pauses[count - 1]
            );
        }
    });
    nodes.check(&load);
}
