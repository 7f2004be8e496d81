//! The JSON text of one market's prices, encoded once and shared by all sockets. Pure.
//!
//! ```json
//! {"type":"price","market_id":"0x…","condition_id":"0x…","seq":7,"emit_ts_ms":1784578686071,
//!  "source":"book","updated_at":"2026-07-20T20:18:06.07Z","stale":false,"active":true,
//!  "closed":false,"volume":"1204.5","buy":"0.53","sell":"0.47","best_bid":"0.52",
//!  "best_ask":"0.54","last_trade":"0.53","last_trade_side":"BUY","last_trade_size":"10",
//!  "outcomes":[{"label":"Yes","price":"0.53","token_id":"71…","best_bid":"0.52",…},…],
//!  "tokens":{"71…":{"label":"Yes","price":"0.53"},…}}
//! ```
//!
//! Prices, sizes and money are strings. `source`, `updated_at`, `volume` and an outcome's `price`
//! and `token_id` are `null` if unknown; all other unknown fields are absent. The bid, ask and
//! trade at the top level are those of the first outcome; `active` says whether orders can fill. If
//! the reader missed frames, the object ends in `"conflated":true`.
//!
//! When a market closes or is resolved, that is also sent once, as an object of its own:
//!
//! ```json
//! {"type":"market_status","market_id":"0x…","condition_id":"0x…","seq":9,"status":"resolved",
//!  "payouts":[{"label":"Yes","payout":"1","token_id":"71…"},…]}
//! ```

use std::collections::BTreeMap;

use schemars::{JsonSchema, Schema};
use serde::{Serialize, Serializer};
use serde_json::json;

use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::MarketSnapshot;
use paperbourse_core::market::book::Side;
use paperbourse_core::market::catalogue::{MarketInfo, MarketStatus, Outcome};
use paperbourse_core::market::price::{MarketPrices, OutcomePrice, PriceSource};
use paperbourse_core::money::{self, Shares};
use paperbourse_core::wire::{Decimal, Time};

/// An encoded frame: a market's prices at one moment.
#[derive(PartialEq, Eq, Debug)]
pub struct PriceFrame {
    /// The number of the frame. Rises by one with each frame of the market's channel.
    pub seq: u64,
    /// The market's tick at that moment, which is not part of the text.
    pub tick: money::Price,
    /// The market's status at that moment.
    pub status: MarketStatus,
    /// The `market_status` object, sent once; `None` unless the market is closed or resolved.
    pub end_json: Option<Box<[u8]>>,
    /// The object without its closing brace, so that both endings can share it.
    open_json: Box<[u8]>,
}

impl PriceFrame {
    /// Encodes the prices of this snapshot as frame number `seq`.
    pub fn encode(snapshot: &MarketSnapshot, seq: u64, now: Timestamp) -> Self {
        let info = snapshot.info();
        let prices = MarketPrices::of(snapshot);
        let mut json = json_of(&Price::of(info, &prices, seq, now));
        let brace = json.pop();
        assert_eq!(brace, Some(b'}'), "the fields are an object");
        let end = StatusChange::of(info, seq).map(|end| json_of(&end).into_boxed_slice());
        let (tick, status) = (info.tick, info.status);
        Self { seq, tick, status, end_json: end, open_json: json.into_boxed_slice() }
    }

    /// Returns the JSON text in two pieces. `conflated` is for a reader that missed frames since
    /// the last frame it was sent.
    pub fn json(&self, conflated: bool) -> [&[u8]; 2] {
        [&self.open_json, if conflated { b",\"conflated\":true}" } else { b"}" }]
    }
}

