use std::sync::Arc;

use super::*;
use crate::market::Market;
use crate::market::book::{Book, Ladder, Level};
use crate::market::catalogue::{MarketInfo, Outcome};
use crate::money::Shares;

/// The best bid and ask and the newest trade, in cents; 0 for none. Then the venue's second.
#[derive(Clone, Copy)]
struct Quote {
    bid: i64,
    ask: i64,
    trade: i64,
    second: i64,
}

fn quote(bid: i64, ask: i64, trade: i64, second: i64) -> Quote {
    Quote { bid, ask, trade, second }
}

fn cents(cents: i64) -> Price {
    Price::from_micros(cents * 10_000)
}

fn book(quote: Quote) -> Book {
    let side = |price| {
        let level = Level { price: cents(price), size: Shares::from_micros(1) };
        if price == 0 { vec![] } else { vec![level] }
    };
    let ladder = Ladder::from_levels(side(quote.bid), side(quote.ask)).unwrap();
    let mut book = Book::new(ladder, Timestamp::from_seconds(quote.second));
    book.last_trade = (quote.trade != 0).then(|| LastTrade {
        price: cents(quote.trade),
        size: Shares::from_micros(7),
        side: Some(Side::Buy),
        at: Timestamp::from_seconds(quote.second - 1),
    });
    book
}

fn market(labels: &[&str], quotes: &[Option<Quote>], status: MarketStatus) -> Market {
    let outcomes =
        labels.iter().map(|&label| Outcome { label: label.into(), token_id: label.into() });
    let payouts = match status {
        MarketStatus::Resolved => vec![Price::ONE, Price::ZERO],
        _ => vec![],
    };
    let market = Market::new(MarketInfo { status, payouts, ..MarketInfo::bare("0x1", outcomes) });
    for (slot, quote) in market.books.iter().zip(quotes) {
        slot.store(quote.map(|quote| Arc::new(book(quote))));
    }
    market
}

/// Compares the prices as text, `-` for none, with the source of the first.
#[track_caller]
fn check(quotes: [Option<Quote>; 2], status: MarketStatus, expected: &str) {
    let market = market(&["Yes", "No"], &quotes, status);
    let prices = MarketPrices::of(&market.snapshot());
    let text = |price: Option<Price>| price.map_or_else(|| "-".into(), |price| price.to_string());
    let row = format!(
        "{} {} {} {} {} {}",
        text(prices.buy()),
        text(prices.sell()),
        text(prices.outcomes[0].best_bid),
        text(prices.outcomes[0].best_ask),
        prices.source().map_or("-", PriceSource::as_str),
        prices.updated_at().map_or_else(|| "-".into(), |at| at.seconds().to_string()),
    );
    assert_eq!(row, expected);
}

#[test]
fn the_price_is_the_first_available_source() {
    let open = MarketStatus::Open;
    for (quotes, status, expected) in [
        ([None, None], open, "- - - - - -"),
        ([Some(quote(0, 0, 0, 5)), None], open, "- - - - - -"),
        // The midpoint precedes the trade, even in a crossed book.
        ([Some(quote(48, 53, 90, 5)), None], open, "0.505 0.495 0.48 0.53 book 5"),
        ([Some(quote(53, 48, 0, 5)), None], open, "0.505 0.495 0.53 0.48 book 5"),
        // The trade precedes a one-sided book, and has its own time.
        ([Some(quote(48, 0, 60, 5)), None], open, "0.6 0.4 0.48 - last_trade 4"),
        ([Some(quote(0, 0, 60, 5)), None], open, "0.6 0.4 - - last_trade 4"),
        ([Some(quote(48, 0, 0, 5)), None], open, "0.48 0.52 0.48 - book 5"),
        ([Some(quote(0, 53, 0, 5)), None], open, "0.53 0.47 - 0.53 book 5"),
        // Each outcome uses its own book if there is one.
        ([Some(quote(48, 52, 0, 5)), Some(quote(20, 22, 0, 9))], open, "0.5 0.21 0.48 0.52 book 9"),
        ([None, Some(quote(20, 22, 0, 9))], open, "0.79 0.21 0.78 0.8 mirror 9"),
        // If only the second outcome has a price, the source is that of the second.
        ([Some(quote(0, 0, 0, 5)), Some(quote(20, 22, 0, 9))], open, "- 0.21 - - book 9"),
        ([Some(quote(48, 52, 0, 5)), None], MarketStatus::Paused, "0.5 0.5 0.48 0.52 book 5"),
        ([Some(quote(48, 52, 0, 5)), None], MarketStatus::Closed, "0.5 0.5 0.48 0.52 book 5"),
        ([Some(quote(48, 52, 0, 5)), None], MarketStatus::Resolved, "1 0 - - resolution 5"),
        ([None, None], MarketStatus::Resolved, "1 0 - - resolution -"),
    ] {
        check(quotes, status, expected);
    }
}

#[test]
fn a_mirrored_trade_changes_price_and_side() {
    let market = market(&["Yes", "No"], &[None, Some(quote(0, 0, 30, 5))], MarketStatus::Open);
    let prices = MarketPrices::of(&market.snapshot());
    let trades = [0, 1].map(|outcome: usize| {
        let trade = prices.outcomes[outcome].last_trade.unwrap();
        (trade.price, trade.side.unwrap(), trade.size)
    });
    let size = Shares::from_micros(7);
    assert_eq!(trades, [(cents(70), Side::Sell, size), (cents(30), Side::Buy, size)]);
}

#[test]
fn three_outcomes_have_no_mirror() {
    let market = market(
        &["A", "B", "C"],
        &[Some(quote(10, 12, 0, 5)), None, Some(quote(0, 0, 40, 5))],
        MarketStatus::Open,
    );
    let prices = MarketPrices::of(&market.snapshot());
    let shown: Vec<_> = prices.outcomes.iter().map(OutcomePrice::price).collect();
    assert_eq!(shown, [Some(cents(11)), None, Some(cents(40))]);
}

#[test]
fn stale_and_missing_books_are_stale() {
    let book = |stale| {
        let mut book = book(quote(48, 52, 0, 5));
        book.stale = stale;
        Some(Arc::new(book))
    };
    let fresh = || book(false);
    let stale = || book(true);
    for (books, status, expected) in [
        ([fresh(), None], MarketStatus::Open, false),
        ([fresh(), fresh()], MarketStatus::Open, false),
        ([stale(), fresh()], MarketStatus::Open, true),
        ([None, stale()], MarketStatus::Open, true),
        ([None, None], MarketStatus::Open, true),
        ([None, None], MarketStatus::Resolved, false),
        ([stale(), None], MarketStatus::Resolved, false),
    ] {
        let market = market(&["Yes", "No"], &[None, None], status);
        for (slot, book) in market.books.iter().zip(books) {
            slot.store(book);
        }
        assert_eq!(MarketPrices::of(&market.snapshot()).stale, expected, "{status:?}");
    }
}

#[test]
fn the_middle_rounds_half_to_even() {
    for (bid, ask, expected) in [(1, 2, 2), (3, 4, 4), (2, 3, 2), (2, 4, 3)] {
        let middle = middle(Price::from_micros(bid), Price::from_micros(ask));
        assert_eq!(middle, Price::from_micros(expected), "{bid} {ask}");
    }
}
