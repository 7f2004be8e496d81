//! Undoing a fill.

use paperbourse::engine::account::Account;
use paperbourse::engine::admin::reset::ResetAccount;
use paperbourse::engine::event::{Event, FillUndone};
use paperbourse::engine::fills::undo::UndoFill;
use paperbourse::engine::fills::undone::{UndoFlaw, UndoneRow};
use paperbourse::engine::rejection::Rejection;
use paperbourse::ids::{AccountId, OrderId, Timestamp};
use paperbourse::money::{Shares, Usd};

use crate::contradictions::{History, check_changed};
use crate::restore::{check_changed_rows, shard};
use crate::script::{check, world_after};
use crate::world::World;

const VENUE: &str = "
    balance 100
    market M1 Yes No
    market M2 Yes No
    book M1 yes bids 0.4x100 asks 0.5x100
    book M2 yes bids 0.4x100 asks 0.5x100
    open A1                                             -> opened A1
    open A2                                             -> opened A2
";

#[track_caller]
fn check_undo(script: &str) {
    check(&format!("{VENUE}{script}"));
}

#[test]
fn an_undone_purchase_gives_its_money_back_and_takes_its_shares() {
    check_undo(
        "
        fees M1 0.07 ^1
        buy A1 M1 yes 10        -> filled 10 notional 5 fee 0.175 cash 94.825 position 10
        undo A1 O1 1            -> undone O1 1 cash 100 position 0 cost 0 realised 0
        show A1 M1 yes          -> has cash 100 reserved 0 available 100 held 0 free 0 open
        sell A1 M1 yes 1        -> INSUFFICIENT_POSITION held 0
        undo A1 O1 1            -> UNDO_BEFORE
        # Another purchase is a fill of its own.
        buy A1 M1 yes 2         -> filled 2 cash 98.965 position 2 @0.5
        undo A1 O2 1            -> undone O2 1 cash 100 position 0 cost 0 realised 0
        ",
    );
}

#[test]
fn an_undone_sale_takes_its_proceeds_and_gives_the_shares_back_at_their_cost() {
    check_undo(
        "
        buy A1 M1 yes 10        -> filled cash 95
        fees M1 0.07 ^1
        sell A1 M1 yes 4        -> filled 4 notional 1.6 fee 0.0672 cash 96.5328 position 6 @0.5
        sell A1 M1 yes 6        -> filled 6 notional 2.4 fee 0.1008 cash 98.832 position 0
        undo A1 O2 1            -> undone O2 1 cash 97.2992 position 4 cost 2 realised -0.6
        undo A1 O3 1            -> undone O3 1 cash 95 position 10 cost 5 realised 0
        sell A1 M1 yes 10       -> filled 10 position 0
        ",
    );
}

#[test]
fn later_sales_cost_what_they_would_have_without_the_undone_purchase() {
    check_undo(
        "
        buy A1 M1 yes 10        -> filled cash 95 position 10 @0.5
        book M1 yes bids 0.2x100 asks 0.3x100
        buy A1 M1 yes 10        -> filled cash 92 position 20 @0.4
        sell A1 M1 yes 5        -> filled cash 93 position 15 @0.4
        undo A1 O2 1            -> undone O2 1 cash 96 position 5 cost 2.5 realised -1.5
        # The records of the later fills still count the undone one.
        undo A1 O3 1            -> undone O3 1 cash 95 position 10 cost 5 realised 0
        buy A1 M1 yes 1         -> filled cash 94.7 position 11
        undo A1 O1 1            -> undone O1 1 cash 99.7 position 1 cost 0.3 realised 0
        ",
    );
}

#[test]
fn what_was_sold_or_spent_or_is_reserved_stays() {
    check_undo(
        "
        buy A1 M1 yes 10                        -> filled cash 95
        sell A1 M1 yes 6                        -> filled cash 97.4 position 4
        undo A1 O1 1                            -> UNDO_SHARES_GONE
        # Shares that were bought again are others.
        buy A1 M1 yes 6                         -> filled cash 94.4 position 10
        undo A1 O1 1                            -> UNDO_SHARES_GONE
        place A1 M1 yes sell limit 6 0.9        -> pending O4
        undo A1 O3 1                            -> UNDO_SHARES_GONE
        cancel A1 O4                            -> ended O4 USER
        place A1 M2 yes buy limit 230 0.4       -> pending O5
        undo A1 O2 1                            -> undone O2 1 cash 92 position 16
        undo A1 O3 1                            -> undone O3 1 cash 95 position 10
        sell A1 M1 yes 10                       -> filled cash 99 position 0
        place A1 M2 yes buy limit 10 0.39       -> pending O7
        undo A1 O6 1                            -> UNDO_CASH_GONE
        show A1 M1 yes                          -> has cash 99 reserved 95.9 held 0
        ",
    );
}

