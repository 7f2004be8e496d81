mod slow;

use std::cell::{Cell, RefCell};
use std::future::pending;
use std::rc::Rc;

use bytes::Bytes;
use http_body_util::Full;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, LocalSet};
use tokio::time::{Instant, sleep};

use super::*;
use crate::http::body::UNCOUNTED_BYTES;
use crate::http::error::ApiError;
use paperbourse_core::limits::budget::ByteBudget;

const LIMIT: usize = 1_000;
const LARGE_LIMIT: usize = 100_000;

/// A client's end of a served connection.
struct Client {
    io: DuplexStream,
    server: JoinHandle<(Result<(), ConnectionError>, Instant)>,
    stop: Option<oneshot::Sender<Ending>>,
    started: Instant,
}

/// Answers with the length of the body. `/large` accepts larger bodies, `/slow` takes a minute,
/// `/big` answers with a megabyte, and `/discard` ignores the body.
async fn answer(request: Request<RequestBody>, budget: Arc<ByteBudget>) -> Response<Full<Bytes>> {
    let (head, mut body) = request.into_parts();
    let bytes_max = if head.uri.path() == "/large" { LARGE_LIMIT } else { LIMIT };
    if let Err(error) = body.limit(bytes_max) {
        return refusal(error.into());
    }
    if head.uri.path() == "/discard" {
        body.discard().await;
        return Response::new(Full::new("none".into()));
    }
    if head.uri.path() == "/slow" {
        sleep(Duration::from_mins(1)).await;
    }
    if head.uri.path() == "/big" {
        return Response::new(Full::new(Bytes::from(vec![b'x'; 1_000_000])));
    }
    match body.read(&budget).await {
        Ok(body) => Response::new(Full::new(format!("got {}", body.len()).into())),
        Err(error) => refusal(error.into()),
    }
}

fn refusal(error: ApiError) -> Response<Full<Bytes>> {
    let reply = error.into_reply();
    let mut response = Response::new(Full::new(reply.body.into()));
    *response.status_mut() = reply.status;
    *response.headers_mut() = reply.headers;
    response
}

impl Client {
    fn connect() -> Self {
        Self::connect_within(&ByteBudget::new(usize::MAX))
    }

    fn connect_within(budget: &Arc<ByteBudget>) -> Self {
        let budget = budget.clone();
        Self::connect_to(move |request| answer(request, budget.clone()))
    }

    /// To a server with this handler.
    fn connect_to<Answer, Body>(handler: impl Fn(Request<RequestBody>) -> Answer + 'static) -> Self
    where
        Answer: Future<Output = Response<Body>> + 'static,
        Body: Into<ReplyBody> + 'static,
    {
        let (io, server_io) = duplex(32 * 1024);
        let (stop, stopped) = oneshot::channel();
        let ending = async {
            match stopped.await {
                Ok(ending) => ending,
                Err(_) => pending().await,
            }
        };
        let serving =
            serve_connection(server_io, Deadlines::default(), IS_HOT.get(), handler, ending);
        let server = tokio::task::spawn_local(async { (serving.await.map(drop), Instant::now()) });
        Self { io, server, stop: Some(stop), started: Instant::now() }
    }

    async fn send(&mut self, text: impl AsRef<[u8]>) {
        self.io.write_all(text.as_ref()).await.unwrap();
    }

    /// Reads until `end` has arrived.
    async fn read_until(&mut self, end: &str) -> String {
        let mut text = String::new();
        while !text.ends_with(end) {
            let byte = self.io.read_u8().await.unwrap_or_else(|error| panic!("{error}: {text}"));
            text.push(char::from(byte));
        }
        text
    }

    /// Everything until the server closes, the result of serving, and the elapsed whole seconds.
    async fn end(mut self) -> (String, Result<(), ConnectionError>, u64) {
        let mut rest = Vec::new();
        self.io.read_to_end(&mut rest).await.unwrap();
        let (result, ended) = self.server.await.unwrap();
        let seconds = (ended - self.started).as_secs();
        (String::from_utf8(rest).unwrap(), result, seconds)
    }

    /// Checks that the server drops the client in this phase, this many seconds after the start.
    #[track_caller]
    fn expect_drop(self, phase: Phase, seconds: u64) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let (text, result, elapsed) = self.end().await;
            match result {
                Err(ConnectionError::Stalled { phase: stalled }) => {
                    assert_eq!((stalled, elapsed), (phase, seconds), "{caller}");
                }
                other => panic!("{caller}: {other:?} after {text}"),
            }
        }
    }
}

