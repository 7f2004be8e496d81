use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::market::book::Level;
use crate::market::catalogue::{MarketStatus, Outcome};
use crate::venue::polymarket::hash::{BookHasher, HASH_TEXT_BYTES};

fn price(micros: i64) -> Price {
    Price::from_micros(micros)
}

fn level(price_micros: i64, size_micros: i64) -> Level {
    Level { price: price(price_micros), size: Shares::from_micros(size_micros) }
}

fn info(condition_id: &str) -> MarketInfo {
    let outcomes = ["Yes", "No"].map(|label| Outcome {
        label: label.into(),
        token_id: format!("{condition_id}-{label}").into(),
    });
    MarketInfo::bare(condition_id, outcomes)
}

fn at(millis: i64, change: VenueChange) -> VenueEvent {
    VenueEvent { at: Timestamp::from_millis(millis), change }
}

fn feed_with(policy: MismatchPolicy) -> Feed {
    let mut feed = Feed::new(Arc::new(Markets::new()), policy);
    feed.verify_with(BookHasher::default());
    feed.apply(at(0, VenueChange::Listed(vec![info("m")])));
    feed
}

fn book_event(token_id: &str, bids: &[Level], asks: &[Level]) -> VenueChange {
    VenueChange::Book(BookReplaced {
        token_id: token_id.into(),
        ladder: Ladder::from_levels(bids.to_vec(), asks.to_vec()).unwrap(),
        hash: None,
        last_trade_price: None,
        tick: None,
    })
}

fn change(token_id: &str, side: Side, level: Level) -> LevelChanged {
    LevelChanged {
        token_id: token_id.into(),
        side,
        price: level.price,
        size: level.size,
        hash: None,
        top: None,
    }
}

fn trade(token_id: &str, price_micros: i64) -> VenueChange {
    VenueChange::Traded {
        token_id: token_id.into(),
        price: price(price_micros),
        size: Shares::from_micros(7),
        side: Some(Side::Buy),
    }
}

fn published(feed: &Feed, outcome: u8) -> Option<Arc<Book>> {
    let market = feed.markets().by_condition("m").unwrap();
    market.book(OutcomeIndex(outcome)).clone()
}

/// The hash of the one-level book that the tests of hashes use.
fn hash_of(millis: i64, bid: Level, tick_micros: i64, last_trade_micros: Option<i64>) -> Box<str> {
    let last_trade = match last_trade_micros {
        Some(micros) => format!("0.{:03}", micros / 1_000),
        None => String::new(),
    };
    let text = format!(
        concat!(
            r#"{{"market":"m","asset_id":"m-Yes","timestamp":"{}","hash":"","#,
            r#""bids":[{{"price":"{}","size":"{}"}}],"asks":[],"min_order_size":"5","#,
            r#""tick_size":"{}","neg_risk":false,"last_trade_price":"{}"}}"#
        ),
        millis,
        bid.price,
        bid.size,
        price(tick_micros),
        last_trade,
    );
    let digest =
        aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, text.as_bytes());
    let mut hex = String::new();
    for byte in digest.as_ref() {
        write!(hex, "{byte:02x}").expect("text grows");
    }
    hex.into()
}

fn hashed_book(
    millis: i64,
    bid: Level,
    last_trade_price: Option<Price>,
    hash: Box<str>,
) -> VenueEvent {
    at(
        millis,
        VenueChange::Book(BookReplaced {
            token_id: "m-Yes".into(),
            ladder: Ladder::from_levels(vec![bid], Vec::new()).unwrap(),
            hash: Some(hash),
            last_trade_price,
            tick: None,
        }),
    )
}

