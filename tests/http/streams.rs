//! The stream of server-sent prices from the client's side.

use std::collections::HashMap;
use std::fmt::Write as _;

use paperbourse_test_support::Request;
use paperbourse_test_support::event_stream::{End, EventStream};
use paperbourse_test_support::socket::Socket;
use serde_json::Value;

use super::expect::{check_error, eventually};
use super::recording::{BOOKLESS, DEEP, PLAIN, RESOLVED, other};
use super::server::{Server, shared};

const PATH: &str = "/prices/stream";

fn stream_of(ids: &[&str]) -> Request {
    Request::get(format!("{PATH}?condition_ids={}", ids.join(",")))
}

/// How many streams the server counts.
fn stream_count(server: &Server) -> Value {
    server.get("/v1/status").ok(200)["sse"]["connections"].clone()
}

/// The text with these numbers and times replaced.
fn redacted(text: &str) -> String {
    let mut out = String::new();
    let mut rest = text;
    while let Some((name, at)) = ["\"seq\":", "\"emit_ts_ms\":", "\"ts\":", "id: "]
        .iter()
        .filter_map(|name| Some((name, rest.find(name)? + name.len())))
        .min_by_key(|(_, at)| *at)
    {
        out.push_str(&rest[..at]);
        let end = rest[at..].find([',', '}', '\n']).unwrap();
        write!(out, "[{}]", name.trim_matches(['"', ':', ' '])).unwrap();
        rest = &rest[at + end..];
    }
    out + rest
}

#[test]
fn the_wire_is_pinned() {
    let request = stream_of(&[PLAIN, "0xabsent", RESOLVED, PLAIN]);
    let request = request.header("accept", "text/event-stream");
    let mut stream = EventStream::open(shared(), &request).unwrap();
    let mut wire = format!("{}\n", stream.head.status);
    for (name, value) in &stream.head.headers {
        if !["date", "x-request-id"].contains(&name.as_str()) {
            writeln!(wire, "{name}: {value}").unwrap();
        }
    }
    for _ in ["snapshot", "keepalive", "keepalive"] {
        writeln!(wire, "\n{}", redacted(&stream.text().unwrap()).trim_end()).unwrap();
    }
    insta::assert_snapshot!(wire);
}

#[test]
fn a_stream_needs_some_markets_and_not_too_many() {
    let ids = |count: usize| (0..count).map(other).collect::<Vec<_>>().join(",");
    let (fifty, fifty_one) = (ids(50), ids(51));
    let longest = "x".repeat(256);
    for (query, expected) in [
        (String::new(), Err((404, "NOT_OFFERED"))),
        ("?crypto=BTC,ETH&crypto_source=binance".into(), Err((404, "NOT_OFFERED"))),
        ("?condition_ids=".into(), Err((404, "NOT_OFFERED"))),
        ("?condition_ids=,%20,,".into(), Err((404, "NOT_OFFERED"))),
        ("?condition_id=0xa".into(), Err((404, "NOT_OFFERED"))),
        (format!("?condition_ids={fifty_one}"), Err((422, "VALIDATION_FAILED"))),
        (
            format!("?condition_ids={}", fifty.replace("0x", "0y") + ",a"),
            Err((422, "VALIDATION_FAILED")),
        ),
        (format!("?condition_ids=x{longest}"), Err((422, "VALIDATION_FAILED"))),
        (format!("?condition_ids={longest}"), Ok((0, 1))),
        (format!("?condition_ids={fifty},{fifty},"), Ok((50, 0))),
        (format!("?condition_ids={PLAIN}&crypto=BTC&background=true&_=7f"), Ok((1, 0))),
        (format!("?condition_ids=%20{PLAIN}%2C{DEEP}%20"), Ok((2, 0))),
        (format!("?condition_ids={PLAIN}&condition_ids={DEEP},{BOOKLESS}"), Ok((2, 0))),
        ("?condition_ids=%FF,%22%0A".into(), Ok((0, 2))),
    ] {
        let opened = EventStream::open(shared(), &Request::get(format!("{PATH}{query}")));
        match (opened, expected) {
            (Ok(mut stream), Ok(expected)) => {
                let (kind, data) = stream.event();
                let count = |name| data[name].as_array().map_or(0, Vec::len);
                assert_eq!(
                    (kind.as_str(), count("prices"), count("unknown")),
                    ("snapshot", expected.0, expected.1)
                );
            }
            (Err(response), Err((status, code))) => check_error(&response, status, code),
            (opened, _) => panic!("{query}: {:?}", opened.err()),
        }
    }
}

