//! Clients that take their answers slowly, or not at all.

use super::*;

impl Client {
    /// Waits until the server drops the client, which does not read, and checks when that is.
    #[track_caller]
    fn expect_stall(self, seconds: u64) -> impl Future<Output = ()> {
        let caller = std::panic::Location::caller();
        async move {
            let Self { io: _io, server, started, .. } = self;
            let (result, ended) = server.await.unwrap();
            assert!(
                matches!(result, Err(ConnectionError::Stalled { phase: Phase::Responding })),
                "{caller}: {result:?}"
            );
            assert_eq!((ended - started).as_secs(), seconds, "{caller}");
        }
    }
}

/// How much of the response is read how often, and when the client is dropped. The first 32 kB are
/// in the transport at once, and pay for 2 seconds.
#[test]
fn a_client_that_stops_reading_or_crawls_is_dropped() {
    for (bytes, pause_seconds, reads, dropped_seconds) in
        [(200_000, 9, 3, 27 + 10), (1_000, 1, 11, 12)]
    {
        run(async || {
            let mut client = Client::connect();
            client.send(GET.replace("/ ", "/big ")).await;
            for _ in 0..reads {
                sleep(Duration::from_secs(pause_seconds)).await;
                client.io.read_exact(&mut vec![0; bytes]).await.unwrap();
            }
            client.expect_stall(dropped_seconds).await;
        });
    }
}

#[test]
fn a_request_sent_ahead_does_not_excuse_who_does_not_read() {
    run(async || {
        let mut client = Client::connect();
        client.send(GET.replace("/ ", "/big ") + GET).await;
        client.expect_stall(10).await;
    });
}

/// A stream of this many pieces.
struct Pieces(usize);

const PIECE: &[u8] = &[b'x'; 500];

impl Source for Pieces {
    fn poll_bytes(&mut self, _: &mut Context<'_>) -> Poll<Option<Result<Bytes, CutOff>>> {
        let piece = self.0.checked_sub(1).map(|rest| {
            self.0 = rest;
            Ok(Bytes::from_static(PIECE))
        });
        Poll::Ready(piece)
    }

    fn is_endless(&self) -> bool {
        false
    }
}

/// hyper does not ask for the end of a stream whose length it knows, nor for any of it if the
/// request was `HEAD`.
#[test]
fn a_stream_of_known_length_leaves_its_connection_as_it_was() {
    for (pieces, is_head) in [(1, false), (2, false), (3, false), (100, false), (2, true)] {
        run(async || {
            let mut client = Client::connect_to(move |_| async move {
                let body = ReplyBody::Stream(Box::new(Pieces(pieces)), None);
                let mut response = Response::new(body);
                let length = (pieces * PIECE.len()).into();
                response.headers_mut().insert("content-length", length);
                response
            });
            let method = if is_head { "HEAD" } else { "GET" };
            let request = GET.replace("GET / ", &format!("{method} /stream "));
            client.send(request.repeat(3)).await;
            let bytes = if is_head { 0 } else { pieces * PIECE.len() };
            for _ in 0..3 {
                client.read_until("\r\n\r\n").await;
                client.io.read_exact(&mut vec![0; bytes]).await.unwrap();
            }
            client.expect_drop(Phase::Idle, 75).await;
        });
    }
}
