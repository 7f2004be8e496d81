//! The state of one token: its levels, how they are checked against the venue's hashes and best
//! prices, and how they are published.

use std::sync::Arc;

use super::counts::FeedCounts;
use super::tracking::{Published, Tracking};
use super::verify::{HashedBook, Verifier};
use crate::ids::{OutcomeIndex, Timestamp};
use crate::market::book::{Book, BookHash, Ladder, LastTrade, Side};
use crate::market::catalogue::MarketStatus;
use crate::market::price::OutcomePrice;
use crate::market::{Market, Markets};
use crate::money::Price;
use crate::venue::event::Top;
use crate::venue::follow::books::Finding;

/// The state of a token's book, and where to publish it.
pub(super) struct Token {
    pub(super) market: Arc<Market>,
    pub(super) outcome: OutcomeIndex,
    /// The venue's levels, crossed ones included; `None` until the first full book.
    pub(super) ladder: Option<Ladder>,
    /// The side of the newest added level; if the book is crossed, this side is right.
    pub(super) newest_side: Option<Side>,
    pub(super) updated_at: Timestamp,
    /// The venue's own timestamp of the newest change, which its hash covers.
    pub(super) venue_time: Timestamp,
    /// The venue's hash of the levels, once verified.
    pub(super) hash: Option<BookHash>,
    pub(super) last_trade: Option<LastTrade>,
    /// The price of the market's newest trade in either token; the hashes of both cover it.
    pub(super) market_trade_price: Option<Price>,
    /// The previous such price, which a hash may still cover.
    pub(super) previous_trade_price: Option<Price>,
    pub(super) tick: Option<Price>,
    /// Whether a hash has ever matched, which shows that everything that hashes cover is known.
    pub(super) has_matched: bool,
    /// The text of the newest hash, if it did not match: a trade may arrive after the book that it
    /// caused, and explain the mismatch.
    pub(super) unmatched_hash: Option<Box<str>>,
    pub(super) sequence: u64,
    pub(super) stale: bool,
    /// The newest price that was recorded.
    recorded: Option<Price>,
    pub(super) tracking: Tracking,
}

impl Token {
    pub(super) fn new(market: Arc<Market>, outcome: OutcomeIndex) -> Self {
        Self {
            market,
            outcome,
            ladder: None,
            newest_side: None,
            updated_at: Timestamp::EPOCH,
            venue_time: Timestamp::EPOCH,
            hash: None,
            last_trade: None,
            market_trade_price: None,
            previous_trade_price: None,
            tick: None,
            has_matched: false,
            unmatched_hash: None,
            sequence: 0,
            stale: false,
            recorded: None,
            tracking: Tracking::new(),
        }
    }

    /// Publishes to this market from now on. Nobody has seen the book there.
    pub(super) fn move_to(&mut self, market: &Arc<Market>, outcome: OutcomeIndex) {
        (self.market, self.outcome) = (market.clone(), outcome);
        (self.recorded, self.tracking) = (None, Tracking::new());
    }

    pub(super) fn note_market_price(&mut self, price: Price) {
        if self.market_trade_price != Some(price) {
            self.previous_trade_price = self.market_trade_price.replace(price);
        }
    }

    /// Replaces all levels. Returns whether the book was fresh and had exactly these.
    pub(super) fn replace_levels(&mut self, ladder: Ladder, at: Timestamp) -> bool {
        let known = self.ladder.replace(ladder);
        let (Some(known), Some(ladder)) = (known.filter(|_| !self.stale), &self.ladder) else {
            self.tracking.restart();
            return false;
        };
        if known == *ladder {
            return true;
        }
        self.tracking.prepare(&self.market, &known);
        self.tracking.replace(ladder, at);
        false
    }

