//! Records about orders that may rest which contradict those before them: replay refuses them and
//! never panics, and whatever it accepts can go on.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use paperbourse::engine::command::{CancelOrders, ExpireOrders, MatchOrders};
use paperbourse::engine::contradiction::Flaw;
use paperbourse::engine::event::{Event, OrderPlaced, RestingFilled};
use paperbourse::engine::order::delayed::DecideDelayed;
use paperbourse::engine::order::order_state::OrderState;
use paperbourse::engine::order::receipt::OrderRow;
use paperbourse::engine::order::terms::{EndReason, OrderKind, TimeInForce};
use paperbourse::engine::{Command, State, Verdict};
use paperbourse::ids::{AccountId, Lsn, OrderId, Timestamp};
use paperbourse::market::MarketSnapshot;
use paperbourse::market::book::Level;
use paperbourse::money::{Price, Shares, Usd};

use crate::contradictions::{History, check_changed, damaged, damages, history, read, replay};
use crate::properties::check_record;
use crate::random_orders::random_world;
use crate::restore::{Rows, check_changed_rows, shard};
use crate::script::world_after;
use crate::world::World;

/// Orders 1 and 3 rest, one of them with a fill; order 2 waits for its book; order 4 is held by a
/// sale; order 5 was killed. The market of order 6 is being settled.
fn world() -> World {
    world_after(
        "
        balance 100
        market M1 Yes No
        market M2 Yes No
        book M1 yes bids 0.4x10 asks 0.5x10
        open A1                                         -> opened A1
        place A1 M1 yes buy limit 20 0.5                -> pending O1 taken 10
        book M1 yes bids 0.4x10 asks 0.5x10 stale
        place A1 M1 yes buy limit 10 0.3 post_only      -> pending O2
        book M1 yes bids 0.4x10 asks 0.6x10
        place A1 M1 yes buy limit 10 0.2 tif=GTD until=60   -> pending O3
        place A1 M1 yes sell limit 10 0.9               -> pending O4
        place A1 M1 yes buy limit 10 0.2 tif=FAK        -> cancelled O5
        place A1 M2 yes buy limit 10 0.2                -> pending O6
        after 1
        book M1 yes bids 0.4x10 asks 0.5x4
        settle M2 1 0                                   -> pays ended O6 RESOLVED
        settle M2 1 0                                   -> settled
        match M1                                        -> admitted O2 fill O1:4:2:0
        ",
    )
}

fn account(counter: u64) -> AccountId {
    AccountId::new(shard(), counter).expect("a small counter")
}

fn order(counter: u64) -> OrderId {
    OrderId::new(shard(), counter).expect("a small counter")
}

#[track_caller]
fn check(change: impl FnOnce(&mut History), expected: &str) {
    check_changed(&world(), change, expected);
}

#[track_caller]
fn check_placed(counter: u64, change: impl FnOnce(&mut OrderPlaced), expected: &str) {
    let change = |history: &mut History| {
        let placed = history.iter_mut().flatten().find_map(|event| match event {
            Event::OrderPlaced(placed) if placed.placement.order == order(counter) => Some(placed),
            _ => None,
        });
        change(placed.expect("the order was placed"));
    };
    check(change, &format!("order {} {expected}", order(counter)));
}

#[track_caller]
fn check_resting(change: impl FnOnce(&mut RestingFilled), expected: &str) {
    let change = |history: &mut History| {
        let filled = history.iter_mut().flatten().find_map(|event| match event {
            Event::RestingFilled(filled) => Some(filled),
            _ => None,
        });
        change(filled.expect("an order filled"));
    };
    check(change, expected);
}

#[track_caller]
fn check_added(event: Event, expected: &str) {
    check(|history| history.push(vec![event]), expected);
}

fn ended(counter: u64, reason: EndReason, seconds: i64) -> Event {
    Event::OrderEnded { order: order(counter), reason, at: Timestamp::from_seconds(seconds) }
}

