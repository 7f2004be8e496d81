//! Converts Polymarket's messages into events for the feed.

use std::sync::Arc;

use super::wire::clob::BookMessage;
use super::wire::socket::Message;
use crate::event::{BookReplaced, LevelChanged, Top, VenueChange, VenueEvent};
use paperbourse_core::ids::Timestamp;

impl BookMessage<'_> {
    /// Converts a full book from a socket. `intern` returns the shared form of a token id, so that
    /// ids are not copied with every message.
    pub fn event(self, mut intern: impl FnMut(&str) -> Arc<str>) -> VenueEvent {
        let change = VenueChange::Book(BookReplaced {
            token_id: intern(self.asset_id),
            ladder: self.ladder,
            hash: self.hash.map(Into::into),
            newest_trade: self.newest_trade,
            tick: self.tick,
            version: self.version.map(Into::into),
            is_requested: false,
        });
        VenueEvent { at: self.at, change }
    }
}

impl Message<'_> {
    /// Returns the venue's timestamp.
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

    /// Converts a message about books; `None` for other messages, which concern the description of
    /// a market.
    pub fn event(self, mut intern: impl FnMut(&str) -> Arc<str>) -> Option<VenueEvent> {
        match self {
            Self::Book(book) => Some(book.event(intern)),
            Self::PriceChange(change) => {
                let entries = change.entries.iter().map(|entry| LevelChanged {
                    token_id: intern(entry.asset_id),
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
                let token_id = intern(trade.asset_id);
                let (price, size, side) = (trade.price, trade.size, trade.side);
                let change = VenueChange::Traded { token_id, price, size, side };
                Some(VenueEvent { at: trade.at, change })
            }
            Self::BestBidAsk(best) => {
                let token_id = intern(best.asset_id);
                let top = Top { bid: best.best_bid, ask: best.best_ask };
                Some(VenueEvent { at: best.at, change: VenueChange::Top { token_id, top } })
            }
            Self::TickSizeChange(_) | Self::NewMarket(_) | Self::MarketResolved(_) => None,
        }
    }
}
