//! Messages that are ahead of the book, and books that only a request shows.

use super::*;

/// All changes of a match bear the hash of the last book, with the price of a trade that is
/// reported later.
#[test]
fn the_changes_of_a_match_are_judged_by_the_last() {
    let levels = [level(420_000, 1_000_000), level(410_000, 2_000_000), level(400_000, 3_000_000)];
    let left = levels[2];
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(at(1, book_event("m-Yes", &levels, &[])));
    feed.apply(at(2, trade("m-Yes", 500_000)));
    let hash = hash_of(3, left, 10_000, Some(410_000));
    let taken = |cents: i64, hash: &str| {
        let gone = change("m-Yes", Side::Buy, level(cents * 10_000, 0));
        VenueChange::Levels(vec![LevelChanged { hash: Some(hash.into()), ..gone }])
    };
    for (cents, finding) in [(42, Finding::Contradicted), (41, Finding::Proven)] {
        let findings = feed.apply(at(3, taken(cents, &hash)));
        assert_eq!(findings[..], [("m-Yes".into(), finding)], "{cents}");
        let is_stale = finding == Finding::Contradicted;
        assert_eq!(published(&feed, 0).unwrap().stale, is_stale, "{cents}");
    }
    assert_eq!((feed.counts().hashes_verified, feed.counts().hashes_mismatched), (2, 0));
    // The price is known from now on, in whichever outcome the trade was.
    let more = level(400_000, 4_000_000);
    for (millis, last_trade, finding) in [
        (4, 410_000, Finding::Proven),
        (5, 500_000, Finding::Proven),
        // The entry is a bid at 0.4, so the trade may have been at 0.6 in the other outcome.
        (6, 600_000, Finding::Proven),
        (7, 700_000, Finding::Contradicted),
    ] {
        let hash = Some(hash_of(millis, more, 10_000, Some(last_trade)));
        let entry = LevelChanged { hash, ..change("m-Yes", Side::Buy, more) };
        let findings = feed.apply(at(millis, VenueChange::Levels(vec![entry])));
        assert_eq!(findings[..], [("m-Yes".into(), finding)], "at {millis}");
    }
}

#[test]
fn best_prices_that_are_ahead_of_the_book_wait_for_their_change() {
    use Finding::{Agrees, Ahead, Contradicted, Proven, Unproven};

    let bids = [40, 41, 42].map(|cents| level(cents * 10_000, 1_500_000));
    let mut feed = feed_with(MismatchPolicy::Distrust);
    feed.apply(hashed_book(
        2,
        bids[0],
        Some(price(420_000)),
        hash_of(2, bids[0], 10_000, Some(420_000)),
    ));
    let top = |cents: i64| {
        let top = Top { bid: Some(price(cents * 10_000)), ask: None };
        VenueChange::Top { token_id: "m-Yes".into(), top }
    };
    let moved = |from: usize, to: usize| {
        let gone = Level { size: Shares::ZERO, ..bids[from] };
        vec![change("m-Yes", Side::Buy, gone), change("m-Yes", Side::Buy, bids[to])]
    };
    let hashed = |millis, mut entries: Vec<LevelChanged>, bid| {
        entries.last_mut().unwrap().hash = Some(hash_of(millis, bid, 10_000, Some(420_000)));
        VenueChange::Levels(entries)
    };
    for (millis, change, finding, is_stale) in [
        (2, top(40), Agrees, false),
        // It is older than the book.
        (1, top(39), Unproven, false),
        (3, top(41), Ahead, false),
        (3, hashed(3, moved(0, 1), bids[1]), Proven, false),
        (3, top(41), Agrees, false),
        // The change that makes it is lost: the next one shows that.
        (4, top(42), Ahead, false),
        (5, VenueChange::Levels(vec![change("m-Yes", Side::Buy, bids[1])]), Contradicted, true),
        (6, hashed(6, vec![change("m-Yes", Side::Buy, bids[1])], bids[1]), Proven, false),
        // One that it explains comes without a hash.
        (7, top(42), Ahead, false),
        (7, VenueChange::Levels(moved(1, 2)), Unproven, false),
        (8, top(43), Ahead, false),
    ] {
        let findings = feed.apply(at(millis, change));
        assert_eq!(findings[..], [("m-Yes".into(), finding)], "at {millis}");
        assert_eq!(published(&feed, 0).unwrap().stale, is_stale, "at {millis}");
    }
    assert_eq!(feed.counts().tops_mismatched, 1);
    // Its follower waits no longer.
    feed.apply(at(9, VenueChange::Stale { token_id: "m-Yes".into() }));
    assert_eq!(feed.counts().tops_mismatched, 2);
}

