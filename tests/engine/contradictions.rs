//! Records that contradict those before them: replay refuses them and never panics, and any state
//! it accepts can be read.

use std::collections::BTreeSet;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

use paperbourse::engine::State;
use paperbourse::engine::contradiction::{Contradiction, Flaw};
use paperbourse::engine::event::{Event, OrderFilled};
use paperbourse::engine::order::idempotency::NameHash;
use paperbourse::ids::{
    AccountId, CommentId, KeyId, Lsn, MarketIndex, OrderId, ShardId, Timestamp,
};
use paperbourse::journal::record;
use paperbourse::market::book::Side;
use paperbourse::money::{FeeRate, Shares, Usd};

use crate::actions::actions;
use crate::properties::Pair;
use crate::restore;
use crate::world::World;

/// The events of each record of a shard.
pub(crate) type History = Vec<Vec<Event>>;

pub(crate) fn history(records: &[Vec<u8>]) -> History {
    records.iter().map(|bytes| record::decode(bytes).expect("a record").1.into_vec()).collect()
}

pub(crate) fn replay(history: &[Vec<Event>], shard: ShardId) -> Result<State, Contradiction> {
    let mut state = State::new(shard);
    for events in history {
        state.replay(events, Lsn::START)?;
    }
    Ok(state)
}

/// Changes the history of a small world, and checks that replay refuses it with this error.
#[track_caller]
fn check(change: impl FnOnce(&mut History), expected: &str) {
    check_changed(&restore::world(), change, expected);
}

/// Changes the history of a world, and checks that replay refuses it with this error.
#[track_caller]
pub(crate) fn check_changed(world: &World, change: impl FnOnce(&mut History), expected: &str) {
    let mut history = history(&world.records);
    assert_eq!(replay(&history, world.state.shard()), Ok(world.state.clone()));
    change(&mut history);
    match replay(&history, world.state.shard()) {
        Ok(_) => panic!("replayed, instead of: {expected}"),
        Err(error) => assert!(error.to_string().ends_with(expected), "{error}, not: {expected}"),
    }
}

/// Changes the fill of the order with this counter.
#[track_caller]
fn check_fill(counter: u64, change: impl FnOnce(&mut OrderFilled), expected: &str) {
    check(
        |history| {
            let fills = history.iter_mut().flatten().filter_map(|event| match event {
                Event::OrderFilled(fill) => Some(fill),
                _ => None,
            });
            change(
                fills
                    .filter(|filled| filled.placement.order.counter() == counter)
                    .last()
                    .expect("a fill"),
            );
        },
        expected,
    );
}