/// A market's prices, sent after each change. A slow reader gets only the newest ones.
#[derive(Serialize, JsonSchema)]
#[schemars(transform = add_conflated)]
pub struct Price<'a> {
    #[schemars(extend("const" = "price"))]
    r#type: &'static str,
    /// The market's condition id.
    market_id: &'a str,
    /// The same as `market_id`.
    condition_id: &'a str,
    /// Rises with each frame of the market, and begins again at 1 when the server restarts.
    seq: u64,
    /// When the frame was made, in milliseconds since 1970.
    emit_ts_ms: i64,
    /// Where the prices come from; null if none is known.
    #[schemars(extend("enum" = ["book", "mirror", "last_trade", "resolution", null]))]
    source: Option<&'static str>,
    /// When the venue last changed what the prices come from.
    updated_at: Option<Time>,
    /// Whether a book may be out of date.
    stale: bool,
    /// Whether orders can fill.
    active: bool,
    /// Whether the market has closed.
    closed: bool,
    /// The total volume, in dollars.
    volume: Option<Decimal>,
    /// The price of the first outcome.
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    buy: Option<Decimal>,
    /// The price of the second outcome.
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    sell: Option<Decimal>,
    /// Of the first outcome.
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    best_bid: Option<Decimal>,
    /// Of the first outcome.
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    best_ask: Option<Decimal>,
    /// The price of the last trade of the first outcome.
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_trade: Option<Decimal>,
    #[schemars(with = "String", extend("enum" = ["BUY", "SELL"]))]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_trade_side: Option<&'static str>,
    /// In shares.
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_trade_size: Option<Decimal>,
    outcomes: Vec<OutcomePrices<'a>>,
    /// The outcomes again, by token.
    #[schemars(with = "BTreeMap<String, TokenPrice<'a>>")]
    tokens: Tokens<'a>,
}

fn json_of(fields: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(fields).expect("strings and integers always have a JSON text")
}

/// That a market has closed, or is resolved. It follows the first price that shows this, and is
/// said once, if the reader has seen the market before.
#[derive(Serialize, JsonSchema)]
pub struct StatusChange<'a> {
    #[schemars(extend("const" = "market_status"))]
    r#type: &'static str,
    /// The market's condition id.
    market_id: &'a str,
    /// The same as `market_id`.
    condition_id: &'a str,
    /// That of the price before it.
    seq: u64,
    /// `closed` means that no orders fill and the result is not final; `resolved` that it is.
    #[schemars(extend("enum" = ["closed", "resolved"]))]
    status: &'static str,
    /// What a share of each outcome pays, once the market is resolved.
    #[schemars(with = "Vec<OutcomePayout<'a>>")]
    #[serde(skip_serializing_if = "Option::is_none")]
    payouts: Option<Vec<OutcomePayout<'a>>>,
}

#[derive(Serialize, JsonSchema)]
struct OutcomePayout<'a> {
    label: &'a str,
    /// In dollars.
    payout: Decimal,
    /// Null if the venue has not named it yet.
    token_id: Option<&'a str>,
}

impl<'a> StatusChange<'a> {
    /// Returns the change to announce; `None` if the market has neither closed nor been resolved.
    fn of(info: &'a MarketInfo, seq: u64) -> Option<Self> {
        let (status, payouts) = match info.status {
            MarketStatus::Closed => ("closed", None),
            MarketStatus::Resolved => {
                let payouts = info.outcomes.iter().zip(&info.payouts);
                let payouts = payouts.map(|(outcome, &payout)| OutcomePayout {
                    label: &outcome.label,
                    payout: payout.into(),
                    token_id: named(outcome),
                });
                ("resolved", Some(payouts.collect()))
            }
            MarketStatus::Hydrating | MarketStatus::Open | MarketStatus::Paused => return None,
        };
        let condition_id = &info.condition_id;
        let market_id = condition_id;
        Some(Self { r#type: "market_status", market_id, condition_id, seq, status, payouts })
    }
}

/// Returns the outcome's token id, if the venue has named it.
fn named(outcome: &Outcome) -> Option<&str> {
    Some(&*outcome.token_id).filter(|token_id| !token_id.is_empty())
}

#[derive(Serialize, JsonSchema)]
struct OutcomePrices<'a> {
    label: &'a str,
    price: Option<Decimal>,
    /// Null if the venue has not named it yet.
    token_id: Option<&'a str>,
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    best_bid: Option<Decimal>,
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    best_ask: Option<Decimal>,
    #[schemars(with = "Decimal")]
    #[serde(skip_serializing_if = "Option::is_none")]
    last_trade: Option<Decimal>,
}

/// The outcomes again, keyed by token. Those without a known token are left out.
struct Tokens<'a> {
    info: &'a MarketInfo,
    prices: &'a MarketPrices,
}

#[derive(Serialize, JsonSchema)]
struct TokenPrice<'a> {
    label: &'a str,
    price: Option<Decimal>,
}

