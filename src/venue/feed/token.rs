//! The state of one token: its levels, how they are checked against the venue's hashes and best
//! prices, and how they are published.

use std::sync::Arc;

use smallvec::SmallVec;

use super::counts::FeedCounts;
use super::tracking::{Published, Tracking};
use super::verify::{HashedBook, Verifier};
use crate::event::Top;
use crate::follow::books::Finding;
use paperbourse_core::ids::{OutcomeIndex, Timestamp};
use paperbourse_core::market::book::{Book, BookHash, Ladder, LastTrade, Side};
use paperbourse_core::market::catalogue::MarketStatus;
use paperbourse_core::market::price::OutcomePrice;
use paperbourse_core::market::{Market, Markets};
use paperbourse_core::money::Price;

/// The state of a token's book, and where to publish it.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the book")]
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
    /// The prices of the entries with the newest timestamp, at most [`ENTRY_PRICES_MAX`]. A hash
    /// covers the price of the trade that caused them before the trade itself is reported.
    entry_prices: Vec<Price>,
    pub(super) tick: Option<Price>,
    /// The version of the protocol that the newest book stated; its hash covers it.
    pub(super) version: Option<Box<str>>,
    /// Whether the venue has stated the market's newest trade, or that there was none.
    pub(super) is_trade_stated: bool,
    /// Whether a hash has ever matched, which shows that everything that hashes cover is known.
    has_matched: bool,
    /// The newest hash, if it did not match. It may be that of a later book: all changes of a match
    /// bear the hash of the last, and a trade may arrive after the book that it caused.
    pub(super) unmatched: Option<Unmatched>,
    /// Best prices that are newer than the book, until a change explains them.
    pub(super) ahead: Option<AheadTop>,
    pub(super) sequence: u64,
    pub(super) stale: bool,
    /// Whether only a request shows these levels.
    pub(super) is_unconfirmed: bool,
    /// The newest price that was recorded.
    recorded: Option<Price>,
    pub(super) tracking: Tracking,
}

/// A hash that did not match.
pub(super) struct Unmatched {
    text: Box<str>,
    /// How many messages in a row had it.
    count: u64,
}

/// Best prices that are newer than the book.
#[derive(Clone, Copy)]
pub(super) struct AheadTop {
    pub(super) top: Top,
    /// By the venue's timestamp.
    pub(super) at: Timestamp,
}

