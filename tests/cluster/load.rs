//! Who trades while a cluster suffers, and what must be true of it all in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

use paperbourse_test_support::process::command;
use paperbourse_test_support::value::{id, micros};
use paperbourse_test_support::{Connection, PATIENCE, Request, Response};
use serde_json::{Value, json};

use crate::nodes::{ANSWER_TIME_MAX, MARKET, Nodes, ask};
use crate::resting::Rester;
use crate::{BINARY, PAUSE};

/// A node that ends waits a little longer than this for the first byte of a new connection.
const FIRST_BYTE_TIME_MAX: Duration = Duration::from_millis(250);

/// How soon a client asks again.
const RETRY_PAUSE: Duration = Duration::from_millis(2);

/// The time between two looks at a position.
const WATCH_PAUSE: Duration = Duration::from_millis(20);

/// Where the nodes listen now.
pub(crate) type Addresses = Mutex<Vec<SocketAddr>>;

/// The address of one node after the other, until it is over.
pub(crate) fn in_turn(
    addresses: &Addresses,
    is_over: &AtomicBool,
) -> impl Iterator<Item = SocketAddr> {
    let turns = (0..).take_while(|_| !is_over.load(Ordering::Relaxed));
    turns.map(|turn: usize| {
        let addresses = addresses.lock().unwrap();
        addresses[turn % addresses.len()]
    })
}

/// An account whose requests are repeated, at one node after the other, until one has answered.
pub(crate) struct Caller {
    pub(crate) key: String,
    pub(crate) name: String,
    /// The node that it asks first.
    first: usize,
    /// How many requests were told that no node can answer them now.
    refused: AtomicUsize,
    /// Why nobody said what became of requests that were sent.
    cut_off: Mutex<Vec<String>>,
}

impl Caller {
    pub(crate) fn new(folder: &Path, addresses: &[SocketAddr], name: &str, first: usize) -> Self {
        let mut token = command(BINARY);
        token.args(["token", "--subject", name, "--data"]).arg(folder.join("issuer"));
        let token = String::from_utf8(token.output().unwrap().stdout).unwrap();
        let bootstrap = Request::post("/v1/keys/bootstrap", &json!({})).bearer(token.trim());
        let caller = Self {
            key: String::new(),
            name: name.to_owned(),
            first,
            refused: AtomicUsize::new(0),
            cut_off: Mutex::default(),
        };
        let answer = caller.until_answered(&Mutex::new(addresses.to_vec()), &bootstrap);
        let key = answer.ok(201)["raw_key"].as_str().unwrap().to_owned();
        Self { key, ..caller }
    }

    pub(crate) fn until_answered(&self, addresses: &Addresses, request: &Request) -> Response {
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
}

/// An account that buys one share after the other, and looks at its position in between.
pub(crate) struct Trader {
    caller: Caller,
    /// How many orders were begun.
    begun: AtomicUsize,
    /// The orders that were acknowledged, by name.
    acknowledged: Mutex<BTreeMap<String, u64>>,
    /// When they were.
    acknowledged_at: Mutex<Vec<Instant>>,
}

impl Trader {
    pub(crate) fn new(folder: &Path, addresses: &[SocketAddr], number: usize) -> Self {
        Self {
            caller: Caller::new(folder, addresses, &format!("trader-{number}"), number),
            begun: AtomicUsize::new(0),
            acknowledged: Mutex::default(),
            acknowledged_at: Mutex::default(),
        }
    }

    pub(crate) fn key(&self) -> &str {
        &self.caller.key
    }

    /// How many orders are acknowledged.
    pub(crate) fn count(&self) -> usize {
        self.acknowledged.lock().unwrap().len()
    }

    fn trade(&self, addresses: &Addresses, is_over: &AtomicBool) {
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
                    let name = &self.caller.name;
                    assert_eq!(shares(&answer.json()), number + 1, "{name}: {answer:?}");
                }
            }
        }
    }

    /// Looks at the position at one node after the other, while orders are placed. No look shows
    /// less than what was acknowledged or seen before it, nor more than was ordered by then.
    fn watch(&self, addresses: &Addresses, is_over: &AtomicBool) {
        let mut least = 0;
        for address in in_turn(addresses, is_over) {
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
    pub(crate) fn buy(&self, addresses: &Addresses, number: usize) {
        self.begun.fetch_max(number + 1, Ordering::SeqCst);
        let name = format!("{}-{number}", self.caller.name);
        let answer = self.caller.until_answered(addresses, &self.order(&name));
        let id = id(&answer.ok(200)["order_id"]);
        self.acknowledged.lock().unwrap().insert(name, id);
        self.acknowledged_at.lock().unwrap().push(Instant::now());
    }

    /// Checks that each order was decided once, as it was answered, and paid for.
    pub(crate) fn check(&self, address: SocketAddr) {
        let (name, acknowledged) = (&self.caller.name, self.acknowledged.lock().unwrap());
        let positions = ask(address, &self.positions()).unwrap().ok(200);
        assert_eq!(shares(&positions), acknowledged.len(), "{name}");
        let mut spent = 0;
        for (order, &id) in acknowledged.iter() {
            let answer = ask(address, &self.order(order)).unwrap();
            assert!(answer.is_replay(), "{order}: {answer:?}");
            let answer = answer.ok(200);
            assert_eq!(answer["order_id"], id, "{order}");
            spent += micros(&answer["notional"]) + micros(&answer["fee"]);
        }
        let ids: BTreeSet<u64> = acknowledged.values().copied().collect();
        assert_eq!(ids.len(), acknowledged.len(), "{name}: two orders have one id");
        let balance = Request::get("/v1/account/balance").key(self.key());
        let balance = ask(address, &balance).unwrap().ok(200);
        let started = micros(&balance["starting_balance"]);
        assert_eq!(micros(&balance["balance"]) + spent, started, "{name}");
    }

    pub(crate) fn positions(&self) -> Request {
        Request::get("/v1/account/positions").key(self.key())
    }

    /// Buys one share.
    pub(crate) fn order(&self, name: &str) -> Request {
        let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY",
                           "quantity": 1, "client_order_id": name});
        Request::post("/trade", &order).key(self.key())
    }
}

