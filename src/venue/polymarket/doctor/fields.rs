//! The known fields of the venue's messages.

use serde_json::Value;

/// Fields of `/clob-markets/{condition id}`. The fields that this code does not read are about
/// rewards for makers, times and other kinds of orders.
pub(super) const COMPACT: [&str; 18] = [
    "c", "t", "mos", "mts", "mbf", "tbf", "ao", "aot", "nr", "fd", "r", "itode", "ibce", "cbos",
    "sd", "rfqe", "oas", "gst",
];

/// Fields of a book, whether requested or from the socket.
const BOOK: [&str; 12] = [
    "event_type",
    "market",
    "asset_id",
    "timestamp",
    "hash",
    "bids",
    "asks",
    "min_order_size",
    "tick_size",
    "neg_risk",
    "last_trade_price",
    "version",
];

const PRICE_CHANGE: [&str; 4] = ["event_type", "market", "timestamp", "price_changes"];

const CHANGE: [&str; 7] = ["asset_id", "price", "size", "side", "hash", "best_bid", "best_ask"];

const TRADE: [&str; 9] = [
    "event_type",
    "market",
    "asset_id",
    "price",
    "size",
    "fee_rate_bps",
    "side",
    "timestamp",
    "transaction_hash",
];

const TICK_SIZE_CHANGE: [&str; 6] =
    ["event_type", "market", "asset_id", "old_tick_size", "new_tick_size", "timestamp"];

const BEST_BID_ASK: [&str; 7] =
    ["event_type", "market", "asset_id", "best_bid", "best_ask", "spread", "timestamp"];

/// Returns the first field of this object that is not in `known`.
pub(super) fn unknown<'a>(object: &'a Value, known: &[&str]) -> Option<&'a str> {
    let names = object.as_object()?.keys();
    names.map(String::as_str).find(|name| !known.contains(name))
}

/// Returns the first unknown field of a requested book.
pub(super) fn unknown_in_book(book: &Value) -> Option<&str> {
    unknown(book, &BOOK)
}

/// Returns the first unknown field of a message, if any. The outer `None` means that the fields of
/// this kind of message do not matter.
pub(super) fn unknown_in_message(message: &Value) -> Option<Option<&str>> {
    Some(match message["event_type"].as_str()? {
        "book" => unknown(message, &BOOK),
        "price_change" => unknown(message, &PRICE_CHANGE).or_else(|| {
            let mut changes = message["price_changes"].as_array().into_iter().flatten();
            changes.find_map(|change| unknown(change, &CHANGE))
        }),
        "last_trade_price" => unknown(message, &TRADE),
        "tick_size_change" => unknown(message, &TICK_SIZE_CHANGE),
        "best_bid_ask" => unknown(message, &BEST_BID_ASK),
        _ => return None,
    })
}
