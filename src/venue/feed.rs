//! Keeps the books: takes what a venue tells, in order, and publishes what readers see.
//!
//! All changes of one event take effect together and each touched book is published once. A book is
//! checked against the venue's hash wherever one is told. The feed performs no I/O and reads no
//! clock; it counts what happens, and whoever drives it logs the counts.
//!
//! It does not know how a venue is reached, nor what to do about a gap: it names the tokens whose
//! books are proven wrong and leaves the resync to the venue.

mod hash;

use std::collections::HashMap;
use std::fmt;
use std::num::NonZeroU8;
use std::sync::Arc;

use smallvec::SmallVec;

pub use hash::{BookHasher, HASH_TEXT_BYTES, HashedBook};

use super::{BookReplaced, LevelChanged, VenueChange, VenueEvent};
use crate::ids::{OutcomeIndex, Timestamp};
use crate::market::book::{Book, Ladder, LastTrade, Side};
use crate::market::catalogue::MarketInfo;
use crate::market::{MARKETS_MAX, Market, Markets};
use crate::money::{Price, Shares};

/// Books are kept of at most this many tokens: both of every market.
pub const TOKENS_MAX: usize = 2 * MARKETS_MAX;

/// What becomes of a book that the venue's hash contradicts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MismatchPolicy {
    /// It is counted and the book stays as it is: a recording is its own present, and nothing
    /// could be asked again.
    Count,
    /// After so many mismatches in a row the book is marked stale and its token is named, for the
    /// venue to ask for a fresh one.
    Stale {
        /// How many. More than one allows for a trade that is told after the book it caused.
        after: NonZeroU8,
    },
}

/// What has happened since the feed began.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FeedCounts {
    /// Full books taken.
    pub books: u64,
    /// Level changes applied.
    pub level_changes: u64,
    /// Level changes of tokens of which no book is known; left out.
    pub level_changes_without_book: u64,
    /// Level changes that cannot stand in a book; left out.
    pub level_changes_refused: u64,
    /// Removals of levels that were not there: a sign of a lost update.
    pub removals_of_nothing: u64,
    /// Trades taken.
    pub trades: u64,
    /// Books, trades and marks of tokens that no listed market has; left out.
    pub unlisted: u64,
    /// Told hashes that our book gives as well.
    pub hashes_verified: u64,
    /// Told hashes that contradict our book.
    pub hashes_mismatched: u64,
    /// Told hashes that could not be checked, since the newest trade's price is not known.
    pub hashes_unchecked: u64,
    /// Publications from which crossed levels were left out.
    pub crossed: u64,
    /// Descriptions that were not listed: too many markets, or another number of outcomes.
    pub markets_refused: u64,
}

impl fmt::Display for FeedCounts {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "{} books, {} level changes, {} trades; hashes {} verified, {} mismatched, \
             {} unchecked; left out {} of tokens without a market, {} without a book",
            self.books,
            self.level_changes,
            self.trades,
            self.hashes_verified,
            self.hashes_mismatched,
            self.hashes_unchecked,
            self.unlisted,
            self.level_changes_without_book,
        )
    }
}

/// Tokens whose books one event has proven wrong.
pub type Condemned = SmallVec<[Arc<str>; 2]>;

/// The only writer of [`Markets`].
pub struct Feed {
    markets: Arc<Markets>,
    policy: MismatchPolicy,
    tokens: HashMap<Arc<str>, Token, foldhash::fast::RandomState>,
    hasher: BookHasher,
    counts: FeedCounts,
}

/// What is known of one token, and how to reach its place in the market.
struct Token {
    market: Arc<Market>,
    outcome: OutcomeIndex,
    /// As the venue keeps it, crossed levels included; `None` until a full book was told.
    ladder: Option<Ladder>,
    /// The side of the newest level that was added, on which a crossed book can be trusted.
    newest_side: Option<Side>,
    updated_at: Timestamp,
    hash: Option<Box<str>>,
    last_trade: Option<LastTrade>,
    /// The price before that of `last_trade`: a hash may still cover it.
    earlier_trade_price: Option<Price>,
    tick: Option<Price>,
    /// A told hash that contradicted the book, until the next one: a trade that is told after the
    /// book it caused may yet explain it.
    contradiction: Option<Box<str>>,
    mismatches_in_a_row: u8,
    sequence: u64,
    stale: bool,
}

impl Feed {
    /// Publishes to `markets`. There is one feed for them.
    pub fn new(markets: Arc<Markets>, policy: MismatchPolicy) -> Self {
        Self {
            markets,
            policy,
            tokens: HashMap::default(),
            hasher: BookHasher::default(),
            counts: FeedCounts::default(),
        }
    }

    /// Where it publishes.
    pub fn markets(&self) -> &Arc<Markets> {
        &self.markets
    }

    /// What has happened so far.
    pub fn counts(&self) -> FeedCounts {
        self.counts
    }

