use super::*;
use paperbourse_core::ids::ShardId;

#[test]
fn outcomes_are_kept_for_a_while_and_then_nothing_is() {
    let delayed = DelayedOrders::default();
    let orders: Vec<_> =
        (1..=1_000).map(|counter| OrderId::new(ShardId::of_digest(0), counter).unwrap()).collect();
    let now = Instant::now();
    for &order in &orders {
        delayed.add(order, "0xabc".into(), now);
    }
    let (due, next) = delayed.take_due(now);
    assert_eq!((due.len(), next, delayed.count()), (1_000, None, 1_000));

    // One in ten finds no room, stays delayed, and tells nobody.
    let refusal = Refusal::Rejected(Rejection::VenueUnavailable { book_at: None });
    for (number, &order) in orders.iter().enumerate() {
        let outcome = if number % 10 == 0 { Refusal::JournalFull } else { refusal.clone() };
        delayed.note(order, Err(outcome));
    }
    assert_eq!(delayed.count(), 100);
    for (number, &order) in orders.iter().enumerate() {
        let told = delayed.outcome_of(order).unwrap().borrow().clone();
        assert_eq!(told, (number % 10 != 0).then(|| Err(refusal.clone())));
    }
    let (again, next) = delayed.take_due(Instant::now() + RETRY);
    assert_eq!(again.len(), 100);
    assert!(next.is_some(), "the outcomes of the others are kept");
    for command in again {
        delayed.note(command.order, Err(refusal.clone()));
    }
    assert_eq!(delayed.count(), 0);

    let (due, next) = delayed.take_due(Instant::now() + KEPT);
    assert_eq!((due.len(), next), (0, None));
    let waits = delayed.waits.lock();
    assert!(waits.by_order.is_empty() && waits.timeline.is_empty());
}
