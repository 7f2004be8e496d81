//! Orders that rest: placing, filling, cancelling and expiry while the disk holds the records.

use std::time::Duration;

use paperbourse::ids::Timestamp;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use crate::client::{delete, get, post};
use crate::trades::{free_of_ann, next_order};
use crate::world::{Held, MARKET, OTHER_MARKET, Person, World, number, text};

/// A purchase in the market whose best ask is 0.50.
fn limit(price: &str, quantity: u32) -> Value {
    json!({
        "market_id": MARKET,
        "outcome": "Yes",
        "side": "BUY",
        "order_type": "limit",
        "price": price,
        "quantity": quantity,
    })
}

/// An order with these fields changed.
fn with(mut order: Value, fields: &Value) -> Value {
    for (name, value) in fields.as_object().expect("an object") {
        order[name] = value.clone();
    }
    order
}

fn named(order: Value, client_order_id: &str) -> Value {
    with(order, &json!({"client_order_id": client_order_id}))
}

fn place(person: &Person, order: Value) -> Request {
    post("/v1/orders", order).key(&person.key)
}

fn trade(person: &Person, side: &str, quantity: u32) -> Request {
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": side, "quantity": quantity});
    post("/trade", order).key(&person.key)
}

fn read(person: &Person, order: u64) -> Request {
    get(format!("/v1/orders/{order}")).key(&person.key)
}

fn cancel(person: &Person, order: u64) -> Request {
    delete(format!("/v1/orders/{order}")).key(&person.key)
}

fn beat(person: &Person, interval_ms: u32) -> Request {
    post("/v1/heartbeats", json!({"interval_ms": interval_ms})).key(&person.key)
}

/// Places an order that rests, and returns its id once it is durable.
async fn rest(world: &World, person: &Person, order: Value) -> u64 {
    let placed = world.done(place(person, order), 200).await;
    assert_eq!(placed.get("status"), "PENDING");
    number(&placed.get("order_id"))
}

/// Reads that show the orders and the money of an account.
const READS: [(&str, &str); 8] = [
    ("the balance", "/v1/account/balance"),
    ("the positions", "/v1/account/positions"),
    ("the orders", "/v1/orders"),
    ("the open orders", "/v1/orders?status=OPEN"),
    ("the cancelled orders", "/v1/orders?status=CANCELLED"),
    ("the caller", "/v1/me"),
    ("the portfolio", "/v1/account/portfolio"),
    ("the history", "/v1/account/history"),
];

/// Sends the [`READS`] of Ann, which have to wait.
async fn ann_waits(held: &mut Held<'_>, ann: &Person) {
    for (name, path) in READS {
        held.waits(name, get(path).key(&ann.key), 200).await;
    }
}

fn codes(answers: &[crate::client::Answer]) -> Vec<String> {
    answers.iter().map(|answer| text(&answer.get("error"))).collect()
}

#[tokio::test(start_paused = true)]
async fn an_order_that_rests_holds_back_all_that_shows_it_or_depends_on_it() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let earlier = rest(&world, ann, limit("0.1", 10)).await;
    let id = next_order(earlier);
    let first = || place(ann, named(limit("0.45", 2_200), "a")).header("idempotency-key", "h");

    let mut held = world.hold();
    held.waits("the order", first(), 200).await;
    held.waits("a replay", first(), 200).await;
    let other = named(limit("0.45", 2_201), "a");
    held.waits("another order by its name", place(ann, other), 409).await;
    held.waits("a purchase with the money that it holds back", trade(ann, "BUY", 100), 400).await;
    held.waits("reading it", read(ann, id), 200).await;
    held.waits("reading it by name", get("/v1/orders?client_order_id=a").key(&ann.key), 200).await;
    ann_waits(&mut held, ann).await;
    held.waits("somebody else's cancel", cancel(bob, id), 404).await;
    held.waits("the same from another shard", cancel(cat, id), 404).await;
    held.waits("its cancel", cancel(ann, id), 200).await;
    free_of_ann(&held, ann, bob, cat).await;
    held.answers(read(ann, earlier), 200).await;
    held.answers(cancel(bob, earlier), 404).await;

    let answers = held.release().await;
    assert_eq!(answers[0].get("order_id"), id);
    assert_eq!(answers[0].get("status"), "PENDING");
    assert_eq!(answers[1].response.header("idempotent-replayed"), Some("true"));
    assert_eq!(codes(&answers[2..4]), ["IDEMPOTENCY_KEY_REUSE", "INSUFFICIENT_BALANCE"]);
    assert_eq!(answers[4].get("status"), "PENDING");
    assert_eq!(answers[5].get("orders")[0]["order_id"], id);
    assert_eq!(answers[8 + READS.len()].get("status"), "CANCELLED");
    assert_eq!(world.done(read(ann, id), 200).await.get("cancelled_reason"), "user");
}

