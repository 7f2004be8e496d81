//! The book of one outcome. Bots poll it, so its JSON is written straight into the buffer.

use std::borrow::Cow;

use hyper::StatusCode;

use super::order_fields::{MARKET_ID_CHARACTERS_MAX, OUTCOME_CHARACTERS_MAX};
use crate::http::call::{Answer, Call};
use crate::http::invalid::Invalid;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::parameter::Parameter;
use crate::http::query::Query;
use crate::http::reply::Reply;
use paperbourse_core::ids::OutcomeIndex;
use paperbourse_core::market::book::{Book, Ladder, Level};
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::write_micros_to_thousandths;
use paperbourse_exchange::service::OutcomeSnapshot;

/// Maximum `depth`. If a request has no `depth`, all levels are shown.
const DEPTH_MAX: usize = 500;
/// Maximum spread shown, in millionths of a dollar; a wider spread is shown as this one.
const SPREAD_SHOWN_MAX: i64 = 100_000;

pub(in crate::http) const LABEL_QUERY: [Parameter; 2] = [
    Parameter::text(
        "outcome",
        1,
        OUTCOME_CHARACTERS_MAX,
        "the outcome's label, by default the first",
    ),
    DEPTH,
];

pub(in crate::http) const TOKEN_QUERY: [Parameter; 2] = [
    Parameter::text("token_id", 1, MARKET_ID_CHARACTERS_MAX, "the outcome's token").required(),
    DEPTH,
];

const DEPTH: Parameter =
    Parameter::number("depth", 1, DEPTH_MAX, "the most levels of each side, by default all");

pub(in crate::http) fn get_by_label(call: &Call<'_>) -> Answer {
    let (label, depth) = read_market_book(call.query())?;
    show(&call.service().outcome_by_label(&call.parameter(), label.as_deref())?, depth)
}

pub(in crate::http) fn get_by_token(call: &Call<'_>) -> Answer {
    let (token_id, depth) = read_book(call.query())?;
    show(&call.service().outcome_by_token(&token_id)?, depth)
}

fn show(shown: &OutcomeSnapshot, depth: Option<usize>) -> Answer {
    let quoted = shown.book()?;
    let book = ShownBook {
        info: shown.market.info(),
        outcome: shown.outcome,
        book: quoted.book,
        mirror: quoted.liquidity.is_mirrored(),
        depth,
    };
    let mut body = Vec::with_capacity(4096);
    write_book(&mut body, book);
    Ok(Reply::json(StatusCode::OK, body))
}

/// Reads the outcome's label and the number of levels per side.
fn read_market_book(
    mut query: Query<'_>,
) -> Result<(Option<Cow<'_, str>>, Option<usize>), Invalid> {
    let label = query.text("outcome", 1, OUTCOME_CHARACTERS_MAX);
    let depth = query.number("depth", 1, DEPTH_MAX);
    query.finish((label, depth))
}

/// Reads the outcome's token and the number of levels per side.
fn read_book(mut query: Query<'_>) -> Result<(Cow<'_, str>, Option<usize>), Invalid> {
    let token_id = query.required_text("token_id", 1, MARKET_ID_CHARACTERS_MAX);
    let depth = query.number("depth", 1, DEPTH_MAX);
    query.finish((token_id, depth))
}

/// A book to show. With `mirror`, `book` belongs to the other outcome, because this one has none.
#[derive(Clone, Copy, Debug)]
struct ShownBook<'a> {
    info: &'a MarketInfo,
    outcome: OutcomeIndex,
    book: &'a Book,
    mirror: bool,
    /// Number of levels to show per side, best first; `None` for all.
    depth: Option<usize>,
}

/// Writes a book, with the best level last on both sides.
fn write_book(out: &mut Vec<u8>, shown: ShownBook<'_>) {
    if shown.mirror {
        write_ladder(out, shown, &shown.book.ladder().mirrored());
    } else {
        write_ladder(out, shown, shown.book.ladder());
    }
}

fn write_ladder(out: &mut Vec<u8>, shown: ShownBook<'_>, ladder: &Ladder) {
    let ShownBook { info, outcome, book, mirror, depth } = shown;
    let token_id = &info.outcomes[outcome.index()].token_id;
    let depth = depth.unwrap_or(usize::MAX);
    let mut body = JsonObject::new(out);
    body.text("token_id", token_id);
    body.text("market", &info.condition_id);
    body.text("asset_id", token_id);
    // The venue's hash covers its own book, not the mirror.
    let hash = book.hash.as_ref().filter(|_| !mirror);
    body.text_or_null("hash", hash.map(|hash| &*hash.text));
    body.text("timestamp", &book.updated_at.millis().to_string());
    write_list(body.value("bids"), best(ladder.bids(), depth), write_level);
    write_list(body.value("asks"), best(ladder.asks(), depth), write_level);
    body.decimal("min_order_size", info.order_size_min.micros());
    body.decimal("tick_size", info.tick.micros());
    body.flag("neg_risk", info.neg_risk);
    let newest = book.last_trade.map(|trade| trade.price);
    let newest = newest.map(|price| if mirror { price.complement() } else { price });
    // Clients compute the hash from the answer, so it shows the trade that the hash covers.
    match hash.map_or(newest, |hash| hash.last_trade_price) {
        Some(price) => {
            let text = body.value("last_trade_price");
            text.push(b'"');
            write_micros_to_thousandths(text, price.micros());
            text.push(b'"');
        }
        None if hash.is_some() => body.text("last_trade_price", ""),
        // Some clients cannot read the venue's empty text, so it is sent only where a hash requires
        // it.
        None => body.null("last_trade_price"),
    }
    let touch = ladder.best_bid().zip(ladder.best_ask());
    let touch = touch.map(|(bid, ask)| (bid.price.micros(), ask.price.micros()));
    // Exact, because prices are multiples of a ten-thousandth.
    body.decimal_or_null("mid", touch.map(|(bid, ask)| i64::midpoint(bid, ask)));
    body.decimal_or_null("spread", touch.map(|(bid, ask)| (ask - bid).min(SPREAD_SHOWN_MAX)));
    if book.stale {
        body.flag("stale", true);
    }
    body.end();
}