#[test]
fn changes_of_one_event_are_published_once_a_token() {
    let mut feed = feed_with(MismatchPolicy::Count);
    assert!(published(&feed, 0).is_none());
    feed.apply(at(5, book_event("m-Yes", &[level(400_000, 1)], &[level(500_000, 1)])));
    feed.apply(at(
        9,
        VenueChange::Levels(vec![
            change("m-Yes", Side::Buy, level(400_000, 0)),
            change("m-No", Side::Sell, level(600_000, 0)),
            change("m-Yes", Side::Buy, level(410_000, 3)),
            change("m-Yes", Side::Sell, level(700_000, 0)),
            change("m-Yes", Side::Sell, level(1_000_000, 4)),
        ]),
    ));
    let book = published(&feed, 0).unwrap();
    assert_eq!(book.ladder().bids(), [level(410_000, 3)]);
    assert_eq!((book.sequence, book.updated_at.millis()), (2, 9));
    assert!(published(&feed, 1).is_none(), "changes alone make no book");
    let counts = feed.counts();
    assert_eq!(
        (counts.level_changes, counts.level_changes_without_book, counts.level_changes_refused),
        (3, 1, 1)
    );
    assert_eq!(counts.removals_of_nothing, 1);
}

#[test]
fn a_book_that_no_market_has_is_kept_out() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(at(1, book_event("elsewhere", &[level(400_000, 1)], &[])));
    feed.apply(at(2, trade("elsewhere", 400_000)));
    feed.apply(at(3, VenueChange::Stale { token_id: "elsewhere".into() }));
    assert_eq!(feed.counts().unlisted, 3);
    assert!(feed.tokens.is_empty());
}

#[test]
fn a_trade_changes_no_level() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(at(1, trade("m-Yes", 450_000)));
    assert!(published(&feed, 0).is_none());
    feed.apply(at(2, book_event("m-Yes", &[level(400_000, 1)], &[])));
    let told_before = published(&feed, 0).unwrap();
    assert_eq!(told_before.last_trade.unwrap().price, price(450_000));
    feed.apply(at(3, trade("m-Yes", 400_000)));
    let book = published(&feed, 0).unwrap();
    assert_eq!(book.ladder(), told_before.ladder());
    let newest = book.last_trade.unwrap();
    assert_eq!((newest.price, newest.size.micros(), newest.at.millis()), (price(400_000), 7, 3));
    assert_eq!((book.sequence, book.updated_at.millis()), (2, 2));
}

#[test]
fn readers_never_see_a_crossed_book() {
    let bids = [level(400_000, 1), level(450_000, 2)];
    let asks = [level(470_000, 3), level(460_000, 4)];
    for (crossing, expected_bids, expected_asks) in [
        // The newest level stands; what it has consumed on the other side is left out.
        (
            Some((Side::Buy, level(460_000, 9))),
            vec![bids[0], bids[1], level(460_000, 9)],
            vec![asks[0]],
        ),
        (
            Some((Side::Sell, level(430_000, 9))),
            vec![bids[0]],
            vec![asks[0], asks[1], level(430_000, 9)],
        ),
        (None, bids.to_vec(), asks.to_vec()),
    ] {
        let mut feed = feed_with(MismatchPolicy::Count);
        feed.apply(at(1, book_event("m-Yes", &bids, &asks)));
        if let Some((side, level)) = crossing {
            feed.apply(at(2, VenueChange::Levels(vec![change("m-Yes", side, level)])));
        }
        let book = published(&feed, 0).unwrap();
        assert_eq!(book.ladder().bids(), expected_bids);
        assert_eq!(book.ladder().asks(), expected_asks);
        assert_eq!(feed.counts().crossed, u64::from(crossing.is_some()));
    }
    // In a full book neither side is newer.
    let mut feed = feed_with(MismatchPolicy::Count);
    let crossed = [level(460_000, 1), level(440_000, 1)];
    feed.apply(at(1, book_event("m-Yes", &crossed, &[level(450_000, 1), level(470_000, 1)])));
    let book = published(&feed, 0).unwrap();
    assert_eq!(book.ladder().bids(), [level(440_000, 1)]);
    assert_eq!(book.ladder().asks(), [level(470_000, 1)]);
}

