//! The dashboard and the alerts of `perf/monitoring`, in a real Prometheus that scrapes real
//! servers.

mod bourse;
mod faults;
mod prometheus;

use std::collections::BTreeSet;
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use paperbourse_test_support::socket::{Socket, upgrade};
use paperbourse_test_support::{Connection, Request};
use serde_json::{Value, json};

use crate::served::Served;
use crate::standin::world::{condition_id, token_id};
use crate::standin::{Options, Side, StandIn, World};
use bourse::admin_address;
use prometheus::Prometheus;

/// A test that waits longer has failed: an alert needs two scrapes, and several servers share the
/// machine.
const PATIENCE: Duration = Duration::from_mins(4);

/// How often a condition is checked.
const CHECK_INTERVAL: Duration = Duration::from_millis(200);

/// Repeats this until it succeeds.
#[track_caller]
fn until<T>(mut attempt: impl FnMut() -> Result<T, String>) -> T {
    let started = Instant::now();
    loop {
        match attempt() {
            Ok(found) => return found,
            Err(reason) => assert!(started.elapsed() < PATIENCE, "timed out: {reason}"),
        }
        std::thread::park_timeout(CHECK_INTERVAL);
    }
}

fn monitoring(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("perf/monitoring").join(file)
}

/// Whether Prometheus is installed.
fn is_installed() -> bool {
    let is_there = |program| {
        let version = Command::new(program).arg("--version").stdout(Stdio::null()).status();
        version.is_ok_and(|status| status.success())
    };
    let is_installed = is_there("prometheus") && is_there("promtool");
    if !is_installed {
        let missing = "prometheus is not installed, so no dashboard and no alert was tested";
        assert_ne!(std::env::var("CI").as_deref(), Ok("true"), "{missing}");
        eprintln!("SKIPPED: {missing}");
    }
    is_installed
}

/// Runs promtool, which must find nothing to complain about.
#[track_caller]
fn promtool(arguments: &[&str], input: &str) {
    let mut tool = Command::new("promtool")
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    tool.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
    let output = tool.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{arguments:?}: {said}");
}

/// The text of each `key` in a JSON document.
fn texts<'v>(document: &'v Value, key: &str, found: &mut BTreeSet<&'v str>) {
    match document {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|value| texts(value, key, found));
        }
        Value::Array(list) => list.iter().for_each(|value| texts(value, key, found)),
        _ => {}
    }
}

#[test]
fn every_alert_fires_for_its_fault_only() {
    if !is_installed() {
        return;
    }
    let path = |file| monitoring(file).display().to_string();
    promtool(&["check", "config", &path("prometheus.yml")], "");
    promtool(&["check", "rules", &path("alerts.yml")], "");
    promtool(&["test", "rules", &path("alerts.test.yml")], "");
    let read = |file| fs::read_to_string(monitoring(file)).unwrap();
    let (rules, tests) = (read("alerts.yml"), read("alerts.test.yml"));
    let alerts: Vec<&str> =
        rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(!alerts.is_empty());
    for alert in alerts {
        assert!(tests.contains(&format!("- name: {alert}\n")), "{alert} has no test");
    }
}

/// Uses a little of everything, so that each metric has a sample.
fn use_everything(served: &Served) -> [Socket; 2] {
    let prices = Socket::prices(served.address(), served.key());
    let executions = upgrade("/v1/ws/executions").key(served.key());
    let executions = Socket::open(served.address(), &executions).unwrap();
    let resting = json!({
        "market_id": condition_id(0), "outcome": "Yes", "side": "BUY", "order_type": "limit",
        "price": "0.01", "quantity": 10,
    });
    served.answer(&served.signed(Request::post("/v1/orders", &resting)));
    served.answer(&Request::get("/nowhere"));
    [prices, executions]
}

/// Some sample of each series must be a number.
fn has_value(series: &[Value]) -> bool {
    let texts = series.iter().filter_map(|it| it["value"][1].as_str());
    texts.filter_map(|text| text.parse::<f64>().ok()).any(|value| !value.is_nan())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_query_of_the_dashboard_returns_a_series() {
    if !is_installed() {
        return;
    }
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let played = tokio::task::spawn_blocking(move || {
        let served = Served::start_with(&venue, &["--admin-listen", "127.0.0.1:0"]);
        served.until("books", Served::is_fresh);
        let admin = admin_address(&served.server);
        let _sockets = use_everything(&served);
        let page = Connection::open(admin).done(&Request::get("/metrics")).text;
        promtool(&["check", "metrics"], &page);

        let dashboard = fs::read_to_string(monitoring("dashboard.json")).unwrap();
        let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
        let mut queries = BTreeSet::new();
        texts(&dashboard, "expr", &mut queries);
        assert!(queries.len() > 50, "the dashboard has {} queries", queries.len());
        // Only the nodes of a cluster have those: the tests of clusters look at them.
        queries.retain(|query| !query.contains("paperbourse_cluster_"));

        let prometheus = Prometheus::start(&[admin]);
        let mut sizes = 1..;
        until(|| {
            // There must be something to count between two scrapes.
            served.buy();
            let size = sizes.next().unwrap().to_string();
            venue.change_level(&token_id(0, 0), Side::Buy, "0.02", &size);
            queries.retain(|query| {
                let plain = query.replace("$instance", ".+").replace("$__rate_interval", "1m");
                !has_value(&prometheus.query(&plain))
            });
            if queries.is_empty() { Ok(()) } else { Err(format!("no values: {queries:#?}")) }
        });
        let metrics = page.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let unused: Vec<&str> = metrics
            .filter_map(|line| line.split(' ').next())
            .filter(|name| !dashboard.to_string().contains(name))
            .filter(|name| !fs::read_to_string(monitoring("alerts.yml")).unwrap().contains(name))
            .collect();
        assert_eq!(unused, [""; 0], "metrics that neither the dashboard nor an alert uses");
    });
    played.await.unwrap();
}