#[test]
fn only_a_fill_of_the_account_that_is_not_over_is_undone() {
    check_undo(
        "
        buy A1 M1 yes 10                        -> filled cash 95
        undo A1 O1 0                            -> UNDO_NOT_KEPT
        undo A1 O1 2                            -> UNDO_NOT_KEPT
        undo A1 O9 1                            -> UNDO_NOT_KEPT
        undo A2 O1 1                            -> UNDO_NOT_KEPT
        undo A9 O1 1                            -> ACCOUNT_NOT_FOUND
        settle M1 1 0                           -> pays A1:0:10:10:105 settled
        undo A1 O1 1                            -> UNDO_RESOLVED
        buy A1 M2 yes 10                        -> filled cash 100
        buy A2 M2 yes 10                        -> filled cash 95
        after 1
        reset A1                                -> reset A1 closed 1
        undo A1 O2 1                            -> UNDO_RESET
        after 1
        buy A1 M2 yes 3                         -> filled cash 98.5 position 3
        undo A1 O4 1                            -> undone O4 1 cash 100 position 0
        # Like settlements, this does not ask operators.
        suspend A2                              -> suspend A2
        undo A2 O3 1                            -> undone O3 1 cash 100 position 0
        ",
    );
}

/// A sale's record says what is left, not what was there, so that takes the purchase before it.
#[test]
fn a_sale_of_unknown_cost_stays() {
    check_undo(
        "
        rules orders 2
        buy A1 M1 yes 10                        -> filled cash 95
        buy A1 M2 yes 4                         -> filled cash 93
        sell A1 M1 yes 4                        -> filled cash 94.6 position 6
        undo A1 O1 1                            -> UNDO_NOT_KEPT
        undo A1 O3 1                            -> UNDO_COST_UNKNOWN
        undo A1 O2 1                            -> undone O2 1 cash 96.6 position 0
        buy A1 M1 yes 2                         -> filled cash 95.6 position 8
        undo A1 O4 1                            -> undone O4 1 cash 96.6 position 6 cost 3
        ",
    );
}

#[test]
fn parts_of_an_order_are_undone_one_by_one() {
    check_undo(
        "
        book M1 yes bids 0.4x100 asks 0.5x10
        place A1 M1 yes buy limit 15 0.5        -> pending O1 taken 10 cash 95
        book M1 yes bids 0.4x100 asks 0.45x100
        match M1                                -> fill O1:5:2.5:0
        undo A1 O1 1                            -> undone O1 1 cash 97.5 position 5 cost 2.5
        undo A1 O1 1                            -> UNDO_BEFORE
        undo A1 O1 2                            -> undone O1 2 cash 100 position 0 cost 0
        ",
    );
}

fn account(counter: u64) -> AccountId {
    AccountId::new(shard(), counter).expect("a small counter")
}

fn order(counter: u64) -> OrderId {
    OrderId::new(shard(), counter).expect("a small counter")
}

/// An account has bought three times and sold once. Its second purchase and then its sale were
/// undone.
fn world() -> World {
    world_after(&format!(
        "{VENUE}
        buy A1 M1 yes 4                         -> filled
        buy A1 M1 yes 2                         -> filled
        after 1
        undo A1 O2 1                            -> undone
        sell A1 M1 yes 1                        -> filled
        buy A1 M2 yes 1                         -> filled
        after 1
        undo A1 O3 1                            -> undone
        "
    ))
}

