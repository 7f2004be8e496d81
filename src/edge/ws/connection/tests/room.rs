//! The memory for what clients do not take.

use std::task::Poll;

use super::*;
use crate::ws::bounds::WRITE_BYTES_GOAL;

#[tokio::test(start_paused = true)]
async fn what_a_client_does_not_take_is_counted_and_has_a_limit() {
    let mut world = world(1_024);
    let subscribe = json!({"action": "subscribe", "markets": names(0..50)});
    world.send(subscribe.clone()).await;
    sleep(Duration::from_millis(1)).await;
    let frame_bytes = world.unsent.held_bytes();
    assert!((1..1_024).contains(&frame_bytes));
    world.send(json!({"action": "ping"})).await;
    sleep(Duration::from_millis(1)).await;
    assert!((1..100).contains(&(world.unsent.held_bytes() - frame_bytes)), "a reply");
    for _ in 0..53 {
        world.json().await;
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.unsent.held_bytes(), 0);

    // Others hold so much that it does not fit.
    let budget = ByteBudget::new(10_001);
    let mut others = budget.share();
    assert!(others.hold(10_000));
    let mut slow = world_within(&budget, 1_024, MarketsMax::Count(50));
    slow.send(subscribe).await;
    let began = Instant::now();
    sleep(WATCH_INTERVAL).await;
    drop(others);
    let (received, ended) = slow.end().await;
    assert_eq!(ended, Ended::Closed(CloseReason::TooSlow));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(received.len() < 52);
}

/// A client that has the first frame of each of fifty markets, and takes little at a time.
async fn slow_client() -> (World, Vec<String>) {
    let mut world = world(1_024);
    let markets = names(0..50);
    world.send(json!({"action": "subscribe", "markets": markets})).await;
    for kind in ["connected", "subscribed"] {
        assert_eq!(world.json().await["type"], kind);
    }
    for market in &markets {
        assert_eq!(world.json().await["market_id"], market.as_str());
    }
    (world, markets)
}

/// All markets change, and the server sends what it can.
async fn publish_all(world: &World, markets: &[String], change: i64) {
    for market in markets {
        world.publish(market, change);
    }
    sleep(Duration::from_millis(1)).await;
    assert!((1..1_024).contains(&world.unsent.held_bytes()), "a frame waits");
}

