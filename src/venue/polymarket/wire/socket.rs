//! Parses the text frames of the market socket.
//!
//! A frame is one object, an array of objects, or plain text such as `PONG`. All numbers are
//! strings. Messages borrow their ids from the frame, to avoid copies.

use serde::Deserialize;
use serde_json::value::RawValue;
use smallvec::{SmallVec, smallvec};

use super::clob::{BookMessage, BookObject, Levels, needed, price, set_grid, size};
use super::gamma::fees;
use super::{
    Bounded, Description, NO_TIMESTAMP, Raw, WireError, checked_hash, checked_id, expected,
    is_hydrated, list, object, outcomes, scalar, shown, timestamp_of,
};
use crate::polymarket::resolution::Stage;
use paperbourse_core::ids::Timestamp;
use paperbourse_core::market::book::Side;
use paperbourse_core::market::catalogue::{
    Fees, MarketInfo, MarketStatus, OUTCOMES_PER_MARKET_MAX,
};
use paperbourse_core::money::{Price, Rounding, Shares};

/// The messages of a frame, each parsed separately.
pub type Messages<'a> = SmallVec<[Result<Message<'a>, WireError>; 1]>;

/// The content of a text frame.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a frame lives on the stack until it is applied")]
pub enum Frame<'a> {
    /// One message, or an array of messages. An unreadable message does not affect the others.
    Messages(Messages<'a>),
    /// The answer to our `PING`.
    Pong,
    /// The answer to a subscription that adds nothing.
    NoNewAssets,
    /// An empty text frame, which the server sends at times.
    Empty,
    /// Text that is not JSON, to be logged and ignored.
    Other,
}

/// One message of the market channel.
#[derive(Clone, PartialEq, Debug)]
pub enum Message<'a> {
    /// A full book, which replaces the token's previous book.
    Book(BookMessage<'a>),
    /// New total sizes at some levels.
    PriceChange(PriceChange<'a>),
    /// A trade.
    LastTradePrice(TradeMessage<'a>),
    /// A new tick for a token. May be sent twice.
    TickSizeChange(TickSizeChange<'a>),
    /// The best bid and ask of a token: redundant, but useful for a cross-check.
    BestBidAsk(BestBidAsk<'a>),
    /// A market was created, anywhere on the platform.
    NewMarket(Box<NewMarket>),
    /// A market has a winner, which is not final until the catalogue confirms it.
    MarketResolved(MarketResolved<'a>),
}

/// The level changes of one message, which take effect together.
#[derive(Clone, PartialEq, Debug)]
pub struct PriceChange<'a> {
    /// The market's condition id.
    pub market: &'a str,
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The changes in the order of the wire, for both tokens of the market.
    pub entries: SmallVec<[PriceChangeEntry<'a>; 2]>,
    /// The first unreadable entry of each token that has any.
    pub unreadable: Vec<UnreadableEntry<'a>>,
}

/// A level change that cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct UnreadableEntry<'a> {
    /// The token whose book lacks this change.
    pub asset_id: &'a str,
    /// The parse error.
    pub error: String,
}

/// A new size at one level.
#[derive(Clone, PartialEq, Debug)]
pub struct PriceChangeEntry<'a> {
    /// The token's id.
    pub asset_id: &'a str,
    /// `Buy` for bids, `Sell` for asks.
    pub side: Side,
    /// The price of the level.
    pub price: Price,
    /// The new total size in shares; 0 removes the level.
    pub size: Shares,
    /// The venue's hash of the token's book after the whole frame.
    pub hash: Option<&'a str>,
    /// The token's best bid once all of the frame's changes are applied; `None` if there is no bid
    /// or the frame does not state it.
    pub best_bid: Option<Price>,
    /// The token's best ask once all of the frame's changes are applied; `None` if there is no ask
    /// or the frame does not state it.
    pub best_ask: Option<Price>,
}

/// A trade. It has no id, and several trades can share a transaction.
#[derive(Clone, PartialEq, Debug)]
pub struct TradeMessage<'a> {
    /// The market's condition id.
    pub market: &'a str,
    /// The token's id.
    pub asset_id: &'a str,
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The price in dollars per share.
    pub price: Price,
    /// The number of shares; 0 if not stated.
    pub size: Shares,
    /// The taker's side on this token, if stated.
    pub side: Option<Side>,
    /// The hash of the transaction that settles the trade, if stated.
    pub transaction_hash: Option<&'a str>,
}

/// A change of the price increment of a token.
#[derive(Clone, PartialEq, Debug)]
pub struct TickSizeChange<'a> {
    /// The market's condition id.
    pub market: &'a str,
    /// The token's id.
    pub asset_id: &'a str,
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The new price increment.
    pub tick: Price,
}

/// The best bid and ask of a token.
#[derive(Clone, PartialEq, Debug)]
pub struct BestBidAsk<'a> {
    /// The token's id.
    pub asset_id: &'a str,
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The best bid, if there is one.
    pub best_bid: Option<Price>,
    /// The best ask, if there is one.
    pub best_ask: Option<Price>,
}

