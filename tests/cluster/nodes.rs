//! Three nodes on three brokers: whichever of them is killed, stopped or asked to end, no
//! acknowledged order is lost or doubled, and no read is older than an answer before it.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use paperbourse_test_support::brokers::BROKERS;
use paperbourse_test_support::process::{Process, command};
use paperbourse_test_support::{Connection, NOBODY, PATIENCE, Request, Response};
use serde_json::{Value, json};

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
const ANSWER_TIME_MAX: Duration = Duration::from_secs(5);

/// A node that ends waits a little longer than this for the first byte of a new connection.
const FIRST_BYTE_TIME_MAX: Duration = Duration::from_millis(250);

/// How soon a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The time between two looks at a position.
const WATCH_PAUSE: Duration = Duration::from_millis(20);

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
        serve.args(["--address-limits", "off", "--starting-balance", "1000000"]);
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

    /// Runs a node on a copy of another one's folder, and returns once it stands by.
    pub(crate) fn run_on_copy(&mut self, number: usize, original: usize) {
        let mut backup = command(BINARY);
        backup.arg("backup").arg(self.data(original)).arg(self.data(number));
        assert!(backup.status().unwrap().success());
        self.run(number);
        self.process(number).wait_for_line(|line| line.contains("standing by node="));
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
    pub(crate) fn check(&self, traders: &[Trader]) -> usize {
        let owner = self.owner();
        let address = self.addresses.lock().unwrap()[owner];
        for trader in traders {
            trader.check(address);
        }
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

/// An account that buys one share after the other, and looks at its position in between.
pub(crate) struct Trader {
    pub(crate) key: String,
    name: String,
    /// The node that it asks first.
    first: usize,
    /// How many orders were begun.
    begun: AtomicUsize,
    /// The orders that were acknowledged, by name.
    acknowledged: Mutex<BTreeMap<String, u64>>,
    /// When they were.
    acknowledged_at: Mutex<Vec<Instant>>,
    /// How many requests were told that no node can answer them now.
    refused: AtomicUsize,
    /// Why nobody said what became of requests that were sent.
    cut_off: Mutex<Vec<String>>,
}

impl Trader {
    pub(crate) fn new(folder: &Path, addresses: &[SocketAddr], number: usize) -> Self {
        let name = format!("trader-{number}");
        let mut token = command(BINARY);
        token.args(["token", "--subject", &name, "--data"]).arg(folder.join("issuer"));
        let token = String::from_utf8(token.output().unwrap().stdout).unwrap();
        let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(token.trim());
        let answer = answered(addresses, &bootstrap);
        let key = answer.ok(201)["raw_key"].as_str().unwrap().to_owned();
        Self {
            key,
            name,
            first: number,
            begun: AtomicUsize::new(0),
            acknowledged: Mutex::default(),
            acknowledged_at: Mutex::default(),
            refused: AtomicUsize::new(0),
            cut_off: Mutex::default(),
        }
    }

    /// This many accounts.
    pub(crate) fn several(count: usize, folder: &Path, nodes: &Nodes) -> Vec<Self> {
        let addresses = nodes.addresses.lock().unwrap().clone();
        (0..count).map(|number| Self::new(folder, &addresses, number)).collect()
    }

    /// Why nobody has said since the last call what became of requests.
    pub(crate) fn take_cut_off(&self) -> Vec<String> {
        std::mem::take(&mut *self.cut_off.lock().unwrap())
    }

    /// How many requests were told that no node can answer them now.
    pub(crate) fn refused(&self) -> usize {
        self.refused.load(Ordering::Relaxed)
    }

    /// How many orders are acknowledged.
    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    fn trade(&self, addresses: &Mutex<Vec<SocketAddr>>, is_over: &AtomicBool) {
        for number in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            self.buy(addresses, number);
            // A node that owned the log before the order must not answer this from its memory.
            let addresses = addresses.lock().unwrap().clone();
            for address in addresses {
                let answer = ask(address, &self.positions());
                if let Some(answer) = answer.filter(|answer| answer.status == 200) {
                    assert_eq!(shares(&answer.json()), number + 1, "{}: {answer:?}", self.name);
                }
            }
        }
    }

    /// Looks at the position at one node after the other, while orders are placed. No look shows
    /// less than what was acknowledged or seen before it, nor more than was ordered by then.
    fn watch(&self, addresses: &Mutex<Vec<SocketAddr>>, is_over: &AtomicBool) {
        let mut least = 0;
        for turn in 0.. {
            if is_over.load(Ordering::Relaxed) {
                return;
            }
            let address = {
                let addresses = addresses.lock().unwrap();
                addresses[turn % addresses.len()]
            };
            least = least.max(self.count());
            let answer = ask(address, &self.positions());
            if let Some(answer) = answer.filter(|answer| answer.status == 200) {
                let shown = shares(&answer.json());
                let most = self.begun.load(Ordering::SeqCst);
                assert!((least..=most).contains(&shown), "{shown} of {least} to {most}");
                least = shown;
            }
            thread::sleep(WATCH_PAUSE);
        }
    }

    /// Places the order with this number, however often that takes.
    pub(crate) fn buy(&self, addresses: &Mutex<Vec<SocketAddr>>, number: usize) {
        self.begun.fetch_max(number + 1, Ordering::SeqCst);
        let name = format!("{}-{number}", self.name);
        let answer = self.until_answered(addresses, &self.order(&name));
        let id = answer.ok(200)["order_id"].as_u64().unwrap();
        self.acknowledged.lock().unwrap().insert(name, id);
        self.acknowledged_at.lock().unwrap().push(Instant::now());
    }

    fn until_answered(&self, addresses: &Mutex<Vec<SocketAddr>>, request: &Request) -> Response {
        let began = Instant::now();
        loop {
            let mut addresses = addresses.lock().unwrap().clone();
            let first = self.first % addresses.len();
            addresses.rotate_left(first);
            for address in addresses {
                let opened = Instant::now();
                let connection = Connection::try_open_within(address, ANSWER_TIME_MAX);
                let Ok(mut connection) = connection else { continue };
                connection.try_write(&request.to_bytes());
                let is_late = opened.elapsed() > FIRST_BYTE_TIME_MAX;
                match connection.try_read(request.is_head()) {
                    Ok(answer) if answer.status < 500 => return answer,
                    Ok(answer) if answer.status == 504 => {
                        assert_eq!(answer.json()["error"], "OUTCOME_UNKNOWN");
                        self.cut_off.lock().unwrap().push(answer.text);
                    }
                    Ok(answer) => {
                        assert_eq!(answer.json()["error"], "NOT_READY");
                        self.refused.fetch_add(1, Ordering::Relaxed);
                    }
                    // A slow node is left for another, and one that ends does not wait long.
                    Err(error) if error.kind() == ErrorKind::WouldBlock || is_late => {}
                    Err(error) => self.cut_off.lock().unwrap().push(error.to_string()),
                }
            }
            assert!(began.elapsed() < 4 * PATIENCE, "{}: nobody answers", self.name);
            thread::sleep(RETRY_PAUSE);
        }
    }

    /// Checks that each order was decided once, as it was answered, and paid for.
    pub(crate) fn check(&self, address: SocketAddr) {
        let acknowledged = self.acknowledged.lock().unwrap();
        let positions = ask(address, &self.positions()).unwrap().ok(200);
        assert_eq!(shares(&positions), acknowledged.len(), "{}", self.name);
        let mut spent = 0;
        for (name, &id) in acknowledged.iter() {
            let answer = ask(address, &self.order(name)).unwrap();
            assert!(answer.is_replay(), "{name}: {answer:?}");
            let order = answer.ok(200);
            assert_eq!(order["order_id"], id, "{name}");
            spent += nano(&order["notional"]) + nano(&order["fee"]);
        }
        let ids: BTreeSet<u64> = acknowledged.values().copied().collect();
        assert_eq!(ids.len(), acknowledged.len(), "{}: two orders have one id", self.name);
        let balance = Request::get("/v1/account/balance").key(&self.key);
        let balance = ask(address, &balance).unwrap().ok(200);
        let started = nano(&balance["starting_balance"]);
        assert_eq!(nano(&balance["balance"]) + spent, started, "{}", self.name);
    }

    pub(crate) fn positions(&self) -> Request {
        Request::get("/v1/account/positions").key(&self.key)
    }

    /// Buys one share.
    pub(crate) fn order(&self, name: &str) -> Request {
        let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY",
                           "quantity": 1, "client_order_id": name});
        Request::post("/trade", &order).key(&self.key)
    }
}