thread_local! {
    /// Which requests the connections of the current test answer in their lane.
    static IS_HOT: Cell<Option<IsHot>> = const { Cell::new(None) };
}

/// Runs on one thread with a clock that skips every wait: all by hyper, and all that it can in the
/// lane.
fn run(test: impl AsyncFn()) {
    let is_hot: IsHot = |bytes| !bytes.starts_with(b"GET /stream ");
    for is_hot in [None, Some(is_hot)] {
        IS_HOT.set(is_hot);
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().start_paused(true).build().unwrap();
        let ends = async { tokio::time::timeout(Duration::from_hours(1), test()).await };
        LocalSet::new().block_on(&runtime, ends).expect("a connection has a deadline");
    }
}

const GET: &str = "GET / HTTP/1.1\r\nhost: x\r\n\r\n";

fn post(length: usize) -> String {
    format!("POST / HTTP/1.1\r\nhost: x\r\ncontent-length: {length}\r\n\r\n")
}

/// What is sent before and after a hand-over begins, how many answers there are, and whether the
/// connection is left as it is.
#[test]
fn a_connection_is_handed_over_once_it_is_at_rest() {
    let (some, rest) = GET.split_at(10);
    let two = format!("{GET}{some}");
    for (before, after, answers, is_left) in [
        ("", "", 0, true),
        (GET, "", 1, true),
        (some, rest, 1, true),
        // A part of the next request was read together with this one, and is lost.
        (two.as_str(), "", 1, false),
    ] {
        run(async || {
            let (mut io, server_io) = duplex(32 * 1024);
            let (stop, stopped) = oneshot::channel();
            let budget = ByteBudget::new(usize::MAX);
            let handler = move |request| answer(request, budget.clone());
            let ending = async { stopped.await.unwrap() };
            let serving =
                serve_connection(server_io, Deadlines::default(), IS_HOT.get(), handler, ending);
            let server = tokio::task::spawn_local(serving);
            io.write_all(before.as_bytes()).await.unwrap();
            sleep(Duration::from_secs(1)).await;
            stop.send(Ending::HandedOver).unwrap();
            sleep(Duration::from_secs(1)).await;
            io.write_all(after.as_bytes()).await.unwrap();
            let left = server.await.unwrap().unwrap();
            assert_eq!(left.is_some(), is_left, "{before:?}");
            drop(left);
            let mut text = String::new();
            io.read_to_string(&mut text).await.unwrap();
            assert_eq!(text.matches("HTTP/1.1 200 OK").count(), answers, "{before:?}: {text}");
            assert!(!text.contains("connection: close"), "{before:?}: {text}");
        });
    }
}

/// Pipelined requests are served one per turn of their connection.
#[test]
fn a_connection_that_pipelines_takes_turns_with_the_others() {
    run(async || {
        let served = Rc::new(RefCell::new(String::new()));
        let mut clients = Vec::new();
        for (name, request_count) in [('p', 16), ('o', 1)] {
            let (mut io, server_io) = duplex(32 * 1024);
            io.write_all(GET.repeat(request_count).as_bytes()).await.unwrap();
            io.shutdown().await.unwrap();
            let (served, budget) = (served.clone(), ByteBudget::new(usize::MAX));
            let handler = move |request| {
                let (served, budget) = (served.clone(), budget.clone());
                async move {
                    served.borrow_mut().push(name);
                    answer(request, budget).await
                }
            };
            let serving =
                serve_connection(server_io, Deadlines::default(), IS_HOT.get(), handler, pending());
            clients.push((io, tokio::task::spawn_local(serving)));
        }
        for (mut io, server) in clients {
            io.read_to_end(&mut Vec::new()).await.unwrap();
            server.await.unwrap().unwrap();
        }
        assert_eq!(*served.borrow(), format!("po{}", "p".repeat(15)));
    });
}

#[test]
fn an_idle_client_is_dropped_after_75_seconds() {
    run(async || {
        Client::connect().expect_drop(Phase::Idle, 75).await;

        let mut client = Client::connect();
        sleep(Duration::from_secs(74)).await;
        client.send(GET).await;
        client.read_until("got 0").await;
        client.expect_drop(Phase::Idle, 74 + 75).await;
    });
}

#[test]
fn a_slow_head_is_dropped_10_seconds_after_its_first_byte() {
    run(async || {
        let mut client = Client::connect();
        sleep(Duration::from_secs(30)).await;
        client.send("G").await;
        for _ in 0..3 {
            sleep(Duration::from_secs(3)).await;
            client.send("E").await;
        }
        client.expect_drop(Phase::Head, 40).await;

        let mut client = Client::connect();
        client.send(GET).await;
        client.read_until("got 0").await;
        sleep(Duration::from_secs(20)).await;
        client.send("GET / HT").await;
        client.expect_drop(Phase::Head, 30).await;
    });
}

