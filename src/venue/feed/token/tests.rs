//! What the feed records of prices, and takes along to other markets.

use std::sync::Arc;

use crate::feed::tests::{at, book_event, change, feed_with, info, level, price, trade};
use crate::feed::{Feed, MismatchPolicy};
use crate::{VenueChange, VenueEvent};
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::market::Markets;
use paperbourse_core::market::book::Side;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::history::candle::{Candle, Span, Width};
use paperbourse_core::market::history::{History, PriceRecord};
use paperbourse_core::money::Price;

const ALWAYS: Span = Span { from: i64::MIN, to: i64::MAX, present: None };

/// Minute, open, high, low and close, the prices in tenths of a cent.
type Row = (i64, [i64; 4]);

fn row(candle: &Candle) -> Row {
    let Candle { start, open, high, low, close, .. } = *candle;
    (start / 60, [open, high, low, close].map(|price| price.micros() / 1_000))
}

#[track_caller]
fn check(feed: &Feed, outcome: u8, expected: &[Row]) {
    let market = feed.markets().by_condition("m").unwrap();
    let minutes = Width::minutes(1).unwrap();
    let candles = feed.markets().candles(&market, OutcomeIndex(outcome), minutes, ALWAYS);
    assert_eq!(candles.iter().map(row).collect::<Vec<_>>(), expected);
}

fn minute(number: i64, change: VenueChange) -> VenueEvent {
    at(number * 60_000 + 500, change)
}

fn book(bid: i64, ask: i64) -> VenueChange {
    let level = |price| level(price, 1_000_000);
    let side = |price: i64| if price == 0 { vec![] } else { vec![level(price)] };
    book_event("m-Yes", &side(bid), &side(ask))
}

fn listed(status: MarketStatus, payouts: &[i64]) -> VenueChange {
    let payouts = payouts.iter().map(|&payout| price(payout)).collect();
    VenueChange::Listed(vec![MarketInfo { status, payouts, ..info("m") }])
}

#[test]
fn a_book_that_is_published_shows_its_price_from_then_on() {
    let mut feed = feed_with(MismatchPolicy::Count);
    check(&feed, 0, &[]);
    feed.apply(minute(1, book(400_000, 500_000)));
    feed.apply(minute(1, book(400_000, 600_000)));
    feed.apply(minute(3, book(400_000, 410_000)));
    let expected = [(1, [450, 500, 450, 500]), (2, [500; 4]), (3, [500, 500, 405, 405])];
    check(&feed, 0, &expected);
    // The other outcome has no book.
    check(&feed, 1, &[(1, [550, 550, 500, 500]), (2, [500; 4]), (3, [500, 595, 500, 595])]);
    // Nothing changes but the time.
    feed.apply(minute(4, book(400_000, 410_000)));
    feed.apply(minute(5, VenueChange::Stale { token_id: "m-Yes".into() }));
    check(&feed, 0, &[&expected[..], &[(4, [405; 4])]].concat());
}

#[test]
fn a_trade_is_the_price_of_a_book_that_lacks_a_side() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(minute(1, book(400_000, 500_000)));
    feed.apply(minute(2, trade("m-Yes", 440_000)));
    check(&feed, 0, &[(1, [450; 4]), (2, [450; 4])]);
    feed.apply(minute(9, book(400_000, 0)));
    feed.apply(minute(10, trade("m-Yes", 430_000)));
    let market = feed.markets().by_condition("m").unwrap();
    let ten = Width::minutes(10).unwrap();
    let candles = feed.markets().candles(&market, OutcomeIndex(0), ten, ALWAYS);
    let rows: Vec<Row> = candles.iter().map(row).collect();
    assert_eq!(rows, [(0, [450, 450, 440, 440]), (10, [440, 440, 430, 430])]);
}

#[test]
fn a_resolved_market_ends_at_its_payout() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(minute(1, book(400_000, 500_000)));
    feed.apply(minute(2, listed(MarketStatus::Resolved, &[1_000_000, 0])));
    feed.apply(minute(3, book(100_000, 200_000)));
    feed.apply(minute(4, listed(MarketStatus::Resolved, &[1_000_000, 0])));
    check(&feed, 0, &[(1, [450; 4]), (2, [450, 1_000, 450, 1_000])]);
    check(&feed, 1, &[(1, [550; 4]), (2, [550, 550, 0, 0])]);
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.apply(minute(1, book(400_000, 500_000)));
    feed.apply(minute(2, listed(MarketStatus::Closed, &[])));
    feed.apply(minute(5, VenueChange::Listed(vec![info("n")])));
    check(&feed, 0, &[(1, [450; 4])]);
}

