use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use super::*;
use crate::feed::tests::{at, book_event, change, feed_with, info, level, price, trade};
use crate::feed::{Feed, MismatchPolicy};
use crate::follow::books::Books;
use crate::{LevelChanged, VenueChange};
use paperbourse_core::ids::ShardId;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus};
use paperbourse_core::market::crossing::CROSSINGS_MAX;

/// A change and the shards of each crossing that it queues.
type Step = (i64, VenueChange, &'static [&'static [u8]]);

const YES: OutcomeIndex = OutcomeIndex(0);
const NO: OutcomeIndex = OutcomeIndex(1);

/// The best limit of a shard's orders in the market `m`, in cents.
fn rest(feed: &Feed, shard: u8, outcome: OutcomeIndex, side: Side, cents: i64) {
    let resting_limits = feed.markets().resting_limits(&"m".into(), 2);
    let shard = ShardId::new(shard).unwrap();
    resting_limits.set_best(outcome, side, shard, Some(price(cents * 10_000)));
}

fn taken(feed: &Feed) -> Vec<Crossing> {
    let mut context = Context::from_waker(Waker::noop());
    match pin!(feed.markets().crossings()).poll(&mut context) {
        Poll::Ready(crossings) => crossings,
        Poll::Pending => Vec::new(),
    }
}

/// Takes what waits: the shards of each crossing, each of which must carry the newest book.
fn shards(feed: &Feed, outcome: OutcomeIndex) -> Vec<Vec<u8>> {
    let check = |crossing: Crossing| {
        assert_eq!(crossing.outcome, outcome);
        let newest = crossing.market.book(outcome).clone();
        let is_newest = newest.zip(crossing.book).is_some_and(|(a, b)| Arc::ptr_eq(&a, &b));
        assert!(is_newest, "a crossing carries the published book");
        crossing.shards.iter().map(ShardId::get).collect()
    };
    taken(feed).into_iter().map(check).collect()
}

fn newest(feed: &Feed, outcome: OutcomeIndex) -> Arc<Book> {
    let market = feed.markets().by_condition("m").unwrap();
    market.book(outcome).clone().unwrap()
}

/// Sizes by price in cents.
fn sides(bids: &[(i64, i64)], asks: &[(i64, i64)]) -> VenueChange {
    let levels = |side: &[(i64, i64)]| -> Vec<_> {
        side.iter().map(|&(cents, size)| level(cents * 10_000, size)).collect()
    };
    book_event("m-Yes", &levels(bids), &levels(asks))
}

fn entry(side: Side, cents: i64, size: i64) -> LevelChanged {
    change("m-Yes", side, level(cents * 10_000, size))
}

fn ask(cents: i64, size: i64) -> VenueChange {
    VenueChange::Levels(vec![entry(Side::Sell, cents, size)])
}

fn bid(cents: i64, size: i64) -> VenueChange {
    VenueChange::Levels(vec![entry(Side::Buy, cents, size)])
}

fn stale() -> VenueChange {
    VenueChange::Stale { token_id: "m-Yes".into() }
}

fn status(status: MarketStatus) -> VenueChange {
    VenueChange::Listed(vec![MarketInfo { status, ..info("m") }])
}

/// Shard 1 buys at 0.45, shard 2 at 0.40, shard 3 sells at 0.50.
fn feed_with_orders(policy: MismatchPolicy) -> Feed {
    let mut feed = feed_with(policy);
    feed.apply(at(1, sides(&[(30, 10)], &[(60, 10)])));
    rest(&feed, 1, YES, Side::Buy, 45);
    rest(&feed, 2, YES, Side::Buy, 40);
    rest(&feed, 3, YES, Side::Sell, 50);
    feed
}

/// Applies each change at its time in milliseconds and compares the shards of what is queued.
#[track_caller]
fn check<const COUNT: usize>(feed: &mut Feed, steps: [Step; COUNT]) {
    for (millis, change, expected) in steps {
        feed.apply(at(millis, change));
        assert_eq!(shards(feed, YES), expected, "at {millis}");
    }
}