#[test]
fn readers_see_what_was_undone_and_do_not_count_it() {
    let world = world();
    let state = &world.state;
    let at = world.now;
    let page = state.observe_fills(account(1), 0, 9).value.expect("an account");
    let undone: Vec<_> = page.rows.iter().map(|row| row.undone_at).collect();
    assert_eq!(
        undone,
        [None, Some(Timestamp::from_nanos(at.nanos() - 1_000_000_000)), Some(at), None]
    );
    assert_eq!(state.fill_undone_at(account(1), order(3), 1), Some(at));
    assert_eq!(state.fill_undone_at(account(1), order(3), 2), None);
    assert_eq!(state.fill_undone_at(account(1), order(1), 1), None);
    assert_eq!(state.fill_undone_at(account(2), order(3), 1), None);
    let turnover = state.observe_turnover(account(1), u64::MAX).value.expect("an account");
    let shares = |count: i64| Shares::from_micros(count * 1_000_000);
    let sums: Vec<_> =
        turnover.rows.iter().map(|row| (row.fill_count, row.bought, row.sold)).collect();
    assert_eq!(sums, [(1, shares(4), shares(0)), (1, shares(1), shares(0))]);
    let row = state.account(account(1)).expect("an account");
    let ledger = row.ledger();
    assert_eq!((ledger.purchases, ledger.sales), (Usd::from_micros(2_500_000), Usd::ZERO));
    assert_eq!(row.fill_count_ever(), 4);
}

/// A reset keeps the history, and what it says of a fill.
#[test]
fn a_reset_forgets_no_undone_fill_and_an_erasure_does() {
    let mut world = world();
    world.run(&ResetAccount(account(1))).expect("an account");
    assert_eq!(world.state.undone_fills().count(), 2);
    let script = format!(
        "{VENUE}
        buy A1 M1 yes 4                         -> filled
        undo A1 O1 1                            -> undone
        suspend A1                              -> suspend
        erase A1                                -> erase
        "
    );
    let mut world = world_after(&script);
    assert_eq!(world.state.undone_fills().count(), 0);
    assert!(world.state.account(account(1)).is_some_and(Account::is_erased));
    let again = UndoFill { account: account(1), order: order(1), part: 1 };
    let refused = world.run(&again).expect_err("nothing is kept of an erased account");
    assert_eq!(refused, Rejection::FillNotUndone(UndoFlaw::NotKept));
}

/// Changes the last undone fill in the records.
#[track_caller]
fn check_damaged(change: impl FnOnce(&mut FillUndone), expected: &str) {
    let change = |history: &mut History| {
        let undone = history.iter_mut().flatten().rev().find_map(|event| match event {
            Event::FillUndone(undone) => Some(undone),
            _ => None,
        });
        change(undone.expect("a fill was undone"));
    };
    check_changed(&world(), change, expected);
}

#[test]
fn an_impossible_undoing_is_refused() {
    let absent = "account 69 has no such fill to undo";
    check_damaged(|it| it.order = order(4), absent);
    check_damaged(|it| it.part = 2, absent);
    check_damaged(|it| it.number = 4, absent);
    for number in [0, 5, u64::MAX] {
        check_damaged(|it| it.number = number, absent);
    }
    check_damaged(|it| it.account = account(2), "account 133 has no such fill to undo");
    check_damaged(|it| it.account = account(9), "account 581 was never opened");
    let twice = |it: &mut FillUndone| (it.number, it.order) = (2, order(2));
    check_damaged(twice, "account 69 has a fill undone that cannot be");
    let micro = Usd::from_micros(1);
    let money = "account 69 has a fill undone without conserving money";
    check_damaged(|it| it.balance += micro, money);
    let position = "account 69 has a fill undone that leaves it another position";
    check_damaged(|it| it.position_shares += Shares::from_micros(1), position);
    check_damaged(|it| it.position_cost += micro, position);
    check_damaged(|it| it.realised += micro, position);
}

#[test]
fn impossible_rows_of_undone_fills_are_errors() {
    let check = |change: &dyn Fn(&mut Vec<UndoneRow>), expected: &str| {
        check_changed_rows(&world(), |rows| change(&mut rows.undone), expected);
    };
    let stranger = "undone fill of account 69 is none that the account has had";
    check(&|rows| rows[0].number = 0, stranger);
    check(&|rows| rows[0].number = 3, stranger);
    check(&|rows| rows[0].fill.newest = 5, stranger);
    check(&|rows| rows[0].account = account(9), "is of no account");
    check(&|rows| rows[0].fill.outcome.0 = 1, "is of no position");
    check(&|rows| rows.swap(0, 1), "comes behind a newer one");
    check(&|rows| rows.push(rows[1]), "comes behind a newer one");
    check(&|rows| rows[0].fill.part = 2, "the head says");
    check(&|rows| rows[0].fill.at = rows[1].fill.at, "the head says");
    check(&|rows| rows[1].fill.newest = 3, "the head says");
    check(&|rows| rows.truncate(1), "the head says");
}
