use std::collections::HashSet;

use super::*;
use crate::engine::command::{
    CreateKey, DeleteComment, Identity, OrderNames, Owner, RemoveComment, RevokeKey, Trade,
    TradeOrder, WriteComment,
};
use crate::engine::comment::Written;
use crate::engine::key::{KeyGrant, Permissions};
use crate::engine::order::idempotency::NameHash;
use crate::engine::rejection::Rejection;
use crate::engine::state::hash::StateHash;
use crate::ids::{AccountId, CommentId, KeyId, Lsn, OrderId, ShardId, Timestamp};
use crate::limits::tier::Tier;
use crate::market::book::{Book, Ladder, Level, Side};
use crate::market::catalogue::{MarketInfo, Outcome};
use crate::market::quote::Quote;
use crate::money::{Price, Shares};

const MARKET_ID: &str = "0xa";

fn market() -> (MarketInfo, Book) {
    listed(["Yes", "No"])
}

/// A market, and the book of its first outcome.
fn listed(labels: [&str; 2]) -> (MarketInfo, Book) {
    let outcomes = labels
        .map(|label| Outcome { label: label.into(), token_id: format!("token-{label}").into() });
    let level =
        |price| Level { price: Price::from_micros(price), size: Shares::from_micros(100_000_000) };
    let ladder = Ladder::from_levels(vec![level(400_000)], vec![level(500_000)]).unwrap();
    (MarketInfo::bare(MARKET_ID, outcomes), Book::new(ladder, Timestamp::EPOCH))
}

fn quote((info, book): &(MarketInfo, Book)) -> Quote<'_> {
    Quote::new(info, [Some(book), None])
}

fn owner() -> Owner {
    identity(0)
}

fn identity(number: u8) -> Owner {
    let mut digest = [0; 32];
    digest[31] = number;
    Owner::Identity(Identity { digest, issuer: "i".into(), subject: "s".into() })
}

fn trade(side: Side, shares: i64) -> Trade {
    trade_of(owner(), side, shares)
}

fn trade_of(owner: Owner, side: Side, shares: i64) -> Trade {
    Trade::new(
        owner,
        TradeOrder {
            market_id: MARKET_ID.into(),
            outcome: "yes".into(),
            side,
            quantity: Shares::from_micros(shares * 1_000_000),
            expected_price: None,
            max_slippage_bps: None,
        },
        OrderNames::default(),
    )
}

fn create_key(created_by: Option<KeyId>) -> CreateKey {
    CreateKey {
        owner: owner(),
        is_bootstrap: false,
        created_by,
        grant: KeyGrant {
            hash: [7; 32],
            prefix: "ps_live_01234567".into(),
            name: None,
            tier: Tier::Free,
            permissions: Permissions::DEFAULT,
            expires_at: None,
            wallet: None,
        },
    }
}

/// Decides and applies a command, at the next position of a log of its own.
#[track_caller]
fn happen<C: Command>(state: &mut State, command: &C, rules: &Rules) {
    happen_at(state, command, rules, Lsn::new(0, state.sequence() + 1));
}

#[track_caller]
fn happen_at<C: Command>(state: &mut State, command: &C, rules: &Rules, lsn: Lsn) {
    let market = market();
    let quote = quote(&market);
    let verdict = state.decide(command, Some(&quote), Timestamp::from_seconds(9), rules);
    let Verdict::Happens(events, _) = verdict.unwrap_or_else(|rejection| panic!("{rejection}"))
    else {
        panic!("no events");
    };
    state.apply(&events, lsn);
}

/// The hash of a state, computed from scratch.
fn hash_from_scratch(state: &State) -> StateHash {
    let mut hash = StateHash::default();
    for (_, account) in state.accounts.iter() {
        hash += account.identity_term();
        hash += account.term();
        account.positions().iter().for_each(|position| hash += position.term(account.id));
        account.orders().for_each(|slot| hash += state.orders[slot].term());
    }
    state.keys.by_id().for_each(|key| hash += state.key_term(key));
    state.comments.values().for_each(|comment| hash += comment.term());
    (0..).zip(&state.markets).for_each(|(index, market)| hash += market.term(index));
    hash
}

