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

#[test]
fn a_client_that_does_not_read_its_response_is_dropped() {
    run(async {
        let mut client = Client::connect();
        client.send(GET.replace("/ ", "/big ")).await;
        for _ in 0..3 {
            sleep(Duration::from_secs(9)).await;
            client.io.read_exact(&mut vec![0; 200_000]).await.unwrap();
        }
        client.expect_stall(27 + 10).await;
    });
}

/// The first 32 kB are in the transport at once, and pay for 2 seconds.
#[test]
fn a_client_that_crawls_through_its_response_is_dropped() {
    run(async {
        let mut client = Client::connect();
        client.send(GET.replace("/ ", "/big ")).await;
        for _ in 0..11 {
            sleep(Duration::from_secs(1)).await;
            client.io.read_exact(&mut [0; 1_000]).await.unwrap();
        }
        client.expect_stall(12).await;
    });
}

#[test]
fn a_request_sent_ahead_does_not_excuse_who_does_not_read() {
    run(async {
        let mut client = Client::connect();
        client.send(GET.replace("/ ", "/big ") + GET).await;
        client.expect_stall(10).await;
    });
}