    /// Takes one event and publishes what it changes.
    pub fn apply(&mut self, event: VenueEvent) -> Condemned {
        let at = event.at;
        match event.change {
            VenueChange::Listed(infos) => {
                self.list(infos);
                Condemned::new()
            }
            VenueChange::Book(book) => self.replace(at, book),
            VenueChange::Levels(changes) => self.change_levels(at, &changes),
            VenueChange::Traded { token_id, price, size, side } => {
                self.trade(&token_id, LastTrade { price, size, side, at });
                Condemned::new()
            }
            VenueChange::Stale { token_id } => {
                self.mark_stale(&token_id);
                Condemned::new()
            }
        }
    }

    /// Lists what can be listed: one bad description does not keep the others of its page out.
    fn list(&mut self, mut infos: Vec<MarketInfo>) {
        let listing = self.markets.listing();
        let mut room = MARKETS_MAX.saturating_sub(listing.markets().len());
        let mut added: HashMap<Arc<str>, usize> = HashMap::new();
        infos.retain(|info| {
            let outcome_count = info.outcomes.len();
            let is_accepted = if let Some(market) = listing.by_condition(&info.condition_id) {
                market.info().outcomes.len() == outcome_count
            } else if let Some(&count) = added.get(&info.condition_id) {
                count == outcome_count
            } else if room > 0 {
                room -= 1;
                added.insert(info.condition_id.clone(), outcome_count);
                true
            } else {
                false
            };
            self.counts.markets_refused += u64::from(!is_accepted);
            is_accepted
        });
        for info in &infos {
            let before = listing.by_condition(&info.condition_id).map(|market| market.info().tick);
            if before.is_none_or(|tick| tick == info.tick) {
                continue;
            }
            for outcome in &info.outcomes {
                if let Some(token) = self.tokens.get_mut(&outcome.token_id) {
                    token.tick = Some(info.tick);
                }
            }
        }
        drop(listing);
        self.markets.list(infos).expect("what cannot be listed was left out, and only we list");
    }

    fn replace(&mut self, at: Timestamp, told: BookReplaced) -> Condemned {
        let Some(token) = known(&mut self.tokens, &self.markets, &told.token_id) else {
            self.counts.unlisted += 1;
            return Condemned::new();
        };
        self.counts.books += 1;
        token.ladder = Some(told.ladder);
        token.newest_side = None;
        token.updated_at = at;
        token.stale = false;
        token.tick = told.tick.or(token.tick);
        if let Some(price) = told.last_trade_price {
            token.note_trade_price(price, at);
        }
        token.check(told.hash, &told.token_id, &mut self.hasher, &mut self.counts);
        self.settle(&told.token_id).into_iter().collect()
    }

    fn change_levels(&mut self, at: Timestamp, changes: &[LevelChanged]) -> Condemned {
        let mut touched: SmallVec<[&LevelChanged; 2]> = SmallVec::new();
        for change in changes {
            let Some(Token { ladder: Some(ladder), newest_side, .. }) =
                self.tokens.get_mut(&change.token_id)
            else {
                self.counts.level_changes_without_book += 1;
                continue;
            };
            match ladder.set(change.side, change.price, change.size) {
                Ok(changed) => {
                    self.counts.level_changes += 1;
                    let is_removal = change.size == Shares::ZERO;
                    self.counts.removals_of_nothing += u64::from(is_removal && !changed);
                    if !is_removal {
                        *newest_side = Some(change.side);
                    }
                }
                Err(_) => self.counts.level_changes_refused += 1,
            }
            // The hash of the last entry of a token covers the whole event.
            match touched.iter_mut().find(|other| other.token_id == change.token_id) {
                Some(other) => *other = change,
                None => touched.push(change),
            }
        }
        let mut condemned = Condemned::new();
        for change in touched {
            let token = self.tokens.get_mut(&change.token_id).expect("it was found above");
            token.updated_at = at;
            token.check(change.hash.clone(), &change.token_id, &mut self.hasher, &mut self.counts);
            condemned.extend(self.settle(&change.token_id));
        }
        condemned
    }

    fn trade(&mut self, token_id: &Arc<str>, trade: LastTrade) {
        let Some(token) = known(&mut self.tokens, &self.markets, token_id) else {
            self.counts.unlisted += 1;
            return;
        };
        self.counts.trades += 1;
        token.note_trade_price(trade.price, trade.at);
        token.last_trade = Some(trade);
        if let Some(told) = token.contradiction.take() {
            // Counted as a mismatch before: it is judged anew.
            self.counts.hashes_mismatched -= 1;
            token.mismatches_in_a_row = token.mismatches_in_a_row.saturating_sub(1);
            token.check(Some(told), token_id, &mut self.hasher, &mut self.counts);
        }
        token.publish(&self.markets, &mut self.counts);
    }

    fn mark_stale(&mut self, token_id: &Arc<str>) {
        match known(&mut self.tokens, &self.markets, token_id) {
            Some(token) => {
                token.stale = true;
                token.publish(&self.markets, &mut self.counts);
            }
            None => self.counts.unlisted += 1,
        }
    }