#[test]
fn a_level_that_grows_is_queued_for_the_limits_that_it_reaches() {
    let gone = [40, 45, 46].map(|cents| entry(Side::Sell, cents, 0));
    let both = vec![entry(Side::Sell, 55, 1), entry(Side::Buy, 51, 2)];
    let mut feed = feed_with_orders(MismatchPolicy::Count);
    check(
        &mut feed,
        [
            (2, ask(46, 10), &[]),
            (3, ask(45, 10), &[&[1]]),
            (4, ask(45, 4), &[]),
            (5, ask(45, 5), &[&[1]]),
            (6, ask(45, 5), &[]),
            (7, trade("m-Yes", 450_000), &[]),
            (8, ask(40, 1), &[&[1, 2]]),
            // Only what has grown counts, not the touch.
            (9, ask(45, 6), &[&[1]]),
            (10, ask(46, 11), &[]),
            (11, ask(40, 0), &[]),
            // An order may have come while it was gone.
            (12, ask(40, 1), &[&[1, 2]]),
            (13, VenueChange::Levels(gone.to_vec()), &[]),
            (14, bid(49, 3), &[]),
            (15, bid(50, 3), &[&[3]]),
            (16, bid(50, 2), &[]),
            (17, VenueChange::Levels(both), &[&[3]]),
            (18, sides(&[(50, 1)], &[(55, 1)]), &[]),
            (19, sides(&[(50, 1)], &[(55, 1)]), &[]),
            (20, sides(&[(50, 2)], &[(55, 1)]), &[&[3]]),
        ],
    );
}

#[test]
fn a_level_that_flickers_is_queued_and_has_not_grown() {
    let mut feed = feed_with_orders(MismatchPolicy::Count);
    let era = newest(&feed, YES).era;
    for (millis, size, is_queued, grown) in [
        (100, 10, true, 10),
        (200, 0, false, 0),
        (1_199, 10, true, 10),
        (1_200, 0, false, 0),
        (1_300, 12, true, 12),
        (1_400, 0, false, 0),
        (2_400, 12, true, 24),
        (2_500, 5, false, 24),
    ] {
        feed.apply(at(millis, ask(45, size)));
        let expected: &[&[u8]] = if is_queued { &[&[1]] } else { &[] };
        assert_eq!(shards(&feed, YES), expected, "at {millis}");
        let book = newest(&feed, YES);
        assert_eq!(book.grown(Side::Sell, price(450_000)), grown, "at {millis}");
        assert_eq!((book.grown(Side::Sell, price(600_000)), book.era), (0, era));
    }
}

#[test]
fn an_era_ends_where_growth_is_unknown() {
    let mut feed = feed_with(MismatchPolicy::Distrust);
    let first = sides(&[(30, 10)], &[(60, 10)]);
    let mut now = 0;
    let mut shown = |feed: &mut Feed, change| {
        now += 1;
        feed.apply(at(now, change));
        let book = newest(feed, YES);
        (book.era, book.grown(Side::Buy, price(300_000)))
    };
    // Without orders, each change is the end of one.
    assert_eq!(shown(&mut feed, first.clone()), (1, 0));
    assert_eq!(shown(&mut feed, bid(30, 11)), (2, 0));
    assert_eq!(shown(&mut feed, trade("m-Yes", 300_000)), (2, 0), "no level has changed");
    assert_eq!(shown(&mut feed, bid(30, 11)), (2, 0));
    // The first order was judged on the newest book, so the first change counts.
    rest(&feed, 1, YES, Side::Buy, 45);
    assert_eq!(shown(&mut feed, bid(30, 13)), (2, 2));
    assert_eq!(shown(&mut feed, sides(&[(30, 16)], &[])), (2, 5), "a full book is a change");
    assert_eq!(shown(&mut feed, stale()), (2, 5));
    let same = sides(&[(30, 16)], &[]);
    assert_eq!(shown(&mut feed, same), (2, 5), "what is repeated has not grown");
    assert_eq!(shown(&mut feed, stale()), (2, 5));
    assert_eq!(shown(&mut feed, bid(30, 17)), (2, 6));
    assert_eq!(shown(&mut feed, first.clone()), (3, 0), "it replaces a stale book");
    assert_eq!(shown(&mut feed, bid(30, 11)), (3, 1));
    feed.forget_levels("m-Yes");
    assert_eq!(shown(&mut feed, first), (4, 0));
}

#[test]
fn a_book_that_is_fresh_again_is_queued_for_all_orders() {
    let book = || sides(&[(30, 10)], &[(60, 10)]);
    let mut feed = feed_with_orders(MismatchPolicy::Distrust);
    check(
        &mut feed,
        [
            (2, stale(), &[]),
            (3, ask(40, 10), &[]),
            (4, book(), &[&[1, 2, 3]]),
            (5, trade("m-Yes", 450_000), &[]),
            (6, book(), &[]),
            (7, stale(), &[]),
            (8, stale(), &[]),
            (9, book(), &[&[1, 2, 3]]),
            // Its sides cross, so it is stale until it is replaced.
            (10, ask(20, 1), &[]),
            (11, ask(20, 0), &[]),
            (12, sides(&[(30, 10)], &[(45, 10)]), &[&[1, 2, 3]]),
            (13, sides(&[(30, 10)], &[(45, 10), (50, 1)]), &[]),
        ],
    );
}

