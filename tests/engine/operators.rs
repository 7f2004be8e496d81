//! What operators do to accounts.

use paperbourse::engine::account::Account;
use paperbourse::engine::account::ledger::Ledger;
use paperbourse::engine::admin::acts::OperatorCommand;
use paperbourse::engine::admin::erasure::{EraseComments, ErasedComments};
use paperbourse::engine::admin::reset::ORDERS_PER_RECORD_MAX;
use paperbourse::engine::admin::standing::{
    Act, DEPOSIT_MAX, DEPOSITS_KEPT_MAX, Deposit, Operator, REASON_BYTES_MAX, Standing, Suspension,
    USER_BYTES_MAX,
};
use paperbourse::engine::command::{CancelOrders, SetHeartbeat};
use paperbourse::engine::event::{Event, OperatorActed};
use paperbourse::engine::rejection::Rejection;
use paperbourse::engine::state::rows::AccountRow;
use paperbourse::engine::{Command as _, Verdict};
use paperbourse::ids::{AccountId, Timestamp};
use paperbourse::limits::tier::Tier;
use paperbourse::money::{Rounding, Usd};

use crate::contradictions::{History, check_changed};
use crate::restore::{Rows, check_changed_rows};
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
pub(crate) fn command(account: AccountId, act: &[&str]) -> OperatorCommand {
    let act = match act {
        ["suspend"] => Act::Suspend,
        ["resume"] => Act::Resume,
        ["deposit", amount, token] => Act::Deposit {
            amount: Usd::from_text(amount, Rounding::Exact).expect("an amount"),
            token: [token.parse().expect("a number"); 16],
        },
        ["reset"] => Act::Reset,
        ["erase"] => Act::Erase,
        ["tier", tier] => Act::Tier(Tier::parse(tier).expect("a tier")),
        other => panic!("no operator does {other:?}"),
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
        buy A1 M2 yes 4                         -> delayed O5 for 4 cash 2
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
        # The wait of the delayed order is over later, and there is nothing to decide.
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

/// Profit counts from the baseline, which a deposit raises.
#[test]
fn a_deposit_is_cash_and_no_profit() {
    check_acts(
        "
        deposit A1 50.5 1                       -> deposit A1 50.5
        show A1 M1 yes                          -> has cash 150.5 baseline 150.5
        deposit A1 50.5 1                       -> already
        deposit A1 50 1                         -> DEPOSIT_TOKEN_REUSED
        deposit A1 50.5 2                       -> deposit A1 50.5
        deposit A2 50.5 1                       -> deposit A2 50.5
        buy A1 M1 yes 20                        -> filled 20 cash 191
        reset A1                                -> reset A1 closed 1 cost 10 granted -91 balance 100
        show A1 M1 yes                          -> has cash 100 baseline 100
        # What was deposited before the reset is remembered.
        deposit A1 50.5 1                       -> already
        deposit A1 7 3                          -> deposit A1 7
        show A1 M1 yes                          -> has cash 107 baseline 107
        suspend A1                              -> suspend A1
        deposit A1 1 4                          -> deposit A1 1
        resume A1                               -> resume A1
        buy A1 M1 yes 2                         -> filled 2 cash 107
        # The cash is what a reset leaves, but it came otherwise.
        reset A1                                -> reset A1 closed 1 cost 1 granted -7 balance 100
        reset A1                                -> already
        deposit A9 1 1                          -> ACCOUNT_NOT_FOUND
        ",
    );
}

/// Also while it is suspended.
#[test]
fn an_operator_resets_as_the_owner_does() {
    check_acts(
        "
        operator-reset A1                       -> already
        buy A1 M1 yes 8                         -> filled 8 cash 96
        place A1 M1 yes buy limit 10 0.3        -> pending O2
        operator-reset A1 -> ended O2 RESET reset A1 closed 1 balance 100 operator-reset A1
        operator-reset A1                       -> already
        buy A1 M1 yes 8                         -> filled 8 cash 96
        suspend A1                              -> suspend A1
        operator-reset A1 -> reset A1 closed 1 cost 4 granted 4 operator-reset A1
        buy A1 M1 yes 8                         -> ACCOUNT_SUSPENDED
        operator-reset A9                       -> ACCOUNT_NOT_FOUND
        ",
    );
}

#[test]
fn a_tier_is_that_of_all_keys() {
    let script = "
        key A1 K1                               -> created K1
        key A1 K2                               -> created K2
        revoke A1 K2                            -> revoked K2
        key A2 K3                               -> created K3
        tier A1 pro                             -> tier A1
        tier A1 pro                             -> already
        # One of a lower tier, as its owner may create, gets it too.
        key A1 K4                               -> created K4
        tier A1 pro                             -> tier A1
        tier A1 enterprise                      -> tier A1
        tier A1 pro                             -> tier A1
        tier A9 pro                             -> ACCOUNT_NOT_FOUND
    ";
    let world = world_after(&format!("{VENUE}{script}"));
    let tiers: Vec<_> = world.state.keys().map(|key| key.grant.tier).collect();
    assert_eq!(tiers, [Tier::Pro, Tier::Pro, Tier::Free, Tier::Pro]);
    let tier_of = |counter| world.state.account(account(counter)).and_then(Account::tier);
    assert_eq!([1, 2].map(tier_of), [Some(Tier::Pro), None]);
}

/// Its request was let through when its account still had the higher tier.
#[test]
fn a_key_that_is_decided_after_a_lower_tier_was_given_gets_none_above_it() {
    check_acts(
        "
        key A1 K1 tier=enterprise               -> created K1
        tier A1 pro                             -> tier A1
        key A1 K2 tier=enterprise by=K1         -> TIER_NOT_AUTHORIZED
        key token:A1 K2 tier=enterprise         -> TIER_NOT_AUTHORIZED
        key A1 K2 tier=pro by=K1                -> created K2
        rotate A1 K1 K3                         -> revoked K1 created K3
        key A1 K4 tier=free                     -> created K4
        revoke A1 K2                            -> revoked K2
        revoke A1 K3                            -> revoked K3
        revoke A1 K4                            -> revoked K4
        key token:A1 K5 tier=enterprise bootstrap -> TIER_NOT_AUTHORIZED
        tier A1 enterprise                      -> tier A1
        key A1 K5 tier=enterprise               -> created K5
        # Nobody has given the other one a tier: the caller's decides, before the shard.
        key A2 K6 tier=enterprise               -> created K6
        ",
    );
}

/// What is left is an id, which nobody is given again.
#[test]
fn nothing_is_left_of_an_erased_account() {
    let script = "
        key A1 K1                               -> created K1
        deposit A1 7 1                          -> deposit A1 7
        tier A1 pro                             -> tier A1
        buy A1 M1 yes 8 name=a                  -> filled 8 cash 103
        buy A1 M2 yes 8 name=b                  -> filled 8 cash 99
        place A1 M1 yes buy limit 10 0.3        -> pending O3
        buy A2 M1 yes 8                         -> filled 8 cash 96
        comment A2 O1 words                     -> commented C1
        comment A1 O4 words                     -> commented C2
        settle M2 1 0                           -> pays A1:0:8:8:107 settled
        # First it is suspended, so that it has no open order.
        erase A1                                -> suspend A1 ended O3 SUSPENDED
        erase A1                                -> erase A1
        settle M1 1 0                           -> pays A2:0:8:8:104 settled
        # The same person may come again, and is somebody else.
        open A1                                 -> opened A1
    ";
    let mut world = world_after(&format!("{VENUE}{script}"));
    let again = world.run(&command(account(1), &["erase"]));
    assert!(matches!(again, Ok(Verdict::Already(_))), "{again:?}");
    for act in [&["suspend"][..], &["deposit", "7", "1"], &["reset"], &["tier", "pro"]] {
        assert_eq!(world.run(&command(account(1), act)), Err(Rejection::AccountNotFound));
    }
    let cancel = CancelOrders { account: account(1), market_id: None, token_id: None, after: None };
    assert_eq!(world.run(&cancel), Err(Rejection::AccountNotFound));
    let erase = EraseComments { author: account(1), after: None };
    for count in [1, 0] {
        let Ok(Verdict::Happens(_, erased) | Verdict::Already(erased)) = world.run(&erase) else {
            panic!("comments are erased");
        };
        assert_eq!(erased, ErasedComments { count, next: None });
    }
    let rows: Vec<_> = world.state.accounts().collect();
    let AccountRow { identity, ledger, positions, order_count_ever, standing, .. } = rows[0];
    assert_eq!((identity.issuer, identity.subject), ("", ""));
    assert_ne!(identity.digest, rows[2].identity.digest);
    assert_eq!((ledger, positions.len(), order_count_ever), (Ledger::default(), 0, 0));
    let standing = standing.expect("it was erased");
    assert_eq!(*standing, Standing { erased_at: standing.erased_at, ..Standing::default() });
    assert_eq!(world.state.keys().count(), 0);
    assert_eq!(world.state.comments().count(), 0);
    assert_eq!(world.state.orders_of(account(1)).count(), 0);
    // Others keep all.
    let settled = world.state.settlements().map(|(account, ..)| account);
    assert_eq!(settled.collect::<Vec<_>>(), [account(2)]);
    assert_eq!(world.state.fill_logs().count(), 0);
    assert_eq!(world.state.orders_of(account(2)).count(), 1);
    // As it is after a restart.
    let restored = Rows::of(&world.state, &world.finished).restore();
    assert_eq!(restored.expect("sound rows"), world.state);
}

#[test]
fn an_account_remembers_its_newest_deposits() {
    let mut script = VENUE.to_owned();
    for token in 0..=DEPOSITS_KEPT_MAX {
        script += &["deposit A1 1 ", &token.to_string(), " -> deposit A1 1\n"].concat();
    }
    script += "
        deposit A1 1 1                          -> already
        deposit A1 1 0                          -> deposit A1 1
        deposit A1 1 1                          -> deposit A1 1
        show A1 M1 yes                          -> has cash 167 baseline 167
    ";
    check(&script);
}

#[test]
fn deposits_stay_in_range() {
    let mut world = world_after(VENUE);
    let mut count = 0;
    let deposit = |number: u32| {
        let mut token = [0; 16];
        token[..4].copy_from_slice(&number.to_le_bytes());
        let act = Act::Deposit { amount: DEPOSIT_MAX, token };
        OperatorCommand { act, ..command(account(1), &["resume"]) }
    };
    while world.run(&deposit(count)).is_ok() {
        count += 1;
    }
    let refused = world.run(&deposit(count));
    assert!(
        matches!(refused, Err(Rejection::DepositTooLarge { amount: DEPOSIT_MAX })),
        "{refused:?}"
    );
    assert_eq!(i64::from(count), (i64::MAX - 100_000_000) / DEPOSIT_MAX.micros());
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
    let suspend = command(account(1), &["suspend"]);
    for (is_new, order_count) in [(true, ORDERS_PER_RECORD_MAX), (false, 1)] {
        let Ok(Verdict::Happens(events, acted)) = world.run(&suspend) else {
            panic!("the account has open orders");
        };
        assert_eq!(
            (acted.is_new, acted.order_count, acted.has_more),
            (is_new, order_count, is_new)
        );
        assert_eq!(matches!(events[0], Event::OperatorActed(_)), is_new);
        let all =
            CancelOrders { account: account(1), market_id: None, token_id: None, after: None };
        assert_eq!(world.run(&all), Err(Rejection::AccountSuspended));
    }
    let beat = SetHeartbeat { account: account(1), interval_ms: 10_000 };
    assert_eq!(world.run(&beat), Err(Rejection::AccountSuspended));
    let verdict = world.run(&suspend);
    let Ok(Verdict::Already(acted)) = verdict else { panic!("{verdict:?}") };
    assert!(!OperatorCommand::answer(&world.state, acted, false).is_new);
    assert_eq!(world.state.account(account(1)).map(Account::open_order_count), Some(0));
}

/// No visit of the shard takes long, however many orders an operator lets accounts keep.
#[test]
fn very_many_kept_orders_are_erased_in_several_records() {
    let mut script = format!("{VENUE}\nrules open 5000\n");
    for _ in 0..=ORDERS_PER_RECORD_MAX {
        script += "place A1 M1 yes buy limit 5 0.01 -> pending\n";
    }
    // The comments on an order go with it.
    script += "comment A2 O3 words -> commented C1\ncomment A2 O3 words -> commented C2\n";
    let mut world = world_after(&script);
    for _ in 0..2 {
        assert!(world.run(&command(account(1), &["suspend"])).is_ok());
    }
    let erase = command(account(1), &["erase"]);
    for (is_new, event_count) in [(false, ORDERS_PER_RECORD_MAX - 2), (true, 1)] {
        let Ok(Verdict::Happens(events, acted)) = world.run(&erase) else {
            panic!("there is something to erase");
        };
        assert_eq!((acted.is_new, acted.has_more), (is_new, !is_new));
        assert_eq!(events.len(), event_count);
        let is_forgotten = |event: &Event| matches!(event, Event::OrderForgotten { .. });
        assert_eq!(events.iter().all(is_forgotten), !is_new);
    }
    assert_eq!(world.state.orders_of(account(1)).count(), 0);
    assert_eq!(world.state.comments().count(), 0);
    let restored = Rows::of(&world.state, &world.finished).restore();
    assert_eq!(restored.expect("sound rows"), world.state);
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
        deposit A1 5 1                          -> deposit A1 5
        deposit A1 6 2                          -> deposit A1 6
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
    check_damaged(0, |it| it.act = Act::Reset, "was not reset");
    check_damaged(0, |it| it.act = Act::Erase, "is erased before it is suspended");
    check_damaged(3, |it| it.act = Act::Erase, "is erased");
    let token = [1; 16];
    for amount in [Usd::ZERO, Usd::from_micros(-1), DEPOSIT_MAX + Usd::from_micros(1)] {
        let act = Act::Deposit { amount, token };
        check_damaged(3, |it| it.act = act, "gets a deposit out of range");
    }
    check_damaged(0, |it| it.account = account(9), "account 581 is not kept");
    check_damaged(0, |it| it.reason = long.clone().into(), too_long);
    let long_name = "x".repeat(USER_BYTES_MAX + 1);
    check_damaged(0, |it| it.by.user = Some(long_name.into()), too_long);
}

#[test]
fn rows_with_another_standing_are_errors() {
    let world = world();
    let kept = world.state.account(account(1)).and_then(Account::standing);
    let kept = kept.expect("it is suspended");
    let check_standing = |change: &dyn Fn(&mut Standing), expected: &str| {
        let mut changed = kept.clone();
        change(&mut changed);
        let standing: &Standing = Box::leak(Box::new(changed));
        check_changed_rows(&world, |rows| rows.accounts[0].standing = Some(standing), expected);
    };
    check_standing(&|it| it.deposited += Usd::from_micros(1), "the head says");
    check_standing(&|it| it.deposited = Usd::from_micros(-1), "has deposits out of range");
    let many = |it: &mut Standing| it.deposits = vec![it.deposits[0]; DEPOSITS_KEPT_MAX + 1];
    check_standing(&many, "has deposits out of range");
    let erased_at = Some(Timestamp::EPOCH);
    check_standing(&|it| it.erased_at = erased_at, "is erased, and has something left");
    let erased = |it: &mut Standing| *it = Standing { erased_at, ..Standing::default() };
    check_standing(&erased, "the head says");
    check_standing(&|it| it.tier = Some(Tier::Pro), "the head says");
    check_standing(&|it| it.deposits.swap(0, 1), "the head says");
    check_standing(&|it| it.deposits.truncate(1), "the head says");
    let check_deposit = |change: fn(&mut Deposit)| {
        check_standing(&|it| change(&mut it.deposits[0]), "the head says");
    };
    check_deposit(|it| it.token[15] ^= 1);
    check_deposit(|it| it.amount += Usd::from_micros(1));
    check_deposit(|it| it.at = it.at.after_ms(1));
    let check = |change: &dyn Fn(&mut Suspension), expected: &str| {
        let change = |it: &mut Standing| it.suspension.iter_mut().for_each(change);
        check_standing(&change, expected);
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