#[test]
fn an_impossible_fill_is_refused() {
    let shares = Shares::from_micros;
    let usd = Usd::from_micros;
    let other = ShardId::new(6).expect("below the shard count");
    let money = "order 133 does not conserve money";
    check_fill(2, |filled| filled.fill.balance += usd(1), money);
    check_fill(2, |filled| filled.fill.notional -= usd(1), money);
    check_fill(2, |filled| filled.fill.fee += usd(1), money);
    check_fill(2, |filled| filled.fill.fee = usd(-1), "order 133 has a fee below zero");
    check_fill(2, |filled| filled.fill.fee = usd(i64::MAX), money);
    check_fill(
        2,
        |filled| {
            filled.fill.fee = usd(1_000_000_000);
            filled.fill.balance -= filled.fill.fee;
        },
        "order 133 leaves a debt",
    );
    let dear = "order 133 costs less than nothing or more than a dollar a share";
    check_fill(2, |filled| filled.fill.notional = usd(1_000_001), dear);
    check_fill(2, |filled| filled.fill.notional = usd(-1), dear);
    check_fill(
        2,
        |filled| filled.fill.position_shares += shares(1),
        "order 133 does not conserve shares",
    );
    check_fill(2, |filled| filled.fill.position_cost += usd(1), "order 133 does not conserve cost");
    check_fill(2, |filled| filled.fill.quantity += shares(1), "order 133 is not what it took");
    let nothing = "order 133 takes no shares at a price";
    check_fill(2, |filled| filled.levels[0].size = shares(0), nothing);
    check_fill(2, |filled| filled.levels[0].size = shares(i64::MIN), nothing);
    check_fill(
        2,
        |filled| {
            let level = filled.levels[0];
            filled.levels[0].size = shares(i64::MAX);
            filled.levels.push(level);
        },
        "order 133 takes more than there can be",
    );
    check_fill(
        2,
        |filled| {
            filled.levels.clear();
            filled.fill.quantity = shares(0);
        },
        "order 133 takes nothing",
    );
    check_fill(
        3,
        |filled| {
            filled.placement.side = Side::Sell;
            filled.fill.balance += filled.fill.notional + filled.fill.notional;
        },
        "order 197 sells more than is held, or leaves a position out of range",
    );
    check_fill(
        2,
        |filled| filled.placement.market = MarketIndex(u32::MAX),
        "order 133 is in no market",
    );
    check_fill(2, |filled| filled.placement.outcome.0 = 2, "order 133 is in no market");
    for account in [AccountId::new(other, 1), AccountId::from_raw((1 << 53) - 59)] {
        let account = account.expect("an id");
        check_fill(2, |filled| filled.placement.account = account, "order 133 is of no account");
    }
    for order in [OrderId::new(other, 2), OrderId::from_raw(197), OrderId::from_raw(69)] {
        let order = order.expect("an id");
        let expected = format!("order {order} is not the next one of the shard");
        check_fill(2, |filled| filled.placement.order = order, &expected);
    }
    let name = NameHash::of_order("a");
    check_fill(2, |filled| filled.placement.names[0] = name, "order 133 has a name that is used");
    check_fill(
        2,
        |filled| filled.placement.names.push(filled.placement.names[0]),
        "order 133 has a name that is used",
    );
    let numbers = "order 133 has numbers out of range";
    check_fill(2, |filled| filled.placement.names.extend([name; 2]), numbers);
    check_fill(2, |filled| filled.fill.fee_rate = FeeRate::from_micros(-1), numbers);
}

#[test]
fn a_record_that_contradicts_an_earlier_one_is_refused() {
    let order = |counter| OrderId::new(restore::shard(), counter).expect("a small counter");
    let key = |counter| KeyId::new(restore::shard(), counter).expect("a small counter");
    let comment = |counter| CommentId::new(restore::shard(), counter).expect("a small counter");
    let add = |event: Event| {
        move |history: &mut History| {
            history.push(vec![event]);
        }
    };
    check(
        |history| {
            let first = history[0].clone();
            history.push(first);
        },
        "account 69 is not the next one of the shard",
    );
    let open = |change: fn(&mut Event)| {
        move |history: &mut History| {
            let event = history.iter_mut().flatten().rev();
            let mut opened = event.filter(|event| matches!(event, Event::AccountOpened { .. }));
            change(opened.next().expect("the second account"));
        }
    };
    check(
        open(|event| {
            let Event::AccountOpened { identity, .. } = event else { return };
            *identity = crate::world::World::identity("A1");
        }),
        "account 133 has the identity of another one",
    );
    check(
        open(|event| {
            let Event::AccountOpened { identity, .. } = event else { return };
            identity.digest[0] = 6;
        }),
        "account 133 is not in the shard of its identity",
    );
    check(
        open(|event| {
            let Event::AccountOpened { granted, .. } = event else { return };
            *granted = Usd::from_micros(-1);
        }),
        "account 133 begins with a debt",
    );
    let introduced = |index| Event::MarketIntroduced {
        index: MarketIndex(index),
        condition_id: "M1".into(),
        outcomes: Vec::new(),
    };
    check(add(introduced(2)), "market 2 is not the next one of the shard");
    check(add(introduced(1)), "market 1 was introduced before");
    check(add(Event::OrderForgotten { order: order(1) }), "order 69 is not kept");
    check(
        add(Event::OrderForgotten { order: order(4) }),
        "order 261 is not the oldest that its account keeps",
    );
    check(add(Event::KeyForgotten { key: key(3) }), "key 197 is not kept");
    check(add(Event::CommentDeleted { comment: comment(3) }), "comment 197 is not kept");
    let created = |change: fn(&mut Event)| {
        move |history: &mut History| {
            let mut events = history.iter_mut().flatten();
            change(events.rfind(|event| matches!(event, Event::KeyCreated { .. })).expect("a key"));
        }
    };
    let strange = "key 133 is of no account, or was made with a key of none";
    check(
        created(|event| {
            let Event::KeyCreated { account, .. } = event else { return };
            *account = AccountId::from_raw(133).expect("an id");
        }),
        strange,
    );
    check(
        created(|event| {
            let Event::KeyCreated { created_by, .. } = event else { return };
            *created_by = KeyId::from_raw(133);
        }),
        strange,
    );
    check(
        created(|event| {
            let Event::KeyCreated { grant, .. } = event else { return };
            grant.prefix = "seventeen letters".into();
        }),
        strange,
    );
    let said = |counter, order| Event::CommentAdded {
        comment: comment(counter),
        order,
        author: AccountId::from_raw(69).expect("an id"),
        content: "late".into(),
        at: Timestamp::EPOCH,
    };
    check(add(said(4, order(4))), "comment 261 is not the next one of the shard");
    check(add(said(3, order(1))), "comment 197 is on no order");
    check(
        |history| history.extend((3..=1002).map(|counter| vec![said(counter, order(4))])),
        "comment 64133 is one more than its order may have",
    );
}