#[test]
fn what_is_crossed_comes_back_when_the_cross_is_gone() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(at(1, book_event("m-Yes", &[], &[level(460_000, 4)])));
    for (size, ask_count) in [(9, 0), (0, 1)] {
        let entry = change("m-Yes", Side::Buy, level(460_000, size));
        feed.apply(at(2, VenueChange::Levels(vec![entry])));
        assert_eq!(published(&feed, 0).unwrap().ladder().asks().len(), ask_count);
    }
}

#[test]
fn a_told_hash_is_compared_with_our_book() {
    let bid = level(400_000, 1_500_000);
    let tick = 10_000;
    for (told_price, hash, expected) in [
        (Some(420_000), hash_of(5, bid, tick, Some(420_000)), (1, 0, 0)),
        (None, hash_of(5, bid, tick, None), (1, 0, 0)),
        // Without the newest trade's price nothing can be said.
        (None, hash_of(5, bid, tick, Some(420_000)), (0, 0, 1)),
        (Some(420_000), hash_of(5, bid, tick, Some(430_000)), (0, 1, 0)),
        (Some(420_000), hash_of(6, bid, tick, Some(420_000)), (0, 1, 0)),
        (Some(420_000), hash_of(5, bid, 1_000, Some(420_000)), (0, 1, 0)),
    ] {
        let mut feed = feed_with(MismatchPolicy::Count);
        feed.apply(hashed_book(5, bid, told_price.map(price), hash.clone()));
        let counts = feed.counts();
        let actual = (counts.hashes_verified, counts.hashes_mismatched, counts.hashes_unchecked);
        assert_eq!(actual, expected);
        let book = published(&feed, 0).unwrap();
        assert!(!book.stale, "a recording is its own present");
        assert_eq!(book.hash, (expected.1 == 0).then_some(hash));
    }
}

#[test]
fn a_trade_that_is_told_late_explains_a_hash() {
    let bid = level(400_000, 1_500_000);
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(hashed_book(5, bid, Some(price(420_000)), hash_of(5, bid, 10_000, Some(420_000))));
    let left = level(400_000, 1_000_000);
    feed.apply(hashed_book(6, left, None, hash_of(6, left, 10_000, Some(400_000))));
    assert_eq!((feed.counts().hashes_verified, feed.counts().hashes_mismatched), (1, 1));
    assert!(published(&feed, 0).unwrap().stale);
    let findings = feed.apply(at(4, trade("m-Yes", 400_000)));
    assert_eq!(findings[..], [("m-Yes".into(), Finding::Proven)]);
    assert_eq!((feed.counts().hashes_verified, feed.counts().hashes_mismatched), (2, 0));
    // And one that is told early leaves the price before it in the hash.
    feed.apply(hashed_book(7, left, None, hash_of(7, left, 10_000, Some(420_000))));
    assert_eq!((feed.counts().hashes_verified, feed.counts().hashes_mismatched), (3, 0));
    assert!(!published(&feed, 0).unwrap().stale);
}