/// What the first node answers that is ready.
fn answered(addresses: &[SocketAddr], request: &Request) -> Response {
    let answers = addresses.iter().filter_map(|&address| ask(address, request));
    answers.into_iter().find(|answer| answer.status != 503).expect("a node is ready")
}

/// An amount of dollars, in billionths.
fn nano(amount: &Value) -> u64 {
    let text = amount.as_str().map_or_else(|| amount.to_string(), str::to_owned);
    let (whole, rest) = text.split_once('.').unwrap_or((&text, ""));
    format!("{whole}{rest:0<9}").parse().unwrap()
}

/// How many shares there are.
fn shares(positions: &Value) -> usize {
    let first = positions.as_array().unwrap().first();
    first.map_or(0, |position| position["quantity"].as_str().unwrap().parse().unwrap())
}

/// The longest time between two acknowledged orders since then.
pub(crate) fn longest_pause(traders: &[Trader], since: Instant) -> Duration {
    let mut times = vec![since];
    for trader in traders {
        let acknowledged_at = trader.acknowledged_at.lock().unwrap();
        times.extend(acknowledged_at.iter().filter(|&&at| at > since));
    }
    times.sort();
    times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
}

/// The broker that leads the log.
pub(crate) fn leader(file: &Path) -> usize {
    let printed = status_once(file, |printed| printed.contains("leader broker-"));
    let (_, leader) = printed.split_once("leader broker-").unwrap();
    leader[..1].parse().unwrap()
}

