//! Records and rows about delayed orders which contradict those before them: replay refuses them.

use paperbourse::engine::event::{Event, OrderDelayed, OrderPlaced, RestingFilled};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::engine::order::order_state::{End, OrderState};
use paperbourse::engine::order::receipt::OrderRow;
use paperbourse::engine::order::terms::{EndReason, OrderKind, TimeInForce};
use paperbourse::ids::{AccountId, OrderId, OutcomeIndex, ShardId, Timestamp};
use paperbourse::market::book::{Level, Side};
use paperbourse::money::{Price, Shares, Usd};

use smallvec::SmallVec;

use crate::contradictions::{History, check_changed};
use crate::restore::{Rows, check_changed_rows, shard};
use crate::script::world_after;
use crate::world::World;

/// Order 2 is delayed for a quantity, order 3 for an amount, and order 4 is a delayed sale. Order 5
/// was decided and rests; order 6 was dropped. Order 7 was delayed when its market was resolved.
fn world() -> World {
    world_after(
        "
        balance 100
        market M1 Yes No
        market M2 Yes No
        fees M1 0.04 ^1
        book M1 yes bids 0.4x10 asks 0.5x10
        book M2 yes bids 0.4x10 asks 0.5x10
        open A1                                             -> opened A1
        buy A1 M1 yes 10                                    -> filled
        delay M1 3000
        delay M2 3000
        place A1 M1 yes buy limit 10 0.5 name=a             -> delayed O2 for 10 cash 5.1 shares 0
        place A1 M1 yes buy market $4 tif=FAK               -> delayed O3 for 8 cash 4.08 shares 0
        sell A1 M1 yes 10                                   -> delayed O4 for 10 cash 0 shares 10
        place A1 M1 yes buy limit 10 0.5 name=e             -> delayed O5
        buy A1 M1 yes 10 name=b                             -> delayed O6
        buy A1 M2 yes 10                                    -> delayed O7
        after 3
        book M1 yes bids 0.4x10 asks 0.5x4
        due O5                                              -> pending O5 taken 4 delayed 3000
        due O6                                  -> INSUFFICIENT_LIQUIDITY dropped O6
        settle M2 1 0                                       -> pays ended O7 RESOLVED
        settle M2 1 0                                       -> settled
        ",
    )
}

fn order(counter: u64) -> OrderId {
    OrderId::new(shard(), counter).expect("a small counter")
}

/// An order of another shard with the counter of one of this.
fn stranger(counter: u64) -> OrderId {
    OrderId::new(ShardId::new(6).expect("a shard"), counter).expect("a small counter")
}

#[track_caller]
fn check(change: impl FnOnce(&mut History), expected: &str) {
    check_changed(&world(), change, expected);
}

#[track_caller]
fn check_delayed(counter: u64, change: impl FnOnce(&mut OrderDelayed), expected: &str) {
    let change = |history: &mut History| {
        let delayed = history.iter_mut().flatten().find_map(|event| match event {
            Event::OrderDelayed(delayed) if delayed.placement.order == order(counter) => {
                Some(delayed)
            }
            _ => None,
        });
        change(delayed.expect("the order was delayed"));
    };
    check(change, &format!("order {} {expected}", order(counter)));
}

/// Changes the decision of order 5.
#[track_caller]
fn check_decided(change: impl FnOnce(&mut OrderPlaced), expected: &str) {
    let change = |history: &mut History| {
        let placed = history.iter_mut().flatten().find_map(|event| match event {
            Event::OrderPlaced(placed) => Some(placed),
            _ => None,
        });
        change(placed.expect("the order was decided"));
    };
    check(change, expected);
}

#[track_caller]
fn check_added(event: Event, expected: &str) {
    check(|history| history.push(vec![event]), expected);
}

