//! Payouts while the disk holds the records.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use crate::client::{get, post};
use crate::world::{MARKET, OTHER_MARKET, Person, World, text};

fn buy(person: &Person, market: &str, outcome: &str) -> Request {
    let order = json!({"market_id": market, "outcome": outcome, "side": "BUY", "quantity": 10});
    post("/trade", order).key(&person.key)
}

fn balance(person: &Person) -> Request {
    get("/v1/account/balance").key(&person.key)
}

async fn shown_balance(world: &World, person: &Person) -> String {
    text(&world.done(balance(person), 200).await.get("balance"))
}

#[tokio::test(start_paused = true)]
async fn a_payout_holds_back_all_that_shows_it_or_depends_on_it() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    world.done(buy(ann, MARKET, "Yes"), 200).await;
    world.done(buy(cat, MARKET, "Yes"), 200).await;
    world.done(buy(bob, OTHER_MARKET, "Yes"), 200).await;
    let key = |request: Request| request.key(&ann.key);

    let mut held = world.hold();
    world.resolve().await;
    // The decision waits for the disk, and no account is paid before it is durable.
    for person in [ann, bob, cat] {
        let answer = held.answers(balance(person), 200).await;
        assert_eq!(answer.get("balance"), "995");
    }
    held.release_in_vain(1).await;

    held.waits("the balance", balance(ann), 200).await;
    held.waits("the balance by token", get("/v1/account/balance").bearer(&ann.token), 200).await;
    held.waits("the positions", key(get("/v1/account/positions")), 200).await;
    held.waits("the settlements", key(get("/v1/account/settlements")), 200).await;
    held.waits("an order in the market", buy(ann, MARKET, "Yes"), 400).await;
    held.waits("another account's order in it", buy(bob, MARKET, "Yes"), 400).await;
    held.waits("an order that the payout could pay for", buy(ann, OTHER_MARKET, "Yes"), 200).await;
    held.waits("the balance in another shard", balance(cat), 200).await;
    held.waits("its settlements", get("/v1/account/settlements").key(&cat.key), 200).await;
    // Nothing of Bob's has changed.
    held.answers(balance(bob), 200).await;
    held.answers(get("/v1/account/settlements").key(&bob.key), 200).await;

    let answers = held.release().await;
    assert_eq!(answers[0].get("balance"), "1005");
    let paid = |answer: &Value| answer["data"][0]["payout"].clone();
    assert_eq!(paid(&answers[3].response.json()), "10");
    for refused in &answers[4..6] {
        assert_eq!(refused.get("error"), "MARKET_CLOSED");
    }
    assert_eq!(answers[6].get("account_balance"), json!(1000));
    assert_eq!(answers[7].get("balance"), "1005");
    assert_eq!(paid(&answers[8].response.json()), "10");
    assert_eq!(shown_balance(&world, ann).await, "1000");
}

#[tokio::test(start_paused = true)]
async fn a_market_that_is_resolved_again_is_paid_once() {
    let world = World::new().await;
    let ann = &world.ann;
    world.done(buy(ann, MARKET, "Yes"), 200).await;
    world.done(buy(ann, MARKET, "No"), 200).await;
    for _ in 0..3 {
        world.resolve().await;
        // Ten shares of each outcome pay ten dollars, whichever wins.
        assert_eq!(shown_balance(&world, ann).await, "999");
    }
}
