//! A suspension, while the disk holds its record and while the venue's delay holds orders.

use paperbourse::engine::standing::Act;
use serde_json::json;

use crate::client::{get, post};
use crate::world::{DELAY, HELD_MARKET, MARKET, World, until_idle};

#[tokio::test(start_paused = true)]
async fn a_suspension_is_told_once_it_is_durable() {
    let world = World::new().await;
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    let filled = world.done(post("/trade", order.clone()).key(&world.bob.key), 200).await;
    let comments = format!("/trades/{}/comments", filled.get("order_id"));

    let mut held = world.hold();
    let suspended = world.act(&world.cat, Act::Suspend).await;
    until_idle().await;
    assert!(!suspended.is_finished(), "it waits for the disk");
    held.waits("an order", post("/trade", order).key(&world.cat.key), 403).await;
    let comment = json!({"content": "words"});
    held.waits("a comment in another shard", post(&comments, comment).key(&world.cat.key), 403)
        .await;
    let cancel = post("/v1/cancel-all?confirm=true", json!({})).key(&world.cat.key);
    held.waits("a cancel", cancel, 403).await;
    let answers = held.release().await;
    assert!(answers.iter().all(|answer| answer.get("error") == "ACCOUNT_SUSPENDED"));
    assert!(suspended.await.expect("an answer").is_new);
    world.done(get("/v1/account/balance").key(&world.cat.key), 200).await;
}

#[tokio::test(start_paused = true)]
async fn an_erasure_is_told_once_it_is_durable() {
    let world = World::new().await;
    let cat = &world.cat;
    world.act(cat, Act::Suspend).await.await.expect("an answer");
    let mut held = world.hold();
    let erased = world.act(cat, Act::Erase).await;
    until_idle().await;
    assert!(!erased.is_finished(), "it waits for the disk");
    let by_token = get("/v1/account/balance").bearer(&cat.token);
    held.waits("that there is no account", by_token, 404).await;
    // As with a revocation: the sooner, the better.
    held.answers(get("/v1/me").key(&cat.key), 401).await;
    held.release().await;
    assert!(erased.await.expect("an answer").is_new);
}

#[tokio::test(start_paused = true)]
async fn an_order_that_a_suspension_ends_while_it_is_held_says_so() {
    let world = World::new().await;
    let ann = &world.ann;
    let order = json!({"market_id": HELD_MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10});
    let trade = post("/trade", order.clone()).key(&ann.key).named("a");
    let place = post("/v1/orders", order).key(&ann.key).named("b");
    let (traded, placed) = (world.send(trade), world.send(place));
    until_idle().await;
    let acted = world.act(ann, Act::Suspend).await.await.expect("an answer");
    assert_eq!(acted.order_count, 2);
    let shown = world.done(get("/v1/account/balance").key(&ann.key), 200).await;
    assert_eq!((shown.get("balance"), shown.get("reserved")), ("1000".into(), "0".into()));

    tokio::time::sleep(DELAY).await;
    let (traded, placed) = (traded.await.expect("an answer"), placed.await.expect("an answer"));
    assert_eq!((traded.response.status, traded.get("error")), (403, "ACCOUNT_SUSPENDED".into()));
    assert_eq!(
        (placed.get("status"), placed.get("cancelled_reason")),
        ("CANCELLED".into(), "suspended".into())
    );
}
