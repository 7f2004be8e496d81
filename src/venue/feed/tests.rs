mod ahead;

use std::collections::BTreeMap;
use std::fmt::Write;

use proptest::prelude::*;

use super::*;
use crate::polymarket::hash::{BookHasher, HASH_TEXT_BYTES};
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::market::book::{Book, BookHash, Level, Side};
use paperbourse_core::market::catalogue::{MarketStatus, Outcome};

pub(super) fn price(micros: i64) -> Price {
    Price::from_micros(micros)
}

pub(super) fn level(price_micros: i64, size_micros: i64) -> Level {
    Level { price: price(price_micros), size: Shares::from_micros(size_micros) }
}

pub(super) fn info(condition_id: &str) -> MarketInfo {
    let outcomes = ["Yes", "No"].map(|label| Outcome {
        label: label.into(),
        token_id: format!("{condition_id}-{label}").into(),
    });
    MarketInfo::bare(condition_id, outcomes)
}

pub(super) fn at(millis: i64, change: VenueChange) -> VenueEvent {
    VenueEvent { at: Timestamp::from_millis(millis), change }
}

pub(super) fn feed_with(policy: MismatchPolicy) -> Feed {
    let mut feed = Feed::new(Arc::new(Markets::new()), policy);
    feed.verify_with(BookHasher::default());
    feed.apply(at(0, VenueChange::Listed(vec![info("m")])));
    feed
}

pub(super) fn book_event(token_id: &str, bids: &[Level], asks: &[Level]) -> VenueChange {
    let ladder = Ladder::from_levels(bids.to_vec(), asks.to_vec()).unwrap();
    VenueChange::Book(BookReplaced::new(token_id.into(), ladder))
}

pub(super) fn change(token_id: &str, side: Side, level: Level) -> LevelChanged {
    LevelChanged {
        token_id: token_id.into(),
        side,
        price: level.price,
        size: level.size,
        hash: None,
        top: None,
    }
}

pub(super) fn trade(token_id: &str, price_micros: i64) -> VenueChange {
    VenueChange::Traded {
        token_id: token_id.into(),
        price: price(price_micros),
        size: Shares::from_micros(7),
        side: Some(Side::Buy),
    }
}

pub(super) fn published(feed: &Feed, outcome: u8) -> Option<Arc<Book>> {
    let market = feed.markets().by_condition("m").unwrap();
    market.book(OutcomeIndex(outcome)).clone()
}

/// The venue's hash of a book with one bid.
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
        write!(hex, "{byte:02x}").expect("writing to a String cannot fail");
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
            hash: Some(hash),
            newest_trade: last_trade_price.map(NewestTrade::At),
            ..BookReplaced::new("m-Yes".into(), Ladder::from_levels(vec![bid], Vec::new()).unwrap())
        }),
    )
}

#[test]
fn an_event_publishes_each_touched_book_once() {
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
    assert!(published(&feed, 1).is_none(), "level changes alone make no book");
    let counts = feed.counts();
    assert_eq!(
        (counts.level_changes, counts.level_changes_without_book, counts.level_changes_refused),
        (3, 1, 1)
    );
    assert_eq!(counts.removals_of_nothing, 1);
}

#[test]
fn events_for_unlisted_tokens_are_ignored() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(at(1, book_event("unlisted", &[level(400_000, 1)], &[])));
    feed.apply(at(2, trade("unlisted", 400_000)));
    feed.apply(at(3, VenueChange::Stale { token_id: "unlisted".into() }));
    assert_eq!(feed.counts().unlisted, 3);
    assert!(feed.tokens.is_empty());
}

#[test]
fn a_trade_changes_no_level() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(at(1, trade("m-Yes", 450_000)));
    assert!(published(&feed, 0).is_none());
    feed.apply(at(2, book_event("m-Yes", &[level(400_000, 1)], &[])));
    let before = published(&feed, 0).unwrap();
    assert_eq!(before.last_trade.unwrap().price, price(450_000));
    feed.apply(at(3, trade("m-Yes", 400_000)));
    let book = published(&feed, 0).unwrap();
    assert_eq!(book.ladder(), before.ladder());
    let newest = book.last_trade.unwrap();
    assert_eq!((newest.price, newest.size.micros(), newest.at.millis()), (price(400_000), 7, 3));
    assert_eq!((book.sequence, book.updated_at.millis()), (2, 2));
}