#[test]
fn an_impossible_placement_is_refused() {
    let terms = "has terms that contradict each other";
    let shares = Shares::from_micros;
    check_placed(1, |it| it.end = Some(EndReason::User), terms);
    check_placed(1, |it| it.end = Some(EndReason::FakNotFilled), terms);
    check_placed(1, |it| it.terms.quantity = shares(9_999_999), terms);
    check_placed(1, |it| it.terms.price = None, terms);
    check_placed(1, |it| it.terms.price = Some(Price::from_micros(1_000_001)), terms);
    check_placed(1, |it| it.terms.price = Some(Price::from_micros(-1)), terms);
    check_placed(1, |it| it.terms.kind = OrderKind::Market, terms);
    check_placed(1, |it| it.terms.awaited_book = true, terms);
    check_placed(1, |it| it.terms.time_in_force = TimeInForce::FillAndKill, terms);
    check_placed(5, |it| it.end = None, terms);
    check_placed(5, |it| it.terms.time_in_force = TimeInForce::GoodTilCancelled, terms);
    check_placed(5, |it| it.terms.post_only = true, terms);
    check_placed(5, |it| it.terms.quantity = Shares::ZERO, terms);
    check_placed(5, |it| it.terms.quantity = shares(-1), terms);
    let unfilled = "changes an account without a fill";
    check_placed(
        5,
        |it| it.fill.notional = Usd::from_micros(1),
        "costs less than nothing or more than a dollar a share",
    );
    check_placed(5, |it| it.fill.fee = Usd::from_micros(1), unfilled);
    check_placed(5, |it| it.fill.balance += Usd::from_micros(1), unfilled);
    check_placed(5, |it| it.fill.position_shares += shares(1), unfilled);
    check_placed(5, |it| it.fill.position_cost += Usd::from_micros(1), unfilled);
    check_placed(1, |it| it.fill.balance += Usd::from_micros(1), "does not conserve money");
    check_placed(1, |it| it.levels.clear(), "is not what it took");
    check_placed(3, |it| it.terms.quantity = shares(i64::MAX), "holds back more than there is");
    check_placed(4, |it| it.terms.quantity = shares(10_000_001), "holds back more than there is");
    check_placed(4, |it| it.terms.quantity = shares(i64::MAX), "holds back more than there is");
}

#[test]
fn an_impossible_fill_of_an_open_order_is_refused() {
    let more = "order 69 fills more than remains, or nothing";
    check_resting(|it| it.order = order(9), "order 581 is not kept");
    check_resting(|it| it.order = order(5), "order 325 is not open");
    check_resting(|it| it.order = order(6), "order 389 is not open");
    check_resting(|it| it.fill.quantity = Shares::ZERO, more);
    check_resting(|it| it.fill.quantity = Shares::from_micros(-1), more);
    check_resting(|it| it.fill.quantity = Shares::from_micros(10_000_001), more);
    let dear = "order 69 costs less than nothing or more than a dollar a share";
    check_resting(|it| it.fill.notional = Usd::from_micros(4_000_001), dear);
    check_resting(|it| it.fill.notional = Usd::from_micros(-1), dear);
    check_resting(|it| it.fill.fee = Usd::from_micros(-1), dear);
    let money = "order 69 does not conserve money";
    check_resting(|it| it.fill.fee = Usd::from_micros(1), money);
    check_resting(|it| it.fill.fee = Usd::from_micros(i64::MAX), money);
    check_resting(|it| it.fill.balance += Usd::from_micros(1), money);
    let shares = "order 69 does not conserve shares";
    check_resting(|it| it.fill.position_shares += Shares::from_micros(1), shares);
    let cost = "order 69 does not conserve cost";
    check_resting(|it| it.fill.position_cost += Usd::from_micros(1), cost);
    let used = "order 69 uses what no level displays";
    check_resting(|it| it.used[0].left = Shares::from_micros(-1), used);
    check_resting(|it| it.used[0].left = Shares::from_micros(4_000_001), used);
    check_resting(|it| it.used[0].price = Price::from_micros(1_000_001), used);
    let spends = |it: &mut RestingFilled| {
        it.fill.fee = it.fill.balance - Usd::from_micros(1);
        it.fill.balance = Usd::from_micros(1);
    };
    check_resting(spends, "order 69 spends what open orders hold back");
    // Order 2 was admitted in the same record, right before.
    check(
        |history| {
            let record = history.last_mut().expect("the match");
            let Event::RestingFilled(filled) = record.last_mut().expect("a fill") else {
                panic!("a fill");
            };
            filled.order = order(2);
            record.remove(0);
        },
        "order 133 fills before it has met a fresh book",
    );
}