#[test]
fn a_body_that_stalls_or_crawls_is_dropped_and_one_that_flows_is_not() {
    // Pieces as (bytes, seconds before each), and the second at which the client is dropped, unless
    // the whole body arrives.
    for (body_bytes, piece_bytes, pause_seconds, drop_seconds) in [
        (5, 1, 1, None),
        (5, 5, 9, None),
        (5, 1, 11, Some(10)),
        (5, 1, 9, Some(10)),
        (500, 1, 1, Some(10)),
        (20_000, 2_000, 2, None),
        (20_000, 2_000, 3, Some(23)),
        (90_000, 1_000, 1, Some(30)),
        (90_000, 30_000, 9, None),
        (90_000, 20_000, 9, Some(30)),
    ] {
        run(async || {
            let mut client = Client::connect();
            // Earlier requests on the connection make no difference.
            client.send(post(3)).await;
            client.send("abc").await;
            client.read_until("got 3").await;
            sleep(Duration::from_secs(50)).await;
            client.started = Instant::now();
            client.send(post(body_bytes).replace("/ ", "/large ")).await;
            let mut sent_bytes = 0;
            while sent_bytes < body_bytes {
                sleep(Duration::from_secs(pause_seconds)).await;
                if client.server.is_finished() {
                    break;
                }
                client.send("x".repeat(piece_bytes)).await;
                sent_bytes += piece_bytes;
            }
            match drop_seconds {
                None => {
                    let text = client.read_until(&format!("got {body_bytes}")).await;
                    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
                }
                Some(seconds) => client.expect_drop(Phase::Body, seconds).await,
            }
        });
    }
}

#[test]
fn an_ignored_body_has_the_same_deadlines() {
    run(async || {
        let mut client = Client::connect();
        client.send(post(500).replace("/ ", "/discard ")).await;
        for _ in 0..9 {
            sleep(Duration::from_secs(1)).await;
            client.send("x").await;
        }
        client.expect_drop(Phase::Body, 10).await;
    });
}

#[test]
fn a_discarded_body_makes_way_for_the_next_request() {
    run(async || {
        let mut client = Client::connect();
        for _ in 0..2 {
            client.send(post(LIMIT).replace("/ ", "/discard ")).await;
            client.send("x".repeat(LIMIT / 2)).await;
            sleep(Duration::from_secs(1)).await;
            client.send("x".repeat(LIMIT - LIMIT / 2)).await;
            let text = client.read_until("none").await;
            assert!(text.starts_with("HTTP/1.1 200") && !text.contains("close"), "{text}");
        }
        // A body that exceeds its limit does not.
        let chunked = "POST /discard HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        client.send(chunked).await;
        for _ in 0..11 {
            client.send(format!("64\r\n{}\r\n", "x".repeat(100))).await;
        }
        let (text, ..) = client.end().await;
        assert!(text.contains("connection: close"), "{text}");
    });
}

#[test]
fn all_bodies_together_have_a_budget() {
    run(async || {
        let budget = ByteBudget::new(10_000);
        let begin = async |body_bytes: usize, sent_bytes: usize| {
            let mut client = Client::connect_within(&budget);
            client.send(post(body_bytes).replace("/ ", "/large ")).await;
            client.send("x".repeat(sent_bytes)).await;
            sleep(Duration::from_millis(1)).await;
            client
        };
        let mut first = begin(14_000, 12_000).await;
        assert_eq!(budget.held_bytes(), 12_000 - UNCOUNTED_BYTES);
        // An announced length takes nothing from the budget, nor does a small body.
        let mut idle = begin(LARGE_LIMIT, 0).await;
        let mut small = begin(UNCOUNTED_BYTES, UNCOUNTED_BYTES).await;
        small.read_until("got 4096").await;
        let mut second = begin(9_000, 9_000).await;
        let text = second.read_until("}").await;
        assert!(text.starts_with("HTTP/1.1 503") && text.contains("SERVER_BUSY"), "{text}");
        first.send("x".repeat(2_000)).await;
        first.read_until("got 14000").await;
        assert_eq!(budget.held_bytes(), 0);
        let mut again = begin(14_000, 14_000).await;
        again.read_until("got 14000").await;
        idle.send("x".repeat(5_000)).await;
        sleep(Duration::from_millis(1)).await;
        assert_eq!(budget.held_bytes(), 5_000 - UNCOUNTED_BYTES);
        drop(idle);
        sleep(Duration::from_millis(1)).await;
        assert_eq!(budget.held_bytes(), 0);
    });
}

