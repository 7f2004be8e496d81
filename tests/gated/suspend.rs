//! A suspension, while the disk holds its record and while the venue delays orders.

use std::future::poll_fn;
use std::net::{IpAddr, Ipv4Addr};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use paperbourse::auth::presented::Presented;
use paperbourse::engine::admin::standing::Act;
use paperbourse::ids::{CommentId, OrderId};
use paperbourse::service::RequestContext;
use paperbourse_test_support::Request;
use serde_json::json;

use crate::client::{Answer, Frame, delete, get, post, upgrade};
use crate::world::{DELAY, DELAYED_MARKET, MARKET, World, number, text, until_idle};

#[tokio::test(start_paused = true)]
async fn a_suspension_is_told_once_it_is_durable() {
    let world = World::new().await;
    let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
    let filled = world.done(post("/trade", order.clone()).key(&world.bob.key), 200).await;
    let comments = format!("/trades/{}/comments", filled.get("order_id"));
    let bought = world.done(post("/trade", order.clone()).key(&world.cat.key), 200).await;
    let bought = bought.get("order_id");

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
    // Nothing but the suspension can hold this one back: the order finished long ago.
    let cancel = delete(format!("/v1/orders/{bought}")).key(&world.cat.key);
    held.waits("a cancel of one order", cancel, 403).await;
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

/// Opens a socket of each kind with a token that this request asks for.
async fn sockets(world: &World, ask: Request) -> (Vec<Answer>, [String; 2]) {
    let token = text(&world.done(ask, 200).await.get("token"));
    let paths = ["prices", "executions"].map(|kind| format!("/v1/ws/{kind}?token={token}"));
    let mut sockets = Vec::new();
    for path in &paths {
        let mut socket = world.done(upgrade(path), 101).await;
        assert!(matches!(socket.next_frame().await, Frame::Text(_)), "{path}");
        sockets.push(socket);
    }
    (sockets, paths)
}

#[tokio::test(start_paused = true)]
async fn an_erasure_ends_the_sockets_of_the_account_and_a_suspension_does_not() {
    let ask = || post("/v1/keys/ws-token", ());
    for is_by_key in [true, false] {
        let world = World::new().await;
        let cat = &world.cat;
        let asked = if is_by_key { ask().key(&cat.key) } else { ask().bearer(&cat.token) };
        let (mut open, paths) = sockets(&world, asked).await;
        let (mut others, _) = sockets(&world, ask().bearer(&world.ann.token)).await;
        let account = world.account_of(cat).await;
        world.act_on(account, Act::Suspend).await.expect("an answer");
        tokio::time::sleep(Duration::from_secs(1)).await;
        for socket in &mut open {
            socket.has_no_frame().await;
        }

        let held = world.hold();
        let erased = world.act_on(account, Act::Erase);
        for socket in &mut open {
            assert_eq!(socket.next_frame().await, Frame::Closed(4001), "by key: {is_by_key}");
        }
        if !is_by_key {
            for path in &paths {
                let mut late = world.done(upgrade(path), 101).await;
                assert_eq!(late.next_frame().await, Frame::Closed(4001), "{path}");
            }
        }
        assert!(!erased.is_finished(), "it waits for the disk");
        held.release().await;
        assert!(erased.await.expect("an answer").is_new);
        for socket in &mut others {
            socket.has_no_frame().await;
        }
    }
}

/// The file would otherwise look complete.
#[tokio::test(start_paused = true)]
async fn an_erasure_cuts_off_a_file_that_is_being_sent() {
    for is_by_key in [true, false] {
        let world = World::new().await;
        let cat = &world.cat;
        for number in 0..400 {
            let name = format!("{number}{}", "\u{1f9ea}".repeat(240));
            let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY",
                               "quantity": "0.1", "client_order_id": name});
            world.done(post("/trade", order).key(&cat.key), 200).await;
        }
        let account = world.account_of(cat).await;
        world.act_on(account, Act::Suspend).await.expect("an answer");
        let export = || {
            let request = get("/v1/export/trades.csv");
            if is_by_key { request.key(&cat.key) } else { request.bearer(&cat.token) }
        };
        let whole = world.done(export(), 200).await.rest().await;
        assert!(whole.ends_with("\r\n0\r\n\r\n"), "{whole}");
        // More than fits between the server and its client.
        let file = world.done(export(), 200).await;
        world.act_on(account, Act::Erase).await.expect("an answer");
        let cut = file.rest().await;
        assert!(cut.len() < whole.len() && !cut.ends_with("\r\n0\r\n\r\n"), "{is_by_key}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_order_that_a_suspension_ends_while_it_is_delayed_says_so() {
    let world = World::new().await;
    let ann = &world.ann;
    let order =
        json!({"market_id": DELAYED_MARKET, "outcome": "Yes", "side": "BUY", "quantity": 10});
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

/// The author's shard has let the comment through, and the order's shard has not seen it yet.
#[tokio::test(start_paused = true)]
async fn no_comment_is_written_or_deleted_after_a_suspension_was_told() {
    for act in [Act::Suspend, Act::Erase] {
        let world = World::new().await;
        let (bob, cat) = (&world.bob, &world.cat);
        let order = json!({"market_id": MARKET, "outcome": "Yes", "side": "BUY", "quantity": 1});
        let filled = world.done(post("/trade", order.clone()).key(&bob.key), 200).await;
        let order_id = OrderId::from_raw(number(&filled.get("order_id")));
        let comments = format!("/trades/{}/comments", filled.get("order_id"));
        let words = json!({"content": "words"});
        let first = world.done(post(&comments, words).key(&cat.key), 200).await;
        let comment_id = CommentId::from_raw(number(&first.get("id")));

        let app = world.app();
        let (service, waiters) = (&app.service, world.waiters());
        let address = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let context = RequestContext { moment: service.moment(), address, waiters };
        let presented = Presented::Key(cat.key.as_bytes());
        let caller = service.identify(&presented, address, context.moment).await.expect("a key");
        let held = world.hold();
        // What lets the two through is not durable yet, so they stop there.
        let traded = world.send(post("/trade", order).key(&cat.key));
        until_idle().await;
        let mut written = pin!(service.comment(&caller, order_id, "more".into(), context));
        let mut deleted = pin!(service.delete_comment(&caller, comment_id, context));
        assert!(waits(written.as_mut()).await && waits(deleted.as_mut()).await);
        let acted = world.act_on(caller.account().expect("it has one"), act.clone());
        until_idle().await;
        held.release().await;
        assert_eq!(traded.await.expect("an answer").response.status, 200);
        until_idle().await;

        assert!(!acted.is_finished(), "a write that was let through is on its way");
        assert!(written.await.is_ok());
        deleted.await.expect("its own comment");
        acted.await.expect("an answer");
        let shown = world.done(get(&comments).key(&bob.key), 200).await;
        let shown = shown.response.json();
        let mut comments = shown.as_array().expect("comments").iter();
        let is_left = comments.any(|comment| comment["content"] == "more");
        assert_eq!(is_left, act == Act::Suspend, "{shown}");
    }
}

/// Lets a future run until it has to wait. Whether it does.
async fn waits<F: Future>(mut future: Pin<&mut F>) -> bool {
    poll_fn(|context| Poll::Ready(future.as_mut().poll(context).is_pending())).await
}