#[test]
fn a_book_that_only_a_request_shows_fills_nothing() {
    use Finding::{Contradicted, Proven, Unconfirmed, Unproven};

    let (real, ghost) = (level(400_000, 1_500_000), level(10_000, 1_500_000));
    let book = |millis, bid: Level, is_requested| {
        let mut event = hashed_book(
            millis,
            bid,
            Some(price(420_000)),
            hash_of(millis, bid, 10_000, Some(420_000)),
        );
        if let VenueChange::Book(book) = &mut event.change {
            book.is_requested = is_requested;
        }
        event
    };
    let mut feed = feed_with(MismatchPolicy::Distrust);
    let wrong = LevelChanged { hash: Some("0".into()), ..change("m-Yes", Side::Buy, real) };
    let proof = |millis, bid| {
        let hash = Some(hash_of(millis, bid, 10_000, Some(420_000)));
        let entry = LevelChanged { hash, ..change("m-Yes", Side::Buy, bid) };
        at(millis, VenueChange::Levels(vec![entry]))
    };
    let named = |millis| {
        let hash = Some(hash_of(millis, ghost, 10_000, Some(420_000)));
        let entry = LevelChanged { hash, ..change("m-Yes", Side::Buy, real) };
        at(millis, VenueChange::Levels(vec![entry]))
    };
    for (event, finding, shown) in [
        // Before any other.
        (book(1, ghost, true), Unconfirmed, (ghost, true)),
        (book(1, ghost, true), Unconfirmed, (ghost, true)),
        // The socket's book counts however old it is.
        (book(0, real, false), Proven, (real, false)),
        (book(2, ghost, true), Unconfirmed, (real, false)),
        (book(0, real, true), Proven, (real, false)),
        (at(3, VenueChange::Levels(vec![wrong])), Contradicted, (real, true)),
        (book(4, ghost, true), Unconfirmed, (real, true)),
        // A change of the socket proves its own book.
        (proof(5, real), Proven, (real, false)),
        // The socket has named the hash of a book that it did not make.
        (named(6), Contradicted, (real, true)),
        (book(5, real, true), Unproven, (real, true)),
        (book(6, ghost, true), Proven, (ghost, false)),
    ] {
        let told = format!("{event:?}");
        let findings = feed.apply(event);
        assert_eq!(findings.last(), Some(&("m-Yes".into(), finding)), "{told}");
        let book = published(&feed, 0).unwrap();
        assert_eq!((book.ladder().bids(), book.stale), (&[shown.0][..], shown.1), "{told}");
    }
}

/// A market that never traded is proven like any other.
#[test]
fn a_book_that_states_that_there_was_no_trade_can_be_contradicted() {
    let bid = level(400_000, 1_500_000);
    let wrong: Box<str> = "0".repeat(HASH_TEXT_BYTES).into();
    for (newest_trade, finding) in
        [(None, Finding::Unproven), (Some(NewestTrade::Never), Finding::Contradicted)]
    {
        let mut feed = feed_with(MismatchPolicy::Distrust);
        let mut book = book_event("m-Yes", &[bid], &[]);
        if let VenueChange::Book(book) = &mut book {
            book.newest_trade = newest_trade;
        }
        feed.apply(at(1, book));
        let entry = LevelChanged { hash: Some(wrong.clone()), ..change("m-Yes", Side::Buy, bid) };
        let findings = feed.apply(at(2, VenueChange::Levels(vec![entry])));
        assert_eq!(findings[..], [("m-Yes".into(), finding)]);
    }
}
