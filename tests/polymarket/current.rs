//! The venue as it is: both versions of its protocol, messages that are ahead of the book, and
//! books that never were.

use std::time::Duration;

use paperbourse::ids::Timestamp;
use paperbourse::market::book::Side as BookSide;
use paperbourse::market::catalogue::MarketStatus;
use paperbourse::money::{Price, Rounding};
use paperbourse::venue::polymarket::unstated_delay;
use tokio::time::{Instant, timeout};

use crate::auditor::{levels_of, levels_of_state};
use crate::connector::{Connector, QUICK};
use crate::standin::world::{MarketSeed, condition_id, condition_id_of_version_2, token_id};
use crate::standin::{Fault, Options, Payout, Side, StandIn, Which, World};

/// Whether this token's book is fresh and the venue's.
fn is_current(venue: &StandIn, connector: &Connector, token: &str) -> bool {
    connector.fresh(token).is_some_and(|book| {
        venue.published(token).last().is_some_and(|it| levels_of_state(it) == levels_of(&book))
    })
}

/// The same fills after a lost update, the same delay, the same answer to a trade, and each is paid
/// once, whatever the version of the protocol and the width of the id.
#[tokio::test]
async fn markets_of_both_versions_are_followed_alike() {
    let seeds = vec![
        MarketSeed::up_or_down(0),
        MarketSeed::of_version_2(1, 64),
        MarketSeed::of_version_2(2, 62),
    ];
    let venue = StandIn::start(World { markets: seeds }, Options::default()).await;
    let connector = Connector::start(&venue, 3, QUICK);
    let wide = [condition_id(0), condition_id_of_version_2(1), condition_id_of_version_2(2)];
    let tokens: Vec<String> =
        (0..3).flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect();
    connector.until_fresh(&tokens).await;
    let listed: Vec<String> = wide
        .iter()
        .map(|id| connector.markets.by_condition(id).unwrap().info().condition_id.to_string())
        .collect();
    assert_eq!(listed, [&*wide[0], &wide[1], &wide[2][..64]], "as the catalogue writes it");
    let narrow = &wide[2][..64].to_uppercase().replace("0X", "0x");
    assert!(connector.markets.by_condition(narrow).is_some());

    let delay_ms = unstated_delay::ms_at(Timestamp::now());
    let quoted = |it: &Connector, id: &str| {
        it.markets.by_condition(id).map(|market| market.snapshot().quote().taker_delay_ms)
    };
    let is_held = |it: &Connector| wide.iter().all(|id| quoted(it, id) == Some(delay_ms));
    connector.until("the delays", is_held).await;

    // The update is lost, and the next one shows it.
    for number in 0..3 {
        let token = &token_id(number, 0);
        venue.misbehave(Which::Of(token), Fault::Skip { frames: 1 });
        venue.change_level(token, Side::Sell, "0.95", "7");
        let mismatched = connector.status().feed.hashes_mismatched;
        venue.change_level(token, Side::Sell, "0.96", "8");
        let is_noticed = |it: &Connector| it.status().feed.hashes_mismatched > mismatched;
        connector.until("a mismatch", is_noticed).await;
        let is_mended = |it: &Connector| is_current(&venue, it, token);
        connector.until("the venue's book", is_mended).await;
    }
    // A match is proven before its trades are reported.
    for number in 0..3 {
        let token = &token_id(number, 0);
        let mismatched = connector.status().feed.hashes_mismatched;
        let trades = venue.trade_in_pieces(token, Side::Buy, "25");
        assert!(trades.len() > 1, "{trades:?}");
        let is_done = |it: &Connector| is_current(&venue, it, token);
        connector.until("the book after a match", is_done).await;
        assert_eq!(connector.status().feed.hashes_mismatched, mismatched, "market {number}");
        venue.report(token, Side::Buy, &trades);
    }
    for id in &wide {
        venue.resolve(id, Payout::Winner(1));
    }
    let is_paid = |it: &Connector, id: &str| {
        let info = it.markets.by_condition(id).unwrap().info().clone();
        info.status == MarketStatus::Resolved && info.payouts == [Price::ZERO, Price::ONE]
    };
    connector.until("payouts", |it| wide.iter().all(|id| is_paid(it, id))).await;
    assert_eq!(connector.markets.unsettled_count(), 3, "each is paid once");
    assert_eq!(venue.violations(), [""; 0]);
}