    /// Judges a token by the checks that went before, and publishes its book.
    fn settle(&mut self, token_id: &Arc<str>) -> Option<Arc<str>> {
        let token = self.tokens.get_mut(token_id).expect("only known tokens are settled");
        let is_condemned = match self.policy {
            MismatchPolicy::Count => false,
            MismatchPolicy::Stale { after } => token.mismatches_in_a_row >= after.get(),
        };
        token.stale |= is_condemned;
        token.publish(&self.markets, &mut self.counts);
        is_condemned.then(|| token_id.clone())
    }
}

/// The state of a token, made when a listed market has it.
fn known<'a>(
    tokens: &'a mut HashMap<Arc<str>, Token, foldhash::fast::RandomState>,
    markets: &Markets,
    token_id: &Arc<str>,
) -> Option<&'a mut Token> {
    if !tokens.contains_key(token_id) {
        if tokens.len() >= TOKENS_MAX {
            return None;
        }
        let listing = markets.listing();
        let (market, outcome) = listing.by_token(token_id)?;
        tokens.insert(token_id.clone(), Token::new(market.clone(), outcome));
    }
    tokens.get_mut(token_id)
}

impl Token {
    fn new(market: Arc<Market>, outcome: OutcomeIndex) -> Self {
        Self {
            market,
            outcome,
            ladder: None,
            newest_side: None,
            updated_at: Timestamp::EPOCH,
            hash: None,
            last_trade: None,
            earlier_trade_price: None,
            tick: None,
            contradiction: None,
            mismatches_in_a_row: 0,
            sequence: 0,
            stale: false,
        }
    }

    /// Takes the price of the newest trade, keeping what else is known of it when it is the same.
    fn note_trade_price(&mut self, price: Price, at: Timestamp) {
        let before = self.last_trade.map(|trade| trade.price);
        if before != Some(price) {
            self.earlier_trade_price = before;
            self.last_trade = Some(LastTrade { price, size: Shares::ZERO, side: None, at });
        }
    }

    /// Compares the book with a told hash. A proof also heals a book that was marked stale.
    fn check(
        &mut self,
        told: Option<Box<str>>,
        token_id: &str,
        hasher: &mut BookHasher,
        counts: &mut FeedCounts,
    ) {
        self.contradiction = None;
        self.hash = told;
        let (Some(told), Some(ladder)) = (&self.hash, &self.ladder) else { return };
        let info = self.market.info();
        let book = HashedBook {
            market: &info.condition_id,
            token_id,
            at: self.updated_at,
            ladder,
            order_size_min: info.order_size_min,
            tick: self.tick.unwrap_or(info.tick),
            neg_risk: info.neg_risk,
        };
        let newest = self.last_trade.map(|trade| trade.price);
        let candidates = [newest, self.earlier_trade_price];
        let candidate_count = if self.earlier_trade_price.is_some() { 2 } else { 1 };
        if hasher.matching(book, told, candidates.into_iter().take(candidate_count)).is_some() {
            counts.hashes_verified += 1;
            self.mismatches_in_a_row = 0;
            self.stale = false;
        } else if newest.is_none() {
            counts.hashes_unchecked += 1;
        } else {
            counts.hashes_mismatched += 1;
            self.mismatches_in_a_row = self.mismatches_in_a_row.saturating_add(1);
            self.contradiction = self.hash.take();
        }
    }

    /// Publishes the book, if one is known, without what is crossed in it.
    fn publish(&mut self, markets: &Markets, counts: &mut FeedCounts) {
        let Some(ladder) = &self.ladder else { return };
        self.sequence += 1;
        let uncrossed = ladder.is_crossed().then(|| uncrossed(ladder, self.newest_side));
        counts.crossed += u64::from(uncrossed.is_some());
        let hash = if uncrossed.is_some() { None } else { self.hash.clone() };
        let mut book = Book::new(uncrossed.unwrap_or_else(|| ladder.clone()), self.updated_at);
        book.sequence = self.sequence;
        book.hash = hash;
        book.last_trade = self.last_trade;
        book.stale = self.stale;
        markets.publish(&self.market, self.outcome, Arc::new(book));
    }
}

/// A crossed ladder without the levels that a trade has consumed and no change has removed yet:
/// those opposite to the newest level, or on both sides where no level is known to be newer.
fn uncrossed(ladder: &Ladder, newest_side: Option<Side>) -> Ladder {
    let (Some(bid), Some(ask)) = (ladder.best_bid(), ladder.best_ask()) else {
        unreachable!("only a ladder with both sides is crossed");
    };
    let mut bids = ladder.bids().to_vec();
    let mut asks = ladder.asks().to_vec();
    if newest_side != Some(Side::Buy) {
        bids.retain(|level| level.price < ask.price);
    }
    if newest_side != Some(Side::Sell) {
        asks.retain(|level| level.price > bid.price);
    }
    Ladder::from_levels(bids, asks).expect("levels of a ladder make a ladder")
}

#[cfg(test)]
mod tests;