/// The announcement of a new market.
#[derive(Clone, PartialEq, Debug)]
pub struct NewMarket {
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The market, as far as the announcement describes it.
    pub description: Description,
}

/// The end of a market, as reported by the socket.
#[derive(Clone, PartialEq, Debug)]
pub struct MarketResolved<'a> {
    /// The market's condition id.
    pub market: &'a str,
    /// The venue's timestamp.
    pub at: Timestamp,
    /// The winning token, if stated.
    pub winning_asset_id: Option<&'a str>,
}

/// Parses a text frame.
pub fn frame(text: &str) -> Frame<'_> {
    let text = text.trim();
    match text {
        "" => return Frame::Empty,
        "PONG" => return Frame::Pong,
        "NO NEW ASSETS" => return Frame::NoNewAssets,
        _ => {}
    }
    if text.starts_with('{') {
        return Frame::Messages(smallvec![message(text)]);
    }
    if !text.starts_with('[') {
        return Frame::Other;
    }
    // The initial frame has the books of hundreds of tokens, so try a single pass first.
    if let Some(messages) = messages(text) {
        return Frame::Messages(messages);
    }
    match object::<Rows<&RawValue>>(text) {
        Ok(items) => Frame::Messages(items.0.into_iter().map(|item| message(item.get())).collect()),
        Err(error) => Frame::Messages(smallvec![Err(error)]),
    }
}

/// Maximum number of messages in a frame. The venue's largest frame is the first one, with a book
/// of each token. This many messages take some 7 MB.
const MESSAGES_PER_FRAME_MAX: usize = 20_000;

/// Maximum number of changes in a message: more than one for each level of both books.
const ENTRIES_PER_MESSAGE_MAX: usize = 50_000;

/// The messages of a frame, bounded in number.
type Rows<T> = Bounded<T, MESSAGES_PER_FRAME_MAX>;

/// Parses an array of frequent messages; `None` if it contains anything else.
fn messages(text: &str) -> Option<Messages<'_>> {
    let objects: Rows<MessageObject<'_>> = serde_json::from_str(text).ok()?;
    objects.0.into_iter().map(MessageObject::message).collect()
}

/// The fields of all messages except [`NewMarket`].
#[derive(Deserialize)]
struct MessageObject<'a> {
    #[serde(borrow)]
    event_type: Option<&'a str>,
    market: Option<&'a str>,
    asset_id: Option<&'a str>,
    timestamp: Option<&'a str>,
    hash: Option<&'a str>,
    bids: Option<Levels>,
    asks: Option<Levels>,
    #[serde(borrow)]
    price_changes: Option<Bounded<EntryObject<'a>, ENTRIES_PER_MESSAGE_MAX>>,
    changes: Option<serde::de::IgnoredAny>,
    price: Option<&'a str>,
    size: Option<&'a str>,
    side: Option<&'a str>,
    transaction_hash: Option<&'a str>,
    min_order_size: Option<&'a str>,
    tick_size: Option<&'a str>,
    new_tick_size: Option<&'a str>,
    neg_risk: Option<bool>,
    last_trade_price: Option<&'a str>,
    version: Option<&'a str>,
    best_bid: Option<&'a str>,
    best_ask: Option<&'a str>,
    winning_asset_id: Option<&'a str>,
}

#[derive(Deserialize)]
struct EntryObject<'a> {
    asset_id: Option<&'a str>,
    price: Option<&'a str>,
    size: Option<&'a str>,
    side: Option<&'a str>,
    hash: Option<&'a str>,
    best_bid: Option<&'a str>,
    best_ask: Option<&'a str>,
}

/// The subject of a message that cannot be parsed, as far as it is readable.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Subject<'a> {
    /// The type of the message.
    pub event_type: Option<&'a str>,
    /// The condition id of its market.
    pub market: Option<&'a str>,
    /// The token's id, if the message concerns a single token.
    pub asset_id: Option<&'a str>,
}

#[derive(Default, Deserialize)]
struct SubjectObject<'a> {
    #[serde(borrow)]
    event_type: Option<&'a RawValue>,
    #[serde(borrow)]
    market: Option<&'a RawValue>,
    #[serde(borrow)]
    asset_id: Option<&'a RawValue>,
}

