//! Parses the CLOB service's books, and its descriptions of markets in three forms (compact, long,
//! simplified).

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error};
use serde_json::value::RawValue;

use super::gamma::curve;
use super::{
    Bounded, Description, FieldProblem, NO_TIMESTAMP, Raw, WireError, checked_hash, checked_id,
    expected, flag, is_hydrated, micros, object, outcomes, payouts_of, scalar, shown,
    taker_delay_ms, time, timestamp_of,
};
use crate::event::NewestTrade;
use crate::polymarket::resolution::Stage;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::{Ladder, Level};
use paperbourse_core::market::catalogue::{Fees, MarketInfo, MarketStatus};
use paperbourse_core::money::{Price, Rounding, Shares};

/// A full book, from the book endpoints or the socket. Its ids borrow from the text.
#[derive(Clone, PartialEq, Debug)]
pub struct BookMessage<'a> {
    /// The market's condition id.
    pub market: &'a str,
    /// The token's id.
    pub asset_id: &'a str,
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The venue's hash of the book, if sent with a timestamp.
    pub hash: Option<&'a str>,
    /// The bids and asks.
    pub ladder: Ladder,
    /// The minimum size of a resting order, in shares. The socket does not send it.
    pub order_size_min: Option<Shares>,
    /// The price increment. The socket sends it only with the first book.
    pub tick: Option<Price>,
    /// Whether the market's event has several markets, exactly one of which wins. The socket does
    /// not send this flag.
    pub neg_risk: Option<bool>,
    /// The newest trade; `None` if the message does not state it.
    pub newest_trade: Option<NewestTrade>,
    /// The version of the protocol. Only books of version 2 state it.
    pub version: Option<&'a str>,
}

/// The fields of a book. Other messages on the socket share them.
#[derive(Deserialize)]
pub(super) struct BookObject<'a> {
    #[serde(borrow)]
    pub(super) market: Option<&'a str>,
    pub(super) asset_id: Option<&'a str>,
    pub(super) timestamp: Option<&'a str>,
    pub(super) hash: Option<&'a str>,
    pub(super) bids: Option<Levels>,
    pub(super) asks: Option<Levels>,
    pub(super) min_order_size: Option<&'a str>,
    pub(super) tick_size: Option<&'a str>,
    pub(super) neg_risk: Option<bool>,
    pub(super) last_trade_price: Option<&'a str>,
    pub(super) version: Option<&'a str>,
}

/// Levels in the order of the wire, parsed without an intermediate copy.
pub(super) struct Levels(pub(super) Vec<Level>);

impl<'de> Deserialize<'de> for Levels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<Level>;
            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("an array of levels")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut sequence: A,
            ) -> Result<Self::Value, A::Error> {
                let mut levels = Vec::with_capacity(64);
                while let Some(level) = sequence.next_element::<LevelObject<'de>>()? {
                    levels.push(level.level().map_err(A::Error::custom)?);
                }
                Ok(levels)
            }
        }
        deserializer.deserialize_seq(Visitor).map(Self)
    }
}

#[derive(Deserialize)]
struct LevelObject<'a> {
    price: &'a str,
    size: &'a str,
}

impl LevelObject<'_> {
    fn level(&self) -> Result<Level, WireError> {
        Ok(Level { price: price("price", self.price)?, size: size("size", self.size)? })
    }
}

/// Parses a price exactly.
pub(super) fn price(field: &'static str, text: &str) -> Result<Price, WireError> {
    Price::from_text(text, Rounding::Exact)
        .map_err(|error| WireError::Field { field, problem: error.into() })
}

/// Parses a size exactly.
pub(super) fn size(field: &'static str, text: &str) -> Result<Shares, WireError> {
    Shares::from_text(text, Rounding::Exact)
        .map_err(|error| WireError::Field { field, problem: error.into() })
}

/// Parses one book.
pub fn book(text: &str) -> Result<BookMessage<'_>, WireError> {
    object::<BookObject<'_>>(text)?.message()
}

/// Maximum number of books in an answer, which is more than a request asks for.
const BOOKS_PER_ANSWER_MAX: usize = 1_000;