/// How many shares there are.
fn shares(positions: &Value) -> usize {
    let first = positions.as_array().unwrap().first();
    first.map_or(0, |position| position["quantity"].as_str().unwrap().parse().unwrap())
}

/// All accounts that trade in a test.
pub(crate) struct Load {
    pub(crate) traders: Vec<Trader>,
    rester: Rester,
}

/// A load at work. It ends when this is dropped, also by a failed test.
pub(crate) struct Running<'scope, 'load> {
    load: &'load Load,
    threads: Vec<ScopedJoinHandle<'scope, ()>>,
    is_over: &'load AtomicBool,
}

impl Load {
    /// So many traders, and an account whose orders rest.
    pub(crate) fn new(traders: usize, folder: &Path, nodes: &Nodes) -> Self {
        let addresses = nodes.addresses.lock().unwrap().clone();
        let traders = (0..traders).map(|number| Trader::new(folder, &addresses, number)).collect();
        Self { traders, rester: Rester::new(folder, &addresses) }
    }

    /// Has each account trade on a thread of its own, and look on another.
    pub(crate) fn begin<'scope, 'load: 'scope>(
        &'load self,
        scope: &'scope Scope<'scope, '_>,
        addresses: &'load Addresses,
        is_over: &'load AtomicBool,
    ) -> Running<'scope, 'load> {
        let mut threads = vec![
            scope.spawn(|| self.rester.trade(addresses, is_over)),
            scope.spawn(|| self.rester.follow(addresses, is_over)),
        ];
        for trader in &self.traders {
            threads.push(scope.spawn(|| trader.trade(addresses, is_over)));
            threads.push(scope.spawn(|| trader.watch(addresses, is_over)));
        }
        Running { load: self, threads, is_over }
    }

    /// How many orders of the traders are acknowledged.
    pub(crate) fn count(&self) -> usize {
        self.traders.iter().map(Trader::count).sum()
    }

    fn callers(&self) -> impl Iterator<Item = &Caller> {
        self.traders.iter().map(|trader| &trader.caller).chain([&self.rester.caller])
    }

    /// How many requests were told that no node can answer them now.
    pub(crate) fn refused(&self) -> usize {
        self.callers().map(|caller| caller.refused.load(Ordering::Relaxed)).sum()
    }

    /// Why nobody has said since the last call what became of requests.
    pub(crate) fn take_cut_off(&self) -> Vec<String> {
        let take = |caller: &Caller| std::mem::take(&mut *caller.cut_off.lock().unwrap());
        self.callers().flat_map(take).collect()
    }

    /// The longest time between two acknowledged orders since then.
    pub(crate) fn longest_pause(&self, since: Instant) -> Duration {
        let mut times = vec![since];
        for trader in &self.traders {
            let acknowledged_at = trader.acknowledged_at.lock().unwrap();
            times.extend(acknowledged_at.iter().filter(|&&at| at > since));
        }
        times.sort();
        times.windows(2).map(|pair| pair[1] - pair[0]).max().unwrap_or_default()
    }

    /// Checks that each order was decided once, as it was answered, and each fill told once.
    pub(crate) fn check(&self, address: SocketAddr) {
        self.traders.iter().for_each(|trader| trader.check(address));
        self.rester.check(address);
    }
}

impl Running<'_, '_> {
    /// Waits until so many more orders are acknowledged, and does something again and again
    /// meanwhile.
    pub(crate) fn wait_for_orders(&self, count: usize, meanwhile: impl FnMut()) {
        let before = self.load.count();
        self.wait_until(|| self.load.count() >= before + count, meanwhile);
    }

    /// Waits until each trader has got another order acknowledged.
    pub(crate) fn wait_for_each(&self) {
        let before: Vec<usize> = self.load.traders.iter().map(Trader::count).collect();
        let went_on = || {
            let pairs = self.load.traders.iter().zip(&before);
            pairs.into_iter().all(|(trader, &before)| trader.count() > before)
        };
        self.wait_until(went_on, || {});
    }

    fn wait_until(&self, is_so: impl Fn() -> bool, mut meanwhile: impl FnMut()) {
        let began = Instant::now();
        while !is_so() {
            assert!(!self.threads.iter().any(ScopedJoinHandle::is_finished), "a client failed");
            assert!(began.elapsed() < 4 * PATIENCE, "the cluster does not go on");
            meanwhile();
            thread::sleep(PAUSE);
        }
    }
}

impl Drop for Running<'_, '_> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
    }
}
