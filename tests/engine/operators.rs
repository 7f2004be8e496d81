//! What operators do to accounts.

use paperbourse::engine::account::Account;
use paperbourse::engine::acts::OperatorCommand;
use paperbourse::engine::command::{Beat, CancelOrders};
use paperbourse::engine::event::{Event, OperatorActed};
use paperbourse::engine::rejection::Rejection;
use paperbourse::engine::reset::ORDERS_PER_RECORD_MAX;
use paperbourse::engine::standing::{
    Act, Operator, REASON_BYTES_MAX, Standing, Suspension, USER_BYTES_MAX,
};
use paperbourse::engine::{Command as _, Verdict};
use paperbourse::ids::AccountId;

use crate::contradictions::{History, check_changed};
use crate::restore::check_changed_rows;
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

fn operator() -> Operator {
    Operator { uid: 1000, user: Some("deploy".into()) }
}

/// What an operator asks for, by the name of the act.
pub(crate) fn command(account: AccountId, act: &str) -> OperatorCommand {
    let act = match act {
        "suspend" => Act::Suspend,
        "resume" => Act::Resume,
        other => panic!("no operator does {other}"),
    };
    OperatorCommand { account, act, by: operator(), reason: "a test".into() }
}

#[track_caller]
fn check_acts(script: &str) {
    check(&format!("{VENUE}{script}"));
}

#[test]
fn a_suspended_account_loses_its_open_orders_and_every_write() {
    check_acts(
        "
        buy A1 M1 yes 8 name=a                  -> filled 8 cash 96
        key A1 K1                               -> created K1
        place A1 M1 yes buy limit 10 0.3        -> pending O2
        place A1 M1 yes sell limit 6 0.9        -> pending O3
        place A2 M1 yes buy limit 10 0.3        -> pending O4
        delay M2 3000
        buy A1 M2 yes 4                         -> held O5 for 4 cash 2
        comment A1 O4 words                     -> commented C1
        suspend A1 -> suspend A1 ended O2 SUSPENDED O3 SUSPENDED O5 SUSPENDED
        show A1 M1 yes                          -> has cash 96 reserved 0 held 8 free 8 open
        show A2 M1 yes                          -> has reserved 3 open O4:10
        suspend A1                              -> already

        buy A1 M1 yes 1                         -> ACCOUNT_SUSPENDED
        buy token:A1 M1 yes 1                   -> ACCOUNT_SUSPENDED
        # A repeat too: the order can be read.
        buy A1 M1 yes 8 name=a                  -> ACCOUNT_SUSPENDED
        place A1 M1 yes sell limit 6 0.9        -> ACCOUNT_SUSPENDED
        cancel A1 O2                            -> ACCOUNT_SUSPENDED
        cancel-all A1                           -> ACCOUNT_SUSPENDED
        reset A1                                -> ACCOUNT_SUSPENDED
        key A1 K2                               -> ACCOUNT_SUSPENDED
        key token:A1 K2 bootstrap               -> ACCOUNT_SUSPENDED
        rename A1 K1 Desk                       -> ACCOUNT_SUSPENDED
        rotate A1 K1 K2                         -> ACCOUNT_SUSPENDED
        revoke A1 K1                            -> ACCOUNT_SUSPENDED
        # The wait of the held order is over later, and there is nothing to decide.
        after 3
        due O5                                  -> already
        buy A2 M1 yes 1                         -> filled

        resume A1                               -> resume A1
        resume A1                               -> already
        buy A1 M1 yes 8 name=a                  -> replay of O1
        sell A1 M1 yes 8                        -> filled 8 position 0
        suspend A1                              -> suspend A1
        suspend A9                              -> ACCOUNT_NOT_FOUND
        resume A9                               -> ACCOUNT_NOT_FOUND
        ",
    );
}

/// What others do to a suspended account goes on.
#[test]
fn a_suspended_account_is_paid() {
    check_acts(
        "
        buy A1 M1 yes 4                         -> filled 4 cash 98
        suspend A1                              -> suspend A1
        settle M1 1 0                           -> pays A1:0:4:4:102 settled
        ",
    );
}