/// 200 changes a second, each after the best prices that it makes.
#[tokio::test]
async fn best_prices_that_come_first_make_no_book_stale() {
    const SECONDS: u64 = 2;
    let options = Options { is_top_first: true, ..Options::default() };
    let venue = StandIn::start(World::invented(1), options).await;
    let connector = Connector::start(&venue, 1, QUICK);
    let tokens = [token_id(0, 0), token_id(0, 1)];
    connector.until_fresh(&tokens).await;
    let walk = venue.run_walk((7, false), 200, Duration::from_secs(SECONDS));
    let watch = async {
        loop {
            connector.markets.changes().await;
            for token in &tokens {
                assert!(connector.fresh(token).is_some(), "a stale book: {:?}", connector.status());
            }
        }
    };
    tokio::select! {
        _ = walk => {}
        () = watch => unreachable!("it watches until the walk ends"),
    }
    connector.until("the last book", |it| is_current(&venue, it, &tokens[0])).await;
    let feed = connector.status().feed;
    assert_eq!((feed.tops_mismatched, feed.hashes_mismatched), (0, 0));
    assert!(feed.hashes_verified > 100 * SECONDS, "{feed:?}");
}

/// Matches of one to eight levels, whose trades are reported later. No order is refused for longer
/// than the frames of a match are apart, and no level of the other side has grown.
#[tokio::test]
async fn matches_make_books_stale_for_no_longer_than_they_take() {
    const MATCHES: usize = 40;
    let venue = StandIn::start(World::invented(1), Options::default()).await;
    let connector = Connector::start(&venue, 1, QUICK);
    let tokens = [token_id(0, 0), token_id(0, 1)];
    connector.until_fresh(&tokens).await;
    // Growth counts only where orders rest.
    connector.markets.resting_limits(&condition_id(0).into(), 2);
    venue.change_level(&tokens[0], Side::Buy, "0.02", "9");
    connector.until("the change", |it| is_current(&venue, it, &tokens[0])).await;
    let untouched = Price::from_text("0.02", Rounding::Exact).unwrap();
    let first = connector.book(&tokens[0]).unwrap();
    let grown_at_first = first.grown(BookSide::Buy, untouched);
    for number in 0..MATCHES {
        // A level holds at least ten shares.
        let size = (3 + 10 * (number % 8)).to_string();
        let trades = venue.trade_in_pieces(&tokens[0], Side::Buy, &size);
        assert!(!trades.is_empty(), "match {number}");
        connector.until("the book after it", |it| is_current(&venue, it, &tokens[0])).await;
        venue.report(&tokens[0], Side::Buy, &trades);
        let book = connector.book(&tokens[0]).unwrap();
        let growth = book.grown(BookSide::Buy, untouched);
        assert_eq!((book.era, growth), (first.era, grown_at_first), "match {number}");
        for (price, size) in &trades {
            // Somebody offers as much again.
            venue.change_level(&tokens[0], Side::Sell, price, size);
        }
        connector.until("new offers", |it| is_current(&venue, it, &tokens[0])).await;
    }
    // The counters are those of the last sweep, which may have been in the middle of a match.
    let mut size = 100;
    while connector.status().feed.hashes_mismatched != 0 {
        assert!(size < 1_000, "{:?}", connector.status());
        size += 1;
        venue.change_level(&tokens[0], Side::Buy, "0.03", &size.to_string());
        connector.until("another change", |it| is_current(&venue, it, &tokens[0])).await;
    }
    assert_eq!(connector.status().books_requested, 0, "{:?}", connector.status());
}

/// Nothing fills on a book that only the endpoint has, and the real book stays tradable.
#[tokio::test]
async fn ghost_books_fill_nothing() {
    let venue = StandIn::start(World::invented(2), Options::default()).await;
    let connector = Connector::start(&venue, 2, QUICK);
    let tokens: Vec<String> =
        (0..2).flat_map(|number| [token_id(number, 0), token_id(number, 1)]).collect();
    connector.until_fresh(&tokens).await;
    venue.serve_ghosts(true);
    let lost = connector.status().connections_lost;
    let asked = connector.status().books_requested;
    let (mut refused, mut looks) = (Duration::ZERO, 0);
    let began = Instant::now();
    // A book is asked for after a second without news.
    while connector.status().books_requested < asked + 4 * tokens.len() as u64 {
        assert!(began.elapsed() < Duration::from_mins(1), "{:?}", connector.status());
        let since = Instant::now();
        let _ = timeout(Duration::from_millis(20), connector.markets.changes()).await;
        for token in &tokens {
            match connector.fresh(token) {
                Some(book) => assert!(
                    levels_of(&book) == levels_of_state(venue.published(token).last().unwrap()),
                    "a fill on a ghost: {book:?}"
                ),
                None => refused += since.elapsed(),
            }
            looks += 1;
        }
    }
    assert!(looks > 100 && refused < began.elapsed() / 10, "refused for {refused:?}");
    assert_eq!(connector.status().connections_lost, lost, "one odd book costs no connection");
    assert!(connector.status().books_diverged >= 8, "{:?}", connector.status());
}