/// The incrementally updated hash equals one computed from scratch.
#[test]
fn the_hash_matches_the_state_after_each_change() {
    let rules = Rules { kept_orders_max: 3, ..Rules::default() };
    let shard = ShardId::new(0).unwrap();
    let mut state = State::new(shard);
    let (first_key, account) = (KeyId::new(shard, 1).unwrap(), AccountId::new(shard, 1).unwrap());
    let (order, comment) = (OrderId::new(shard, 2).unwrap(), CommentId::new(shard, 1).unwrap());
    let say = WriteComment {
        order,
        author: account,
        content: "a good price".into(),
        elsewhere: Written::default(),
    };
    let mut seen = HashSet::from([state.hash()]);
    let mut check = |state: &State, what: &str| {
        assert_eq!(state.hash(), hash_from_scratch(state), "after {what}");
        assert!(seen.insert(state.hash()), "{what} does not change the hash");
    };
    for maker in [None, Some(first_key)] {
        happen(&mut state, &create_key(maker), &rules);
        check(&state, "a key");
    }
    for (side, shares) in [(Side::Buy, 10), (Side::Buy, 5), (Side::Sell, 4)] {
        happen(&mut state, &trade(side, shares), &rules);
        check(&state, "an order");
    }
    for _ in 0..2 {
        happen(&mut state, &say, &rules);
        check(&state, "a comment");
    }
    happen(&mut state, &trade(Side::Sell, 11), &rules);
    check(&state, "a sale of all shares");
    happen(&mut state, &DeleteComment { comment, author: account }, &rules);
    check(&state, "a deleted comment");
    for shares in [1, 2] {
        happen(&mut state, &trade(Side::Buy, shares), &rules);
        check(&state, "an order that evicts the oldest one");
    }
    happen(&mut state, &RevokeKey { account, key: first_key, descendants: true }, &rules);
    check(&state, "the revocation of two keys");
}

/// A venue that swaps the outcomes of a market must not swap the positions held.
#[test]
fn a_market_relisted_with_other_outcomes_is_not_traded() {
    let rules = Rules::default();
    let mut state = State::new(ShardId::new(0).unwrap());
    let decide = |state: &State, market: &(MarketInfo, Book)| {
        state.decide(&trade(Side::Buy, 1), Some(&quote(market)), Timestamp::from_seconds(9), &rules)
    };
    let Ok(Verdict::Happens(events, _)) = decide(&state, &market()) else { panic!("it fills") };
    state.apply(&events, Lsn::new(0, 1));
    assert!(matches!(decide(&state, &market()), Ok(Verdict::Happens(..))));
    assert_eq!(decide(&state, &listed(["No", "Yes"])), Err(Rejection::MarketChanged));
    // To another account, this rejection discloses how the market was used, so it must wait for
    // the record that introduced the market.
    let others = trade_of(identity(1), Side::Buy, 1);
    let depends_on = |rejection| others.refusal_depends_on(&state, &rejection);
    assert_eq!(depends_on(Rejection::MarketChanged), Lsn::new(0, 1));
    assert_eq!(
        depends_on(Rejection::NameReused { order: OrderId::from_raw(71).unwrap() }),
        Lsn::START
    );
}

/// Nobody would remember the new name, so that alone it would buy again.
#[test]
fn a_repeat_under_a_name_more_is_refused() {
    let rules = Rules::default();
    let mut state = State::new(ShardId::new(0).unwrap());
    let under = |names: &[&str]| {
        let names = OrderNames::new(names.iter().map(|name| NameHash::of_order(name)), None);
        Trade::new(owner(), trade(Side::Buy, 1).order().clone(), names)
    };
    happen(&mut state, &under(&["a", "b"]), &rules);
    let market = market();
    let decide = |names: &[&str]| {
        let now = Timestamp::from_seconds(9);
        state.decide(&under(names), Some(&quote(&market)), now, &rules)
    };
    for known in [&["a"][..], &["b"], &["a", "b"], &["b", "a"], &["a", "a"]] {
        assert!(matches!(decide(known), Ok(Verdict::Already(_))), "{known:?}");
    }
    for more in [["a", "c"], ["c", "a"], ["b", "c"]] {
        let refused = decide(&more).unwrap_err();
        assert!(matches!(refused, Rejection::NameAdded { .. }), "{more:?}: {refused:?}");
    }
    assert!(matches!(decide(&["c"]), Ok(Verdict::Happens(..))));
}

