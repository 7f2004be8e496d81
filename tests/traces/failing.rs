//! A collector that is down, hangs or fails: requests do not notice, and what is lost is counted.

use std::collections::BTreeMap;
use std::thread;
use std::time::{Duration, Instant};

use paperbourse_test_support::{Connection, NOBODY, PATIENCE, Request};

use super::World;
use super::collector::{Collector, Mood};

/// Requests of the load: more traces than can wait.
const REQUESTS: usize = 6_000;
const CONNECTIONS: usize = 4;
/// Of a health check: the request, and sending its answer.
const SPANS_PER_REQUEST: u64 = 2;

/// A request that waited for the collector would take as long as the server's patience with it.
const SLOWEST: Duration = Duration::from_secs(4);

/// Sends the load, and returns the longest time of a request.
fn load(world: &World) -> Duration {
    let address = world.server.address;
    let client = move || {
        let mut connection = Connection::open(address);
        let request = Request::get("/v1/health");
        let mut longest = Duration::ZERO;
        for _ in 0..REQUESTS / CONNECTIONS {
            let began = Instant::now();
            assert_eq!(connection.send(&request).status, 200);
            longest = longest.max(began.elapsed());
        }
        longest
    };
    let clients: Vec<_> = (0..CONNECTIONS).map(|_| thread::spawn(client)).collect();
    clients.into_iter().map(|client| client.join().unwrap()).max().unwrap()
}

/// Waits until every span of the load is accounted for; returns how many were exported and dropped.
#[track_caller]
fn settled(world: &World) -> (u64, u64) {
    let began = Instant::now();
    loop {
        let exported = world.metric("paperbourse_trace_spans_exported_total");
        let dropped = world.metric("paperbourse_trace_spans_dropped_total");
        if exported + dropped >= SPANS_PER_REQUEST * REQUESTS as u64 {
            return (exported, dropped);
        }
        assert!(began.elapsed() < PATIENCE, "{exported} exported, {dropped} dropped");
        thread::yield_now();
    }
}

/// The lines that complain about the collector.
fn complaints(world: &World) -> Vec<String> {
    world.server.log_lines("the trace collector does not take all traces")
}

#[test]
fn nobody_notices_a_collector_that_is_down_or_fails() {
    let failing = Collector::start(Mood::Fails);
    for (endpoint, reason) in [
        (format!("http://{}", failing.address), "the server answered with status 500"),
        (format!("http://{NOBODY}/a-token/v1/traces"), "refused"),
    ] {
        let world = World::start(&endpoint, "all", &[]);
        let longest = load(&world);
        assert!(longest < SLOWEST, "{longest:?}");
        let (exported, dropped) = settled(&world);
        assert_eq!(exported, 0, "{reason}: {dropped} dropped");
        let lines = complaints(&world);
        assert_eq!(lines.len(), 1, "once a minute: {lines:?}");
        assert!(lines[0].contains(reason), "{lines:?}");
        let log = world.server.interrupt();
        assert!(!log.iter().any(|line| line.contains("a-token")), "{log:?}");
    }
    assert!(failing.request_count() > 1, "each batch is tried");
}

#[test]
fn nobody_notices_a_collector_that_hangs() {
    let collector = Collector::start(Mood::Hangs);
    let world = World::with(&collector, "all");
    let longest = load(&world);
    assert!(longest < SLOWEST, "{longest:?}");
    assert_eq!(world.metric("paperbourse_trace_spans_exported_total"), 0);
    let dropped = world.metric("paperbourse_trace_spans_dropped_total");
    assert!(dropped > 0, "6,000 traces do not wait");
    // Once the server has given up on the first batch.
    world.server.logged("traces end faster than the trace collector takes them");
    let began = Instant::now();
    let log = world.server.interrupt();
    let elapsed = began.elapsed();
    assert!(elapsed < SLOWEST, "the end waits a second, not {elapsed:?}");
    assert!(log.iter().any(|line| line.contains("the last traces were not sent")), "{log:?}");
}

#[test]
fn all_spans_arrive_at_a_collector_that_keeps_up() {
    let collector = Collector::start(Mood::Takes);
    let world = World::with(&collector, "1/5");
    load(&world);
    let log = world.server.interrupt();
    let spans = collector.spans();
    let mut parts_by_parent: BTreeMap<&str, usize> = BTreeMap::new();
    for span in &spans {
        *parts_by_parent.entry(&span.parent).or_default() += 1;
    }
    let requests = spans.iter().filter(|span| span.name == "GET /v1/health");
    let counts: Vec<usize> = requests.map(|it| parts_by_parent[&*it.id]).collect();
    assert!((REQUESTS / 7..REQUESTS / 4).contains(&counts.len()), "{}: {log:?}", counts.len());
    assert!(counts.iter().all(|&count| count == 1), "{counts:?}");
    assert!(!log.iter().any(|line| line.contains("WARN")), "{log:?}");
}

#[test]
fn what_a_collector_rejects_is_counted() {
    let collector = Collector::start(Mood::Rejects(3));
    let world = World::with(&collector, "all");
    load(&world);
    let (exported, dropped) = settled(&world);
    assert!(exported > 0 && dropped >= 3, "{exported} exported, {dropped} dropped");
    let lines = complaints(&world);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("out of room"), "{lines:?}");
}