/// Splits a frame into the texts of its messages, for [`subject`].
pub fn texts(frame: &str) -> Vec<&str> {
    match serde_json::from_str::<Rows<&RawValue>>(frame) {
        Ok(items) => items.0.into_iter().map(RawValue::get).collect(),
        Err(_) => vec![frame],
    }
}

/// Parses the subject of a message. Unreadable fields are `None`.
pub fn subject<'a>(text: &'a str) -> Subject<'a> {
    let object: SubjectObject<'_> = serde_json::from_str(text).unwrap_or_default();
    let text = |value: Option<&'a RawValue>| serde_json::from_str(value?.get()).ok();
    let [event_type, market, asset_id] =
        [object.event_type, object.market, object.asset_id].map(text);
    Subject { event_type, market, asset_id }
}

/// Parses one message.
pub fn message(text: &str) -> Result<Message<'_>, WireError> {
    let message = object::<MessageObject<'_>>(text)?.message();
    message.unwrap_or_else(|| new_market(text).map(|market| Message::NewMarket(Box::new(market))))
}

impl<'a> EntryObject<'a> {
    fn read(&self, asset_id: &'a str, at: Timestamp) -> Result<PriceChangeEntry<'a>, WireError> {
        Ok(PriceChangeEntry {
            asset_id,
            side: side(needed("side", self.side)?)?,
            price: price("price", needed("price", self.price)?)?,
            size: size("size", needed("size", self.size)?)?,
            // A hash covers the timestamp, so it cannot be checked without one.
            hash: checked_hash(self.hash)?.filter(|_| at != NO_TIMESTAMP),
            best_bid: top("best_bid", self.best_bid)?,
            best_ask: top("best_ask", self.best_ask)?,
        })
    }
}

impl<'a> MessageObject<'a> {
    /// Converts to a message; `None` for a new market, which has other fields.
    fn message(self) -> Option<Result<Message<'a>, WireError>> {
        let event_type = match needed("event_type", self.event_type) {
            Ok(event_type) => event_type,
            Err(error) => return Some(Err(error)),
        };
        Some(match event_type {
            "book" => self.book().map(Message::Book),
            "price_change" => self.price_change().map(Message::PriceChange),
            "last_trade_price" => self.trade().map(Message::LastTradePrice),
            "tick_size_change" => self.tick_size_change().map(Message::TickSizeChange),
            "best_bid_ask" => self.best_bid_ask().map(Message::BestBidAsk),
            "market_resolved" => self.market_resolved().map(Message::MarketResolved),
            "new_market" => return None,
            event_type => Err(WireError::UnknownType {
                event_type: event_type.chars().take(super::ID_BYTES_MAX).collect(),
            }),
        })
    }

    fn market(&self) -> Result<&'a str, WireError> {
        checked_id("market", needed("market", self.market)?)
    }

    fn asset_id(&self) -> Result<&'a str, WireError> {
        checked_id("asset_id", needed("asset_id", self.asset_id)?)
    }

    fn at(&self) -> Result<Timestamp, WireError> {
        timestamp_of(self.timestamp)
    }

    fn book(self) -> Result<BookMessage<'a>, WireError> {
        BookObject {
            market: self.market,
            asset_id: self.asset_id,
            timestamp: self.timestamp,
            hash: self.hash,
            bids: self.bids,
            asks: self.asks,
            min_order_size: self.min_order_size,
            tick_size: self.tick_size,
            neg_risk: self.neg_risk,
            last_trade_price: self.last_trade_price,
            version: self.version,
        }
        .message()
    }

    fn price_change(self) -> Result<PriceChange<'a>, WireError> {
        let (market, at) = (self.market()?, self.at()?);
        let Some(entries) = self.price_changes else {
            return Err(if self.changes.is_some() {
                WireError::OldFormat
            } else {
                WireError::Missing { field: "price_changes" }
            });
        };
        let mut change = PriceChange { market, at, entries: SmallVec::new(), unreadable: vec![] };
        for entry in &entries.0 {
            let asset_id = checked_id("asset_id", needed("asset_id", entry.asset_id)?)?;
            match entry.read(asset_id, at) {
                Ok(entry) => change.entries.push(entry),
                Err(_) if change.unreadable.iter().any(|it| it.asset_id == asset_id) => {}
                // A message about one market cannot name this many tokens, so refuse all of it.
                Err(error) if change.unreadable.len() == OUTCOMES_PER_MARKET_MAX => {
                    return Err(error);
                }
                Err(error) => {
                    let error = error.to_string();
                    change.unreadable.push(UnreadableEntry { asset_id, error });
                }
            }
        }
        Ok(change)
    }

    fn trade(&self) -> Result<TradeMessage<'a>, WireError> {
        let rounded = |field, text: &str, rounding| {
            paperbourse_core::money::micros_from_text(text, rounding)
                .map_err(|error| WireError::Field { field, problem: error.into() })
        };
        let price = rounded("price", needed("price", self.price)?, Rounding::HalfEven)?;
        if !(0..=1_000_000).contains(&price) {
            return Err(expected("price", "a price between 0 and 1"));
        }
        let size = match self.size.filter(|size| !size.is_empty()) {
            Some(text) => rounded("size", text, Rounding::TowardZero)?,
            None => 0,
        };
        Ok(TradeMessage {
            market: self.market()?,
            asset_id: self.asset_id()?,
            at: self.at()?,
            price: Price::from_micros(price),
            size: Shares::from_micros(size),
            side: self.side.filter(|side| !side.is_empty()).map(side).transpose()?,
            transaction_hash: self.transaction_hash,
        })
    }

    fn tick_size_change(&self) -> Result<TickSizeChange<'a>, WireError> {
        let tick = price("new_tick_size", needed("new_tick_size", self.new_tick_size)?)?;
        if !tick.is_quotable() {
            return Err(expected("new_tick_size", "a tick between 0 and 1"));
        }
        Ok(TickSizeChange {
            market: self.market()?,
            asset_id: self.asset_id()?,
            at: self.at()?,
            tick,
        })
    }

    fn best_bid_ask(&self) -> Result<BestBidAsk<'a>, WireError> {
        Ok(BestBidAsk {
            asset_id: self.asset_id()?,
            at: self.at()?,
            best_bid: top("best_bid", self.best_bid)?,
            best_ask: top("best_ask", self.best_ask)?,
        })
    }

    fn market_resolved(&self) -> Result<MarketResolved<'a>, WireError> {
        Ok(MarketResolved {
            market: self.market()?,
            at: self.at()?,
            winning_asset_id: self.winning_asset_id.filter(|id| !id.is_empty()),
        })
    }
}