/// Entries of batches were once named by their index alone. Journals have such orders.
#[test]
fn an_entry_of_a_batch_from_before_is_found_by_its_index() {
    let rules = Rules::default();
    let mut state = State::new(ShardId::new(0).unwrap());
    let order = trade(Side::Buy, 1);
    let entry = |index, twin_count| {
        OrderNames::of_batch_entry("batch", index, order.fingerprint(), twin_count)
    };
    let sent = |names| Trade::new(owner(), order.order().clone(), names);
    let former = OrderNames::new([NameHash::of_batch_entry("batch", 0)], None);
    happen(&mut state, &sent(former), &rules);
    happen(&mut state, &sent(entry(1, 1)), &rules);
    let market = market();
    let decide = |index, twin_count| {
        let now = Timestamp::from_seconds(9);
        state.decide(&sent(entry(index, twin_count)), Some(&quote(&market)), now, &rules)
    };
    for (index, twin_count) in [(0, 0), (1, 1)] {
        assert!(matches!(decide(index, twin_count), Ok(Verdict::Already(_))), "{index}");
    }
    for (index, twin_count) in [(0, 1), (1, 0), (2, 1)] {
        assert_eq!(decide(index, twin_count).unwrap_err(), Rejection::BatchChanged, "{index}");
    }
    assert!(matches!(decide(2, 2), Ok(Verdict::Happens(..))));
}

/// Comments of 1,000 characters, four times as many as an author may have.
#[test]
fn any_number_of_comments_takes_no_more_memory_than_the_bound() {
    const ORDERS: u64 = 60;
    let rules = Rules::default();
    let shard = ShardId::new(0).unwrap();
    let mut state = State::new(shard);
    for _ in 0..ORDERS {
        happen(&mut state, &trade(Side::Buy, 1), &rules);
    }
    let author = AccountId::new(ShardId::new(9).unwrap(), 1).unwrap();
    let comments_max = u64::from(rules.author_comments_max);
    let now = Timestamp::from_seconds(9);
    let mut full_bytes = 0;
    for number in 0..4 * comments_max {
        let order = OrderId::new(shard, 1 + number % ORDERS).unwrap();
        let content = "x".repeat(1_000).into();
        let say = WriteComment { order, author, content, elsewhere: Written::default() };
        if number >= comments_max {
            let rejection = state.decide(&say, None, now, &rules).unwrap_err();
            let oldest = CommentId::new(shard, 1 + number - comments_max).unwrap();
            let comments_max = rules.author_comments_max;
            assert_eq!(rejection, Rejection::WrittenLimitExceeded { comments_max, oldest });
            happen(&mut state, &DeleteComment { comment: oldest, author }, &rules);
        }
        happen(&mut state, &say, &rules);
        let bytes = state.footprint_from(0).0.comments;
        match number + 1 {
            written if written < comments_max => {}
            written if written == comments_max => full_bytes = bytes,
            _ => assert_eq!(bytes, full_bytes, "after {number}"),
        }
    }
    assert!((1_000_000..1_200_000).contains(&full_bytes), "{full_bytes}");
    assert_eq!(state.observe_written(author).value.count, 1_000);
}

/// The orders of others are in other shards.
#[test]
fn what_an_author_has_written_in_other_shards_counts() {
    let rules = Rules { author_comments_max: 3, ..Rules::default() };
    let shards = [0, 1].map(|number| ShardId::new(number).unwrap());
    let mut state = State::new(shards[0]);
    happen(&mut state, &trade(Side::Buy, 1), &rules);
    let order = OrderId::new(shards[0], 1).unwrap();
    let author = AccountId::new(shards[1], 1).unwrap();
    let say = |elsewhere| WriteComment { order, author, content: "so be it".into(), elsewhere };
    let other = CommentId::new(shards[1], 7).unwrap();
    let elsewhere = |count| Written { count, oldest: Some((Timestamp::from_seconds(8), other)) };
    happen(&mut state, &say(elsewhere(2)), &rules);
    let decide =
        |count| state.decide(&say(elsewhere(count)), None, Timestamp::from_seconds(9), &rules);
    assert!(matches!(decide(1), Ok(Verdict::Happens(..))));
    let refused = Rejection::WrittenLimitExceeded { comments_max: 3, oldest: other };
    assert_eq!(decide(2), Err(refused));
}

