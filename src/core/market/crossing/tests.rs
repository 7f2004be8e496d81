use std::time::Duration;

use super::*;
use crate::ids::{ShardId, Timestamp};
use crate::market::SETTLED_LISTED_MAX;
use crate::market::book::{Ladder, Side};
use crate::market::catalogue::{Fees, MarketInfo, MarketStatus, Outcome};
use crate::money::Price;

fn info(condition_id: &str, status: MarketStatus) -> MarketInfo {
    let outcomes = ["Yes", "No"].map(|label| Outcome {
        label: label.into(),
        token_id: format!("{condition_id}-{label}").into(),
    });
    MarketInfo { status, ..MarketInfo::bare(condition_id, outcomes) }
}

fn listed(ids: &[&str]) -> Markets {
    let markets = Markets::new();
    markets.list(ids.iter().map(|id| info(id, MarketStatus::Open)).collect()).unwrap();
    markets
}

fn shards(indexes: &[u8]) -> ShardSet {
    indexes.iter().map(|&index| ShardId::new(index).unwrap()).collect()
}

/// Lets orders of a shard rest in a market.
fn rest(markets: &Markets, id: &str, shard: u8) {
    let resting_limits = markets.resting_limits(&id.into(), 2);
    let (outcome, limit) = (OutcomeIndex(1), Price::from_micros(400_000));
    resting_limits.set_best(outcome, Side::Sell, ShardId::new(shard).unwrap(), Some(limit));
}

fn book(sequence: u64) -> Arc<Book> {
    let mut book = Book::new(Ladder::default(), Timestamp::EPOCH);
    book.sequence = sequence;
    Arc::new(book)
}

fn cross(markets: &Markets, id: &str, sequence: u64) {
    let market = markets.by_condition(id).unwrap();
    let (outcome, book) = (OutcomeIndex(0), Some(book(sequence)));
    markets.cross(Crossing { market, outcome, book, shards: shards(&[3]) });
}

/// Takes what waits now: the markets, and the sequences of the books.
async fn taken(markets: &Markets) -> Vec<(String, Option<u64>)> {
    let name = |crossing: &Crossing| crossing.market.info().condition_id.to_string();
    let sequence = |crossing: &Crossing| crossing.book.as_ref().map(|book| book.sequence);
    let taken = tokio::time::timeout(Duration::ZERO, markets.crossings()).await;
    let taken = taken.unwrap_or_default();
    taken.iter().map(|it| (name(it), sequence(it))).collect()
}

#[tokio::test]
async fn crossings_are_taken_in_order() {
    let markets = listed(&["a", "b"]);
    for (id, sequence) in [("a", 1), ("b", 1), ("a", 2)] {
        cross(&markets, id, sequence);
    }
    let expected = [("a".into(), Some(1)), ("b".into(), Some(1)), ("a".into(), Some(2))];
    assert_eq!(taken(&markets).await, expected);
}

#[tokio::test]
async fn the_taker_is_woken() {
    let markets = Arc::new(listed(&["a"]));
    let taker = tokio::spawn({
        let markets = markets.clone();
        async move { markets.crossings().await.len() }
    });
    tokio::task::yield_now().await;
    cross(&markets, "a", 7);
    assert_eq!(taker.await.unwrap(), 1);
}

#[tokio::test]
async fn what_was_taken_waits_until_its_taker_asks_for_more() {
    let markets = listed(&["a"]);
    assert_eq!(markets.crossings_waiting(), 0);
    cross(&markets, "a", 1);
    cross(&markets, "a", 2);
    assert_eq!(markets.crossings_waiting(), 2);
    markets.crossings().await;
    assert_eq!(markets.crossings_waiting(), 2);
    cross(&markets, "a", 3);
    assert_eq!(markets.crossings_waiting(), 3);
    markets.crossings().await;
    assert_eq!(markets.crossings_waiting(), 1);
    assert!(taken(&markets).await.is_empty());
    assert_eq!(markets.crossings_waiting(), 0);
}

#[tokio::test]
async fn a_market_that_finds_no_room_is_looked_at_again() {
    let markets = listed(&["a", "b"]);
    rest(&markets, "a", 3);
    rest(&markets, "a", 60);
    for sequence in 0..CROSSINGS_MAX as u64 {
        cross(&markets, "b", sequence);
    }
    assert_eq!(markets.crossings_overflowed_count(), 0);
    cross(&markets, "a", 1);
    cross(&markets, "a", 2);
    assert_eq!(markets.crossings_overflowed_count(), 2);
    assert_eq!(markets.crossings_waiting(), CROSSINGS_MAX + 1, "it waits once");

    let all = markets.crossings().await;
    assert_eq!(all.len(), CROSSINGS_MAX + 1);
    let last = all.last().unwrap();
    assert_eq!(&*last.market.info().condition_id, "a");
    assert!(last.book.is_none(), "the newest books count");
    assert_eq!(last.shards, shards(&[3, 60]), "with all shards that have orders resting");

    cross(&markets, "a", 3);
    assert_eq!(taken(&markets).await, [("a".into(), Some(3))], "there is room again");
}

