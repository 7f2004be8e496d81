//! Recognises a recorded value by its keys.

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::value::RawValue;

use super::ROWS_MAX;
use super::report::NotPlayable;
use crate::polymarket::wire::Bounded;

/// The kind of a recorded value.
pub(super) enum Shape<'a> {
    /// An array of values.
    Items(Bounded<&'a RawValue, ROWS_MAX>),
    /// A value in an envelope, added by a recorder or by one of the venue's own lists.
    Inner(&'a RawValue),
    /// A string that contains JSON.
    Text(String),
    GammaMarket,
    GammaEvent,
    RecorderMarket,
    CompactMarket,
    LongMarket,
    Book,
    /// A book without levels or ids.
    Placeholder,
    SocketMessage,
    /// Text that the socket sends besides messages, such as `PONG`.
    SocketControl,
    NotPlayable(NotPlayable),
    Unknown,
}

#[derive(Deserialize)]
struct Keys<'a> {
    #[serde(rename = "conditionId")]
    gamma_condition_id: Option<IgnoredAny>,
    condition_id: Option<IgnoredAny>,
    asset: Option<IgnoredAny>,
    asset_id: Option<IgnoredAny>,
    token_ids: Option<IgnoredAny>,
    tokens: Option<IgnoredAny>,
    c: Option<IgnoredAny>,
    t: Option<IgnoredAny>,
    event_type: Option<IgnoredAny>,
    ts_ms: Option<IgnoredAny>,
    #[serde(borrow)]
    bids: Option<&'a RawValue>,
    #[serde(borrow)]
    asks: Option<&'a RawValue>,
    price: Option<IgnoredAny>,
    size: Option<IgnoredAny>,
    side: Option<IgnoredAny>,
    markets: Option<IgnoredAny>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    raw: Option<&'a RawValue>,
    #[serde(borrow)]
    events: Option<&'a RawValue>,
    #[serde(borrow)]
    payload: Option<&'a RawValue>,
    #[serde(borrow)]
    frame: Option<&'a RawValue>,
    url: Option<IgnoredAny>,
    body: Option<IgnoredAny>,
}

impl<'a> Shape<'a> {
    /// Recognises an object by its keys, splits an array into its items, or takes the content of a
    /// string.
    pub(super) fn of(text: &'a str) -> Result<Self, serde_json::Error> {
        if text.starts_with('[') {
            return serde_json::from_str(text).map(Self::Items);
        }
        if text.starts_with('"') {
            let content: String = serde_json::from_str(text)?;
            return Ok(Self::plain(content.trim()).unwrap_or(Self::Text(content)));
        }
        if !text.starts_with('{') {
            return Ok(Self::plain(text).unwrap_or(Self::Unknown));
        }
        let keys: Keys<'a> = serde_json::from_str(text)?;
        if let Some(why) = keys.not_playable() {
            return Ok(Self::NotPlayable(why));
        }
        Ok(keys.playable())
    }

    /// Recognises text that the socket sends besides messages.
    fn plain(text: &str) -> Option<Self> {
        matches!(text, "PONG" | "NO NEW ASSETS" | "").then_some(Self::SocketControl)
    }
}

impl<'a> Keys<'a> {
    fn not_playable(&self) -> Option<NotPlayable> {
        let has_levels = self.bids.is_some() || self.asks.is_some();
        let is_empty = |side: Option<&RawValue>| side.is_none_or(|side| side.get() == "[]");
        let has_ids = self.asset_id.is_some() || self.gamma_condition_id.is_some();
        if self.ts_ms.is_some() {
            Some(NotPlayable::TickRows)
        } else if self.url.is_some() && self.body.is_some() {
            Some(NotPlayable::Probe)
        } else if self.gamma_condition_id.is_some() && self.asset.is_some() && self.side.is_some() {
            Some(NotPlayable::DataApiTrades)
        } else if has_levels && !has_ids && !(is_empty(self.bids) && is_empty(self.asks)) {
            Some(NotPlayable::BookWithoutIds)
        } else if self.price.is_some() && self.size.is_some() && !has_ids {
            Some(NotPlayable::TradeWithoutIds)
        } else {
            None
        }
    }

    fn playable(self) -> Shape<'a> {
        let has_levels = self.bids.is_some() || self.asks.is_some();
        if self.event_type.is_some() {
            Shape::SocketMessage
        } else if let (Some(raw), Some(_)) = (self.raw, &self.condition_id) {
            Shape::Inner(raw)
        } else if self.gamma_condition_id.is_some() {
            Shape::GammaMarket
        } else if self.markets.is_some() {
            Shape::GammaEvent
        } else if let Some(inner) = self.events.or(self.data).or(self.payload).or(self.frame) {
            Shape::Inner(inner)
        } else if self.condition_id.is_some() && self.token_ids.is_some() {
            Shape::RecorderMarket
        } else if self.condition_id.is_some() && self.tokens.is_some() {
            Shape::LongMarket
        } else if self.c.is_some() && self.t.is_some() {
            Shape::CompactMarket
        } else if has_levels && self.asset_id.is_some() {
            Shape::Book
        } else if has_levels {
            Shape::Placeholder
        } else {
            Shape::Unknown
        }
    }
}
