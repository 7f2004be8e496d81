//! Prices of outcomes, each derived from the book that the outcome trades on.

use std::borrow::Cow;
use std::collections::HashMap;

use hyper::StatusCode;
use smallvec::SmallVec;

use super::request::{self, Entry};
use super::{Answer, object};
use crate::http::call::Call;
use crate::http::error::ClobError;
use crate::http::json::write::{JsonObject, write_decimal, write_list, write_text};
use crate::http::reply::Reply;
use paperbourse_core::market::book::Side;
use paperbourse_core::money::Price;
use paperbourse_exchange::service::OutcomeSnapshot;

/// The price of the last trade where there was none, in millionths of a dollar.
const UNTRADED_PRICE: i64 = 500_000;

/// Returns the best price of the orders that rest on a side: for `BUY`, the best bid.
pub(super) fn price(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_BOOK)?;
    let side = request::side(request::parameter(call, "side").as_deref())?;
    let price = best(&shown, side).ok_or(ClobError::NO_BOOK)?;
    Ok(object(|body| body.decimal("price", price)))
}

pub(super) fn midpoint(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_BOOK)?;
    let mid = mid(&shown).ok_or(ClobError::NO_BOOK)?;
    Ok(object(|body| body.decimal("mid", mid)))
}

pub(super) fn spread(call: &Call<'_>) -> Answer {
    let shown = request::outcome(call, ClobError::NO_BOOK)?;
    let spread = spread_of(&shown).ok_or(ClobError::NO_BOOK)?;
    Ok(object(|body| body.decimal("spread", spread)))
}

/// Returns the newest trade. As at the venue, the price is 0.5 where there was none, even for a
/// token that no outcome has, and a side that nobody reported is empty.
pub(super) fn last_trade(call: &Call<'_>) -> Answer {
    let shown = match request::outcome(call, ClobError::NO_BOOK) {
        Err(error) if error != ClobError::NO_BOOK => return Err(error),
        shown => shown.ok(),
    };
    let trade = shown.as_ref().and_then(newest_trade);
    Ok(object(|body| {
        body.decimal("price", trade.map_or(UNTRADED_PRICE, |(price, _)| price.micros()));
        body.word("side", trade.and_then(|(_, side)| side).map_or("", Side::as_str));
    }))
}

/// Lists prices by token and side.
pub(super) fn list(call: &Call<'_>) -> Answer {
    let sent = call.take_body();
    let mut sides: HashMap<Cow<'_, str>, [bool; 2]> = HashMap::new();
    for Entry { token_id, side } in request::entries(&sent)? {
        let side = request::side(side.as_deref())?;
        sides.entry(token_id).or_default()[side as usize] = true;
    }
    let mut rows = Vec::new();
    for token_id in request::tokens(&sent)? {
        let Some(shown) = request::find(call, &token_id) else { continue };
        let is_wanted = |side: &Side| sides[&token_id][*side as usize];
        let wanted = [Side::Buy, Side::Sell].into_iter().filter(is_wanted);
        let prices = wanted.filter_map(|side| Some((side.as_str(), best(&shown, side)?)));
        let prices: SmallVec<[_; 2]> = prices.collect();
        if !prices.is_empty() {
            rows.push((token_id, prices));
        }
    }
    let mut body = Vec::with_capacity(16 + 128 * rows.len());
    write_map(&mut body, rows, |out, prices| write_map(out, prices, write_decimal));
    Ok(Reply::json(StatusCode::OK, body))
}

pub(super) fn list_midpoints(call: &Call<'_>) -> Answer {
    list_by_token(call, mid)
}

pub(super) fn list_spreads(call: &Call<'_>) -> Answer {
    list_by_token(call, spread_of)
}

/// Lists the newest trades whose sides are known: clients fail on a row without one.
pub(super) fn list_last_trades(call: &Call<'_>) -> Answer {
    let sent = call.take_body();
    let tokens = request::tokens(&sent)?;
    let trades = tokens.iter().filter_map(|token_id| {
        let (price, side) = newest_trade(&request::find(call, token_id)?)?;
        Some((token_id, price, side?))
    });
    let mut body = Vec::with_capacity(16 + 144 * tokens.len());
    write_list(&mut body, trades, |out, (token_id, price, side)| {
        let mut row = JsonObject::new(out);
        row.text("token_id", token_id);
        row.decimal("price", price.micros());
        row.word("side", side.as_str());
        row.end();
    });
    Ok(Reply::json(StatusCode::OK, body))
}