    /// Compares the book with the venue's hash.
    pub(super) fn check(
        &mut self,
        hash: Option<Box<str>>,
        token_id: &str,
        verifier: &mut Option<Box<dyn Verifier>>,
        counts: &mut FeedCounts,
    ) -> Finding {
        self.unmatched_hash = None;
        self.hash = None;
        let (Some(text), Some(ladder)) = (hash, &self.ladder) else { return Finding::Unproven };
        let info = self.market.info();
        let book = HashedBook {
            market: &info.condition_id,
            token_id,
            at: self.venue_time,
            ladder,
            order_size_min: info.order_size_min,
            tick: self.tick.unwrap_or(info.tick),
            neg_risk: info.neg_risk,
        };
        let newest = self.market_trade_price;
        let candidates = [newest, self.previous_trade_price];
        let candidate_count = if self.previous_trade_price.is_some() { 2 } else { 1 };
        let matching = verifier
            .as_mut()
            .and_then(|verifier| verifier.matching(book, &text, &candidates[..candidate_count]));
        if let Some(last_trade_price) = matching {
            counts.hashes_verified += 1;
            self.has_matched = true;
            self.hash = Some(BookHash { text, last_trade_price });
            Finding::Proven
        } else if verifier.is_none() || (newest.is_none() && !self.has_matched) {
            counts.hashes_unchecked += 1;
            Finding::Unproven
        } else {
            counts.hashes_mismatched += 1;
            self.unmatched_hash = Some(text);
            Finding::Contradicted
        }
    }

    /// Compares the best prices with the venue's.
    pub(super) fn check_top(&self, top: Top, counts: &mut FeedCounts) -> Finding {
        let Some(ladder) = &self.ladder else { return Finding::Unproven };
        let sides = [(top.bid, ladder.best_bid()), (top.ask, ladder.best_ask())];
        let mut finding = Finding::Unproven;
        for (venue, ours) in sides {
            let Some(venue) = venue else { continue };
            if ours.map(|level| level.price) != Some(venue) {
                counts.tops_mismatched += 1;
                return Finding::Contradicted;
            }
            finding = Finding::Agrees;
        }
        finding
    }

    /// Publishes the book, if there is one, without its crossed levels.
    pub(super) fn publish(&mut self, markets: &Markets, counts: &mut FeedCounts) {
        let Some(ladder) = &self.ladder else { return };
        self.sequence += 1;
        let uncrossed = ladder.is_crossed().then(|| uncrossed(ladder, self.newest_side));
        let is_uncrossed = uncrossed.is_some();
        counts.crossed += u64::from(is_uncrossed);
        // The hash covers more than the levels. Readers get it if they see all of that.
        let is_shown = !is_uncrossed
            && self.updated_at.millis() == self.venue_time.millis()
            && self.tick.is_none_or(|tick| tick == self.market.info().tick);
        let hash = self.hash.as_ref().filter(|_| is_shown).cloned();
        let mut book = Book::new(uncrossed.unwrap_or_else(|| ladder.clone()), self.updated_at);
        book.sequence = self.sequence;
        book.hash = hash;
        book.last_trade = self.last_trade;
        book.stale = self.stale;
        self.tracking.describe(&mut book);
        self.record_price(&book, markets);
        markets.publish(&self.market, self.outcome, Arc::new(book));
        let (market, outcome, stale) = (&self.market, self.outcome, self.stale);
        self.tracking.published(markets, &Published { market, outcome, stale, is_uncrossed });
    }

    /// Records the price that this book shows, if it has changed.
    fn record_price(&mut self, book: &Book, markets: &Markets) {
        let trade_at = book.last_trade.map_or(Timestamp::EPOCH, |trade| trade.at);
        let at = book.updated_at.max(trade_at);
        markets.note_price_time(at);
        let price = OutcomePrice::of_book(book).price();
        let is_resolved = || self.market.info().status == MarketStatus::Resolved;
        if let Some(price) = price.filter(|_| price != self.recorded && !is_resolved()) {
            self.recorded = Some(price);
            markets.record_price(&self.market, self.outcome, at, price);
        }
    }
}

/// Removes the crossed levels, which a trade has consumed and no update has removed yet: those
/// opposite the newest level, or on both sides if it is unknown which level is newest.
fn uncrossed(ladder: &Ladder, newest_side: Option<Side>) -> Ladder {
    let (Some(bid), Some(ask)) = (ladder.best_bid(), ladder.best_ask()) else {
        unreachable!("a crossed ladder has both sides");
    };
    let mut bids = ladder.bids().to_vec();
    let mut asks = ladder.asks().to_vec();
    if newest_side != Some(Side::Buy) {
        bids.retain(|level| level.price < ask.price);
    }
    if newest_side != Some(Side::Sell) {
        asks.retain(|level| level.price > bid.price);
    }
    Ladder::from_levels(bids, asks).expect("some levels of a ladder are a ladder")
}

#[cfg(test)]
mod tests;