#[test]
fn a_key_changes_while_it_is_kept_and_ends_once() {
    let key = |counter| KeyId::new(restore::shard(), counter).expect("a small counter");
    let add = |events: Vec<Event>| move |history: &mut History| history.push(events);
    let ends = |counter| Event::KeyExpirySet { key: key(counter), expires_at: Timestamp::EPOCH };
    let revoked = Event::KeyRevoked { key: key(2), at: Timestamp::EPOCH };
    check(add(vec![Event::KeyRenamed { key: key(3), name: None }]), "key 197 is not kept");
    check(add(vec![ends(3)]), "key 197 is not kept");
    check(add(vec![ends(2), ends(2)]), "key 133 has an end already");
    check(add(vec![revoked, ends(2)]), "key 133 has an end already");
}

/// A check event has the hash of the state right before it, wherever it is in the record.
#[test]
fn a_state_is_checked_right_before_the_check_event() {
    let world = restore::world();
    let history = history(&world.records);
    let shard = world.state.shard();
    let check_at = |record: usize, event: usize, hash| {
        let mut history = history.clone();
        history[record].insert(event, Event::StateChecked { hash });
        replay(&history, shard)
    };
    for (record, events) in history.iter().enumerate() {
        let mut state = replay(&history[..record], shard).expect("records of a world");
        for event in 0..=events.len() {
            let checked = check_at(record, event, state.hash());
            assert_eq!(checked.as_ref(), Ok(&world.state), "record {record}, event {event}");
            let Some(next) = events.get(event) else { break };
            let before = state.hash();
            state.replay(std::slice::from_ref(next), Lsn::START).expect("an event of a world");
            let error = check_at(record, event + 1, before).expect_err("the state before");
            assert_eq!(error.sequence, record as u64 + 1);
            assert!(error.to_string().contains("when this was written"), "{error}");
        }
    }
}

/// Damage to a history that no checksum detects.
#[derive(Clone, Debug)]
pub(crate) enum Damage {
    /// Eight bytes of a record change.
    Number { record: usize, at: usize, value: i64 },
    /// Eight bytes of a record are overwritten with those of another record.
    Copied { from: usize, from_at: usize, record: usize, at: usize },
    /// A record is repeated, or replaces another one.
    Record { from: usize, record: usize, replaces: bool },
    /// A record is missing.
    Missing { record: usize },
    /// The last event of a record moves to the front of another one.
    Event { from: usize, record: usize },
}

pub(crate) fn damages() -> impl Strategy<Value = Damage> {
    let index = any::<usize>;
    let value = prop_oneof![
        prop::sample::select(vec![0, 1, -1, 64, i64::MAX, i64::MIN, (1 << 53) - 59]),
        (0_i64..40).prop_map(|counter| counter * 64 + 5),
        any::<i64>(),
    ];
    prop_oneof![
        6 => (index(), index(), value)
            .prop_map(|(record, at, value)| Damage::Number { record, at, value }),
        6 => (index(), index(), index(), index()).prop_map(|(from, from_at, record, at)| {
            Damage::Copied { from, from_at, record, at }
        }),
        1 => (index(), index(), any::<bool>())
            .prop_map(|(from, record, replaces)| Damage::Record { from, record, replaces }),
        1 => index().prop_map(|record| Damage::Missing { record }),
        1 => (index(), index()).prop_map(|(from, record)| Damage::Event { from, record }),
    ]
}

