//! The smaller frames of the venue's market socket: trades, ticks, best prices, and the beginning
//! and end of markets. Pure.

use std::io::Write as _;

use serde::Serialize;

use super::frame::put_text;
use paperbourse_core::ids::{OutcomeIndex, Timestamp, condition};
use paperbourse_core::market::book::{LastTrade, Side};
use paperbourse_core::market::catalogue::MarketInfo;
use paperbourse_core::money::{MICROS_PER_UNIT, Price, write_micros};

/// The panic message if a `write!` fails.
pub(super) const INFALLIBLE: &str = "writing to a vector cannot fail";

/// An event that is being written: its type, its market, the asset and the time come first.
struct Event(Vec<u8>);

impl Event {
    fn new(event_type: &str, info: &MarketInfo, index: usize, at: Timestamp) -> Self {
        let mut text = Vec::with_capacity(384);
        write!(
            text,
            r#"{{"event_type":"{event_type}","market":"{}","asset_id":"{}","timestamp":"{}""#,
            condition::wide(&info.condition_id),
            info.outcomes[index].token_id,
            at.millis()
        )
        .expect(INFALLIBLE);
        Self(text)
    }

    fn decimal(mut self, name: &str, micros: i64) -> Self {
        write!(self.0, r#","{name}":""#).expect(INFALLIBLE);
        write_micros(&mut self.0, micros);
        self.0.push(b'"');
        self
    }

    fn word(mut self, name: &str, word: &str) -> Self {
        write!(self.0, r#","{name}":"{word}""#).expect(INFALLIBLE);
        self
    }

    fn put(mut self, out: &mut Vec<u8>) {
        self.0.push(b'}');
        put_text(out, &[&self.0]);
    }
}

/// Returns the socket frame of a trade. Clients need a side, so a trade whose side the venue did
/// not report counts as bought.
pub(super) fn trade(info: &MarketInfo, outcome: OutcomeIndex, trade: LastTrade) -> Box<[u8]> {
    let mut out = Vec::new();
    Event::new("last_trade_price", info, outcome.index(), trade.at)
        .decimal("price", trade.price.micros())
        .decimal("size", trade.size.micros())
        .word("side", trade.side.unwrap_or(Side::Buy).as_str())
        .word("fee_rate_bps", "0")
        .put(&mut out);
    out.into()
}

/// Adds the best prices of an outcome. A side without levels has the price beyond all others.
pub(super) fn put_top(
    out: &mut Vec<u8>,
    info: &MarketInfo,
    index: usize,
    at: Timestamp,
    bid: Option<Price>,
    ask: Option<Price>,
) {
    let bid = bid.map_or(0, Price::micros);
    let ask = ask.map_or(MICROS_PER_UNIT, Price::micros);
    Event::new("best_bid_ask", info, index, at)
        .decimal("best_bid", bid)
        .decimal("best_ask", ask)
        .decimal("spread", ask - bid)
        .put(out);
}

/// Adds a change of the tick.
pub(super) fn put_tick(
    out: &mut Vec<u8>,
    info: &MarketInfo,
    index: usize,
    at: Timestamp,
    old: Price,
) {
    Event::new("tick_size_change", info, index, at)
        .decimal("old_tick_size", old.micros())
        .decimal("new_tick_size", info.tick.micros())
        .put(out);
}

/// What is said of a market when it is listed or resolved. The venue's number of a market is not
/// known here, so the condition id stands for it.
#[derive(Serialize)]
struct Described<'a> {
    event_type: &'static str,
    id: &'a str,
    market: &'a str,
    question: &'a str,
    slug: &'a str,
    description: &'static str,
    assets_ids: Vec<&'a str>,
    outcomes: Vec<&'a str>,
    event_message: Option<()>,
    timestamp: String,
    tags: [&'static str; 0],
    #[serde(flatten)]
    rest: Rest<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Rest<'a> {
    New {
        condition_id: &'a str,
        active: bool,
        clob_token_ids: Vec<&'a str>,
        order_price_min_tick_size: String,
        fees_enabled: bool,
    },
    Resolved {
        winning_asset_id: &'a str,
        winning_outcome: &'a str,
    },
}

/// Adds a market that was just listed.
pub(super) fn put_new_market(out: &mut Vec<u8>, info: &MarketInfo, now: Timestamp) {
    let condition_id = condition::wide(&info.condition_id);
    put_described(out, info, "new_market", now, || Rest::New {
        condition_id: &condition_id,
        active: info.is_tradable(),
        clob_token_ids: info.outcomes.iter().map(|outcome| &*outcome.token_id).collect(),
        order_price_min_tick_size: info.tick.to_string(),
        fees_enabled: info.fees != paperbourse_core::market::catalogue::Fees::Free,
    });
}

/// Adds the resolution of a market. The outcome that pays most is called the winner; of several,
/// the first.
pub(super) fn put_resolved(out: &mut Vec<u8>, info: &MarketInfo, now: Timestamp) {
    let paid = info.outcomes.iter().zip(&info.payouts).rev();
    let Some((winner, _)) = paid.max_by_key(|(_, payout)| **payout) else { return };
    put_described(out, info, "market_resolved", now, || Rest::Resolved {
        winning_asset_id: &winner.token_id,
        winning_outcome: &winner.label,
    });
}

fn put_described<'a>(
    out: &mut Vec<u8>,
    info: &'a MarketInfo,
    event_type: &'static str,
    now: Timestamp,
    rest: impl FnOnce() -> Rest<'a>,
) {
    let market = condition::wide(&info.condition_id);
    let described = Described {
        event_type,
        id: &market,
        market: &market,
        question: info.question.as_deref().unwrap_or_default(),
        slug: info.slug.as_deref().unwrap_or_default(),
        description: "",
        assets_ids: info.outcomes.iter().map(|outcome| &*outcome.token_id).collect(),
        outcomes: info.outcomes.iter().map(|outcome| &*outcome.label).collect(),
        event_message: None,
        timestamp: now.millis().to_string(),
        tags: [],
        rest: rest(),
    };
    let text = serde_json::to_vec(&described).expect("it has only texts and lists of them");
    put_text(out, &[&text]);
}