#[tokio::test]
async fn a_market_can_be_looked_at_again() {
    let markets = listed(&["a", "b", "c"]);
    rest(&markets, "a", 3);
    rest(&markets, "b", 3);
    for id in ["b", "a", "b", "c", "unlisted"] {
        markets.look_again_by_id(id);
    }
    assert_eq!(taken(&markets).await, [("b".into(), None), ("a".into(), None)]);
    markets.look_again(&markets.by_condition("b").unwrap());
    assert_eq!(taken(&markets).await, [("b".into(), None)]);
    assert_eq!(markets.crossings_overflowed_count(), 0);

    // Nothing rests any more by the time it is taken.
    markets.look_again_by_id("b");
    let resting_limits = markets.resting_limits(&"b".into(), 2);
    resting_limits.set_best(OutcomeIndex(1), Side::Sell, ShardId::new(3).unwrap(), None);
    markets.look_again_by_id("a");
    assert_eq!(taken(&markets).await, [("a".into(), None)]);
}

#[tokio::test]
async fn a_market_that_can_fill_again_is_looked_at() {
    const PAUSED: MarketStatus = MarketStatus::Paused;
    let unsupported = MarketInfo { fees: Fees::Unsupported, ..info("m", MarketStatus::Open) };
    let markets = listed(&["m", "other"]);
    rest(&markets, "m", 3);
    for (listed, is_looked_at) in [
        (info("m", MarketStatus::Open), false),
        (info("m", PAUSED), false),
        (info("m", PAUSED), false),
        (info("m", MarketStatus::Open), true),
        (unsupported, false),
        (info("m", MarketStatus::Open), true),
        (info("other", PAUSED), false),
        // Nothing rests in it.
        (info("other", MarketStatus::Open), false),
    ] {
        markets.list(vec![listed.clone()]).unwrap();
        let expected: &[_] = if is_looked_at { &[("m".into(), None)] } else { &[] };
        assert_eq!(taken(&markets).await, expected, "{listed:?}");
    }
}

#[tokio::test]
async fn orders_may_rest_before_their_market_is_listed() {
    let markets = Markets::new();
    rest(&markets, "m", 3);
    assert_eq!(markets.crossings_waiting(), 0);
    markets.list(vec![info("m", MarketStatus::Open), info("n", MarketStatus::Open)]).unwrap();
    let market = markets.by_condition("m").unwrap();
    let resting_limits = market.resting_limits().expect("the market has its resting limits");
    assert_eq!(resting_limits.anywhere(), shards(&[3]));
    assert_eq!(taken(&markets).await, [("m".into(), None)]);
    assert!(markets.by_condition("n").unwrap().resting_limits().is_none());
}

#[test]
fn a_listed_market_gets_its_resting_limits_at_first_use() {
    let markets = listed(&["m"]);
    let market = markets.by_condition("m").unwrap();
    assert!(market.resting_limits().is_none());
    let first = markets.resting_limits(&"m".into(), 2);
    assert!(Arc::ptr_eq(&first, &markets.resting_limits(&"m".into(), 2)), "everybody shares one");
    assert!(Arc::ptr_eq(&first, market.resting_limits().unwrap()));
    assert_eq!(markets.crossings_waiting(), 0);
}

#[tokio::test]
async fn the_resting_limits_of_a_market_that_has_left_are_forgotten() {
    let resolved = |number: usize| MarketInfo {
        payouts: vec![Price::ONE, Price::ZERO],
        ..info(&format!("{number}"), MarketStatus::Resolved)
    };
    let markets = Markets::new();
    let held = markets.resting_limits(&"0".into(), 2);
    rest(&markets, "1", 3);
    let unused = Arc::downgrade(&markets.resting_limits(&"2".into(), 2));
    markets.list((0..SETTLED_LISTED_MAX + 3).map(resolved).collect()).unwrap();
    assert_eq!(taken(&markets).await, [("1".into(), None)]);
    for market in markets.resolutions().await {
        markets.mark_settled(market);
    }
    let left = markets.list(vec![]).unwrap().left;
    assert_eq!(left.len(), 3);
    drop(left);
    assert!(Arc::ptr_eq(&held, &markets.resting_limits(&"0".into(), 2)), "somebody holds it");
    assert_eq!(markets.resting_limits(&"1".into(), 2).anywhere(), shards(&[3]), "orders rest");
    assert!(unused.upgrade().is_none());
}
