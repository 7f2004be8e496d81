use std::collections::HashSet;

use super::command::{CreateKey, Identity, OrderNames, Trade, TradeOrder};
use super::key::{KeyGrant, Permissions};
use super::*;
use crate::limits::tier::Tier;
use crate::market::book::{Book, Ladder, Level, Side};
use crate::market::catalogue::MarketInfo;
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

fn trade(side: Side, shares: i64) -> Command {
    trade_of(owner(), side, shares)
}

fn trade_of(owner: Owner, side: Side, shares: i64) -> Command {
    Command::Trade(Trade::new(
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
    ))
}

fn create_key(created_by: Option<KeyId>) -> Command {
    Command::CreateKey(CreateKey {
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
        },
    })
}

/// The hash of everything that stands in the state, each thing added once.
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

/// The hash that each change keeps up to date is the hash of what the state is.
#[test]
fn the_hash_is_that_of_the_state() {
    let (market, rules) = (market(), Rules { kept_orders_max: 3, ..Rules::default() });
    let shard = ShardId::new(0).unwrap();
    let mut state = State::new(shard);
    let (first_key, account) = (KeyId::new(shard, 1).unwrap(), AccountId::new(shard, 1).unwrap());
    let (order, comment) = (OrderId::new(shard, 2).unwrap(), CommentId::new(shard, 1).unwrap());
    let say = Command::Comment { order, author: account, content: "a good price".into() };
    let mut seen = HashSet::from([state.hash()]);
    for command in [
        create_key(None),
        create_key(Some(first_key)),
        trade(Side::Buy, 10),
        trade(Side::Buy, 5),
        trade(Side::Sell, 4),
        say.clone(),
        say,
        trade(Side::Sell, 11),
        Command::DeleteComment { comment, author: account },
        trade(Side::Buy, 1),
        trade(Side::Buy, 2),
        Command::RevokeKey { account, key: first_key, descendants: true },
    ] {
        let verdict =
            state.decide(&command, Some(&quote(&market)), Timestamp::from_seconds(9), &rules);
        let Ok(Verdict::Happens(events)) = verdict else { panic!("{command:?}: {verdict:?}") };
        state.apply(&events, Place::new(0, state.sequence() + 1));
        assert_eq!(state.hash(), hash_from_scratch(&state), "after {command:?}");
        assert!(seen.insert(state.hash()), "nothing of {command:?} is in the hash");
    }
}

/// A venue that turns the outcomes of a market around must not turn what people hold.
#[test]
fn a_market_that_came_back_with_other_outcomes_is_not_traded() {
    let rules = Rules::default();
    let mut state = State::new(ShardId::new(0).unwrap());
    let decide = |state: &State, market: &(MarketInfo, Book)| {
        state.decide(&trade(Side::Buy, 1), Some(&quote(market)), Timestamp::from_seconds(9), &rules)
    };
    let Ok(Verdict::Happens(events)) = decide(&state, &market()) else { panic!("it fills") };
    state.apply(&events, Place::new(0, 1));
    assert!(matches!(decide(&state, &market()), Ok(Verdict::Happens(_))));
    assert_eq!(decide(&state, &listed(["No", "Yes"])), Err(Rejection::MarketChanged));
    // Somebody else learns from it how the market was used, and may not learn it too early.
    let others = trade_of(identity(1), Side::Buy, 1);
    let rests_on = |rejection| state.refusal_rests_on(&others, &rejection);
    assert_eq!(rests_on(Rejection::MarketChanged), Place::new(0, 1));
    assert_eq!(rests_on(Rejection::NameReused), Place::START);
}

#[test]
fn an_order_for_no_shares_is_refused_whoever_lets_it_through() {
    let (state, market) = (State::new(ShardId::new(0).unwrap()), market());
    let now = Timestamp::from_seconds(9);
    for shares in [0, -1, 1_000_001] {
        let verdict =
            state.decide(&trade(Side::Buy, shares), Some(&quote(&market)), now, &Rules::default());
        assert!(matches!(verdict, Err(Rejection::Broken { .. })), "{shares}: {verdict:?}");
    }
}