#[test]
fn a_handler_has_no_deadline() {
    run(async || {
        let mut client = Client::connect();
        client.send(GET.replace("/ ", "/slow ")).await;
        assert!(client.read_until("got 0").await.starts_with("HTTP/1.1 200"));
        assert_eq!(client.started.elapsed().as_secs(), 60);
        client.expect_drop(Phase::Idle, 60 + 75).await;
    });
}

#[test]
fn a_client_that_closes_its_sending_side_gets_its_answer() {
    run(async || {
        let mut client = Client::connect();
        client.send(GET.replace("/ ", "/slow ")).await;
        sleep(Duration::from_secs(1)).await;
        client.io.shutdown().await.unwrap();
        let (text, result, seconds) = client.end().await;
        assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("got 0"), "{text}");
        assert!(result.is_ok(), "{result:?}");
        assert_eq!(seconds, 60);
    });
}

#[test]
fn the_size_of_heads_is_limited() {
    run(async || {
        let head = |bytes: usize| {
            let frame = "GET / HTTP/1.1\r\nx: \r\n\r\n".len();
            format!("GET / HTTP/1.1\r\nx: {}\r\n\r\n", "y".repeat(bytes - frame))
        };
        let mut client = Client::connect();
        client.send(head(HEAD_BYTES_MAX)).await;
        client.read_until("got 0").await;
        client.send(head(HEAD_BYTES_MAX + 1)).await;
        let (text, ..) = client.end().await;
        assert!(text.starts_with("HTTP/1.1 431 "), "{text}");

        let mut client = Client::connect();
        client.send("G".repeat(HEAD_BYTES_MAX + 1)).await;
        let (text, ..) = client.end().await;
        assert!(text.starts_with("HTTP/1.1 4"), "{text}");
    });
}

#[test]
fn the_size_of_bodies_is_limited() {
    run(async || {
        let mut client = Client::connect();
        client.send(post(LIMIT)).await;
        client.send("x".repeat(LIMIT)).await;
        client.read_until("got 1000").await;
        // Refused by its announced length before any of it arrives.
        client.send(post(LIMIT + 1)).await;
        let (text, ..) = client.end().await;
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");

        let chunked = "POST / HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut client = Client::connect();
        client.send(chunked).await;
        client.send("3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n").await;
        client.read_until("got 5").await;
        client.send(chunked).await;
        for _ in 0..11 {
            client.send(format!("64\r\n{}\r\n", "x".repeat(100))).await;
        }
        let (text, result, seconds) = client.end().await;
        assert!(text.starts_with("HTTP/1.1 413 "), "{text} {result:?} {seconds}");
    });
}

#[test]
fn a_client_refused_while_sending_still_gets_the_answer() {
    run(async || {
        let mut client = Client::connect();
        client.send(post(10_000_000)).await;
        // More than the transport buffers: without a reader this would wait forever.
        for _ in 0..100 {
            client.send("x".repeat(10_000)).await;
        }
        let (text, ..) = client.end().await;
        assert!(text.starts_with("HTTP/1.1 413 "), "{text}");
        assert!(text.contains("connection: close"), "{text}");
    });
}

#[test]
fn a_connection_is_reused_and_may_be_pipelined() {
    run(async || {
        let mut client = Client::connect();
        client.send(format!("{GET}{}abc{GET}", post(3))).await;
        let text = client.read_until("got 0").await + &client.read_until("got 3").await;
        let text = text + &client.read_until("got 0").await;
        assert_eq!(text.matches("HTTP/1.1 200").count(), 3);
        client.expect_drop(Phase::Idle, 75).await;
    });
}

