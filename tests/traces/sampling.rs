//! Which requests have a trace, and whose trace it is.

use std::collections::BTreeSet;
use std::time::Instant;

use paperbourse_test_support::{Connection, Request};
use serde_json::Value;

use super::World;
use super::collector::{Collector, Mood, Span};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// The ids of the requests that have a span.
fn request_ids(spans: &[Span]) -> BTreeSet<String> {
    let ids = spans.iter().map(|span| span.attribute("http.response.header.x-request-id"));
    ids.filter(|id| !id.is_empty()).map(String::from).collect()
}

#[test]
fn a_caller_may_continue_its_trace_or_turn_it_off() {
    let traced = format!("00-{TRACE}-{PARENT}-01");
    let untraced = format!("00-{TRACE}-{PARENT}-00");
    let malformed = format!("00-{TRACE}-{PARENT}-1");
    for (sample, header, is_traced, is_continued) in [
        ("off", None, false, false),
        ("off", Some(&traced), true, true),
        ("off", Some(&untraced), false, false),
        ("off", Some(&malformed), false, false),
        ("all", None, true, false),
        ("all", Some(&traced), true, true),
        ("all", Some(&untraced), false, false),
        ("all", Some(&malformed), true, false),
    ] {
        let collector = Collector::start(Mood::Takes);
        let world = World::with(&collector, sample);
        let mut request = Request::get("/v1/health").header("X-Request-Id", "it");
        if let Some(header) = header {
            request = request.header("traceparent", header.as_str());
        }
        assert_eq!(world.send(&request).status, 200);
        // The end waits for what is not sent yet.
        world.server.interrupt();
        let spans = collector.spans();
        assert_eq!(request_ids(&spans).contains("it"), is_traced, "{sample} {header:?}");
        if is_traced {
            let (span, parts) = collector.trace_of("it");
            let expected = if is_continued { (true, PARENT, 0x301) } else { (false, "", 0x101) };
            assert_eq!((span.trace_id == TRACE, &*span.parent, span.flags), expected);
            assert!(parts.iter().all(|part| part.trace_id == span.trace_id), "{parts:?}");
        }
    }
}

#[test]
fn two_parents_are_none() {
    let collector = Collector::start(Mood::Takes);
    let world = World::with(&collector, "all");
    let header = format!("00-{TRACE}-{PARENT}-01");
    let request = Request::get("/v1/health").header("X-Request-Id", "it");
    let request = request.header("traceparent", header.as_str()).header("traceparent", header);
    assert_eq!(world.send(&request).status, 200);
    let (span, _) = collector.trace_of("it");
    assert_ne!(span.trace_id, TRACE);
    assert_eq!(span.parent, "");
}

#[test]
fn callers_cannot_have_more_than_a_hundred_requests_a_second_traced() {
    const REQUESTS: usize = 1_000;
    // By traces of their own, or by ids that are in the sample.
    for (sample, has_parent) in [("off", true), ("1/4", false)] {
        let collector = Collector::start(Mood::Takes);
        let world = World::with(&collector, sample);
        let ids = (1_u64..).map(|number| (number, number.to_string()));
        let ids = ids.filter(|(_, id)| crc32c::crc32c(id.as_bytes()).is_multiple_of(4));
        let began = Instant::now();
        let mut connection = Connection::open(world.server.address);
        for (number, id) in ids.take(REQUESTS) {
            let mut request = Request::get("/v1/health").header("X-Request-Id", id);
            if has_parent {
                let header = format!("00-{TRACE}-{number:016x}-01");
                request = request.header("traceparent", header);
            }
            assert_eq!(connection.send(&request).status, 200);
        }
        let seconds_max = began.elapsed().as_secs() + 1;
        drop(connection);
        world.server.interrupt();
        // Ids of the server have a hyphen.
        let ids = request_ids(&collector.spans());
        let count = ids.iter().filter(|id| !id.contains('-')).count();
        let count_max = 100 + 100 * usize::try_from(seconds_max).unwrap();
        let is_limited = (100..=count_max.min(REQUESTS - 1)).contains(&count);
        assert!(is_limited, "{sample}: {count} in {seconds_max} s");
    }
}

#[test]
fn a_sample_has_the_requests_that_the_access_log_has() {
    // So few that those in the sample, with ids of their caller, are not too many for a second.
    const REQUESTS: usize = 300;
    let collector = Collector::start(Mood::Takes);
    let endpoint = format!("http://{}/v1/traces", collector.address);
    let flags = ["--access-log", "1/4", "--log-format", "json"];
    let world = World::start(&endpoint, "1/4", &flags);
    let mut connection = Connection::open(world.server.address);
    for number in 0..REQUESTS {
        let request = Request::get("/v1/health");
        let request = request.header("X-Request-Id", format!("request-{number}"));
        assert_eq!(connection.send(&request).status, 200);
    }
    drop(connection);
    let lines = world.server.interrupt();
    let logged = lines.iter().filter_map(|line| {
        let line: Value = serde_json::from_str(line).ok()?;
        line["fields"]["request_id"].as_str().map(String::from)
    });
    let logged: BTreeSet<String> = logged.collect();
    let traced = request_ids(&collector.spans());
    assert_eq!(traced, logged);
    let count = traced.iter().filter(|id| id.starts_with("request-")).count();
    assert!((45..100).contains(&count), "{count}");
}