/// Parses a best price. An empty side is sent as 0, 1, an empty string or nothing.
fn top(field: &'static str, text: Option<&str>) -> Result<Option<Price>, WireError> {
    match text {
        None | Some("") => Ok(None),
        Some(text) => Ok(Some(price(field, text)?).filter(|price| price.is_quotable())),
    }
}

fn side(text: &str) -> Result<Side, WireError> {
    if text.eq_ignore_ascii_case("BUY") {
        Ok(Side::Buy)
    } else if text.eq_ignore_ascii_case("SELL") {
        Ok(Side::Sell)
    } else {
        Err(expected("side", "BUY or SELL"))
    }
}

#[derive(Deserialize)]
struct NewMarketObject<'a> {
    #[serde(borrow)]
    market: Raw<'a>,
    #[serde(borrow)]
    timestamp: Raw<'a>,
    #[serde(borrow)]
    question: Raw<'a>,
    #[serde(borrow)]
    slug: Raw<'a>,
    #[serde(borrow)]
    assets_ids: Raw<'a>,
    #[serde(borrow)]
    outcomes: Raw<'a>,
    #[serde(borrow)]
    order_price_min_tick_size: Raw<'a>,
    #[serde(borrow)]
    fees_enabled: Raw<'a>,
    #[serde(borrow)]
    fee_schedule: Raw<'a>,
}

/// Parses the announcement of a new market. It does not state whether orders are accepted, so the
/// market is paused until the catalogue describes it.
fn new_market(text: &str) -> Result<NewMarket, WireError> {
    let object: NewMarketObject<'_> = object(text)?;
    let market = scalar("market", object.market)?.ok_or(WireError::Missing { field: "market" })?;
    checked_id("market", &market)?;
    let at = timestamp_of(scalar("timestamp", object.timestamp)?.as_deref())?;
    let labels = list("outcomes", object.outcomes)?;
    let tokens = list("assets_ids", object.assets_ids)?;
    let mut info = MarketInfo::bare(&market, outcomes(&labels, ("assets_ids", &tokens))?);
    info.status =
        if is_hydrated(&info.outcomes) { MarketStatus::Paused } else { MarketStatus::Hydrating };
    let tick = ("order_price_min_tick_size", object.order_price_min_tick_size);
    set_grid(&mut info, tick, ("order_min_size", None))?;
    let fees = fees(object.fees_enabled, object.fee_schedule)?;
    info.fees = fees.unwrap_or(Fees::Free);
    info.question = shown(object.question);
    info.slug = shown(object.slug);
    let description = Description {
        info,
        updated_at: (at != NO_TIMESTAMP).then_some(at),
        is_fee_stated: fees.is_some(),
        is_delay_stated: false,
        is_delay_exact: false,
        shown_payouts: None,
        has_named_winner: false,
        stage: Stage::Unreported,
    };
    Ok(NewMarket { at, description })
}

#[cfg(test)]
mod tests;