/// The first record suspends, so that no order comes between it and the last one that ends.
#[test]
fn very_many_orders_end_in_several_records() {
    let mut script = format!("{VENUE}\nrules open 5000\n");
    for _ in 0..=ORDERS_PER_RECORD_MAX {
        script += "place A1 M1 yes buy limit 5 0.01 -> pending\n";
    }
    let mut world = world_after(&script);
    let suspend = command(account(1), "suspend");
    for (is_new, order_count) in [(true, ORDERS_PER_RECORD_MAX), (false, 1)] {
        let Ok(Verdict::Happens(events, acted)) = world.run(&suspend) else {
            panic!("the account has open orders");
        };
        assert_eq!(
            (acted.is_new, acted.order_count, acted.has_more),
            (is_new, order_count, is_new)
        );
        assert_eq!(matches!(events[0], Event::OperatorActed(_)), is_new);
        let all = CancelOrders { account: account(1), market_id: None, token_id: None };
        assert_eq!(world.run(&all), Err(Rejection::AccountSuspended));
    }
    let beat = Beat { account: account(1), interval_ms: 10_000 };
    assert_eq!(world.run(&beat), Err(Rejection::AccountSuspended));
    let verdict = world.run(&suspend);
    let Ok(Verdict::Already(acted)) = verdict else { panic!("{verdict:?}") };
    assert!(!OperatorCommand::answer(&world.state, acted, false).is_new);
    assert_eq!(world.state.account(account(1)).map(Account::open_order_count), Some(0));
}

fn account(counter: u64) -> AccountId {
    AccountId::new(crate::restore::shard(), counter).expect("a small counter")
}

/// An account that was suspended, resumed, and suspended again.
fn world() -> World {
    let script = "
        suspend A1                              -> suspend A1
        resume A1                               -> resume A1
        suspend A1                              -> suspend A1
        ";
    world_after(&format!("{VENUE}{script}"))
}

/// Changes the act with this index, or all of them if it is `None`.
#[track_caller]
fn check_damaged(index: usize, change: impl FnOnce(&mut OperatorActed), expected: &str) {
    let change = |history: &mut History| {
        let mut acts = history.iter_mut().flatten().filter_map(|event| match event {
            Event::OperatorActed(acted) => Some(acted),
            _ => None,
        });
        change(acts.nth(index).expect("an act"));
    };
    check_changed(&world(), change, expected);
}

#[test]
fn impossible_acts_are_refused() {
    let long = "x".repeat(REASON_BYTES_MAX + 1);
    let too_long = "was acted on with a text that is too long";
    check_damaged(0, |it| it.act = Act::Resume, "is not suspended");
    check_damaged(1, |it| it.act = Act::Suspend, "is suspended already");
    check_damaged(0, |it| it.account = account(9), "account 581 is not kept");
    check_damaged(0, |it| it.reason = long.clone().into(), too_long);
    let long_name = "x".repeat(USER_BYTES_MAX + 1);
    check_damaged(0, |it| it.by.user = Some(long_name.into()), too_long);
}

#[test]
fn rows_with_another_standing_are_errors() {
    let world = world();
    let kept = world.state.account(account(1)).and_then(Account::suspension);
    let kept = kept.expect("it is suspended");
    let check = |change: &dyn Fn(&mut Suspension), expected: &str| {
        let mut changed = kept.clone();
        change(&mut changed);
        let standing: &Standing = Box::leak(Box::new(Standing { suspension: Some(changed) }));
        check_changed_rows(&world, |rows| rows.accounts[0].standing = Some(standing), expected);
    };
    check(&|it| it.at = it.at.after_ms(1), "the head says");
    check(&|it| it.by.uid = 0, "the head says");
    check(&|it| it.by.user = None, "the head says");
    check(&|it| it.reason = "another".into(), "the head says");
    let none = |rows: &mut crate::restore::Rows<'_>| rows.accounts[0].standing = None;
    check_changed_rows(&world, none, "the head says");
    let empty: &Standing = Box::leak(Box::default());
    let empty = |rows: &mut crate::restore::Rows<'_>| rows.accounts[0].standing = Some(empty);
    check_changed_rows(&world, empty, "has a standing without a reason");
}