#[test]
fn what_contradicts_a_book_makes_it_stale_until_it_is_proven() {
    use Finding::{Agrees, Contradicted, Proven, Unproven};

    let bid = level(400_000, 1_500_000);
    let right = |millis| Some(hash_of(millis, bid, 10_000, Some(420_000)));
    let wrong = || Some("0".repeat(HASH_TEXT_BYTES).into());
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(hashed_book(1, bid, Some(price(420_000)), right(1).unwrap()));
    for (millis, hash, top, finding, is_stale) in [
        (2, None, None, Unproven, false),
        (3, None, Some((Some(400_000), None)), Agrees, false),
        (4, wrong(), None, Contradicted, true),
        // What does not cover the whole book does not heal it.
        (5, None, Some((Some(400_000), None)), Agrees, true),
        (6, right(6), None, Proven, false),
        (7, None, Some((Some(390_000), None)), Contradicted, true),
        (8, right(8), None, Proven, false),
        (9, None, Some((Some(400_000), Some(500_000))), Contradicted, true),
        // A hash says more than the best prices, which were told of another moment.
        (10, right(10), Some((Some(390_000), None)), Proven, false),
    ] {
        let top: Option<(Option<i64>, Option<i64>)> = top;
        let top = top.map(|(bid, ask)| Top { bid: bid.map(price), ask: ask.map(price) });
        let entry = LevelChanged { hash, top, ..change("m-Yes", Side::Buy, bid) };
        let findings = feed.apply(at(millis, VenueChange::Levels(vec![entry])));
        assert_eq!(findings[..], [("m-Yes".into(), finding)], "at {millis}");
        assert_eq!(published(&feed, 0).unwrap().stale, is_stale, "at {millis}");
    }
    feed.apply(at(11, VenueChange::Stale { token_id: "m-Yes".into() }));
    assert!(published(&feed, 0).unwrap().stale);
    feed.apply(at(12, book_event("m-Yes", &[bid], &[])));
    assert!(!published(&feed, 0).unwrap().stale, "a full book replaces everything");
}

/// After a trade the venue tells the book again, with a hash that covers the trade's price, and the
/// trade itself later.
#[test]
fn a_known_book_that_is_told_again_before_its_trade_stays_fresh() {
    let (bid, other) = (level(400_000, 1_500_000), level(410_000, 1_500_000));
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(hashed_book(1, bid, Some(price(420_000)), hash_of(1, bid, 10_000, Some(420_000))));
    for (millis, bid, finding, is_stale) in [
        (2, bid, Finding::Agrees, false),
        // Another book with a hash that fits nothing may be anything.
        (3, other, Finding::Contradicted, true),
        (4, other, Finding::Contradicted, true),
    ] {
        let told = hashed_book(millis, bid, None, hash_of(millis, bid, 10_000, Some(430_000)));
        assert_eq!(feed.apply(told)[..], [("m-Yes".into(), finding)], "at {millis}");
        assert_eq!(published(&feed, 0).unwrap().stale, is_stale, "at {millis}");
    }
}

/// A market that was never traded has hashes too: once one was reproduced, nothing is left by which
/// another one could be explained.
#[test]
fn a_hash_contradicts_a_book_that_was_never_traded() {
    let bid = level(400_000, 1_500_000);
    let wrong: Box<str> = "0".repeat(HASH_TEXT_BYTES).into();
    let mut feed = feed_with(MismatchPolicy::Distrust);
    for (millis, hash, finding) in [
        (1, wrong.clone(), Finding::Unproven),
        (2, hash_of(2, bid, 10_000, None), Finding::Proven),
        (3, wrong, Finding::Contradicted),
    ] {
        if millis == 1 {
            feed.apply(at(0, book_event("m-Yes", &[bid], &[])));
        }
        let entry = LevelChanged { hash: Some(hash), ..change("m-Yes", Side::Buy, bid) };
        let findings = feed.apply(at(millis, VenueChange::Levels(vec![entry])));
        assert_eq!(findings[..], [("m-Yes".into(), finding)], "at {millis}");
    }
}

/// Of a venue whose hashes nobody can compute, they say nothing.
#[test]
fn without_a_verifier_a_hash_proves_and_contradicts_nothing() {
    let bid = level(400_000, 1_500_000);
    let mut feed = Feed::new(Arc::new(Markets::new()), MismatchPolicy::Distrust);
    feed.apply(at(0, VenueChange::Listed(vec![info("m")])));
    feed.apply(at(0, book_event("m-Yes", &[bid], &[])));
    for (millis, hash) in [(1, hash_of(1, bid, 10_000, None)), (2, "0".repeat(40).into())] {
        let entry = LevelChanged { hash: Some(hash), ..change("m-Yes", Side::Buy, bid) };
        let findings = feed.apply(at(millis, VenueChange::Levels(vec![entry])));
        assert_eq!(findings[..], [("m-Yes".into(), Finding::Unproven)], "at {millis}");
    }
    let counts = feed.counts();
    assert_eq!((counts.hashes_unchecked, counts.hashes_mismatched), (2, 0));
    assert!(!published(&feed, 0).unwrap().stale);
}

