//! Resetting an account.

use paperbourse::engine::account::Account;
use paperbourse::engine::account::ledger::Resets;
use paperbourse::engine::account::position::Position;
use paperbourse::engine::admin::reset::{ORDERS_PER_RECORD_MAX, ResetAccount};
use paperbourse::engine::event::{AccountReset, Event};
use paperbourse::engine::{Command as _, Verdict};
use paperbourse::ids::{AccountId, OrderId, Timestamp};
use paperbourse::money::{Shares, Usd};

use crate::contradictions::{History, check_changed};
use crate::restore::{Rows, check_changed_rows, shard};
use crate::script::{check, world_after};
use crate::world::World;

const VENUE: &str = "
    balance 100
    market M1 Yes No
    market M2 Yes No
    book M1 yes bids 0.4x10 asks 0.5x20
    book M2 yes bids 0.4x10 asks 0.5x20
    open A1                                             -> opened A1
    open A2                                             -> opened A2
";

#[track_caller]
fn check_reset(script: &str) {
    check(&format!("{VENUE}{script}"));
}

#[test]
fn a_reset_ends_orders_closes_positions_and_restores_the_balance() {
    check_reset(
        "
        buy A1 M1 yes 10                        -> filled 10 cash 95
        buy A2 M1 yes 2                         -> filled 2 cash 99
        buy A1 M2 yes 4                         -> filled 4 cash 93
        sell A1 M2 yes 4                        -> filled 4 cash 94.6 position 0
        place A1 M1 yes buy limit 10 0.3        -> pending O5
        place A1 M1 yes sell limit 6 0.9        -> pending O6
        place A2 M1 yes buy limit 10 0.3        -> pending O7
        show A1 M1 yes                          -> has available 91.6 held 10 free 4
        reset A1   -> ended O5 RESET ended O6 RESET reset A1 closed 1 cost 5 granted 5.4 balance 100
        show A1 M1 yes              -> has cash 100 reserved 0 available 100 held 0 free 0 open
        show A2 M1 yes              -> has cash 99 reserved 3 held 2 open O7:10
        # Again there is nothing to do.
        reset A1                                -> already
        # What was held is gone.
        sell A1 M1 yes 1                        -> INSUFFICIENT_POSITION held 0
        # What is bought from now on is a position at its own cost.
        buy A1 M1 yes 2                         -> filled 2 cash 99 position 2 @0.5
        settle M1 1 0                           -> pays ended O7 RESOLVED
        settle M1 1 0                           -> pays A1:0:2:2:101 A2:0:2:2:101 settled
        reset A1                                -> reset A1 closed 0 cost 0 granted -1 balance 100
        show A1 M1 yes                          -> has cash 100 held 0
        ",
    );
}

#[test]
fn a_reset_ends_delayed_orders() {
    check_reset(
        "
        buy A1 M1 yes 4                         -> filled 4 cash 98
        delay M1 3000
        buy A1 M1 yes 4 name=a                  -> delayed O2 for 4 cash 2
        sell A1 M1 yes 3                        -> delayed O3
        reset A1   -> ended O2 RESET ended O3 RESET reset A1 closed 1 cost 2 granted 2 balance 100
        show A1 M1 yes                          -> has cash 100 reserved 0 held 0 free 0 open
        # Their wait is over later, and there is nothing to decide.
        after 3
        due O2                                  -> already
        due O3                                  -> already
        buy A1 M1 yes 4 name=a                  -> replay of O2
        ",
    );
}

#[test]
fn a_reset_takes_a_new_starting_balance() {
    check_reset(
        "
        balance 250
        reset A1                                -> reset A1 closed 0 granted 150 balance 250
        reset A1                                -> already
        balance 30
        reset A1                                -> reset A1 closed 0 granted -220 balance 30
        reset A9                                -> ACCOUNT_NOT_FOUND
        open A3                                 -> opened A3
        reset A3                                -> already
        ",
    );
}

/// The numbers of fills go on, and a position that a reset closed does not count as sold.
#[test]
fn a_reset_forgets_no_fill() {
    let world = world_after(&format!(
        "{VENUE}
        buy A1 M1 yes 4                         -> filled
        buy A1 M2 yes 4                         -> filled
        sell A1 M2 yes 4                        -> filled
        place A1 M1 yes buy limit 10 0.3        -> pending
        reset A1                                -> ended
        buy A1 M2 yes 5                         -> filled
        "
    ));
    let account = world.state.account(account(1)).unwrap();
    let page = world.state.observe_fills(account.id(), 0, 100).value.unwrap();
    assert_eq!((page.oldest, page.newest), (1, 4));
    let closed = account.positions().iter().map(|it| (it.is_open(), it.closed_by_reset));
    assert_eq!(closed.collect::<Vec<_>>(), [(false, true), (true, false)]);
    let balance = Usd::from_micros(100_000_000);
    let at = world.now;
    assert_eq!(account.resets(), Some(Resets { count: 1, balance, at }));
    let ledger = account.ledger();
    let sums = ledger.granted + ledger.sales + ledger.payouts - ledger.purchases - ledger.fees;
    assert_eq!(sums, ledger.cash());
    // Two purchases for 2, a sale for 1.6, and the reset gave back what was missing.
    assert_eq!(ledger.granted, Usd::from_micros(102_400_000));
}

