//! The displayed price of an outcome, and its source. Pure.
//!
//! Displayed prices are informational: no order fills at them. The price is the first available of:
//!
//! 1. the payout, once the market is resolved;
//! 2. the midpoint of the best bid and the best ask;
//! 3. the newest trade;
//! 4. the best price of a book that has only bids or only asks.
//!
//! An outcome without a book of its own shows the mirror of the other outcome's book, trades
//! included. REST rows and the price socket both show these values, and each formats them itself.

use smallvec::SmallVec;

use super::MarketSnapshot;
use super::book::{Book, LastTrade, Side};
use super::catalogue::MarketStatus;
use super::quote::QuotedBook;
use crate::ids::{OutcomeIndex, Timestamp};
use crate::money::{Price, div_half_even};

/// The displayed prices of all outcomes of a market at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MarketPrices {
    /// The prices of each outcome, in the venue's order.
    pub outcomes: SmallVec<[OutcomePrice; 2]>,
    /// Whether any outcome's price may differ from the venue's, because its book is stale or
    /// missing. The payouts of a resolved market are never stale.
    pub stale: bool,
}

/// The displayed prices of one outcome.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct OutcomePrice {
    /// The price; `None` if nothing is known.
    pub shown: Option<ShownPrice>,
    /// The highest bid; `None` once resolved.
    pub best_bid: Option<Price>,
    /// The lowest ask; `None` once resolved.
    pub best_ask: Option<Price>,
    /// The newest trade of the book that the price comes from.
    pub last_trade: Option<LastTrade>,
}

/// A price and its source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ShownPrice {
    /// Dollars per share, from 0 to 1.
    pub price: Price,
    /// The source of the price.
    pub source: PriceSource,
    /// When the source was last updated, by the venue's clock; `None` for a payout if no book is
    /// known.
    pub updated_at: Option<Timestamp>,
}

/// The source of a displayed price.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PriceSource {
    /// The outcome's own book.
    Book,
    /// The book of the other outcome of a binary market.
    Mirror,
    /// The newest trade, since the book lacks a side.
    LastTrade,
    /// The final payout.
    Resolution,
}

impl PriceSource {
    /// Returns the name used on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Book => "book",
            Self::Mirror => "mirror",
            Self::LastTrade => "last_trade",
            Self::Resolution => "resolution",
        }
    }
}

impl MarketPrices {
    /// Computes the prices from a snapshot of a market.
    pub fn of(snapshot: &MarketSnapshot) -> Self {
        let (info, quote) = (snapshot.info(), snapshot.quote());
        let is_resolved = info.status == MarketStatus::Resolved;
        let mut stale = false;
        let outcomes = (0_u8..)
            .map(OutcomeIndex)
            .take(info.outcomes.len())
            .map(|outcome| {
                let quoted = quote.book(outcome).map(Quoted::of);
                let payout = info.payouts.get(outcome.index()).filter(|_| is_resolved);
                if let Some(&payout) = payout {
                    return OutcomePrice::resolved(payout, quoted);
                }
                stale |= quoted.is_none_or(|quoted| quoted.stale);
                quoted.map(OutcomePrice::quoted).unwrap_or_default()
            })
            .collect();
        Self { outcomes, stale }
    }

    /// Returns the price of the first outcome, called `buy` on the wire.
    pub fn buy(&self) -> Option<Price> {
        self.outcomes.first()?.price()
    }

    /// Returns the price of the second outcome, called `sell` on the wire.
    pub fn sell(&self) -> Option<Price> {
        self.outcomes.get(1)?.price()
    }

    /// Returns the source of the first known price.
    pub fn source(&self) -> Option<PriceSource> {
        self.outcomes.iter().find_map(|outcome| outcome.shown).map(|shown| shown.source)
    }

    /// Returns the latest time at which the source of any of the prices was updated, by the venue's
    /// clock.
    pub fn updated_at(&self) -> Option<Timestamp> {
        self.outcomes.iter().filter_map(|outcome| outcome.shown?.updated_at).max()
    }
}

impl OutcomePrice {
    /// Returns the price without its source.
    pub fn price(&self) -> Option<Price> {
        self.shown.map(|shown| shown.price)
    }

    fn resolved(payout: Price, quoted: Option<Quoted>) -> Self {
        let shown = ShownPrice {
            price: payout,
            source: PriceSource::Resolution,
            updated_at: quoted.map(|quoted| quoted.updated_at),
        };
        let last_trade = quoted.and_then(|quoted| quoted.last_trade);
        Self { shown: Some(shown), last_trade, ..Self::default() }
    }

    /// Returns the prices of an unresolved outcome with this book.
    pub fn of_book(book: &Book) -> Self {
        Self::quoted(Quoted::of(QuotedBook::own(book)))
    }

    fn quoted(quoted: Quoted) -> Self {
        let Quoted { best_bid, best_ask, last_trade, .. } = quoted;
        let of_book = |price| ShownPrice {
            price,
            source: quoted.source,
            updated_at: Some(quoted.updated_at),
        };
        let shown = match (best_bid, best_ask, last_trade) {
            (Some(bid), Some(ask), _) => Some(of_book(middle(bid, ask))),
            (_, _, Some(trade)) => Some(ShownPrice {
                price: trade.price,
                source: PriceSource::LastTrade,
                updated_at: Some(trade.at),
            }),
            (bid, ask, None) => bid.or(ask).map(of_book),
        };
        Self { shown, best_bid, best_ask, last_trade }
    }
}

/// The inputs to the price of one outcome.
#[derive(Clone, Copy)]
struct Quoted {
    best_bid: Option<Price>,
    best_ask: Option<Price>,
    last_trade: Option<LastTrade>,
    source: PriceSource,
    updated_at: Timestamp,
    stale: bool,
}

impl Quoted {
    fn of(quoted: QuotedBook<'_>) -> Self {
        let QuotedBook { liquidity, book } = quoted;
        let is_own = !liquidity.is_mirrored();
        Self {
            best_bid: liquidity.touch(Side::Sell),
            best_ask: liquidity.touch(Side::Buy),
            last_trade: if is_own {
                book.last_trade
            } else {
                book.last_trade.map(LastTrade::mirrored)
            },
            source: if is_own { PriceSource::Book } else { PriceSource::Mirror },
            updated_at: book.updated_at,
            stale: book.stale,
        }
    }
}

/// Returns the midpoint, rounded to six decimals, half to even.
fn middle(bid: Price, ask: Price) -> Price {
    let micros = div_half_even(i128::from(bid.micros()) + i128::from(ask.micros()), 2);
    Price::from_micros(i64::try_from(micros).expect("the midpoint of two prices is in range"))
}

#[cfg(test)]
mod tests;