/// The hash of either token covers the price of the newest trade of the market, whichever token was
/// traded.
#[test]
fn a_trade_of_one_token_explains_the_hash_of_the_other() {
    let bid = level(400_000, 1_500_000);
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(hashed_book(1, bid, Some(price(420_000)), hash_of(1, bid, 10_000, Some(420_000))));
    feed.apply(at(1, book_event("m-No", &[], &[level(600_000, 1_500_000)])));
    let left = level(400_000, 1_000_000);
    feed.apply(hashed_book(2, left, None, hash_of(2, left, 10_000, Some(610_000))));
    assert!(published(&feed, 0).unwrap().stale);
    let findings = feed.apply(at(3, trade("m-No", 610_000)));
    assert_eq!(findings[..], [("m-Yes".into(), Finding::Proven)]);
    let own = published(&feed, 0).unwrap().last_trade.unwrap();
    assert_eq!(own.price, price(420_000), "its own trade is what it shows");
}

#[test]
fn best_prices_that_are_told_alone_are_compared() {
    let mut feed = feed_with(MismatchPolicy::Distrust);
    let top = |bid| VenueChange::Top {
        token_id: "m-Yes".into(),
        top: Top { bid: Some(price(bid)), ask: None },
    };
    assert!(feed.apply(at(1, top(400_000))).is_empty(), "no book is known");
    feed.apply(at(1, book_event("m-Yes", &[level(400_000, 5)], &[])));
    for (bid, finding) in [(400_000, Finding::Agrees), (410_000, Finding::Contradicted)] {
        assert_eq!(feed.apply(at(2, top(bid)))[..], [("m-Yes".into(), finding)]);
    }
    assert!(published(&feed, 0).unwrap().stale);
    assert_eq!(feed.counts().tops_mismatched, 1);
}

#[test]
fn what_is_older_than_the_book_is_left_out() {
    let (bid, other) = (level(400_000, 5), level(410_000, 7));
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(at(10, book_event("m-Yes", &[bid], &[])));
    let late = VenueChange::Levels(vec![change("m-Yes", Side::Buy, other)]);
    assert!(feed.apply(at(9, late.clone())).is_empty());
    for (book, finding) in [(other, Finding::Unproven), (bid, Finding::Proven)] {
        let findings = feed.apply(at(9, book_event("m-Yes", &[book], &[])));
        assert_eq!(findings[..], [("m-Yes".into(), finding)]);
        assert_eq!(published(&feed, 0).unwrap().ladder().bids(), [bid]);
    }
    assert_eq!(feed.counts().late, 3);
    // A clock that was set back is believed when somebody says so.
    feed.forget_levels("m-Yes");
    feed.apply(at(9, book_event("m-Yes", &[other], &[])));
    assert_eq!(published(&feed, 0).unwrap().ladder().bids(), [other]);
    feed.apply(at(9, late));
    assert!(feed.has_levels("m-Yes", published(&feed, 0).unwrap().ladder()));
}

#[test]
fn a_book_that_crosses_is_contradicted_by_itself() {
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(at(1, book_event("m-Yes", &[level(400_000, 5)], &[level(420_000, 5)])));
    for (size, finding) in [(5, Finding::Contradicted), (0, Finding::Unproven)] {
        let crossing = change("m-Yes", Side::Buy, level(430_000, size));
        let findings = feed.apply(at(2, VenueChange::Levels(vec![crossing])));
        assert_eq!(findings[..], [("m-Yes".into(), finding)]);
        assert!(published(&feed, 0).unwrap().stale);
    }
}