/// The most entry prices that are tried as the price of a trade; a match of eight levels has nine.
const ENTRY_PRICES_MAX: usize = 16;

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
            entry_prices: Vec::new(),
            tick: None,
            version: None,
            is_trade_stated: false,
            has_matched: false,
            unmatched: None,
            ahead: None,
            sequence: 0,
            stale: false,
            is_unconfirmed: false,
            recorded: None,
            tracking: Tracking::new(),
        }
    }

    /// Publishes to this market from now on. The book has no readers there yet.
    pub(super) fn move_to(&mut self, market: &Arc<Market>, outcome: OutcomeIndex) {
        (self.market, self.outcome) = (market.clone(), outcome);
        (self.recorded, self.tracking) = (None, Tracking::new());
    }

    pub(super) fn note_market_price(&mut self, price: Price) {
        self.is_trade_stated = true;
        if self.market_trade_price != Some(price) {
            self.previous_trade_price = self.market_trade_price.replace(price);
        }
    }

    /// Notes the price of an entry of a message from this time.
    pub(super) fn note_entry(&mut self, price: Price, at: Timestamp) {
        if self.venue_time != at {
            self.entry_prices.clear();
        }
        if !self.entry_prices.contains(&price) {
            if self.entry_prices.len() == ENTRY_PRICES_MAX {
                self.entry_prices.remove(0);
            }
            self.entry_prices.push(price);
        }
    }

    /// Replaces all levels. Returns whether the book was fresh and had exactly these.
    pub(super) fn replace_levels(&mut self, ladder: Ladder, at: Timestamp) -> bool {
        let known = self.ladder.replace(ladder);
        let ladder = self.ladder.as_ref().expect("it was just replaced");
        match known {
            // Nothing has grown, however the book came to be doubted.
            Some(known) if known == *ladder => !self.stale,
            Some(known) if !self.stale => {
                self.tracking.prepare(&self.market, &known);
                self.tracking.replace(ladder, at);
                false
            }
            // A change may have been lost.
            _ => {
                self.tracking.restart();
                false
            }
        }
    }

    /// Compares the book with the newest hash again if that did not match.
    pub(super) fn recheck(
        &mut self,
        token_id: &str,
        verifier: &mut Option<Box<dyn Verifier>>,
        counts: &mut FeedCounts,
    ) -> Option<Finding> {
        let Unmatched { text, count } = self.unmatched.take()?;
        // It is counted again.
        counts.hashes_mismatched -= 1;
        self.unmatched = Some(Unmatched { text: text.clone(), count: count - 1 });
        Some(self.check(Some(text), token_id, verifier, counts))
    }

    /// Compares the book with the venue's hash.
    pub(super) fn check(
        &mut self,
        hash: Option<Box<str>>,
        token_id: &str,
        verifier: &mut Option<Box<dyn Verifier>>,
        counts: &mut FeedCounts,
    ) -> Finding {
        let unmatched = self.unmatched.take();
        self.hash = None;
        let (Some(text), Some(ladder)) = (hash, &self.ladder) else { return Finding::Unproven };
        let unmatched_count =
            unmatched.filter(|unmatched| unmatched.text == text).map_or(0, |it| it.count);
        let info = self.market.info();
        let book = HashedBook {
            market: &info.condition_id,
            token_id,
            at: self.venue_time,
            ladder,
            order_size_min: info.order_size_min,
            tick: self.tick.unwrap_or(info.tick),
            neg_risk: info.neg_risk,
            version: self.version.as_deref(),
        };
        let mut candidates: SmallVec<[Option<Price>; 8]> = SmallVec::new();
        candidates.push(self.market_trade_price);
        candidates.extend(self.previous_trade_price.map(Some));
        // The trade may be in the other outcome.
        let of_entry = |&price: &Price| [Some(price), Some(price.complement())];
        candidates.extend(self.entry_prices.iter().rev().flat_map(of_entry));
        let matching =
            verifier.as_mut().and_then(|verifier| verifier.matching(book, &text, &candidates));
        if let Some(last_trade_price) = matching {
            // Earlier changes of the same match had the hash of this book already.
            counts.hashes_mismatched -= unmatched_count;
            counts.hashes_verified += 1 + unmatched_count;
            self.has_matched = true;
            self.hash = Some(BookHash { text, last_trade_price });
            Finding::Proven
        } else if verifier.is_none() || (!self.is_trade_stated && !self.has_matched) {
            counts.hashes_unchecked += 1;
            Finding::Unproven
        } else {
            counts.hashes_mismatched += 1;
            self.unmatched = Some(Unmatched { text, count: unmatched_count + 1 });
            Finding::Contradicted
        }
    }

    /// Whether the newest hash of the venue's changes, which our levels did not match, is that of
    /// this book.
    pub(super) fn awaits(&self, hash: Option<&str>) -> bool {
        let unmatched = self.unmatched.as_ref().map(|unmatched| &*unmatched.text);
        unmatched.is_some() && unmatched == hash
    }

    /// The price of the newest trade that the matching hash covers, if no message has stated it
    /// yet.
    pub(super) fn unstated_trade_price(&self) -> Option<Price> {
        let price = self.hash.as_ref()?.last_trade_price?;
        let known = [self.market_trade_price, self.previous_trade_price];
        (!known.contains(&Some(price))).then_some(price)
    }

    /// Compares the best prices with the venue's.
    pub(super) fn check_top(&self, top: Top) -> Finding {
        let Some(ladder) = &self.ladder else { return Finding::Unproven };
        let sides = [(top.bid, ladder.best_bid()), (top.ask, ladder.best_ask())];
        let mut finding = Finding::Unproven;
        for (venue, ours) in sides {
            let Some(venue) = venue else { continue };
            if ours.map(|level| level.price) != Some(venue) {
                return Finding::Contradicted;
            }
            finding = Finding::Agrees;
        }
        finding
    }

    /// Forgets best prices that were ahead of the book, if it is of their time now or has them.
    pub(super) fn drop_explained(&mut self, at: Timestamp) {
        let explained =
            |ahead: &AheadTop| ahead.at <= at || self.check_top(ahead.top) != Finding::Contradicted;
        if self.ahead.as_ref().is_some_and(explained) {
            self.ahead = None;
        }
    }

    /// What a change from this time shows about the book, given what it shows by itself and the
    /// best prices that were ahead of the book.
    pub(super) fn settle_ahead(&mut self, finding: Finding, at: Timestamp) -> Finding {
        let Some(AheadTop { top, at: ahead_at }) = self.ahead else { return finding };
        let is_explained = finding == Finding::Proven && ahead_at <= at
            || self.check_top(top) != Finding::Contradicted;
        if is_explained || ahead_at < at {
            self.ahead = None;
        }
        match finding {
            // The change that made those prices was lost.
            Finding::Agrees | Finding::Unproven if !is_explained && ahead_at < at => {
                Finding::Contradicted
            }
            finding => finding,
        }
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
