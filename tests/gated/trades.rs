//! Orders, batches, comments, and the requests that show them.

use paperbourse::ids::SHARD_COUNT;
use paperbourse_test_support::Request;
use serde_json::{Value, json};

use crate::client::{Frame, delete, get, post, upgrade};
use crate::world::{MARKET, OTHER_MARKET, Person, World, number, text, until_idle};

fn order(side: &str, quantity: u32) -> Value {
    json!({"market_id": MARKET, "outcome": "Yes", "side": side, "quantity": quantity})
}

fn named(mut order: Value, client_order_id: &str) -> Value {
    order["client_order_id"] = client_order_id.into();
    order
}

fn buy(person: &Person, quantity: u32, client_order_id: &str) -> Request {
    post("/trade", named(order("BUY", quantity), client_order_id)).key(&person.key)
}

/// The id of the next order in the shard of this one.
pub(crate) fn next_order(order: u64) -> u64 {
    order + SHARD_COUNT as u64
}

#[tokio::test(start_paused = true)]
async fn a_trade_holds_back_all_that_shows_it_or_depends_on_it() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let earlier = world.done(buy(ann, 1, "earlier"), 200).await;
    let earlier_id = number(&earlier.get("order_id"));
    let order_id = next_order(earlier_id);
    let socket_token =
        text(&world.done(post("/v1/keys/ws-token", ()).key(&ann.key), 200).await.get("token"));
    let key = |request: Request| request.key(&ann.key);
    let first = || buy(ann, 10, "a").header("idempotency-key", "h");
    let by_header = key(post("/trade", order("BUY", 10))).header("idempotency-key", "h");
    let too_much_to_sell = order("SELL", 99);
    let too_dear = {
        let mut order = order("BUY", 10);
        order["expected_price"] = json!(0.1);
        order
    };

    let mut held = world.hold();
    held.waits("the trade", first(), 200).await;
    held.waits("a replay by the header", by_header, 200).await;
    held.waits("a replay by the body", buy(ann, 10, "a"), 200).await;
    held.waits("another order by its name", buy(ann, 11, "a"), 409).await;
    held.waits("selling too much", key(post("/trade", too_much_to_sell)), 400).await;
    held.waits("slippage", key(post("/trade", too_dear)), 400).await;
    held.waits("the balance", key(get("/v1/account/balance")), 200).await;
    held.waits("the balance by token", get("/v1/account/balance").bearer(&ann.token), 200).await;
    held.waits("the positions", key(get("/v1/account/positions")), 200).await;
    held.waits("the order", key(get(format!("/v1/orders/{order_id}"))), 200).await;
    held.waits("the orders", key(get("/v1/orders")), 200).await;
    held.waits("the order by name", key(get("/v1/orders?client_order_id=a")), 200).await;
    held.waits("the keys", key(get("/v1/keys")), 200).await;
    held.waits("the comments", get(format!("/trades/{order_id}/comments")), 200).await;
    let comment = post(format!("/trades/{order_id}/comments"), json!({"content": "late"}));
    held.waits("a comment of another account", comment.key(&cat.key), 200).await;
    held.waits("a socket", upgrade(format!("/v1/ws/prices?token={socket_token}")), 101).await;
    held.waits("a socket token by token", post("/v1/keys/ws-token", ()).bearer(&ann.token), 200)
        .await;
    held.waits("a trade after it", buy(ann, 5, "b"), 200).await;

    free_of_ann(&held, ann, bob, cat).await;
    held.answers(key(get(format!("/v1/orders/{earlier_id}"))), 200).await;

    let mut answers = held.release().await;
    let trade = &answers[0];
    assert_eq!(trade.get("order_id"), order_id);
    assert_eq!(trade.get("account_balance"), json!(994.5));
    assert_eq!(trade.response.header("idempotent-replayed"), None);
    for replay in &answers[1..3] {
        assert_eq!(replay.response.header("idempotent-replayed"), Some("true"));
        assert_eq!(replay.response.text, trade.response.text);
    }
    let codes: Vec<_> = answers[3..6].iter().map(|answer| text(&answer.get("error"))).collect();
    assert_eq!(codes, ["IDEMPOTENCY_KEY_REUSE", "INSUFFICIENT_POSITION", "SLIPPAGE_EXCEEDED"]);
    assert_eq!(answers[6].get("balance"), "994.5");
    // A token's account is looked up first, so this read came after the release and the last trade.
    assert_eq!(answers[7].get("balance"), "992");
    assert_eq!(answers[8].response.json()[0]["quantity"], "11");
    assert_eq!(answers[9].get("order_id"), order_id);
    assert_eq!(answers[10].get("orders")[0]["order_id"], order_id);
    assert_eq!(answers[11].get("orders")[0]["order_id"], order_id);
    assert_eq!(answers[13].response.json(), json!([]));
    let connected = Frame::Text(json!({
        "type": "connected",
        "user_id": ann_account(&world).await,
        "protocol_version": "1.0",
    }));
    assert_eq!(answers[15].next_frame().await, connected);
    assert_eq!(answers[17].get("account_balance"), json!(992));
}