/// Lists the values of the tokens that have one.
fn list_by_token(call: &Call<'_>, value: fn(&OutcomeSnapshot) -> Option<i64>) -> Answer {
    let sent = call.take_body();
    let tokens = request::tokens(&sent)?;
    let mut body = Vec::with_capacity(16 + 112 * tokens.len());
    let values = tokens.iter().filter_map(|token_id| {
        let value = value(&request::find(call, token_id)?)?;
        Some((token_id, value))
    });
    write_map(&mut body, values, write_decimal);
    Ok(Reply::json(StatusCode::OK, body))
}

/// Writes an object whose keys are not known in advance.
pub(super) fn write_map<K: AsRef<str>, V>(
    out: &mut Vec<u8>,
    rows: impl IntoIterator<Item = (K, V)>,
    mut write: impl FnMut(&mut Vec<u8>, V),
) {
    out.push(b'{');
    for (index, (key, value)) in rows.into_iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        write_text(out, key.as_ref());
        out.push(b':');
        write(out, value);
    }
    out.push(b'}');
}

/// Returns the best price of the orders that rest on a side, in millionths of a dollar.
fn best(shown: &OutcomeSnapshot, side: Side) -> Option<i64> {
    let touch = shown.book().ok()?.liquidity.touch(side.opposite())?;
    Some(touch.micros())
}

/// Returns the prices of the best bid and the best ask, in millionths of a dollar.
fn touch(shown: &OutcomeSnapshot) -> Option<(i64, i64)> {
    best(shown, Side::Buy).zip(best(shown, Side::Sell))
}

/// Returns the midpoint in millionths of a dollar, which is exact: prices are multiples of a
/// ten-thousandth. `None` if the book lacks a side.
fn mid(shown: &OutcomeSnapshot) -> Option<i64> {
    touch(shown).map(|(bid, ask)| i64::midpoint(bid, ask))
}

/// Returns the spread in millionths of a dollar; `None` if the book lacks a side.
fn spread_of(shown: &OutcomeSnapshot) -> Option<i64> {
    touch(shown).map(|(bid, ask)| ask - bid)
}

/// Returns the price of the newest trade, and the taker's side if the venue reported it.
fn newest_trade(shown: &OutcomeSnapshot) -> Option<(Price, Option<Side>)> {
    let quoted = shown.book().ok()?;
    let trade = quoted.book.last_trade?;
    Some(if quoted.liquidity.is_mirrored() {
        (trade.price.complement(), trade.side.map(Side::opposite))
    } else {
        (trade.price, trade.side)
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use paperbourse_core::ids::{OutcomeIndex, Timestamp};
    use paperbourse_core::market::Markets;
    use paperbourse_core::market::book::{Book, Ladder, LastTrade};
    use paperbourse_core::market::catalogue::MarketInfo;
    use paperbourse_core::money::Shares;

    #[test]
    fn a_trade_is_seen_from_either_outcome() {
        let markets = Markets::new();
        markets.list(vec![MarketInfo::bare_yes_no("0xa")]).unwrap();
        let market = markets.by_condition("0xa").unwrap();
        let trade = |side| {
            let at = Timestamp::EPOCH;
            let trade =
                LastTrade { price: Price::from_micros(420_000), size: Shares::ZERO, side, at };
            let mut book = Book::new(Ladder::default(), at);
            book.last_trade = Some(trade);
            markets.publish(&market, OutcomeIndex(0), Arc::new(book));
            [0, 1].map(|index| {
                let outcome = OutcomeIndex(index);
                let shown = OutcomeSnapshot { market: market.snapshot(), outcome };
                newest_trade(&shown).map(|(price, side)| (price.micros(), side))
            })
        };
        let (buy, sell) = (Some(Side::Buy), Some(Side::Sell));
        assert_eq!(trade(buy), [Some((420_000, buy)), Some((580_000, sell))]);
        assert_eq!(trade(None), [Some((420_000, None)), Some((580_000, None))]);
    }
}
