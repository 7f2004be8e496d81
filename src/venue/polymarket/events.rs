//! What Polymarket's messages change in books.

use std::sync::Arc;

use super::wire::clob::{BookMessage, LastTradePrice};
use super::wire::socket::Message;
use crate::ids::Timestamp;
use crate::venue::event::{BookReplaced, LevelChanged, Top, VenueChange, VenueEvent};

impl BookMessage<'_> {
    /// What a full book changes. `name` gives the stored form of a token id, so that it is not
    /// copied with every message.
    pub fn event(self, mut name: impl FnMut(&str) -> Arc<str>) -> VenueEvent {
        let change = VenueChange::Book(BookReplaced {
            token_id: name(self.asset_id),
            ladder: self.ladder,
            hash: self.hash.map(Into::into),
            last_trade_price: self.last_trade_price.and_then(LastTradePrice::price),
            tick: self.tick,
        });
        VenueEvent { at: self.at, change }
    }
}

impl Message<'_> {
    /// The venue's time of it.
    pub fn at(&self) -> Timestamp {
        match self {
            Self::Book(book) => book.at,
            Self::PriceChange(change) => change.at,
            Self::LastTradePrice(trade) => trade.at,
            Self::TickSizeChange(change) => change.at,
            Self::BestBidAsk(top) => top.at,
            Self::NewMarket(market) => market.at,
            Self::MarketResolved(resolved) => resolved.at,
        }
    }

    /// What a message changes in books; `None` for one that changes none: whoever keeps the
    /// descriptions of markets judges those.
    pub fn event(self, mut name: impl FnMut(&str) -> Arc<str>) -> Option<VenueEvent> {
        match self {
            Self::Book(book) => Some(book.event(name)),
            Self::PriceChange(change) => {
                let entries = change.entries.iter().map(|entry| LevelChanged {
                    token_id: name(entry.asset_id),
                    side: entry.side,
                    price: entry.price,
                    size: entry.size,
                    hash: entry.hash.map(Into::into),
                    top: Some(Top { bid: entry.best_bid, ask: entry.best_ask }),
                });
                let levels = VenueChange::Levels(entries.collect());
                Some(VenueEvent { at: change.at, change: levels })
            }
            Self::LastTradePrice(trade) => {
                let token_id = name(trade.asset_id);
                let (price, size, side) = (trade.price, trade.size, trade.side);
                let change = VenueChange::Traded { token_id, price, size, side };
                Some(VenueEvent { at: trade.at, change })
            }
            Self::BestBidAsk(told) => {
                let token_id = name(told.asset_id);
                let top = Top { bid: told.best_bid, ask: told.best_ask };
                Some(VenueEvent { at: told.at, change: VenueChange::Top { token_id, top } })
            }
            Self::TickSizeChange(_) | Self::NewMarket(_) | Self::MarketResolved(_) => None,
        }
    }
}