#[test]
fn an_impossible_delay_is_refused() {
    let delay = "is held with what it cannot hold back";
    let usd = Usd::from_micros;
    let shares = Shares::from_micros;
    check_delayed(2, |it| it.delay.reserve.cash = usd(-1), delay);
    check_delayed(2, |it| it.delay.reserve.cash = usd(4_999_999), delay);
    check_delayed(2, |it| it.delay.reserve.shares = shares(1), delay);
    check_delayed(2, |it| it.delay.amount = Some(usd(5_000_000)), delay);
    check_delayed(2, |it| it.delay.expected_price = Some(Price::from_micros(-1)), delay);
    check_delayed(2, |it| it.delay.expected_price = Some(Price::from_micros(1_000_001)), delay);
    check_delayed(2, |it| it.delay.max_slippage_bps = Some(10_001), delay);
    check_delayed(3, |it| it.delay.amount = Some(usd(0)), delay);
    check_delayed(3, |it| it.delay.amount = Some(usd(-4_000_000)), delay);
    check_delayed(3, |it| it.delay.amount = Some(usd(4_080_001)), delay);
    check_delayed(4, |it| it.delay.reserve.shares = shares(9_999_999), delay);
    check_delayed(4, |it| it.delay.reserve.shares = shares(-1), delay);
    check_delayed(4, |it| it.delay.reserve.cash = usd(1), delay);
    check_delayed(4, |it| it.delay.amount = Some(usd(1)), delay);
    check_delayed(4, |it| it.placement.side = Side::Buy, delay);
    let more = "holds back more than there is";
    check_delayed(2, |it| it.delay.reserve.cash = usd(94_900_001), more);
    check_delayed(2, |it| it.delay.reserve.cash = usd(i64::MAX), more);
    let endless = |it: &mut OrderDelayed| {
        it.terms.quantity = shares(i64::MAX);
        it.delay.reserve.shares = shares(i64::MAX);
    };
    check_delayed(4, endless, more);
    let terms = "has terms that contradict each other";
    check_delayed(2, |it| it.terms.quantity = Shares::ZERO, terms);
    check_delayed(2, |it| it.terms.quantity = shares(i64::MIN), terms);
    check_delayed(2, |it| it.terms.price = None, terms);
    check_delayed(2, |it| it.terms.price = Some(Price::from_micros(1_000_001)), terms);
    check_delayed(2, |it| it.terms.kind = OrderKind::Market, terms);
    check_delayed(2, |it| it.terms.post_only = true, terms);
    check_delayed(2, |it| it.terms.awaited_book = true, terms);
    check_delayed(2, |it| it.terms.delayed_ms = 1, terms);
    check_delayed(2, |it| it.placement.market.0 = 9, "is in no market");
    check_delayed(2, |it| it.placement.outcome = OutcomeIndex(2), "is in no market");
    let nobody = AccountId::new(shard(), 9).expect("a small counter");
    check_delayed(2, |it| it.placement.account = nobody, "is of no account");
    check_delayed(
        3,
        |it| it.placement.names = [NameHash::of_order("a")].into_iter().collect(),
        "has a name that is used",
    );
    let next = "order 581 is not the next one of the shard";
    check(|history| move_to(history, order(9)), next);
    check(|history| move_to(history, stranger(2)), "order 134 is not the next one of the shard");
    // Its market is resolved.
    let late = |history: &mut History| {
        let delayed = history.iter().flatten().rev();
        let mut delayed: OrderDelayed = delayed
            .into_iter()
            .find_map(|event| match event {
                Event::OrderDelayed(delayed) => Some((**delayed).clone()),
                _ => None,
            })
            .expect("an order was delayed");
        delayed.placement.order = order(8);
        history.push(vec![Event::OrderDelayed(Box::new(delayed))]);
    };
    check(late, "order 517 is in a settled market");
}

/// Gives the first delayed order this id.
fn move_to(history: &mut History, id: OrderId) {
    let delayed = history.iter_mut().flatten().find_map(|event| match event {
        Event::OrderDelayed(delayed) => Some(delayed),
        _ => None,
    });
    delayed.expect("an order was delayed").placement.order = id;
}

#[test]
fn a_delayed_order_is_decided_as_it_was_sent() {
    let other = "order 325 is not the order that was held";
    check_decided(|it| it.placement.side = Side::Sell, other);
    check_decided(|it| it.placement.outcome = OutcomeIndex(1), other);
    check_decided(|it| it.placement.client_order_id = Some("b".into()), other);
    check_decided(|it| it.placement.names.clear(), other);
    check_decided(|it| it.terms.quantity = Shares::from_micros(10_000_001), other);
    check_decided(|it| it.terms.price = Some(Price::from_micros(510_000)), other);
    check_decided(|it| it.terms.time_in_force = TimeInForce::GoodTilDate(Timestamp::EPOCH), other);
    check_decided(|it| it.terms.post_only = true, other);
    check_decided(|it| it.terms.delayed_ms = 0, other);
    check_decided(|it| it.placement.order = order(6), "order 389 is not the order that was held");
    let not_delayed = "is not the next one of the shard";
    check_decided(|it| it.placement.order = order(1), not_delayed);
    check_decided(|it| it.placement.order = stranger(5), "order 326 is not held");
    // What it no longer holds back may be spent, but no more.
    check_decided(|it| it.fill.fee += Usd::from_micros(1), "order 325 does not conserve money");
    // A new order was not delayed.
    let invented = |history: &mut History| {
        history.retain(|record| {
            !record.iter().any(|event| {
                matches!(event, Event::OrderDelayed(delayed)
                if delayed.placement.order == order(5))
            })
        });
    };
    check(invented, "order 389 is not the next one of the shard");
    let again = |history: &mut History| {
        let placed = history.iter().flatten().find(|event| matches!(event, Event::OrderPlaced(_)));
        let Some(Event::OrderPlaced(placed)) = placed else { panic!("the order was decided") };
        let mut placed = placed.clone();
        placed.placement.order = order(8);
        placed.placement.names.clear();
        history.push(vec![Event::OrderPlaced(placed)]);
    };
    check(again, "order 517 was never held");
}