/// That something is not there any more is told only when the record that took it away is on disk;
/// that something was never there rests on nothing.
#[test]
fn what_was_taken_away_rests_on_the_removal() {
    let (market, rules) = (market(), Rules { kept_orders_max: 1, ..Rules::default() });
    let shard = ShardId::new(0).unwrap();
    let order = |counter| OrderId::new(shard, counter).unwrap();
    let account = AccountId::new(shard, 1).unwrap();
    let comment = CommentId::new(shard, 1).unwrap();
    let say = |order| Command::Comment { order, author: account, content: "so be it".into() };
    let delete = Command::DeleteComment { comment, author: account };
    let mut state = State::new(shard);
    let run = |state: &mut State, command: &Command, position| {
        let verdict =
            state.decide(command, Some(&quote(&market)), Timestamp::from_seconds(9), &rules);
        let Ok(Verdict::Happens(events)) = verdict else { panic!("{command:?}: {verdict:?}") };
        state.apply(&events, Place::new(3, position));
    };
    let at = |position| Place::new(3, position);

    run(&mut state, &trade(Side::Buy, 1), 10);
    assert_eq!(state.observe_order(account, order(1)).place, at(10));
    run(&mut state, &say(order(1)), 20);
    assert_eq!(state.observe_order(account, order(1)).place, at(20));
    assert_eq!(state.observe_comments(order(1), 0, 9).place, at(20));
    assert_eq!(state.rests_on(&say(order(1))), at(20));
    assert_eq!(state.rests_on(&delete), at(20));
    assert_eq!(state.observe_order(account, order(2)).place, Place::START);
    assert_eq!(state.rests_on(&say(order(2))), Place::START);

    run(&mut state, &delete, 30);
    assert_eq!(state.rests_on(&delete), at(30));
    assert_eq!(state.observe_comments(order(1), 0, 9).place, at(30));
    run(&mut state, &say(order(1)), 40);
    assert_eq!(state.observe_comments(order(1), 0, 9).place, at(40));

    run(&mut state, &trade(Side::Buy, 2), 50);
    assert!(state.order(order(1)).is_none());
    let second = CommentId::new(shard, 2).unwrap();
    let delete_second = Command::DeleteComment { comment: second, author: account };
    let name = NameHash::of_order("never used");
    for place in [
        state.observe_order(account, order(1)).place,
        state.observe_comments(order(1), 0, 9).place,
        state.observe_named(account, name).place,
        state.rests_on(&say(order(1))),
        state.rests_on(&delete),
        state.rests_on(&delete_second),
    ] {
        assert_eq!(place, at(50));
    }
    let elsewhere = OrderId::new(ShardId::new(1).unwrap(), 1).unwrap();
    assert_eq!(state.observe_order(account, elsewhere).place, Place::START);
    assert_eq!(state.observe_key_hash(KeyId::new(shard, 1).unwrap()).place, Place::START);

    for position in (60..).step_by(2).take(103) {
        let key = KeyId::new(shard, (position - 58) / 2).unwrap();
        run(&mut state, &create_key(None), position);
        assert_eq!(state.observe_key_hash(key).place, at(position));
        run(&mut state, &Command::RevokeKey { account, key, descendants: false }, position + 1);
    }
    let forgotten = state.observe_key_hash(KeyId::new(shard, 2).unwrap());
    assert_eq!((forgotten.value, forgotten.place), (None, at(60 + 2 * 102)));
    assert!(state.observe_key_hash(KeyId::new(shard, 3).unwrap()).value.is_some());
    let held = state.observe_keys(account).value.unwrap();
    assert_eq!(held.len(), key::ENDED_KEYS_PER_ACCOUNT_MAX + 1);
}