#[tokio::test(start_paused = true)]
async fn an_order_that_takes_nothing_or_a_part_waits_like_any_other() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let in_force = |order, time_in_force: &str| {
        place(ann, with(order, &json!({"time_in_force": time_in_force})))
    };
    let mut held = world.hold();
    held.waits("a crossing order", place(ann, limit("0.5", 150)), 200).await;
    held.waits("a fill-and-kill that takes a part", in_force(limit("0.5", 150), "FAK"), 200).await;
    held.waits("a fill-and-kill that takes nothing", in_force(limit("0.3", 10), "FAK"), 200).await;
    held.waits("a fill-or-kill that takes nothing", in_force(limit("0.5", 101), "FOK"), 200).await;
    let post_only = with(limit("0.5", 10), &json!({"post_only": true}));
    held.waits("a post-only order that crosses", place(ann, post_only), 400).await;
    let batch = json!({"orders": [limit("0.2", 10), limit("0.5", 10)]});
    held.waits("a batch", post("/v1/orders/batch", batch).key(&ann.key), 200).await;
    ann_waits(&mut held, ann).await;
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    let outcome = |answer: &crate::client::Answer| {
        [answer.get("status"), answer.get("filled_quantity")].map(|value| text(&value))
    };
    assert_eq!(outcome(&answers[0]), ["PENDING", "100"]);
    assert_eq!(outcome(&answers[1]), ["FILLED", "100"]);
    assert_eq!(outcome(&answers[2]), ["CANCELLED", "0"]);
    assert_eq!(outcome(&answers[3]), ["CANCELLED", "0"]);
    assert_eq!(codes(&answers[4..5]), ["INVALID_POST_ONLY_ORDER"]);
    let results = answers[5].get("results");
    assert_eq!(
        (&results[0]["status"], &results[1]["status"]),
        (&json!("PENDING"), &json!("FILLED"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_fill_of_a_resting_order_holds_back_all_that_shows_it_or_depends_on_it() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let order = named(limit("0.45", 100), "a");
    let first = world.done(place(ann, order.clone()), 200).await;
    let id = number(&first.get("order_id"));
    let other = rest(&world, ann, limit("0.1", 10)).await;
    let of_bob = rest(&world, bob, limit("0.1", 10)).await;

    let mut held = world.hold();
    world.cross(450_000).await;
    held.waits("reading it", read(ann, id), 200).await;
    held.waits("reading it by name", get("/v1/orders?client_order_id=a").key(&ann.key), 200).await;
    held.waits("its replay", place(ann, order), 200).await;
    held.waits("its cancel", cancel(ann, id), 400).await;
    held.waits("somebody else's cancel", cancel(bob, id), 404).await;
    ann_waits(&mut held, ann).await;
    held.waits("selling more than it bought", trade(ann, "SELL", 101), 400).await;
    held.waits("selling what it bought", trade(ann, "SELL", 100), 200).await;
    // The fill says nothing about these.
    held.answers(read(ann, other), 200).await;
    held.answers(read(bob, of_bob), 200).await;
    free_of_ann(&held, ann, bob, cat).await;

    let answers = held.release().await;
    assert_eq!(answers[0].get("status"), "FILLED");
    assert_eq!(answers[1].get("orders")[0]["filled_quantity"], "100");
    let replay = answers[2].response.text.replace(",\"is_replay\":true", "");
    assert_eq!(replay, first.response.text);
    assert_eq!(codes(&answers[3..5]), ["ORDER_NOT_CANCELLABLE", "ORDER_NOT_FOUND"]);
    // The other order holds 1 dollar back.
    assert_eq!(answers[5].get("balance"), "954");
    let sales = &answers[5 + READS.len()..];
    assert_eq!(codes(&sales[..1]), ["INSUFFICIENT_POSITION"]);
    assert_eq!(sales[1].get("account_balance"), json!(995));
}

#[tokio::test(start_paused = true)]
async fn a_cancel_holds_back_all_that_shows_it_or_depends_on_it() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let order = named(limit("0.45", 2_200), "a");
    let id = rest(&world, ann, order.clone()).await;
    let other = rest(&world, ann, limit("0.1", 10)).await;
    world.done(trade(ann, "BUY", 100), 400).await;

    let mut held = world.hold();
    held.waits("the cancel", cancel(ann, id), 200).await;
    held.waits("again", cancel(ann, id), 400).await;
    held.waits("reading it", read(ann, id), 200).await;
    held.waits("its replay", place(ann, order), 200).await;
    held.waits("somebody else's cancel", cancel(bob, id), 404).await;
    ann_waits(&mut held, ann).await;
    let elsewhere = delete(format!("/v1/cancel-market-orders?market={OTHER_MARKET}"));
    held.waits("cancelling what there is not", elsewhere.key(&ann.key), 200).await;
    held.waits("a purchase with the money that is free", trade(ann, "BUY", 100), 200).await;
    // A book that reaches the order finds it ended.
    world.cross(450_000).await;
    held.answers(read(ann, other), 200).await;
    free_of_ann(&held, ann, bob, cat).await;

    let answers = held.release().await;
    assert_eq!(answers[0].get("released_quantity"), "0");
    assert_eq!(codes(&answers[1..2]), ["ORDER_NOT_CANCELLABLE"]);
    assert_eq!(answers[2].get("status"), "CANCELLED");
    assert_eq!(answers[3].get("status"), "PENDING");
    assert_eq!(answers[5 + READS.len()].get("canceled"), json!([]));
    assert_eq!(world.done(read(ann, id), 200).await.get("filled_quantity"), "0");
}

#[tokio::test(start_paused = true)]
async fn cancelling_several_orders_waits_for_the_last_record() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let mut ids = Vec::new();
    for _ in 0..70 {
        ids.push(rest(&world, ann, limit("0.1", 5)).await);
    }
    rest(&world, bob, limit("0.1", 5)).await;
    let all = || delete("/v1/cancel-all").key(&ann.key);
    let market = delete(format!("/v1/cancel-market-orders?market={MARKET}")).key(&ann.key);

    let mut held = world.hold();
    held.waits("all", all(), 200).await;
    held.waits("the first of them", read(ann, ids[0]), 200).await;
    ann_waits(&mut held, ann).await;
    // The second record is written once the first is durable.
    held.answers(read(ann, ids[69]), 200).await;
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    let expected: Vec<String> = ids.iter().map(u64::to_string).collect();
    assert_eq!(answers[0].get("canceled"), json!(expected));
    assert_eq!(answers[1].get("status"), "CANCELLED");

    rest(&world, ann, limit("0.1", 5)).await;
    let mut held = world.hold();
    held.waits("those in a market", market, 200).await;
    held.waits("all that is left", all(), 200).await;
    let answers = held.release().await;
    assert_eq!(answers[0].get("canceled").as_array().unwrap().len(), 1);
    assert_eq!(answers[1].get("canceled"), json!([]));
}

