//! The memory for what clients do not take.

use std::task::Poll;

use super::*;
use crate::ws::bounds::{SLOW_TIME, SLOW_WRITE_BYTES_GOAL, WRITE_BYTES_GOAL};

#[tokio::test(start_paused = true)]
async fn what_a_client_does_not_take_is_counted_and_has_a_limit() {
    let mut world = world(1_024);
    let subscribe = |count| {
        let markets: Vec<_> = (0..count).map(|market| format!("m{market}")).collect();
        json!({"action": "subscribe", "markets": markets})
    };
    world.send(subscribe(50)).await;
    sleep(Duration::from_millis(1)).await;
    let batch_bytes = world.unsent.held_bytes();
    assert!((WRITE_BYTES_GOAL - 1_024..WRITE_BYTES_GOAL + 1_024).contains(&batch_bytes));
    world.send(json!({"action": "ping"})).await;
    sleep(Duration::from_millis(1)).await;
    assert!((1..100).contains(&(world.unsent.held_bytes() - batch_bytes)), "a reply");
    for _ in 0..53 {
        world.json().await;
    }
    sleep(Duration::from_millis(1)).await;
    assert_eq!(world.unsent.held_bytes(), 0);

    // Others hold so much that it does not fit.
    let budget = ByteBudget::new(20_000);
    let mut others = budget.share();
    assert!(others.hold(10_000));
    let mut slow = world_within(&budget, 1_024, MarketsMax::Count(50));
    slow.send(subscribe(50)).await;
    let began = Instant::now();
    sleep(WATCH_INTERVAL).await;
    drop(others);
    let (received, ended) = slow.end().await;
    assert_eq!(ended, Ended::Closed(CloseReason::TooSlow));
    assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    assert!(received.len() < 52);
}

/// What waits for it is little, and new.
#[tokio::test(start_paused = true)]
async fn a_slow_client_gets_little_at_a_time() {
    let mut world = world(1_024);
    let markets: Vec<_> = (0..50).map(|market| format!("m{market}")).collect();
    world.send(json!({"action": "subscribe", "markets": markets})).await;
    let (mut batches, mut held_before) = (Vec::new(), 0);
    for number in 0.. {
        if number == 40 {
            for market in &markets {
                world.publish(market, 1);
            }
        }
        sleep(Duration::from_millis(1)).await;
        let held_bytes = world.unsent.held_bytes();
        if held_bytes == 0 {
            break;
        }
        if held_bytes > held_before {
            batches.push(held_bytes);
        }
        held_before = held_bytes;
        world.json().await;
    }
    let (first, others) = batches.split_first().unwrap();
    assert!((WRITE_BYTES_GOAL - 1_024..WRITE_BYTES_GOAL + 1_024).contains(first), "{batches:?}");
    let is_little = |bytes: &usize| (1..SLOW_WRITE_BYTES_GOAL + 1_024).contains(bytes);
    assert!(others.len() > 1 && others.iter().all(is_little), "{batches:?}");
    sleep(SLOW_TIME).await;
    for market in &markets {
        world.publish(market, 2);
    }
    sleep(Duration::from_millis(1)).await;
    assert!(!is_little(&world.unsent.held_bytes()), "it may be fast again");
}

/// Others may hold all the memory: a client that takes what is sent to it is not cut off.
#[tokio::test(start_paused = true)]
async fn a_client_that_reads_stays_while_others_do_not() {
    let budget = ByteBudget::new(1_000);
    let mut others = budget.share();
    assert!(others.hold(1_000));
    let mut world = world_within(&budget, 1_024, MarketsMax::Count(50));
    let markets: Vec<_> = (0..50).map(|market| format!("m{market}")).collect();
    world.send(json!({"action": "subscribe", "markets": markets})).await;
    for _ in 0..52 {
        world.json().await;
    }
    sleep(WATCH_INTERVAL * 2).await;
    world.send(json!({"action": "ping"})).await;
    assert_eq!(world.json().await["type"], "pong");
}

/// A protocol that says nothing.
struct Mute;

impl Protocol for Mute {
    fn answer(&mut self, _: &[u8], _: Timestamp, _: &mut Vec<u8>) {}

    fn take(&mut self, _: &mut Vec<u8>, _: &mut Batch, _: usize) {}
}

#[tokio::test]
async fn a_task_that_has_used_up_its_turn_is_not_a_slow_peer() {
    let unsent = ByteBudget::new(0).share();
    let watched = Watch::default().add(Box::new(|| true));
    let connection = Connection::new(Mute, Arc::default(), unsent, watched);
    let (_client, mut stream) = tokio::io::duplex(16);
    let mut batch = Batch::new();
    batch.extend_from_slice(b"four");
    let mut writing = pin!(connection.write_all(batch, &mut stream));
    poll_fn(|context| {
        while let Poll::Ready(turn) = coop::poll_proceed(context) {
            turn.made_progress();
        }
        assert!(writing.as_mut().poll(context).is_pending());
        Poll::Ready(())
    })
    .await;
    assert!(!connection.watched.lacks_room());
    assert!(!writing.await.unwrap(), "it is not slow");
}