#[test]
fn an_order_ends_once_and_for_a_reason_that_it_has() {
    let reason =
        |counter| format!("order {} ends for a reason that it does not have", order(counter));
    check_added(ended(1, EndReason::GtdExpired, 0), &reason(1));
    check_added(ended(3, EndReason::GtdExpired, 1_800_000_059), &reason(3));
    check_added(ended(3, EndReason::PostOnlyWouldCross, 0), &reason(3));
    check_added(ended(2, EndReason::PostOnlyWouldCross, 0), &reason(2));
    check_added(ended(2, EndReason::InsufficientBalance, 0), &reason(2));
    check_added(ended(1, EndReason::Resolved, 0), &reason(1));
    let placed = "order 69 ends in a way that only a new order can";
    check_added(ended(1, EndReason::FakNotFilled, 0), placed);
    check_added(ended(1, EndReason::FokNotFilled, 0), placed);
    check_added(ended(5, EndReason::User, 0), "order 325 is not open");
    check_added(ended(6, EndReason::User, 0), "order 389 is not open");
    check_added(ended(9, EndReason::User, 0), "order 581 is not kept");
    check_added(Event::OrderAdmitted { order: order(1) }, "order 69 does not wait for a book");
    check_added(Event::OrderAdmitted { order: order(5) }, "order 325 is not open");
    check_added(Event::OrderAdmitted { order: order(9) }, "order 581 is not kept");
    let oldest = "order 69 is not the oldest that its account keeps";
    check_added(Event::OrderForgotten { order: order(1) }, oldest);
    let twice = |history: &mut History| {
        let end = ended(1, EndReason::User, 0);
        history.push(vec![end.clone(), end]);
    };
    check(twice, "order 69 is not open");
}

/// What open orders hold back is neither spent nor sold by others, nor paid.
#[test]
fn nobody_takes_what_an_open_order_holds_back() {
    let trade = |script: &str| {
        let world = world_after(&format!(
            "
            balance 100
            market M1 Yes No
            book M1 yes bids 0.4x1000 asks 0.5x1000
            open A1                                     -> opened A1
            buy A1 M1 yes 10                            -> filled
            {script}
            "
        ));
        history(&world.records)
    };
    let buys = trade("buy A1 M1 yes 100 -> filled");
    let sells = trade("sell A1 M1 yes 10 -> filled");
    let settles = trade("settle M1 1 0 -> pays");
    for (order, later, expected) in [
        ("place A1 M1 yes buy limit 200 0.4 -> pending", buys, "spends what open orders hold back"),
        ("place A1 M1 yes sell limit 10 0.9 -> pending", sells, "sells what open orders hold back"),
        (
            "place A1 M1 yes sell limit 10 0.9 -> pending",
            settles,
            "market 0 is paid, and orders in it are open",
        ),
    ] {
        let mut history = trade(order);
        let mut event = later.last().and_then(|record| record.first()).expect("an event").clone();
        if let Event::OrderFilled(filled) = &mut event {
            filled.placement.order = self::order(3);
        }
        history.push(vec![event]);
        let error = replay(&history, shard()).expect_err(expected).to_string();
        assert!(error.ends_with(expected), "{error}, not: {expected}");
    }
}

/// The sum of what orders hold back may exceed every range.
#[test]
fn endless_reserves_are_a_contradiction() {
    let world = world_after(
        "
        balance 100
        market M1 Yes No
        book M1 yes asks 0.5x10 stale
        open A1                                 -> opened A1
        place A1 M1 yes buy limit 10 0.3        -> pending O1
        place A1 M1 yes buy limit 10 0.3        -> pending O2
        ",
    );
    let mut history = history(&world.records);
    let all = i64::MAX;
    for event in history.iter_mut().flatten() {
        match event {
            Event::AccountOpened { granted, .. } => *granted = Usd::from_micros(all),
            Event::OrderPlaced(placed) => {
                placed.terms.price = Some(Price::ONE);
                placed.terms.quantity = Shares::from_micros(all);
                placed.fill.balance = Usd::from_micros(all);
            }
            _ => {}
        }
    }
    let error = replay(&history, shard()).expect_err("too much").to_string();
    assert!(error.ends_with("order 133 holds back more than there is"), "{error}");
}