#[tokio::test(start_paused = true)]
async fn the_first_heartbeat_waits_and_the_next_ones_change_nothing() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let mut held = world.hold();
    held.waits("the first", beat(ann, 30_000), 200).await;
    held.waits("the next", beat(ann, 30_000), 200).await;
    held.waits("the balance", get("/v1/account/balance").key(&ann.key), 200).await;
    free_of_ann(&held, ann, bob, cat).await;
    held.release().await;
    let mut held = world.hold();
    held.answers(beat(ann, 30_000), 200).await;
    held.waits("another interval", beat(ann, 60_000), 200).await;
    held.release().await;
}

/// Orders end by the wall clock, so this waits for it.
#[tokio::test(start_paused = true)]
async fn an_expiry_holds_back_all_that_shows_it_or_depends_on_it() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let expiration = Timestamp::now().nanos() / 1_000_000_000 + 1;
    let until = json!({"time_in_force": "GTD", "expiration": expiration});
    let id = rest(&world, ann, with(limit("0.45", 2_200), &until)).await;

    let mut held = world.hold();
    while Timestamp::now() < Timestamp::from_seconds(expiration) {
        std::thread::sleep(Duration::from_millis(10));
    }
    // By now the matcher has looked for orders that have expired.
    tokio::time::sleep(Duration::from_millis(100)).await;
    held.waits("reading it", read(ann, id), 200).await;
    held.waits("its cancel", cancel(ann, id), 400).await;
    ann_waits(&mut held, ann).await;
    held.waits("a purchase with the money that is free", trade(ann, "BUY", 100), 200).await;
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    assert_eq!(answers[0].get("cancelled_reason"), "gtd_expired");
    assert_eq!(codes(&answers[1..2]), ["ORDER_NOT_CANCELLABLE"]);
}

#[tokio::test(start_paused = true)]
async fn a_settlement_holds_back_the_end_of_the_orders_before_it_pays() {
    let world = World::new().await;
    let (ann, bob) = (&world.ann, &world.bob);
    world.done(trade(ann, "BUY", 10), 200).await;
    let id = rest(&world, ann, limit("0.45", 2_200)).await;
    let of_bob = rest(&world, bob, limit("0.45", 10)).await;

    let mut held = world.hold();
    world.resolve().await;
    // The decision is not durable yet, and it ends nothing.
    held.answers(read(ann, id), 200).await;
    held.release_in_vain(1).await;
    held.waits("reading it", read(ann, id), 200).await;
    held.waits("somebody else's", read(bob, of_bob), 200).await;
    held.waits("its cancel", cancel(ann, id), 400).await;
    ann_waits(&mut held, ann).await;
    let answers = held.release().await;
    for read in &answers[..2] {
        assert_eq!(
            (read.get("status"), read.get("filled_quantity")),
            (json!("EXPIRED"), json!("0"))
        );
    }
    assert_eq!(codes(&answers[2..3]), ["ORDER_NOT_CANCELLABLE"]);
    let balance = world.done(get("/v1/account/balance").key(&ann.key), 200).await;
    assert_eq!(balance.get("balance"), "1005");
    let portfolio = world.done(get("/v1/account/portfolio").key(&ann.key), 200).await;
    let shown = ["total_trades", "win_rate"].map(|field| portfolio.get(field));
    assert_eq!(shown, [json!(1), json!("100.0%")]);
}
