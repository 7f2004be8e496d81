//! Orders that the venue delays, while the disk holds the records.
//!
//! An order is shown once the record that delays it is durable, and answered once the record that
//! decides it is.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use crate::client::{delete, get, post};
use crate::trades::{free_of_ann, next_order};
use crate::world::{DELAY, DELAYED_MARKET, Held, Person, World, number, until_idle};

fn buy(quantity: u32) -> Value {
    json!({"market_id": DELAYED_MARKET, "outcome": "Yes", "side": "BUY", "quantity": quantity})
}

fn trade(person: &Person, quantity: u32, name: &str) -> Request {
    post("/trade", buy(quantity)).key(&person.key).named(name)
}

/// Requests that show Ann's orders and her money, and the number of them.
async fn ann_waits(held: &mut Held<'_>, ann: &Person, order: u64) {
    for (name, path) in [
        ("the order", format!("/v1/orders/{order}")),
        ("the balance", "/v1/account/balance".into()),
        ("the orders", "/v1/orders".into()),
        ("the positions", "/v1/account/positions".into()),
    ] {
        held.waits(name, get(path).key(&ann.key), 200).await;
    }
}

/// An order in a market without a delay, for its id.
async fn earlier(world: &World) -> u64 {
    let order = json!({"market_id": crate::world::MARKET, "outcome": "Yes", "side": "BUY",
                       "quantity": 1});
    number(&world.done(post("/trade", order).key(&world.ann.key), 200).await.get("order_id"))
}

#[tokio::test(start_paused = true)]
async fn a_delayed_order_is_shown_and_answered_once_each_of_its_records_is_durable() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let order = next_order(earlier(&world).await);

    let mut held = world.hold();
    let first = world.send(trade(ann, 10, "a"));
    until_idle().await;
    ann_waits(&mut held, ann, order).await;
    held.waits("another order by its name", trade(ann, 11, "a"), 409).await;
    let cancel = delete(format!("/v1/orders/{order}")).key(&ann.key);
    held.waits("its cancel", cancel, 400).await;
    let too_dear = json!({"market_id": crate::world::MARKET, "outcome": "Yes", "side": "BUY",
                          "order_type": "limit", "quantity": 2490, "price": "0.4"});
    let too_dear = post("/v1/orders", too_dear).key(&ann.key);
    held.waits("a purchase with the money that it holds back", too_dear, 400).await;
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    assert_eq!(answers[0].get("hold_reason"), "venue_delay");
    assert_eq!(
        (answers[1].get("balance"), answers[1].get("reserved")),
        ("994.5".into(), "5".into())
    );
    assert_eq!(answers[2].get("orders")[0]["status"], "PENDING");
    assert_eq!(answers[5].get("error"), "ORDER_NOT_CANCELLABLE");
    assert_eq!(answers[6].get("error"), "INSUFFICIENT_BALANCE");
    let again = world.send(trade(ann, 10, "a"));
    until_idle().await;
    assert!(!first.is_finished() && !again.is_finished(), "the delay is not over");

    world.publish_ask_in(DELAYED_MARKET, 450_000);
    let mut held = world.hold();
    tokio::time::sleep(DELAY).await;
    until_idle().await;
    ann_waits(&mut held, ann, order).await;
    assert!(!first.is_finished() && !again.is_finished(), "its decision is not durable");
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    assert_eq!(
        (answers[0].get("status"), answers[0].get("fill_price")),
        ("FILLED".into(), "0.45".into())
    );
    assert_eq!((answers[1].get("balance"), answers[1].get("reserved")), ("995".into(), "0".into()));
    let (first, again) = (first.await.expect("an answer"), again.await.expect("an answer"));
    assert_eq!((first.response.status, first.get("price")), (200, json!(0.45)));
    assert!(!first.response.is_replay() && again.response.is_replay());
    assert_eq!(again.response.text, first.response.text);
}

/// The delay passes while the disk still writes the record that delays the order.
#[tokio::test(start_paused = true)]
async fn a_disk_that_is_slower_than_the_delay_holds_back_both_records() {
    let world = World::new().await;
    let ann = &world.ann;
    let order = next_order(earlier(&world).await);
    let mut held = world.hold();
    held.waits("the order", trade(ann, 10, "a"), 200).await;
    tokio::time::sleep(2 * DELAY).await;
    held.waits("a repeat", trade(ann, 10, "a"), 200).await;
    ann_waits(&mut held, ann, order).await;
    held.release_in_vain(1).await;
    let answers = held.release().await;
    assert!(!answers[0].response.is_replay() && answers[1].response.is_replay());
    assert_eq!(answers[1].response.text, answers[0].response.text);
    assert_eq!(answers[2].get("status"), "FILLED");
}

#[tokio::test(start_paused = true)]
async fn the_refusal_of_a_delayed_order_waits_for_the_record_that_drops_it() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    let order = next_order(earlier(&world).await);
    let capped = || {
        let mut capped = buy(10);
        capped["price"] = "0.5".into();
        post("/v1/orders", capped).key(&ann.key).named("a")
    };
    let first = world.send(capped());
    until_idle().await;
    let shown = world.done(get(format!("/v1/orders/{order}")).key(&ann.key), 200).await;
    assert_eq!(shown.get("hold_reason"), "venue_delay");
    world.publish_ask_in(DELAYED_MARKET, 550_000);

    let mut held = world.hold();
    tokio::time::sleep(DELAY).await;
    until_idle().await;
    let gone = get(format!("/v1/orders/{order}")).key(&ann.key);
    held.waits("the order that is gone", gone, 404).await;
    held.waits("the balance", get("/v1/account/balance").key(&ann.key), 200).await;
    held.waits("the orders", get("/v1/orders").key(&ann.key), 200).await;
    // Its name is free, but the refusal of another order by that name depends on the same record.
    held.waits("an order that crosses nothing, under its name", capped(), 400).await;
    assert!(!first.is_finished(), "its refusal is not durable");
    free_of_ann(&held, ann, bob, cat).await;
    let answers = held.release().await;
    assert_eq!(
        (answers[1].get("balance"), answers[1].get("reserved")),
        ("999.5".into(), "0".into())
    );
    assert_eq!(answers[2].get("orders").as_array().map(Vec::len), Some(1));
    let refused = first.await.expect("an answer");
    assert_eq!(refused.response.status, 400);
    assert_eq!(refused.get("error"), "FOK_ORDER_NOT_FILLED_ERROR");
    assert_eq!(answers[3].response.text, refused.response.text);
}
