//! Books. Clients hash an answer as they receive it, with an empty `hash`, so a book has exactly
//! the venue's keys in the venue's order.

use std::borrow::Cow;

use hyper::StatusCode;
use tokio::task::yield_now;

use super::{Answer, Awaited, request, tick};
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::json::write::{JsonObject, write_list};
use crate::http::operations::books::write_level;
use crate::http::reply::Reply;
use paperbourse_core::ids::{Timestamp, condition};
use paperbourse_core::market::book::Ladder;
use paperbourse_core::money::{Price, write_micros_to_thousandths};
use paperbourse_exchange::service::OutcomeSnapshot;
use paperbourse_venue::feed::verify::HashedBook;
use paperbourse_venue::polymarket::hash::BookHasher;

/// Maximum size of an answer with several books, in bytes. All books of a usual request take less
/// than half of it.
const BOOKS_BYTES_MAX: usize = 8 << 20;

/// Number of books that are written before the worker's other tasks run: some 0.1 ms.
const BOOKS_PER_TURN: usize = 8;

pub(super) fn get(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_BOOK)?;
    let mut body = Vec::with_capacity(4096);
    write_book(call, &mut body, &shown, &mut BookHasher::default()).ok_or(ClobError::NO_BOOK)?;
    Ok(Reply::json(StatusCode::OK, body))
}

/// Lists the books of the tokens that have one, each once. Yields to the worker's other tasks from
/// time to time, since some hundred books take milliseconds.
pub(super) async fn list(call: &Call<'_>) -> Awaited {
    let sent = call.take_body();
    let mut hasher = BookHasher::default();
    let mut body = vec![b'['];
    for (index, token_id) in request::tokens(&sent)?.iter().enumerate() {
        if index > 0 && index % BOOKS_PER_TURN == 0 {
            yield_now().await;
        }
        let Some(shown) = request::find(call, token_id) else { continue };
        let end = body.len();
        if end > 1 {
            body.push(b',');
        }
        if write_book(call, &mut body, &shown, &mut hasher).is_none() {
            body.truncate(end);
        }
        if body.len() > BOOKS_BYTES_MAX {
            return Err(ClobError::TOO_LARGE.into());
        }
    }
    body.push(b']');
    Ok(Reply::json(StatusCode::OK, body))
}

/// Writes the book that the outcome trades on; `None` if there is none.
fn write_book(
    call: &Call<'_>,
    out: &mut Vec<u8>,
    shown: &OutcomeSnapshot,
    hasher: &mut BookHasher,
) -> Option<()> {
    let quoted = shown.book().ok()?;
    let coarse = tick::coarse(call, shown.market.info());
    let place = (shown, coarse.unwrap_or(shown.market.info().tick));
    let (book, is_mirrored) = (quoted.book, quoted.liquidity.is_mirrored());
    let newest = book.last_trade.map(|trade| trade.price);
    if is_mirrored {
        let mirror = book.ladder().mirrored();
        let newest = newest.map(Price::complement);
        write(out, place, (book.updated_at, &mirror), (None, newest), hasher);
    } else {
        // The venue's hash covers the market's own tick.
        let sent = book.hash.as_ref().filter(|_| coarse.is_none());
        // The trade that the venue's hash covers may be older than the newest.
        let last_trade_price = sent.map_or(newest, |hash| hash.last_trade_price);
        let hash = sent.map(|hash| &*hash.text);
        write(out, place, (book.updated_at, book.ladder()), (hash, last_trade_price), hasher);
    }
    Some(())
}

/// Writes the book of an outcome with this tick, time and levels, the venue's hash of them if it
/// sent one, and the price of the last trade.
fn write(
    out: &mut Vec<u8>,
    (shown, tick): (&OutcomeSnapshot, Price),
    (at, ladder): (Timestamp, &Ladder),
    (sent_hash, last_trade_price): (Option<&str>, Option<Price>),
    hasher: &mut BookHasher,
) {
    let info = shown.market.info();
    let book = HashedBook {
        market: &info.condition_id,
        token_id: &info.outcomes[shown.outcome.index()].token_id,
        at,
        ladder,
        order_size_min: info.order_size_min,
        tick,
        neg_risk: info.neg_risk,
        version: None,
    };
    let computed = || Cow::Owned(hasher.hash(book, last_trade_price));
    let hash = sent_hash.map_or_else(computed, Cow::Borrowed);
    let mut body = JsonObject::new(out);
    body.text("market", &condition::wide(book.market));
    body.text("asset_id", book.token_id);
    body.text("timestamp", &at.millis().to_string());
    body.text("hash", &hash);
    write_list(body.value("bids"), ladder.bids(), write_level);
    write_list(body.value("asks"), ladder.asks(), write_level);
    body.decimal("min_order_size", book.order_size_min.micros());
    body.decimal("tick_size", book.tick.micros());
    body.flag("neg_risk", book.neg_risk);
    let text = body.value("last_trade_price");
    text.push(b'"');
    if let Some(price) = last_trade_price {
        write_micros_to_thousandths(text, price.micros());
    }
    text.push(b'"');
    body.end();
}