#[test]
fn acknowledged_orders_survive_the_loss_of_nodes_and_brokers() {
    let Some((folder, mut brokers, file)) = cluster_on_brokers("logs = 1") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, NODES);
    nodes.owner();
    let addresses = nodes.addresses.clone();
    let traders = Trader::several(TRADERS, folder.path(), &nodes);

    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        let over = Over(&is_over);
        let threads = trade_all(scope, &traders, &addresses, &is_over);
        let more = || wait_for_orders(&traders, &threads, ORDERS, || {});
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
                    connection.write(&traders[0].positions().to_bytes());
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
            let pause = longest_pause(&traders, began);
            println!("{fault:?}: node {owner}, then {next}, no order for {pause:?}");
            pauses.entry(format!("{fault:?}")).or_default().push(pause);
            let cut_off = traders.iter().flat_map(Trader::take_cut_off);
            let cut_off: Vec<String> = cut_off.collect();
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
        drop(over);
        for thread in threads {
            thread.join().unwrap();
        }
    });
    nodes.check(&traders);
}

/// Has each account trade until that is over, on a thread of its own, and look on another.
pub(crate) fn trade_all<'scope>(
    scope: &'scope Scope<'scope, '_>,
    traders: &'scope [Trader],
    addresses: &'scope Mutex<Vec<SocketAddr>>,
    is_over: &'scope AtomicBool,
) -> Vec<ScopedJoinHandle<'scope, ()>> {
    let trade = |trader: &'scope Trader| scope.spawn(|| trader.trade(addresses, is_over));
    let watch = |trader: &'scope Trader| scope.spawn(|| trader.watch(addresses, is_over));
    traders.iter().map(trade).chain(traders.iter().map(watch)).collect()
}

/// Waits until so many more orders are acknowledged, and does something again and again meanwhile.
pub(crate) fn wait_for_orders(
    traders: &[Trader],
    threads: &[ScopedJoinHandle<'_, ()>],
    count: usize,
    mut meanwhile: impl FnMut(),
) {
    let done = || traders.iter().map(Trader::count).sum::<usize>();
    let (before, began) = (done(), Instant::now());
    while done() < before + count {
        assert!(threads.iter().all(|thread| !thread.is_finished()), "a trader failed");
        assert!(began.elapsed() < 4 * PATIENCE, "the cluster does not go on");
        meanwhile();
        thread::sleep(PAUSE);
    }
}

/// Ends the traders when it is dropped, also by a failed test.
pub(crate) struct Over<'a>(pub(crate) &'a AtomicBool);

impl Drop for Over<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