#[test]
fn a_restart_continues_what_is_known_of_a_token() {
    let mut first = feed_with(MismatchPolicy::Count);
    for (hour, ask) in [(0, 500_000), (1, 600_000), (2, 520_000)] {
        first.apply(minute(60 * hour, book(400_000, ask)));
    }
    let market = first.markets().by_condition("m").unwrap();
    let record = first.markets().price_record(&market, OutcomeIndex(0)).unwrap();
    let hours = record.history.hours().copied().collect();
    let history = Arc::new(History::resuming(hours));
    let records = [("m-Yes".into(), PriceRecord { history, ..record })];
    let markets = Arc::new(Markets::new().with_histories(records));
    assert_eq!(markets.unlisted_records(0).len(), 1);
    let mut second = Feed::new(markets, MismatchPolicy::Count);
    second.apply(at(0, VenueChange::Listed(vec![info("m")])));
    assert_eq!(second.markets().unlisted_records(0).len(), 0);
    second.apply(minute(60 * 4, book(400_000, 520_000)));
    let market = second.markets().by_condition("m").unwrap();
    let hours = Width::hours(1).unwrap();
    let candles = second.markets().candles(&market, OutcomeIndex(0), hours, ALWAYS);
    let expected = [
        (0, [450; 4]),
        (60, [450, 500, 450, 500]),
        (120, [500, 500, 460, 460]),
        (180, [460; 4]),
        (240, [460; 4]),
    ];
    assert_eq!(candles.iter().map(row).collect::<Vec<_>>(), expected);
    // A token that stays unlisted is forgotten once it is too old.
    let records =
        [("gone".into(), second.markets().price_record(&market, OutcomeIndex(0)).unwrap())];
    let markets = Markets::new().with_histories(records);
    assert_eq!(markets.unlisted_records(4).len(), 1);
    assert_eq!(markets.unlisted_records(5).len(), 0);
}

/// As when a server takes over: what the shards know comes after the venue's books.
#[test]
fn a_feed_moves_to_other_markets_with_all_that_it_knows() {
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(at(1, VenueChange::Listed(vec![info("a"), info("b")])));
    let ask = level(600_000, 5_000_000);
    for id in ["m-Yes", "a-Yes", "b-No"] {
        feed.apply(at(2, book_event(id, &[], &[ask])));
    }
    feed.apply(at(3, VenueChange::Stale { token_id: "a-Yes".into() }));
    let resolved = ["b-Yes", "b-No"].map(|token| (token.into(), Price::ONE)).to_vec();
    let mut traded = info("m").outcomes;
    traded.reverse();
    let markets = Markets::remembering([("b".into(), resolved)]);
    let markets = Arc::new(markets.with_traded([("m".into(), traded.clone())]));
    let before = feed.markets().clone();
    feed.move_to(markets.clone());

    let book = |id: &str, outcome: u8| {
        markets.by_condition(id).unwrap().book(OutcomeIndex(outcome)).clone()
    };
    assert_eq!(markets.listing().markets().len(), 3);
    // The outcomes of a market that was traded keep their order.
    let first = book("m", 1).expect("it was published");
    assert!(book("m", 0).is_none() && !first.stale);
    assert_eq!(first.ladder().best_ask(), Some(ask));
    assert!(book("a", 0).expect("it was published").stale);
    let status = |id: &str| markets.by_condition(id).unwrap().info().status;
    assert_eq!(status("b"), MarketStatus::Resolved);
    assert_eq!(markets.newest_price_at(), before.newest_price_at());
    // Later changes go there alone.
    feed.apply(at(4, VenueChange::Levels(vec![change("m-Yes", Side::Sell, level(500_000, 1))])));
    let best = book("m", 1).and_then(|book| book.ladder().best_ask());
    assert_eq!(best, Some(level(500_000, 1)));
    let old = before.by_condition("m").unwrap().book(OutcomeIndex(0)).clone();
    assert_eq!(old.and_then(|book| book.ladder().best_ask()), Some(ask));
}
