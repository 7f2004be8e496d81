//! A reset, while the disk holds its record and while the venue delays orders.

use serde_json::json;

use crate::client::{get, post};
use crate::trades::free_of_ann;
use crate::world::{DELAY, DELAYED_MARKET, MARKET, World, until_idle};

const PATH: &str = "/v1/account/reset-api-balance";

#[tokio::test(start_paused = true)]
async fn a_reset_is_shown_and_answered_once_it_is_durable() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let reset = || post(PATH, json!({})).key(&ann.key);
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    world.done(post("/trade", order).key(&ann.key), 200).await;

    let mut held = world.hold();
    held.waits("the reset", reset(), 200).await;
    held.waits("a repeat, which finds nothing to do", reset(), 200).await;
    for (name, path) in [
        ("the balance", "/v1/account/balance"),
        ("the positions", "/v1/account/positions"),
        ("the wallet", "/v1/me/wallets/api"),
        ("the wallets", "/v1/me/wallets"),
    ] {
        held.waits(name, get(path).key(&ann.key), 200).await;
    }
    let sale = json!({"market_id": MARKET, "outcome": "Yes", "side": "SELL", "quantity": 1});
    held.waits("a sale of what is gone", post("/trade", sale).key(&ann.key), 400).await;
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    assert_eq!([0, 1].map(|index| answers[index].get("positions_closed")), [1, 0]);
    assert_eq!(answers[2].get("balance"), "1000");
    assert_eq!(answers[4].get("generation"), 2);
    assert_eq!(answers[6].get("error"), "INSUFFICIENT_POSITION");
}

#[tokio::test(start_paused = true)]
async fn an_order_that_a_reset_ends_while_it_is_delayed_says_so() {
    let world = World::new().await;
    let ann = &world.ann;
    let order =
        json!({"market_id": DELAYED_MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10});
    let trade = || post("/trade", order.clone()).key(&ann.key).named("a");
    let place = || post("/v1/orders", order.clone()).key(&ann.key).named("b");
    let (traded, placed) = (world.send(trade()), world.send(place()));
    until_idle().await;
    let done = world.done(post(PATH, json!({})).key(&ann.key), 200).await;
    assert_eq!(done.get("orders_cancelled"), 2);
    let shown = world.done(get("/v1/account/balance").key(&ann.key), 200).await;
    assert_eq!((shown.get("balance"), shown.get("reserved")), ("1000".into(), "0".into()));

    tokio::time::sleep(DELAY).await;
    let (traded, placed) = (traded.await.expect("an answer"), placed.await.expect("an answer"));
    assert_eq!((traded.response.status, traded.get("error")), (409, "ACCOUNT_RESET".into()));
    assert_eq!(
        (placed.get("status"), placed.get("cancelled_reason")),
        ("CANCELLED".into(), "reset".into())
    );
    let again = world.done(trade(), 409).await;
    assert_eq!(again.response.text, traded.response.text);
}