/// Each finished order counts as a fill unless the account logs its fills.
#[test]
fn an_order_that_ends_while_it_is_delayed_is_no_fill() {
    let mut world = world_after(&format!(
        "{VENUE}
        buy A1 M1 yes 4                         -> filled
        delay M2 3000
        buy A1 M2 yes 4                         -> delayed O2
        reset A1                                -> ended O2 RESET
        buy A1 M1 yes 2                         -> filled
        "
    ));
    for _ in 0..2 {
        let page = world.state.observe_fills(account(1), 0, 100).value.unwrap();
        let fills = page.rows.iter().map(|it| (it.number, it.order.counter()));
        assert_eq!(fills.collect::<Vec<_>>(), [(1, 1), (2, 3)]);
        world.restart();
    }
}

/// An account with more open orders than one record ends is reset by the last of several.
#[test]
fn very_many_orders_end_in_several_records() {
    let mut script = format!("{VENUE}\nrules open 5000\n");
    let count = ORDERS_PER_RECORD_MAX + 1;
    for _ in 0..count {
        script += "place A1 M1 yes buy limit 5 0.01 -> pending\n";
    }
    let mut world = world_after(&script);
    let open = |world: &World| world.state.account(account(1)).map(Account::open_order_count);
    for (ended, left) in [(ORDERS_PER_RECORD_MAX, 1), (1, 0)] {
        let Ok(Verdict::Happens(events, reset)) = world.run(&ResetAccount(account(1))) else {
            panic!("the account has open orders");
        };
        assert_eq!(reset.order_count, ended);
        assert_eq!(reset.balance.is_some(), left == 0);
        assert_eq!(matches!(events.last(), Some(Event::AccountReset(_))), left == 0);
        assert_eq!(open(&world), Some(left));
    }
    let verdict = world.run(&ResetAccount(account(1)));
    let Ok(Verdict::Already(reset)) = verdict else { panic!("{verdict:?}") };
    let reset = ResetAccount::answer(&world.state, reset, false);
    assert_eq!((reset.order_count, reset.position_count), (0, 0));
}

fn account(counter: u64) -> AccountId {
    AccountId::new(shard(), counter).expect("a small counter")
}

/// An account with two positions and an open order is reset.
fn world() -> World {
    world_after(&format!(
        "{VENUE}
        buy A1 M1 yes 4                         -> filled
        buy A1 M2 yes 2                         -> filled
        place A1 M1 yes buy limit 10 0.3        -> pending O3
        reset A1                                -> ended
        "
    ))
}

#[track_caller]
fn check_damaged(change: impl FnOnce(&mut AccountReset), expected: &str) {
    let change = |history: &mut History| {
        let reset = history.iter_mut().flatten().find_map(|event| match event {
            Event::AccountReset(reset) => Some(reset),
            _ => None,
        });
        change(reset.expect("the account was reset"));
    };
    check_changed(&world(), change, expected);
}

#[test]
fn an_impossible_reset_is_refused() {
    let positions = "is reset with other positions than it has";
    let money = "is reset without conserving money";
    check_damaged(|it| it.position_count = 1, positions);
    check_damaged(|it| it.cost += Usd::from_micros(1), positions);
    check_damaged(|it| it.granted += Usd::from_micros(1), money);
    check_damaged(|it| it.granted = Usd::from_micros(i64::MAX), "has sums out of range");
    check_damaged(|it| it.balance += Usd::from_micros(1), money);
    let debt = |it: &mut AccountReset| {
        it.granted -= it.balance + Usd::from_micros(1);
        it.balance = Usd::from_micros(-1);
    };
    check_damaged(debt, "is reset to a debt");
    check_damaged(|it| it.account = account(2), money);
    check_damaged(|it| it.account = account(9), "account 581 is not kept");
    let open = OrderId::new(shard(), 3).expect("a small counter");
    let keeps_open = |history: &mut History| {
        for events in history.iter_mut() {
            events.retain(
                |event| !matches!(event, Event::OrderEnded { order, .. } if *order == open),
            );
        }
    };
    check_changed(&world(), keeps_open, "is reset while orders are open");
}

#[test]
fn rows_of_impossible_resets_are_errors() {
    let flaw = "has a position closed by a reset that was not";
    check_changed_rows(&world(), |rows| rows.accounts[0].resets = None, flaw);
    let balance = Usd::ZERO;
    let at = Timestamp::from_seconds(1_800_000_000);
    let never = Some(Resets { count: 0, balance, at });
    check_changed_rows(&world(), |rows| rows.accounts[0].resets = never, "has resets out of range");
    let debt = Some(Resets { count: 1, balance: Usd::from_micros(-1), at });
    check_changed_rows(&world(), |rows| rows.accounts[0].resets = debt, "has resets out of range");
    let balance = Usd::from_micros(100_000_000);
    let again = Some(Resets { count: 2, balance, at });
    check_changed_rows(&world(), |rows| rows.accounts[0].resets = again, "the head says");
    let later = Some(Resets { count: 1, balance, at: at.after_ms(1) });
    check_changed_rows(&world(), |rows| rows.accounts[0].resets = later, "the head says");
    check_changed_positions(|position| position.shares = Shares::from_micros(1), flaw);
    check_changed_positions(|position| position.closed_by_reset = false, "the head says");
}

/// Changes the row of the first position, which the reset closed.
#[track_caller]
fn check_changed_positions(change: impl FnOnce(&mut Position), expected: &str) {
    let change = |rows: &mut Rows<'_>| {
        let mut positions = rows.accounts[0].positions.to_vec();
        change(&mut positions[0]);
        rows.accounts[0].positions = positions.leak();
    };
    check_changed_rows(&world(), change, expected);
}