/// Adds the field that [`PriceFrame::json`] appends.
fn add_conflated(schema: &mut Schema) {
    schema.get_mut("properties").expect("an object has properties")["conflated"] = json!({
        "type": "boolean",
        "const": true,
        "description": "There if the reader missed frames of the market since the last one.",
    });
}

impl<'a> Price<'a> {
    fn of(info: &'a MarketInfo, prices: &'a MarketPrices, seq: u64, now: Timestamp) -> Self {
        let first = prices.outcomes.first().copied().unwrap_or_default();
        let trade = first.last_trade;
        Self {
            r#type: "price",
            market_id: &info.condition_id,
            condition_id: &info.condition_id,
            seq,
            emit_ts_ms: now.millis(),
            source: prices.source().map(PriceSource::as_str),
            updated_at: prices.updated_at().map(Time),
            stale: prices.stale,
            active: info.status.is_tradable(),
            closed: info.status.is_closed(),
            volume: info.volume_total.map(Decimal::from),
            buy: prices.buy().map(Decimal::from),
            sell: prices.sell().map(Decimal::from),
            best_bid: first.best_bid.map(Decimal::from),
            best_ask: first.best_ask.map(Decimal::from),
            last_trade: trade.map(|trade| trade.price.into()),
            last_trade_side: trade.and_then(|trade| trade.side).map(Side::as_str),
            // A size of 0 means that the venue reported only the price.
            last_trade_size: trade
                .map(|trade| trade.size)
                .filter(|&s| s != Shares::ZERO)
                .map(Decimal::from),
            outcomes: info
                .outcomes
                .iter()
                .zip(&prices.outcomes)
                .map(|(outcome, price)| OutcomePrices::of(outcome, price))
                .collect(),
            tokens: Tokens { info, prices },
        }
    }
}

impl<'a> OutcomePrices<'a> {
    fn of(outcome: &'a Outcome, price: &OutcomePrice) -> Self {
        Self {
            label: &outcome.label,
            price: price.price().map(Decimal::from),
            token_id: named(outcome),
            best_bid: price.best_bid.map(Decimal::from),
            best_ask: price.best_ask.map(Decimal::from),
            last_trade: price.last_trade.map(|trade| trade.price.into()),
        }
    }
}