#[test]
fn levels_that_were_hidden_count_as_grown() {
    let mut feed = feed_with_orders(MismatchPolicy::Count);
    check(
        &mut feed,
        [
            (2, ask(45, 1), &[&[1]]),
            // It hides the ask.
            (3, bid(47, 1), &[]),
            (4, bid(47, 0), &[&[1]]),
            (5, bid(47, 1), &[]),
            // A level that grows behind it is hidden too.
            (6, VenueChange::Levels(vec![entry(Side::Sell, 45, 2), entry(Side::Buy, 47, 2)]), &[]),
            (7, ask(45, 1), &[&[1]]),
            // In a full book both sides are hidden.
            (8, sides(&[(51, 1)], &[(39, 1)]), &[]),
            (9, bid(51, 0), &[&[1, 2]]),
        ],
    );
}

#[test]
fn the_other_outcome_trades_on_the_mirror_until_it_has_a_book() {
    let no_book = |bid: (i64, i64), ask: (i64, i64)| {
        let level = |(cents, size)| [level(cents * 10_000, size)];
        book_event("m-No", &level(bid), &level(ask))
    };
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(at(1, sides(&[(30, 10)], &[(60, 10)])));
    rest(&feed, 1, YES, Side::Buy, 45);
    rest(&feed, 4, NO, Side::Sell, 55);
    rest(&feed, 5, NO, Side::Buy, 65);
    check(
        &mut feed,
        [
            (2, ask(46, 1), &[]),
            (3, ask(45, 1), &[&[1, 4]]),
            (4, bid(34, 1), &[]),
            (5, bid(35, 1), &[&[5]]),
            (6, stale(), &[]),
            (7, sides(&[(35, 1)], &[(60, 10)]), &[&[1, 4, 5]]),
        ],
    );
    feed.apply(at(8, no_book((40, 10), (70, 10))));
    assert_eq!(shards(&feed, NO), [[4, 5]], "it is its first book");
    check(&mut feed, [(9, ask(45, 1), &[&[1]]), (10, bid(36, 1), &[])]);
    feed.apply(at(11, no_book((55, 10), (70, 10))));
    assert_eq!(shards(&feed, NO), [[4]]);
}

#[test]
fn a_market_that_opens_again_is_looked_at_again() {
    let mut feed = feed_with_orders(MismatchPolicy::Count);
    check(&mut feed, [(2, status(MarketStatus::Paused), &[]), (3, ask(40, 1), &[])]);
    feed.apply(at(4, status(MarketStatus::Open)));
    let crossings = taken(&feed);
    assert_eq!(crossings.len(), 1);
    assert!(crossings[0].book.is_none());
    assert_eq!(format!("{:?}", crossings[0].shards), "{1, 2, 3}");
}

#[test]
fn orders_that_rest_before_their_market_is_listed_wait_for_its_first_book() {
    let markets = Arc::new(Markets::new());
    let mut feed = Feed::new(markets, MismatchPolicy::Distrust);
    rest(&feed, 2, YES, Side::Buy, 40);
    feed.apply(at(1, VenueChange::Listed(vec![info("m")])));
    assert!(taken(&feed).iter().all(|crossing| crossing.book.is_none()));
    check(
        &mut feed,
        [
            (2, sides(&[(30, 10)], &[(60, 10)]), &[&[2]]),
            (3, ask(41, 1), &[]),
            (4, ask(40, 1), &[&[2]]),
        ],
    );
    assert_eq!(newest(&feed, YES).grown(Side::Sell, price(400_000)), 2);
}

#[test]
fn what_finds_no_room_is_looked_at_again() {
    let mut feed = feed_with_orders(MismatchPolicy::Count);
    let count = i64::try_from(CROSSINGS_MAX).unwrap();
    for size in 1..=count + 2 {
        feed.apply(at(size, ask(45, size)));
    }
    assert_eq!(feed.markets().crossings_overflowed_count(), 2);
    let crossings = taken(&feed);
    assert_eq!(crossings.len(), CROSSINGS_MAX + 1);
    assert!(crossings.last().unwrap().book.is_none());
}

#[test]
fn nothing_is_tracked_or_queued_where_no_order_rests() {
    let mut feed = feed_with(MismatchPolicy::Count);
    feed.markets().resting_limits(&"another".into(), 2);
    feed.apply(at(1, sides(&[(30, 10)], &[(60, 10)])));
    feed.apply(at(2, ask(40, 1)));
    feed.apply(at(3, sides(&[], &[(30, 10)])));
    assert!(taken(&feed).is_empty());
    assert!(feed.tokens["m-Yes"].tracking.growth.is_none());
    assert!(newest(&feed, YES).growth.is_none());
}