/// Requests that do not depend on Ann's record are answered while it is held.
pub(crate) async fn free_of_ann(
    held: &crate::world::Held<'_>,
    ann: &Person,
    bob: &Person,
    cat: &Person,
) {
    for path in ["/v1/health", "/v1/health/ready", "/v1/keys/tiers", "/v1/markets"] {
        held.answers(get(path), 200).await;
    }
    held.answers(get(format!("/v1/markets/{MARKET}")), 200).await;
    held.answers(get(format!("/v1/markets/{MARKET}/book?outcome=Yes")).key(&ann.key), 200).await;
    let prices = post("/v1/prices/batch", json!({"market_ids": [MARKET]}));
    held.answers(prices.key(&ann.key), 200).await;
    held.answers(upgrade("/v1/ws/prices").key(&ann.key), 101).await;
    held.answers(get("/v1/account/balance").key("ps_live_of_nobody"), 401).await;
    for other in [bob, cat] {
        for path in ["/v1/account/balance", "/v1/account/positions", "/v1/orders", "/v1/keys"] {
            held.answers(get(path).key(&other.key), 200).await;
        }
        held.answers(post("/trade", order("SELL", 1)).key(&other.key), 400).await;
        held.answers(get("/v1/orders/64000").key(&other.key), 404).await;
    }
}