#[test]
fn what_proves_a_book_proves_its_mirror() {
    let (bid, ask) = (level(400_000, 5), level(420_000, 6));
    let mirrored = [level(580_000, 6)];
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(at(1, book_event("m-Yes", &[bid], &[ask])));
    feed.apply(at(1, book_event("m-No", &mirrored, &[level(600_000, 5)])));
    feed.apply(at(2, VenueChange::Stale { token_id: "m-No".into() }));
    let findings = feed.apply(at(3, book_event("m-Yes", &[bid], &[ask])));
    assert_eq!(findings[..], [("m-Yes".into(), Finding::Proven), ("m-No".into(), Finding::Proven)]);
    assert!(!published(&feed, 1).unwrap().stale);
    feed.apply(at(4, VenueChange::Stale { token_id: "m-No".into() }));
    feed.apply(at(5, book_event("m-Yes", &[bid], &[])));
    assert!(published(&feed, 1).unwrap().stale, "they are not mirrors any more");
}

#[test]
fn a_new_tick_counts_in_the_next_hash() {
    let bid = level(400_000, 1_500_000);
    let mut feed = feed_with(MismatchPolicy::Count);
    let mut told = hashed_book(1, bid, Some(price(420_000)), "".into());
    if let VenueChange::Book(book) = &mut told.change {
        (book.tick, book.hash) = (Some(price(10_000)), None);
    }
    feed.apply(told);
    let finer = MarketInfo { tick: price(1_000), ..info("m") };
    feed.apply(at(2, VenueChange::Listed(vec![finer])));
    feed.apply(hashed_book(3, bid, None, hash_of(3, bid, 1_000, Some(420_000))));
    assert_eq!(feed.counts().hashes_verified, 1);
}

#[test]
fn one_bad_description_keeps_no_other_out() {
    let mut feed = feed_with(MismatchPolicy::Count);
    let mut three = info("m");
    three.outcomes.push(Outcome { label: "Maybe".into(), token_id: "x".into() });
    let closed = MarketInfo { status: MarketStatus::Closed, ..info("n") };
    let mut again = closed.clone();
    again.outcomes.pop();
    feed.apply(at(1, VenueChange::Listed(vec![three, closed, again])));
    assert_eq!(feed.counts().markets_refused, 2);
    let market = feed.markets().by_condition("n").unwrap();
    assert_eq!(market.info().status, MarketStatus::Closed);
    let known = feed.markets().by_condition("m").unwrap();
    assert_eq!(known.info().outcomes.len(), 2);
    assert_eq!(known.info().status, MarketStatus::Paused, "its tokens are others now");
}

/// A time that cannot be is not the book's: what comes after it is not late.
#[test]
fn a_book_does_not_take_a_time_that_cannot_be() {
    let mut feed = feed_with(MismatchPolicy::Distrust);
    let bid = [level(400_000, 5)];
    feed.apply(at(10, book_event("m-Yes", &bid, &[])));
    let add = |price| VenueChange::Levels(vec![change("m-Yes", Side::Buy, level(price, 5))]);
    let future = at(1_000_000, add(410_000));
    feed.apply_as_of(future, at(7, add(0)).at);
    assert_eq!(published(&feed, 0).unwrap().updated_at, at(10, add(0)).at, "it is not set back");
    feed.apply_as_of(at(1_000_000, add(420_000)), at(12, add(0)).at);
    assert_eq!(published(&feed, 0).unwrap().updated_at, at(12, add(0)).at);
    feed.apply(at(13, add(430_000)));
    let best = published(&feed, 0).unwrap().ladder().best_bid().unwrap();
    assert_eq!((best.price, feed.counts().late), (price(430_000), 0));
    // Its hash covers the time that was told.
    let hash = hash_of(1_000_000, bid[0], 10_000, Some(420_000));
    let told = hashed_book(1_000_000, bid[0], Some(price(420_000)), hash);
    let findings = feed.apply_as_of(told, at(14, add(0)).at);
    assert_eq!(findings[0].1, Finding::Proven);
    assert_eq!(feed.counts().hashes_verified, 1);
}