/// Returns the best levels of a side, at most `depth`.
fn best(levels: &[Level], depth: usize) -> &[Level] {
    &levels[levels.len().saturating_sub(depth)..]
}

pub(super) fn write_level(out: &mut Vec<u8>, level: &Level) {
    let mut object = JsonObject::new(out);
    object.decimal("price", level.price.micros());
    object.decimal("size", level.size.micros());
    object.end();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::invalid::tests::errors_of;
    use crate::http::json::write::written;
    use crate::http::query::tests::query;
    use paperbourse_core::ids::Timestamp;
    use paperbourse_core::market::book::{BookHash, LastTrade};
    use paperbourse_core::money::{Price, Shares};

    fn level(cents: i64, shares: i64) -> Level {
        Level {
            price: Price::from_micros(cents * 10_000),
            size: Shares::from_micros(shares * 1_000_000),
        }
    }

    fn info() -> MarketInfo {
        MarketInfo::bare_yes_no("0xabc")
    }

    fn book() -> Book {
        let ladder = Ladder::from_levels(
            vec![level(48, 5), level(47, 7), level(46, 1)],
            vec![level(51, 2), level(52, 9)],
        );
        let at = Timestamp::from_millis(1_784_578_686_071);
        let mut book = Book::new(ladder.unwrap(), at);
        let price = Price::from_micros(500_000);
        book.hash = Some(BookHash { text: "a1b2".into(), last_trade_price: None });
        book.last_trade = Some(LastTrade { price, size: Shares::ZERO, side: None, at });
        book
    }

    #[test]
    fn the_best_levels_are_last_and_are_kept() {
        let (info, book) = (info(), book());
        let shown = ShownBook {
            info: &info,
            outcome: OutcomeIndex(0),
            book: &book,
            mirror: false,
            depth: Some(2),
        };
        insta::assert_snapshot!("own", written(|out| write_book(out, shown)));
        let mirror = ShownBook { outcome: OutcomeIndex(1), mirror: true, depth: None, ..shown };
        insta::assert_snapshot!("mirror", written(|out| write_book(out, mirror)));
    }

    #[test]
    fn a_hash_comes_with_the_trade_that_it_covers() {
        let (info, mut book) = (info(), book());
        let price = |micros| Some(Price::from_micros(micros));
        for (hashed, mirror, expected) in [
            (Some(None), false, ""),
            (Some(price(431_200)), false, "0.4312"),
            (Some(price(400_000)), false, "0.400"),
            (Some(price(400_000)), true, "0.500"),
            (None, false, "0.500"),
        ] {
            book.hash =
                hashed.map(|last_trade_price| BookHash { text: "a1".into(), last_trade_price });
            let outcome = OutcomeIndex(0);
            let shown = ShownBook { info: &info, outcome, book: &book, mirror, depth: None };
            let text = written(|out| write_book(out, shown));
            let expected = format!(r#""last_trade_price":"{expected}""#);
            assert!(text.contains(&expected), "{hashed:?}: {text}");
        }
    }

    #[test]
    fn an_empty_book_says_so() {
        let info = info();
        let mut book = Book::new(Ladder::default(), Timestamp::EPOCH);
        book.stale = true;
        let shown = ShownBook {
            info: &info,
            outcome: OutcomeIndex(0),
            book: &book,
            mirror: false,
            depth: None,
        };
        let text = written(|out| write_book(out, shown));
        assert!(text.contains(r#""bids":[],"asks":[]"#), "{text}");
        let end = r#""last_trade_price":null,"mid":null,"spread":null,"stale":true}"#;
        assert!(text.ends_with(end), "{text}");
    }

    #[test]
    fn books_are_requested_by_token_or_by_outcome() {
        let read = |text| read_book(query("GET /v1/book", text));
        assert_eq!(read(Some("token_id=123")), Ok(("123".into(), None)));
        for (text, expected) in [
            (None, "query.token_id: missing"),
            (Some("token_id="), "query.token_id: string_too_short"),
            (Some("token_id=1&depth=0"), "query.depth: greater_than_equal"),
            (Some("token_id=1&depth=501"), "query.depth: less_than_equal"),
        ] {
            assert_eq!(errors_of(&read(text)), [expected], "{text:?}");
        }
        let read = |text| read_market_book(query("GET /v1/markets/0xa/book", Some(text)));
        assert_eq!(read("outcome=No&depth=3"), Ok((Some("No".into()), Some(3))));
        assert_eq!(read(""), Ok((None, None)));
        assert_eq!(errors_of(&read("outcome=")), ["query.outcome: string_too_short"]);
    }
}