impl Serialize for Tokens<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let known = self
            .info
            .outcomes
            .iter()
            .zip(&self.prices.outcomes)
            .filter(|(outcome, _)| !outcome.token_id.is_empty());
        serializer.collect_map(known.map(|(outcome, price)| {
            let fields =
                TokenPrice { label: &outcome.label, price: price.price().map(Decimal::from) };
            (&*outcome.token_id, fields)
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use paperbourse_core::ids::OutcomeIndex;
    use paperbourse_core::market::Markets;
    use paperbourse_core::market::book::{Book, Ladder, LastTrade, Level};
    use paperbourse_core::money::{Price, Usd};

    fn outcomes(tokens: [&str; 2]) -> impl Iterator<Item = Outcome> {
        [("Yes", tokens[0]), ("N\"o", tokens[1])]
            .into_iter()
            .map(|(label, token)| Outcome { label: label.into(), token_id: token.into() })
    }

    #[track_caller]
    fn check(info: MarketInfo, book: Option<Book>, conflated: bool, expected: &[&str]) {
        let markets = Markets::new();
        markets.list(vec![info]).unwrap();
        let market = markets.by_condition("0xa").unwrap();
        if let Some(book) = book {
            markets.publish(&market, OutcomeIndex(0), Arc::new(book));
        }
        let now = Timestamp::from_millis(1_784_578_686_071);
        let frame = PriceFrame::encode(&market.snapshot(), 7, now);
        let text = String::from_utf8(frame.json(conflated).concat()).unwrap();
        assert_eq!(text, expected.concat());
        serde_json::from_str::<serde_json::Value>(&text).unwrap();
    }

    #[test]
    fn a_frame_shows_everything_known() {
        let level = |micros| Level {
            price: Price::from_micros(micros),
            size: Shares::from_micros(1_000_000),
        };
        let ladder = Ladder::from_levels(vec![level(520_000)], vec![level(550_000)]).unwrap();
        let mut book = Book::new(ladder, Timestamp::from_millis(1_784_578_686_000));
        book.last_trade = Some(LastTrade {
            price: Price::from_micros(530_000),
            size: Shares::from_micros(10_500_000),
            side: Some(Side::Sell),
            at: Timestamp::EPOCH,
        });
        let info = MarketInfo {
            volume_total: Some(Usd::from_micros(1_204_500_000)),
            ..MarketInfo::bare("0xa", outcomes(["71", "72"]))
        };
        let fields = [
            r#"{"type":"price","market_id":"0xa","condition_id":"0xa","seq":7,"#,
            r#""emit_ts_ms":1784578686071,"source":"book","updated_at":"2026-07-20T20:18:06Z","#,
            r#""stale":false,"active":true,"closed":false,"volume":"1204.5","#,
            r#""buy":"0.535","sell":"0.465","best_bid":"0.52","best_ask":"0.55","#,
            r#""last_trade":"0.53","last_trade_side":"SELL","last_trade_size":"10.5","#,
            r#""outcomes":[{"label":"Yes","price":"0.535","token_id":"71","#,
            r#""best_bid":"0.52","best_ask":"0.55","last_trade":"0.53"},"#,
            r#"{"label":"N\"o","price":"0.465","token_id":"72","#,
            r#""best_bid":"0.45","best_ask":"0.48","last_trade":"0.47"}],"#,
            r#""tokens":{"71":{"label":"Yes","price":"0.535"},"#,
            r#""72":{"label":"N\"o","price":"0.465"}}"#,
        ];
        let whole = |end| [&fields[..], &[end]].concat();
        check(info.clone(), Some(book.clone()), false, &whole("}"));
        check(info, Some(book), true, &whole(r#","conflated":true}"#));
    }

    #[test]
    fn unknown_values_are_null_or_absent() {
        let info = MarketInfo {
            status: MarketStatus::Hydrating,
            ..MarketInfo::bare("0xa", outcomes(["", ""]))
        };
        let expected = [
            r#"{"type":"price","market_id":"0xa","condition_id":"0xa","seq":7,"#,
            r#""emit_ts_ms":1784578686071,"source":null,"updated_at":null,"#,
            r#""stale":true,"active":false,"closed":false,"volume":null,"#,
            r#""outcomes":[{"label":"Yes","price":null,"token_id":null},"#,
            r#"{"label":"N\"o","price":null,"token_id":null}],"tokens":{}}"#,
        ];
        check(info, None, false, &expected);
    }

    #[test]
    fn the_end_of_a_market_is_said_beside_its_price() {
        let begin = r#"{"type":"market_status","market_id":"0xa","condition_id":"0xa","seq":7,"#;
        let resolved = r#""status":"resolved","payouts":[{"label":"Yes","payout":"0","#.to_owned()
            + r#""token_id":"71"},{"label":"N\"o","payout":"1","token_id":null}]}"#;
        for status in MarketStatus::ALL {
            let info = MarketInfo {
                status,
                payouts: vec![Price::ZERO, Price::ONE],
                ..MarketInfo::bare("0xa", outcomes(["71", ""]))
            };
            let market = paperbourse_core::market::Market::new(info);
            let frame = PriceFrame::encode(&market.snapshot(), 7, Timestamp::EPOCH);
            let text = frame.end_json.map(|json| String::from_utf8(json.into()).unwrap());
            let expected = match status {
                MarketStatus::Closed => Some(begin.to_owned() + r#""status":"closed"}"#),
                MarketStatus::Resolved => Some(begin.to_owned() + &resolved),
                _ => None,
            };
            assert_eq!((frame.status, text), (status, expected));
        }
    }

    #[test]
    fn a_resolved_market_shows_its_payouts() {
        let info = MarketInfo {
            status: MarketStatus::Resolved,
            payouts: vec![Price::ZERO, Price::ONE],
            ..MarketInfo::bare("0xa", outcomes(["71", ""]))
        };
        let expected = [
            r#"{"type":"price","market_id":"0xa","condition_id":"0xa","seq":7,"#,
            r#""emit_ts_ms":1784578686071,"source":"resolution","updated_at":null,"#,
            r#""stale":false,"active":false,"closed":true,"volume":null,"buy":"0","sell":"1","#,
            r#""outcomes":[{"label":"Yes","price":"0","token_id":"71"},"#,
            r#"{"label":"N\"o","price":"1","token_id":null}],"#,
            r#""tokens":{"71":{"label":"Yes","price":"0"}}}"#,
        ];
        check(info, None, false, &expected);
    }
}