/// Decides, matches, expires and cancels everything, as a server would that opens the state.
fn go_on(mut state: State, world: &World) {
    let mut steps = 0;
    let delayed: Vec<DecideDelayed> = state
        .delayed_orders()
        .map(|(order, market_id)| DecideDelayed { order, market_id: market_id.clone() })
        .collect();
    for command in delayed {
        let decided = apply(&mut state, &command, world).expect("it is there");
        assert_eq!(state.order(command.order).is_some(), decided.is_ok());
    }
    for listed in ["0x0", "0x1", "0x2"] {
        let mut after = None;
        loop {
            let command = MatchOrders { market_id: listed.into(), book: None, after };
            let Some(matched) = apply(&mut state, &command, world) else { break };
            after = matched.next;
            steps += 1;
            if after.is_none() {
                break;
            }
            assert!(steps < 1_000, "a match that does not end");
        }
    }
    while apply(&mut state, &ExpireOrders, world) == Some(true) {}
    let accounts: Vec<_> = state.accounts().map(|account| account.id).collect();
    for account in accounts {
        let command = CancelOrders { account, market_id: None, token_id: None, after: None };
        while apply(&mut state, &command, world).is_some_and(|cancelled| cancelled.has_more) {}
    }
    assert_eq!(state.open_order_count(), 0);
    for account in state.accounts() {
        assert_eq!(account.ledger.reserved, Usd::ZERO);
    }
    read(&state);
}

/// The answer of a command; `None` if it is refused.
pub(crate) fn apply<C: Command>(
    state: &mut State,
    command: &C,
    world: &World,
) -> Option<C::Answer> {
    let market = command.market_id().and_then(|id| world.markets.by_condition(id));
    let snapshot = market.map(|market| market.snapshot());
    let quote = snapshot.as_ref().map(MarketSnapshot::quote);
    let (subject, is_new) =
        match state.decide(command, quote.as_ref(), world.now, &world.rules).ok()? {
            Verdict::Happens(events, subject) => {
                state.apply(&events, Lsn::START);
                (subject, true)
            }
            Verdict::Already(subject) => (subject, false),
        };
    C::remember(state, &subject);
    Some(C::answer(state, subject, is_new))
}

/// Damages random runs. What replays can go on without a panic; the kinds of errors must be many.
#[test]
fn a_damaged_run_is_a_state_that_goes_on_or_an_error() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    let mut accepted = 0;
    for seed in 0..16 {
        let world = random_world(seed, 80);
        for _ in 0..150 {
            let damage = damages().new_tree(&mut runner).expect("nothing is filtered").current();
            let Some(history) = damaged(&world.records, &damage) else { continue };
            match replay(&history, shard()) {
                Ok(state) => {
                    accepted += 1;
                    go_on(state, &world);
                }
                Err(error) => {
                    reached.insert(match error.flaw {
                        Flaw::Event { kind, flaw, .. } => format!("{kind} {flaw}"),
                        Flaw::Hash { .. } => "another state".to_owned(),
                    });
                }
            }
        }
    }
    println!("{accepted} accepted; {reached:#?}");
    assert!(accepted > 20);
    for flaw in [
        "another state",
        "order changes an account without a fill",
        "order does not conserve money",
        "order is held with what it cannot hold back",
        "order is not held",
        "order is not the order that was held",
        "order has terms that contradict each other",
        "order is not kept",
        "order is not open",
        "order is not the next one of the shard",
    ] {
        assert!(reached.contains(flaw), "no damage led to: {flaw}");
    }
}

/// A level in a damaged record may have any size and price.
#[test]
fn what_was_displayed_may_be_anything() {
    let world = world();
    let mut history = history(&world.records);
    for event in history.iter_mut().flatten() {
        if let Event::RestingFilled(filled) = event {
            filled.displayed =
                Level { price: Price::from_micros(i64::MIN), size: Shares::from_micros(i64::MAX) };
        }
    }
    let state = replay(&history, shard()).expect("nothing depends on it");
    assert!(state == world.state);
}