/// The books of an answer, bounded in number.
type Books<T> = Bounded<T, BOOKS_PER_ANSWER_MAX>;

/// A book that cannot be parsed.
#[derive(Debug)]
pub struct UnreadableBook<'a> {
    /// The token's id, if it can be parsed.
    pub asset_id: Option<&'a str>,
    /// The parse error.
    pub error: WireError,
}

/// Parses an array of books. An unreadable book does not affect the others.
pub fn books(
    text: &str,
) -> Result<Vec<Result<BookMessage<'_>, UnreadableBook<'_>>>, serde_json::Error> {
    // Well-formed books are parsed in one pass, which takes half as long as splitting them first.
    if let Ok(rows) = serde_json::from_str::<Books<BookObject<'_>>>(text) {
        return Ok(rows.0.into_iter().map(BookObject::row).collect());
    }
    let rows: Books<&RawValue> = serde_json::from_str(text)?;
    Ok(rows.0.into_iter().map(row).collect())
}

fn row(row: &RawValue) -> Result<BookMessage<'_>, UnreadableBook<'_>> {
    let asset_id = super::socket::subject(row.get()).asset_id;
    book(row.get()).map_err(|error| UnreadableBook { asset_id, error })
}

impl<'a> BookObject<'a> {
    fn row(self) -> Result<BookMessage<'a>, UnreadableBook<'a>> {
        let asset_id = self.asset_id;
        self.message().map_err(|error| UnreadableBook { asset_id, error })
    }

    pub(super) fn message(self) -> Result<BookMessage<'a>, WireError> {
        let market = checked_id("market", needed("market", self.market)?)?;
        let asset_id = checked_id("asset_id", needed("asset_id", self.asset_id)?)?;
        let at = timestamp_of(self.timestamp)?;
        let bids = needed("bids", self.bids)?.0;
        let asks = needed("asks", self.asks)?.0;
        let ladder = Ladder::from_levels(bids, asks).map_err(|error| WireError::Field {
            field: "bids or asks",
            problem: FieldProblem::Ladder(error),
        })?;
        let newest_trade = match self.last_trade_price {
            None => None,
            Some("") => Some(NewestTrade::Never),
            Some(text) => Some(NewestTrade::At(price("last_trade_price", text)?)),
        };
        Ok(BookMessage {
            market,
            asset_id,
            at,
            // A hash covers the timestamp, so it cannot be checked without one.
            hash: checked_hash(self.hash)?.filter(|_| at != NO_TIMESTAMP),
            ladder,
            order_size_min: self
                .min_order_size
                .map(|text| size("min_order_size", text))
                .transpose()?,
            tick: self.tick_size.map(|text| price("tick_size", text)).transpose()?,
            neg_risk: self.neg_risk,
            newest_trade,
            version: self.version.map(|version| checked_id("version", version)).transpose()?,
        })
    }
}

/// Returns a required field, or an error if it is missing.
pub(super) fn needed<T>(field: &'static str, value: Option<T>) -> Result<T, WireError> {
    value.ok_or(WireError::Missing { field })
}

/// A row of `/clob-markets/{condition_id}`, whose keys are abbreviated.
#[derive(Deserialize)]
struct CompactObject<'a> {
    #[serde(borrow)]
    c: Raw<'a>,
    #[serde(borrow)]
    t: Option<Vec<CompactToken<'a>>>,
    #[serde(borrow)]
    mos: Raw<'a>,
    #[serde(borrow)]
    mts: Raw<'a>,
    #[serde(borrow)]
    ao: Raw<'a>,
    #[serde(borrow)]
    nr: Raw<'a>,
    #[serde(borrow)]
    sd: Raw<'a>,
    #[serde(borrow)]
    itode: Raw<'a>,
    #[serde(borrow)]
    taker_delay_ms: Raw<'a>,
    #[serde(borrow)]
    fd: Option<CompactFees<'a>>,
}

#[derive(Deserialize)]
struct CompactToken<'a> {
    #[serde(borrow)]
    t: Raw<'a>,
    #[serde(borrow)]
    o: Raw<'a>,
}

