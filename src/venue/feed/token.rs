//! The state of one token's book, its checks against the venue's hashes and best prices, and its
//! publication.

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

/// A token's book, and the market in which it is published.
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own about the book")]
pub(super) struct Token {
    pub(super) market: Arc<Market>,
    pub(super) outcome: OutcomeIndex,
    /// The venue's levels, crossed ones included; `None` until the first full book.
    pub(super) ladder: Option<Ladder>,
    /// The side of the newest added level. If the book is crossed, this side is current and the
    /// other one is outdated.
    pub(super) newest_side: Option<Side>,
    pub(super) updated_at: Timestamp,
    /// The venue's own timestamp of the newest change. The book's hash covers it.
    pub(super) venue_time: Timestamp,
    /// The venue's hash of the levels, once verified.
    pub(super) hash: Option<BookHash>,
    pub(super) last_trade: Option<LastTrade>,
    /// The price of the market's newest trade in either token; the hashes of both cover it.
    pub(super) market_trade_price: Option<Price>,
    /// The previous value of `market_trade_price`, which a hash may still cover.
    pub(super) previous_trade_price: Option<Price>,
    /// Prices of the level changes with the newest timestamp, at most [`ENTRY_PRICES_MAX`]. One of
    /// them may be the price of the trade that caused the changes. The hash covers that price
    /// before the trade itself is reported.
    entry_prices: Vec<Price>,
    pub(super) tick: Option<Price>,
    /// The protocol version from the newest book that stated one. The book's hash covers it.
    pub(super) version: Option<Box<str>>,
    /// Whether the venue has reported the market's newest trade, or that the market has none.
    pub(super) is_trade_stated: bool,
    /// Whether any hash has matched, which shows that all the inputs of the hash are known.
    has_matched: bool,
    /// The newest hash, if it did not match our book. It may belong to a later book: all changes
    /// caused by one matched order carry the hash of the book after the last of them, and a trade
    /// may be reported after the book that it changed.
    pub(super) unmatched: Option<Unmatched>,
    /// Best prices newer than the book, kept until a change explains them.
    pub(super) ahead: Option<AheadTop>,
    pub(super) sequence: u64,
    pub(super) stale: bool,
    /// Whether these levels come from a request and no change from the venue has confirmed them.
    pub(super) is_unconfirmed: bool,
    /// The last price recorded in the price history.
    recorded: Option<Price>,
    pub(super) tracking: Tracking,
}

/// A hash that did not match.
pub(super) struct Unmatched {
    text: Box<str>,
    /// Number of consecutive messages with this hash.
    count: u64,
}

/// Best prices newer than the book.
#[derive(Clone, Copy)]
pub(super) struct AheadTop {
    pub(super) top: Top,
    /// The venue's timestamp.
    pub(super) at: Timestamp,
}

/// Maximum number of entry prices tried as the price of a trade. An order matched across eight
/// levels has nine.
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

    /// Switches publication to this market, where the book has no readers yet.
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

    /// Records the price of a level change with the venue's timestamp `at`. Must be called before
    /// `venue_time` is set to `at`.
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

    /// Replaces all levels. Returns whether the book was fresh and already had exactly these
    /// levels.
    pub(super) fn replace_levels(&mut self, ladder: Ladder, at: Timestamp) -> bool {
        let known = self.ladder.replace(ladder);
        let ladder = self.ladder.as_ref().expect("it was just replaced");
        match known {
            // The levels are the same, so none has grown, even if the book was stale.
            Some(known) if known == *ladder => !self.stale,
            Some(known) if !self.stale => {
                self.tracking.prepare(&self.market, &known);
                self.tracking.replace(ladder, at);
                false
            }
            // The book was missing or stale, so a change may have been lost.
            _ => {
                self.tracking.restart();
                false
            }
        }
    }

    /// Rechecks the book against the newest hash, if that hash did not match.
    pub(super) fn recheck(
        &mut self,
        token_id: &str,
        verifier: &mut Option<Box<dyn Verifier>>,
        counts: &mut FeedCounts,
    ) -> Option<Finding> {
        let Unmatched { text, count } = self.unmatched.take()?;
        // `check` counts the mismatch again.
        counts.hashes_mismatched -= 1;
        self.unmatched = Some(Unmatched { text: text.clone(), count: count - 1 });
        Some(self.check(Some(text), token_id, verifier, counts))
    }

    /// Compares the book with the venue's hash and counts the result.
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
        // The trade may have been in the other outcome, at the complement of this price.
        let of_entry = |&price: &Price| [Some(price), Some(price.complement())];
        candidates.extend(self.entry_prices.iter().rev().flat_map(of_entry));
        let matching =
            verifier.as_mut().and_then(|verifier| verifier.matching(book, &text, &candidates));
        if let Some(last_trade_price) = matching {
            // Earlier changes from the same matched order already carried the hash of this book.
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

    /// Returns whether `hash` is the newest hash from the venue's changes, and our levels did not
    /// match it.
    pub(super) fn awaits(&self, hash: Option<&str>) -> bool {
        let unmatched = self.unmatched.as_ref().map(|unmatched| &*unmatched.text);
        unmatched.is_some() && unmatched == hash
    }

    /// Returns the trade price that the matching hash covers, if no message has stated it yet.
    pub(super) fn unstated_trade_price(&self) -> Option<Price> {
        let price = self.hash.as_ref()?.last_trade_price?;
        let known = [self.market_trade_price, self.previous_trade_price];
        (!known.contains(&Some(price))).then_some(price)
    }

    /// Compares the book's best prices with the venue's.
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

    /// Clears best prices that were ahead of the book once the book has reached their time or shows
    /// them.
    pub(super) fn drop_explained(&mut self, at: Timestamp) {
        let explained =
            |ahead: &AheadTop| ahead.at <= at || self.check_top(ahead.top) != Finding::Contradicted;
        if self.ahead.as_ref().is_some_and(explained) {
            self.ahead = None;
        }
    }

    /// Adjusts the finding of a change made at `at` for best prices that were ahead of the book,
    /// and returns it.
    pub(super) fn settle_ahead(&mut self, finding: Finding, at: Timestamp) -> Finding {
        let Some(AheadTop { top, at: ahead_at }) = self.ahead else { return finding };
        let is_explained = finding == Finding::Proven && ahead_at <= at
            || self.check_top(top) != Finding::Contradicted;
        if is_explained || ahead_at < at {
            self.ahead = None;
        }
        match finding {
            // The change that set these best prices was lost.
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
        // The hash also covers the time and the tick, so publish it only if readers see the same
        // time and tick.
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

    /// Records the price that this book shows, if that price has changed.
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

/// Removes crossed levels: a trade has consumed them, but no update has removed them yet. Removes
/// those opposite the newest level, or on both sides if it is unknown which level is newest.
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