#[tokio::test(start_paused = true)]
async fn what_a_slow_client_has_not_taken_is_as_new_as_can_be() {
    let (mut world, markets) = slow_client().await;
    publish_all(&world, &markets, 1).await;
    publish_all(&world, &markets, 2).await;
    let (mut newest_count, mut conflated_count) = (0, 0);
    let mut others = Vec::new();
    while newest_count < markets.len() {
        let price = world.json().await;
        match price["best_bid"].as_str().unwrap() {
            "0.0002" => newest_count += 1,
            _ => others.push(price["market_id"].clone()),
        }
        conflated_count += u64::from(price["conflated"] == true);
    }
    // In the pipe, and one that had begun.
    assert!((1..5).contains(&others.len()), "{others:?}");
    assert_eq!(conflated_count, 50 - others.len() as u64, "all that missed one say so");
    assert_eq!(world.fanout.conflated_count(), conflated_count);
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.unsent.held_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_client_gets_every_market_before_any_a_second_time() {
    let (mut world, markets) = slow_client().await;
    let mut seen = Vec::new();
    for change in 1..=200 {
        publish_all(&world, &markets, change).await;
        seen.push(world.json().await["market_id"].as_str().unwrap().to_owned());
    }
    for (number, market) in seen.iter().enumerate().skip(50) {
        let before = seen[..number].iter().rev().position(|other| other == market);
        assert!((40..60).contains(&before.unwrap()), "{market} at {number}: {seen:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_market_is_said_to_a_slow_client() {
    let (mut world, markets) = slow_client().await;
    let info = world.markets.by_condition("m40").unwrap().info().clone();
    let info = MarketInfo { status: MarketStatus::Closed, ..MarketInfo::clone(&info) };
    world.markets.list(vec![info]).unwrap();
    publish_all(&world, &markets, 1).await;
    let (mut before, mut count) = (Value::Null, 0);
    loop {
        let json = world.json().await;
        match json["type"].as_str().unwrap() {
            "market_status" => break assert_eq!(json["seq"], before["seq"]),
            _ => count += 1,
        }
        before = json;
    }
    assert_eq!((&before["market_id"], &before["closed"]), (&json!("m40"), &json!(true)));
    for _ in count..50 {
        assert_eq!(world.json().await["type"], "price", "it is said once");
    }
    world.send(json!({"action": "ping"})).await;
    assert_eq!(world.json().await["type"], "pong");
}

/// A stream that another node passes on keeps all that is written to it, whatever its client reads.
#[tokio::test(start_paused = true)]
async fn fifty_prices_are_one_batch_unless_the_stream_keeps_them() {
    let unsent = ByteBudget::new(usize::MAX);
    for (batch_bytes, write_count) in [(PRICES_BYTES_GOAL, 1), (WRITE_BYTES_GOAL, 2)] {
        let mut world = world_of_batches(batch_bytes, &unsent, 64 * 1024, MarketsMax::Count(50));
        let markets = names(0..50);
        world.send(json!({"action": "subscribe", "markets": markets})).await;
        for _ in 0..52 {
            world.json().await;
        }
        let before = world.writes.load(Ordering::Relaxed);
        for market in &markets {
            world.publish(market, 1);
        }
        for _ in &markets {
            assert_eq!(world.json().await["best_bid"], "0.0001");
        }
        assert_eq!(world.writes.load(Ordering::Relaxed) - before, write_count);
    }
}

/// Others may hold all the memory: a client that takes what is sent to it is not cut off.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_stays_while_others_do_not() {
    let budget = ByteBudget::new(1_000);
    let mut others = budget.share();
    assert!(others.hold(1_000));
    let mut world = world_within(&budget, 1_024, MarketsMax::Count(50));
    let markets = names(0..50);
    world.send(json!({"action": "subscribe", "markets": markets})).await;
    for _ in 0..52 {
        world.json().await;
    }
    sleep(WATCH_INTERVAL * 2).await;
    world.send(json!({"action": "ping"})).await;
    assert_eq!(world.json().await["type"], "pong");
}

/// A protocol that has only replies, and claims that some of them can be put back, or none.
struct Mute {
    puts_back: bool,
}

impl Protocol for Mute {
    fn answer(&mut self, _: &[u8], _: Timestamp, _: &mut Vec<u8>) {}

    fn take(&mut self, replies: &mut Vec<u8>, batch: &mut Batch, _: usize) {
        batch.take(replies);
    }

    fn put_back(&mut self, _: &mut Batch, _: usize) -> bool {
        self.puts_back
    }
}

/// A client of it, for which there is no room.
fn mute(puts_back: bool) -> Connection<Mute> {
    let watched = Watch::default().add(Box::new(|| true));
    let unsent = ByteBudget::new(0).share();
    Connection::new(Mute { puts_back }, Arc::default(), unsent, watched)
}

#[tokio::test]
async fn there_is_room_for_what_the_next_batch_brings_to_a_client_that_reads() {
    for puts_back in [true, false] {
        let connection = mute(puts_back);
        let (_client, mut stream) = tokio::io::duplex(16);
        let mut batch = Batch::new();
        batch.extend_from_slice(&[b'x'; 20]);
        let mut writing = pin!(connection.write_batch(batch, &mut stream));
        let polled = poll_fn(|context| Poll::Ready(writing.as_mut().poll(context).is_pending()));
        assert!(polled.await);
        assert_eq!(connection.watched.lacks_room(), !puts_back);
        // As when a pong arrives.
        connection.note_unsent(&mut connection.shared.lock());
        assert_eq!(connection.watched.lacks_room(), !puts_back, "while it waits");
        let begun_bytes = if puts_back { 4 } else { 0 };
        assert_eq!(connection.shared.lock().begun.len(), begun_bytes);
    }
}

/// Anything else would be inside of it.
#[test]
fn the_rest_of_a_begun_frame_is_written_first() {
    for reason in [None, Some(CloseReason::GoingAway)] {
        let connection = mute(true);
        let mut shared = connection.shared.lock();
        (shared.begun, shared.replies) = (b"rest".to_vec(), b"reply".to_vec());
        shared.close = reason.map(|reason| (reason, None));
        drop(shared);
        let mut expected = b"restreply".to_vec();
        if let Some(reason) = reason {
            put_close(&mut expected, reason, None);
        }
        let mut batch = Batch::new();
        assert_eq!(connection.take(&mut batch, usize::MAX), reason);
        assert_eq!(*batch, expected);
    }
}

#[tokio::test]
async fn a_task_that_has_used_up_its_turn_is_not_a_slow_peer() {
    let connection = mute(false);
    let (_client, mut stream) = tokio::io::duplex(16);
    let mut batch = Batch::new();
    batch.extend_from_slice(b"four");
    let mut writing = pin!(connection.write_batch(batch, &mut stream));
    poll_fn(|context| {
        while let Poll::Ready(turn) = coop::poll_proceed(context) {
            turn.made_progress();
        }
        assert!(writing.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    assert!(!connection.watched.lacks_room());
    assert_eq!(writing.await.unwrap(), Some(0));
}