#[derive(Deserialize)]
struct CompactFees<'a> {
    #[serde(borrow)]
    r: Raw<'a>,
    #[serde(borrow)]
    e: Raw<'a>,
}

/// Parses the compact form of a market. If it states no fee, trading is free.
///
/// This is the only form that reports a delay for up-or-down markets (markets on the direction of a
/// price): the flag `itode`, which is omitted if it is false. The form does not state the length of
/// that delay; see [`crate::polymarket::unstated_delay`]. `sd` is the delay of other markets, in
/// seconds.
pub fn compact_market(text: &str) -> Result<Description, WireError> {
    let row: CompactObject<'_> = object(text)?;
    let condition_id = scalar("c", row.c)?.ok_or(WireError::Missing { field: "c" })?;
    checked_id("c", &condition_id)?;
    let (mut labels, mut tokens) = (Vec::new(), Vec::new());
    for token in row.t.unwrap_or_default() {
        labels.push(scalar("o", token.o)?.ok_or(WireError::Missing { field: "o" })?);
        tokens.push(scalar("t", token.t)?.unwrap_or_default());
    }
    let mut info = MarketInfo::bare(&condition_id, outcomes(&labels, ("t", &tokens))?);
    info.status = status(&info, false, flag("ao", row.ao)?.unwrap_or(false));
    set_grid(&mut info, ("mts", row.mts), ("mos", row.mos))?;
    info.neg_risk = flag("nr", row.nr)?.unwrap_or(false);
    info.fees = match row.fd {
        None => Fees::Free,
        Some(fees) => curve(fees.r, fees.e).unwrap_or(Fees::Unsupported),
    };
    info.has_unstated_delay = flag("itode", row.itode)?.unwrap_or(false);
    let ms = ("taker_delay_ms", row.taker_delay_ms);
    let (taker_delay_ms, is_delay_exact) = taker_delay_ms(ms, ("sd", row.sd))?;
    info.taker_delay_ms = taker_delay_ms.unwrap_or(0);
    info.has_unstated_delay &= !is_delay_exact;
    Ok(Description {
        info,
        updated_at: None,
        is_fee_stated: true,
        is_delay_stated: true,
        is_delay_exact,
        shown_payouts: None,
        has_named_winner: false,
        stage: Stage::Unreported,
    })
}

/// A row of `/markets/{condition_id}`, or of the simplified lists, which lack most fields.
#[derive(Deserialize)]
struct LongObject<'a> {
    #[serde(borrow)]
    condition_id: Raw<'a>,
    #[serde(borrow)]
    tokens: Option<Vec<LongToken<'a>>>,
    #[serde(borrow)]
    active: Raw<'a>,
    #[serde(borrow)]
    closed: Raw<'a>,
    #[serde(borrow)]
    accepting_orders: Raw<'a>,
    #[serde(borrow)]
    minimum_tick_size: Raw<'a>,
    #[serde(borrow)]
    minimum_order_size: Raw<'a>,
    #[serde(borrow)]
    neg_risk: Raw<'a>,
    #[serde(borrow)]
    taker_base_fee: Raw<'a>,
    #[serde(borrow)]
    taker_delay_ms: Raw<'a>,
    #[serde(borrow)]
    seconds_delay: Raw<'a>,
    #[serde(borrow)]
    question: Raw<'a>,
    #[serde(borrow)]
    market_slug: Raw<'a>,
    #[serde(borrow)]
    end_date_iso: Raw<'a>,
    #[serde(borrow)]
    image: Raw<'a>,
}

#[derive(Deserialize)]
struct LongToken<'a> {
    #[serde(borrow)]
    token_id: Raw<'a>,
    #[serde(borrow)]
    outcome: Raw<'a>,
    #[serde(borrow)]
    price: Raw<'a>,
    #[serde(borrow)]
    winner: Raw<'a>,
}