/// No two byte strings decode to the same record, however the bytes are damaged.
#[test]
fn a_damaged_record_never_decodes_as_another() {
    for seed in 0..4 {
        let world = random_world(seed, 60);
        for bytes in &world.records {
            for at in 0..bytes.len() {
                for value in [0x01, 0x80, 0xff] {
                    let mut damaged = bytes.clone();
                    damaged[at] ^= value;
                    check_record(&damaged);
                }
                check_record(&bytes[..at]);
            }
        }
    }
}

#[track_caller]
fn check_rows(change: impl FnOnce(&mut Rows<'_>), expected: &str) {
    check_changed_rows(&world(), change, expected);
}

/// The first open order has filled in part, and the fourth is a sale.
#[test]
fn inconsistent_open_orders_are_errors() {
    fn order_state(row: &mut OrderRow) -> &mut OrderState {
        row.order_state.as_mut().expect("an open order has an order state")
    }
    let contradicts = "has a life that contradicts itself";
    let shares = Shares::from_micros;
    check_rows(|rows| rows.open[0].placement.order = order(99), "is none that the shard has given");
    check_rows(|rows| rows.open[0].placement.market.0 = 9, "is in no market");
    check_rows(|rows| rows.open[1] = rows.open[0].clone(), "came before");
    check_rows(|rows| drop(rows.open.remove(0)), "the head says");
    check_rows(|rows| rows.open[0].order_state = None, "is finished");
    check_rows(
        |rows| order_state(&mut rows.open[0]).progress.filled = shares(20_000_000),
        "is finished",
    );
    check_rows(
        |rows| order_state(&mut rows.open[0]).progress.filled = shares(20_000_001),
        contradicts,
    );
    check_rows(|rows| order_state(&mut rows.open[0]).progress.filled = shares(-1), contradicts);
    check_rows(
        |rows| order_state(&mut rows.open[0]).progress.filled = shares(9_999_999),
        contradicts,
    );
    check_rows(|rows| order_state(&mut rows.open[0]).progress.fill_count = 0, contradicts);
    check_rows(
        |rows| order_state(&mut rows.open[0]).progress.fee = Usd::from_micros(-1),
        contradicts,
    );
    check_rows(
        |rows| order_state(&mut rows.open[0]).progress.notional = Usd::from_micros(-1),
        contradicts,
    );
    check_rows(|rows| order_state(&mut rows.open[0]).awaits_book = true, contradicts);
    check_rows(|rows| order_state(&mut rows.open[0]).terms.quantity = Shares::ZERO, contradicts);
    check_rows(|rows| order_state(&mut rows.open[0]).terms.price = None, contradicts);
    check_rows(|rows| order_state(&mut rows.open[0]).terms.kind = OrderKind::Market, contradicts);
    check_rows(|rows| order_state(&mut rows.open[1]).progress.fill_count = 1, contradicts);
    let more = "holds back more than there is";
    check_rows(|rows| order_state(&mut rows.open[1]).terms.quantity = shares(i64::MAX), more);
    check_rows(|rows| order_state(&mut rows.open[3]).terms.quantity = shares(i64::MAX), more);
    check_rows(|rows| rows.open[1].placement.market.0 = 1, "is in a market that is paid");
}

#[test]
fn inconsistent_used_levels_are_errors() {
    let shares = Shares::from_micros;
    check_rows(|rows| rows.used[0].account = account(9), "are of no account");
    check_rows(|rows| rows.used[0].on.market.0 = 9, "are on a side where it has no open order");
    check_rows(|rows| rows.used.push(rows.used[0].clone()), "came before");
    check_rows(|rows| rows.used[0].levels.clear(), "are none, or two of a price");
    check_rows(
        |rows| {
            let levels = &mut rows.used[0].levels;
            levels.push(levels[0]);
        },
        "are none, or two of a price",
    );
    check_rows(|rows| rows.used[0].levels[0].left = shares(-1), "are out of range");
    check_rows(|rows| rows.used[0].levels[0].shown = shares(-1), "are out of range");
}
