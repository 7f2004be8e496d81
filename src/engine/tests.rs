use std::sync::Arc;

use super::command::{CreateKey, Identity, OrderNames, Trade, TradeOrder};
use super::key::{KeyGrant, Permissions};
use super::order::name_term;
use super::state_hash::{Term, TermKind};
use super::*;
use crate::limits::tier::Tier;
use crate::market::Markets;
use crate::market::book::{Book, Ladder, Level, Side};
use crate::market::catalogue::{MarketInfo, Outcome};
use crate::money::{Price, Shares};

const MARKET_ID: &str = "0xa";

fn market() -> MarketSnapshot {
    listed(["Yes", "No"])
}

fn listed(labels: [&str; 2]) -> MarketSnapshot {
    let outcomes = labels
        .map(|label| Outcome { label: label.into(), token_id: format!("token-{label}").into() });
    let level =
        |price| Level { price: Price::from_micros(price), size: Shares::from_micros(100_000_000) };
    let ladder = Ladder::from_levels(vec![level(400_000)], vec![level(500_000)]).unwrap();
    let markets = Markets::new();
    markets.list(vec![MarketInfo::bare(MARKET_ID, outcomes)]).unwrap();
    let market = markets.by_condition(MARKET_ID).unwrap();
    markets.publish(&market, OutcomeIndex(0), Arc::new(Book::new(ladder, Timestamp::EPOCH)));
    market.snapshot()
}

fn owner() -> Owner {
    Owner::Identity(Identity { digest: [0; 32], issuer: "i".into(), subject: "s".into() })
}

fn trade(side: Side, shares: i64) -> Command {
    Command::Trade(Trade {
        owner: owner(),
        order: TradeOrder {
            market_id: MARKET_ID.into(),
            outcome: "yes".into(),
            side,
            quantity: Shares::from_micros(shares * 1_000_000),
            expected_price: None,
            max_slippage_bps: None,
        },
        names: OrderNames::default(),
    })
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
    for account in &state.accounts {
        hash += account.term();
        for position in &account.positions {
            hash += position.term(account.id);
        }
    }
    state.keys.iter().for_each(|key| hash += key.term());
    state.orders.iter().for_each(|order| hash += order.term());
    state.order_of.iter().for_each(|(&(_, name), &order)| hash += name_term(order, name));
    for slot in &state.comments {
        if let CommentSlot::Written(comment) = slot {
            hash += comment.term();
        }
    }
    for (index, market) in (0_u64..).zip(&state.markets) {
        let mut term = Term::new(TermKind::Market).number(index);
        term = term.bytes(market.condition_id.as_bytes());
        for (label, token_id) in &market.outcomes {
            term = term.bytes(label.as_bytes()).bytes(token_id.as_bytes());
        }
        hash += term.finish();
    }
    hash
}

/// The hash that each change keeps up to date is the hash of what the state is.
#[test]
fn the_hash_is_that_of_the_state() {
    let (market, rules) = (market(), Rules::default());
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
        Command::RevokeKey { account, key: first_key, descendants: true },
    ] {
        let verdict = state.decide(&command, Some(&market), Timestamp::from_seconds(9), &rules);
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
    let decide = |state: &State, market: &MarketSnapshot| {
        state.decide(&trade(Side::Buy, 1), Some(market), Timestamp::from_seconds(9), &rules)
    };
    let Ok(Verdict::Happens(events)) = decide(&state, &market()) else { panic!("it fills") };
    state.apply(&events, Place::new(0, 1));
    assert!(matches!(decide(&state, &market()), Ok(Verdict::Happens(_))));
    assert_eq!(decide(&state, &listed(["No", "Yes"])), Err(Rejection::MarketChanged));
}

#[test]
fn an_order_for_no_shares_is_refused_whoever_lets_it_through() {
    let state = State::new(ShardId::new(0).unwrap());
    let now = Timestamp::from_seconds(9);
    for shares in [0, -1, 1_000_001] {
        let verdict =
            state.decide(&trade(Side::Buy, shares), Some(&market()), now, &Rules::default());
        assert!(matches!(verdict, Err(Rejection::Broken { .. })), "{shares}: {verdict:?}");
    }
}
