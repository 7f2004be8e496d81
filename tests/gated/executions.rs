//! The execution socket shows a fill, and even its number, once its record is durable.

use paperbourse_test_support::Request;
use serde_json::{Value, json};

use crate::client::{Answer, Frame, post, upgrade};
use crate::world::{MARKET, Person, World};

fn follow(person: &Person) -> Request {
    upgrade("/v1/ws/executions").key(&person.key)
}

fn buy(person: &Person) -> Request {
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    post("/trade", order).key(&person.key)
}

async fn next(socket: &mut Answer) -> Value {
    match socket.next_frame().await {
        Frame::Text(frame) => frame,
        Frame::Closed(code) => panic!("closed {code}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_fill_is_shown_once_it_is_durable() {
    let world = World::new().await;
    let (ann, bob, cat) = (&world.ann, &world.bob, &world.cat);
    world.done(buy(ann), 200).await;
    let mut live = world.done(follow(ann), 101).await;
    assert_eq!(next(&mut live).await["seq"], 1);

    let mut held = world.hold();
    held.waits("a trade", buy(ann), 200).await;
    held.waits("another one", buy(ann), 200).await;
    live.has_no_frame().await;
    live.send_frame(&json!({"action": "resume", "after": 0})).await;
    live.has_no_frame().await;
    // Not even the number of the newest fill is shown, nor whether a number exists.
    let mut later = held.answers(follow(ann), 101).await;
    later.send_frame(&json!({"action": "resume", "after": 3})).await;
    later.has_no_frame().await;
    for other in [bob, cat] {
        let mut free = held.answers(follow(other), 101).await;
        assert_eq!(next(&mut free).await["seq"], 0);
    }

    held.release().await;
    let mut frames = Vec::new();
    for _ in 0..5 {
        let frame = next(&mut live).await;
        frames.push((frame["type"].clone(), frame["seq"].clone()));
    }
    let fill = |seq: u64| (json!("fill"), json!(seq));
    let resumed = (json!("resumed"), Value::Null);
    assert_eq!(frames, [fill(2), resumed, fill(1), fill(2), fill(3)]);
    assert_eq!(next(&mut later).await["seq"], 3);
    assert_eq!(next(&mut later).await, json!({"type": "resumed", "after": 3}));
}