#[test]
fn the_engine_rejects_a_quantity_out_of_range() {
    let (state, market) = (State::new(ShardId::new(0).unwrap()), market());
    let now = Timestamp::from_seconds(9);
    for shares in [0, -1, 1_000_001] {
        let verdict =
            state.decide(&trade(Side::Buy, shares), Some(&quote(&market)), now, &Rules::default());
        assert!(matches!(verdict, Err(Rejection::Broken { .. })), "{shares}: {verdict:?}");
    }
}

/// The absence of something that was removed may be disclosed only when the record that removed it
/// is durable. The absence of something that never existed depends on no record.
#[test]
fn an_absence_depends_on_the_removal() {
    let rules = Rules { kept_orders_max: 1, ..Rules::default() };
    let shard = ShardId::new(0).unwrap();
    let order = |counter| OrderId::new(shard, counter).unwrap();
    let account = AccountId::new(shard, 1).unwrap();
    let comment = CommentId::new(shard, 1).unwrap();
    let say = |order| WriteComment {
        order,
        author: account,
        content: "so be it".into(),
        elsewhere: Written::default(),
    };
    let delete = DeleteComment { comment, author: account };
    let mut state = State::new(shard);
    let at = |position| Lsn::new(3, position);

    happen_at(&mut state, &trade(Side::Buy, 1), &rules, at(10));
    assert_eq!(state.observe_order(account, order(1)).lsn, at(10));
    happen_at(&mut state, &say(order(1)), &rules, at(20));
    assert_eq!(state.observe_order(account, order(1)).lsn, at(20));
    assert_eq!(state.observe_comments(order(1), 0, 9).lsn, at(20));
    assert_eq!(say(order(1)).depends_on(&state), at(20));
    assert_eq!(delete.depends_on(&state), at(20));
    assert_eq!(RemoveComment(comment).depends_on(&state), at(20));
    assert_eq!(state.observe_comments_by(account, None, 9).lsn, at(20));
    assert_eq!(state.observe_order(account, order(2)).lsn, Lsn::START);
    assert_eq!(say(order(2)).depends_on(&state), Lsn::START);

    happen_at(&mut state, &RemoveComment(comment), &rules, at(30));
    assert_eq!(state.observe_comments_by(account, None, 9).lsn, at(30));
    assert_eq!(delete.depends_on(&state), at(30));
    assert_eq!(state.observe_comments(order(1), 0, 9).lsn, at(30));
    happen_at(&mut state, &say(order(1)), &rules, at(40));
    assert_eq!(state.observe_comments(order(1), 0, 9).lsn, at(40));

    happen_at(&mut state, &trade(Side::Buy, 2), &rules, at(50));
    assert!(state.order(order(1)).is_none());
    let second = CommentId::new(shard, 2).unwrap();
    let delete_second = DeleteComment { comment: second, author: account };
    let name = NameHash::of_order("never used");
    for lsn in [
        state.observe_order(account, order(1)).lsn,
        state.observe_comments(order(1), 0, 9).lsn,
        state.observe_named(account, name).lsn,
        say(order(1)).depends_on(&state),
        delete.depends_on(&state),
        delete_second.depends_on(&state),
    ] {
        assert_eq!(lsn, at(50));
    }
    let elsewhere = OrderId::new(ShardId::new(1).unwrap(), 1).unwrap();
    assert_eq!(state.observe_order(account, elsewhere).lsn, Lsn::START);
    assert_eq!(state.observe_key_hash(KeyId::new(shard, 1).unwrap()).lsn, Lsn::START);

    for position in (60..).step_by(2).take(103) {
        let key = KeyId::new(shard, (position - 58) / 2).unwrap();
        happen_at(&mut state, &create_key(None), &rules, at(position));
        assert_eq!(state.observe_key_hash(key).lsn, at(position));
        happen_at(
            &mut state,
            &RevokeKey { account, key, descendants: false },
            &rules,
            at(position + 1),
        );
    }
    let forgotten = state.observe_key_hash(KeyId::new(shard, 2).unwrap());
    assert_eq!((forgotten.value, forgotten.lsn), (None, at(60 + 2 * 102)));
    assert!(state.observe_key_hash(KeyId::new(shard, 3).unwrap()).value.is_some());
    let held = state.observe_keys(account).value.unwrap();
    assert_eq!(held.len(), key::ENDED_KEYS_PER_ACCOUNT_MAX + 1);
}