/// When a request follows a shutdown, if at all, whether it is answered, and when the connection
/// closes; for a connection that has had an answer, and for a new one.
#[test]
fn at_a_shutdown_what_has_arrived_is_answered_and_new_connections_may_ask_once() {
    for (is_new, request_ms, is_answered, closed_ms) in [
        (false, None, false, 1),
        (false, Some(0), true, 0),
        (false, Some(2), false, 1),
        (true, None, false, 500),
        (true, Some(0), true, 0),
        (true, Some(400), true, 400),
        (true, Some(600), false, 500),
    ] {
        run(async || {
            let mut client = Client::connect();
            if !is_new {
                client.send(GET).await;
                client.read_until("got 0").await;
            }
            client.stop.take().unwrap().send(Ending::Graceful).unwrap();
            let began = Instant::now();
            if let Some(request_ms) = request_ms {
                sleep(Duration::from_millis(request_ms)).await;
                // The connection may be closed by now.
                let _ = client.io.write_all(GET.as_bytes()).await;
            }
            let mut text = String::new();
            client.io.read_to_string(&mut text).await.unwrap();
            drop(client.io);
            let (result, ended) = client.server.await.unwrap();
            let case = format!("{is_new} {request_ms:?}: {text}");
            assert!(result.is_ok(), "{case}");
            assert_eq!(text.contains("connection: close"), is_answered, "{case}");
            assert_eq!(text.matches("HTTP/1.1 200").count(), usize::from(is_answered), "{case}");
            let elapsed_ms = (ended - began).as_millis();
            assert!((closed_ms..=closed_ms + 2).contains(&elapsed_ms), "{case}: {elapsed_ms}");
        });
    }
}

/// A head of which only a part has arrived is waited for, and what follows the last answer is read.
#[test]
fn at_a_shutdown_a_head_may_arrive_in_pieces() {
    for (before, is_pipelined) in [("", false), (GET, false), ("", true)] {
        run(async || {
            let mut client = Client::connect();
            if !before.is_empty() {
                client.send(before).await;
                client.read_until("got 0").await;
            }
            let (some, rest) = GET.split_at(10);
            client.send(some).await;
            sleep(Duration::from_millis(1)).await;
            client.stop.take().unwrap().send(Ending::Graceful).unwrap();
            sleep(Duration::from_millis(5)).await;
            client.send(rest).await;
            if is_pipelined {
                client.send(GET).await;
            }
            let (text, result, seconds) = client.end().await;
            assert_eq!(text.matches("HTTP/1.1 200").count(), 1, "{text}");
            assert!(text.contains("connection: close") && result.is_ok(), "{text}: {result:?}");
            assert_eq!(seconds, 0);
        });
    }
}

#[test]
fn shutdown_lets_a_request_in_flight_finish() {
    run(async || {
        let mut client = Client::connect();
        client.send(GET.replace("/ ", "/slow ")).await;
        sleep(Duration::from_secs(5)).await;
        client.stop.take().unwrap().send(Ending::Graceful).unwrap();
        let (text, result, seconds) = client.end().await;
        assert!(text.starts_with("HTTP/1.1 200"), "{text}");
        assert!(text.contains("connection: close"), "{text}");
        assert_eq!(seconds, 60);
        assert!(result.is_ok(), "{result:?}");
    });
}

#[test]
fn a_dismissed_connection_ends_at_once() {
    run(async || {
        for request in ["", "GET / HT", &GET.replace("/ ", "/slow ")] {
            let mut client = Client::connect();
            client.send(request).await;
            sleep(Duration::from_secs(1)).await;
            client.stop.take().unwrap().send(Ending::Abrupt).unwrap();
            let (text, result, seconds) = client.end().await;
            assert!(matches!(result, Err(ConnectionError::Dismissed)), "{result:?}");
            assert_eq!((text.as_str(), seconds), ("", 1));
        }
    });
}

#[test]
fn an_upgraded_connection_has_no_deadline() {
    run(async || {
        let (mut io, server_io) = duplex(1_024);
        let is_upgraded = Rc::new(Cell::new(false));
        let seen = is_upgraded.clone();
        let handler = move |request: Request<RequestBody>| {
            let seen = seen.clone();
            tokio::task::spawn_local(async move {
                let mut io = TokioIo::new(hyper::upgrade::on(request).await.unwrap());
                assert_eq!(io.read_u8().await.unwrap(), b'!');
                seen.set(true);
                io.write_all(b"?").await.unwrap();
            });
            let mut response = Response::new(Full::default());
            *response.status_mut() = hyper::StatusCode::SWITCHING_PROTOCOLS;
            response.headers_mut().insert("upgrade", "x".parse().unwrap());
            response.headers_mut().insert("connection", "upgrade".parse().unwrap());
            std::future::ready(response)
        };
        let serving =
            serve_connection(server_io, Deadlines::default(), IS_HOT.get(), handler, pending());
        let server = tokio::task::spawn_local(serving);
        io.write_all(b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n").await.unwrap();
        server.await.unwrap().unwrap();
        sleep(Duration::from_secs(1_000)).await;
        io.write_all(b"!").await.unwrap();
        let mut rest = Vec::new();
        io.read_to_end(&mut rest).await.unwrap();
        assert!(rest.starts_with(b"HTTP/1.1 101 ") && rest.ends_with(b"?"));
        assert!(is_upgraded.get());
    });
}
