//! Creating, renaming, rotating and revoking keys while the disk holds the records.

use paperbourse_test_support::Request;
use serde_json::json;

use crate::client::{Frame, delete, get, patch, post, upgrade};
use crate::world::{Person, World, number, text};

fn grant() -> serde_json::Value {
    json!({"permissions": ["read", "trade"]})
}

/// Another key of the same person.
async fn second_key(world: &World, person: &Person) -> Person {
    let new = world.done(post("/v1/keys", grant()).key(&person.key), 201).await;
    Person { key: text(&new.get("raw_key")), key_id: number(&new.get("id")), ..person.clone() }
}

#[tokio::test(start_paused = true)]
async fn a_bootstrap_holds_back_all_that_shows_the_account() {
    let world = World::new().await;
    let (bob, dan) = (&world.bob, &world.dan);
    let by_dan = |request: Request| request.bearer(&dan.token);
    let mut held = world.hold();
    held.answers(by_dan(get("/v1/keys")), 200).await;
    held.answers(by_dan(post("/v1/keys/ws-token", ())), 404).await;
    held.waits("the bootstrap", by_dan(post("/v1/keys/bootstrap", grant())), 201).await;
    held.waits("a second one", by_dan(post("/v1/keys/bootstrap", grant())), 400).await;
    held.waits("another key", by_dan(post("/v1/keys", grant())), 201).await;
    held.waits("the keys", by_dan(get("/v1/keys")), 200).await;
    held.waits("the balance", by_dan(get("/v1/account/balance")), 200).await;
    held.waits("a socket token", by_dan(post("/v1/keys/ws-token", ())), 200).await;
    held.answers(get("/v1/account/balance").key(&bob.key), 200).await;
    held.answers(get("/v1/keys").bearer(&bob.token), 200).await;
    let answers = held.release().await;
    assert_eq!(text(&answers[1].get("error")), "BOOTSTRAP_NOT_ALLOWED");
    assert_eq!(answers[3].response.json().as_array().unwrap().len(), 2);
    let key = text(&answers[0].get("raw_key"));
    world.done(get("/v1/account/balance").key(&key), 200).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_key_holds_back_the_list_and_the_limit() {
    let world = World::new().await;
    let ann = &world.ann;
    for _ in 0..3 {
        second_key(&world, ann).await;
    }
    let mut held = world.hold();
    held.waits("the fifth key", post("/v1/keys", grant()).key(&ann.key), 201).await;
    held.waits("the sixth", post("/v1/keys", grant()).key(&ann.key), 400).await;
    held.waits("the list", get("/v1/keys").key(&ann.key), 200).await;
    held.answers(get("/v1/markets").key(&ann.key), 200).await;
    let answers = held.release().await;
    assert_eq!(text(&answers[1].get("error")), "TIER_KEY_LIMIT_EXCEEDED");
    assert_eq!(answers[2].response.json().as_array().unwrap().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_revoked_key_is_refused_at_once_and_its_200_waits() {
    let world = World::new().await;
    let ann = &world.ann;
    let second = second_key(&world, ann).await;
    let socket_token = |key: &str| post("/v1/keys/ws-token", ()).key(key);
    let by_second = text(&world.done(socket_token(&second.key), 200).await.get("token"));
    let mut open = world.done(upgrade("/v1/ws/prices").key(&second.key), 101).await;
    assert!(matches!(open.next_frame().await, Frame::Text(_)));
    let revoke = || delete(format!("/v1/keys/{}", second.key_id)).key(&ann.key);

    let mut held = world.hold();
    held.waits("the revocation", revoke(), 200).await;
    held.waits("again", revoke(), 200).await;
    held.waits("the list", get("/v1/keys").key(&ann.key), 200).await;
    for request in [get("/v1/account/balance"), get("/v1/markets"), post("/v1/keys", grant())] {
        let refused = held.answers(request.key(&second.key), 401).await;
        assert_eq!(text(&refused.get("error")), "KEY_DEACTIVATED");
    }
    held.answers(get("/v1/markets").key(&ann.key), 200).await;
    let mut late = held.answers(upgrade("/v1/ws/prices").key(&second.key), 101).await;
    assert_eq!(late.next_frame().await, Frame::Closed(4001));
    assert_eq!(open.next_frame().await, Frame::Closed(4001));
    held.waits("a socket by its token", upgrade(format!("/v1/ws/prices?token={by_second}")), 101)
        .await;
    let mut answers = held.release().await;
    let list = answers[2].response.json();
    let row = list.as_array().unwrap().iter().find(|row| row["id"] == second.key_id).unwrap();
    assert_eq!(row["is_active"], false);
    assert_eq!(answers[3].next_frame().await, Frame::Closed(4001));
}

/// What the old key may no longer do is refused at once, which is the safe side.
#[tokio::test(start_paused = true)]
async fn a_new_name_and_a_rotation_wait_and_hold_back_what_shows_them() {
    let world = World::new().await;
    let ann = &world.ann;
    let second = second_key(&world, ann).await;
    let path = format!("/v1/keys/{}", second.key_id);
    let rename = || patch(&*path, json!({"name": "bot"})).key(&ann.key);
    let rotate = || post(format!("{path}/rotate"), ()).key(&ann.key);

    let mut held = world.hold();
    held.waits("the name", rename(), 200).await;
    held.waits("the name again", rename(), 200).await;
    held.waits("the rotation", rotate(), 200).await;
    held.waits("another one", rotate(), 409).await;
    held.waits("the list", get("/v1/keys").key(&ann.key), 200).await;
    for request in [post("/v1/keys", grant()), patch(&*path, json!({"name": "x"}))] {
        let refused = held.answers(request.key(&second.key), 403).await;
        assert_eq!(text(&refused.get("error")), "INSUFFICIENT_PERMISSION");
    }
    held.answers(get("/v1/markets").key(&second.key), 200).await;
    let answers = held.release().await;
    assert_eq!(text(&answers[3].get("error")), "KEY_ROTATED");
    let list = answers[4].response.json();
    let row = |id: u64| {
        let mut rows = list.as_array().unwrap().iter();
        rows.find(|row| row["id"] == id).unwrap()
    };
    let successor = row(number(&answers[2].get("id")));
    assert_eq!(
        (&successor["name"], &successor["created_by"]),
        (&json!("bot"), &json!(second.key_id))
    );
    assert!(row(second.key_id)["expires_at"].is_string());
    let key = text(&answers[2].get("raw_key"));
    world.done(get("/v1/account/balance").key(&key), 200).await;
}