#[test]
fn readers_never_see_a_crossed_book() {
    let bids = [level(400_000, 1), level(450_000, 2)];
    let asks = [level(470_000, 3), level(460_000, 4)];
    for (crossing, expected_bids, expected_asks) in [
        // The newest level stays; the levels that it has consumed on the other side are removed.
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
fn crossed_levels_return_when_the_crossing_level_is_removed() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(at(1, book_event("m-Yes", &[], &[level(460_000, 4)])));
    for (size, ask_count) in [(9, 0), (0, 1)] {
        let entry = change("m-Yes", Side::Buy, level(460_000, size));
        feed.apply(at(2, VenueChange::Levels(vec![entry])));
        assert_eq!(published(&feed, 0).unwrap().ladder().asks().len(), ask_count);
    }
}

#[test]
fn a_hash_is_compared_with_the_book() {
    let bid = level(400_000, 1_500_000);
    let tick = 10_000;
    for (last_trade_micros, hash, expected) in [
        (Some(420_000), hash_of(5, bid, tick, Some(420_000)), (1, 0, 0)),
        (None, hash_of(5, bid, tick, None), (1, 0, 0)),
        // Without the newest trade's price, the hash cannot be checked.
        (None, hash_of(5, bid, tick, Some(420_000)), (0, 0, 1)),
        (Some(420_000), hash_of(5, bid, tick, Some(430_000)), (0, 1, 0)),
        (Some(420_000), hash_of(6, bid, tick, Some(420_000)), (0, 1, 0)),
        (Some(420_000), hash_of(5, bid, 1_000, Some(420_000)), (0, 1, 0)),
    ] {
        let mut feed = feed_with(MismatchPolicy::Count);
        feed.apply(hashed_book(5, bid, last_trade_micros.map(price), hash.clone()));
        let counts = feed.counts();
        let actual = (counts.hashes_verified, counts.hashes_mismatched, counts.hashes_unchecked);
        assert_eq!(actual, expected);
        let book = published(&feed, 0).unwrap();
        assert!(!book.stale, "a recording is its own present");
        let shown = BookHash { text: hash, last_trade_price: last_trade_micros.map(price) };
        assert_eq!(book.hash, (expected.0 == 1).then_some(shown));
    }
}

#[test]
fn a_late_trade_explains_a_hash() {
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
    // If the trade arrives early, the next hash still covers the previous price.
    let text = hash_of(7, left, 10_000, Some(420_000));
    feed.apply(hashed_book(7, left, None, text.clone()));
    assert_eq!((feed.counts().hashes_verified, feed.counts().hashes_mismatched), (3, 0));
    // A later trade leaves the hash with the trade that it covers.
    feed.apply(at(8, trade("m-Yes", 410_000)));
    let book = published(&feed, 0).unwrap();
    assert_eq!((book.stale, book.last_trade.unwrap().price), (false, price(410_000)));
    assert_eq!(book.hash, Some(BookHash { text, last_trade_price: Some(price(420_000)) }));
}

#[test]
fn a_contradicted_book_is_stale_until_it_is_proven() {
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
        // Matching best prices do not prove the other levels.
        (5, None, Some((Some(400_000), None)), Agrees, true),
        (6, right(6), None, Proven, false),
        (7, None, Some((Some(390_000), None)), Contradicted, true),
        (8, right(8), None, Proven, false),
        (9, None, Some((Some(400_000), Some(500_000))), Contradicted, true),
        // A hash outweighs the best prices, which may be of another moment.
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

/// After a trade the venue repeats the book with a hash that covers the trade's price, and sends
/// the trade itself later.
#[test]
fn a_book_that_is_repeated_before_its_trade_stays_fresh() {
    let (bid, other) = (level(400_000, 1_500_000), level(410_000, 1_500_000));
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(hashed_book(1, bid, Some(price(420_000)), hash_of(1, bid, 10_000, Some(420_000))));
    for (millis, bid, finding, is_stale) in [
        (2, bid, Finding::Agrees, false),
        // If the levels differ too, the mismatch counts.
        (3, other, Finding::Contradicted, true),
        (4, other, Finding::Contradicted, true),
    ] {
        let book = hashed_book(millis, bid, None, hash_of(millis, bid, 10_000, Some(430_000)));
        assert_eq!(feed.apply(book)[..], [("m-Yes".into(), finding)], "at {millis}");
        assert_eq!(published(&feed, 0).unwrap().stale, is_stale, "at {millis}");
    }
}

/// Once a hash without a trade's price has matched, no unknown price can explain a mismatch.
#[test]
fn a_hash_can_contradict_a_book_without_trades() {
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

/// The hashes of both tokens cover the price of the market's newest trade in either token.
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
    assert_eq!(own.price, price(420_000), "the book shows the trade of its own token");
}

#[test]
fn best_prices_are_compared_with_the_book() {
    let mut feed = feed_with(MismatchPolicy::Distrust);
    let top = |bid| VenueChange::Top {
        token_id: "m-Yes".into(),
        top: Top { bid: Some(price(bid)), ask: None },
    };
    assert!(feed.apply(at(1, top(400_000))).is_empty(), "there is no book yet");
    feed.apply(at(1, book_event("m-Yes", &[level(400_000, 5)], &[])));
    for (bid, finding) in [(400_000, Finding::Agrees), (410_000, Finding::Ahead)] {
        assert_eq!(feed.apply(at(2, top(bid)))[..], [("m-Yes".into(), finding)]);
    }
    assert!(!published(&feed, 0).unwrap().stale);
}

#[test]
fn events_older_than_the_book_are_ignored() {
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
    // After a reconnect, the venue's clock may have been set back.
    feed.forget_levels("m-Yes");
    feed.apply(at(9, book_event("m-Yes", &[other], &[])));
    assert_eq!(published(&feed, 0).unwrap().ladder().bids(), [other]);
    feed.apply(at(9, late));
    assert_eq!(published(&feed, 0).unwrap().ladder().bids(), [other]);
}

#[test]
fn a_crossed_book_contradicts_itself() {
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
fn proof_of_a_book_proves_its_mirror() {
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
    assert!(published(&feed, 1).unwrap().stale, "the books no longer mirror each other");
}

#[test]
fn the_next_hash_covers_a_new_tick() {
    let bid = level(400_000, 1_500_000);
    let mut feed = feed_with(MismatchPolicy::Count);
    let mut event = hashed_book(1, bid, Some(price(420_000)), "".into());
    if let VenueChange::Book(book) = &mut event.change {
        (book.tick, book.hash) = (Some(price(10_000)), None);
    }
    feed.apply(event);
    let finer = MarketInfo { tick: price(1_000), ..info("m") };
    feed.apply(at(2, VenueChange::Listed(vec![finer])));
    feed.apply(hashed_book(3, bid, None, hash_of(3, bid, 1_000, Some(420_000))));
    assert_eq!(feed.counts().hashes_verified, 1);
    // What else a hash covers, readers take from the description.
    feed.apply(at(4, VenueChange::Listed(vec![info("m")])));
    assert_eq!(published(&feed, 0).unwrap().hash, None, "the tick is another one");
    let mut event = hashed_book(5, bid, None, hash_of(5, bid, 1_000, Some(420_000)));
    if let VenueChange::Book(book) = &mut event.change {
        book.tick = Some(price(1_000));
    }
    feed.apply(event);
    assert_eq!(feed.counts().hashes_verified, 2);
    assert_eq!(published(&feed, 0).unwrap().hash, None, "the description will follow");
}

#[test]
fn an_invalid_description_does_not_affect_the_others() {
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
    assert_eq!(known.info().status, MarketStatus::Paused, "its tokens differ now");
}

/// Otherwise every later event would be late.
#[test]
fn a_book_does_not_take_an_impossible_timestamp() {
    let mut feed = feed_with(MismatchPolicy::Distrust);
    let bid = [level(400_000, 5)];
    feed.apply(at(10, book_event("m-Yes", &bid, &[])));
    let add = |price| VenueChange::Levels(vec![change("m-Yes", Side::Buy, level(price, 5))]);
    let future = at(1_000_000, add(410_000));
    feed.apply_as_of(future, at(7, add(0)).at);
    assert_eq!(
        published(&feed, 0).unwrap().updated_at,
        at(10, add(0)).at,
        "the book is not set back"
    );
    feed.apply_as_of(at(1_000_000, add(420_000)), at(12, add(0)).at);
    assert_eq!(published(&feed, 0).unwrap().updated_at, at(12, add(0)).at);
    feed.apply(at(13, add(430_000)));
    let best = published(&feed, 0).unwrap().ladder().best_bid().unwrap();
    assert_eq!((best.price, feed.counts().late), (price(430_000), 0));
    // The hash covers the venue's own timestamp.
    let hash = hash_of(1_000_000, bid[0], 10_000, Some(420_000));
    let book = hashed_book(1_000_000, bid[0], Some(price(420_000)), hash);
    let findings = feed.apply_as_of(book, at(14, add(0)).at);
    assert_eq!(findings[0].1, Finding::Proven);
    assert_eq!(feed.counts().hashes_verified, 1);
    assert_eq!(published(&feed, 0).unwrap().hash, None, "readers see another timestamp");
}

/// Orders journal these texts, so their length is limited for every venue.
#[test]
fn a_market_with_an_overlong_text_is_not_listed() {
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

    /// The model is a naive book of two maps, uncrossed level by level.
    #[test]
    fn the_feed_agrees_with_a_naive_model(steps in steps()) {
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
                    let book = book_event("m-Yes", &levels(&maps[0]), &levels(&maps[1]));
                    feed.apply(at(1, book));
                    (naive, newest, sequence) = (Some(maps), None, sequence + 1);
                }
                Step::Change(entries) => {
                    let changes = entries.iter().map(|&(is_bid, price, size)| {
                        let side = if is_bid { Side::Buy } else { Side::Sell };
                        change("m-Yes", side, level(price * 10_000, size))
                    });
                    feed.apply(at(1, VenueChange::Levels(changes.collect())));
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