/// The history after the damage; `None` if a record no longer decodes.
pub(crate) fn damaged(records: &[Vec<u8>], damage: &Damage) -> Option<History> {
    let mut records = records.to_vec();
    let count = records.len();
    // Fields are aligned to four bytes, after the record's header.
    let place = |bytes: &[u8], at: usize| 32 + at % ((bytes.len() - 32) / 4 - 1) * 4;
    match *damage {
        Damage::Number { record, at, value } => {
            let bytes = &mut records[record % count];
            let at = place(bytes, at);
            bytes[at..at + 8].copy_from_slice(&value.to_le_bytes());
        }
        Damage::Copied { from, from_at, record, at } => {
            let from = &records[from % count];
            let from_at = place(from, from_at);
            let number: [u8; 8] = from[from_at..from_at + 8].try_into().expect("eight bytes");
            let bytes = &mut records[record % count];
            let at = place(bytes, at);
            bytes[at..at + 8].copy_from_slice(&number);
        }
        Damage::Record { from, record, replaces } => {
            let again = records[from % count].clone();
            let end = record % count + usize::from(replaces);
            records.splice(record % count..end, [again]);
        }
        Damage::Missing { record } => _ = records.remove(record % count),
        Damage::Event { from, record } => {
            let mut history = history(&records);
            let event = history[from % count].pop().expect("a record has events");
            history[record % count].insert(0, event);
            return Some(history);
        }
    }
    records
        .iter()
        .map(|bytes| record::decode(bytes).ok().map(|(_, events)| events.into_vec()))
        .collect()
}

/// Reads everything that answers can show.
pub(crate) fn read(state: &State) {
    for account in state.accounts() {
        account.ledger.cash();
        for position in account.positions {
            position.average_entry_price();
            state.used_market(position.market).label(position.outcome);
        }
        state.observe_account(account.id, 0);
        state.observe_keys(account.id);
        let open = state.open_orders().filter(|row| row.placement.account == account.id);
        for order in state.orders_of(account.id).chain(open) {
            let kept = state.order(order.placement.order).expect("an order of the account");
            let receipt = state.receipt(kept);
            receipt.fill.price();
            receipt.fill.average_entry_price();
            state.observe_comments(order.placement.order, 0, usize::MAX);
        }
    }
}

fn run(actions: &[crate::actions::Action]) -> Pair {
    let mut pair = Pair::new();
    for action in actions {
        pair.step(action);
    }
    pair
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_damaged_history_is_a_state_or_an_error(
        actions in actions(),
        damages in prop::collection::vec(damages(), 60),
    ) {
        let world = run(&actions).into_world();
        prop_assume!(!world.records.is_empty());
        for damage in &damages {
            let Some(history) = damaged(&world.records, damage) else { continue };
            if let Ok(state) = replay(&history, world.state.shard()) {
                read(&state);
            }
        }
    }
}

/// Guards the property test: its cases must reach many kinds of contradictions.
#[test]
fn the_random_damages_reach_many_contradictions() {
    let mut runner = TestRunner::deterministic();
    let mut reached = BTreeSet::new();
    for _ in 0..30 {
        let mut generate =
            || (actions(), prop::collection::vec(damages(), 60)).new_tree(&mut runner);
        let (actions, damages) = generate().expect("nothing is filtered").current();
        let world = run(&actions).into_world();
        for damage in damages.iter().filter(|_| !world.records.is_empty()) {
            let Some(history) = damaged(&world.records, damage) else { continue };
            if let Err(error) = replay(&history, world.state.shard()) {
                reached.insert(match error.flaw {
                    Flaw::Event { kind, flaw, .. } => format!("{kind} {flaw}"),
                    Flaw::Hash { .. } => "another state".to_owned(),
                });
            }
        }
    }
    println!("{reached:#?}");
    for flaw in [
        "account is not the next one of the shard",
        "another state",
        "comment is not the next one of the shard",
        "key is not kept",
        "key is not the next one of the shard",
        "market is not the next one of the shard",
        "order does not conserve cost",
        "order does not conserve money",
        "order does not conserve shares",
        "order is in no market",
        "order is not kept",
        "order is not the next one of the shard",
        "order is not what it took",
        "order is of no account",
    ] {
        assert!(reached.contains(flaw), "no damage led to: {flaw}");
    }
}