/// Whichever venue tells them: a market is listed with texts that an order can be journaled with.
#[test]
fn a_text_that_is_too_long_is_not_listed() {
    let mut feed = feed_with(MismatchPolicy::Count);
    let mut label = info("a");
    label.outcomes[1].label = "x".repeat(270_000).into();
    let mut token = info("b");
    token.outcomes[1].token_id = "x".repeat(81).into();
    let question = MarketInfo { question: Some("x".repeat(270_000).into()), ..info("c") };
    feed.apply(at(1, VenueChange::Listed(vec![label, token, question, info("d")])));
    assert_eq!(feed.counts().markets_refused, 3);
    let is_listed = |id: &str| feed.markets().by_condition(id).is_some();
    assert_eq!(["a", "b", "c", "d"].map(is_listed), [false, false, false, true]);
}

#[derive(Clone, Debug)]
enum Step {
    Replace(Vec<(i64, i64)>, Vec<(i64, i64)>),
    Change(Vec<(bool, i64, i64)>),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let side = || prop::collection::vec((1_i64..20, 0_i64..3), 0..6);
    let step = prop_oneof![
        1 => (side(), side()).prop_map(|(bids, asks)| Step::Replace(bids, asks)),
        6 => prop::collection::vec((any::<bool>(), 1_i64..20, 0_i64..3), 1..5)
            .prop_map(Step::Change),
    ];
    prop::collection::vec(step, 1..40)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(128))]

    /// Two maps are the naive book; its crossed levels are left out one by one.
    #[test]
    fn the_feed_agrees_with_maps(steps in steps()) {
        let mut feed = feed_with(MismatchPolicy::Count);
        let mut naive: Option<[BTreeMap<i64, i64>; 2]> = None;
        let mut newest = None;
        let mut sequence = 0;
        for step in steps {
            match step {
                Step::Replace(bids, asks) => {
                    let maps = [bids, asks].map(|side| {
                        side.into_iter().filter(|&(_, size)| size > 0).collect::<BTreeMap<_, _>>()
                    });
                    let levels = |map: &BTreeMap<i64, i64>| -> Vec<Level> {
                        map.iter().map(|(&price, &size)| level(price * 10_000, size)).collect()
                    };
                    let told = book_event("m-Yes", &levels(&maps[0]), &levels(&maps[1]));
                    feed.apply(at(1, told));
                    (naive, newest, sequence) = (Some(maps), None, sequence + 1);
                }
                Step::Change(entries) => {
                    let told = entries.iter().map(|&(is_bid, price, size)| {
                        let side = if is_bid { Side::Buy } else { Side::Sell };
                        change("m-Yes", side, level(price * 10_000, size))
                    });
                    feed.apply(at(1, VenueChange::Levels(told.collect())));
                    let Some(maps) = &mut naive else { continue };
                    sequence += 1;
                    for (is_bid, price, size) in entries {
                        let map = &mut maps[usize::from(!is_bid)];
                        if size == 0 {
                            map.remove(&price);
                        } else {
                            map.insert(price, size);
                            newest = Some(is_bid);
                        }
                    }
                }
            }
            let Some([mut bids, mut asks]) = naive.clone() else { continue };
            let top = bids.keys().next_back().copied().unwrap_or(0);
            let bottom = asks.keys().next().copied().unwrap_or(100);
            if top >= bottom {
                if newest != Some(true) { bids.retain(|&price, _| price < bottom); }
                if newest != Some(false) { asks.retain(|&price, _| price > top); }
            }
            let book = published(&feed, 0).unwrap();
            let seen = |levels: &[Level]| -> BTreeMap<i64, i64> {
                let pair = |level: &Level| (level.price.micros() / 10_000, level.size.micros());
                levels.iter().map(pair).collect()
            };
            prop_assert_eq!(seen(book.ladder().bids()), bids);
            prop_assert_eq!(seen(book.ladder().asks()), asks);
            prop_assert!(!book.ladder().is_crossed());
            prop_assert_eq!(book.sequence, sequence);
        }
    }
}
