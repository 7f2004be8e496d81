//! Accounts with too many orders, with too little money, and in a market that ends.

use paperbourse_test_support::Connection;

use super::*;
use crate::standin::Payout;

/// The most orders that the account may have open.
const OPEN_ORDERS_MAX: usize = 300;

/// The most entries of a batch.
const BATCH: usize = 100;

/// The number of delayed orders.
fn delayed_count(served: &Served) -> usize {
    gauge(served, "paperbourse_held_orders")
}

/// A number of the metrics page.
fn gauge(served: &Served, name: &str) -> usize {
    let logged = served.server.logged("metrics on http://");
    let (_, address) = logged.split_once("http://").unwrap();
    let (address, path) = address.split_at(address.find('/').unwrap());
    let page = Connection::open(address.parse().unwrap()).done(&Request::get(path)).text;
    let mut values = page.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    values.next().unwrap().parse().unwrap()
}

/// Clients that send thousands of orders and leave without an answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_account_holds_as_many_orders_as_it_may_have_open() {
    let arguments = &["--open-orders", "300", "--admin-listen", "127.0.0.1:0"];
    play(LONG, arguments, |_, served| {
        let entries = vec![trade("BUY", 1); BATCH];
        let batch = Request::post("/v1/orders/batch", &json!({"orders": entries}));
        let mut connections = Vec::new();
        for _ in 0..OPEN_ORDERS_MAX / BATCH {
            let mut connection = Connection::open(served.server.address);
            connection.write(&served.signed(batch.clone()).to_bytes());
            connections.push(connection);
        }
        served.until("delayed orders", |it| delayed_count(it) == OPEN_ORDERS_MAX);
        // While they wait, their bodies are gone, so that others have room for theirs.
        assert_eq!(gauge(&served, "paperbourse_body_bytes"), 0);
        for _ in 0..3 {
            let refused = served.done(batch.clone()).ok(200);
            assert_eq!((&refused["succeeded"], &refused["failed"]), (&json!(0), &json!(BATCH)));
            assert_eq!(refused["results"][0]["error"], "OPEN_ORDER_LIMIT_EXCEEDED");
        }
        drop(connections);
        served.until("decisions", |it| delayed_count(it) == 0);
        let (cash, reserved) = served.cash();
        let cost = 1_000_000_000 - cash;
        assert_eq!((cost, reserved), (i64::try_from(OPEN_ORDERS_MAX).unwrap() * 391_780, 0));
        assert!(served.delayed().is_empty());
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn money_that_is_just_enough_must_be_enough_in_the_end() {
    play(LONG, &["--starting-balance", "2"], |venue, served| {
        std::thread::scope(|scope| {
            let begin = |order: &Value| served.begin(scope, Request::post("/trade", order));
            let first = begin(&trade("BUY", 5));
            served.until_delayed(1);
            let second = served.done(Request::post("/trade", &trade("BUY", 1))).ok(400);
            assert_eq!(second["error"], "INSUFFICIENT_BALANCE");
            remove_best_ask(venue);
            served.until_ask(NEXT_ASK);
            assert_eq!(served.delayed().len(), 1, "this machine is too slow for the test");
            let refused = first.join().unwrap().response.ok(400);
            assert_eq!(refused["error"], "INSUFFICIENT_BALANCE");
            assert_eq!((served.cash(), served.orders().len()), ((2_000_000, 0), 0));
            restore_best_ask(venue);
            served.until_ask(ASK);
            begin(&trade("BUY", 5)).join().unwrap().delayed(LONG);
        });
        assert_eq!(served.cash(), (2_000_000 - COST_OF_FIVE, 0));
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_are_sold_once_and_at_the_later_price() {
    play(LONG, &[], |venue, served| {
        std::thread::scope(|scope| {
            let begin = |order: &Value| served.begin(scope, Request::post("/trade", order));
            begin(&trade("BUY", 5)).join().unwrap().delayed(LONG);
            let sale = begin(&trade("SELL", 5));
            served.until_delayed(1);
            assert_eq!(served.cash().1, 0, "a sale holds back shares");
            let other = served.done(Request::post("/trade", &trade("SELL", 1))).ok(400);
            assert_eq!(other["error"], "INSUFFICIENT_POSITION");
            venue.change_level(&token_id(GAME, 0), Side::Buy, "0.37", "0");
            served.until("the new book", |it| it.best("bids") == Some(360_000));
            assert_eq!(served.delayed().len(), 1, "this machine is too slow for the test");
            let sold = sale.join().unwrap().delayed(LONG);
            assert_eq!(millionths(&sold["price"]), 360_000);
            assert_eq!(sold["position"]["status"], "CLOSED");
        });
    })
    .await;
}

/// Whether it is found closed or was settled when the wait ends, an order there costs nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_market_that_ends_during_the_wait_gives_the_money_back() {
    play(LONG, &[], |venue, served| {
        std::thread::scope(|scope| {
            let begin = |path: &str, order: &Value| served.begin(scope, Request::post(path, order));
            let limit = buy(&json!({"order_type": "limit", "quantity": "5", "price": "0.40"}));
            let market = begin("/trade", &trade("BUY", 5));
            let limit = begin("/v1/orders", &limit);
            served.until_delayed(2);
            venue.resolve(&condition_id(GAME), Payout::Winner(0));
            let is_open = |it: &Served| {
                let path = format!("/v1/markets/{}", condition_id(GAME));
                it.get(&path).1["active"] != json!(false)
            };
            served.until("the end", |it| !is_open(it));
            let market = market.join().unwrap().response.ok(400);
            assert_eq!(market["error"], "MARKET_CLOSED");
            let limit = limit.join().unwrap().response;
            match limit.status {
                400 => assert_eq!(limit.json()["error"], "MARKET_CLOSED"),
                _ => assert_eq!(limit.ok(200)["status"], "EXPIRED"),
            }
        });
        assert_eq!(served.cash(), (1_000_000_000, 0));
        assert!(served.orders().iter().all(|order| order["status"] == "EXPIRED"));
    })
    .await;
}
