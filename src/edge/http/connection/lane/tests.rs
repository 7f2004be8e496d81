//! The lane against hyper: the same bytes sent in the same pieces get the same answers, at the same
//! time, and the handler sees the same requests.

use std::cell::{Cell, RefCell};
use std::fmt::Write as _;
use std::future::pending;
use std::rc::Rc;
use std::time::Duration;

use http_body_util::Full;
use hyper::Response;
use proptest::prelude::*;
use proptest::sample::select;
use tokio::io::duplex;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep};

use super::*;
use crate::http::connection::{Deadlines, serve_connection};
use paperbourse_core::limits::budget::ByteBudget;

/// The longest body that the handler reads.
const BODY_BYTES_MAX: usize = 60;
/// More than one connection may read ahead, and than the pipe takes at once.
const LARGE_ANSWER_BYTES: usize = 200_000;
const PIPE_BYTES: usize = 32 * 1024;

/// Pieces of a connection's bytes. Between two of them the client waits until nothing moves.
type Script = Vec<Vec<u8>>;

/// What a connection did: what its handler saw, what its client got, how it ended and after how
/// many milliseconds.
#[derive(PartialEq, Eq, Debug)]
struct Seen {
    requests: String,
    answers: String,
    end: String,
    elapsed_ms: u128,
}

/// Serves a client that sends a script and then reads until the end. Returns what was seen, and how
/// many requests the lane has answered.
fn serve_script(script: &Script, is_hot: Option<IsHot>) -> (Seen, usize) {
    let requests = Rc::new(RefCell::new(String::new()));
    let in_lane = Rc::new(Cell::new(0));
    let handler = |request: Request<RequestBody>| {
        let (requests, in_lane) = (requests.clone(), in_lane.clone());
        async move { handle(request, &requests, &in_lane).await }
    };
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().start_paused(true).build().unwrap();
    let (answers, end, elapsed) = LocalSet::new().block_on(&runtime, async {
        let began = Instant::now();
        let (io, server) = duplex(PIPE_BYTES);
        let (mut reader, mut writer) = tokio::io::split(io);
        let serving = serve_connection(server, Deadlines::default(), is_hot, handler, pending());
        let sending = async {
            for piece in script {
                // The server may have closed.
                let _ = writer.write_all(piece).await;
                sleep(Duration::from_millis(1)).await;
            }
            let _ = writer.shutdown().await;
        };
        let reading = async {
            let mut answers = Vec::new();
            let _ = reader.read_to_end(&mut answers).await;
            answers
        };
        let (served, (), answers) = tokio::join!(serving, sending, reading);
        // The errors of hyper and of the transport read alike only here.
        let end = served.map_or_else(|_| "failed", |_| "ended").to_owned();
        (answers, end, began.elapsed())
    });
    let answers = without_dates(&String::from_utf8_lossy(&answers));
    let requests = requests.take();
    (Seen { requests, answers, end, elapsed_ms: elapsed.as_millis() }, in_lane.get())
}

/// Writes down all of a request, and answers as its path says.
async fn handle(
    request: Request<RequestBody>,
    requests: &RefCell<String>,
    in_lane: &Cell<usize>,
) -> Response<Full<Bytes>> {
    let (head, mut body) = request.into_parts();
    in_lane.set(in_lane.get() + usize::from(body.is_whole()));
    let path = head.uri.path();
    let read = match body.limit(BODY_BYTES_MAX) {
        Ok(()) if path == "/unread" => Ok(String::new()),
        Ok(()) if path == "/discard" => {
            body.discard().await;
            Ok(String::new())
        }
        Ok(()) => {
            let read = body.read(&ByteBudget::new(usize::MAX)).await;
            read.map(|body| String::from_utf8_lossy(&body).into_owned())
        }
        Err(error) => Err(error),
    };
    let is_late = body.is_late();
    let text = format!("{head:?} {is_late} {} {read:?}", body.is_pipelined());
    writeln!(requests.borrow_mut(), "{text}").unwrap();
    let (status, text) = match path {
        // First: after a body that breaks off, hyper sends as much of a large answer as it can.
        _ if read.is_err() => (StatusCode::PAYLOAD_TOO_LARGE, "too large".to_owned()),
        "/none" => (StatusCode::NO_CONTENT, String::new()),
        "/same" => (StatusCode::NOT_MODIFIED, String::new()),
        "/empty" => (StatusCode::OK, String::new()),
        "/large" => (StatusCode::OK, "x".repeat(LARGE_ANSWER_BYTES)),
        "/slow" => {
            sleep(Duration::from_millis(7)).await;
            (StatusCode::ACCEPTED, text)
        }
        _ => (StatusCode::OK, text),
    };
    let mut response = Response::new(Full::new(text.into()));
    *response.status_mut() = status;
    for (name, value) in [("x-one", "1"), ("x-two", ""), ("x-one", "3")] {
        response.headers_mut().append(name, HeaderValue::from_static(value));
    }
    response
}