#[test]
fn a_delayed_order_ends_only_by_its_decision_or_with_its_market() {
    let ended = |counter, reason| Event::OrderEnded {
        order: order(counter),
        reason,
        at: Timestamp::from_seconds(1_900_000_000),
    };
    for reason in EndReason::ALL {
        let expected = match reason {
            EndReason::Reset | EndReason::Suspended => continue,
            EndReason::FokNotFilled | EndReason::FakNotFilled => {
                "ends in a way that only a new order can"
            }
            _ => "ends for a reason that it does not have",
        };
        check_added(ended(2, reason), &format!("order 133 {expected}"));
    }
    check_added(ended(6, EndReason::User), "order 389 is not kept");
    check_added(Event::OrderAdmitted { order: order(2) }, "order 133 is held");
    check_added(
        Event::OrderForgotten { order: order(2) },
        "order 133 is not the oldest that its account keeps",
    );
    let dropped = |order| Event::DelayedOrderDropped { order };
    check_added(dropped(order(1)), "order 69 is not held");
    check_added(dropped(order(5)), "order 325 is not held");
    check_added(dropped(order(6)), "order 389 is not held");
    check_added(dropped(order(7)), "order 453 is not held");
    check_added(dropped(order(9)), "order 581 is not held");
    check_added(dropped(stranger(2)), "order 134 is not held");
    let twice = |history: &mut History| {
        history.push(vec![dropped(order(2)), dropped(order(2))]);
    };
    check(twice, "order 133 is not held");
    check(
        |history| {
            // The fill of order 1 as one of order 2.
            let fill = history.iter().flatten().find_map(|event| match event {
                Event::OrderFilled(filled) => Some(filled.fill),
                _ => None,
            });
            let filled = RestingFilled {
                order: order(2),
                fill: fill.expect("an order filled"),
                displayed: Level {
                    price: Price::from_micros(500_000),
                    size: Shares::from_micros(1),
                },
                book_sequence: 1,
                used: SmallVec::new(),
            };
            history.push(vec![Event::RestingFilled(Box::new(filled))]);
        },
        "order 133 is held",
    );
}

#[track_caller]
fn check_rows(change: impl FnOnce(&mut Rows<'_>), expected: &str) {
    check_changed_rows(&world(), change, expected);
}

/// The open rows are orders 2 to 5: three delayed ones, and one that rests.
#[test]
fn inconsistent_rows_of_delayed_orders_are_errors() {
    fn order_state(row: &mut OrderRow) -> &mut OrderState {
        row.order_state.as_mut().expect("an open order has an order state")
    }
    let how = "does not say how it is held";
    check_rows(|rows| rows.open[0].delay = None, how);
    check_rows(|rows| rows.open[3].delay = rows.open[0].delay, how);
    check_rows(|rows| order_state(&mut rows.open[0]).is_delayed = false, how);
    let delay = "is held with what it cannot hold back";
    let reserve = |rows: &mut Rows<'_>, at: usize, cash: i64, shares: i64| {
        let delay = rows.open[at].delay.as_mut().expect("a delayed order");
        delay.reserve.cash = Usd::from_micros(cash);
        delay.reserve.shares = Shares::from_micros(shares);
    };
    check_rows(|rows| reserve(rows, 0, -1, 0), delay);
    check_rows(|rows| reserve(rows, 0, 4_999_999, 0), delay);
    check_rows(|rows| reserve(rows, 2, 0, 9_999_999), delay);
    check_rows(|rows| reserve(rows, 2, 0, 10_000_001), delay);
    check_rows(|rows| reserve(rows, 0, 94_000_000, 0), "holds back more than there is");
    // What the rows alone do not tell, the hash does.
    check_rows(|rows| reserve(rows, 0, 5_100_001, 0), "the head says");
    let due = |rows: &mut Rows<'_>| {
        let delay = rows.open[0].delay.as_mut().expect("a delayed order");
        delay.due = Timestamp::EPOCH;
    };
    check_rows(due, "the head says");
    let contradicts = "has a life that contradicts itself";
    check_rows(|rows| order_state(&mut rows.open[0]).awaits_book = true, contradicts);
    check_rows(|rows| order_state(&mut rows.open[0]).terms.delayed_ms = 1, contradicts);
    check_rows(|rows| order_state(&mut rows.open[0]).progress.fill_count = 1, contradicts);
    check_rows(|rows| rows.open[0].placement.market.0 = 1, "is in a market that is paid");
    // Order 7 ended while it was delayed, as only few reasons can end it.
    let end = |rows: &mut Rows<'_>, reason| {
        let ended = rows.finished_mut().find(|row| row.placement.order == order(7));
        let ended = ended.expect("it is finished");
        assert!(order_state(ended).is_delayed);
        order_state(ended).end = Some(End { reason, at: Timestamp::EPOCH });
    };
    check_rows(|rows| end(rows, EndReason::User), contradicts);
    check_rows(|rows| end(rows, EndReason::GtdExpired), contradicts);
    check_rows(|rows| end(rows, EndReason::FakNotFilled), contradicts);
    check_rows(|rows| end(rows, EndReason::Reset), "the head says");
}
