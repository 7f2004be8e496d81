use std::future::{pending, ready};
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::Waker;
use std::time::Duration;

use hyper::{Request, Response};
use parking_lot::Mutex;
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, duplex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use super::*;
use crate::http::body::RequestBody;
use crate::http::connection::{ConnectionError, Deadlines, Ending, Phase, serve_connection};
use paperbourse_core::limits::budget::ByteBudget;

const GET: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n";

/// How many bytes the pipe to the client holds.
const PIPE_BYTES: usize = 1_000;

/// A source of numbers, which a test allows it to send.
#[derive(Default)]
struct Numbers {
    /// How it ends once all allowed numbers are sent, if it does.
    end: Option<Result<(), CutOff>>,
    /// What it says last if the server shuts down.
    farewell: &'static str,
    /// The memory for what its client has not read, if it has to ask for it.
    unsent: Option<Arc<ByteBudget>>,
    allowed: AtomicU32,
    sent: AtomicU32,
    /// How often it was told that its client is slow.
    slow_count: AtomicU32,
    waker: Mutex<Option<Waker>>,
}

impl Numbers {
    fn allow(&self, count: u32) {
        self.allowed.fetch_add(count, Ordering::Relaxed);
        if let Some(waker) = self.waker.lock().take() {
            waker.wake();
        }
    }

    fn sent(&self) -> u32 {
        self.sent.load(Ordering::Relaxed)
    }
}

/// Each number takes `bytes` bytes.
struct NumberSource {
    numbers: Arc<Numbers>,
    bytes: usize,
}

impl Source for NumberSource {
    fn poll_bytes(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>> {
        let number = self.numbers.sent();
        if number == self.numbers.allowed.load(Ordering::Relaxed) {
            if let (Some(end), true) = (self.numbers.end, number > 0) {
                return Poll::Ready(end.err().map(Err));
            }
            *self.numbers.waker.lock() = Some(context.waker().clone());
            return Poll::Pending;
        }
        self.numbers.sent.fetch_add(1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(format!("{number:.<width$}", width = self.bytes).into())))
    }

    fn note_slow(&mut self) {
        self.numbers.slow_count.fetch_add(1, Ordering::Relaxed);
    }

    fn is_endless(&self) -> bool {
        self.numbers.end.is_none()
    }

    fn farewell(&mut self) -> Bytes {
        Bytes::from_static(self.numbers.farewell.as_bytes())
    }
}

/// A client that has asked for a stream.
struct Client {
    io: DuplexStream,
    numbers: Arc<Numbers>,
    server: JoinHandle<(Result<(), ConnectionError>, Instant)>,
    stop: Option<oneshot::Sender<Ending>>,
    began: Instant,
}

impl Client {
    /// Of a stream without an end.
    async fn connect(bytes: usize) -> Self {
        Self::connect_to(Numbers::default(), bytes).await
    }

    async fn connect_to(numbers: Numbers, bytes: usize) -> Self {
        let (mut io, server_io) = duplex(PIPE_BYTES);
        let numbers = Arc::new(numbers);
        let source = numbers.clone();
        let handler = move |_: Request<RequestBody>| {
            let source = NumberSource { numbers: source.clone(), bytes };
            let unsent = source.numbers.unsent.as_ref().map(ByteBudget::share);
            ready(Response::new(ReplyBody::Stream(Box::new(source), unsent)))
        };
        let (stop, stopped) = oneshot::channel();
        let ending = async {
            match stopped.await {
                Ok(ending) => ending,
                Err(_) => pending().await,
            }
        };
        let serving = serve_connection(server_io, Deadlines::default(), None, handler, ending);
        let server = tokio::spawn(async { (serving.await.map(drop), Instant::now()) });
        io.write_all(GET).await.unwrap();
        let mut client = Self { io, numbers, server, stop: Some(stop), began: Instant::now() };
        client.expect_head().await;
        client
    }

    async fn expect_head(&mut self) {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            head.push(char::from(self.io.read_u8().await.unwrap()));
        }
        assert!(head.contains("transfer-encoding: chunked\r\n"), "{head}");
    }

    /// Reads one chunk and checks its number.
    async fn expect(&mut self, number: u32) {
        let mut size = String::new();
        while !size.ends_with("\r\n") {
            size.push(char::from(self.io.read_u8().await.unwrap()));
        }
        let mut chunk = vec![0; usize::from_str_radix(size.trim(), 16).unwrap() + 2];
        self.io.read_exact(&mut chunk).await.unwrap();
        let text = String::from_utf8(chunk).unwrap();
        assert_eq!(text.trim_end_matches(['.', '\r', '\n']), number.to_string());
    }

    /// Everything until the server closes, the result of serving, and the elapsed whole seconds.
    async fn end(self) -> (String, Result<(), ConnectionError>, u64) {
        let Self { mut io, server, began, .. } = self;
        let mut rest = Vec::new();
        let reading = async { io.read_to_end(&mut rest).await.unwrap() };
        let (served, _) = tokio::join!(server, reading);
        let (result, ended) = served.unwrap();
        (String::from_utf8(rest).unwrap(), result, (ended - began).as_secs())
    }
}