fn without_dates(answers: &str) -> String {
    let is_date = |line: &&str| line.starts_with("date: ") && line.ends_with(" GMT");
    answers.split("\r\n").filter(|line| !is_date(line)).collect::<Vec<_>>().join("\r\n")
}

/// Checks that the lane changes nothing; returns how many requests it has answered.
#[track_caller]
fn check(script: &Script) -> usize {
    let (by_hyper, none) = serve_script(script, None);
    let (by_lane, in_lane) = serve_script(script, Some(|_| true));
    assert_eq!(none, 0);
    let shown: Vec<_> = script.iter().map(|piece| String::from_utf8_lossy(piece)).collect();
    assert_eq!(by_lane, by_hyper, "{shown:#?}");
    in_lane
}

/// A usual request for a path, with these headers and this body.
fn request(line: &str, headers: &[&str], body: &str) -> Vec<u8> {
    let mut text = format!("{line} HTTP/1.1\r\nHost: here\r\n");
    for header in headers {
        text.push_str(header);
        text.push_str("\r\n");
    }
    if !body.is_empty() {
        write!(text, "Content-Length: {}\r\n", body.len()).unwrap();
    }
    text.push_str("\r\n");
    text.push_str(body);
    text.into_bytes()
}

/// Which requests the lane answers, by itself, and that hyper would answer alike.
#[test]
fn usual_requests_are_answered_in_the_lane() {
    let post = request("POST /trade", &["X-API-Key: k"], r#"{"a":1}"#);
    let mut head = request("POST /a", &[], &"x".repeat(BODY_BYTES_MAX + 1));
    head.truncate(head.len() - BODY_BYTES_MAX - 1);
    for (script, in_lane) in [
        (vec![post.clone()], 1),
        (vec![post.clone(), post.clone(), post.clone()], 3),
        (vec![[post.clone(), post.clone()].concat()], 2),
        (vec![request("GET /a?b=c&d", &["Connection: Keep-Alive"], "")], 1),
        (vec![request("DELETE /a", &[], "")], 1),
        (vec![request("GET /large", &[], ""), post.clone()], 2),
        (vec![request("GET /none", &[], ""), request("GET /same", &[], ""), post.clone()], 3),
        // The answer says that the connection closes.
        (vec![[request("POST /unread", &[], "abc"), post.clone()].concat()], 1),
        (vec![request("POST /a", &[], &"x".repeat(BODY_BYTES_MAX + 1))], 1),
        // Refused before its body came, which must not be taken for the next request.
        (vec![head.clone(), [&[b'x'; BODY_BYTES_MAX + 1][..], &post].concat()], 0),
        // What is for hyper, which gives the connection back.
        (vec![request("GET /a", &["Connection: close"], ""), post.clone()], 0),
        (vec![request("GET /a", &["Connection: keep-alive, x"], ""), post.clone()], 0),
        (vec![request("POST /a", &["Transfer-Encoding: chunked"], ""), b"0\r\n\r\n".to_vec()], 0),
        (vec![request("POST /a", &["Expect: 100-continue"], "abc"), post.clone()], 1),
        (vec![request("POST /a", &["Content-Length: 3"], "abc"), post.clone()], 1),
        (vec![request("POST /a", &["Content-Length: +3"], "abc")], 0),
        (vec![request("GET /a", &["Upgrade: x"], ""), post.clone()], 1),
        (vec![request("HEAD /a", &[], ""), post.clone()], 1),
        (vec![request("GET /a", &["X: y"; HEADERS_MAX], ""), post.clone()], 1),
        (vec![request("GET /a", &["X: y"; 200], "")], 0),
        (vec![request("GET /\u{fc}", &[], ""), post.clone()], 2),
        (vec![post[..10].to_vec(), post[10..].to_vec(), post.clone()], 1),
        (vec![post[..post.len() - 2].to_vec(), post[post.len() - 2..].to_vec(), post.clone()], 1),
        (vec![[&post[..], &post[..10]].concat(), post[10..].to_vec(), post.clone()], 2),
        (vec![b"\r\n".to_vec(), post.clone()], 0),
        (vec![b"GET / HTTP/1.0\r\n\r\n".to_vec()], 0),
        (vec![b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".to_vec(), post], 0),
        (vec![], 0),
    ] {
        assert_eq!(check(&script), in_lane, "{script:?}");
    }
}

/// A line of a head, usual or not.
fn header() -> impl Strategy<Value = Vec<u8>> {
    let usual = select(vec![
        "Host: there",
        "X-API-Key: pk_1",
        "Authorization: Bearer a.b.c",
        "Accept: */*",
        "Connection: keep-alive",
        "X-Request-Id: 7",
        "Idempotency-Key: k-1",
        "x-empty:",
        "Te: trailers",
    ]);
    let unusual = select(vec![
        "Connection: close",
        "connection: Upgrade",
        "Connection: keep-alive, close",
        "Connection:",
        "Expect: 100-continue",
        "expect: other",
        "Upgrade: h2c",
        "Transfer-Encoding: chunked",
        "Transfer-Encoding: gzip, chunked",
        "transfer-encoding: identity",
        "Content-Length: 3",
        "Content-Length: 0",
        "Content-Length: 03",
        "content-length: 3, 3",
        "Content-Length: -1",
        "Content-Length: 99999999999999999999",
        "Content-Length: 100000",
        "Content-Length: 61",
        "Content-Length:  3 ",
        "X: \t tab\t",
        "X : space",
        " folded",
        "X\u{e9}: y",
        "X: \u{e9}",
        "X: \u{1}",
        "no colon",
        ": no name",
        "X: \u{7f}",
        "Trailer: x",
        "Keep-Alive: 5",
    ]);
    prop_oneof![
        6 => usual.prop_map(|line| line.as_bytes().to_vec()),
        1 => unusual.prop_map(|line| line.as_bytes().to_vec()),
        1 => prop::collection::vec(any::<u8>(), 0..12),
    ]
}

/// A request, nearly always a usual one with something odd.
fn any_request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof![
        8 => select(vec!["GET", "POST", "DELETE"]),
        1 => select(vec!["HEAD", "PUT", "OPTIONS", "CONNECT", "get", "G T", "\r\nGET", ""]),
    ];
    let path = prop_oneof![
        6 => select(vec!["/a", "/trade", "/unread", "/discard", "/slow"]),
        2 => select(vec!["/none", "/same", "/empty"]),
        1 => select(vec!["/large", "/a?b=%zz#c", "http://h/a", "*", "h:80", "/\u{fc}", "/a b"]),
    ];
    let version = prop_oneof![
        12 => Just("HTTP/1.1"),
        1 => select(vec!["HTTP/1.0", "HTTP/2.0", "HTTP/1.", "http/1.1", ""]),
    ];
    let end = prop_oneof![20 => Just("\r\n"), 1 => Just("\n")];
    let headers = prop::collection::vec(header(), 0..8);
    let repeats = prop_oneof![30 => Just(0_usize), 1 => 25..40_usize, 1 => 95..110_usize];
    let body = prop_oneof![
        2 => Just(None),
        3 => (0..=70_usize).prop_map(Some),
    ];
    (method, path, version, headers, repeats, end, body).prop_map(
        |(method, path, version, headers, repeats, end, body)| {
            let mut bytes = format!("{method} {path} {version}{end}").into_bytes();
            for header in headers.into_iter().chain((0..repeats).map(|_| b"N: v".to_vec())) {
                bytes.extend(header);
                bytes.extend(end.as_bytes());
            }
            if let Some(length) = body {
                bytes.extend(format!("content-length: {length}{end}").as_bytes());
            }
            bytes.extend(end.as_bytes());
            bytes.extend("abcdefghij".bytes().cycle().take(body.unwrap_or(0)));
            bytes
        },
    )
}

/// Several requests, cut into pieces at some places.
fn any_script() -> impl Strategy<Value = Script> {
    let requests = prop::collection::vec(any_request(), 1..5);
    let cuts = prop::collection::vec(any::<prop::sample::Index>(), 0..4);
    (requests, cuts, any::<bool>()).prop_map(|(requests, cuts, is_apart)| {
        if is_apart && cuts.is_empty() {
            return requests;
        }
        let bytes = requests.concat();
        let mut places: Vec<_> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        places.sort_unstable();
        let starts = std::iter::once(0).chain(places.clone());
        let ends = places.iter().copied().chain([bytes.len()]);
        starts.zip(ends).map(|(start, end)| bytes[start..end].to_vec()).collect()
    })
}

proptest! {
    #[test]
    fn any_bytes_are_answered_as_hyper_answers_them(script in any_script()) {
        check(&script);
    }
}