#[test]
fn a_credential_is_not_needed_and_checked_if_sent() {
    let account = shared().account();
    let refused = EventStream::open(shared(), &stream_of(&[PLAIN]).key("nonsense")).err().unwrap();
    check_error(&refused, 401, "INVALID_KEY");
    let stream = EventStream::open(shared(), &stream_of(&[PLAIN]).key(&account.key)).unwrap();
    assert_eq!(stream.head.header("x-ratelimit-tier"), Some("free"));
}

#[test]
fn head_opens_no_stream() {
    let server = Server::unlimited();
    let mut connection = server.connect();
    let head = Request::new("HEAD", format!("{PATH}?condition_ids={PLAIN}"));
    for _ in 0..2 {
        let response = connection.send(&head);
        assert_eq!(response.status, 200);
        assert_eq!(response.header("content-type"), Some("text/event-stream"));
        assert_eq!(response.header("content-length"), None);
    }
    assert_eq!(connection.send(&Request::new("HEAD", PATH)).status, 404);
    assert_eq!(stream_count(&server), 0);
}

/// There, a stream that was cut off would look complete.
#[test]
fn http_1_0_is_refused() {
    let mut connection = shared().connect();
    connection.write(format!("GET {PATH}?condition_ids={PLAIN} HTTP/1.0\r\n\r\n").as_bytes());
    let response = connection.read(false);
    check_error(&response, 426, "HTTP_VERSION_TOO_OLD");
    assert_eq!(response.header("upgrade"), Some("HTTP/1.1"));
}

#[test]
fn streams_of_an_address_are_capped() {
    let server =
        Server::unlimited_with(&["--streams-per-address", "2", "--trusted-proxy", "127.0.0.1"]);
    let open = |address: &str| {
        EventStream::open(&server, &stream_of(&[PLAIN]).header("x-forwarded-for", address))
    };
    for address in ["203.0.113.1", "2001:db8::1"] {
        let held = [open(address).unwrap(), open(address).unwrap()];
        let refused = open(address).err().unwrap();
        check_error(&refused, 429, "STREAM_LIMIT_EXCEEDED");
        assert_eq!(refused.header("retry-after"), Some("1"));
        open("203.0.113.2").unwrap();
        drop(held);
        // The server notices that the clients have left, although the market is quiet.
        eventually(|| open(address).ok());
    }
    eventually(|| (stream_count(&server) == 0).then_some(()));
}

#[test]
fn a_shutdown_cuts_streams_off() {
    let mut server = Server::unlimited();
    let mut streams: Vec<_> =
        [PLAIN, "0xabsent"].map(|id| EventStream::open(&server, &stream_of(&[id])).unwrap()).into();
    for stream in &mut streams {
        assert_eq!(stream.event().0, "snapshot");
    }
    assert_eq!(stream_count(&server), 2);
    server.terminate();
    let told_before = streams.iter().map(|stream| stream.retry_ms);
    assert!(told_before.eq([Some(1_001), Some(1_002)]));
    let mut told = streams.into_iter().map(|mut stream| {
        assert_eq!(stream.end(), End::CutOff);
        stream.retry_ms.unwrap()
    });
    let mut told = [told.next().unwrap(), told.next().unwrap()];
    told.sort_unstable();
    assert_eq!(told, [1_001, 1_002]);
    assert_eq!(server.wait().code(), Some(0));
}