/// The number of Ann's account.
async fn ann_account(world: &World) -> u64 {
    let mut socket = world.done(upgrade("/v1/ws/prices").key(&world.ann.key), 101).await;
    match socket.next_frame().await {
        Frame::Text(connected) => number(&connected["user_id"]),
        Frame::Closed(code) => panic!("closed {code}"),
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_trade_of_a_token_opens_an_account_that_stays_hidden() {
    let world = World::new().await;
    let (ann, bob, cat, dan) = (&world.ann, &world.bob, &world.cat, &world.dan);
    let by_dan = |request: Request| request.bearer(&dan.token);
    let mut held = world.hold();
    held.answers(by_dan(get("/v1/account/balance")), 404).await;
    held.waits("the trade", by_dan(post("/trade", named(order("BUY", 2), "x"))), 200).await;
    held.waits("the balance", by_dan(get("/v1/account/balance")), 200).await;
    held.waits("a replay", by_dan(post("/trade", named(order("BUY", 2), "x"))), 200).await;
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    assert_eq!(answers[0].response.text, answers[2].response.text);
    assert_eq!(answers[1].get("balance"), "999");
}

#[tokio::test(start_paused = true)]
async fn a_batch_waits_for_its_last_record() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let mut other = order("BUY", 4);
    other["market_id"] = OTHER_MARKET.into();
    let entries = json!({"orders": [order("BUY", 1), order("SELL", 900), other, order("SELL", 1)]});
    let batch = || {
        post("/v1/orders/batch", entries.clone()).key(&ann.key).header("idempotency-key", "batch")
    };
    let refused = json!({"orders": [order("SELL", 900)]});
    let mut held = world.hold();
    held.waits("the batch", batch(), 200).await;
    held.waits("its replay", batch(), 200).await;
    held.waits("a batch of refusals", post("/v1/orders/batch", refused.clone()).key(&ann.key), 200)
        .await;
    held.answers(post("/v1/orders/batch", refused).key(&bob.key), 200).await;
    free_of_ann(&held, ann, bob, cat).await;
    held.release_in_vain(1).await;
    held.release_in_vain(1).await;
    let answers = held.release().await;
    assert_eq!((answers[0].get("succeeded"), answers[0].get("failed")), (json!(3), json!(1)));
    assert_eq!(answers[0].get("results")[3]["account_balance"], "997.9");
    assert_eq!(answers[1].get("results")[0]["is_replay"], true);
    assert_eq!(answers[2].get("results")[0]["error"], "INSUFFICIENT_POSITION");
}

#[tokio::test(start_paused = true)]
async fn a_comment_holds_back_what_shows_its_order() {
    let world = World::new().await;
    let (ann, cat) = (&world.ann, &world.cat);
    let order_id = world.done(buy(cat, 1, "c"), 200).await.get("order_id").as_u64().unwrap();
    let comments = format!("/trades/{order_id}/comments");
    let comment = |content: &str| post(&*comments, json!({"content": content})).key(&ann.key);

    let mut held = world.hold();
    held.waits("the comment", comment("first"), 200).await;
    held.waits("the list", get(&*comments), 200).await;
    held.waits("another comment", comment("second"), 200).await;
    held.waits("the order", get(format!("/v1/orders/{order_id}")).key(&cat.key), 200).await;
    // The comment belongs to the order: neither account has changed.
    held.answers(get("/v1/account/balance").key(&ann.key), 200).await;
    held.answers(get("/v1/account/balance").key(&cat.key), 200).await;
    held.answers(get("/trades/64000/comments"), 404).await;
    let answers = held.release().await;
    let first = answers[0].response.json();
    assert_eq!(answers[1].response.json(), json!([first]));
    let comment_id = first["id"].as_u64().unwrap();

    let gone = || delete(format!("/comments/{comment_id}"));
    let mut held = world.hold();
    held.waits("the deletion", gone().key(&ann.key), 200).await;
    held.waits("the list without it", get(&*comments), 200).await;
    held.waits("deleting it again", gone().key(&ann.key), 404).await;
    held.waits("another account's attempt", gone().key(&cat.key), 404).await;
    held.answers(get("/v1/account/balance").key(&ann.key), 200).await;
    let answers = held.release().await;
    assert_eq!(answers[1].response.json(), json!([answers_second(&world, &comments).await]));
}

/// The remaining comment.
async fn answers_second(world: &World, comments: &str) -> Value {
    let left = world.done(get(comments), 200).await.response.json();
    assert_eq!(left[0]["content"], "second");
    left[0].clone()
}

#[tokio::test(start_paused = true)]
async fn prices_continue_while_the_disk_stalls() {
    let world = World::new().await;
    let mut socket = world.done(upgrade("/v1/ws/prices").key(&world.ann.key), 101).await;
    socket.send_frame(&json!({"action": "subscribe", "markets": [MARKET]})).await;
    let mut kinds = Vec::new();
    for _ in 0..3 {
        let Frame::Text(frame) = socket.next_frame().await else { panic!("closed") };
        kinds.push(text(&frame["type"]));
    }
    let mut held = world.hold();
    held.waits("a trade", buy(&world.ann, 1, "a"), 200).await;
    world.publish_ask(550_000);
    until_idle().await;
    let Frame::Text(frame) = socket.next_frame().await else { panic!("closed") };
    assert_eq!(text(&frame["type"]), kinds[2]);
    held.waits("a second trade", buy(&world.ann, 1, "b"), 200).await;
    held.release().await;
}
