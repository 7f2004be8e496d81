//! What an operator sees of a node that does not serve: its metrics, and a log that it cannot read.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Instant, SystemTime};

use paperbourse_test_support::brokers::{BROKERS, Brokers};
use paperbourse_test_support::process::command;
use paperbourse_test_support::{Connection, PATIENCE, Request};

use crate::load::Trader;
use crate::nodes::{Nodes, UNLIMITED, ask};
use crate::{BINARY, PAUSE, cluster_on_brokers};

/// Arguments of nodes that serve metrics.
const WITH_METRICS: [&str; 4] = [UNLIMITED[0], UNLIMITED[1], "--admin-listen", "127.0.0.1:0"];

/// Longer than a node ever waits between two questions to the brokers, in seconds.
const SILENCE_SECONDS: u64 = 3;

/// Where a node serves its metrics.
fn admin(nodes: &mut Nodes, number: usize) -> SocketAddr {
    let line = nodes.process(number).wait_for_line(|line| line.contains("metrics on http://"));
    let (_, rest) = line.split_once("metrics on http://").unwrap();
    rest.strip_suffix("/metrics").unwrap().parse().unwrap()
}

/// The samples of a node.
struct Page(BTreeMap<String, String>);

impl Page {
    fn of(admin: SocketAddr) -> Self {
        let page = Connection::open(admin).done(&Request::get("/metrics")).text;
        let samples = page.lines().filter(|line| !line.starts_with('#')).map(|line| {
            let (name, value) = line.rsplit_once(' ').unwrap();
            (name.to_owned(), value.to_owned())
        });
        Self(samples.collect())
    }

    /// Of the log, this metric.
    #[track_caller]
    fn log(&self, name: &str) -> u64 {
        self.0[&format!("paperbourse_cluster_{name}{{log=\"pb-0\"}}")].parse().unwrap()
    }

    fn has(&self, name: &str) -> bool {
        self.0.contains_key(&format!("paperbourse_{name}"))
    }

    /// How long ago the brokers answered, in seconds.
    fn silence(&self) -> u64 {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap();
        now.as_secs() - self.log("broker_answer_timestamp_seconds")
    }
}

/// The page of a node once that is so.
#[track_caller]
fn page_once(admin: SocketAddr, is_so: impl Fn(&Page) -> bool) -> Page {
    let began = Instant::now();
    loop {
        let page = Page::of(admin);
        if is_so(&page) {
            return page;
        }
        assert!(began.elapsed() < 4 * PATIENCE, "{:#?}", page.0);
        thread::sleep(PAUSE);
    }
}

#[test]
fn a_standby_shows_how_far_it_is() {
    let Some((folder, mut brokers, file)) = cluster_on_brokers("") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, 0).with(&WITH_METRICS);
    nodes.run(0);
    nodes.run(1);
    let owner = nodes.all_answer();
    let addresses = nodes.addresses.clone();
    let trader = Trader::new(folder.path(), &addresses.lock().unwrap(), 0);
    (0..10).for_each(|number| trader.buy(&addresses, number));

    let standby = admin(&mut nodes, 1 - owner);
    let serving = Page::of(admin(&mut nodes, owner));
    assert_eq!((serving.log("owner"), serving.log("halted")), (1, 0));
    assert!(serving.log("position") > 10, "an account, its key, and orders");
    assert!(serving.has("fresh_markets") && serving.has("accounts"));
    let appends = serving.log("append_seconds_count");
    assert!(appends > 10, "each order waited for one: {appends}");
    let following =
        page_once(standby, |page| page.log("copied_position") == serving.log("position"));
    assert_eq!((following.log("owner"), following.log("epoch")), (0, serving.log("epoch")));
    assert_eq!(following.log("append_seconds_count"), 0);
    assert!(following.has("journal_flush_seconds_count"), "its copy is a journal");
    page_once(standby, |page| page.silence() < SILENCE_SECONDS);
    for of_a_server in ["fresh_markets", "accounts", "open_orders", "memory_limit_reached"] {
        assert!(!following.has(of_a_server), "{of_a_server} would raise an alert");
    }

    // Whatever is there is also used.
    let monitoring = Path::new(env!("CARGO_MANIFEST_DIR")).join("perf/monitoring");
    let read = |name| fs::read_to_string(monitoring.join(name)).unwrap();
    let used = read("dashboard.json") + &read("alerts.yml");
    let names = serving.0.keys().filter_map(|name| name.split_once('{')).map(|(name, _)| name);
    for name in names.filter(|name| name.starts_with("paperbourse_cluster")) {
        let name = name.trim_end_matches("_sum").trim_end_matches("_count");
        assert!(used.contains(name), "neither the dashboard nor an alert uses {name}");
    }
    let mut top = command(BINARY);
    let top = top.args(["top", "--url", &format!("http://{standby}/metrics")]).output().unwrap();
    let shown = String::from_utf8(top.stdout).unwrap();
    assert!(shown.contains("followed here, copied up to record"), "{shown}");

    let mut account = command(BINARY);
    let account = account.args(["account", "list", "--data"]).arg(nodes.data(1 - owner));
    let refused = String::from_utf8(account.output().unwrap().stderr).unwrap();
    assert!(
        refused.contains("is a standby: run this on the machine of the serving node"),
        "{refused}"
    );

    (0..BROKERS).for_each(|number| brokers.kill(number));
    page_once(standby, |page| page.silence() > SILENCE_SECONDS);
}

/// Flips a bit of this text in the blocks of the log, at every broker.
fn damage(brokers: &Brokers, text: &str) {
    let files = (0..BROKERS).flat_map(|number| brokers.files(number, "pb-0", ".blk"));
    let mut count = 0;
    for path in files {
        let mut bytes = fs::read(&path).unwrap();
        let at = bytes.windows(text.len()).position(|it| it == text.as_bytes());
        if let Some(at) = at {
            bytes[at] ^= 1;
            fs::write(&path, bytes).unwrap();
            count += 1;
        }
    }
    assert_eq!(count, BROKERS);
}

#[test]
fn a_node_that_cannot_read_the_log_says_so_and_the_others_serve() {
    let Some((folder, mut brokers, file)) = cluster_on_brokers("") else { return };
    let mut nodes = Nodes::start(folder.path(), &file, 0).with(&WITH_METRICS);
    nodes.run(0);
    nodes.owner();
    let addresses = nodes.addresses.clone();
    let trader = Trader::new(folder.path(), &addresses.lock().unwrap(), 0);
    (0..60).for_each(|number| trader.buy(&addresses, number));
    nodes.processes[0] = None;
    (0..BROKERS).for_each(|number| brokers.terminate(number));
    damage(&brokers, "trader-0-7");
    brokers.restart_all();

    // It has read all that before.
    nodes.run(0);
    assert_eq!(nodes.owner(), 0);
    nodes.run(1);
    let admin = admin(&mut nodes, 1);
    page_once(admin, |page| page.log("halted") == 1);
    let address = addresses.lock().unwrap()[1];
    let answer = ask(address, &trader.positions()).unwrap();
    assert_eq!(answer.ok(503)["error"], "LOG_HALTED");
    let ready = ask(address, &Request::get("/v1/health/ready")).unwrap();
    assert_eq!(ready.ok(503)["error"], "LOG_HALTED");
    nodes.process(1).wait_for_line(|line| line.contains("the log is damaged, reading it again"));
    let healthy = addresses.lock().unwrap()[0];
    let addresses = Mutex::new(vec![healthy]);
    (60..70).for_each(|number| trader.buy(&addresses, number));
    trader.check(healthy);
}