#[test]
fn a_full_server_cuts_off_the_stream_of_a_stranger_first() {
    let caps = ["--connections-max", "2", "--connections-per-address", "10"];
    let server = Server::unlimited_with(&caps);
    let account = server.account();
    // The connections that made the account may still be closing.
    let open = |request: &Request| eventually(|| EventStream::open(&server, request).ok());
    let mut of_bot = open(&stream_of(&[PLAIN]).key(&account.key));
    let mut of_stranger = open(&stream_of(&[PLAIN]));
    eventually(|| (server.get("/v1/health").status == 200).then_some(()));
    assert_eq!(of_stranger.end(), End::CutOff);
    assert_eq!(of_bot.event().0, "snapshot");
    // A price published just before the snapshot may be sent once more.
    while of_bot.event().0 != "keepalive" {}
}

#[test]
fn a_stream_whose_client_reads_nothing_is_cut_off_and_counted() {
    let server = Server::simulated_with(&["--venue-speed", "200"]);
    let listed = server.get("/v1/markets").ok(200);
    let ids = listed.as_array().unwrap().iter().take(50).map(|it| it["condition_id"].as_str());
    let ids: Vec<&str> = ids.map(Option::unwrap).collect();
    let readers = || server.get("/v1/status").ok(200)["readers"].clone();
    let stream = EventStream::open(&server, &stream_of(&ids)).unwrap();
    assert_eq!(readers()["streams_cut_off"], 0);
    eventually(|| (readers()["streams_cut_off"] == 1).then_some(()));
    assert_eq!(readers()["unsent_bytes"], 0);
    drop(stream);
}

#[test]
fn a_client_that_comes_back_lacks_only_what_has_changed() {
    // Of a market that never changes.
    let mut stream = EventStream::open(shared(), &stream_of(&[PLAIN, RESOLVED])).unwrap();
    let text = stream.text().unwrap();
    let (_, last_id) = text.trim_end().rsplit_once("id: ").unwrap();
    let come_back = |last_id: &str| {
        let request = stream_of(&[RESOLVED, PLAIN]).header("last-event-id", last_id);
        EventStream::open(shared(), &request).unwrap().event().0
    };
    assert_eq!(come_back(last_id), "keepalive");
    let long = last_id.repeat(100);
    for nonsense in ["", "7", "\u{e9}", &long] {
        assert_eq!(come_back(nonsense), "snapshot", "{nonsense}");
    }
}

/// Both get the same frames, which are made once.
#[test]
fn streams_and_sockets_show_the_same() {
    let server = Server::simulated();
    let account = server.account();
    let rows = server.get("/v1/markets?limit=50").ok(200);
    let ids: Vec<&str> =
        rows.as_array().unwrap().iter().map(|row| row["condition_id"].as_str().unwrap()).collect();
    let mut stream = EventStream::open(&server, &stream_of(&ids)).unwrap();
    let mut socket = Socket::prices(&server, &account.key);
    socket.subscribe(&ids);
    let (kind, snapshot) = stream.event();
    assert_eq!(
        (kind.as_str(), snapshot["prices"].as_array().unwrap().len()),
        ("snapshot", ids.len())
    );
    let mut of_stream = HashMap::new();
    let mut shared_count = 0;
    let name = |frame: &mut Value| {
        frame.as_object_mut().unwrap().remove("conflated");
        (frame["market_id"].to_string(), frame["seq"].as_u64())
    };
    while shared_count < 20 {
        let (kind, mut frame) = stream.event();
        if kind == "market_price" {
            of_stream.insert(name(&mut frame), frame);
        }
        let mut frame = socket.text_of("price");
        if let Some(same) = of_stream.get(&name(&mut frame)) {
            assert_eq!(*same, frame);
            shared_count += 1;
        }
    }
}