/// Parses the long or the simplified form of a market.
///
/// The long form states whether there is a fee, but not its rate. So a market that is known only
/// from this form and is not free gets [`Fees::Unsupported`]. A delay of 0 does not mean that
/// marketable orders are matched at once; see [`compact_market`].
pub fn long_market(text: &str) -> Result<Description, WireError> {
    let row: LongObject<'_> = object(text)?;
    let condition_id = scalar("condition_id", row.condition_id)?
        .ok_or(WireError::Missing { field: "condition_id" })?;
    checked_id("condition_id", &condition_id)?;
    let (mut labels, mut tokens, mut prices) = (Vec::new(), Vec::new(), Vec::new());
    let mut has_winner = false;
    for token in row.tokens.unwrap_or_default() {
        labels.push(scalar("outcome", token.outcome)?.unwrap_or_default());
        tokens.push(scalar("token_id", token.token_id)?.unwrap_or_default());
        let price = micros("price", token.price, Rounding::HalfEven)?;
        let is_winner = flag("winner", token.winner)?.unwrap_or(false);
        has_winner |= is_winner;
        prices.push((Price::from_micros(price.unwrap_or(0)), is_winner));
    }
    let mut info = MarketInfo::bare(&condition_id, outcomes(&labels, ("tokens", &tokens))?);
    let closed = flag("closed", row.closed)?.unwrap_or(false);
    let accepting = flag("accepting_orders", row.accepting_orders)?.unwrap_or(false)
        && flag("active", row.active)?.unwrap_or(false);
    info.status = status(&info, closed, accepting);
    set_grid(
        &mut info,
        ("minimum_tick_size", row.minimum_tick_size),
        ("minimum_order_size", row.minimum_order_size),
    )?;
    info.neg_risk = flag("neg_risk", row.neg_risk)?.unwrap_or(false);
    let is_free = micros("taker_base_fee", row.taker_base_fee, Rounding::Exact)? == Some(0);
    info.fees = if is_free { Fees::Free } else { Fees::Unsupported };
    let seconds = ("seconds_delay", row.seconds_delay);
    let (taker_delay_ms, is_delay_exact) =
        taker_delay_ms(("taker_delay_ms", row.taker_delay_ms), seconds)?;
    info.taker_delay_ms = taker_delay_ms.unwrap_or(0);
    info.question = shown(row.question);
    info.slug = shown(row.market_slug);
    info.end_date = shown(row.end_date_iso).and_then(|text| time(&text));
    info.image_url = shown(row.image);
    // A named winner determines the payouts. Otherwise, as in old markets and for payouts of ½, use
    // the prices.
    let numbers: Vec<Price> = prices
        .iter()
        .map(|&(price, is_winner)| match (has_winner, is_winner) {
            (false, _) => price,
            (true, true) => Price::ONE,
            (true, false) => Price::ZERO,
        })
        .collect();
    let shown_payouts = if closed { payouts_of(&numbers) } else { None };
    Ok(Description {
        info,
        updated_at: None,
        is_fee_stated: is_free,
        is_delay_stated: taker_delay_ms.is_some(),
        is_delay_exact,
        shown_payouts,
        has_named_winner: has_winner,
        stage: Stage::Unreported,
    })
}

fn status(info: &MarketInfo, closed: bool, accepting: bool) -> MarketStatus {
    if closed {
        MarketStatus::Closed
    } else if !is_hydrated(&info.outcomes) {
        MarketStatus::Hydrating
    } else if accepting {
        MarketStatus::Open
    } else {
        MarketStatus::Paused
    }
}

/// Sets the tick and the minimum order size, if stated. Archived markets have a tick of 0, which is
/// ignored.
pub(super) fn set_grid(
    info: &mut MarketInfo,
    (tick_field, tick): (&'static str, Raw<'_>),
    (size_field, size): (&'static str, Raw<'_>),
) -> Result<(), WireError> {
    if let Some(tick) = micros(tick_field, tick, Rounding::Exact)?.filter(|&tick| tick != 0) {
        if !(0..1_000_000).contains(&tick) {
            return Err(expected(tick_field, "a tick between 0 and 1"));
        }
        info.tick = Price::from_micros(tick);
    }
    if let Some(size) = micros(size_field, size, Rounding::Exact)? {
        info.order_size_min = Shares::from_micros(size);
    }
    Ok(())
}

#[cfg(test)]
mod tests;
