//! The order book service: books, the long and the compact form of markets, and the clock.

use serde_json::Value;

use super::answer::Answer;
use super::clob_market::{compact, long};
use super::frames::{BookForm, write_book};
use super::ladder::{Ladder, Side};
use super::market::Shown;
use super::server::Query;
use super::state::{State, now_us};

/// The most books in one request; more are refused.
const BOOKS_MAX: usize = 500;

/// The answer for a token without a book.
const NO_BOOK: &str = r#"{"error":"No orderbook exists for the requested token id"}"#;

/// Answers a request for this path of the CLOB.
pub(crate) fn answer(state: &mut State, path: &str, query: &Query, body: &[u8]) -> Answer {
    match path {
        "/books" => books(state, body),
        "/book" => {
            let token = query.first("token_id").and_then(|id| state.token_by_id.get(id).copied());
            match token.filter(|&token| state.tokens[token].has_book) {
                Some(token) => Answer::json(book(state, token)),
                None => Answer::status(404, NO_BOOK),
            }
        }
        "/time" => Answer::json((now_us() / 1_000_000).to_string()),
        "/ok" => Answer::json(r#""OK""#.to_owned()),
        _ => {
            let (id, is_long) =
                match (path.strip_prefix("/clob-markets/"), path.strip_prefix("/markets/")) {
                    (Some(id), _) => (id, false),
                    (_, Some(id)) => (id, true),
                    _ => return Answer::status(404, "404 page not found\n"),
                };
            match state.market_by_condition.get(id) {
                Some(&market) if is_long => Answer::json(long(state, market)),
                Some(&market) => Answer::json(compact(state, market)),
                None => Answer::status(404, r#"{"error":"market not found"}"#),
            }
        }
    }
}

fn books(state: &mut State, body: &[u8]) -> Answer {
    let Ok(Value::Array(wanted)) = serde_json::from_slice(body) else {
        return Answer::status(400, r#"{"error":"Invalid payload"}"#);
    };
    if wanted.len() > BOOKS_MAX {
        return Answer::status(400, r#"{"error":"Payload exceeds the limit"}"#);
    }
    let mut tokens: Vec<usize> = wanted
        .iter()
        .filter_map(|entry| state.token_by_id.get(entry["token_id"].as_str()?).copied())
        .filter(|&token| state.tokens[token].has_book)
        .collect();
    // The venue guarantees no order.
    state.random.shuffle(&mut tokens);
    let books: Vec<String> = tokens.into_iter().map(|token| book(state, token)).collect();
    Answer::json(format!("[{}]", books.join(",")))
}

fn book(state: &mut State, token: usize) -> String {
    if state.has_ghost_books {
        return ghost(state, token);
    }
    state.tokens[token].history.shown();
    let place = &state.tokens[token];
    let mut body = Vec::new();
    write_book(&mut body, &state.markets[place.market], place.shown(), BookForm::Rest);
    String::from_utf8(body).expect("a book is UTF-8")
}

/// A book that never was, with the right hash: the venue's endpoint has served such books.
fn ghost(state: &State, token: usize) -> String {
    let place = &state.tokens[token];
    let market = &state.markets[place.market];
    let mut ladder = Ladder::default();
    ladder.set(Side::Buy, "0.01", "100");
    ladder.set(Side::Sell, "0.99", "100");
    let timestamp_ms = now_us() / 1_000;
    let hash = ladder.hash(market.head(&place.id, timestamp_ms));
    let shown = Shown { ladder: &ladder, hash: &hash, timestamp_ms, ..place.shown() };
    let mut body = Vec::new();
    write_book(&mut body, market, shown, BookForm::Rest);
    String::from_utf8(body).expect("a book is UTF-8")
}
