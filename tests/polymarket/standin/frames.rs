//! The texts of the market socket, and the bytes of a server's WebSocket frames.

use std::fmt::Write as _;

use bytes::Bytes;

use super::ladder::Side;
use super::market::{Market, Shown, Token};

/// The first byte of an unfragmented text frame.
const TEXT: u8 = 0x81;

/// The first byte of an unfragmented binary frame.
const BINARY: u8 = 0x82;

/// A text frame with this payload, ready for the wire.
pub(crate) fn text_frame(payload: &[u8]) -> Bytes {
    frame(TEXT, payload)
}

/// A binary frame with this payload.
pub(crate) fn binary_frame(payload: &[u8]) -> Bytes {
    frame(BINARY, payload)
}

/// The text in one of our frames; `None` if it is binary.
pub(crate) fn text_of(frame: &Bytes) -> Option<Bytes> {
    let head = match frame[1] {
        0..=125 => 2,
        126 => 4,
        _ => 10,
    };
    (frame[0] == TEXT).then(|| frame.slice(head..))
}

fn frame(first: u8, payload: &[u8]) -> Bytes {
    let mut bytes = Vec::with_capacity(payload.len() + 10);
    bytes.push(first);
    match (u8::try_from(payload.len()), u16::try_from(payload.len())) {
        (Ok(length @ ..=125), _) => bytes.push(length),
        (_, Ok(length)) => {
            bytes.push(126);
            bytes.extend_from_slice(&length.to_be_bytes());
        }
        _ => {
            bytes.push(127);
            bytes.extend_from_slice(&(payload.len() as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(payload);
    bytes.into()
}

/// Which keys a `book` object has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BookForm {
    /// The initial dump: with tick size and last trade price.
    Dump,
    /// A later book in the stream: without them.
    Again,
    /// The answer of the REST service.
    Rest,
}

/// Writes a book in the form that the venue uses there.
pub(crate) fn write_book(out: &mut Vec<u8>, market: &Market, token: Shown<'_>, form: BookForm) {
    let head = format!(
        r#"{{"market":"{}","asset_id":"{}","timestamp":"{}","hash":"{}","#,
        market.condition_id, token.asset_id, token.timestamp_ms, token.hash
    );
    out.extend_from_slice(head.as_bytes());
    token.ladder.write_sides(out);
    let trade = format!(r#","last_trade_price":"{}""#, market.last_trade_price);
    let trade = if market.is_trade_unknown { "" } else { &trade };
    let tail = match form {
        BookForm::Dump => {
            format!(r#","tick_size":"{}","event_type":"book"{trade}}}"#, market.tick_size)
        }
        BookForm::Again => r#","event_type":"book"}"#.to_owned(),
        BookForm::Rest => format!(
            r#","min_order_size":"{}","tick_size":"{}","neg_risk":{}{trade}}}"#,
            market.min_order_size, market.tick_size, market.neg_risk
        ),
    };
    out.extend_from_slice(tail.as_bytes());
    if market.is_v2 {
        out.truncate(out.len() - 1);
        out.extend_from_slice(br#","version":"v2"}"#);
    }
}

/// One entry of a `price_change`.
pub(crate) fn write_entry(
    out: &mut String,
    token: &Token,
    (side, price, size): (Side, &str, &str),
) {
    if !out.is_empty() {
        out.push(',');
    }
    let (bid, ask) = token.ladder.top();
    let pieces = [
        r#"{"asset_id":""#,
        &token.id,
        r#"","price":""#,
        price,
        r#"","size":""#,
        size,
        r#"","side":""#,
        side.text(),
        r#"","hash":""#,
        &token.hash,
        r#"","best_bid":""#,
        bid,
        r#"","best_ask":""#,
        ask,
        r#""}"#,
    ];
    out.extend(pieces);
}

/// A `price_change` with these entries.
pub(crate) fn price_change(market: &Market, entries: &str, timestamp_ms: u64) -> String {
    let mut text = String::with_capacity(entries.len() + 160);
    write!(
        text,
        concat!(
            r#"{{"market":"{}","price_changes":[{}],"timestamp":"{}","#,
            r#""event_type":"price_change"}}"#
        ),
        market.condition_id, entries, timestamp_ms
    )
    .unwrap();
    text
}
