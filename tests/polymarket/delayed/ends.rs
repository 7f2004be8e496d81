//! Connections and servers that end while an order is delayed.

use paperbourse_test_support::Connection;

use super::*;

/// How long orders are delayed that a shutdown waits for. There has to be time to begin it
/// meanwhile, and for as much again before it would be over without them.
const DRAINED: Duration = Duration::from_secs(6);

/// A crossing limit order, which may rest.
fn limit() -> Request {
    let order = json!({"order_type": "limit", "quantity": "5", "price": "0.40"});
    Request::post("/v1/orders", &buy(&order)).named("limit")
}

fn market() -> Request {
    Request::post("/trade", &trade("BUY", 5)).named("market")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_order_whose_client_is_gone_is_decided_all_the_same() {
    play(LONG, &[], |_, served| {
        let mut connection = Connection::open(served.server.address);
        connection.write(&served.signed(market()).to_bytes());
        served.until_delayed(1);
        drop(connection);
        served.until("a fill", |it| it.orders()[0]["status"] == "FILLED");
        let order = &served.orders()[0];
        assert_eq!((&order["notional"], &order["hold_reason"]), (&json!("1.9"), &json!(null)));
        let again = served.done(market());
        assert!(again.is_replay());
        let again = again.ok(200);
        assert!(delayed_ms(&again) >= LONG.as_millis() && again["order_id"] == order["order_id"]);
        assert_eq!(served.orders().len(), 1);
        assert_eq!(served.cash(), (1_000_000_000 - COST_OF_FIVE, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_waits_for_delayed_orders() {
    play(DRAINED, &[], |_, mut served| {
        std::thread::scope(|scope| {
            let waiting = [market(), limit()].map(|request| served.begin(scope, request));
            let other = served.signed(Request::post("/trade", &trade("BUY", 1))).to_bytes();
            let (begin, end) = other.split_at(other.len() - 5);
            let mut late = Connection::open(served.server.address);
            late.write(begin);
            served.until_delayed(2);
            served.server.signal("-TERM");
            served.server.logged("draining");
            late.write(end);
            assert!(delayed_ms(&late.read(false).ok(200)) >= DRAINED.as_millis());
            for answer in waiting {
                let answer = answer.join().unwrap();
                assert_eq!(millionths(&answer.delayed(DRAINED)["price"]), micros(ASK));
                assert_eq!(answer.response.header("connection"), Some("close"));
            }
        });
        assert_eq!(served.server.wait().code(), Some(0));
    })
    .await;
}

/// What it leaves delayed, the next start decides without a book, and refuses.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_decides_delayed_orders_whose_clients_are_gone() {
    play(DRAINED, &[], |venue, mut served| {
        let mut connection = Connection::open(served.server.address);
        connection.write(&served.signed(market()).to_bytes());
        served.until_delayed(1);
        drop(connection);
        served.server.signal("-TERM");
        assert_eq!(served.server.wait().code(), Some(0));

        let served = served.restart(venue, &["--venue-markets", "2"]);
        let orders = served.orders();
        assert_eq!(orders.len(), 1, "{orders:?}");
        assert_eq!(orders[0]["status"], "FILLED", "{orders:?}");
        let again = served.done(market());
        assert!(again.is_replay());
        assert!(delayed_ms(&again.ok(200)) >= DRAINED.as_millis());
        assert_eq!(served.cash(), (1_000_000_000 - COST_OF_FIVE, 0));
    })
    .await;
}

/// The clients of a killed server get no answer, so they repeat their requests. There is one order
/// in the end, whether or not the first one was kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_during_the_wait_leaves_one_outcome() {
    play(LONG, &[], |venue, served| {
        let requests = [market(), limit()];
        let waiting = [(); 2].map(|()| Connection::open(served.server.address));
        for (mut connection, request) in waiting.into_iter().zip(&requests) {
            connection.write(&served.signed(request.clone()).to_bytes());
        }
        served.until_delayed(2);
        assert_eq!(served.cash().1, 2 * COST_OF_FIVE + 100_000);

        let served = served.restart(venue, &["--venue-markets", "2"]);
        served.until("a decision", |it| it.delayed().is_empty());
        served.until_fresh();
        // One that was kept is a limit order that waited for the book.
        served.until("no open order", |it| it.orders().iter().all(|it| it["status"] != "PENDING"));
        let kept = served.orders();
        assert!(kept.iter().all(|order| order["status"] == "FILLED"), "{kept:?}");
        assert_eq!(served.cash().1, 0);
        std::thread::scope(|scope| {
            let again = requests.clone().map(|request| served.begin(scope, request));
            let replayed = again.map(|answer| {
                let response = answer.join().unwrap().response;
                assert_eq!(response.ok(200)["status"], "FILLED");
                response.is_replay()
            });
            let replay_count = replayed.iter().filter(|&&is_replay| is_replay).count();
            assert_eq!(replay_count, kept.len());
        });
        assert_eq!(served.orders().len(), 2);
        assert_eq!(served.cash(), (1_000_000_000 - 2 * COST_OF_FIVE, 0));
    })
    .await;
}