#[tokio::test(start_paused = true)]
async fn a_source_learns_that_its_client_is_slow() {
    for (bytes, slow_count) in [(10, 0), (2 * PIPE_BYTES, 2)] {
        let mut client = Client::connect(bytes).await;
        for number in 0..2 {
            client.numbers.allow(1);
            // The pipe is full before the client reads.
            sleep(Duration::from_millis(1)).await;
            client.expect(number).await;
            sleep(Duration::from_millis(1)).await;
        }
        let told = client.numbers.slow_count.load(Ordering::Relaxed);
        assert_eq!(told, slow_count, "{bytes} bytes at a time");
    }
}

#[tokio::test(start_paused = true)]
async fn a_quiet_stream_has_no_deadline() {
    let mut client = Client::connect(10).await;
    for number in 0..5 {
        sleep(Duration::from_secs(1_000)).await;
        client.numbers.allow(1);
        client.expect(number).await;
    }
    // Nobody reads what else it sends, and that is no reason to end it.
    client.io.write_all(GET).await.unwrap();
    for number in 5..8 {
        client.numbers.allow(1);
        client.expect(number).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_keeps_up_waits_for_nothing() {
    for bytes in [10, PIPE_BYTES / 2, PIPE_BYTES, 5 * PIPE_BYTES] {
        let mut client = Client::connect(bytes).await;
        client.numbers.allow(100);
        for number in 0..100 {
            let arrived = timeout(Duration::from_secs(1), client.expect(number)).await;
            assert!(arrived.is_ok(), "{number} of {bytes} bytes each");
        }
        assert_eq!(client.began.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_made_for_a_client_that_has_not_taken_the_last_bytes() {
    let mut client = Client::connect(PIPE_BYTES).await;
    client.numbers.allow(100);
    for number in 0..20 {
        // Even if the writer gets its turn before the client has read anything.
        sleep(Duration::from_millis(1)).await;
        assert_eq!(client.numbers.sent(), number + 1, "no more than one at a time");
        client.expect(number).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_takes_nothing_for_ten_seconds_is_dropped() {
    let mut client = Client::connect(10 * PIPE_BYTES).await;
    client.numbers.allow(1);
    for _ in 0..8 {
        sleep(Duration::from_secs(9)).await;
        client.io.read_exact(&mut [0; PIPE_BYTES]).await.unwrap();
    }
    let Client { server, began, io, .. } = client;
    let (result, ended) = server.await.unwrap();
    assert!(matches!(result, Err(ConnectionError::CutOff)), "{result:?}");
    assert_eq!((ended - began).as_secs(), 8 * 9 + 10);
    drop(io);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_with_its_client() {
    for take in [0, 1] {
        let mut client = Client::connect(10).await;
        client.numbers.allow(take);
        if take > 0 {
            client.expect(0).await;
        }
        let Client { server, began, io, numbers, .. } = client;
        drop(io);
        let (result, ended) = server.await.unwrap();
        assert!(matches!(result, Err(ConnectionError::Broken(_))), "{result:?}");
        assert_eq!(ended, began);
        assert_eq!(Arc::strong_count(&numbers), 1, "the source is gone");
    }
}

/// hyper takes it at once; what counts is when the client has.
#[tokio::test(start_paused = true)]
async fn an_answer_holds_memory_until_the_client_has_taken_it() {
    let budget = ByteBudget::new(usize::MAX);
    for is_taken in [true, false] {
        let (mut io, server_io) = duplex(PIPE_BYTES);
        let bytes = 5 * PIPE_BYTES;
        let shared = budget.clone();
        let handler = move |_: Request<RequestBody>| {
            let mut held = shared.share();
            assert!(held.hold(bytes));
            ready(Response::new(ReplyBody::Whole(Full::new(vec![b'x'; bytes].into()), Some(held))))
        };
        let serving = serve_connection(server_io, Deadlines::default(), None, handler, pending());
        let server = tokio::spawn(async { serving.await.map(drop) });
        io.write_all(GET).await.unwrap();
        io.read_exact(&mut vec![0; bytes - PIPE_BYTES]).await.unwrap();
        sleep(Duration::from_millis(1)).await;
        assert_eq!(budget.held_bytes(), bytes);
        if is_taken {
            io.read_exact(&mut [0; PIPE_BYTES]).await.unwrap();
            sleep(Duration::from_millis(1)).await;
            assert_eq!(budget.held_bytes(), 0);
        }
        drop(io);
        let _ = server.await.unwrap();
        assert_eq!(budget.held_bytes(), 0);
    }
}

/// A clean end would be a chunk without bytes.
#[tokio::test(start_paused = true)]
async fn a_stream_is_cut_off_when_the_server_ends_it() {
    for (ending, take, expected) in [
        (Ending::Graceful, 0, ""),
        (Ending::Abrupt, 0, ""),
        (Ending::Graceful, 1, "A\r\n0.........\r\n"),
        (Ending::Abrupt, 1, "A\r\n0.........\r\n"),
    ] {
        let mut client = Client::connect(10).await;
        client.numbers.allow(take);
        sleep(Duration::from_secs(7)).await;
        client.stop.take().unwrap().send(ending).unwrap();
        let (text, result, seconds) = client.end().await;
        assert_eq!((text.as_str(), seconds), (expected, 7), "{ending:?}");
        let is_dismissed = matches!(result, Err(ConnectionError::Dismissed));
        assert_eq!(
            (is_dismissed, result.is_ok()),
            (ending == Ending::Abrupt, ending != Ending::Abrupt)
        );
    }
}

/// It is said after what was being sent, and waits half a second for a client that does not read.
#[tokio::test(start_paused = true)]
async fn a_stream_says_its_last_when_the_server_shuts_down() {
    let big = PIPE_BYTES * 3;
    for (ending, bytes, reads, is_said, elapsed_ms) in [
        (Ending::Graceful, 10, true, true, 0),
        (Ending::HandedOver, 10, true, true, 0),
        (Ending::Abrupt, 10, true, false, 0),
        (Ending::Graceful, big, true, true, 0),
        (Ending::Graceful, big, false, false, 500),
    ] {
        let numbers = Numbers { farewell: "bye", ..Numbers::default() };
        let mut client = Client::connect_to(numbers, bytes).await;
        client.numbers.allow(1);
        sleep(Duration::from_secs(1)).await;
        client.stop.take().unwrap().send(ending).unwrap();
        let Client { mut io, server, began, .. } = client;
        let mut text = Vec::new();
        if reads {
            io.read_to_end(&mut text).await.unwrap();
        }
        let (_, ended) = server.await.unwrap();
        let text = String::from_utf8(text).unwrap();
        assert_eq!(text.ends_with("\r\n3\r\nbye\r\n"), is_said, "{ending:?}: {text}");
        assert_eq!((ended - began).as_millis(), 1_000 + elapsed_ms, "{ending:?}, {bytes}");
    }
}

/// A stream that begins after the server has started to end is cut off as well.
#[tokio::test(start_paused = true)]
async fn a_stream_never_outlives_a_graceful_end() {
    let (mut io, server_io) = duplex(PIPE_BYTES);
    let handler = |_: Request<RequestBody>| async {
        sleep(Duration::from_secs(3)).await;
        let source = NumberSource { numbers: Arc::default(), bytes: 1 };
        Response::new(ReplyBody::Stream(Box::new(source), None))
    };
    let ending = async {
        sleep(Duration::from_secs(1)).await;
        Ending::Graceful
    };
    let began = Instant::now();
    let reading = async {
        io.write_all(GET).await.unwrap();
        let mut text = String::new();
        io.read_to_string(&mut text).await.unwrap();
        text
    };
    let serving = serve_connection(server_io, Deadlines::default(), None, handler, ending);
    let (served, text) = tokio::join!(serving, reading);
    assert!(served.is_ok(), "{served:?}");
    assert!(text.ends_with("\r\n\r\n") && !text.contains("\r\n0\r\n"), "{text}");
    assert_eq!(began.elapsed().as_secs(), 3);
}

/// Of a stream that ends like this.
async fn connect_to_ending(end: Result<(), CutOff>, bytes: usize) -> Client {
    Client::connect_to(Numbers { end: Some(end), ..Numbers::default() }, bytes).await
}

/// The next part may take long to make, but then the client must take it.
#[tokio::test(start_paused = true)]
async fn a_stream_with_an_end_has_a_deadline_only_while_the_client_takes_it() {
    let client = connect_to_ending(Ok(()), 10 * PIPE_BYTES).await;
    sleep(Duration::from_secs(1_000)).await;
    client.numbers.allow(1);
    let Client { server, began, io, .. } = client;
    let (result, ended) = server.await.unwrap();
    let stalled = matches!(result, Err(ConnectionError::Stalled { phase: Phase::Responding }));
    assert!(stalled, "{result:?}");
    assert_eq!((ended - began).as_secs(), 1_010);
    drop(io);
}

/// However often it takes something.
#[tokio::test(start_paused = true)]
async fn a_client_that_crawls_through_a_stream_with_an_end_is_dropped() {
    let mut client = connect_to_ending(Ok(()), 10 * PIPE_BYTES).await;
    client.numbers.allow(100);
    let crawl = async {
        loop {
            sleep(Duration::from_secs(1)).await;
            client.io.read_exact(&mut [0; 2 * PIPE_BYTES]).await?;
        }
    };
    let _: std::io::Result<std::convert::Infallible> = crawl.await;
    let Client { server, began, .. } = client;
    let (result, ended) = server.await.unwrap();
    let stalled = matches!(result, Err(ConnectionError::Stalled { phase: Phase::Responding }));
    assert!(stalled, "{result:?}");
    // 10 seconds, and one for each 16 KiB.
    assert_eq!((ended - began).as_secs(), 11);
}

#[tokio::test(start_paused = true)]
async fn a_request_may_follow_a_stream_with_an_end() {
    for bytes in [10, 5 * PIPE_BYTES] {
        let mut client = connect_to_ending(Ok(()), bytes).await;
        client.numbers.allow(3);
        for number in 0..3 {
            // Whether the next request waits already or comes later.
            if number == 1 {
                client.io.write_all(GET).await.unwrap();
            }
            client.expect(number).await;
        }
        let mut end = [0; 5];
        client.io.read_exact(&mut end).await.unwrap();
        assert_eq!(&end, b"0\r\n\r\n");
        // The numbers go on in the second answer.
        client.expect_head().await;
        client.io.read_exact(&mut end).await.unwrap();
        assert_eq!(&end, b"0\r\n\r\n");
        let (text, result, seconds) = client.end().await;
        assert_eq!((text.as_str(), seconds), ("", 75), "it is idle after the stream");
        assert!(matches!(result, Err(ConnectionError::Stalled { phase: Phase::Idle })));
    }
}

#[tokio::test(start_paused = true)]
async fn a_stream_with_an_end_finishes_during_a_graceful_end() {
    let mut client = connect_to_ending(Ok(()), 10).await;
    client.numbers.allow(1);
    client.expect(0).await;
    client.stop.take().unwrap().send(Ending::Graceful).unwrap();
    let (text, result, seconds) = client.end().await;
    assert_eq!((text.as_str(), seconds), ("0\r\n\r\n", 0));
    assert!(result.is_ok(), "{result:?}");
}

/// The client may have closed its sending side after the request.
#[tokio::test(start_paused = true)]
async fn a_stream_with_an_end_is_sent_to_a_client_that_sends_no_more() {
    let mut client = connect_to_ending(Ok(()), 10).await;
    client.io.shutdown().await.unwrap();
    sleep(Duration::from_secs(1)).await;
    client.numbers.allow(2);
    let (text, result, _) = client.end().await;
    assert_eq!(text, "A\r\n0.........\r\nA\r\n1.........\r\n0\r\n\r\n");
    assert!(result.is_ok(), "{result:?}");
}

#[tokio::test(start_paused = true)]
async fn a_stream_that_cannot_go_on_is_cut_off() {
    let client = connect_to_ending(Err(CutOff), 10).await;
    client.numbers.allow(1);
    let (text, result, seconds) = client.end().await;
    assert_eq!((text.as_str(), seconds), ("A\r\n0.........\r\n", 0));
    assert!(matches!(result, Err(ConnectionError::Broken(_))), "{result:?}");
}

/// Streams share the memory for what their clients refuse. Whoever reads needs none of it.
#[tokio::test(start_paused = true)]
async fn only_a_stream_whose_client_does_not_read_is_cut_off() {
    // The pipe of a client that does not read is full after a number and a part of the next.
    let bytes = 6 * PIPE_BYTES / 10;
    let budget = ByteBudget::new(PIPE_BYTES / 3);
    let connect = async || {
        let unsent = Some(budget.clone());
        Client::connect_to(Numbers { unsent, ..Numbers::default() }, bytes).await
    };
    let mut slow = connect().await;
    slow.numbers.allow(2);
    sleep(Duration::from_secs(1)).await;
    let refused_bytes = budget.held_bytes();
    assert!((bytes / 3..bytes / 2).contains(&refused_bytes), "{refused_bytes}");

    let mut healthy = connect().await;
    for number in 0..10 {
        healthy.numbers.allow(1);
        healthy.expect(number).await;
        assert_eq!(budget.held_bytes(), refused_bytes);
    }

    let slower = connect().await;
    slower.numbers.allow(2);
    sleep(Duration::from_secs(1)).await;
    let (_, result, _) = slower.end().await;
    assert!(matches!(result, Err(ConnectionError::CutOff)), "{result:?}");

    slow.expect(0).await;
    slow.expect(1).await;
    healthy.numbers.allow(1);
    healthy.expect(10).await;
    assert_eq!(budget.held_bytes(), 0, "it has read everything");
}
